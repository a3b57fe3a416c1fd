//! Stories about the grace period: how long other clients wait, after a restart, for leases that may hold
//! locks.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, name};
use crate::leases::Proof;
use crate::replica::call::{Call, Phase, Refusal, Reply};
use crate::replica::{Event, Notice};
use geolock_api::names::{LeaseId, Mode};

impl Cluster {
    /// Renews a lease; returns for how long.
    fn renewed(&mut self, id: u8, lease: LeaseId) -> Duration {
        let tag = self.call(id, Call::KeepAlive { lease, proof: Proof::Secret(SECRET) });
        match self.reply(id, tag) {
            Some(Reply::Renewed { ttl }) => ttl,
            other => panic!("lease {lease} is not renewed but {other:?}"),
        }
    }
}

#[test]
fn a_lease_that_is_renewed_has_as_long_to_reclaim() {
    let mut c = Cluster::new(2, 0, 0);
    let grant = c.acquired(0, "x", Mode::Exclusive);
    c.restart(0);
    c.link_again(0);
    let (lease, proof) = (c.lease(0), Proof::Secret(SECRET));
    c.pass(8_000);
    c.call(0, Call::KeepAlive { lease, proof });
    c.pass(8_000);
    assert_eq!(c.inspect(0).phase(), Phase::Grace { leases: 1 }, "its client counts on it");
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
}

#[test]
fn a_client_that_renews_and_never_reclaims_stops_others_for_two_times_to_live() {
    let mut c = Cluster::new(2, 0, 0);
    c.open_lease(1, Duration::from_secs(60));
    c.acquired(0, "x", Mode::Exclusive);
    c.restart(0);
    c.link_again(0);
    let lease = c.lease(0);
    let attached = c.call(0, Call::AttachLease { lease, secret: SECRET });
    assert!(matches!(c.reply(0, attached), Some(Reply::LeaseAttached { reclaim: true, .. })));
    let waits = c.lock(1, "x");
    for good in [10, 10, 10, 5] {
        assert_eq!(c.renewed(0, lease), Duration::from_secs(good), "after {} ms", c.now);
        c.pass(if good == 10 { 5_000 } else { 4_900 });
        assert!(!c.is_answered(1, waits), "its client counts on its locks");
    }
    assert_eq!(c.renewed(0, lease), Duration::from_millis(100), "no longer than others may have to wait");
    c.pass(100);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    c.granted(1, waits);
    assert!(c.nodes[0].notices.contains(&Notice::LeaseEnded { lease }), "it is told that its locks are lost");
    let late = c.reclaims_early(0, &[]);
    assert_eq!(c.refused(0, late), Refusal::UnknownLease(lease));
}

#[test]
fn the_longest_lease_bounds_what_all_wait_for() {
    let mut c = Cluster::new(2, 0, 0);
    c.open_lease(0, Duration::from_secs(60));
    c.restart(0);
    c.link_again(0);
    let lease = c.lease(0);
    c.pass(30_000);
    assert_eq!(c.renewed(0, lease), Duration::from_secs(30), "`max_lease_ttl` is 60 s");
    c.pass(29_900);
    assert_eq!(c.inspect(0).phase(), Phase::Grace { leases: 1 });
    c.pass(100);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
}

#[test]
fn a_client_that_says_what_it_holds_just_in_time_keeps_it_for_its_whole_time_to_live() {
    let mut c = Cluster::new(2, 0, 0);
    c.open_lease(1, Duration::from_secs(60));
    let grant = c.acquired(0, "x", Mode::Exclusive);
    c.restart(0);
    c.link_again(0);
    let lease = c.lease(0);
    [9_000, 9_000].into_iter().for_each(|ms| {
        c.pass(ms);
        c.renewed(0, lease);
    });
    c.pass(1_900);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
    let waits = c.lock(1, "x");
    c.pass(9_900);
    assert!(!c.is_answered(1, waits));
    c.pass(200);
    c.granted(1, waits);
}

/// More leases end at one instant than one step ends, and the last one of them holds the lock.
#[test]
fn no_lock_is_granted_before_all_that_may_hold_it_are_ended() {
    let mut c = Cluster::new(1, 0, 0);
    (0..300).for_each(|_| c.open_lease(0, Duration::from_secs(10)));
    c.acquired(0, "x", Mode::Exclusive);
    let (holder, proof) = (c.lease(0), Proof::Secret(SECRET));
    c.restart(0);
    c.pass(9_990);
    c.open_lease(0, Duration::from_secs(60));
    let waits = c.lock(0, "x");
    c.now += 10;
    c.handle(0, Event::Tick);
    assert!(matches!(c.inspect(0).phase(), Phase::Grace { leases: 1.. }), "not all of them are ended");
    assert!(!c.is_answered(0, waits));
    let late = c.call(0, Call::KeepAlive { lease: holder, proof });
    assert_eq!(c.refused(0, late), Refusal::UnknownLease(holder), "its time is over");
    c.pass(10);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    c.granted(0, waits);
}

#[test]
fn a_lease_that_said_nothing_ends_on_disk_before_its_locks_are_granted() {
    let mut c = Cluster::new(2, 0, 0);
    c.acquired(0, "x", Mode::Exclusive);
    c.restart(0);
    c.link_again(0);
    c.pass(9_990);
    c.open_lease(0, Duration::from_secs(60));
    let waits = c.lock(0, "x");
    c.nodes[0].disk_is_stuck = true;
    c.pass(20);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    assert!(!c.is_answered(0, waits));
    c.nodes[0].disk_is_stuck = false;
    c.run();
    c.granted(0, waits);
}

/// A disk lost what it had acknowledged a moment before, as by a power failure behind a cache, and nobody can
/// know: parts that arrive after the restart were here before it, and a client holds their lock.
#[test]
fn what_arrives_after_a_restart_may_be_held_by_a_client_of_before() {
    let mut c = Cluster::new(2, 0, 0);
    c.use_lock(1, "x");
    let asked = c.lock(0, "x");
    c.sync(0);
    while c.deliver(0, 1) {}
    c.sync(1);
    let before = c.nodes[0].records.len();
    while c.deliver(1, 0) {}
    c.sync(0);
    let grant = c.granted(0, asked);
    // Nothing that dc0 sent since then has arrived at dc1.
    c.crash(0, before);
    c.link_again(0);
    c.pass(1_500);
    assert_eq!(c.inspect(0).phase(), Phase::Grace { leases: 1 }, "it does not seem to be an older disk");
    let owns = |part| c.inspect(0).owner_of(&name("x"), dc(part)) == dc(0);
    assert!(owns(0) && owns(1), "the parts came again");
    let holder = c.lease(0);
    c.open_lease(0, Duration::from_secs(60));
    let waits = c.lock(0, "x");
    c.pass(500);
    assert!(!c.is_answered(0, waits), "it would be granted in conflict");
    c.nodes[0].lease = Some(holder);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Exclusive, &grant)]);
    c.assert_kept(0, reclaim, &[&grant]);
}
