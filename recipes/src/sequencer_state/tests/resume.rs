//! A database that has more than memory: the machine takes all of it up.

use std::time::Duration;

use bytes::Bytes;

use super::super::events::{Effect, End, Event, Grant, LedgerView, LockEvent, Outcome, Record, Restored};
use super::super::machine::Machine;
use super::super::options::SequencerOptions;
use super::super::placement::{Committee, Placement};
use super::super::shared::Config;
use super::super::words::{Assembly, Contract, Epoch, Intent, IntentId, Message, Node, Notice, Transaction};
use super::plan::names;

const EPOCH: Epoch = Epoch(7);

/// The second in rank: it delegates to another one.
fn me() -> Node {
    let committee = Committee::new(names(3), &names(3)[0]).expect("names differ");
    Placement::default().rank(&Contract::new("c"), &committee, 0)[1].clone()
}

fn intent(name: &str) -> Intent {
    Intent { id: IntentId::new(&me(), name), content: Bytes::new() }
}

fn transaction(name: &str, nonce: u64) -> Transaction {
    let assembly =
        Assembly { intent: intent(name).id, inputs: Vec::new(), outputs: Vec::new(), payload: Bytes::new() };
    Transaction { hash: assembly.hash(), assembly, epoch: EPOCH, signer: me(), nonce }
}

fn resume(restored: Restored, view: LedgerView) -> (Machine, Vec<Effect>) {
    let committee = Committee::new(names(3), &me()).expect("names differ");
    let options = SequencerOptions::default();
    let config = Config { me: me(), contract: Contract::new("c"), committee, options, bug: None };
    let view_of_start = LedgerView { height: 5, ..LedgerView::default() };
    let mut machine = Machine::new(config, &Restored::default(), &view_of_start).expect("it can take part");
    machine.handle(Duration::from_secs(1), Event::Resumed { restored, view });
    let effects = std::iter::from_fn(|| machine.poll_effect()).collect();
    (machine, effects)
}

/// The nonce below is missing at the ledger for ever if nobody submits it again.
#[test]
fn transactions_that_only_the_database_has_are_submitted_and_their_nonces_not_used_again() {
    let dispatches = vec![transaction("1", 3), transaction("2", 4)];
    let restored = Restored { dispatches, last_nonce: 6, ..Restored::default() };
    let view = LedgerView { height: 5, ..LedgerView::default() };
    let (_, effects) = resume(restored, view);
    let expected = [transaction("1", 3), transaction("2", 4)].map(Effect::SubmitToLedger);
    let submitted: Vec<Effect> =
        effects.into_iter().filter(|it| matches!(it, Effect::SubmitToLedger(_))).collect();
    assert_eq!(submitted, expected);
}

#[test]
fn an_intent_that_only_the_database_has_is_taken_up_with_its_grants_and_notices() {
    let of = transaction("dispatched", 1);
    let signer = Node::new("n1");
    let notice = Notice { intent: of.intent().clone(), epoch: EPOCH, hash: of.hash, nonce: 1 };
    let grant = Grant { intent: of.intent().clone(), to: signer.clone(), epoch: EPOCH, hash: of.hash };
    let restored = Restored {
        intents: ["confirmed", "dispatched", "open"].map(intent).to_vec(),
        grants: vec![grant],
        notices: vec![(signer, notice)],
        ..Restored::default()
    };
    let confirmed = [intent("confirmed").id].into();
    let view = LedgerView { height: 5, confirmed, ..LedgerView::default() };
    let (machine, effects) = resume(restored, view);
    let ended = Record::Ended { intent: intent("confirmed").id, end: End::Confirmed };
    assert_eq!(effects[0], Effect::Persist(ended));
    let undecided: Vec<&str> = machine.undecided().map(|it| &*it.name).collect();
    assert_eq!(undecided, ["dispatched", "open"]);
    // The one that is dispatched is not delegated once more.
    let delegated = effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Delegate { intents, .. }, .. } => Some(intents.clone()),
        _ => None,
    });
    assert_eq!(delegated, Some(vec![intent("open").id]), "{effects:?}");
}

