//! Stories about two histories of one log: a datacenter continued from an old disk while the member that knew
//! more was away.

use crate::replica::lend::lend;
use std::time::Duration;

use super::cluster::{Cluster, dc, name};
use super::store_cluster::{add, step};
use crate::base::bugs::Bug;
use crate::base::time::Timestamp;
use crate::base::wire::PROTOCOL_VERSION;
use crate::causal_log::{Entry, Op, Violation};
use crate::leases::Proof;
use crate::replica::call::store::Then;
use crate::replica::call::{Call, Phase, Refusal, Wait};
use crate::replica::{Event, Message, NotServing, Record};
use geolock_api::names::{ClusterId, FencingToken, Mode, Position};

impl Cluster {
    fn is_forked(&self, id: u8) -> bool {
        matches!(self.nodes[usize::from(id)].replica.inspect().phase(), Phase::Forked { dc: of, .. } if of == dc(0))
    }

    /// Commits `times` times.
    fn writes(&mut self, id: u8, times: u64) {
        self.open_lease(id, Duration::from_secs(10));
        for key in 1..=times {
            let tag = self.begin(id, key, None, step(vec![add("n", 1)], &[], Then::Commit));
            self.run();
            self.committed(id, tag);
        }
    }

    /// Renews the leases of these datacenters while time passes.
    fn pass_with_leases(&mut self, seconds: u64, ids: &[u8]) {
        for _ in 0..seconds.div_ceil(5) {
            self.pass(5_000);
            for id in ids {
                self.call(*id, Call::KeepAlive { lease: self.lease(*id), proof: Proof::Attached });
            }
        }
    }
}

/// dc0 transferred a part to dc2, of which only dc2 knows, and then wrote other entries under the same
/// numbers, of which dc1 knows.
fn two_histories() -> Cluster {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    c.pass(1_000);
    let copy = c.nodes[0].records.len();
    c.isolate(1);
    let share = c.share(2, "x");
    c.run();
    c.granted(2, share);
    c.isolate(2);
    c.crash(0, copy);
    c.link(0, 1);
    c.pass_with_leases(15, &[1, 2]);
    assert_eq!(c.inspect(0).phase(), Phase::Serving, "dc2 is away for longer than it is waited for");
    c.open_lease(0, Duration::from_secs(10));
    for key in 1..=5 {
        let tag = c.begin(0, key, None, step(vec![add("n", 1)], &[], Then::Commit));
        c.run();
        c.committed(0, tag);
    }
    c
}

#[test]
fn two_histories_stop_all_and_are_never_merged() {
    let mut c = two_histories();
    let at_dc2 = c.inspect(2).applied().clone();
    c.link_again(2);
    c.pass(1_000);
    assert!((0..3).all(|id| c.is_forked(id)), "dc1 hears of it, too");
    let peers = c.inspect(1).status().peers;
    let forked = peers.iter().filter(|peer| peer.not_serving == Some(NotServing::Forked));
    assert_eq!(forked.count(), 2, "{peers:?}");
    let owners = |c: &Cluster, id: usize| {
        (0..3).map(|part| c.inspect(id).owner_of(&name("x"), dc(part))).collect::<Vec<_>>()
    };
    assert_eq!([owners(&c, 0), owners(&c, 2)], [vec![dc(0); 3], vec![dc(0), dc(1), dc(2)]]);
    let x = c.lock(0, "x");
    c.pass_with_leases(40, &[0, 1, 2]);
    assert!(!c.is_answered(0, x), "dc2 holds it");
    assert_eq!(*c.inspect(2).applied(), at_dc2, "nothing is merged");
    // Also after restarts, of one after the other or of all.
    for id in 0..3 {
        c.restart(id);
        c.link_again(id);
        c.pass(5_000);
        assert!((0..3).all(|id| c.is_forked(id)));
    }
    (0..3).for_each(|id| c.restart(id));
    c.pass(5_000);
    assert!((0..3).all(|id| c.is_forked(id)), "the disk knows");
}

