//! Stories about commits of the maximum size.

use bytes::Bytes;

use super::cluster::{Cluster, dc};
use super::store_cluster::{add, change, counted, key, put, step};
use crate::replica::Message;
use crate::replica::call::store::{AtLeast, Step, Then, TxnRefusal};
use crate::store_state::ChangeError;
use geolock_api::value::{Op, OpError, READING_OVERHEAD, Reading, SetOp};

fn on_the_way(c: &Cluster) -> usize {
    let messages = c.wires[&(dc(0), dc(1))].iter();
    messages.filter(|message| matches!(message, Message::Entries(_))).count()
}

#[test]
fn a_backlog_of_large_commits_goes_out_piece_by_piece() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    let value = "x".repeat(1_000_000);
    for n in 1..=6 {
        let changes = (0..4).map(|part| put(&format!("{n}/{part}"), &value)).collect();
        c.begin(0, n, None, step(changes, &[], Then::Commit));
        c.sync(0);
    }
    c.link(0, 1);
    while c.deliver(1, 0) {
        c.sync(0);
    }
    assert_eq!(on_the_way(&c), 5, "16 MiB and what goes beyond");
    for left in [5, 4] {
        // The first entry that arrives makes room for the sixth.
        while on_the_way(&c) >= left && c.deliver(0, 1) {}
    }
    assert_eq!(on_the_way(&c), 3);
    assert!(c.nodes.iter().all(|node| node.violations.is_empty()));
}

/// Elements of 100 bytes from this number on, which weigh 102 each.
fn items(from: u32) -> Vec<Bytes> {
    (from..from + 5_000).map(|n| format!("{n:0100}").into()).collect()
}

fn on_set(op: SetOp) -> Step {
    step(vec![change("set", Op::AddWinsSet(op))], &[], Then::Commit)
}

/// The refusal of elements by which there would be so many; the operation has 8 bytes besides.
fn too_large(elements: usize) -> TxnRefusal {
    let bytes = READING_OVERHEAD + 8 + elements * 102;
    TxnRefusal::Change(ChangeError { key: key("set"), error: OpError::TooLarge { bytes } })
}

#[test]
fn a_value_does_not_grow_beyond_what_can_be_read() {
    let mut c = Cluster::new(1, 0, 0);
    for n in 0..4 {
        c.begin(0, u64::from(n) + 1, None, on_set(SetOp::Add(items(n * 5_000))));
        c.run();
    }
    let tag = c.begin(0, 5, None, on_set(SetOp::Add(items(20_000))));
    assert_eq!(c.txn_refused(0, tag), too_large(25_000));
    // So it would not in two changes, of which each is small enough.
    let all = items(20_000);
    let halves = all.chunks(2_500).map(|half| change("set", Op::AddWinsSet(SetOp::Add(half.to_vec()))));
    let tag = c.begin(0, 6, None, step(halves.collect(), &[], Then::Commit));
    assert!(matches!(
        c.txn_refused(0, tag),
        TxnRefusal::Change(ChangeError { error: OpError::TooLarge { .. }, .. })
    ));
    for (key, op) in [(7, SetOp::Add(items(0))), (8, SetOp::Remove(items(0))), (9, SetOp::Add(items(20_000)))]
    {
        c.begin(0, key, None, on_set(op));
        c.run();
    }
    let Some(Reading::Set(_, found)) = c.reads(0, "set") else { panic!("it can be read") };
    assert_eq!((found.len(), &found[0]), (20_000, &items(5_000)[0]));
}

#[test]
fn a_value_that_is_too_large_to_be_read_is_refused_before_it_is_copied() {
    let mut c = Cluster::new(3, 0, 0);
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        c.cut(a, b);
    }
    for n in 0..12 {
        let dc = (n % 3) as u8;
        c.begin(dc, u64::from(n) + 1, None, on_set(SetOp::Add(items(n * 5_000))));
        c.run();
    }
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        c.link(a, b);
    }
    c.run();
    c.begin(0, 20, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.run();
    let tag = c.read(0, &["set"], AtLeast::default());
    assert_eq!(c.txn_refused(0, tag), TxnRefusal::ReadsTooLarge(4 << 20), "each added 2 MB");
    assert_eq!(c.reads(0, "n"), counted(1));
    let tag = c.begin(0, 21, None, on_set(SetOp::Add(items(60_000))));
    assert_eq!(c.txn_refused(0, tag), too_large(65_000));
    for n in 0..4 {
        c.begin(0, u64::from(n) + 22, None, on_set(SetOp::Remove(items(n * 5_000))));
        c.run();
    }
    let Some(Reading::Set(_, found)) = c.reads(0, "set") else { panic!("it is small enough now") };
    assert_eq!(found.len(), 40_000);
}
