//! Stories about transactions under guards.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, name};
use super::store_cluster::{add, counted, put, step, written};
use crate::base::bugs::Bug;
use crate::causal_log::Wants;
use crate::leases::Proof;
use crate::replica::call::store::{AtLeast, Begin, Step, Then, TxnRefusal};
use crate::replica::call::{Call, Grant, Reclaim, Refusal, Wait};
use geolock_api::names::{Mode, RequestId};

impl Cluster {
    fn begin_under(&mut self, id: u8, key: u64, under: &[RequestId], step: Step) -> u64 {
        self.begin_under_after(id, key, under, AtLeast::default(), step)
    }

    fn begin_under_after(
        &mut self,
        id: u8,
        key: u64,
        under: &[RequestId],
        at_least: AtLeast,
        step: Step,
    ) -> u64 {
        let (lease, proof, under) = (self.lease(id), Proof::Attached, under.to_vec());
        let begin = Begin { lease, proof, key, locks: None, under, at_least, acknowledged_through: 0, step };
        self.call(id, Call::Begin(begin))
    }

    fn holds(&mut self, id: u8, lock: &str) -> Grant {
        let tag = self.lock(id, lock);
        self.run();
        self.granted(id, tag)
    }
}

fn once(value: &str) -> Step {
    step(vec![put("r", value)], &[], Then::Commit)
}

#[test]
fn a_commit_under_a_guard_keeps_the_lock_and_is_in_the_next_grant() {
    let mut c = Cluster::new(2, 0, 0);
    let grant = c.holds(0, "x");
    let commit = c.begin_under(0, 1, &[grant.request], once("mine"));
    c.run();
    let commit = c.committed(0, commit);
    let other = c.lock(1, "x");
    c.pass(1_000);
    assert!(!c.is_answered(1, other), "the commit lets nothing go");
    c.release(0, grant.request);
    c.run();
    assert!(c.granted(1, other).snapshot.covers(&commit));
    assert_eq!(c.reads(1, "r"), written("mine"));
}

#[test]
fn the_next_grant_here_waits_until_a_commit_under_the_guard_before_it_is_durable() {
    let mut c = Cluster::new(1, 0, 0);
    let grant = c.holds(0, "x");
    let commit = c.begin_under(0, 1, &[grant.request], once("mine"));
    c.release(0, grant.request);
    let next = c.lock(0, "x");
    assert!(!c.is_answered(0, commit) && !c.is_answered(0, next));
    c.sync(0);
    c.committed(0, commit);
    assert!(c.granted(0, next).snapshot.covers(&c.committed(0, commit)));
}

/// With the deliberate bug: the story above needs the position of the commit.
#[test]
fn a_lock_that_forgets_the_commit_of_its_holder_is_granted_too_early() {
    let mut c = Cluster::with_old(1, Default::default(), Some(Bug::GuardedNotNoted));
    let grant = c.holds(0, "x");
    c.begin_under(0, 1, &[grant.request], once("mine"));
    c.release(0, grant.request);
    let next = c.lock(0, "x");
    assert!(c.is_answered(0, next));
}

#[test]
fn a_holder_that_has_lost_its_lock_commits_nothing() {
    let mut c = Cluster::new(1, 0, 0);
    let (first, second) = (c.holds(0, "x"), c.holds(0, "y"));
    let under = [first.request, second.request];
    let open = c.begin_under(0, 1, &under, step(vec![add("n", 1)], &[], Then::Continue));
    let other = c.begin_under(0, 2, &under, step(vec![add("n", 1)], &[], Then::Continue));
    c.run();
    c.stepped(0, open);
    c.stepped(0, other);
    c.release(0, second.request);
    let commit = c.next_step(0, 1, step(vec![], &[], Then::Commit));
    assert_eq!(c.txn_refused(0, commit), TxnRefusal::LocksLost(1), "one of two is not enough");
    let aborted = c.next_step(0, 2, step(vec![], &[], Then::Abort));
    c.stepped(0, aborted);
    let late = c.begin_under(0, 3, &under, once("late"));
    assert_eq!(c.txn_refused(0, late), TxnRefusal::LocksLost(3));
    let kept = c.begin_under(0, 4, &[first.request], once("kept"));
    c.run();
    c.committed(0, kept);
    assert_eq!((c.reads(0, "n"), c.reads(0, "r")), (None, written("kept")));
}

