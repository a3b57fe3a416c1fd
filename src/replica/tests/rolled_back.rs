//! Stories about a server that starts on an old state of its disk: it learns the promises that it made since.

use crate::replica::clients::deferral::knows_earlier_runs;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, name};
use super::store_cluster::{add, begin_elsewhere, counted, step};
use crate::causal_log::Wants;
use crate::leases::Proof;
use crate::replica::call::store::{AtLeast, Then, TxnRefusal};
use crate::replica::call::{Call, Grant, Limit, Phase, Reclaim, Refusal, Reply, Target};
use crate::replica::{Event, Message};
use geolock_api::names::{LeaseId, Mode};

impl Cluster {
    pub fn reclaims_early(&mut self, id: u8, held: &[(&str, Mode, &Grant)]) -> u64 {
        let held = held.iter().map(|(lock, mode, grant)| Reclaim {
            request: grant.request,
            key: None,
            wants: Wants::all(vec![(name(lock), *mode)]).expect("one lock"),
            token: grant.token,
            label: Arc::from("a story"),
        });
        let (lease, proof, held) = (self.lease(id), Proof::Secret(SECRET), held.collect());
        self.call(id, Call::Reclaim { lease, proof, held })
    }

    pub fn assert_kept(&self, id: u8, tag: u64, grants: &[&Grant]) {
        let kept = grants.iter().map(|grant| grant.request).collect();
        assert_eq!(self.reply(id, tag), Some(Reply::Reclaimed { kept, lost: vec![] }));
    }

    pub fn acquired(&mut self, id: u8, lock: &str, mode: Mode) -> Grant {
        let tag = if mode == Mode::Shared { self.share(id, lock) } else { self.lock(id, lock) };
        self.run();
        self.granted(id, tag)
    }

    fn begins_early(&mut self, id: u8, lease: LeaseId) -> u64 {
        let step = step(vec![add("n", 1)], &[], Then::Commit);
        self.call(id, Call::Begin(begin_elsewhere(lease, step)))
    }

    pub fn assert_no_violations(&self) {
        let all: Vec<_> = self.nodes.iter().flat_map(|node| &node.violations).collect();
        assert!(all.is_empty(), "{all:?}");
    }
}

/// dc0 held the lock, gave it away, and received it back for the present holder; its disk knows only the
/// beginning.
fn there_and_back(c: &mut Cluster) -> (usize, Grant) {
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    c.use_lock(1, "x");
    (copy, c.acquired(0, "x", Mode::Exclusive))
}

#[test]
fn a_peer_whose_link_has_just_come_up_is_listened_to_before_anything_is_written() {
    let mut c = Cluster::new(3, 0, 0);
    let (copy, _) = there_and_back(&mut c);
    c.crash(0, copy);
    let patience = c.nodes[0].replica.config.agreed.peer_timeout.as_millis() as u64;
    c.pass(patience - 1);
    c.late = |_| true;
    c.link(0, 1);
    c.pass(patience / 2);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "dc1 is about to say how much of the log it has");
    c.late = |_| false;
    c.run();
    c.link(0, 2);
    c.pass(1_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "leases that it does not know may live");
    c.pass(65_000);
    for id in 0..3 {
        assert_eq!(c.inspect(id).phase(), Phase::Serving, "there is one history");
    }

    // A link over which nothing comes prolongs the wait once, not for ever.
    c.restart(0);
    c.pass(patience - 1);
    c.late = |_| true;
    c.link(0, 1);
    c.pass(patience + 2);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
}

#[test]
fn a_reclaim_waits_until_it_is_known_what_became_of_the_parts() {
    let mut c = Cluster::new(3, 0, 0);
    let (copy, grant) = there_and_back(&mut c);
    c.crash(0, copy);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.pass(600);
    assert!(!c.is_answered(0, reclaim), "the parts may be elsewhere");
    c.link_again(0);
    c.pass(1_000);
    c.assert_kept(0, reclaim, &[&grant]);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "leases that it does not know may live");
    let next = c.lock(2, "x");
    let lease = c.lease(0);
    for _ in 0..13 {
        c.pass(5_000);
        c.call(0, Call::KeepAlive { lease, proof: Proof::Secret(SECRET) });
        c.call(2, Call::KeepAlive { lease: c.lease(2), proof: Proof::Attached });
    }
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    assert!(!c.is_answered(2, next));
    let target = Target::Id(grant.request);
    c.call(0, Call::Release { lease, proof: Proof::Secret(SECRET), target });
    c.run();
    assert!(c.granted(2, next).token > grant.token);
    c.assert_no_violations();
}