/// dc1 has one history as part of a state, dc2 has the other one, and neither keeps entries that the other
/// names.
#[test]
fn two_histories_are_seen_although_one_of_them_came_as_a_state() {
    let mut c = Cluster::with_log(3, (0, 0), 2_000);
    c.writes(0, 3);
    c.pass(2_000);
    let copies = [0, 1].map(|id| c.nodes[id].records.len());
    c.isolate(2);
    c.writes(0, 40);
    c.pass(5_000);
    c.crash(1, copies[1]);
    c.link(0, 1);
    c.pass(5_000);
    assert_eq!(c.inspect(1).counts().state_transfers_received, 1);
    c.crash(0, copies[0]);
    c.link(0, 2);
    c.pass(15_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving, "dc1 is away for longer than it is waited for");
    c.writes(0, 20);
    c.pass(1_000);
    let [at_dc1, at_dc2] = [1, 2].map(|id| c.inspect(id).applied().clone());
    assert!(at_dc2.get(dc(0)) < at_dc1.get(dc(0)));
    c.crash(0, 0);
    c.link(1, 2);
    c.pass(5_000);
    assert!(c.is_forked(1) && c.is_forked(2));
    assert_eq!(*c.inspect(2).applied(), at_dc2, "nothing is merged");
}

/// dc2 has restarted and sends no heartbeats yet. It relays an entry of its own that depends on the history
/// that it knows.
#[test]
fn nothing_is_merged_before_a_peer_has_said_what_it_has() {
    let mut c = two_histories();
    let before = c.inspect(0).applied().get(dc(2));
    c.restart(2);
    assert!(c.inspect(2).applied().get(dc(2)) > before);
    c.link(0, 2);
    c.run();
    assert_eq!(c.inspect(2).phase(), Phase::Starting, "it says nothing that is stamped");
    assert!(c.is_forked(0), "the heads of its logs show two histories");
    c.pass(2_000);
    assert!(c.is_forked(2));
    assert_eq!(c.inspect(0).applied().get(dc(2)), before);
}

#[test]
fn people_decide_which_history_is_kept() {
    let mut c = two_histories();
    c.link_again(2);
    c.pass(1_000);
    (0..2).for_each(|id| c.crash(id, 0));
    c.restart(2);
    assert!(!c.nodes[2].replica.resolve_fork());
    c.link(0, 1);
    c.link_again(2);
    c.pass(80_000);
    for id in 0..3 {
        assert_eq!(c.inspect(id).phase(), Phase::Serving);
        assert_eq!(c.inspect(id).applied(), c.inspect(2).applied());
    }
    (0..3).for_each(|id| c.open_lease(id, Duration::from_secs(10)));
    (0..3).for_each(|id| c.use_lock(id, "x"));
    c.pass(1_000);
    assert!((0..3).all(|id| c.inspect(id).phase() == Phase::Serving));
}

#[test]
fn a_history_that_was_not_taken_away_stops_all_again() {
    let mut c = two_histories();
    c.link_again(2);
    c.pass(1_000);
    for id in [0, 2] {
        c.restart(id);
        assert!(!c.nodes[usize::from(id)].replica.resolve_fork());
    }
    c.crash(1, 0);
    c.link(0, 1);
    c.pass(1_000);
    assert!(!c.is_forked(0));
    c.link_again(2);
    c.pass(1_000);
    assert!((0..3).all(|id| c.is_forked(id)));
}