/// A begin may wait long for its snapshot: the guard counts at the commit.
#[test]
fn a_guard_that_is_lost_while_the_transaction_waits_is_lost() {
    let mut c = Cluster::new(2, 0, 0);
    let grant = c.holds(0, "x");
    c.cut(0, 1);
    let elsewhere = c.begin(1, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.run();
    let at_least = AtLeast { snapshot: c.committed(1, elsewhere), patience: Duration::from_secs(30) };
    let waits = c.begin_under_after(0, 1, &[grant.request], at_least, once("late"));
    c.release(0, grant.request);
    c.link(0, 1);
    c.run();
    assert_eq!(c.txn_refused(0, waits), TxnRefusal::LocksLost(1));
    assert_eq!((c.reads(0, "r"), c.reads(0, "n")), (None, counted(1)));
}

#[test]
fn only_held_requests_of_the_lease_are_guards() {
    let mut c = Cluster::new(1, 0, 0);
    let held = c.holds(0, "x");
    let waits = c.lock(0, "x");
    assert!(!c.is_answered(0, waits));
    let waiting = RequestId { n: held.request.n + 1, ..held.request };
    assert!(c.nodes[0].replica.locks.requests().find(waiting).is_some(), "requests are numbered one by one");
    let later = RequestId { n: held.request.n + 1_000, ..held.request };
    let before = RequestId { n: 1, ..held.request };
    for (key, strange) in (1..).zip([waiting, later, before]) {
        let tag = c.begin_under(0, key, &[held.request, strange], once("no"));
        assert_eq!(c.txn_refused(0, tag), TxnRefusal::NotHeld(strange));
    }
    let tag = c.begin_under(0, 4, &[held.request; 17], once("no"));
    assert_eq!(c.txn_refused(0, tag), TxnRefusal::TooManyGuards(17));
    let tag = c.begin_under(0, 5, &[held.request; 16], once("yes"));
    c.run();
    c.committed(0, tag);
    // The guards are a part of the content.
    let tag = c.begin_under(0, 5, &[], step(vec![put("r", "yes")], &[], Then::Commit));
    assert_eq!(c.refused(0, tag), Refusal::IdempotencyKeyReused(5));
}

/// The client of a restarted server begins under a guard before it has reclaimed. Returns the guard and the
/// begin.
fn begun_before_the_reclaim() -> (Cluster, Grant, u64) {
    let mut c = Cluster::new(2, 0, 0);
    let grant = c.holds(0, "x");
    c.restart(0);
    c.link(0, 1);
    c.pass(600);
    let lease = c.lease(0);
    c.call(0, Call::AttachLease { lease, secret: SECRET });
    let early = c.begin_under(0, 1, &[grant.request], once("mine"));
    (c, grant, early)
}

#[test]
fn after_a_restart_a_begin_waits_for_the_reclaim_of_its_guard() {
    let (mut c, grant, early) = begun_before_the_reclaim();
    let lease = c.lease(0);
    let same = c.begin_under(0, 2, &[], step(vec![], &["r"], Then::Commit));
    c.run();
    assert!(!c.is_answered(0, early) && c.is_answered(0, same), "only what needs the guard waits for it");
    let wants = Wants::all(vec![(name("x"), Mode::Exclusive)]).expect("one lock");
    let (token, label, request) = (grant.token, "a story".into(), grant.request);
    let held = vec![Reclaim { request, key: None, wants, token, label }];
    c.call(0, Call::Reclaim { lease, proof: Proof::Attached, held });
    c.run();
    c.committed(0, early);
    assert_eq!(c.reads(0, "r"), written("mine"));
}

#[test]
fn a_guard_that_is_not_reclaimed_is_lost() {
    let (mut c, _, early) = begun_before_the_reclaim();
    let lease = c.lease(0);
    c.call(0, Call::Reclaim { lease, proof: Proof::Attached, held: Vec::new() });
    c.run();
    assert_eq!(c.txn_refused(0, early), TxnRefusal::LocksLost(1));
    assert_eq!(c.reads(0, "r"), None);
    let again = c.acquire(0, &[("x", Mode::Exclusive)], Wait::Forever);
    c.run();
    c.granted(0, again);
}
