//! Stories about transactions.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc};
use super::store_cluster::{add, change, counted, key, put, step, written};
use crate::causal_log::{Action, Change};
use crate::leases::Proof;
use crate::replica::call::store::{AtLeast, Begin, Read, Step, Then, TxnRefusal, TxnState};
use crate::replica::call::{Call, Limit, Refusal, Reply};
use crate::replica::{Event, Message};
use geolock_api::value::{Op, OpError};

#[test]
fn a_commit_is_answered_when_it_is_durable_and_seen_everywhere() {
    let mut c = Cluster::new(3, 0, 0);
    let tag = c.begin(0, 1, None, step(vec![add("n", 5)], &["n"], Then::Commit));
    assert!(!c.is_answered(0, tag), "it is not on disk");
    assert_eq!(c.reads(0, "n"), None, "and so nobody sees it");
    c.run();
    assert_eq!(c.stepped(0, tag).readings(), [counted(5)], "a step reads what it changed");
    assert_eq!(c.committed(0, tag), [(dc(0), 1)].into_iter().collect());
    for id in 0..3 {
        assert_eq!(c.reads(id, "n"), counted(5));
    }
}

#[test]
fn a_snapshot_stays_as_it_was_while_others_commit() {
    let mut c = Cluster::new(2, 0, 0);
    c.begin(0, 1, None, step(vec![add("n", 1), put("r", "old")], &[], Then::Commit));
    c.run();
    let reader = c.begin(0, 2, None, step(vec![], &["n"], Then::Continue));
    assert_eq!(c.stepped(0, reader).readings(), [counted(1)]);
    for i in 0..200_u64 {
        c.begin(1, i + 1, None, step(vec![add("n", 1), put("r", "new")], &[], Then::Commit));
        c.run();
    }
    assert_eq!(c.reads(0, "n"), counted(201));
    let tag = c.next_step(0, 2, step(vec![add("n", 10)], &["n", "r"], Then::Continue));
    assert_eq!(c.stepped(0, tag).readings(), [counted(11), written("old")]);
    let tag = c.next_step(0, 2, step(vec![], &[], Then::Commit));
    c.run();
    c.committed(0, tag);
    assert_eq!((c.reads(0, "n"), c.reads(1, "r")), (counted(211), written("new")));
    c.pass(1);
    let counts = c.inspect(0).counts();
    assert_eq!(
        (counts.uncompacted_changes, counts.transactions),
        (0, 0),
        "old versions end with the snapshot"
    );
}

#[test]
fn what_is_read_under_a_lock_has_all_that_was_committed_under_it() {
    let mut c = Cluster::new(3, 0, 0);
    for (i, id) in [2, 0, 0, 1, 2, 1, 2, 0, 1, 1].into_iter().enumerate() {
        let k = 2 * i as u64 + 1;
        let read = c.begin(id, k, Some("x"), step(vec![], &["r"], Then::Continue));
        c.run();
        let before = if i == 0 { None } else { written(&format!("v{}", i - 1)) };
        assert_eq!(c.stepped(id, read).readings(), [before], "turn {i} in dc{id}");
        let commit = c.next_step(id, k, step(vec![put("r", &format!("v{i}"))], &[], Then::Commit));
        c.run();
        c.committed(id, commit);
    }
}

#[test]
fn the_next_holder_is_told_only_when_the_commit_before_it_is_durable() {
    let mut c = Cluster::new(1, 0, 0);
    let first = c.begin(0, 1, Some("x"), step(vec![add("n", 1)], &[], Then::Commit));
    let second = c.begin(0, 2, Some("x"), step(vec![add("n", 1)], &["n"], Then::Commit));
    assert!(!c.is_answered(0, first) && !c.is_answered(0, second));
    c.sync(0);
    c.committed(0, first);
    assert!(!c.is_answered(0, second), "its own commit is on its way");
    c.sync(0);
    assert_eq!(c.stepped(0, second).readings(), [counted(2)]);
}

