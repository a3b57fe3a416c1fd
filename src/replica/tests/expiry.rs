//! Stories about expiring keys.

use std::time::Duration;

use super::cluster::{Cluster, SECRET};
use super::store_cluster::{add, change, counted, key, put, step, written};
use crate::base::time::TimeToLive;
use crate::causal_log::{Action, Change, Op as LogOp};
use crate::crdt::VersionVector;
use crate::leases::Proof;
use crate::replica::call::Call;
use crate::replica::call::store::{NextStep, Then, TxnRefusal};
use crate::replica::{Message, Record};
use geolock_api::value::{Op, OpError, Reading, VersionedReading};

fn expire(name: &str, ms: u64) -> Change {
    let ttl = TimeToLive::from_millis(ms).expect("a story expires keys in time");
    Change { key: key(name), action: Action::Expire(ttl) }
}

fn remove(name: &str) -> Change {
    Change { key: key(name), action: Action::Remove }
}

fn versioned(name: &str, version: u64, done: bool) -> Change {
    change(name, Op::Versioned { version, value: "v".into(), done })
}

impl Cluster {
    /// Commits, everywhere at once if links are up, under a lease that is closed afterwards.
    fn commit(&mut self, id: u8, changes: Vec<Change>) -> VersionVector {
        let tag = self.try_commit(id, changes);
        self.committed(id, tag)
    }

    fn try_commit(&mut self, id: u8, changes: Vec<Change>) -> u64 {
        self.open_lease(id, Duration::from_secs(10));
        let tag = self.begin(id, 1, None, step(changes, &[], Then::Commit));
        self.sync(id);
        let (lease, proof) = (self.lease(id), Proof::Attached);
        self.call(id, Call::CloseLease { lease, proof });
        self.run();
        tag
    }

    fn read_everywhere(&mut self, name: &str) -> Vec<Option<Reading>> {
        (0..self.nodes.len() as u8).map(|id| self.reads(id, name)).collect()
    }

    /// Returns the number of keys that each datacenter ended.
    fn lapsed(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.replica.inspect().counts().keys_expired).collect()
    }

    fn expiring(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.replica.inspect().counts().keys_expiring).collect()
    }

    /// Asserts that nothing is left of any key, anywhere.
    fn assert_floor(&self) {
        for (id, node) in self.nodes.iter().enumerate() {
            let counts = node.replica.inspect().counts();
            let left =
                (counts.keys, counts.tombstones_pending, counts.uncompacted_changes, counts.keys_expiring);
            assert_eq!(left, (0, 0, 0, 0), "dc{id}");
        }
    }

    /// Restarts a datacenter from its journal, or from a checkpoint that it makes first.
    fn restart_by(&mut self, id: u8, from_checkpoint: bool) {
        if from_checkpoint { self.restart_from_checkpoint(id) } else { self.restart(id) }
    }

    /// Returns the number of keys that each commit in the journal of a datacenter ends, without the commits
    /// that end none.
    fn ends(&self, id: u8) -> Vec<usize> {
        let records = self.nodes[usize::from(id)].records.iter();
        let ops = records.filter_map(|(_, record)| match record {
            Record::Entry(entry) => Some(&entry.ops),
            _ => None,
        });
        let commits = ops.flatten().filter_map(LogOp::as_commit);
        let ends = commits.filter(|commit| commit.changes.iter().any(|c| c.action == Action::Expired));
        ends.map(|commit| commit.changes.len()).collect()
    }
}

#[test]
fn a_key_lapses_when_its_time_is_over_and_costs_nothing_then() {
    let mut c = Cluster::new(3, 0, 0);
    c.commit(0, vec![put("k", "v"), expire("k", 1_000), add("n", 1), expire("n", 1_000)]);
    assert_eq!(c.expiring(), [2, 2, 2]);
    c.pass(999);
    assert_eq!(c.read_everywhere("k"), vec![written("v"); 3]);
    c.pass(1);
    assert_eq!(c.read_everywhere("k"), [None, None, None]);
    assert_eq!(c.lapsed(), [2, 0, 0], "the one that wrote it says so");
    assert_eq!(c.ends(2), [2], "both in one commit");
    assert_eq!(c.expiring(), [0, 0, 0]);
    c.pass(3_000);
    c.assert_floor();
}

