//! Stories about downgrades.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, name};
use crate::base::bugs::Bug;
use crate::causal_log::Wants;
use crate::leases::Proof;
use crate::replica::call::{Call, Downgrade, Reclaim, Refusal, Reply, Target, Wait};
use geolock_api::names::{Mode, RequestId};

impl Cluster {
    fn downgrade(&mut self, id: u8, request: RequestId, lock: &str) -> u64 {
        self.downgrade_as(id, Target::Id(request), lock)
    }

    fn downgrade_as(&mut self, id: u8, target: Target, lock: &str) -> u64 {
        let (lease, proof) = (self.lease(id), Proof::Secret(SECRET));
        self.call(id, Call::Downgrade(Downgrade { lease, proof, target, lock: name(lock) }))
    }

    fn assert_downgraded(&self, id: u8, tag: u64) {
        assert_eq!(self.reply(id, tag), Some(Reply::Downgraded));
    }
}

#[test]
fn readers_everywhere_are_let_in_and_no_writer_before_the_release() {
    let mut c = Cluster::new(2, 0, 0);
    c.open_lease(1, Duration::from_secs(60));
    let grant = c.acquired(0, "x", Mode::Exclusive);
    let (here, elsewhere) = (c.share(0, "x"), c.share(1, "x"));
    c.pass(2_000);
    assert!(!c.is_answered(0, here) && !c.is_answered(1, elsewhere));
    let done = c.downgrade(0, grant.request, "x");
    c.assert_downgraded(0, done);
    let writers = [c.lock(0, "x"), c.lock(1, "x")];
    c.pass(2_000);
    assert!(c.granted(0, here).token > grant.token && c.granted(1, elsewhere).token > grant.token);
    let described = c.described(0, "x");
    let mut modes: Vec<_> = described.holders.iter().map(|holder| (holder.dc.get(), holder.mode)).collect();
    modes.sort();
    assert_eq!(modes, [(0, Mode::Shared), (0, Mode::Shared), (1, Mode::Shared)]);
    for (id, tag) in [(0, here), (1, elsewhere)] {
        let reader = c.granted(id, tag);
        c.release(id, reader.request);
    }
    c.pass(5_000);
    assert!(!c.is_answered(0, writers[0]) && !c.is_answered(1, writers[1]), "it is held");
    c.release(0, grant.request);
    c.pass(5_000);
    assert!(c.is_answered(0, writers[0]) || c.is_answered(1, writers[1]));
}

/// With the deliberate bug: the story above needs the hold in between.
#[test]
fn a_downgrade_that_lets_go_lets_a_writer_in() {
    let mut c = Cluster::with_old(1, Default::default(), Some(Bug::DowngradeLetsGo));
    let grant = c.acquired(0, "x", Mode::Exclusive);
    let writer = c.lock(0, "x");
    let done = c.downgrade(0, grant.request, "x");
    c.assert_downgraded(0, done);
    assert!(c.is_answered(0, writer));
}

#[test]
fn what_is_not_held_so_is_refused() {
    let mut c = Cluster::new(1, 0, 0);
    let key = Some(1);
    let tag = c.acquire_as(0, key, &[("x", Mode::Exclusive), ("y", Mode::Shared)], Wait::Forever);
    let grant = c.granted(0, tag);
    let waiting = c.acquire_as(0, Some(2), &[("x", Mode::Exclusive)], Wait::Forever);
    let refused = |c: &mut Cluster, target, lock| {
        let tag = c.downgrade_as(0, target, lock);
        c.refused(0, tag)
    };
    let request = grant.request;
    assert_eq!(refused(&mut c, Target::Key(2), "x"), Refusal::NotHeld, "it waits");
    assert_eq!(refused(&mut c, Target::Key(9), "x"), Refusal::NotHeld, "it never was");
    let not_of = Refusal::NotOfRequest { lock: name("z"), request };
    assert_eq!(refused(&mut c, Target::Key(1), "z"), not_of);
    for target in [Target::Key(1), Target::Id(request), Target::Id(request)] {
        let done = c.downgrade_as(0, target, "x");
        c.assert_downgraded(0, done);
    }
    let done = c.downgrade(0, request, "y");
    c.assert_downgraded(0, done);
    assert!(!c.is_answered(0, waiting), "a writer waits for the release");

    let again = c.acquire_as(0, key, &[("x", Mode::Exclusive), ("y", Mode::Shared)], Wait::Forever);
    assert_eq!(c.granted(0, again), grant, "the same acquire once more");
    let other = c.acquire_as(0, key, &[("x", Mode::Exclusive), ("y", Mode::Exclusive)], Wait::Forever);
    assert_eq!(c.refused(0, other), Refusal::IdempotencyKeyReused(1));

    let (mine, theirs) = (c.lease(0), request);
    c.open_lease(0, Duration::from_secs(60));
    assert_eq!(refused(&mut c, Target::Id(theirs), "x"), Refusal::NotHeld, "it is of another lease");
    c.nodes[0].lease = Some(mine);
    c.release(0, request);
    assert_eq!(refused(&mut c, Target::Id(request), "x"), Refusal::NotHeld, "it was released");
}

#[test]
fn a_downgraded_hold_is_shared_after_a_restart() {
    let mut c = Cluster::new(1, 0, 0);
    let grant = c.acquired(0, "x", Mode::Exclusive);
    let done = c.downgrade(0, grant.request, "x");
    c.assert_downgraded(0, done);
    let reader = c.acquired(0, "x", Mode::Shared);
    c.restart(0);
    let reclaim = c.reclaims_early(0, &[("x", Mode::Shared, &grant), ("x", Mode::Shared, &reader)]);
    c.pass(1_000);
    c.assert_kept(0, reclaim, &[&grant, &reader]);
    let done = c.downgrade(0, grant.request, "x");
    c.assert_downgraded(0, done);
    let next = c.share(0, "x");
    c.pass(1_000);
    assert!(c.is_answered(0, next), "both are readers");
}

/// A client that does not wait for the answer to its reclaim.
#[test]
fn a_downgrade_that_comes_while_its_reclaim_waits_counts() {
    let mut c = Cluster::new(1, 0, 0);
    let grant = c.acquired(0, "x", Mode::Exclusive);
    c.restart(0);
    let (lease, proof) = (c.lease(0), Proof::Secret(SECRET));
    let held = Reclaim {
        request: grant.request,
        key: None,
        wants: Wants::all(vec![(name("x"), Mode::Exclusive)]).expect("one lock"),
        token: grant.token,
        label: "a story".into(),
    };
    let reclaim = c.call(0, Call::Reclaim { lease, proof, held: vec![held] });
    assert!(!c.is_answered(0, reclaim));
    let wrong = c.downgrade(0, grant.request, "y");
    assert_eq!(c.refused(0, wrong), Refusal::NotOfRequest { lock: name("y"), request: grant.request });
    let done = c.downgrade(0, grant.request, "x");
    c.assert_downgraded(0, done);
    c.pass(1_000);
    c.assert_kept(0, reclaim, &[&grant]);
    let reader = c.share(0, "x");
    c.pass(1_000);
    assert!(c.is_answered(0, reader));
}