#[test]
fn reclaims_that_wait_want_no_more_than_could_be_held() {
    let mut c = Cluster::new(3, 0, 0);
    let (copy, grant) = there_and_back(&mut c);
    c.crash(0, copy);
    c.nodes[0].replica.config.local.max_held = 1;
    let one = [("x", Mode::Exclusive, &grant)];
    let first = c.reclaims_early(0, &one);
    let many = c.reclaims_early(0, &[one[0], ("y", Mode::Exclusive, &grant)]);
    let limit = Limit::HeldPerServer;
    assert!(
        matches!(c.reply(0, many), Some(Reply::Refused(Refusal::ResourceExhausted { limit: l, .. })) if l == limit)
    );
    // The latest reclaim of the lease counts, and the one before it no longer takes room.
    assert!(matches!(c.reply(0, first), Some(Reply::Refused(Refusal::NoReclaimExpected(_)))));
    let again = c.reclaims_early(0, &one);
    c.link_again(0);
    c.pass(1_000);
    c.assert_kept(0, again, &[&grant]);
}

#[test]
fn a_reclaim_of_parts_that_came_after_the_copy_is_right() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(1, "x");
    let copy = c.nodes[0].records.len();
    let grant = c.acquired(0, "x", Mode::Exclusive);
    c.crash(0, copy);
    c.pass(600);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.link_again(0);
    c.pass(1_000);
    c.assert_kept(0, reclaim, &[&grant]);
    assert!((0..3).all(|part| c.inspect(0).owner_of(&name("x"), dc(part)) == dc(0)));
    c.assert_no_violations();
}

#[test]
fn a_reader_that_is_back_first_stops_no_entry_that_gave_others_their_parts() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    let grant = c.acquired(0, "x", Mode::Shared);
    let other = c.acquired(1, "x", Mode::Shared);
    assert_eq!(c.inspect(0).owner_of(&name("x"), dc(1)), dc(1));
    c.crash(0, copy);
    // No member can be asked, so dc0 serves after a while.
    c.pass(4_000);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Shared, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
    c.link_again(0);
    c.pass(1_000);
    c.assert_no_violations();
    assert_eq!(c.inspect(0).owner_of(&name("x"), dc(1)), dc(1));
    c.release(1, other.request);
}

#[test]
fn a_holder_that_is_back_first_stops_no_state_in_which_its_parts_are_here() {
    let mut c = Cluster::with_log(3, (0, 0), 4_000);
    let (copy, grant) = there_and_back(&mut c);
    c.pass(1_000);
    assert_eq!(c.inspect(1).counts().log_entries, 0, "all have all");
    c.crash(0, copy);
    c.pass(4_000);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
    c.link_again(0);
    c.pass(3_000);
    c.assert_no_violations();
    assert_eq!(c.inspect(0).counts().state_transfers_received, 1);
}

#[test]
fn a_lease_keeps_its_grace_while_its_reclaim_waits() {
    let mut c = Cluster::new(3, 0, 0);
    let copy = c.nodes[0].records.len();
    let grant = c.acquired(0, "x", Mode::Exclusive);
    c.crash(0, copy);
    c.nodes[0].replica.begin_restored();
    c.link(0, 1);
    c.isolate(2);
    let first = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    let lease = c.lease(0);
    assert_eq!(c.refused(0, first), Refusal::NoReclaimExpected(lease), "the last word counts");
    for _ in 0..6 {
        c.pass(5_000);
        c.call(0, Call::KeepAlive { lease, proof: Proof::Secret(SECRET) });
        assert!(!c.is_answered(0, reclaim));
    }
    c.link(0, 2);
    c.pass(1_000);
    c.assert_kept(0, reclaim, &[&grant]);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "leases that it does not know may live");
    c.assert_no_violations();
}