/// It does not say what became of the intent in the blocks since then.
#[test]
fn a_view_of_another_height_takes_nothing_up() {
    for height in [4, 6] {
        let restored = Restored { intents: vec![intent("1")], ..Restored::default() };
        let (machine, effects) = resume(restored, LedgerView { height, ..LedgerView::default() });
        assert_eq!((machine.undecided().len(), effects), (0, Vec::new()), "height {height}");
    }
}

/// Returns a node that is alone in its committee and has dispatched an intent, and the nonce of that.
fn alone(restored: &Restored, view: &LedgerView, block: Option<Transaction>) -> (Machine, u64) {
    let (now, me) = (Duration::from_secs(1), me());
    let committee = Committee::new(vec![me.clone()], &me).expect("it is there");
    let options = SequencerOptions::default();
    let config = Config { me: me.clone(), contract: Contract::new("c"), committee, options, bug: None };
    let mut machine = Machine::new(config, restored, view).expect("it can take part");
    if let Some(transaction) = block {
        let outcomes = vec![Outcome { transaction, result: Ok(()) }];
        machine.handle(now, Event::Block { height: view.height + 1, outcomes });
    }
    machine.handle(now, Event::Submit(intent("new")));
    machine.handle(now, Event::Lock(LockEvent::Granted { epoch: EPOCH, handover: None }));
    while let Some(effect) = machine.poll_effect() {
        match effect {
            Effect::Assemble { to, round, intent, .. } => {
                let answer = Ok(transaction(&intent.id.name, 0).assembly);
                machine.handle(now, Event::Assembled { to, round, intent: intent.id, answer });
            }
            Effect::Endorse { to, round, assembly } => {
                machine.handle(now, Event::Endorsed { to, round, intent: assembly.intent, answer: Ok(()) });
            }
            Effect::SubmitToLedger(transaction) => return (machine, transaction.nonce),
            _ => {}
        }
    }
    panic!("it dispatches nothing");
}

fn nonce_used(restored: &Restored, view: &LedgerView, block: Option<Transaction>) -> u64 {
    alone(restored, view, block).1
}

/// Not after the time for which one is open that the ledger has taken.
#[test]
fn a_transaction_that_the_ledger_did_not_take_is_submitted_again_after_the_pause() {
    let (mut machine, nonce) = alone(&Restored::default(), &LedgerView::default(), None);
    while machine.poll_effect().is_some() {}
    let now = Duration::from_secs(1);
    machine.handle(now, Event::NotSubmitted { nonce });
    machine.handle(now + SequencerOptions::default().retry, Event::Time);
    let again = |it: Effect| matches!(it, Effect::SubmitToLedger(it) if it.nonce == nonce);
    assert!(std::iter::from_fn(|| machine.poll_effect()).any(again));
}

/// Each of these would cost `flush_timeout`: the ledger has decided it as something else.
#[test]
fn nonces_that_the_ledger_has_decided_are_not_used_again_although_the_database_is_lost_or_old() {
    let decided = |nonce| LedgerView { decided_nonces: [(me(), nonce)].into(), ..LedgerView::default() };
    assert_eq!(nonce_used(&Restored::default(), &LedgerView::default(), None), 1);
    assert_eq!(nonce_used(&Restored::default(), &decided(60), None), 61);
    let old = Restored { last_nonce: 40, ..Restored::default() };
    assert_eq!(nonce_used(&old, &decided(60), None), 61);
    assert_eq!(nonce_used(&Restored { last_nonce: 70, ..old }, &decided(60), None), 71);
    // The view of the start was late.
    assert_eq!(nonce_used(&Restored::default(), &decided(60), Some(transaction("lost", 64))), 65);
}
