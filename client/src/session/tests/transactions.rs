//! Transactions as transcripts: the events of the caller, the network and the server, and the messages of the
//! session.

use std::time::Duration;

use super::talk::{CONNECT, Restarted, TTL, Talk, opened, reclaimed, refused};
use crate::error::{AcquireError, LostReason};
use crate::lease_clock::lease_margin;
use crate::request::Wait;
use crate::session::{Output, Why};
use crate::tag::Tag;
use crate::txn_error::{CommitError, TxnError};
use crate::txn_request::NewTxn;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Feature, Reason, Step, StepResponse, Then, TransactionState};

fn step(changes: usize, then: Then) -> Step {
    Step {
        changes: vec![proto::Change::default(); changes],
        reads: vec![],
        then: then.into(),
        ..Step::default()
    }
}

fn new(step: Step) -> NewTxn {
    NewTxn { locks: vec![], under: vec![], wait: Wait::Forever, label: String::new(), at_least: None, step }
}

fn locked(wait: Wait, step: Step) -> NewTxn {
    let lock = proto::LockMode { name: "x".into(), mode: proto::Mode::Exclusive.into(), home: None };
    NewTxn { locks: vec![lock], wait, ..new(step) }
}

fn stepped(state: TransactionState) -> Answer {
    Answer::Stepped(StepResponse { state: state.into(), ..StepResponse::default() })
}

impl Talk {
    fn begin(&mut self, new: NewTxn) -> u64 {
        self.session.begin(self.now, new).expect("the session runs")
    }

    /// Opens a transaction with that many changes.
    fn open(&mut self, changes: usize) -> u64 {
        let number = self.begin(new(step(changes, Then::Continue)));
        self.hear(Tag::Begin(number), stepped(TransactionState::Open));
        assert!(self.told_well(number));
        self.said();
        number
    }

    fn step(&mut self, txn: u64, step: Step) -> u64 {
        self.session.step(txn, step).expect("it is open")
    }

    /// Returns true if the caller's only output is a success of this call.
    fn told_well(&mut self, number: u64) -> bool {
        matches!(self.outputs()[..], [Output::Stepped { number: told, outcome: Ok(_) }] if told == number)
    }

    /// Returns the error of this call, which must be the caller's only output.
    fn told_ill(&mut self, number: u64) -> CommitError {
        match self.outputs().pop() {
            Some(Output::Stepped { number: told, outcome: Err(error) }) if told == number => error,
            other => panic!("the end of {number} was expected, this is {other:?}"),
        }
    }

    /// Breaks the stream before the answer; the call is repeated on the next stream.
    fn reattach_quietly(&mut self) {
        self.said();
        self.reattach(Restarted::No);
        assert_eq!(self.said().len(), 1);
    }

    fn lease_expires(&mut self) {
        self.session.disconnected(self.now);
        self.pass(TTL - lease_margin(TTL));
    }
}

#[test]
fn a_transaction_goes_in_steps_one_at_a_time() {
    let mut talk = Talk::ready();
    let txn = talk.begin(locked(Wait::Forever, step(2, Then::Continue)));
    assert_eq!(talk.said(), ["begin key 1 under x forever acknowledged 0 2 changes 0 reads continue"]);
    talk.hear(Tag::Begin(txn), stepped(TransactionState::Open));
    assert!(talk.told_well(txn));
    let first = talk.step(txn, step(1, Then::Continue));
    let last = talk.step(txn, step(0, Then::Commit));
    assert_eq!(talk.said(), ["step key 1 after 2 1 changes 0 reads continue"]);
    talk.hear(Tag::Step(txn), stepped(TransactionState::Open));
    assert!(talk.told_well(first));
    assert_eq!(talk.said(), ["step key 1 after 3 0 changes 0 reads commit"]);
    talk.hear(Tag::Step(txn), stepped(TransactionState::Committed));
    assert!(talk.told_well(last));
    assert!(talk.session.txns.is_empty(), "nothing is kept of it");
    talk.begin(new(step(1, Then::Commit)));
    assert_eq!(
        talk.said(),
        ["begin key 4 acknowledged 3 1 changes 0 reads commit"],
        "the server may forget it"
    );
}

