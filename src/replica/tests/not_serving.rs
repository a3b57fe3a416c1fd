//! Stories about a datacenter that is reachable and does not serve: it blocks others no more than a dead one.

use std::time::Duration;

use super::cluster::{Cluster, dc, name};
use crate::base::capacity::DiskSpace;
use crate::leases::Proof;
use crate::replica::NotServing;
use crate::replica::call::{Call, LockDescription, Phase, Refusal, Reply, Wait};
use geolock_api::names::{DcSet, Mode};

impl Cluster {
    /// dc1 has all parts of "b", and is in grace after a restart because of a client that is dead.
    fn with_one_in_grace() -> Cluster {
        let mut c = Cluster::new(3, 0, 0);
        c.use_lock(0, "a");
        c.use_lock(1, "b");
        c.restart(1);
        c.link_again(1);
        c.pass(1_100);
        assert_eq!(c.inspect(1).phase(), Phase::Grace { leases: 1 });
        c
    }

    pub(super) fn described(&mut self, id: u8, lock: &str) -> LockDescription {
        let tag = self.call(id, Call::Describe { lock: name(lock) });
        self.run();
        match self.reply(id, tag) {
            Some(Reply::Described(described)) => *described,
            other => panic!("{lock} is not described but {other:?}"),
        }
    }

    pub(super) fn owns_all(&self, id: u8, lock: &str) -> bool {
        (0..3).all(|part| {
            self.nodes[usize::from(id)].replica.inspect().owner_of(&name(lock), dc(part)) == dc(id)
        })
    }

    pub(super) fn why(&self, id: u8, other: u8) -> Option<NotServing> {
        let peers = self.nodes[usize::from(id)].replica.inspect().status().peers;
        peers.into_iter().find(|peer| peer.dc == dc(other)).and_then(|peer| peer.not_serving)
    }
}

#[test]
fn what_needs_a_datacenter_in_grace_stops_nobody_else() {
    let mut c = Cluster::with_one_in_grace();
    c.open_lease(0, Duration::from_secs(60));
    let both = c.acquire(0, &[("a", Mode::Exclusive), ("b", Mode::Exclusive)], Wait::Forever);
    c.run();
    let alone = c.lock(0, "a");
    c.run();
    let grant = c.granted(0, alone);
    assert!(!c.is_answered(0, both));
    c.release(0, grant.request);
    c.pass(10_000);
    assert_eq!(c.inspect(1).phase(), Phase::Serving);
    c.granted(0, both);
}

impl Cluster {
    /// dc1, which has all parts of "b", does not serve: a request for "a" and "b" does not block one for "a"
    /// alone at dc0. Returns the request for both.
    fn assert_bystanders_go_on(&mut self) -> u64 {
        self.open_lease(0, Duration::from_secs(60));
        let both = self.acquire(0, &[("a", Mode::Exclusive), ("b", Mode::Exclusive)], Wait::Forever);
        self.run();
        let alone = self.lock(0, "a");
        self.run();
        let grant = self.granted(0, alone);
        assert!(!self.is_answered(0, both));
        self.release(0, grant.request);
        both
    }

    /// Lets time pass and renews the lease of dc0.
    fn pass_with_lease(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            self.pass(5_000);
            self.call(0, Call::KeepAlive { lease: self.lease(0), proof: Proof::Attached });
        }
    }
}

/// A clock that most others contradict is waited for. Meanwhile the datacenter says nothing that is stamped,
/// so it counts as unreachable, and the others say that it starts.
#[test]
fn what_needs_a_datacenter_that_starts_stops_nobody_else() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(1, "b");
    c.ahead.insert(1, 3_600_000);
    c.restart(1);
    c.link_again(1);
    c.pass(5_000);
    assert_eq!(c.inspect(1).phase(), Phase::Starting);
    let both = c.assert_bystanders_go_on();
    let described = c.described(0, "b");
    assert_eq!(
        (described.unreachable, described.not_serving),
        (DcSet::EMPTY, vec![(dc(1), NotServing::Starting)])
    );
    assert_eq!(c.why(0, 1), Some(NotServing::Starting));
    c.ahead.clear();
    c.pass_with_lease(30);
    c.granted(0, both);
}

/// Its disk is an older one, so leases that it does not know may live.
#[test]
fn what_needs_a_datacenter_that_is_read_only_stops_nobody_else() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    let copy = c.nodes[1].records.len();
    c.use_lock(1, "b");
    c.crash(1, copy);
    c.link_again(1);
    c.pass(2_000);
    assert_eq!(c.inspect(1).phase(), Phase::ReadOnly);
    assert_eq!(c.why(0, 1), Some(NotServing::ReadOnly));
    let both = c.assert_bystanders_go_on();
    c.pass_with_lease(75);
    assert_eq!(c.inspect(1).phase(), Phase::Serving);
    c.granted(0, both);
}

/// It started alone, so nobody contradicted its clock.
#[test]
fn what_needs_a_datacenter_that_serves_with_a_clock_ahead_stops_nobody_else() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(1, "b");
    c.ahead.insert(1, 60_000);
    c.restart(1);
    c.pass(15_000);
    c.link_again(1);
    c.pass(3_000);
    assert_eq!(c.inspect(1).phase(), Phase::Serving);
    assert_eq!(c.why(0, 1), Some(NotServing::ClockSkew));
    let both = c.assert_bystanders_go_on();
    c.ahead.clear();
    // A clock goes back with a restart; then time has to pass its stamps.
    c.restart(1);
    c.link_again(1);
    c.pass_with_lease(90);
    assert_eq!(c.why(0, 1), None);
    c.granted(0, both);
}

