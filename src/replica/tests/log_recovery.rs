//! Stories about log recovery: datacenters that are new or lost their disks, where some pairs have no link.

use std::time::Duration;

use super::cluster::{Cluster, dc, name};
use super::store_cluster::add;
use crate::base::time::Timestamp;
use crate::causal_log::{Commit, Entry, Op};
use crate::replica::call::Phase;
use crate::replica::{Event, Message, Record};
use geolock_api::names::{ClusterId, FencingToken, LeaseId};

/// Three datacenters that never ran, linked as a chain: the ends have no link to each other.
fn new_chain() -> Cluster {
    let mut c = Cluster::new(3, 0, 0);
    (0..3).for_each(|id| c.crash(id, 0));
    c.link(0, 1);
    c.link(1, 2);
    c
}

/// Takes all messages in flight on a link, except heartbeats, which are dropped.
fn take(c: &mut Cluster, from: u8, to: u8) -> Vec<Message> {
    let wire = c.wires.get_mut(&(dc(from), dc(to))).expect("they are linked");
    wire.drain(..).filter(|message| !matches!(message, Message::Heartbeat(_))).collect()
}

#[test]
fn a_chain_serves_although_its_ends_never_meet() {
    let mut c = new_chain();
    c.pass(1_000);
    for id in 0..3 {
        assert_eq!(c.inspect(usize::from(id)).phase(), Phase::Serving, "dc{id}");
        c.open_lease(id, Duration::from_secs(10));
    }
    c.use_lock(0, "a");
    c.use_lock(2, "a");
    c.use_lock(0, "a");
}

#[test]
fn a_chain_waits_for_its_far_end() {
    let mut c = Cluster::new(3, 0, 0);
    (0..3).for_each(|id| c.crash(id, 0));
    c.link(0, 1);
    c.pass(5_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "the far end was not asked");
    c.link(1, 2);
    c.pass(1_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
}

#[test]
fn a_lost_log_comes_back_from_somebody_without_a_link() {
    let mut c = Cluster::new(3, 0, 0);
    // Only dc2 has the entry.
    c.cut(0, 1);
    c.cut(1, 2);
    let asked = c.lock(0, "a");
    c.run();
    assert!(!c.is_answered(0, asked));
    let lost = c.inspect(2).status().applied.get(dc(0));
    assert!(lost > c.inspect(1).status().applied.get(dc(0)));
    c.crash(0, 0);
    c.link(0, 1);
    c.pass(1_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    c.link(1, 2);
    c.pass(2_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "its leases may live");
    c.pass(60_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    assert!(c.inspect(0).status().applied.get(dc(0)) >= lost, "nothing is written twice");
    c.open_lease(0, Duration::from_secs(10));
    c.use_lock(0, "a");
    assert_eq!(c.inspect(2).owner_of(&name("a"), dc(2)), dc(0));
}

#[test]
fn an_old_copy_of_a_disk_asks_before_it_writes() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    let copy = c.nodes[0].records.len();
    c.use_lock(0, "b");
    c.use_lock(1, "b");
    c.use_lock(0, "b");
    let token = use_lock(&mut c, "b");
    let made = c.inspect(0).status().applied.get(dc(0));
    c.crash(0, copy);
    assert!(c.inspect(0).status().applied.get(dc(0)) < made);
    c.pass(2_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "nobody was heard yet");
    c.link(0, 1);
    c.pass(500);
    assert_eq!(c.inspect(0).status().applied.get(dc(0)), made, "it has its own log back");
    c.link(0, 2);
    c.pass(500);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "leases that it does not know may live");
    c.pass(61_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    c.open_lease(0, Duration::from_secs(10));
    assert!(use_lock(&mut c, "b") > token);
}

/// Uses a lock at dc0; returns its token.
fn use_lock(c: &mut Cluster, lock: &str) -> FencingToken {
    let tag = c.lock(0, lock);
    c.run();
    let grant = c.granted(0, tag);
    c.release(0, grant.request);
    grant.token
}

#[test]
fn a_restart_waits_for_who_is_away_only_as_long_as_it_takes_to_call_it_so() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.isolate(2);
    c.restart(0);
    c.link(0, 1);
    c.pass(1_500);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "the third was not asked");
    c.pass(2_000);
    assert_eq!(c.inspect(0).phase(), Phase::Grace { leases: 1 }, "it serves as always after a restart");
}

