//! Stories about a disk that fills up.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc};
use super::store_cluster::{add, counted, put, step, written};
use crate::base::capacity::DiskSpace;
use crate::leases::{OnDisconnect, Proof};
use crate::replica::call::store::{Then, TxnRefusal, TxnState};
use crate::replica::call::{Call, Refusal, Reply, Wait};
use geolock_api::names::Mode;

fn commit(c: &mut Cluster, id: u8, key: u64, name: &str, amount: i64) -> u64 {
    c.begin(id, key, None, step(vec![add(name, amount)], &[], Then::Commit))
}

#[test]
fn while_there_is_little_room_clients_have_nothing_written() {
    let mut c = Cluster::new(2, 0, 0);
    commit(&mut c, 0, 1, "n", 1);
    c.run();
    let open = c.begin(0, 2, None, step(vec![add("n", 10)], &[], Then::Continue));
    c.use_lock(0, "ours");
    c.run();
    c.stepped(0, open);
    c.room(0, DiskSpace::Low);

    let refused = [
        commit(&mut c, 0, 3, "n", 100),
        c.next_step(0, 2, step(vec![], &[], Then::Commit)),
        c.lock(0, "both have a part of it"),
        c.begin(0, 4, Some("this too"), step(vec![], &["n"], Then::Continue)),
        c.call(
            0,
            Call::OpenLease {
                secret: SECRET,
                ttl: Some(Duration::from_secs(10)),
                on_disconnect: OnDisconnect::Keep,
            },
        ),
    ];
    for tag in refused {
        assert_eq!(c.refused(0, tag), Refusal::DiskFull);
    }
    let tag = c.acquire(0, &[("and this", Mode::Exclusive)], Wait::Try);
    assert_eq!(c.refused(0, tag), Refusal::NotFree, "who does not want to wait is told no more than that");

    let tag = c.lock(0, "ours");
    let held = c.granted(0, tag);
    let tag = c.release(0, held.request);
    assert_eq!(c.reply(0, tag), Some(Reply::Released));
    let lease = c.lease(0);
    let tag = c.call(0, Call::KeepAlive { lease, proof: Proof::Attached });
    assert!(matches!(c.reply(0, tag), Some(Reply::Renewed { .. })));
    let tag = c.begin(0, 5, None, step(vec![], &["n"], Then::Commit));
    assert_eq!(c.stepped(0, tag).readings(), [counted(1)]);
    let tag = c.next_step(0, 2, step(vec![], &["n"], Then::Continue));
    assert_eq!(c.stepped(0, tag).readings(), [counted(11)], "it is open still, with what it changed");

    // The other datacenter is not affected.
    commit(&mut c, 1, 1, "n", 1_000);
    c.use_lock(1, "ours");
    c.run();
    assert_eq!((c.reads(0, "n"), c.reads(1, "n")), (counted(1_001), counted(1_001)));

    c.room(0, DiskSpace::Enough);
    let tags = [commit(&mut c, 0, 6, "n", 100), c.next_step(0, 2, step(vec![], &[], Then::Commit))];
    c.run();
    for tag in tags {
        c.committed(0, tag);
    }
    assert_eq!((c.reads(0, "n"), c.reads(1, "n")), (counted(1_111), counted(1_111)));
}

#[test]
fn who_waited_before_there_was_little_room_gets_the_lock() {
    let mut c = Cluster::new(2, 0, 0);
    let theirs = c.lock(1, "a");
    c.run();
    let theirs = c.granted(1, theirs);
    let waits = c.lock(0, "a");
    c.run();
    c.room(0, DiskSpace::Low);
    c.release(1, theirs.request);
    c.run();
    c.granted(0, waits);
}

