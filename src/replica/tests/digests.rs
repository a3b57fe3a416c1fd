//! Stories about replicas that compare their data.

use std::time::Duration;

use super::cluster::{Cluster, dc, name};
use super::store_cluster::{add, key, step};
use crate::causal_log::Change;
use crate::replica::call::store::Then;
use crate::replica::{Event, Report, Summed};
use geolock_api::keys::Key;

#[test]
fn replicas_that_applied_the_same_compare_equal_and_a_broken_one_is_told_of() {
    let mut c = Cluster::new(2, 0, 0);
    c.begin(0, 1, None, step(vec![add("n", 5)], &[], Then::Commit));
    c.run();
    c.pass(12_000);
    let counts = c.inspect(0).counts();
    assert!(counts.anti_entropy_rounds >= 2);
    assert!(c.reports.is_empty(), "{:?}", c.reports);
    // A change that is in no log.
    c.nodes[1].replica.corrupt_store(&key("n"));
    c.pass(12_000);
    let differs =
        |report: &&Report| matches!(report, Report::DigestsDiffer { bucket, .. } if **bucket == *b"b");
    assert!(c.reports.iter().any(|report| differs(&report)), "{:?}", c.reports);
    assert!(c.reports.len() <= 4, "each tells of it once, under load and at rest: {:?}", c.reports);
}

#[test]
fn a_broken_replica_is_told_of_although_its_buckets_fit_no_message() {
    let mut c = Cluster::new(2, 0, 0);
    c.checks_itself = true;
    let key = |n: u64| Key::new(format!("{n:0>255}").as_bytes(), b"k").expect("a valid key");
    for batch in 0..10 {
        let change = |n| Change { key: key(2_000 * batch + n), ..add("n", 1) };
        c.begin(0, batch + 1, None, step((0..2_000).map(change).collect(), &[], Then::Commit));
        c.run();
    }
    c.nodes[1].replica.corrupt_store(&key(7));
    c.pass(12_000);
    c.reports.retain(|report| !matches!(report, Report::SumsDiffer { of: Summed::Shown, .. }));
    let names_none =
        |report: &Report| matches!(report, Report::DigestsDiffer { bucket, .. } if bucket.starts_with(b"("));
    assert!(!c.reports.is_empty() && c.reports.iter().all(names_none), "{:?}", c.reports);
    assert!(c.nodes.iter().all(|node| node.violations.is_empty()));
    c.nodes.iter().for_each(|node| node.replica.check());
}

/// Commits, and moves a lock from dc0 to dc1, every half second. Each of these arrives when the next one is
/// in flight: the two are never at the same vector at the same time.
fn under_load(c: &mut Cluster, rounds: u64) {
    for _ in 0..rounds {
        let held_back = c.wires[&(dc(0), dc(1))].len();
        let key = c.now;
        c.begin(0, key, None, step(vec![add("n", 1)], &[], Then::Commit));
        c.now += 500;
        for id in 0..2 {
            c.handle(id, Event::Tick);
            c.sync(id);
        }
        (0..held_back).for_each(|_| assert!(c.deliver(0, 1)));
        c.sync(1);
        while c.deliver(1, 0) {}
        c.sync(0);
        assert_ne!(c.inspect(0).applied(), c.inspect(1).applied());
    }
}

/// Two datacenters, and a lock whose parts are all in one of them.
fn two_with_a_lock() -> Cluster {
    let mut c = Cluster::new(2, 0, 0);
    c.open_lease(0, Duration::from_secs(60));
    let held = c.lock(0, "a");
    c.run();
    c.granted(0, held);
    c.pass(2_000);
    let compared = c.inspect(1).counts().digests_compared;
    under_load(&mut c, 40);
    assert!(c.inspect(1).counts().digests_compared > compared + 2, "at vectors that both passed");
    assert!(c.reports.is_empty(), "{:?}", c.reports);
    c
}

#[test]
fn replicas_that_are_never_at_the_same_vector_are_compared_at_those_that_both_passed() {
    let mut c = two_with_a_lock();
    c.nodes[1].replica.corrupt_store(&key("n"));
    under_load(&mut c, 40);
    let shown = |report: &Report| matches!(report, Report::SumsDiffer { of: Summed::Shown, .. });
    assert!(c.reports.len() <= 2 && c.reports.iter().any(shown), "{:?}", c.reports);
}

#[test]
fn another_idea_of_who_owns_what_is_told_of() {
    let mut c = two_with_a_lock();
    c.nodes[1].replica.corrupt_ownership(name("nobody's"));
    under_load(&mut c, 40);
    let owned = |report: &Report| matches!(report, Report::SumsDiffer { of: Summed::Owned, .. });
    assert!(c.reports.len() <= 2 && c.reports.iter().any(owned), "{:?}", c.reports);
}
