//! Replicas that compare what they show.

use super::cluster::Cluster;
use super::store_cluster::{add, key, step};
use crate::causal_log::Change;
use crate::keys::Key;
use crate::replica::Report;
use crate::replica::store_call::Then;

#[test]
fn replicas_that_applied_the_same_compare_equal_and_a_broken_one_is_told_of() {
    let mut c = Cluster::new(2, 0, 0);
    c.begin(0, 1, None, step(vec![add("n", 5)], &[], Then::Commit));
    c.run();
    c.pass(12_000);
    let counts = c.nodes[0].replica.counts();
    assert!(counts.anti_entropy_rounds >= 2);
    assert!(c.reports.is_empty(), "{:?}", c.reports);
    // A change that is in no log.
    c.nodes[1].replica.corrupt_store(&key("n"));
    c.pass(12_000);
    let differs =
        |report: &&Report| matches!(report, Report::DigestsDiffer { bucket, .. } if **bucket == *b"b");
    assert!(c.reports.iter().any(|report| differs(&report)), "{:?}", c.reports);
    assert!(c.reports.len() <= 2, "each tells of it once: {:?}", c.reports);
}

#[test]
fn a_broken_replica_is_told_of_although_its_buckets_fit_no_message() {
    let mut c = Cluster::new(2, 0, 0);
    let key = |n: u64| Key::new(format!("{n:0>255}").as_bytes(), b"k").expect("a valid key");
    for batch in 0..10 {
        let change = |n| Change { key: key(2_000 * batch + n), ..add("n", 1) };
        c.begin(0, batch + 1, None, step((0..2_000).map(change).collect(), &[], Then::Commit));
        c.run();
    }
    c.nodes[1].replica.corrupt_store(&key(7));
    c.pass(12_000);
    let names_none =
        |report: &Report| matches!(report, Report::DigestsDiffer { bucket, .. } if bucket.starts_with(b"("));
    assert!(!c.reports.is_empty() && c.reports.iter().all(names_none), "{:?}", c.reports);
    assert!(c.nodes.iter().all(|node| node.violations.is_empty()));
}