#[test]
fn a_commit_is_made_once_however_often_it_is_asked_for() {
    let mut c = Cluster::new(2, 0, 0);
    let once = || step(vec![add("n", 1)], &[], Then::Commit);
    let first = c.begin(0, 1, None, once());
    let again = c.begin(0, 1, None, once());
    c.run();
    assert_eq!(c.committed(0, first), c.committed(0, again));
    c.restart(0);
    c.link(0, 1);
    c.pass(600);
    let (lease, secret) = (c.lease(0), SECRET);
    c.call(0, Call::AttachLease { lease, secret });
    let after = c.begin(0, 1, None, once());
    c.run();
    assert_eq!(c.committed(0, after), [(dc(0), 1)].into_iter().collect());
    assert_eq!(c.reads(1, "n"), counted(1));
    // The client acknowledges the outcome: it is no longer remembered, and the transaction is never made
    // again.
    let mut acknowledged_through = Begin {
        lease,
        proof: Proof::Attached,
        key: 2,
        locks: None,
        at_least: AtLeast::default(),
        acknowledged_through: 1,
        step: once(),
        under: Vec::new(),
    };
    c.call(0, Call::Begin(acknowledged_through.clone()));
    c.run();
    acknowledged_through.key = 1;
    let tag = c.call(0, Call::Begin(acknowledged_through));
    assert_eq!(c.txn_refused(0, tag), TxnRefusal::OutcomeUnknown(1));
    assert_eq!(c.reads(0, "n"), counted(2));
}