#[test]
fn an_entry_that_is_another_one_than_before_stops_and_so_does_one_that_follows_another_one() {
    let of_dc1 = |c: &Cluster| {
        let entries = c.nodes[0].records.iter().filter_map(|(_, record)| match record {
            Record::Entry(entry) if entry.dc == dc(1) => Some((**entry).clone()),
            _ => None,
        });
        entries.last().expect("dc1 wrote something")
    };
    let stops = |change: fn(&mut Entry)| {
        let mut c = Cluster::new(2, 0, 0);
        c.use_lock(1, "x");
        c.run();
        let mut entry = of_dc1(&c);
        assert_ne!(entry.prev, 0, "all know version 2");
        change(&mut entry);
        c.handle(0, Event::Received { peer: dc(1), message: Message::Entries(vec![entry.into()]) });
        matches!(c.inspect(0).phase(), Phase::Forked { dc: of, .. } if of == dc(1))
    };
    assert!(!stops(|_| {}), "it came again");
    assert!(stops(|entry| entry.at = Timestamp::from_raw(entry.at.raw() + 1)));
    assert!(stops(|entry| {
        entry.seq += 1;
        entry.deps.raise(dc(1), entry.seq - 1);
    }));
    assert!(!stops(|entry| {
        entry.seq += 1;
        entry.deps.raise(dc(1), entry.seq - 1);
        entry.prev = 0;
        entry.cluster = ClusterId::of("stories");
        entry.at = Timestamp::from_raw(entry.at.raw() + 1);
        entry.ops.clear();
    }));
}

/// An entry of another history is queued behind one that waits for the clock. When the clock has caught up, a
/// wait ends in the same step.
#[test]
fn what_ends_in_the_step_that_finds_another_history_is_written_before_that_is_noted() {
    let mut c = Cluster::new(2, 0, 0);
    (0..2).for_each(|_| c.use_lock(1, "y"));
    let held = c.lock(1, "x");
    c.run();
    c.granted(1, held);
    let waits = c.acquire(0, &[("x", Mode::Exclusive)], Wait::AtMost(Duration::from_secs(1)));
    c.run();
    let entries = c.nodes[0].records.iter().filter_map(|(_, record)| match record {
        Record::Entry(entry) if entry.dc == dc(1) => Some(entry),
        _ => None,
    });
    let last = (**entries.last().expect("dc1 handed something over")).clone();
    let next_of = |last: &Entry, prev: u64| {
        let (seq, mut deps) = (last.seq + 1, last.deps.clone());
        deps.raise(dc(1), last.seq);
        let at = Timestamp::from_millis(1_700_000_000_000 + c.now + 5_300 + seq - last.seq);
        Entry {
            seq,
            deps,
            at: at.max(last.at.plus(Duration::from_millis(1))),
            prev,
            ops: vec![],
            ..last.clone()
        }
    };
    let ahead = next_of(&last, last.hash());
    let other = next_of(&ahead, ahead.hash() + 1);
    let message = Message::Entries(vec![ahead.into(), other.into()]);
    c.handle(0, Event::Received { peer: dc(1), message });
    assert!(matches!(c.inspect(0).phase(), Phase::Serving));
    c.now += 2_000;
    c.handle(0, Event::Tick);
    assert!(matches!(c.inspect(0).phase(), Phase::Forked { dc: of, .. } if of == dc(1)));
    assert!(matches!(c.refused(0, waits), Refusal::TimedOut(_)));
    let is_withdrawn = |(_, record): &(_, Record)| matches!(record, Record::Entry(entry) if entry.dc == dc(0) && matches!(entry.ops[..], [Op::Withdraw { .. }]));
    assert!(
        c.nodes[0].records.iter().any(is_withdrawn),
        "others learn that it is over when one history is left"
    );
}

/// It has written nothing itself since all members know version 2, but it has entries that were written
/// since.
#[test]
fn an_entry_of_anybody_that_names_its_predecessor_shows_that_all_know_version_2() {
    let mut c = Cluster::new(3, 0, 0);
    for key in 1..=2 {
        c.begin(1, key, None, step(vec![add("n", 1)], &[], Then::Commit));
        c.run();
    }
    assert_eq!(c.inspect(0).applied().get(dc(0)), 0);
    c.restart(0);
    c.link(0, 2);
    c.handle(0, Event::Received { peer: dc(2), message: Message::HeartbeatV1(Box::default()) });
    assert_eq!(c.nodes[0].violations, [Violation::OldVersion { speaks: 1, all: PROTOCOL_VERSION }]);
}

