//! Stories about members that lack truncated entries.

use std::time::Duration;

use bytes::Bytes;

use super::cluster::{Cluster, dc, founding, name};
use super::store_cluster::{add, counted, key, put, step, written};
use crate::base::bugs::Bug;
use crate::causal_log::Violation;
use crate::crdt::VersionVector;
use crate::membership::{Command, Config, Index, Lineage, Proposal};
use crate::replica::call::store::{Then, TxnRefusal};
use crate::replica::call::watch::{Pattern, Subject, Watch, WatchRefusal};
use crate::replica::call::{Call, Phase, Refusal, Reply};
use crate::replica::{Event, Message, Record, StatePiece};
use geolock_api::names::Mode;

/// Small enough for a story to fill.
const LOG: usize = 4_000;

impl Cluster {
    /// Commits `times` additions to `name`, one after the other.
    fn count_up(&mut self, id: u8, first_key: u64, name: &str, times: u64) {
        for key in first_key..first_key + times {
            let tag = self.begin(id, key, None, step(vec![add(name, 1)], &[], Then::Commit));
            self.run();
            self.committed(id, tag);
            // Heartbeats carry the durable vectors.
            self.pass(10);
        }
    }

    fn join_again(&mut self, id: u8) {
        self.link_again(id);
        self.pass(2_000);
    }

    fn vectors(&self) -> Vec<VersionVector> {
        self.nodes.iter().map(|node| node.replica.inspect().checkpoint().applied).collect()
    }

    fn log_entries(&self, id: u8) -> usize {
        self.nodes[usize::from(id)].replica.inspect().checkpoint().log.len()
    }

    fn state_transfers_received(&self, id: u8) -> u64 {
        self.nodes[usize::from(id)].replica.inspect().counts().state_transfers_received
    }

    /// dc2 was given up and has all of dc0's state except the last piece, which is in flight.
    fn with_a_late_state(bug: Option<Bug>) -> Cluster {
        let mut c = Cluster::build(3, (0, 0), LOG, (Default::default(), bug));
        c.isolate(2);
        c.count_up(0, 1, "n", 200);
        c.late = |message| matches!(message, Message::State(piece) if piece.last);
        c.link(0, 2);
        c.pass(2_000);
        assert_eq!(c.state_transfers_received(2), 0);
        c
    }

    /// Asserts that all have applied the same entries and have the same data: digests are compared.
    fn assert_converged(&mut self) {
        self.pass(20_000);
        let vectors = self.vectors();
        assert!(vectors.windows(2).all(|pair| pair[0] == pair[1]), "{vectors:?}");
        assert_eq!(self.reports, [], "no digest differs");
        assert!(self.nodes.iter().all(|node| node.violations.is_empty()), "{:?}", self.nodes[0].violations);
        // The leases of the beginning may have ended.
        (0..self.nodes.len() as u8).for_each(|id| self.open_lease(id, Duration::from_secs(10)));
    }
}

#[test]
fn a_member_that_was_gone_for_long_takes_over_the_state_and_keeps_its_own_commits() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.count_up(2, 1, "n", 3);
    c.pass(1_000);
    c.isolate(2);
    c.count_up(2, 100, "n", 5);
    c.begin(2, 110, None, step(vec![put("theirs", "from far")], &[], Then::Commit));
    c.count_up(0, 1, "n", 200);
    c.begin(1, 1, None, step(vec![put("ours", "kept")], &[], Then::Commit));
    c.pass(2_000);
    assert!(c.log_entries(0) < 60, "{} entries are kept for it", c.log_entries(0));
    assert_eq!(c.log_entries(2), 6, "a minority gives nobody up");
    c.join_again(2);
    assert_eq!(c.state_transfers_received(2), 1);
    for id in 0..3 {
        assert_eq!(c.reads(id, "n"), counted(208), "in dc{id}");
        assert_eq!((c.reads(id, "theirs"), c.reads(id, "ours")), (written("from far"), written("kept")));
    }
    c.assert_converged();
    c.count_up(2, 200, "n", 1);
    c.count_up(1, 200, "n", 1);
    assert!((0..3).all(|id| c.reads(id, "n") == counted(210)), "it goes on as always");
    assert_eq!(c.state_transfers_received(2), 1);
}