#[test]
fn what_was_not_answered_is_asked_again_in_order_with_acquires() {
    let mut talk = Talk::ready();
    let open = talk.open(3);
    talk.acquire("a", Wait::Forever);
    talk.begin(new(step(1, Then::Commit)));
    talk.step(open, step(2, Then::Continue));
    let given_up = talk.begin(locked(Wait::Forever, step(0, Then::Continue)));
    talk.session.give_up(given_up);
    assert!(matches!(talk.told_ill(given_up), CommitError::NotCommitted(TxnError::Closed)));
    talk.said();
    talk.reattach(Restarted::No);
    assert_eq!(
        talk.said(),
        [
            "step key 1 after 3 2 changes 0 reads continue",
            "acquire a key 2 forever",
            "begin key 3 acknowledged 0 1 changes 0 reads commit",
            "step key 5 after 0 0 changes 0 reads abort",
        ]
    );
    talk.hear(Tag::Abort(given_up), refused(Reason::TransactionUnknown));
    assert!(talk.outputs().is_empty(), "nobody hears of any of it");
}

#[test]
fn a_refused_step_leaves_the_transaction_as_it_was() {
    let mut talk = Talk::ready();
    let txn = talk.open(1);
    let wrong = talk.step(txn, step(5, Then::Continue));
    talk.hear(Tag::Step(txn), refused(Reason::WrongType));
    let error = talk.told_ill(wrong);
    assert!(matches!(error, CommitError::NotCommitted(TxnError::Refused(Reason::WrongType, _))));
    talk.said();
    talk.step(txn, step(0, Then::Commit));
    assert_eq!(talk.said(), ["step key 1 after 1 0 changes 0 reads commit"]);
}

#[test]
fn a_transaction_that_the_server_ended_is_over() {
    for reason in [Reason::TransactionTooOld, Reason::TransactionLostLocks, Reason::TransactionUnknown] {
        let mut talk = Talk::ready();
        let txn = talk.open(1);
        let late = talk.step(txn, step(0, Then::Commit));
        talk.hear(Tag::Step(txn), refused(reason));
        let error = talk.told_ill(late);
        assert!(matches!(error, CommitError::NotCommitted(TxnError::Over(why, _)) if why == reason));
        assert!(matches!(talk.session.step(txn, step(0, Then::Continue)), Err(TxnError::Over(..))));
    }
}

#[test]
fn a_restarted_server_is_asked_under_the_same_key_what_it_may_have_committed() {
    let mut talk = Talk::ready();
    let one_shot = talk.begin(new(step(1, Then::Commit)));
    talk.said();
    talk.session.disconnected(talk.now);
    let queued = talk.begin(new(step(7, Then::Commit)));
    talk.reattach(Restarted::Yes);
    talk.said();
    talk.hear(Tag::Reclaim(0), reclaimed(&[]));
    assert_eq!(
        talk.said(),
        [
            "begin key 1 acknowledged 0 1 changes 0 reads commit",
            "begin key 3 acknowledged 0 7 changes 0 reads commit"
        ]
    );
    talk.hear(Tag::Begin(one_shot), stepped(TransactionState::Committed));
    assert!(talk.told_well(one_shot));
    talk.hear(Tag::Begin(queued), stepped(TransactionState::Committed));
    assert!(talk.told_well(queued));
}

#[test]
fn a_begin_that_the_server_does_not_know_any_more_begins_anew() {
    let mut talk = Talk::ready();
    let txn = talk.begin(locked(Wait::AtMost(Duration::from_secs(5)), step(1, Then::Commit)));
    talk.said();
    talk.pass(Duration::from_secs(1));
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), ["begin key 1 under x 4000 ms acknowledged 0 1 changes 0 reads commit"]);
    talk.hear(Tag::Begin(txn), refused(Reason::TransactionUnknown));
    assert_eq!(talk.said(), ["begin key 2 under x 4000 ms acknowledged 1 1 changes 0 reads commit"]);
    talk.hear(Tag::Begin(txn), refused(Reason::TransactionUnknown));
    assert!(matches!(talk.told_ill(txn), CommitError::NotCommitted(TxnError::Over(..))), "not for ever");
}

