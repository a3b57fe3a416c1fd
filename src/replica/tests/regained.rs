//! Stories about regained entries: the parts of its own log that a datacenter gets back after its disk has
//! lost them, and its limits before all of them are here.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, name};
use super::store_cluster::{begin_elsewhere, key, put, step};
use crate::base::bugs::Bug;
use crate::base::time::Timestamp;
use crate::causal_log::{Action, Change};
use crate::crdt::VersionVector;
use crate::replica::call::store::Then;
use crate::replica::call::{Call, Phase};
use crate::replica::clients::force_release::ForceRelease;
use crate::replica::{Event, Message, Notice};
use geolock_api::names::{ForceReason, Mode};
use geolock_api::value::Reading;

impl Cluster {
    fn has_committed(&mut self, id: u8, key: u64, lock: Option<&str>, change: Change) -> VersionVector {
        let tag = self.begin(id, key, lock, step(vec![change], &[], Then::Commit));
        self.run();
        self.committed(id, tag)
    }

    /// Restarts a datacenter with a wall clock that is ahead from then on.
    fn restart_ahead(&mut self, id: u8, millis: u64, keep: usize) {
        self.ahead.insert(id, millis as i64);
        self.crash(id, keep);
        // No member can be heard, so none contradicts it.
        self.pass(5_000);
        self.link_again(id);
        self.pass(70_000);
        (0..3).for_each(|id| self.open_lease(id, Duration::from_secs(10)));
    }
}