#[test]
fn what_is_written_while_a_state_is_taken_over_needs_no_other_state() {
    let mut c = Cluster::with_a_late_state(None);
    c.count_up(0, 300, "n", 80);
    assert!(c.log_entries(0) >= 80, "{} entries are kept for it", c.log_entries(0));
    c.late = |_| false;
    c.pass(5_000);
    assert_eq!((c.state_transfers_received(2), c.reads(2, "n")), (1, counted(280)));
    c.link(1, 2);
    c.assert_converged();
    assert!(c.log_entries(0) < 60, "and nothing more: {}", c.log_entries(0));
}

#[test]
fn who_takes_too_long_over_a_state_stops_nobody_and_takes_another() {
    let mut c = Cluster::with_a_late_state(None);
    // More entries than are kept for any member; all of them are committed.
    c.count_up(0, 300, "n", 600);
    assert!(c.log_entries(0) < 200, "{} entries are kept for it", c.log_entries(0));
    c.late = |_| false;
    c.link(1, 2);
    c.pass(60_000);
    assert_eq!((c.state_transfers_received(2), c.reads(2, "n")), (2, counted(800)));
    c.assert_converged();
}

#[test]
fn what_waited_for_a_state_is_applied_with_it() {
    let mut c = Cluster::with_a_late_state(None);
    c.count_up(0, 300, "n", 1);
    let next = c.inspect(0).checkpoint().log.last().expect("it was made just now").clone();
    c.link(1, 2);
    c.run();
    c.handle(2, Event::Received { peer: dc(1), message: Message::Entries(vec![next]) });
    assert_eq!(c.inspect(2).counts().held_back, 1);
    c.late = |message| !matches!(message, Message::State(_));
    c.run();
    assert_eq!((c.state_transfers_received(2), c.inspect(2).counts().held_back), (1, 0));
    assert_eq!(c.reads(2, "n"), counted(201));
    c.late = |_| false;
    c.assert_converged();
}

#[test]
fn locks_that_moved_meanwhile_are_where_they_went() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.use_lock(0, "a");
    c.use_lock(2, "b");
    let held = c.lock(2, "mine");
    c.run();
    c.granted(2, held);
    // It waits for a lock that another datacenter holds, and is cut off.
    let holds = c.lock(1, "a");
    c.run();
    let holds = c.granted(1, holds).request;
    let waits = c.lock(2, "a");
    c.run();
    c.isolate(2);
    let asks = c.lock(0, "b");
    c.count_up(0, 1, "n", 200);
    c.pass(2_000);
    c.release(1, holds);
    c.run();
    c.join_again(2);
    assert_eq!(c.state_transfers_received(2), 1);
    c.granted(2, waits);
    c.granted(0, asks);
    let wanted = c.lock(0, "mine");
    c.run();
    assert!(!c.is_answered(0, wanted), "it is held still");
    let held = c.granted(2, held).request;
    c.release(2, held);
    c.run();
    c.granted(0, wanted);
    for lock in ["a", "b", "mine"] {
        for part in 0..3 {
            let owners: Vec<_> =
                (0..3).map(|id: usize| c.inspect(id).owner_of(&name(lock), dc(part))).collect();
            assert!(owners.windows(2).all(|pair| pair[0] == pair[1]), "part {part} of {lock}: {owners:?}");
        }
    }
    c.assert_converged();
}