#[test]
fn a_commit_in_doubt_is_asked_after_when_its_lease_is_lost() {
    let mut talk = Talk::ready();
    let open = talk.open(1);
    let idle = talk.open(1);
    let commit = talk.step(open, step(2, Then::Commit));
    let one_shot = talk.begin(locked(Wait::Forever, step(3, Then::Commit)));
    let begun = talk.begin(locked(Wait::Forever, step(0, Then::Continue)));
    talk.said();
    talk.lease_expires();
    let error = talk.told_ill(begun);
    assert!(matches!(error, CommitError::NotCommitted(TxnError::LeaseLost(LostReason::Expired))));
    assert!(matches!(talk.session.step(idle, step(0, Then::Continue)), Err(TxnError::LeaseLost(_))));
    talk.session.connected(talk.now);
    assert_eq!(
        talk.said(),
        [
            "hello",
            "step key 1 after 1 2 changes 0 reads commit with the secret",
            "begin key 4 under x try acknowledged 0 3 changes 0 reads commit with the secret",
        ]
    );
    talk.hear(Tag::Outcome(open), stepped(TransactionState::Committed));
    assert!(talk.told_well(commit));
    talk.hear(Tag::Outcome(one_shot), refused(Reason::UnknownLease));
    let error = talk.told_ill(one_shot);
    assert!(matches!(error, CommitError::NotCommitted(TxnError::LeaseLost(_))), "{error}");
    assert!(talk.session.orphans.is_empty());
}

#[test]
fn a_transaction_under_a_guard_does_not_move_to_another_lease() {
    let mut talk = Talk::ready();
    talk.session.disconnected(talk.now);
    let under = vec![proto::RequestId { dc: 0, n: 7 }];
    let guarded = talk.begin(NewTxn { under, ..new(step(1, Then::Commit)) });
    let plain = talk.begin(new(step(1, Then::Commit)));
    talk.lease_expires();
    let error = talk.told_ill(guarded);
    assert!(matches!(error, CommitError::NotCommitted(TxnError::LeaseLost(LostReason::Expired))), "{error}");
    talk.session.connected(talk.now);
    talk.hear(Tag::OpenLease, opened(8));
    talk.outputs();
    talk.hear(Tag::Begin(plain), stepped(TransactionState::Committed));
    assert!(talk.told_well(plain));
}

#[test]
fn who_asks_after_one_commit_of_a_lost_lease_settles_no_other() {
    let mut talk = Talk::ready();
    talk.begin(new(step(1, Then::Commit)));
    talk.begin(new(step(2, Then::Commit)));
    talk.said();
    talk.lease_expires();
    talk.begin(new(step(3, Then::Commit)));
    talk.session.connected(talk.now);
    let said = talk.said();
    let asked: Vec<_> = said.iter().filter(|said| said.ends_with("with the secret")).collect();
    assert_eq!(
        asked,
        [
            "begin key 1 acknowledged 0 1 changes 0 reads commit with the secret",
            "begin key 2 acknowledged 0 2 changes 0 reads commit with the secret",
        ]
    );
}

#[test]
fn a_handle_of_a_lease_that_is_lost_settles_nothing_and_keeps_nothing_unsettled() {
    let mut talk = Talk::ready();
    let open = talk.open(0);
    talk.lease_expires();
    assert!(matches!(talk.session.step(open, step(0, Then::Continue)), Err(TxnError::LeaseLost(_))));
    talk.begin(new(step(1, Then::Commit)));
    talk.session.connected(talk.now);
    talk.hear(Tag::OpenLease, opened(8));
    let said = talk.said();
    assert_eq!(said.last().map(|last| &**last), Some("begin key 3 acknowledged 2 1 changes 0 reads commit"));
}

#[test]
fn an_outcome_is_unknown_only_when_nobody_answers_or_the_server_says_so() {
    let mut talk = Talk::ready();
    let first = talk.begin(new(step(1, Then::Commit)));
    talk.said();
    talk.lease_expires();
    assert!(talk.outputs().is_empty());
    assert_eq!(talk.session.next_deadline(), talk.now + TTL + CONNECT);
    talk.pass(TTL + CONNECT);
    assert!(matches!(talk.told_ill(first), CommitError::OutcomeUnknown(_)));

    let mut talk = Talk::ready();
    let txn = talk.begin(new(step(1, Then::Commit)));
    talk.hear(Tag::Begin(txn), refused(Reason::OutcomeUnknown));
    assert!(matches!(talk.told_ill(txn), CommitError::OutcomeUnknown(_)));

    let mut talk = Talk::ready();
    let txn = talk.begin(new(step(1, Then::Commit)));
    talk.session.close(talk.now);
    assert!(matches!(talk.told_ill(txn), CommitError::OutcomeUnknown(_)));
}