/// All parts of the lock were at dc0 all the time, so no transfer shows that it was in use.
fn asks_for_a_lock_that_was_used(comes_as_state: bool, bug: Option<Bug>) -> (Cluster, u64, VersionVector) {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    let committed = c.has_committed(0, 1, Some("x"), put("k", "new"));
    if comes_as_state {
        c.pass(2_000);
        assert_eq!(c.inspect(1).counts().log_entries, 0, "all have all");
    }
    c.bug = bug;
    c.crash(0, copy);
    c.nodes[0].replica.begin_restored();
    c.pass(70_000);
    c.open_lease(0, Duration::from_secs(10));
    let waits = c.lock(0, "x");
    c.late = |message| matches!(message, Message::State(_) | Message::Entries(_));
    c.link_again(0);
    c.pass(4_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    c.late = |_| false;
    c.nodes[0].disk_is_stuck = true;
    c.run();
    assert_eq!(c.inspect(0).counts().state_transfers_received, u64::from(comes_as_state));
    assert_eq!(c.inspect(0).phase(), Phase::Serving, "leases of before are over");
    (c, waits, committed)
}

#[test]
fn a_lock_is_granted_when_what_was_committed_under_it_is_on_disk_again() {
    for comes_as_state in [false, true] {
        let (mut c, waits, committed) = asks_for_a_lock_that_was_used(comes_as_state, None);
        assert!(!c.is_answered(0, waits), "its snapshot would lack the commit");
        c.nodes[0].disk_is_stuck = false;
        c.run();
        assert!(c.granted(0, waits).snapshot.covers(&committed));
        let bug = Some(Bug::RegainedNotAwaited);
        let (c, waits, committed) = asks_for_a_lock_that_was_used(comes_as_state, bug);
        assert!(!c.granted(0, waits).snapshot.covers(&committed), "so it was");
    }
}

/// dc0 has lost an entry that has not seen a removal which all others have seen. Returns the value that each
/// datacenter reads when the entry comes back.
fn reads_after_a_lost_update(bug: Option<Bug>) -> [Option<Reading>; 3] {
    let mut c = Cluster::new(3, 0, 0);
    c.has_committed(0, 1, None, put("k", "first"));
    c.pass(1_000);
    c.isolate(1);
    c.has_committed(0, 2, None, put("k", "lost"));
    c.has_committed(1, 1, None, Change { key: key("k"), action: Action::Remove });
    c.isolate(2);
    c.bug = bug;
    c.crash(0, 0);
    // dc2 has that entry, and dc1 relays to dc0 all entries but that one.
    c.late =
        |message| matches!(message, Message::Entries(entries) if format!("{entries:?}").contains("lost"));
    c.link(1, 2);
    c.pass(3_000);
    c.link(0, 1);
    c.pass(10_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    c.late = |_| false;
    c.link(0, 2);
    c.pass(10_000);
    let applied = |id: usize| c.inspect(id).applied().clone();
    assert_eq!((applied(0), applied(1)), (applied(2), applied(2)));
    [0, 1, 2].map(|id| c.reads(id, "k"))
}

#[test]
fn a_datacenter_that_lacks_own_entries_does_not_say_what_they_have_seen() {
    assert_eq!(reads_after_a_lost_update(None), [None, None, None], "what was removed does not come back");
    let with_the_bug = reads_after_a_lost_update(Some(Bug::FloorWithoutOwnLog));
    assert_ne!(with_the_bug, [None, None, None], "so it was");
}

/// dc1 takes a lead over with an entry, hands out a token, and loses its disk before it has announced that
/// lead to any member.
#[test]
fn a_lead_that_nobody_was_told_of_counts_after_a_lost_disk() {
    const HOUR: u64 = 3_600_000;
    let mut c = Cluster::new(3, 0, 0);
    // No lock: its idle return would be an entry of its own.
    c.has_committed(0, 1, None, put("k", "a"));
    c.restart_ahead(0, HOUR, 0);
    c.ahead.clear();
    c.restart_ahead(0, 0, 0);
    assert!(c.nodes[0].replica.ids.lead.millis > HOUR / 2);
    let all = c.nodes[1].records.len();
    c.restart_ahead(1, HOUR, all);
    assert_eq!(c.nodes[1].replica.ids.lead.millis, 0, "dc0 has written nothing since");
    c.has_committed(0, 1, None, put("k", "b"));
    let before = c.acquired(1, "y", Mode::Shared);
    assert!(Timestamp::from_raw(before.token.0).millis() > 1_700_000_000_000 + 2 * HOUR);
    c.restart_ahead(1, 0, 0);
    assert!(c.acquired(1, "y", Mode::Shared).token > before.token);
}

/// It may stamp by that clock and lose its disk before a heartbeat of it arrives (disks 18100000003148).
#[test]
fn the_bare_clock_of_a_start_is_remembered_unless_it_is_contradicted() {
    for (ahead_ms, counts) in [(4_000, true), (6_000, false)] {
        let mut c = Cluster::new(2, 0, 0);
        c.run();
        let millis = c.nodes[0].replica.now.wall.0 + ahead_ms;
        let (durable, heads) = (VersionVector::default(), Vec::new());
        let message = Message::WallClock { millis, durable, heads };
        c.handle(0, Event::Received { peer: dc(1), message });
        c.cut(0, 1);
        c.link(0, 1);
        let reading = c.nodes[0].replica.peers.links.reading_before(dc(1), 0);
        let is_remembered = reading.is_some_and(|(reading, _)| reading >= Timestamp::from_millis(millis));
        assert_eq!(is_remembered, counts, "{ahead_ms} ms ahead");
    }
}

/// Its lease is on the old disk, and ends there before the log is back.
#[test]
fn a_commit_that_comes_back_after_its_lease_has_ended_is_told() {
    for restarts in [false, true] {
        let mut c = Cluster::new(3, 0, 0);
        c.use_lock(0, "x");
        let copy = c.nodes[0].records.len();
        let lease = c.lease(0);
        let committed = c.has_committed(0, 1, None, put("k", "new"));
        c.crash(0, copy);
        c.nodes[0].replica.begin_restored();
        c.pass(70_000);
        if restarts {
            c.restart(0);
        }
        c.link_again(0);
        c.pass(70_000);
        assert_eq!(c.inspect(0).phase(), Phase::Serving);
        let step = step(vec![put("k", "new")], &[], Then::Commit);
        let asks = c.call(0, Call::Begin(begin_elsewhere(lease, step)));
        assert_eq!(c.committed(0, asks), committed, "restarted: {restarts}");
    }
}

/// It is started with a clock that is further ahead, which all others contradict. The clock is set right
/// later.
#[test]
fn tokens_after_a_lost_disk_are_not_measured_by_a_clock_that_is_contradicted() {
    const HOUR: u64 = 3_600_000;
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    c.restart_ahead(0, HOUR, 0);
    let before = c.acquired(0, "y", Mode::Shared);
    c.ahead.clear();
    c.crash(0, 0);
    c.link_again(0);
    c.pass(2_000);
    c.ahead.insert(0, 2 * HOUR as i64);
    c.restart(0);
    c.link_again(0);
    c.pass(70_000);
    assert_eq!(c.inspect(0).phase(), Phase::Starting);
    c.ahead.clear();
    c.pass(15_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    c.open_lease(0, Duration::from_secs(10));
    assert!(c.acquired(0, "y", Mode::Shared).token > before.token);
}

/// Numbers follow the wall clock, which was ahead before the disk was lost.
#[test]
fn request_numbers_after_a_lost_disk_are_above_those_of_a_clock_that_was_ahead() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    c.restart_ahead(0, 3_600_000, 0);
    // A request that is in no entry.
    let before = c.acquired(0, "y", Mode::Shared);
    assert_eq!(before.request.dc, dc(0));
    c.restart_ahead(0, 0, 0);
    assert!(c.acquired(0, "y", Mode::Shared).request.n > before.request.n);
}

/// dc0 has given the lock away, does not know that any more, and grants it again while no member is reachable
/// that does.
#[test]
fn a_lock_that_an_old_disk_should_not_have_granted_is_lost_when_that_is_known() {
    for comes_as_state in [false, true] {
        let mut c = Cluster::new(3, 0, 0);
        c.use_lock(0, "x");
        let copy = c.nodes[0].records.len();
        c.use_lock(1, "x");
        if comes_as_state {
            c.pass(2_000);
            assert_eq!(c.inspect(1).counts().log_entries, 0, "all have all");
        }
        c.crash(0, copy);
        c.pass(20_000);
        assert_eq!(c.inspect(0).phase(), Phase::Serving, "nobody is there to be asked");
        (0..3).for_each(|id| c.open_lease(id, Duration::from_secs(10)));
        let grant = c.acquired(0, "x", Mode::Exclusive);
        c.link_again(0);
        c.pass(5_000);
        assert_eq!(c.inspect(0).counts().state_transfers_received, u64::from(comes_as_state));
        let lost = Notice::LockLost { lease: c.lease(0), request: grant.request };
        assert!(c.nodes[0].notices.contains(&lost), "{:?}", c.nodes[0].notices);
        c.assert_no_violations();
        c.acquired(1, "x", Mode::Exclusive);
    }
}

/// The same for a lock that its earlier holder reclaimed: an operator had released it by force, and it moved
/// to dc1.
#[test]
fn a_lock_that_an_old_disk_should_not_have_given_back_is_lost_when_that_is_known() {
    for comes_as_state in [false, true] {
        let mut c = Cluster::new(3, 0, 0);
        let grant = c.acquired(0, "x", Mode::Exclusive);
        let copy = c.nodes[0].records.len();
        let (by, reason) = (Arc::from("ann"), ForceReason::new("it hangs").expect("it says something"));
        c.call(0, Call::ForceRelease(ForceRelease { lock: name("x"), operator: by, reason }));
        c.run();
        let other = c.acquired(1, "x", Mode::Exclusive);
        if comes_as_state {
            c.pass(2_000);
            assert_eq!(c.inspect(1).counts().log_entries, 0, "all have all");
        }
        c.crash(0, copy);
        c.pass(4_000);
        c.call(0, Call::AttachLease { lease: c.lease(0), secret: SECRET });
        let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
        c.assert_kept(0, reclaim, &[&grant]);
        c.link_again(0);
        c.pass(3_000);
        let lost = Notice::LockLost { lease: c.lease(0), request: grant.request };
        assert!(c.nodes[0].notices.contains(&lost), "{:?}", c.nodes[0].notices);
        c.assert_no_violations();
        assert_eq!(c.inspect(0).counts().state_transfers_received, u64::from(comes_as_state));
        c.release(1, other.request);
        c.acquired(2, "x", Mode::Exclusive);
    }
}

/// dc0 had given the lock away and had received it back for the present holder. Entry by entry, the server
/// cannot see that in time. The bug was: the link was closed for as long as the holder stayed.
#[test]
fn a_holder_that_is_back_first_closes_no_link() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    c.use_lock(1, "x");
    let grant = c.acquired(0, "x", Mode::Exclusive);
    c.crash(0, copy);
    c.pass(4_000);
    c.call(0, Call::AttachLease { lease: c.lease(0), secret: SECRET });
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
    c.link_again(0);
    c.pass(3_000);
    c.assert_no_violations();
    assert_eq!(c.inspect(0).applied(), c.inspect(1).applied());
    let lost = Notice::LockLost { lease: c.lease(0), request: grant.request };
    assert!(c.nodes[0].notices.contains(&lost), "{:?}", c.nodes[0].notices);
    // Leases that its disk does not know may live until then.
    c.pass(65_000);
    c.open_lease(2, Duration::from_secs(10));
    c.acquired(2, "x", Mode::Exclusive);
}

/// The entry that gave the lock away also published the request that its holder reclaims.
#[test]
fn a_holder_that_is_back_before_its_request_closes_no_link() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    let held = c.acquired(0, "x", Mode::Exclusive);
    let theirs = c.lock(1, "x");
    c.run();
    let second = c.lock(0, "x");
    c.release(0, held.request);
    c.run();
    let theirs = c.granted(1, theirs);
    c.release(1, theirs.request);
    c.run();
    let grant = c.granted(0, second);
    c.crash(0, copy);
    c.pass(4_000);
    c.call(0, Call::AttachLease { lease: c.lease(0), secret: SECRET });
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
    c.link_again(0);
    c.pass(3_000);
    c.assert_no_violations();
    assert_eq!(c.inspect(0).applied(), c.inspect(1).applied());
    c.pass(70_000);
    assert_eq!(c.inspect(0).request_table(), c.inspect(1).request_table());
    c.open_lease(2, Duration::from_secs(10));
    c.acquired(2, "x", Mode::Exclusive);
}

