//! Stories about watches of locks.

use std::time::Duration;

use super::super::cluster::{Cluster, SECRET, name};
use super::super::store_cluster::{add, step};
use super::locks;
use crate::causal_log::Wants;
use crate::leases::Proof;
use crate::replica::call::store::Then;
use crate::replica::call::watch::{LockEvent, LockMove, Pattern};
use crate::replica::call::{Call, Grant, Reclaim, Refusal, Reply, Wait};
use geolock_api::names::{LockName, Mode};

impl Cluster {
    /// Takes the new events of a watch of locks, as text.
    fn heard(&mut self, id: u8, tag: u64) -> Vec<String> {
        self.take_events(id, tag).iter().map(said).collect()
    }

    /// A client reconnects and reclaims a lock that it held exclusively.
    fn reclaims(&mut self, id: u8, grant: &Grant, lock: &str) {
        let (lease, secret) = (self.lease(id), SECRET);
        self.call(id, Call::AttachLease { lease, secret });
        let wants = Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock");
        let (request, token) = (grant.request, grant.token);
        let held = vec![Reclaim { request, key: None, wants, token, label: "me".into() }];
        let tag = self.call(id, Call::Reclaim { lease, proof: Proof::Attached, held });
        let kept = vec![grant.request];
        assert_eq!(self.reply(id, tag), Some(Reply::Reclaimed { kept, lost: vec![] }));
    }
}