#[test]
fn a_transaction_without_locks_does_not_wait_for_ever_for_a_server_that_is_gone() {
    let mut talk = Talk::ready();
    talk.lease_expires();
    let gone = talk.begin(new(step(1, Then::Commit)));
    assert_eq!(talk.session.next_deadline(), talk.now + TTL + CONNECT);
    talk.pass(TTL);
    let late = talk.begin(new(step(1, Then::Commit)));
    talk.pass(CONNECT);
    let told = talk.told_ill(gone);
    let never_begun =
        |told| matches!(told, CommitError::NotCommitted(TxnError::NotBegun(AcquireError::Unreachable)));
    assert!(never_begun(told));
    talk.pass(TTL);
    assert!(never_begun(talk.told_ill(late)));
    assert!(talk.session.txns.is_empty() && talk.session.overdue.is_empty());

    // A server that comes back in time gets it, and has any time to answer.
    talk.begin(new(step(1, Then::Commit)));
    talk.pass(TTL);
    talk.session.connected(talk.now);
    talk.hear(Tag::OpenLease, opened(8));
    assert!(talk.session.overdue.is_empty());
    assert!(talk.said().last().is_some_and(|last| last.starts_with("begin")));
}

/// The access rules were changed while the answer was in flight: the server refuses the retry before it looks
/// up its key.
#[test]
fn a_commit_whose_retry_is_refused_by_new_rules_may_have_been_made() {
    for reason in [Reason::PermissionDenied, Reason::Unauthenticated] {
        let abort = ["step key 1 after 0 0 changes 0 reads abort"];
        let mut talk = Talk::ready();
        let one_shot = talk.begin(new(step(1, Then::Commit)));
        talk.reattach_quietly();
        talk.hear(Tag::Begin(one_shot), refused(reason));
        assert!(matches!(talk.told_ill(one_shot), CommitError::OutcomeUnknown(_)));
        assert_eq!(talk.said(), abort);

        let mut talk = Talk::ready();
        let txn = talk.open(1);
        let commit = talk.step(txn, step(0, Then::Commit));
        talk.reattach_quietly();
        talk.hear(Tag::Step(txn), refused(reason));
        assert!(matches!(talk.told_ill(commit), CommitError::OutcomeUnknown(_)));
        assert_eq!(talk.said(), abort);

        let mut talk = Talk::ready();
        let orphan = talk.begin(new(step(1, Then::Commit)));
        talk.lease_expires();
        talk.session.connected(talk.now);
        talk.hear(Tag::Outcome(orphan), refused(reason));
        assert!(matches!(talk.told_ill(orphan), CommitError::OutcomeUnknown(_)));
        assert!(talk.session.txns.is_empty());
    }
}

#[test]
fn a_step_whose_retry_is_refused_by_new_rules_ends_its_transaction() {
    let mut talk = Talk::ready();
    let txn = talk.open(1);
    let changes = talk.step(txn, step(2, Then::Continue));
    talk.reattach_quietly();
    talk.hear(Tag::Step(txn), refused(Reason::PermissionDenied));
    let error = talk.told_ill(changes);
    assert!(matches!(error, CommitError::NotCommitted(TxnError::Over(Reason::PermissionDenied, _))));
    assert_eq!(talk.said(), ["step key 1 after 0 0 changes 0 reads abort"]);
    // A call that was sent only once was not executed, and the transaction is as before. The same holds after
    // other calls that were sent twice.
    let mut talk = Talk::ready();
    let txn = talk.open(1);
    let first = talk.step(txn, step(2, Then::Continue));
    talk.reattach_quietly();
    talk.hear(Tag::Step(txn), stepped(TransactionState::Open));
    assert!(talk.told_well(first));
    let wrong = talk.step(txn, step(1, Then::Commit));
    talk.said();
    talk.hear(Tag::Step(txn), refused(Reason::PermissionDenied));
    let error = talk.told_ill(wrong);
    assert!(matches!(error, CommitError::NotCommitted(TxnError::Refused(Reason::PermissionDenied, _))));
    talk.step(txn, step(0, Then::Commit));
    assert_eq!(talk.said(), ["step key 1 after 3 0 changes 0 reads commit"]);
}