#[test]
fn a_lost_disk_whose_clock_was_right_puts_no_token_ahead() {
    for away in [0, 60, 30 * 24 * 3_600] {
        let mut c = Cluster::new(3, 0, 0);
        c.use_lock(0, "x");
        c.pass(1_000);
        c.isolate(0);
        c.now += away * 1_000;
        c.crash(0, 0);
        c.link_again(0);
        c.pass(70_000);
        assert_eq!(c.inspect(0).phase(), Phase::Serving);
        assert_eq!(c.nodes[0].replica.ids.lead.millis, 0, "after {away} s");
    }
}

#[test]
fn what_no_clock_shows_is_not_believed_of_tokens() {
    let mut c = Cluster::new(2, 0, 0);
    c.use_lock(0, "x");
    let replica = &mut c.nodes[0].replica;
    replica.ids.raise_lead(u64::MAX, Position::default());
    assert_eq!(replica.ids.lead.millis, 0);
    c.crash(0, 0);
    let replica = &mut c.nodes[0].replica;
    lend!(Clocks, replica).note_lost_readings(Some((Timestamp::from_millis(1 << 43), 0)));
    lend!(Clocks, replica).note_lost_readings(Some((Timestamp::from_millis(1_700_000_000_000), u64::MAX)));
    c.link_again(0);
    c.pass(70_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    assert_eq!(c.nodes[0].replica.ids.lead.millis, 0);
}

#[test]
fn a_member_that_goes_back_to_version_1_is_not_let_in() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    c.link(0, 1);
    c.handle(0, Event::Received { peer: dc(1), message: Message::HeartbeatV1(Box::default()) });
    assert_eq!(
        c.nodes[0].violations,
        [Violation::OldVersion { speaks: 1, all: PROTOCOL_VERSION }],
        "it has spoken version 2 before"
    );
}

/// A wall clock is an hour ahead, and right again after the disk was lost.
/// dc0 granted "x" while its clock was an hour ahead, then lost its disk, and its clock is right. Returns the
/// token of that grant, too.
fn after_a_clock_that_was_ahead(bug: Option<Bug>) -> (Cluster, FencingToken) {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    c.ahead.insert(0, 3_600_000);
    c.crash(0, 0);
    c.link_again(0);
    c.pass(70_000);
    c.open_lease(0, Duration::from_secs(10));
    let mine = c.share(0, "x");
    c.run();
    let before = c.granted(0, mine).token;
    assert!(Timestamp::from_raw(before.0).millis() > 1_700_003_600_000);

    c.ahead.clear();
    c.bug = bug;
    c.crash(0, 0);
    c.link_again(0);
    c.pass(70_000);
    (0..3).for_each(|id| c.open_lease(id, Duration::from_secs(10)));
    (c, before)
}

#[test]
fn tokens_after_a_lost_disk_are_above_those_of_a_clock_that_was_ahead() {
    let (mut c, before) = after_a_clock_that_was_ahead(None);
    let mut last = before;
    for id in [0, 1, 0, 2] {
        let tag = c.lock(id, "x");
        c.run();
        let grant = c.granted(id, tag);
        assert!(grant.token > last, "dc{id}");
        last = grant.token;
        c.release(id, grant.request);
    }
    // No clock followed.
    assert!((0..3).all(|id| !c.inspect(id).status().clock_skew));
    // The lead survives a restart.
    c.pass(1_000);
    c.restart(1);
    c.link_again(1);
    c.pass(15_000);
    c.open_lease(1, Duration::from_secs(10));
    let tag = c.lock(1, "x");
    c.run();
    assert!(c.granted(1, tag).token > last);
}

#[test]
fn were_lost_tokens_not_passed_it_would_be_noticed() {
    let (mut c, before) = after_a_clock_that_was_ahead(Some(Bug::LostTokensNotPassed));
    let tag = c.lock(0, "x");
    c.run();
    assert!(c.granted(0, tag).token < before);
}