#[test]
fn a_commit_that_a_crash_lost_never_was_and_can_be_made_again() {
    let mut c = Cluster::new(1, 0, 0);
    let keep = c.nodes[0].records.len();
    c.begin(0, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.crash(0, keep);
    c.pass(600);
    let (lease, secret) = (c.lease(0), SECRET);
    c.call(0, Call::AttachLease { lease, secret });
    let going = c.next_step(0, 1, step(vec![], &[], Then::Commit));
    assert_eq!(c.txn_refused(0, going), TxnRefusal::Unknown(1));
    let again = c.begin(0, 1, None, step(vec![add("n", 1)], &["n"], Then::Commit));
    c.run();
    assert_eq!(c.stepped(0, again).readings(), [counted(1)]);
}

#[test]
fn who_asks_for_a_snapshot_waits_for_it_and_not_for_ever() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    let tag = c.begin(0, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.sync(0);
    let snapshot = c.committed(0, tag);
    let at_least = |millis| AtLeast { snapshot: snapshot.clone(), patience: Duration::from_millis(millis) };
    let hasty = c.read(1, &["n"], at_least(100));
    let patient = c.read(1, &["n"], at_least(10_000));
    let txn = c.begin_after(1, 1, None, at_least(10_000), step(vec![], &["n"], Then::Continue));
    c.pass(200);
    assert_eq!(c.txn_refused(1, hasty), TxnRefusal::SnapshotNotReached { lacks: snapshot.clone() });
    assert!(!c.is_answered(1, patient) && !c.is_answered(1, txn));
    c.link(0, 1);
    c.run();
    assert_eq!(c.stepped(1, patient).readings(), [counted(1)]);
    assert_eq!(c.stepped(1, txn).readings(), [counted(1)]);
}

#[test]
fn snapshots_that_cannot_be_are_refused() {
    let mut c = Cluster::new(2, 0, 0);
    let of = |id, seq| AtLeast { snapshot: [(dc(id), seq)].into_iter().collect(), patience: Duration::ZERO };
    let tag = c.read(0, &["n"], of(0, 7));
    assert_eq!(c.txn_refused(0, tag), TxnRefusal::SnapshotAhead { seq: 7, made: 0 });
    let tag = c.read(0, &["n"], of(9, 1));
    assert_eq!(c.txn_refused(0, tag), TxnRefusal::UnknownDc(dc(9)));
}

#[test]
fn an_abort_leaves_no_trace_and_frees_the_locks() {
    let mut c = Cluster::new(1, 0, 0);
    let tag = c.begin(0, 1, Some("x"), step(vec![add("n", 1)], &["n"], Then::Continue));
    c.run();
    assert_eq!(c.stepped(0, tag).readings(), [counted(1)]);
    let waiting = c.lock(0, "x");
    let tag = c.next_step(0, 1, step(vec![], &[], Then::Abort));
    assert_eq!(c.stepped(0, tag).state, TxnState::Aborted);
    assert!(c.is_answered(0, waiting));
    let late = c.next_step(0, 1, step(vec![], &[], Then::Commit));
    assert_eq!(c.txn_refused(0, late), TxnRefusal::Unknown(1));
    assert_eq!(c.reads(0, "n"), None);
}

#[test]
fn a_refused_step_changes_nothing() {
    let mut c = Cluster::new(1, 0, 0);
    c.begin(0, 1, None, step(vec![put("r", "text")], &[], Then::Commit));
    c.run();
    let tag = c.begin(0, 2, None, step(vec![add("n", 1), add("r", 1)], &[], Then::Commit));
    match c.txn_refused(0, tag) {
        TxnRefusal::Change(error) => {
            assert_eq!(error.key, key("r"));
            assert!(matches!(error.error, OpError::WrongType { .. }));
        }
        other => panic!("{other:?}"),
    }
    c.run();
    assert_eq!(c.reads(0, "n"), None);
    // In an open transaction, the steps before it stay.
    c.begin(0, 3, None, step(vec![add("n", 1)], &[], Then::Continue));
    let wrong = c.next_step(0, 3, step(vec![add("n", 1), add("r", 1)], &[], Then::Continue));
    assert!(matches!(c.txn_refused(0, wrong), TxnRefusal::Change(_)));
    let tag = c.next_step(0, 3, step(vec![], &["n"], Then::Commit));
    c.run();
    assert_eq!(c.stepped(0, tag).readings(), [counted(1)]);
}

#[test]
fn a_counter_that_would_overflow_is_refused_also_within_one_transaction() {
    let mut c = Cluster::new(1, 0, 0);
    let tag = c.begin(0, 1, None, step(vec![add("n", i64::MAX), add("n", 1)], &[], Then::Commit));
    assert!(matches!(c.txn_refused(0, tag), TxnRefusal::Change(error) if error.error == OpError::Overflow));
}

#[test]
fn a_transaction_that_is_open_too_long_is_over() {
    let mut c = Cluster::new(1, 0, 0);
    c.open_lease(0, Duration::from_secs(60));
    c.begin(0, 1, Some("x"), step(vec![add("n", 1)], &[], Then::Continue));
    let waiting = c.lock(0, "x");
    c.pass(20_000);
    assert!(c.is_answered(0, waiting), "its lock is free");
    assert_eq!(c.inspect(0).counts().transactions, 0, "it takes nobody's place");
    let late = c.next_step(0, 1, step(vec![], &[], Then::Commit));
    assert_eq!(c.txn_refused(0, late), TxnRefusal::TooOld(1, Duration::from_secs(20)));
    assert_eq!(c.reads(0, "n"), None);
    let later = c.next_step(0, 1, step(vec![], &[], Then::Commit));
    assert_eq!(c.txn_refused(0, later), TxnRefusal::Unknown(1), "it was told once");
}

#[test]
fn the_end_of_a_lease_ends_its_transactions() {
    let mut c = Cluster::new(1, 0, 0);
    let holder = c.begin(0, 1, Some("x"), step(vec![add("n", 1)], &[], Then::Continue));
    let waiter = c.begin(0, 2, Some("x"), step(vec![add("n", 1)], &[], Then::Commit));
    c.begin(0, 3, None, step(vec![add("n", 1)], &[], Then::Continue));
    c.run();
    c.stepped(0, holder);
    let (lease, proof) = (c.lease(0), Proof::Attached);
    c.call(0, Call::CloseLease { lease, proof });
    c.run();
    assert_eq!(c.refused(0, waiter), Refusal::LeaseEnded);
    c.open_lease(0, Duration::from_secs(10));
    assert!(c.reads(0, "n").is_none());
    c.pass(1);
    assert_eq!(c.inspect(0).counts().transactions, 0);
    assert_eq!(c.inspect(0).counts().held, 0);
}

#[test]
fn a_removed_key_does_not_come_back_and_leaves_nothing_in_the_end() {
    let mut c = Cluster::new(3, 0, 0);
    c.begin(0, 1, None, step(vec![add("n", 5)], &[], Then::Commit));
    c.run();
    // dc1 adds without having seen the removal.
    c.isolate(1);
    c.begin(1, 1, None, step(vec![add("n", 1)], &[], Then::Continue));
    let remove = Change { key: key("n"), action: Action::Remove };
    c.begin(0, 2, None, step(vec![remove], &[], Then::Commit));
    c.run();
    let tag = c.next_step(1, 1, step(vec![], &[], Then::Commit));
    c.run();
    c.committed(1, tag);
    c.link_again(1);
    for id in 0..3 {
        assert_eq!(c.reads(id, "n"), None, "dc{id}");
    }
    c.pass(3_000);
    for (id, node) in c.nodes.iter().enumerate() {
        let counts = node.replica.inspect().counts();
        assert_eq!((counts.keys, counts.tombstones_pending, counts.uncompacted_changes), (0, 0, 0), "dc{id}");
    }
    c.begin(2, 1, None, step(vec![add("n", 3)], &[], Then::Commit));
    c.run();
    assert_eq!(c.reads(0, "n"), counted(3), "who has seen the removal makes it anew");
}

#[test]
fn a_checkpoint_is_made_bit_by_bit_and_shows_one_moment() {
    let mut c = Cluster::new(1, 0, 0);
    for i in 0..3 {
        let changes = (0..1_000).map(|n| add(&format!("{i}-{n}"), 1)).collect();
        c.begin(0, i + 1, None, step(changes, &[], Then::Commit));
        c.run();
    }
    let records = c.nodes[0].records.len() as u64;
    c.handle(0, Event::Checkpoint);
    assert!(c.nodes[0].checkpoint.is_none(), "not all at once");
    let changes = (0..1_000).map(|n| add(&format!("2-{n}"), 1)).chain([add("new", 1)]).collect();
    c.begin(0, 9, None, step(changes, &[], Then::Commit));
    c.run();
    while c.nodes[0].checkpoint.is_none() {
        c.handle(0, Event::Tick);
    }
    let checkpoint = c.nodes[0].checkpoint.take().expect("it is there");
    assert_eq!((checkpoint.position.0, checkpoint.contents.len()), (records, 3_000));
    // From the checkpoint and the records after it, everything is as it was.
    c.restart_from(0, checkpoint);
    assert_eq!(
        (c.reads(0, "0-7"), c.reads(0, "2-7"), c.reads(0, "new")),
        (counted(1), counted(2), counted(1))
    );
    assert_eq!(c.inspect(0).counts().keys, 3_001);
}

#[test]
fn a_bounded_counter_gets_its_rights_where_they_are_wanted() {
    let mut c = Cluster::new(3, 0, 0);
    let take = |amount: i64| step(vec![change("stock", Op::BoundedCounter(-amount))], &[], Then::Commit);
    c.begin(0, 1, None, step(vec![change("stock", Op::BoundedCounter(10))], &[], Then::Commit));
    c.run();
    let tag = c.begin(1, 1, None, take(4));
    let refused = c.txn_refused(1, tag);
    assert!(
        matches!(&refused, TxnRefusal::Change(e) if e.error == OpError::InsufficientRights { asked: 4, rights: 0 }),
        "{refused:?}"
    );
    c.run();
    let again = c.begin(1, 2, None, take(4));
    c.run();
    c.committed(1, again);
    // Half of the rights moved. No datacenter can take away more than there is.
    let tag = c.begin(0, 2, None, take(6));
    assert!(matches!(c.txn_refused(0, tag), TxnRefusal::Change(_)));
    c.run();
    let again = c.begin(0, 3, None, take(6));
    c.run();
    c.committed(0, again);
    let tag = c.begin(2, 1, None, take(1));
    assert!(matches!(c.txn_refused(2, tag), TxnRefusal::Change(_)));
    c.run();
    let tag = c.begin(2, 2, None, take(1));
    assert!(matches!(c.txn_refused(2, tag), TxnRefusal::Change(_)), "there is nothing left");
}

/// Found by the simulator: a commit in the middle of a step released a lock, and the scheduler did not
/// examine it again.
#[test]
fn waiters_that_commit_as_soon_as_they_are_granted_follow_each_other() {
    let mut c = Cluster::new(1, 0, 0);
    let holder = c.begin(0, 1, Some("x"), step(vec![], &[], Then::Continue));
    c.run();
    c.stepped(0, holder);
    let next = [2, 3, 4].map(|key| c.begin(0, key, Some("x"), step(vec![], &["n"], Then::Commit)));
    c.next_step(0, 1, step(vec![], &[], Then::Abort));
    for tag in next {
        c.committed(0, tag);
    }
}

/// Found by the simulator: an abort was refused because others had used up the rights that the transaction
/// wanted.
#[test]
fn a_transaction_that_cannot_commit_any_more_can_be_aborted() {
    let mut c = Cluster::new(1, 0, 0);
    let bounded = |amount| change("c", Op::BoundedCounter(amount));
    c.begin(0, 1, None, step(vec![bounded(5)], &[], Then::Commit));
    c.run();
    c.begin(0, 2, Some("x"), step(vec![bounded(-4)], &[], Then::Continue));
    c.run();
    c.begin(0, 3, None, step(vec![bounded(-4)], &[], Then::Commit));
    c.run();
    let late = c.next_step(0, 2, step(vec![], &[], Then::Commit));
    assert!(matches!(c.txn_refused(0, late), TxnRefusal::Change(_)));
    let abort = c.next_step(0, 2, step(vec![], &[], Then::Abort));
    assert_eq!(c.stepped(0, abort).state, TxnState::Aborted);
    assert_eq!(c.inspect(0).counts().held, 0);
}

#[test]
fn takes_that_are_refused_together_ask_for_rights_once() {
    let mut c = Cluster::new(2, 0, 0);
    let take = |amount: i64| step(vec![change("stock", Op::BoundedCounter(-amount))], &[], Then::Commit);
    c.begin(0, 1, None, step(vec![change("stock", Op::BoundedCounter(1_000))], &[], Then::Commit));
    c.run();
    for key in 1..=50 {
        c.begin(1, key, None, take(4));
    }
    c.begin(1, 51, None, take(9));
    let under_way = c.wires[&(dc(1), dc(0))].iter();
    assert_eq!(under_way.filter(|message| matches!(message, Message::AskRights { .. })).count(), 2);
    c.run();
    assert_eq!(c.inspect(0).counts().rights_transferred, 2);
    let taken = c.begin(1, 52, None, take(400));
    c.run();
    c.committed(1, taken);
}

#[test]
fn keys_to_be_read_for_which_somebody_waits_are_bounded() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    let tag = c.begin(0, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.sync(0);
    let at_least = AtLeast { snapshot: c.committed(0, tag), patience: Duration::from_secs(10) };
    let reads = vec![key(&"k".repeat(1_000)); 1_000];
    let look = Read { reads: reads.clone(), at_least: at_least.clone() };
    let full = |reply| match reply {
        Some(Reply::Refused(Refusal::ResourceExhausted { limit, .. })) => limit == Limit::TransactionBytes,
        Some(other) => panic!("it should wait, this is {other:?}"),
        None => false,
    };
    let mut begun = 0;
    let mut begin = |c: &mut Cluster| {
        begun += 1;
        let step = Step { reads: reads.clone(), ..step(vec![], &[], Then::Commit) };
        let tag = c.begin_after(1, begun, None, at_least.clone(), step);
        c.reply(1, tag)
    };
    for _ in 0..100 {
        assert!(!full(begin(&mut c)));
    }
    let more = (0..1_000).position(|_| {
        let tag = c.call(1, Call::Read(look.clone()));
        full(c.reply(1, tag))
    });
    assert_eq!(more, Some(159), "256 MiB of something over a million bytes each");
    assert!(full(begin(&mut c)));
    // There is room again when their snapshot has come.
    c.link(0, 1);
    c.run();
    c.cut(0, 1);
    let tag = c.call(1, Call::Read(look));
    assert_eq!(c.stepped(1, tag).readings().len(), 1_000);
    assert_eq!(c.nodes[1].replica.data.transactions.kept_bytes(), 0);
}

#[test]
fn what_open_transactions_keep_is_bounded() {
    let mut c = Cluster::new(1, 0, 0);
    let large = || step(vec![put("r", &"x".repeat(1_000_000))], &[], Then::Continue);
    let mut open = 0;
    let refusal = loop {
        open += 1;
        let tag = c.begin(0, open, None, large());
        if let Some(Reply::Refused(refusal)) = c.reply(0, tag) {
            break refusal;
        }
    };
    assert!(
        matches!(refusal, Refusal::ResourceExhausted { limit: Limit::TransactionBytes, .. }),
        "{refusal:?}"
    );
    assert_eq!(open, 269, "256 MiB of something over a million bytes each");
    // There is room again when one transaction ends.
    c.next_step(0, 1, step(vec![], &[], Then::Abort));
    let tag = c.begin(0, 1_000, None, large());
    c.stepped(0, tag);
    c.pass(21_000);
    let tag = c.begin(0, 2_000, None, large());
    c.open_lease(0, Duration::from_secs(10));
    assert!(c.is_answered(0, tag));
    assert_eq!(c.inspect(0).counts().held, 0);
}

/// Found by the simulator: the reply was that its client had cancelled it.
#[test]
fn who_was_granted_but_not_told_hears_that_its_lease_ended() {
    let mut c = Cluster::new(1, 0, 0);
    c.begin(0, 1, Some("x"), step(vec![add("n", 1)], &[], Then::Commit));
    let acquire = c.lock(0, "x");
    let begin = c.begin(0, 2, Some("x"), step(vec![add("n", 1)], &[], Then::Commit));
    let (lease, proof) = (c.lease(0), Proof::Attached);
    c.call(0, Call::CloseLease { lease, proof });
    assert_eq!(c.refused(0, acquire), Refusal::LeaseEnded);
    assert_eq!(c.refused(0, begin), Refusal::LeaseEnded);
    c.run();
    assert_eq!(c.reads(0, "n"), counted(1));
}

/// Found by the simulator: a tombstone from a checkpoint was never examined again if its key had effects to
/// fold.
#[test]
fn tombstones_from_a_checkpoint_go_in_the_end() {
    let mut c = Cluster::new(1, 0, 0);
    c.begin(0, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    let remove = Change { key: key("n"), action: Action::Remove };
    c.begin(0, 2, None, step(vec![remove], &[], Then::Commit));
    c.handle(0, Event::Checkpoint);
    while c.nodes[0].checkpoint.is_none() {
        c.handle(0, Event::Tick);
    }
    c.sync(0);
    let checkpoint = c.nodes[0].checkpoint.take().expect("it is there");
    c.restart_from(0, checkpoint);
    // A commit as soon as it serves, before anything is known to be stable; its effects on the key cancel
    // out.
    let (lease, secret) = (c.lease(0), SECRET);
    c.call(0, Call::AttachLease { lease, secret });
    c.begin(0, 3, None, step(vec![add("n", 1), add("n", -1), add("m", 1)], &[], Then::Commit));
    c.pass(3_000);
    assert_eq!(c.reads(0, "m"), counted(1));
    let counts = c.inspect(0).counts();
    assert_eq!(
        (counts.keys, counts.tombstones_pending, counts.uncompacted_changes),
        (1, 0, 0),
        "m alone is left"
    );
}