#[test]
fn it_can_be_prolonged_and_activated_but_not_shortened() {
    let mut c = Cluster::new(3, 0, 0);
    c.commit(0, vec![put("prolonged", "v"), expire("prolonged", 1_000), put("activated", "v")]);
    c.commit(0, vec![put("kept", "v"), expire("kept", 1_500)]);
    c.pass(600);
    c.commit(0, vec![expire("prolonged", 1_000)]);
    c.commit(1, vec![expire("activated", 500)]);
    c.commit(1, vec![expire("kept", 100)]);
    c.pass(400);
    assert_eq!(c.read_everywhere("prolonged"), vec![written("v"); 3], "after 1 000 ms");
    assert_eq!(c.read_everywhere("kept"), vec![written("v"); 3], "700 ms was sooner than asked before");
    c.pass(100);
    assert_eq!(c.read_everywhere("activated"), [None, None, None]);
    assert_eq!(c.lapsed(), [0, 1, 0], "whoever asked for it ends it");
    c.pass(400);
    assert_eq!(c.read_everywhere("kept"), [None, None, None]);
    c.pass(99);
    assert_eq!(c.read_everywhere("prolonged"), vec![written("v"); 3]);
    c.pass(1);
    assert_eq!(c.read_everywhere("prolonged"), [None, None, None]);
    assert_eq!(c.lapsed(), [2, 1, 0]);
    c.pass(3_000);
    c.assert_floor();
}

#[test]
fn a_key_that_is_prolonged_often_is_counted_once() {
    let mut c = Cluster::new(2, 0, 0);
    for _ in 0..100 {
        c.commit(0, vec![expire("k", 1_000)]);
        c.pass(10);
    }
    assert_eq!(c.expiring(), [1, 1]);
    let keys = |c: &Cluster| c.inspect(0).counts().keys;
    c.pass(980);
    assert_eq!(keys(&c), 1);
    c.pass(10);
    assert_eq!((c.expiring(), c.lapsed()), (vec![0, 0], vec![1, 0]));
    c.pass(3_000);
    c.assert_floor();
}

#[test]
fn a_removal_ends_the_time_too() {
    let mut c = Cluster::new(2, 0, 0);
    c.commit(0, vec![put("k", "old"), expire("k", 60_000)]);
    c.commit(1, vec![remove("k")]);
    assert_eq!(c.expiring(), [0, 0]);
    // A key that is made anew has the time that is asked for now.
    c.commit(1, vec![put("k", "new"), expire("k", 1_000), put("for ever", "v")]);
    c.pass(1_000);
    assert_eq!((c.read_everywhere("k"), c.lapsed()), (vec![None, None], vec![0, 1]));
    c.pass(100_000);
    assert_eq!(c.read_everywhere("for ever"), vec![written("v"); 2]);
    assert_eq!(c.expiring(), [0, 0]);
}

#[test]
fn another_datacenter_ends_it_when_the_writer_is_away() {
    let mut c = Cluster::new(3, 0, 0);
    c.commit(0, vec![put("k", "v"), expire("k", 1_000)]);
    c.commit(2, vec![put("l", "v"), expire("l", 1_000)]);
    let kept = c.nodes[0].records.len();
    c.isolate(0);
    // It is unreachable after 3 s; a key of a reachable member does not wait for that.
    c.pass(1_000);
    assert_eq!(c.lapsed()[1..], [0, 1]);
    c.pass(2_999);
    assert_eq!(c.reads(2, "k"), written("v"));
    c.pass(1);
    assert_eq!((c.reads(1, "k"), c.reads(2, "k")), (None, None));
    assert_eq!(c.lapsed()[1..], [1, 1], "the lowest that is left does it");
    // The key is made anew there before the writer is back. The writer was down, so by its count the time was
    // over long ago.
    c.commit(1, vec![put("k", "new")]);
    c.crash(0, kept);
    c.link_again(0);
    c.pass(5_000);
    assert_eq!(c.read_everywhere("k"), vec![written("new"); 3]);
    assert_eq!(c.lapsed()[0], 0, "it heard of the end before it did anything");
}

#[test]
fn who_made_a_key_anew_on_either_side_of_a_cut_keeps_it() {
    let mut c = Cluster::new(2, 0, 0);
    c.commit(0, vec![add("k", 1), expire("k", 1_000)]);
    c.cut(0, 1);
    c.pass(10_000);
    assert_eq!((c.reads(0, "k"), c.reads(1, "k")), (None, None));
    assert_eq!(c.lapsed(), [1, 1], "both ended it");
    c.commit(0, vec![add("k", 10)]);
    c.commit(1, vec![add("k", 100)]);
    c.link(0, 1);
    c.run();
    assert_eq!(c.read_everywhere("k"), vec![counted(110); 2]);
    c.pass(20_000);
    assert_eq!(c.read_everywhere("k"), vec![counted(110); 2]);
    assert_eq!(c.expiring(), [0, 0]);
    assert!(c.reports.is_empty(), "{:?}", c.reports);
}

