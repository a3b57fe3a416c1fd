//! Stories about commits of the maximum size.

use super::cluster::{Cluster, dc};
use super::store_cluster::{add, change, counted, put, step};
use crate::replica::Message;
use crate::replica::call::store::{AtLeast, Then, TxnRefusal};
use geolock_api::value::{Op, Reading, SetOp};

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

#[test]
fn what_is_too_large_to_be_read_is_refused_before_it_is_copied() {
    let mut c = Cluster::new(1, 0, 0);
    let items = |from: u32| (from..from + 5_000).map(|n| format!("{n:0100}").into()).collect();
    let set = |op| vec![change("set", Op::AddWinsSet(op))];
    for n in 0..9 {
        c.begin(0, u64::from(n) + 1, None, step(set(SetOp::Add(items(n * 5_000))), &[], Then::Commit));
        c.run();
    }
    c.begin(0, 10, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.run();
    let tag = c.read(0, &["set"], AtLeast::default());
    assert_eq!(c.txn_refused(0, tag), TxnRefusal::ReadsTooLarge(4 << 20), "102 bytes each");
    assert_eq!(c.reads(0, "n"), counted(1));
    c.begin(0, 11, None, step(set(SetOp::Remove(items(0))), &[], Then::Commit));
    c.run();
    let Some(Reading::Set(_, items)) = c.reads(0, "set") else { panic!("it is small enough now") };
    assert_eq!(items.len(), 40_000);
}