#[test]
fn a_lost_disk_and_a_crash_before_its_log_is_back_are_no_new_beginning() {
    let mut c = Cluster::with_log(3, (0, 0), 4_000);
    c.use_lock(0, "x");
    let held = c.acquired(1, "x", Mode::Exclusive);
    c.pass(2_000);
    assert_eq!(c.inspect(1).counts().log_entries, 0, "all have all");
    c.crash(0, 0);
    c.link_again(0);
    // All members were heard, and nothing has come back yet.
    c.restart(0);
    c.pass(4_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    c.link_again(0);
    c.pass(3_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "leases that it does not know may live");
    c.pass(60_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    assert!((0..3).all(|part| c.inspect(0).owner_of(&name("x"), dc(part)) == dc(1)));
    c.release(1, held.request);
    c.assert_no_violations();
}

#[test]
fn a_lost_disk_grants_nothing_before_its_leases_must_be_over() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    c.acquired(0, "x", Mode::Exclusive);
    c.crash(0, 0);
    c.link_again(0);
    let next = c.lock(2, "x");
    for _ in 0..11 {
        c.pass(5_000);
        assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "the holder of before may not know yet");
        assert!(!c.is_answered(2, next));
        c.call(2, Call::KeepAlive { lease: c.lease(2), proof: Proof::Attached });
    }
    c.pass(6_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    c.granted(2, next);
    c.assert_no_violations();
}

/// It cannot know whether there is any.
#[test]
fn a_lost_disk_shows_no_empty_store_before_its_data_is_back() {
    let mut c = Cluster::new(3, 0, 0);
    let tag = c.begin(0, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.run();
    c.committed(0, tag);
    c.crash(0, 0);
    let hasty = c.read(0, &["n"], AtLeast::default());
    let patience = Duration::from_secs(10);
    let patient = c.read(0, &["n"], AtLeast { patience, ..AtLeast::default() });
    c.pass(4_000);
    assert!(!c.is_answered(0, hasty));
    c.pass(2_000);
    assert_eq!(c.txn_refused(0, hasty), TxnRefusal::NoState);
    assert!(!c.is_answered(0, patient));
    c.link_again(0);
    c.run();
    assert_eq!(c.stepped(0, patient).readings(), [counted(1)]);
}

/// Nobody has any data, which a new directory does not know before all others said so.
#[test]
fn a_read_in_a_new_cluster_waits_until_its_members_have_heard_each_other() {
    let mut c = Cluster::new(3, 0, 0);
    c.crash(0, 0);
    let patient = c.read(0, &["n"], AtLeast::default());
    c.pass(1_000);
    assert!(!c.is_answered(0, patient));
    c.link_again(0);
    c.run();
    assert_eq!(c.stepped(0, patient).readings(), [None]);
}

#[test]
fn a_lost_disk_waits_although_its_entries_come_before_others_say_how_many_there_are() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    c.acquired(0, "x", Mode::Exclusive);
    c.crash(0, 0);
    // Entries and heartbeats are different streams of a link.
    c.late = |message| match message {
        Message::Heartbeat(heartbeat) => heartbeat.durable.get(dc(0)) > 0,
        Message::HeartbeatV1(heartbeat) => heartbeat.durable.get(dc(0)) > 0,
        _ => false,
    };
    c.link_again(0);
    assert!(c.inspect(0).counts().entries_applied > 0, "its log comes back");
    c.late = |_| false;
    let next = c.lock(2, "x");
    c.pass(5_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "the holder of before may not know yet");
    assert!(!c.is_answered(2, next));
}

#[test]
fn a_lost_disk_that_crashes_again_still_waits_for_its_leases() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    c.crash(0, 0);
    c.link_again(0);
    c.pass(30_000);
    c.restart(0);
    c.link_again(0);
    c.pass(50_000);
    assert_eq!(
        c.inspect(0).phase(),
        Phase::ReadOnly,
        "it counts from the start: time passes unseen while it is down"
    );
    c.pass(11_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
}

#[test]
fn a_new_directory_of_which_nobody_knows_anything_serves_at_once() {
    let mut c = Cluster::new(3, 0, 0);
    c.restart(2);
    c.crash(1, 0);
    c.link_again(1);
    c.link(0, 2);
    c.pass(1_000);
    assert_eq!(c.inspect(1).phase(), Phase::Serving);
}

#[test]
fn an_old_copy_that_lacks_nothing_of_its_own_waits_for_what_it_said_to_have_seen() {
    let mut c = Cluster::with_log(3, (0, 0), 4_000);
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    let made = c.inspect(0).status().applied.get(dc(0));
    c.begin(1, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.pass(3_000);
    assert_eq!(c.inspect(1).counts().log_entries, 0, "all have seen it, and rely on that");
    assert_eq!(c.inspect(0).status().applied.get(dc(0)), made);
    c.crash(0, copy);
    c.link_again(0);
    c.pass(700);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "what it writes would not have seen that");
    c.pass(12_000);
    assert_eq!(c.reads(0, "n"), counted(1));
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "leases that it does not know may live");
    c.pass(50_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    c.assert_no_violations();
}

#[test]
fn a_state_takes_back_requests_whose_end_the_disk_has_lost() {
    let mut c = Cluster::with_log(3, (0, 0), 4_000);
    let held = c.acquired(1, "x", Mode::Exclusive);
    let waits = c.lock(0, "x");
    c.run();
    let copy = c.nodes[0].records.len();
    c.release(1, held.request);
    c.run();
    let granted = c.granted(0, waits);
    c.release(0, granted.request);
    c.pass(3_000);
    assert_eq!(c.inspect(1).counts().log_entries, 0, "all have all");
    c.crash(0, copy);
    assert_eq!(c.inspect(0).request_table().len(), 1, "it was in the log when the copy was taken");
    c.link_again(0);
    c.pass(12_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "it writes nothing yet");
    assert_eq!(c.inspect(0).applied(), c.inspect(1).applied());
    assert_eq!(c.inspect(0).request_table(), c.inspect(1).request_table());
}

#[test]
fn what_is_let_go_while_its_reclaim_waits_is_not_taken_back() {
    let mut c = Cluster::new(2, 0, 0);
    let (a, b) = (c.acquired(0, "a", Mode::Exclusive), c.acquired(0, "b", Mode::Exclusive));
    c.restart(0);
    let held = [("a", Mode::Exclusive, &a), ("b", Mode::Exclusive, &b)];
    let reclaim = c.reclaims_early(0, &held);
    let (lease, proof) = (c.lease(0), Proof::Secret(SECRET));
    let release = c.call(0, Call::Release { lease, proof, target: Target::Id(a.request) });
    assert_eq!(c.reply(0, release), Some(Reply::Released));
    c.link(0, 1);
    c.pass(1_000);
    c.assert_kept(0, reclaim, &[&b]);
    c.use_lock(1, "a");
    // The end of a lease ends its deferred reclaim, too.
    c.restart(0);
    let reclaim = c.reclaims_early(0, &held);
    c.call(0, Call::CloseLease { lease, proof });
    assert_eq!(c.refused(0, reclaim), Refusal::UnknownLease(lease));
    c.link(0, 1);
    c.pass(1_000);
    c.use_lock(1, "b");
}

#[test]
fn a_commit_that_comes_back_is_not_made_again() {
    for asks_early in [true, false] {
        let mut c = Cluster::new(2, 0, 0);
        let (copy, lease) = (c.nodes[0].records.len(), c.lease(0));
        c.begins_early(0, lease);
        c.run();
        c.crash(0, copy);
        let early = asks_early.then(|| c.begins_early(0, lease));
        c.pass(600);
        assert!(early.is_none_or(|early| !c.is_answered(0, early)), "it may have been committed");
        c.link(0, 1);
        c.pass(1_000);
        let asked = early.unwrap_or_else(|| c.begins_early(0, lease));
        c.committed(0, asked);
        assert_eq!((c.reads(0, "n"), c.reads(1, "n")), (counted(1), counted(1)));
    }
}

#[test]
fn a_commit_that_comes_back_is_told_when_it_is_on_disk_again() {
    let mut c = Cluster::new(2, 0, 0);
    let (copy, lease) = (c.nodes[0].records.len(), c.lease(0));
    c.begins_early(0, lease);
    c.run();
    c.crash(0, copy);
    let asked = c.begins_early(0, lease);
    c.pass(600);
    c.sync(0);
    c.link(0, 1);
    while !knows_earlier_runs(&c.nodes[0].replica.lifecycle, &c.nodes[0].replica.log) {
        c.deliver(0, 1);
        c.deliver(1, 0);
        c.sync(1);
        c.now += 10;
        (0..2).for_each(|id| c.handle(id, Event::Tick));
    }
    assert!(!c.is_answered(0, asked));
    c.run();
    c.committed(0, asked);
}

#[test]
fn of_a_commit_whose_lease_was_lost_too_nobody_is_told_that_it_failed() {
    let mut c = Cluster::new(2, 0, 0);
    let copy = c.nodes[0].records.len();
    c.open_lease(0, Duration::from_secs(10));
    let lease = c.lease(0);
    c.begins_early(0, lease);
    c.run();
    c.crash(0, copy);
    let early = c.begins_early(0, lease);
    c.pass(600);
    assert!(!c.is_answered(0, early));
    c.link(0, 1);
    c.pass(1_000);
    assert_eq!(c.txn_refused(0, early), TxnRefusal::OutcomeUnknown(1));
    let checkpoint = c.inspect(0).checkpoint();
    c.restart_from(0, checkpoint);
    c.link_again(0);
    c.pass(1_000);
    let again = c.begins_early(0, lease);
    c.run();
    assert_eq!(c.txn_refused(0, again), TxnRefusal::OutcomeUnknown(1), "after a restart, too");
    let never = LeaseId::new(dc(0), lease.n() + 1);
    let tag = c.begins_early(0, never);
    c.run();
    assert_eq!(c.refused(0, tag), Refusal::UnknownLease(never));
}

#[test]
fn a_commit_that_waits_keeps_its_turn() {
    let mut c = Cluster::new(2, 0, 0);
    c.restart(0);
    c.pass(600);
    let (lease, secret) = (c.lease(0), SECRET);
    c.call(0, Call::AttachLease { lease, secret });
    let waits = c.begins_early(0, lease);
    let later = c.begin(0, 2, None, step(vec![], &["n"], Then::Continue));
    assert_eq!(c.stepped(0, later).readings(), [None], "it commits nothing");
    assert!(!c.is_answered(0, waits));
    c.link(0, 1);
    c.pass(1_000);
    c.committed(0, waits);
}