#[test]
fn a_datacenter_in_grace_is_sent_no_parts() {
    let mut c = Cluster::with_one_in_grace();
    c.open_lease(1, Duration::from_secs(60));
    let waits = c.lock(1, "a");
    c.pass(1_000);
    assert!(c.owns_all(0, "a"), "it could not use them");
    let here = c.lock(0, "a");
    c.run();
    let grant = c.granted(0, here);
    c.release(0, grant.request);
    c.pass(10_000);
    c.granted(1, waits);
}

#[test]
fn it_is_said_who_does_not_serve_and_for_how_long() {
    let mut c = Cluster::with_one_in_grace();
    // dc2 hears from dc1 through dc0 only.
    c.cut(1, 2);
    c.pass(600);
    for id in [0, 2] {
        let Some(NotServing::Grace { for_ms }) = c.why(id, 1) else { panic!("dc{id} does not know of it") };
        assert!((7_000..9_000).contains(&for_ms), "{for_ms} ms");
        let described = c.described(id, "b");
        assert!(matches!(described.not_serving[..], [(one, NotServing::Grace { .. })] if one == dc(1)));
        assert!(described.unreachable.is_empty());
    }
    let waits = c.acquire(0, &[("b", Mode::Exclusive)], Wait::AtMost(Duration::from_secs(2)));
    c.pass(3_500);
    let Refusal::TimedOut(locks) = c.refused(0, waits) else { panic!("it cannot be granted") };
    assert_eq!(locks[0].not_serving[0].0, dc(1));
    c.pass(10_000);
    assert_eq!((c.why(0, 1), c.why(2, 1)), (None, None));
    assert!(c.described(0, "b").not_serving.is_empty());
}

#[test]
fn a_datacenter_whose_disk_is_full_hands_nothing_over_and_says_so() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(1, "b");
    c.room(1, DiskSpace::Full);
    c.run();
    assert_eq!(c.why(0, 1), Some(NotServing::DiskFull));
    let both = c.acquire(0, &[("a", Mode::Exclusive), ("b", Mode::Exclusive)], Wait::Forever);
    c.run();
    let shared = c.share(0, "a");
    c.run();
    c.granted(0, shared);
    c.room(1, DiskSpace::Enough);
    c.run();
    assert_eq!(c.why(0, 1), None);
    assert!(!c.is_answered(0, both));
}

/// Small enough for a story to fill.
const LOG: usize = 4_000;

impl Cluster {
    /// Returns the weight of the entries that a datacenter keeps for others.
    fn log_weight(&self, id: u8) -> usize {
        let log = self.nodes[usize::from(id)].replica.inspect().checkpoint().log;
        log.iter().map(|entry| entry.weight()).sum()
    }

    /// dc3 and dc4 of five are cut off. All parts of "moves" and "stays" are at dc3.
    fn with_a_minority() -> Cluster {
        let mut c = Cluster::with_log(5, (0, 0), LOG);
        c.use_lock(3, "moves");
        c.use_lock(3, "stays");
        (0..3).for_each(|id| [3, 4].map(|other| c.cut(id, other)).into_iter().collect());
        c.pass(4_000);
        c
    }
}

#[test]
fn a_minority_that_moves_locks_keeps_no_more_than_it_may() {
    let mut c = Cluster::with_a_minority();
    let held = c.lock(3, "stays");
    c.run();
    let held = c.granted(3, held).request;
    let elsewhere = c.lock(4, "stays");
    c.run();
    let waits = (0..2_000_u32).find_map(|n| {
        let id = 4 - (n % 2) as u8;
        let tag = c.lock(id, "moves");
        c.run();
        let Some(Reply::Granted(grant)) = c.reply(id, tag) else { return Some((id, tag)) };
        c.release(id, grant.request);
        None
    });
    let (id, waits) = waits.expect("a lock cannot move for ever");
    for member in [3, 4] {
        let weight = c.log_weight(member);
        assert!((3 * LOG..4 * LOG + 1_000).contains(&weight), "dc{member} keeps {weight} bytes");
    }
    let described = c.described(id, "moves");
    assert!(described.waiters[0].parked);
    let full = described.not_serving.iter().any(|(_, why)| *why == NotServing::LogFull);
    assert!(full, "{:?}", described.not_serving);
    assert!(c.why(7 - id, id) == Some(NotServing::LogFull) || c.why(id, 7 - id) == Some(NotServing::LogFull));
    c.release(3, held);
    c.run();
    // It cannot be transferred, and its waiter at another datacenter does not block local clients.
    c.use_lock(3, "stays");
    assert!(!c.is_answered(4, elsewhere));
    (0..3).for_each(|id| [3, 4].map(|other| c.link(id, other)).into_iter().collect());
    c.pass(3_000);
    c.granted(id, waits);
    c.granted(4, elsewhere);
    assert_eq!((c.why(3, 4), c.why(4, 3)), (None, None));
    assert!(c.log_weight(3) < LOG);
}
