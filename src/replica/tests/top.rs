//! Stories about the waiting times of requests, and about the locks with the most waiting.

use std::time::Duration;

use super::cluster::{Cluster, dc};
use crate::leases::Proof;
use crate::replica::call::{Acquires, Call, HotLock, Reply, Wait};
use geolock_api::names::Mode;

fn acquires(c: &Cluster, id: u8) -> Acquires {
    c.inspect(usize::from(id)).status().acquires
}

fn hand_offs(c: &Cluster, id: u8) -> (u64, u64) {
    let counts = c.inspect(usize::from(id)).counts();
    (counts.hand_offs_sent, counts.hand_offs_received)
}

/// Returns the hottest locks whose name begins with `prefix`, at most `limit`.
fn top_of(c: &mut Cluster, id: u8, prefix: &str, limit: usize) -> Vec<HotLock> {
    let tag = c.call(id, Call::Top { prefix: prefix.as_bytes().to_vec(), limit });
    c.run();
    match c.reply(id, tag) {
        Some(Reply::Top(locks)) => locks,
        other => panic!("it says which locks are hot, not {other:?}"),
    }
}

fn top(c: &mut Cluster, id: u8) -> Vec<HotLock> {
    top_of(c, id, "", 100)
}

fn names(locks: &[HotLock]) -> Vec<String> {
    locks.iter().map(|hot| hot.lock.lock.to_string()).collect()
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn waits_are_timed_until_the_grant_is_told_by_whether_others_were_asked() {
    let mut c = Cluster::new(2, 0, 0);
    let tag = c.lock(0, "a");
    c.sync(0);
    c.now += 30;
    while c.deliver(0, 1) {}
    c.sync(1);
    while c.deliver(1, 0) {}
    assert_eq!(acquires(&c, 0), Acquires::default(), "the parts are here, and not on disk");
    c.now += 20;
    c.sync(0);
    let grant = c.granted(0, tag);
    let Acquires { local, remote } = acquires(&c, 0);
    assert_eq!((local.count(), remote.count(), remote.sum()), (0, 1, 50 * MS));

    c.release(0, grant.request);
    c.use_lock(0, "a");
    let first = c.lock(0, "a");
    let second = c.lock(0, "a");
    c.now += 7;
    c.release(0, c.granted(0, first).request);
    assert!(c.is_answered(0, second));
    let Acquires { local, remote } = acquires(&c, 0);
    assert_eq!((local.count(), local.sum(), remote.count()), (3, 7 * MS, 1));
    // The client lost the reply, and repeats the call: this is no second wait.
    let again = c.acquire_as(0, Some(1), &[("b", Mode::Shared)], Wait::Forever);
    c.run();
    c.now += 500;
    c.granted(0, again);
    c.acquire_as(0, Some(1), &[("b", Mode::Shared)], Wait::Forever);
    assert_eq!(acquires(&c, 0).local.sum(), 7 * MS);
}

#[test]
fn a_lock_that_nobody_waits_for_is_not_hot() {
    let mut c = Cluster::new(1, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(0, "a");
    let shared = [c.share(0, "b"), c.share(0, "b")];
    assert!(shared.iter().all(|tag| c.is_answered(0, *tag)));
    assert_eq!(top(&mut c, 0), []);
}

#[test]
fn a_hot_lock_is_shown_with_who_has_it_and_who_is_next() {
    let mut c = Cluster::new(2, 0, 0);
    let held = c.lock(0, "a");
    c.run();
    let held = c.granted(0, held);
    c.now += 100;
    let next = c.lock(0, "a");
    let after = c.lock(1, "a");
    c.run();
    c.now += 40;
    let hot = top(&mut c, 0);
    assert_eq!(names(&hot), ["a"]);
    let lock = &hot[0].lock;
    assert_eq!((lock.holders[0].request, lock.holders[0].held_for), (held.request, 140 * MS));
    assert_eq!(
        (hot[0].local_holders, lock.waiting, lock.waiters.len(), hot[0].head_wait),
        (1, 2, 1, 40 * MS)
    );
    assert_eq!((lock.waiters[0].request.dc, lock.waiters[0].label.as_deref()), (dc(0), Some("a story")));
    // A part of it moved here, when it was first wanted.
    assert_eq!((hot[0].heat.hand_offs, hot[0].heat.grants, hand_offs(&c, 0)), (1, 1, (0, 1)));

    c.release(0, held.request);
    let next = c.granted(0, next);
    let heat = top(&mut c, 0)[0].heat;
    assert_eq!((heat.grants, heat.waited, heat.max_wait), (2, 40 * MS, 40 * MS));
    c.release(0, next.request);
    c.run();
    let after = c.granted(1, after);
    assert_eq!((hand_offs(&c, 0), hand_offs(&c, 1)), ((1, 1), (1, 1)));
    // The datacenter that does not hold it asks the other one for the holders; each one measures the heat
    // itself.
    for id in [0, 1] {
        let hot = top(&mut c, id);
        assert_eq!(hot[0].lock.holders[0].request, after.request, "dc{id}");
        assert_eq!((hot[0].heat.hand_offs, hot[0].heat.grants), (2, 2 - u64::from(id)), "dc{id}");
        assert!(
            hot[0].lock.unknown.is_empty() && hot[0].lock.owners.iter().all(|(_, owner)| *owner == dc(1))
        );
    }
    // The other datacenter cannot reply: it may hold the lock.
    c.cut(0, 1);
    let hot = top(&mut c, 0);
    assert_eq!((hot[0].lock.holders.len(), hot[0].lock.unknown.contains(dc(1))), (0, true));
}

#[test]
fn a_request_of_many_locks_counts_for_the_one_in_its_way() {
    let mut c = Cluster::new(1, 0, 0);
    let held = c.lock(0, "b");
    let all = c.acquire(0, &["a", "b", "c"].map(|lock| (lock, Mode::Exclusive)), Wait::Forever);
    assert_eq!(names(&top(&mut c, 0)), ["b"]);
    c.now += 5;
    c.release(0, c.granted(0, held).request);
    assert!(c.is_answered(0, all));
    let hot = top(&mut c, 0);
    assert_eq!((names(&hot), hot[0].heat.waited), (vec!["b".to_owned()], 5 * MS));
}

#[test]
fn the_hottest_come_first_and_a_wait_that_does_not_end_is_not_forgotten() {
    let mut c = Cluster::new(1, 0, 0);
    for lock in ["x/stuck", "x/quick", "y"] {
        c.lock(0, lock);
        c.lock(0, lock);
    }
    // A lock with a little waiting, now and then.
    for _ in 0..20 {
        c.pass(4_000);
        let (lease, proof) = (c.lease(0), Proof::Attached);
        c.call(0, Call::KeepAlive { lease, proof });
        let held = c.lock(0, "busy");
        let next = c.lock(0, "busy");
        c.now += 30;
        c.release(0, c.granted(0, held).request);
        c.release(0, c.granted(0, next).request);
    }
    let hot = top(&mut c, 0);
    assert_eq!(names(&hot), ["x/quick", "x/stuck", "y", "busy"]);
    assert!(hot[0].head_wait > 79_000 * MS);
    assert_eq!((hot[3].heat.grants, hot[3].heat.max_wait), (20, 30 * MS));
    assert_eq!(names(&top_of(&mut c, 0, "x/", 100)), ["x/quick", "x/stuck"]);
    assert_eq!(names(&top_of(&mut c, 0, "x/", 1)), ["x/quick"]);
}