fn said(event: &LockEvent) -> String {
    let held = |locks: &[(LockName, Mode)]| {
        let lock = |(name, mode): &(LockName, Mode)| match mode {
            Mode::Shared => format!("{name} shared"),
            Mode::Exclusive => name.to_string(),
        };
        locks.iter().map(lock).collect::<Vec<_>>().join(", ")
    };
    match event {
        LockEvent::Moved { dc, moves, .. } => {
            let one = |LockMove { lock, parts, to }: &LockMove| format!("{lock} {parts:?} to {to}");
            format!("{dc} moved {}", moves.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        LockEvent::HoldersReset => "anew".into(),
        LockEvent::HoldersSynced => "current".into(),
        LockEvent::Granted(holding) => format!("granted {}", held(&holding.locks)),
        LockEvent::Released(holding) => format!("released {}", held(&holding.locks)),
    }
}

#[test]
fn moves_of_a_lock_are_told_once_everywhere_and_can_be_gone_on_with() {
    let mut c = Cluster::new(3, 0, 0);
    let here = c.watch_locks(0, vec![locks("a")], None);
    let from = c.begun(0, here);
    c.use_lock(1, "a1");
    c.use_lock(1, "b");
    c.run();
    c.use_lock(2, "a1");
    c.run();
    let moved =
        ["dc0 moved a1 {dc0} to dc1", "dc2 moved a1 {dc2} to dc1", "dc1 moved a1 {dc0, dc1, dc2} to dc2"];
    assert_eq!(c.heard(0, here)[2..], moved);
    let elsewhere = c.watch_locks(2, vec![Pattern::lock(&name("a1"))], Some(from.clone()));
    let mut heard = c.heard(2, elsewhere);
    heard.retain(|event| event.contains("moved"));
    heard.sort();
    assert_eq!(heard, [moved[0], moved[2], moved[1]], "in an order that is causal");
    c.restarts(0);
    let again = c.watch_locks(0, vec![locks("a")], Some(from));
    assert_eq!(c.heard(0, again)[..3], moved);
    let durable = c.inspect(0).status().durable;
    let later = c.watch_locks(0, vec![locks("a")], Some(durable));
    assert_eq!(c.heard(0, later), ["anew", "current"]);
}

#[test]
fn a_watch_of_locks_begins_with_who_holds_them() {
    let mut c = Cluster::new(1, 0, 0);
    let shared = c.share(0, "a");
    c.share(0, "a");
    let both = c.acquire(0, &[("b", Mode::Exclusive), ("ab", Mode::Shared)], Wait::Forever);
    c.lock(0, "c");
    c.run();
    let watch = c.watch_locks(0, vec![locks("a"), Pattern::lock(&name("b"))], None);
    assert_eq!(
        c.heard(0, watch),
        ["anew", "granted a shared", "granted a shared", "granted ab shared", "granted b", "current"]
    );
    let waits = c.lock(0, "a");
    let shared = c.granted(0, shared).request;
    c.release(0, shared);
    c.release(0, shared);
    let both = c.granted(0, both).request;
    c.release(0, both);
    assert_eq!(c.heard(0, watch), ["released a shared", "released ab shared, b"]);
    // The lease ends, and with it all its requests: the waiter and the holder.
    let (lease, proof) = (c.lease(0), Proof::Attached);
    c.call(0, Call::CloseLease { lease, proof });
    assert_eq!(c.refused(0, waits), Refusal::LeaseEnded);
    assert_eq!(c.heard(0, watch), ["released a shared"]);
}

#[test]
fn a_grant_is_told_when_its_holder_may_know_of_it() {
    let mut c = Cluster::new(1, 0, 0);
    c.begin(0, 1, Some("a"), step(vec![add("n", 1)], &[], Then::Commit));
    let tag = c.lock(0, "a");
    let watch = c.watch_locks(0, vec![locks("")], None);
    assert!(!c.is_answered(0, tag), "the commit before it is not on disk");
    assert_eq!(c.heard(0, watch), ["anew", "current"]);
    c.sync(0);
    let request = c.granted(0, tag).request;
    assert_eq!(c.heard(0, watch), ["granted a"]);
    // The end of a grant that was never sent is not sent either. A transaction of one step is granted and
    // ends.
    c.release(0, request);
    c.begin(0, 2, Some("a"), step(vec![add("n", 1)], &[], Then::Commit));
    let never = c.lock(0, "a");
    let (lease, proof) = (c.lease(0), Proof::Attached);
    c.call(0, Call::CloseLease { lease, proof });
    assert_eq!(c.refused(0, never), Refusal::LeaseEnded);
    c.run();
    assert_eq!(c.heard(0, watch), ["released a", "granted a", "released a"]);
}

#[test]
fn a_retried_acquire_is_no_news_and_a_reclaimed_lock_is() {
    let mut c = Cluster::new(1, 0, 0);
    let watch = c.watch_locks(0, vec![locks("")], None);
    let first = c.acquire_as(0, Some(1), &[("a", Mode::Exclusive)], Wait::Forever);
    let again = c.acquire_as(0, Some(1), &[("a", Mode::Exclusive)], Wait::Forever);
    let grant = c.granted(0, first);
    assert_eq!(c.granted(0, again), grant);
    assert_eq!(c.heard(0, watch), ["anew", "current", "granted a"]);
    c.restarts(0);
    let watch = c.watch_locks(0, vec![locks("")], None);
    assert_eq!(c.heard(0, watch), ["anew", "current"], "nobody has come back");
    c.reclaims(0, &grant, "a");
    assert_eq!(c.heard(0, watch), ["granted a"]);
}

#[test]
fn a_lock_that_was_told_is_told_to_be_released_whatever_ended_between() {
    let mut c = Cluster::new(1, 0, 0);
    let grant = c.acquired(0, "a", Mode::Exclusive);
    let holder = c.lease(0);
    c.open_lease(0, Duration::from_secs(10));
    let other = c.lease(0);
    c.nodes[0].lease = Some(holder);
    c.restarts(0);
    let watch = c.watch_locks(0, vec![locks("")], None);
    c.reclaims(0, &grant, "a");
    assert_eq!(c.heard(0, watch), ["anew", "current", "granted a"]);
    // From now on every grant waits until the end of this lease is on disk.
    c.call(0, Call::CloseLease { lease: other, proof: Proof::Secret(SECRET) });
    c.release(0, grant.request);
    assert_eq!(c.heard(0, watch), ["released a"]);
}