#[test]
fn a_lease_that_the_server_ended_does_not_take_its_commits_along() {
    let mut talk = Talk::ready();
    let txn = talk.begin(new(step(1, Then::Commit)));
    talk.said();
    talk.hear_unasked(Answer::LeaseEnded(proto::LeaseEnded { lease: 7 }));
    assert_eq!(talk.said(), ["begin key 1 acknowledged 0 1 changes 0 reads commit with the secret"]);
    talk.hear(Tag::Begin(txn), refused(Reason::LeaseEnded));
    assert!(talk.outputs().is_empty(), "that is the answer to the call before");
    talk.hear(Tag::Outcome(txn), refused(Reason::UnknownLease));
    assert!(matches!(talk.told_ill(txn), CommitError::NotCommitted(_)));
}

#[test]
fn what_the_server_never_heard_of_goes_to_the_next_lease() {
    let mut talk = Talk::ready();
    talk.session.disconnected(talk.now);
    let txn = talk.begin(new(step(1, Then::Commit)));
    talk.pass(TTL);
    assert!(talk.outputs().is_empty());
    talk.session.connected(talk.now);
    assert_eq!(talk.said(), ["hello", "open lease"]);
    talk.hear(Tag::OpenLease, opened(8));
    assert_eq!(talk.said(), ["begin key 1 acknowledged 0 1 changes 0 reads commit"]);
    talk.hear(Tag::Begin(txn), refused(Reason::NotFree));
    assert!(matches!(
        talk.outputs().pop(),
        Some(Output::Stepped {
            outcome: Err(CommitError::NotCommitted(TxnError::NotBegun(AcquireError::NotFree))),
            ..
        })
    ));
}

#[test]
fn a_timed_begin_ends_when_nobody_answers_and_is_aborted_later() {
    let mut talk = Talk::ready();
    let wait = Wait::AtMost(Duration::from_millis(100));
    let asked = talk.begin(locked(wait, step(0, Then::Continue)));
    let one_shot = talk.begin(locked(wait, step(1, Then::Commit)));
    talk.said();
    talk.session.disconnected(talk.now);
    talk.pass(Duration::from_millis(100) + CONNECT);
    match &talk.outputs()[..] {
        [
            Output::Stepped { number: 1, outcome: Err(CommitError::NotCommitted(TxnError::NotBegun(_))) },
            Output::Stepped { number: 2, outcome: Err(CommitError::OutcomeUnknown(_)) },
        ] => {}
        other => panic!("{other:?}"),
    }
    talk.reattach(Restarted::No);
    let abort = |key| format!("step key {key} after 0 0 changes 0 reads abort");
    assert_eq!(talk.said(), [abort(asked), abort(one_shot)]);
}

#[test]
fn a_draining_server_is_left_for_another_endpoint() {
    let mut talk = Talk::ready();
    let txn = talk.begin(new(step(1, Then::Commit)));
    talk.said();
    talk.hear(Tag::Begin(txn), refused(Reason::Draining));
    assert!(matches!(talk.outputs()[..], [Output::Reconnect(Why::Draining)]));
    talk.reattach(Restarted::No);
    assert_eq!(talk.said().len(), 1);
    talk.hear(Tag::Begin(txn), refused(Reason::Draining));
    let error = talk.told_ill(txn);
    assert!(matches!(error, CommitError::NotCommitted(TxnError::NotBegun(AcquireError::Draining))));
}

#[test]
fn a_commit_under_a_guard_is_not_asked_of_a_server_that_would_not_look_at_the_guard() {
    let under = || vec![proto::RequestId { dc: 0, n: 7 }];
    let mut talk = Talk::ready();
    talk.welcome(&[Feature::Home]);
    let guarded = talk.begin(NewTxn { under: under(), ..new(step(1, Then::Commit)) });
    assert!(talk.said().is_empty(), "nothing is sent");
    match talk.told_ill(guarded) {
        CommitError::NotCommitted(TxnError::Refused(Reason::NotYet, why)) => {
            assert!(why.contains("upgrade it"), "{why}");
        }
        other => panic!("{other}"),
    }
    // It may have been committed by the server that understood it; the one that answers now is older.
    talk.welcome(&[Feature::Under]);
    let guarded = talk.begin(NewTxn { under: under(), ..new(step(1, Then::Commit)) });
    assert_eq!(talk.said().len(), 1);
    talk.reattach(Restarted::No);
    assert!(talk.said().iter().all(|said| !said.starts_with("begin")));
    assert!(matches!(talk.told_ill(guarded), CommitError::OutcomeUnknown(_)));
}