#[test]
fn a_lost_disk_is_made_good_by_the_state_of_another() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.use_lock(0, "a");
    c.use_lock(2, "b");
    c.count_up(2, 1, "n", 20);
    c.count_up(0, 1, "n", 20);
    c.pass(2_000);
    assert_eq!(c.log_entries(0), 0, "all have all");
    c.crash(2, 0);
    c.pass(1_000);
    c.join_again(2);
    assert_eq!(c.state_transfers_received(2), 1);
    assert_eq!(c.reads(2, "n"), counted(40));
    // Leases that were lost with the disk may live until then.
    c.pass(60_000);
    (0..3).for_each(|id| c.open_lease(id, Duration::from_secs(10)));
    c.run();
    let b = c.lock(2, "b");
    c.run();
    c.granted(2, b);
    let a = c.lock(2, "a");
    c.run();
    c.granted(2, a);
    c.count_up(2, 50, "n", 2);
    assert!((0..3).all(|id| c.reads(id, "n") == counted(42)));
    c.assert_converged();
}

/// A new member joins with the state. One whose disk was lost has opened leases that nobody else knows.
#[test]
fn a_lost_disk_waits_for_its_leases_although_a_state_came_in_a_cluster_with_decisions() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.pass(1_000);
    let command = Command::Found(founding(3));
    let proposal = Box::new(Proposal { checked: Config::default().revision(), command });
    let decided = Event::Decided { lineage: Lineage(0), index: Index(1), proposal };
    (0..3).for_each(|id| c.handle(id, decided.clone()));
    c.use_lock(2, "b");
    c.count_up(2, 1, "n", 20);
    c.count_up(0, 1, "n", 20);
    c.pass(2_000);
    c.acquired(2, "b", Mode::Exclusive);
    c.crash(2, 0);
    c.pass(1_000);
    c.join_again(2);
    assert_eq!(c.state_transfers_received(2), 1);
    let next = c.lock(0, "b");
    c.pass(2_000);
    assert!(!c.is_answered(0, next), "the holder of before may not know yet");
    c.pass(50_000);
    assert_eq!(c.inspect(2).phase(), Phase::ReadOnly, "its lease may live");
    c.pass(11_000);
    assert_eq!(c.inspect(2).phase(), Phase::Serving);
}

#[test]
fn a_crash_before_the_take_over_leaves_all_as_it_was_and_one_after_it_loses_nothing() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.isolate(2);
    c.count_up(2, 1, "n", 5);
    c.count_up(0, 1, "n", 200);
    c.pass(2_000);
    c.join_again(2);
    let records: Vec<Record> = c.nodes[2].records.iter().map(|(_, record)| record.clone()).collect();
    let taken = records.iter().position(|record| matches!(record, Record::StateTaken { .. }));
    let taken = taken.expect("it took the state over");
    assert!(matches!(records[taken - 1], Record::StatePiece(_)));
    c.crash(2, taken);
    c.pass(1_000);
    assert_eq!(c.reads(2, "n"), counted(5), "its own commits");
    c.join_again(2);
    assert_eq!(c.state_transfers_received(2), 1, "once more");
    assert_eq!(c.reads(2, "n"), counted(205));
    c.restart(2);
    c.pass(1_000);
    assert_eq!(c.reads(2, "n"), counted(205), "read from the journal");
    c.join_again(2);
    assert_eq!(c.state_transfers_received(2), 0);
    c.assert_converged();
}

#[test]
fn a_checkpoint_that_is_wanted_meanwhile_waits_for_the_state() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.isolate(2);
    c.count_up(0, 1, "n", 200);
    c.pass(2_000);
    c.link(0, 2);
    while !c.nodes[2].records.iter().any(|(_, record)| matches!(record, Record::StatePiece(_))) {
        if !(c.deliver(0, 2) | c.deliver(2, 0)) {
            c.now += 600;
            (0..3).for_each(|id| c.handle(id, Event::Tick));
        }
        c.sync(0);
        if c.nodes[2].replica.copies.transfers.is_taking() {
            c.handle(2, Event::Checkpoint);
            assert_eq!(c.nodes[2].checkpoint, None);
        }
        if c.nodes[2].records.last().is_none_or(|(_, record)| !matches!(record, Record::StatePiece(_))) {
            c.sync(2);
        }
    }
    c.pass(1_000);
    let checkpoint = c.nodes[2].checkpoint.clone().expect("it was made in the end");
    assert_eq!(checkpoint.applied, c.inspect(0).checkpoint().applied);
    c.restart_from(2, checkpoint);
    c.join_again(2);
    assert_eq!(c.reads(2, "n"), counted(200));
}