#[test]
fn nobody_else_ends_it_while_the_writer_is_reachable_though_its_prolongation_is_late() {
    let mut c = Cluster::new(3, 0, 0);
    c.commit(0, vec![put("k", "v"), expire("k", 1_000)]);
    c.pass(900);
    c.late = |message| matches!(message, Message::Entries(_));
    c.commit(0, vec![expire("k", 20_000)]);
    c.pass(9_000);
    assert_eq!(c.expiring(), [1, 1, 1]);
    assert!(c.inspect(1).status().peers.iter().all(|peer| peer.reachable));
    assert_eq!(c.read_everywhere("k"), vec![written("v"); 3], "its time is over in dc1 and dc2, long ago");
    c.late = |_| false;
    c.run();
    c.pass(11_000);
    assert_eq!(c.lapsed(), [1, 0, 0]);
    assert_eq!(c.read_everywhere("k"), [None, None, None]);
}

#[test]
fn the_writer_goes_on_counting_after_a_restart_the_others_begin_anew() {
    for from_checkpoint in [false, true] {
        let mut c = Cluster::new(2, 0, 0);
        c.pass(20_000);
        c.commit(0, vec![put("own", "v"), expire("own", 8_000)]);
        c.commit(1, vec![put("other", "v"), expire("other", 8_000)]);
        c.pass(2_000);
        c.restart_by(0, from_checkpoint);
        assert_eq!(c.expiring(), [2, 2]);
        c.link_again(0);
        c.pass(5_999);
        assert_eq!((c.reads(0, "own"), c.reads(0, "other")), (written("v"), written("v")));
        c.pass(1);
        assert_eq!((c.lapsed(), c.reads(1, "own")), (vec![1, 1], None));
        assert_eq!(c.reads(0, "other"), None);
    }
}

#[test]
fn what_is_over_since_before_a_restart_waits_for_news_of_it() {
    let mut c = Cluster::new(2, 0, 0);
    c.commit(0, vec![put("k", "v"), expire("k", 1_000)]);
    let kept = c.nodes[0].records.len();
    c.cut(0, 1);
    c.pass(500);
    c.commit(1, vec![expire("k", 60_000)]);
    c.pass(4_000);
    c.crash(0, kept);
    c.pass(2_999);
    assert_eq!(c.lapsed(), [0, 0], "dc0 may hear of it any moment");
    c.link_again(0);
    c.pass(10_000);
    assert_eq!(c.read_everywhere("k"), vec![written("v"); 2], "it was prolonged elsewhere");
    c.pass(60_000);
    assert_eq!((c.read_everywhere("k"), c.lapsed()), (vec![None, None], vec![0, 1]));
}

#[test]
fn many_keys_go_some_at_a_time() {
    let mut c = Cluster::new(1, 0, 0);
    let changes = (0..2_500).flat_map(|n| [add(&format!("{n}"), 1), expire(&format!("{n}"), 1_000)]);
    c.commit(0, changes.collect());
    c.pass(999);
    assert!(c.ends(0).is_empty());
    c.pass(10);
    assert_eq!(c.ends(0), [1_000, 1_000, 500]);
    c.pass(3_000);
    c.assert_floor();
}

#[test]
fn a_done_value_takes_no_write_and_goes_when_everybody_knows() {
    let mut c = Cluster::new(3, 0, 0);
    c.commit(1, vec![versioned("job", 1, false)]);
    c.cut(0, 2);
    c.cut(1, 2);
    c.commit(1, vec![versioned("job", 2, true)]);
    let done = VersionedReading { version: 2, value: "v".into(), done: true };
    assert_eq!(c.reads(0, "job"), Some(Reading::Versioned(Some(done.clone()))));
    let tag = c.try_commit(0, vec![versioned("job", 3, false)]);
    let TxnRefusal::Change(refused) = c.txn_refused(0, tag) else { panic!("it is refused for its change") };
    assert_eq!(refused.error, OpError::Done { is: 2 });
    c.pass(10_000);
    assert_eq!(c.reads(0, "job"), Some(Reading::Versioned(Some(done))), "dc2 has not heard of it");
    c.link_again(2);
    c.pass(3_000);
    assert_eq!((c.read_everywhere("job"), c.lapsed()), (vec![None; 3], vec![0, 1, 0]));
    c.pass(3_000);
    c.assert_floor();
    c.commit(0, vec![versioned("job", 1, false)]);
    assert!(c.reads(2, "job").is_some(), "it is free again");
}