#[test]
fn answers_to_an_earlier_run_do_not_count() {
    let mut c = Cluster::new(3, 0, 0);
    c.crash(0, 0);
    c.link(0, 1);
    c.run();
    let stale = Message::KnowsLog { of: dc(0), run: 1, by: dc(2), seq: 0 };
    c.handle(0, Event::Received { peer: dc(1), message: stale });
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    c.pass(1_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving, "it was asked itself");
}

#[test]
fn whoever_still_has_a_link_to_the_asker_does_not_answer() {
    let mut c = Cluster::new(3, 0, 0);
    let ask = |c: &mut Cluster, round| {
        let message = Message::AskLog { of: dc(0), run: 7, round };
        c.handle(1, Event::Received { peer: dc(2), message });
        take(c, 1, 2)
    };
    assert_eq!(ask(&mut c, 1), [], "more of it may arrive on that link");
    c.cut(0, 1);
    let _ = take(&mut c, 1, 2);
    let seq = c.inspect(1).status().applied.get(dc(0));
    assert_eq!(ask(&mut c, 2), [Message::KnowsLog { of: dc(0), run: 7, by: dc(1), seq }]);
    assert_eq!(ask(&mut c, 2), [], "once a round");
    let unknown = Message::AskLog { of: dc(9), run: 7, round: 1 };
    c.handle(1, Event::Received { peer: dc(2), message: unknown });
    assert_eq!(c.nodes[1].violations.len(), 1);
}

#[test]
fn what_is_not_on_disk_is_not_told() {
    let mut c = Cluster::new(3, 0, 0);
    let _ = c.lock(0, "a");
    c.sync(0);
    while c.deliver(0, 1) {}
    c.cut(0, 1);
    let ask = |round| Event::Received { peer: dc(2), message: Message::AskLog { of: dc(0), run: 7, round } };
    let _ = take(&mut c, 1, 2);
    c.handle(1, ask(1));
    assert_eq!(take(&mut c, 1, 2), [], "a crash may take it back");
    c.sync(1);
    let _ = take(&mut c, 1, 2);
    let seq = c.inspect(1).status().applied.get(dc(0));
    c.handle(1, ask(2));
    assert_eq!(take(&mut c, 1, 2), [Message::KnowsLog { of: dc(0), run: 7, by: dc(1), seq }]);
}

#[test]
fn a_peer_with_a_slow_disk_does_not_hide_what_it_has_taken() {
    let mut c = Cluster::new(2, 0, 0);
    c.use_lock(1, "a");
    let _ = c.lock(0, "a");
    c.sync(0);
    while c.deliver(0, 1) {}
    let taken = c.inspect(1).status().applied.get(dc(0));
    assert!(taken > c.inspect(1).status().durable.get(dc(0)));
    c.crash(0, 0);
    c.link(0, 1);
    for _ in 0..10 {
        c.sync(0);
        while c.deliver(1, 0) || c.deliver(0, 1) {}
    }
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "it would write again what dc1 has in memory");
    c.pass(1_000);
    assert!(c.inspect(0).status().applied.get(dc(0)) >= taken);
    c.pass(60_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
}