#[test]
fn an_open_transaction_of_the_taker_ends_and_says_why() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.isolate(2);
    let open = c.begin(2, 1, Some("mine"), step(vec![add("n", 1)], &["n"], Then::Continue));
    c.run();
    assert!(!c.is_answered(2, open), "its lock has parts elsewhere");
    let open = c.begin(2, 2, None, step(vec![add("n", 1)], &["n"], Then::Continue));
    c.stepped(2, open);
    c.count_up(0, 1, "n", 200);
    c.pass(2_000);
    c.join_again(2);
    let late = c.next_step(2, 2, step(vec![], &[], Then::Commit));
    assert_eq!(c.txn_refused(2, late), TxnRefusal::StateReplaced(2));
    let late = c.next_step(2, 1, step(vec![], &["n"], Then::Commit));
    c.run();
    assert_eq!(c.stepped(2, late).readings(), [counted(201)], "the one that waited sees all");
    c.assert_converged();
}

/// Another member has kept the entries and sends them first. Returns true if an open transaction ends because
/// of the state that comes then.
fn ends_transactions_for_a_late_state(bug: Option<Bug>) -> bool {
    let mut c = Cluster::with_a_late_state(bug);
    let open = c.begin(2, 2, None, step(vec![add("n", 1)], &["n"], Then::Continue));
    c.stepped(2, open);
    let records = c.nodes[0].records.clone();
    for (_, record) in records {
        if let Record::Entry(entry) = record {
            c.handle(2, Event::Received { peer: dc(0), message: Message::Entries(vec![entry]) });
        }
    }
    c.late = |_| false;
    c.pass(5_000);
    let next = c.next_step(2, 2, step(vec![], &[], Then::Commit));
    c.run();
    if c.state_transfers_received(2) > 0 {
        assert_eq!(c.txn_refused(2, next), TxnRefusal::StateReplaced(2));
        return true;
    }
    c.committed(2, next);
    c.link(1, 2);
    c.assert_converged();
    assert_eq!(c.reads(1, "n"), counted(201));
    false
}

#[test]
fn a_state_that_is_not_needed_any_more_ends_no_transaction() {
    assert!(!ends_transactions_for_a_late_state(None));
    assert!(ends_transactions_for_a_late_state(Some(Bug::StateUnneeded)));
}

#[test]
fn a_minority_keeps_its_log_and_in_the_end_commits_no_more() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.isolate(2);
    let mut key = 0;
    let refusal = loop {
        key += 1;
        let tag = c.begin(2, key, None, step(vec![add("n", 1)], &[], Then::Commit));
        c.run();
        if let Some(crate::replica::call::Reply::Refused(_)) = c.reply(2, tag) {
            break c.txn_refused(2, tag);
        }
    };
    let TxnRefusal::CannotCommit(why) = refusal else { panic!("{refusal:?}") };
    assert!(why.contains("log is full"), "{why}");
    assert_eq!(c.log_entries(2) as u64, key - 1);
    assert_eq!(c.reads(2, "n"), counted(key as i64 - 1), "readers go on");
    c.join_again(2);
    assert_eq!(c.reads(0, "n"), counted(key as i64 - 1));
    c.count_up(2, key + 1, "n", 1);
    c.assert_converged();
}

