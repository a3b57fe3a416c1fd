//! Stories about commits of the maximum size.

use super::cluster::{Cluster, dc};
use super::store_cluster::{put, step};
use crate::replica::Message;
use crate::replica::store_call::Then;

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
