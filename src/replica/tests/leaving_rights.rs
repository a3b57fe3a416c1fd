//! Stories about rights to bounded counters that a datacenter hands over before it leaves.

use super::cluster::dc;
use super::store_cluster::{change, key, step};
use super::witness_story::Story;
use crate::causal_log::{Action, Change, Entry, Op as LogOp};
use crate::membership::{Command, EvictPolicy, Generation};
use crate::replica::call::store::Then;
use crate::replica::{Event, Message, Record};
use geolock_api::value::{Op, Update};

fn transfers(entry: &Entry) -> usize {
    let is_transfer = |change: &&Change| {
        matches!(change.action, Action::Update(Update { op: Op::TransferRights { .. }, .. }))
    };
    let of = |op: &LogOp| match op {
        LogOp::Commit(commit) => commit.changes.iter().filter(is_transfer).count(),
        _ => 0,
    };
    entry.ops.iter().map(of).sum()
}

/// Returns the number of transfers of rights that dc1 has recorded in its own log.
fn transfers_of_dc1(s: &Story) -> usize {
    let own = s.c.nodes[1].records.iter().filter_map(|(_, record)| match record {
        Record::Entry(entry) if entry.dc == dc(1) => Some(transfers(entry)),
        _ => None,
    });
    own.sum()
}

/// While dc1 is away, dc0 ends the counter, gives dc1 rights to the new one, and may learn that dc1 leaves.
/// Then dc1 hears of all that at once. Its disk is stuck, so what it has applied is not what it has on disk.
fn with_rights_that_are_not_on_disk(leaves: bool) -> Story {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.c.begin(0, 1, None, step(vec![change("stock", Op::BoundedCounter(10))], &[], Then::Commit));
    s.pass(500);
    s.isolate(1);
    let anew = vec![
        Change { key: key("stock"), action: Action::Remove },
        change("stock", Op::BoundedCounter(10)),
        change("stock", Op::TransferRights { to: dc(1), amount: 4 }),
    ];
    let tag = s.c.begin(0, 2, None, step(anew, &[], Then::Commit));
    s.run();
    s.c.committed(0, tag);
    if leaves {
        s.decide_command(Command::Leaving { dc: dc(1), generation: Generation(0) });
    }
    s.pass(1_000);
    s.c.nodes[1].disk_is_stuck = true;
    s.rejoin(1);
    s
}

/// Found by the simulator: a commit that has not seen the end of a key has no effect on the new one. So the
/// rights seemed to be there still after each step, and each step made another commit, until the disk was
/// done.
#[test]
fn rights_whose_counter_is_not_on_disk_are_handed_over_once_it_is() {
    let mut s = with_rights_that_are_not_on_disk(true);
    for _ in 0..50 {
        s.c.handle(1, Event::Tick);
    }
    assert_eq!(transfers_of_dc1(&s), 0);
    assert!(s.c.nodes[1].replica.next_deadline() > s.c.clock(1).mono, "it waits for its disk");
    s.c.nodes[1].disk_is_stuck = false;
    s.pass(2_000);
    assert_eq!(transfers_of_dc1(&s), 1);
    assert!(!s.is_member(1), "it has left");
    let all = s.c.begin(0, 3, None, step(vec![change("stock", Op::BoundedCounter(-10))], &[], Then::Commit));
    s.run();
    s.c.committed(0, all);
}

/// The same for rights that are asked for.
#[test]
fn rights_whose_counter_is_not_on_disk_are_not_given() {
    let mut s = with_rights_that_are_not_on_disk(false);
    let asked = || Message::AskRights { key: key("stock"), amount: 2 };
    s.c.handle(1, Event::Received { peer: dc(0), message: asked() });
    assert_eq!(transfers_of_dc1(&s), 0);
    s.c.nodes[1].disk_is_stuck = false;
    s.run();
    s.c.handle(1, Event::Received { peer: dc(0), message: asked() });
    assert_eq!(transfers_of_dc1(&s), 1);
}