#[test]
fn a_value_that_was_written_on_elsewhere_is_not_done() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    c.commit(0, vec![versioned("job", 2, true)]);
    c.commit(1, vec![versioned("job", 3, false)]);
    c.link_again(1);
    c.pass(10_000);
    let written = VersionedReading { version: 3, value: "v".into(), done: false };
    assert_eq!(c.read_everywhere("job"), vec![Some(Reading::Versioned(Some(written))); 2]);
    assert_eq!((c.lapsed(), c.expiring()), (vec![0, 0], vec![0, 0]));
    c.commit(0, vec![versioned("job", 4, true)]);
    c.pass(10_000);
    assert_eq!((c.read_everywhere("job"), c.lapsed()), (vec![None, None], vec![1, 0]));
}

#[test]
fn a_done_value_is_remembered_over_a_restart() {
    for from_checkpoint in [false, true] {
        let mut c = Cluster::new(2, 0, 0);
        c.pass(20_000);
        c.cut(0, 1);
        c.commit(0, vec![versioned("job", 1, true)]);
        c.restart_by(0, from_checkpoint);
        assert_eq!(c.expiring()[0], 1);
        c.link_again(0);
        c.pass(10_000);
        assert_eq!((c.read_everywhere("job"), c.lapsed()), (vec![None, None], vec![1, 0]));
        c.assert_floor();
    }
}

#[test]
fn a_member_that_takes_over_the_state_counts_the_whole_time_of_others() {
    let mut c = Cluster::with_log(3, (0, 0), 4_000);
    c.isolate(2);
    c.commit(2, vec![put("own", "v"), expire("own", 60_000)]);
    c.commit(0, vec![put("k", "v"), expire("k", 30_000), versioned("job", 1, true)]);
    for _ in 0..200 {
        c.commit(0, vec![add("n", 1)]);
        c.pass(10);
    }
    c.pass(2_000);
    c.link_again(2);
    c.pass(2_000);
    assert_eq!(c.inspect(2).counts().state_transfers_received, 1);
    assert_eq!(c.reads(2, "n"), counted(200));
    assert_eq!(c.expiring(), [2, 2, 2], "of both keys; the job has gone");
    assert_eq!(c.lapsed(), [1, 0, 0]);
    // Cut off again, it ends the keys of others when their whole time has passed since.
    c.isolate(2);
    c.pass(30_000);
    assert_eq!(c.reads(2, "k"), written("v"));
    c.pass(3_000);
    assert_eq!((c.reads(2, "k"), c.reads(2, "own")), (None, written("v")));
    c.link_again(2);
    c.pass(60_000);
    assert_eq!((c.read_everywhere("k"), c.read_everywhere("own")), (vec![None; 3], vec![None; 3]));
    assert_eq!(c.lapsed(), [2, 0, 2]);
    assert!(c.reports.is_empty(), "{:?}", c.reports);
}

#[test]
fn a_change_of_a_key_that_ended_meanwhile_is_refused_and_not_lost() {
    let mut c = Cluster::new(1, 0, 0);
    let of = |amount| change("stock", Op::BoundedCounter(amount));
    c.commit(0, vec![of(10), versioned("job", 1, false), put("r", "v")]);
    c.open_lease(0, Duration::from_secs(10));
    let lease = c.lease(0);
    for key in 1..=20 {
        let tag = c.begin(0, key, None, step(vec![], &["stock"], Then::Continue));
        c.stepped(0, tag);
    }
    c.commit(0, vec![remove("stock"), remove("job"), remove("r")]);
    c.commit(0, vec![of(10)]);
    let makes_step = |c: &mut Cluster, key, changes| {
        let (proof, step) = (Proof::Secret(SECRET), step(changes, &[], Then::Commit));
        c.call(0, Call::Step(NextStep { lease, proof, key, after: 0, step }))
    };
    let late = [
        vec![of(-1)],
        vec![of(-1), of(-1)],
        vec![versioned("job", 1, false)],
        vec![put("r", "late")],
        vec![put("r", "late"), put("r", "later")],
        vec![expire("stock", 60_000)],
        vec![remove("stock"), of(3)],
    ];
    for (key, changes) in (1..).zip(late) {
        let tag = makes_step(&mut c, key, changes);
        let TxnRefusal::Change(refused) = c.txn_refused(0, tag) else {
            panic!("it is refused for its change")
        };
        assert_eq!(refused.error, OpError::KeyEnded, "{}", refused.key);
    }
    let left = Reading::BoundedCounter { value: 10, rights: 10 };
    assert_eq!((c.reads(0, "stock"), c.reads(0, "r")), (Some(left), None));
    // The transaction may still end the key itself.
    let tag = makes_step(&mut c, 20, vec![remove("stock")]);
    c.run();
    c.committed(0, tag);
    assert_eq!(c.reads(0, "stock"), None);
}