/// The entry that withdrew the request reached no member, and no member keeps the one that published it.
#[test]
fn a_request_of_a_holder_that_is_back_first_is_withdrawn_once_a_state_shows_it() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    c.use_lock(1, "x");
    c.late =
        |message| matches!(message, Message::Entries(entries) if format!("{entries:?}").contains("Withdraw"));
    let grant = c.acquired(0, "x", Mode::Exclusive);
    c.pass(2_000);
    assert_eq!(c.inspect(1).counts().log_entries, 0, "all have all but the withdrawal");
    c.crash(0, copy);
    c.late = |_| false;
    c.pass(4_000);
    c.call(0, Call::AttachLease { lease: c.lease(0), secret: SECRET });
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
    c.link_again(0);
    c.pass(3_000);
    assert_eq!(c.inspect(0).counts().state_transfers_received, 1);
    c.pass(70_000);
    assert_eq!(c.inspect(1).counts().remote_requests, 0);
    assert_eq!(c.inspect(0).request_table(), c.inspect(1).request_table());
    c.open_lease(1, Duration::from_secs(10));
    c.acquired(1, "x", Mode::Exclusive);
}

/// An entry that cannot be applied yet, or is false, takes no lock from its holder.
#[test]
fn an_own_entry_that_does_not_follow_takes_no_lock_away() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "x");
    let copy = c.nodes[0].records.len();
    c.use_lock(1, "x");
    c.late = |message| matches!(message, Message::Entries(_) | Message::State(_));
    c.crash(0, copy);
    c.pass(20_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving, "nobody is there to be asked");
    (0..3).for_each(|id| c.open_lease(id, Duration::from_secs(10)));
    let grant = c.acquired(0, "x", Mode::Exclusive);
    let lost = Notice::LockLost { lease: c.lease(0), request: grant.request };
    c.link_again(0);
    c.pass(2_000);
    let messages = c.wires.values().flatten();
    let entries = messages.filter_map(|message| match message {
        Message::Entries(entries) => Some(entries.clone()),
        _ => None,
    });
    let own = entries.flatten().find(|entry| entry.dc == dc(0)).expect("dc0 gets its entries back");
    let mut wrong = (*own).clone();
    wrong.deps.raise(dc(1), 1_000);
    c.handle(0, Event::Received { peer: dc(1), message: Message::Entries(vec![Arc::new(wrong)]) });
    assert!(!c.nodes[0].notices.contains(&lost), "{:?}", c.nodes[0].notices);
    c.late = |_| false;
}

/// Others know entries of its log, so the directory is not new: a lease that it opened may live.
#[test]
fn a_lost_disk_is_not_taken_for_a_new_one() {
    for bug in [None, Some(Bug::LostDiskNotDoubted)] {
        let mut c = Cluster::new(3, 0, 0);
        c.use_lock(0, "x");
        c.bug = bug;
        c.crash(0, 0);
        c.link_again(0);
        c.pass(5_000);
        let serves = c.inspect(0).status().phase == Phase::Serving;
        assert_eq!(serves, bug.is_some(), "only with the bug");
    }
}