#[test]
fn on_a_full_disk_reading_goes_on_and_nothing_is_lost() {
    let mut c = Cluster::new(3, 0, 0);
    commit(&mut c, 0, 1, "n", 1);
    c.run();
    let taken = commit(&mut c, 0, 2, "n", 10);
    c.nodes[0].disk_is_stuck = true;
    c.room(0, DiskSpace::Full);
    let records = c.nodes[0].records.len();
    let tags = [commit(&mut c, 0, 3, "n", 100), c.acquire(0, &[("a", Mode::Shared)], Wait::Try)];
    for tag in tags {
        assert_eq!(c.refused(0, tag), Refusal::DiskFull);
    }
    for (key, id) in [(1, 1), (1, 2)] {
        commit(&mut c, id, key, "n", 1_000);
    }
    c.run();
    assert!(!c.is_answered(0, taken), "nobody is told of what is not on disk");
    assert_eq!((c.reads(0, "n"), c.reads(1, "n")), (counted(1), counted(2_001)));

    c.checks_itself = true;
    c.pass(3_600_000);
    c.checks_itself = false;
    c.nodes.iter().for_each(|node| node.replica.check());
    let grown = c.nodes[0].records.len() - records;
    assert!(grown <= 2, "{grown} more records in an hour: what waits for room must not pile up");
    let status = c.inspect(1).status();
    let unreachable: Vec<_> =
        status.peers.iter().filter(|peer| !peer.reachable).map(|peer| peer.dc).collect();
    assert_eq!(unreachable, [dc(0)], "it can tell nobody what time it is");
    assert_eq!(c.reads(0, "n"), counted(1));

    c.nodes[0].disk_is_stuck = false;
    c.room(0, DiskSpace::Low);
    c.run();
    assert!(matches!(c.stepped(0, taken).state, TxnState::Committed(_)));
    c.room(0, DiskSpace::Enough);
    c.open_lease(0, Duration::from_secs(10));
    let tag = commit(&mut c, 0, 1, "n", 10_000);
    c.pass(1_000);
    c.committed(0, tag);
    for id in 0..3 {
        assert_eq!(c.reads(id, "n"), counted(12_011), "in dc{id}");
        assert!(c.inspect(usize::from(id)).status().peers.iter().all(|peer| peer.reachable));
    }
    c.use_lock(0, "a");
}

#[test]
fn what_others_sent_while_the_disk_was_full_is_asked_for_again() {
    let mut c = Cluster::new(2, 0, 0);
    c.room(0, DiskSpace::Full);
    for key in 1..=100 {
        commit(&mut c, 1, key, "n", 1);
        c.run();
    }
    assert_eq!(c.reads(0, "n"), None);
    c.room(0, DiskSpace::Low);
    c.run();
    assert_eq!(c.reads(0, "n"), counted(100), "at once, and although nothing more comes");

    c.room(0, DiskSpace::Full);
    for key in 101..=200 {
        commit(&mut c, 1, key, "n", 1);
        c.run();
    }
    // This entry is in flight when the dropped ones are asked for.
    commit(&mut c, 1, 201, "n", 1);
    c.sync(1);
    c.room(0, DiskSpace::Low);
    c.run();
    assert_eq!(c.reads(0, "n"), counted(201), "what comes again comes after what waits for it");
}

#[test]
fn a_refused_commit_leaves_the_transaction_as_it_was() {
    let mut c = Cluster::new(1, 0, 0);
    let open = c.begin(0, 1, None, step(vec![], &[], Then::Continue));
    c.run();
    c.stepped(0, open);
    c.room(0, DiskSpace::Low);
    let refused = c.next_step(0, 1, step(vec![put("r", "refused")], &[], Then::Commit));
    assert_eq!(c.refused(0, refused), Refusal::DiskFull);
    let tag = c.next_step(0, 1, step(vec![], &["r"], Then::Continue));
    assert_eq!(c.stepped(0, tag).readings(), [None], "the step was refused with its changes");
    c.room(0, DiskSpace::Enough);
    // The step follows no changes, like the refused one.
    let tag = c.next_step(0, 1, step(vec![put("r", "wanted")], &[], Then::Commit));
    c.run();
    c.committed(0, tag);
    assert_eq!(c.reads(0, "r"), written("wanted"));
}

#[test]
fn a_commit_that_cannot_be_made_leaves_the_transaction_as_it_was() {
    // Two of three members are away: the log is full of entries that they lack.
    let mut c = Cluster::with_log(3, (0, 0), 1_000);
    c.isolate(0);
    let open = c.begin(0, 1, None, step(vec![], &[], Then::Continue));
    c.run();
    c.stepped(0, open);
    for key in 2..200 {
        commit(&mut c, 0, key, "n", 1);
        c.sync(0);
    }
    let refused = c.next_step(0, 1, step(vec![put("r", "refused")], &[], Then::Commit));
    assert!(matches!(c.txn_refused(0, refused), TxnRefusal::CannotCommit(_)));
    let tag = c.next_step(0, 1, step(vec![], &["r"], Then::Continue));
    assert_eq!(c.stepped(0, tag).readings(), [None], "the step was refused with its changes");
    c.link_again(0);
    c.pass(2_000);
    let tag = c.next_step(0, 1, step(vec![put("r", "wanted")], &[], Then::Commit));
    c.run();
    c.committed(0, tag);
    assert_eq!(c.reads(0, "r"), written("wanted"));
}