#[test]
fn a_restored_copy_grants_nothing_before_all_were_heard_and_unknown_leases_are_over() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(1, "b");
    c.sync(0);
    let backup = c.nodes[0].records.len();
    // Events that the copy does not know: a lock that left, a lease, and requests.
    c.use_lock(1, "a");
    c.open_lease(0, Duration::from_secs(10));
    let unknown = c.lease(0);
    c.use_lock(0, "c");
    c.run();
    let known = c.inspect(1).status().applied.get(dc(0));

    c.crash(0, backup);
    c.nodes[0].replica.begin_restored();
    c.pass(1_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "nobody was heard");
    c.link(0, 1);
    c.pass(5_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "dc2 may know more");
    c.link(0, 2);
    c.pass(5_000);
    assert!(c.inspect(0).status().applied.get(dc(0)) >= known, "its own entries came back");
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "the lease may be alive");
    assert_eq!(c.inspect(0).owner_of(&name("a"), dc(0)), dc(1));

    // A restart in the middle of the wait begins it again, also from a checkpoint.
    c.restart(0);
    c.link_again(0);
    c.pass(59_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    let checkpoint = c.inspect(0).checkpoint();
    c.restart_from(0, checkpoint);
    c.link_again(0);
    c.pass(59_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    c.pass(12_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    c.open_lease(0, Duration::from_secs(10));
    assert!(c.lease(0).n() > unknown.n(), "no number is given twice");
    c.open_lease(1, Duration::from_secs(10));
    c.use_lock(0, "a");
    c.use_lock(1, "a");

    // From now on it is a server like any other.
    c.restart(0);
    c.pass(11_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving, "it was heard once by all");
}

#[test]
fn a_restart_asks_for_as_long_however_long_it_read_its_journal() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(2);
    c.restart(0);
    c.now += 8_000;
    c.link(0, 1);
    c.pass(1_500);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "the third was not asked");
    c.pass(2_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving, "no lease came back");
}

#[test]
fn no_number_is_given_twice_whatever_was_lost() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.open_lease(0, Duration::from_secs(10));
    let before = c.lease(0);
    // The disk is lost, and no member was heard yet.
    c.pass(10);
    c.crash(0, 0);
    c.open_lease(0, Duration::from_secs(10));
    assert!(c.lease(0).n() > before.n());
    // The disk is an old copy; after the next crash it has no later record than the one that marks it as a
    // copy.
    let before = c.lease(0);
    let copy = c.nodes[0].records.len() - 1;
    c.pass(10);
    c.crash(0, copy);
    c.nodes[0].replica.begin_restored();
    c.handle(0, Event::Tick);
    assert_eq!(c.nodes[0].records[copy].1, Record::Restored, "with the first record the mark is taken off");
    c.crash(0, copy + 1);
    c.open_lease(0, Duration::from_secs(10));
    assert!(c.lease(0).n() > before.n());
}

#[test]
fn numbers_in_own_entries_that_come_back_are_passed() {
    let mut c = Cluster::new(2, 0, 0);
    let deps = c.inspect(0).status().applied;
    // A lease that was opened by a clock that was far ahead.
    let lost = LeaseId::new(dc(0), 1 << 53);
    let commit = Commit { seen: deps.clone(), client: Some((lost, 1)), changes: vec![add("n", 1)] };
    let (seq, at) = (deps.get(dc(0)) + 1, Timestamp::from_millis(1_700_000_001_000));
    let (cluster, ops) = (ClusterId::of("stories"), vec![Op::Commit(commit)]);
    let entry = Entry { cluster, epoch: 0, prev: 0, lead_ms: 0, dc: dc(0), seq, at, deps, ops };
    c.handle(0, Event::Received { peer: dc(1), message: Message::Entries(vec![entry.into()]) });
    assert_eq!(c.inspect(0).status().applied.get(dc(0)), seq);
    c.open_lease(0, Duration::from_secs(10));
    assert!(c.lease(0).n() > lost.n());
}

#[test]
fn questions_of_two_runs_do_not_keep_each_other_going_round_in_circles() {
    let mut c = Cluster::new(4, 0, 0);
    c.cut(3, 1);
    c.cut(3, 2);
    c.run();
    for run in 1..=2 {
        let message = Message::AskLog { of: dc(3), run, round: 1 };
        c.handle(0, Event::Received { peer: dc(3), message });
    }
    // Each question passes each link at most once in each direction; the answers are a few more.
    let pairs = || (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
    for _ in 0..20 {
        pairs().for_each(|(from, to)| _ = c.deliver(from, to));
    }
    assert!(c.wires.values().all(|wire| wire.is_empty()), "{:?}", c.wires);
}