#[test]
fn a_state_that_makes_no_sense_closes_the_link_and_changes_nothing() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    let truncated: VersionVector = [(dc(0), 9)].into_iter().collect();
    for bytes in [&b"\x02\0\0\0\xff\xff"[..], b"\xff\xff\xff\xff", b"\x02\0", b""] {
        let violations = c.nodes[1].violations.len();
        c.handle(
            1,
            Event::Received { peer: dc(0), message: Message::TooFarBehind { truncated: truncated.clone() } },
        );
        let piece = StatePiece { number: 0, bytes: Bytes::from_static(bytes), last: true };
        c.handle(1, Event::Received { peer: dc(0), message: Message::State(piece) });
        let news = &c.nodes[1].violations[violations..];
        assert!(matches!(news, [Violation::State { .. }]), "{bytes:?}: {news:?}");
        c.cut(0, 1);
        c.link(0, 1);
        c.run();
    }
    c.nodes.iter_mut().for_each(|node| node.violations.clear());
    // Nobody asked for this piece, which is no violation: it may be of a state that is no longer wanted.
    let piece = StatePiece { number: 0, bytes: Bytes::new(), last: true };
    c.handle(1, Event::Received { peer: dc(2), message: Message::State(piece) });
    assert!(!c.nodes[1].records.iter().any(|(_, record)| matches!(record, Record::StatePiece(_))));
    c.assert_converged();
}

/// The pieces of dc0's state in another cluster, in which dc2 gave it a lock.
fn pieces_of_another_life() -> Vec<StatePiece> {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "mine");
    c.count_up(0, 1, "n", 10);
    c.handle(0, Event::Received { peer: dc(2), message: Message::AskState { anew: true, more: 16 } });
    let mut pieces = Vec::new();
    while pieces.last().is_none_or(|piece: &StatePiece| !piece.last) {
        c.sync(0);
        c.handle(0, Event::Tick);
        let wire = c.wires.get_mut(&(dc(0), dc(2))).expect("they are linked");
        pieces.extend(wire.drain(..).filter_map(|message| match message {
            Message::State(piece) => Some(piece),
            _ => None,
        }));
    }
    pieces
}

#[test]
fn a_checkpoint_does_not_wait_for_ever_for_a_state_that_cannot_be() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.isolate(2);
    c.count_up(2, 1, "n", 5);
    c.link(0, 2);
    let truncated: VersionVector = [(dc(0), 9)].into_iter().collect();
    let told = |message| Event::Received { peer: dc(0), message };
    c.handle(2, told(Message::TooFarBehind { truncated }));
    c.handle(2, Event::Checkpoint);
    assert_eq!(c.nodes[2].checkpoint, None, "it would forget what has come of the state");
    pieces_of_another_life().into_iter().for_each(|piece| c.handle(2, told(Message::State(piece))));
    assert!(matches!(c.nodes[2].violations[..], [Violation::State { .. }]), "{:?}", c.nodes[2].violations);
    assert!(c.nodes[2].checkpoint.is_some());
}

#[test]
fn a_watch_begun_on_a_state_that_is_not_on_disk_yet_misses_nothing() {
    let mut c = Cluster::with_log(3, (0, 0), LOG);
    c.isolate(2);
    c.count_up(0, 1, "n", 200);
    c.pass(2_000);
    c.link(0, 2);
    let is_taken = |c: &Cluster| matches!(c.nodes[2].records.last(), Some((_, Record::StateTaken { .. })));
    while !is_taken(&c) {
        if !(c.deliver(0, 2) | c.deliver(2, 0)) {
            c.now += 600;
            (0..3).for_each(|id| c.handle(id, Event::Tick));
        }
        c.sync(0);
        if !is_taken(&c) {
            c.sync(2);
        }
    }
    let patterns = vec![Pattern::key(&key("n"))];
    let watch = |from| Call::Watch(Watch { subject: Subject::Keys, patterns: patterns.clone(), from });
    let early = c.call(2, watch(None));
    assert!(matches!(c.refused(2, early), Refusal::Watch(WatchRefusal::TooOld { .. })), "it would miss 200");
    c.sync(2);
    let begun = c.call(2, watch(None));
    assert!(matches!(c.reply(2, begun), Some(Reply::Watching { .. })));
}
