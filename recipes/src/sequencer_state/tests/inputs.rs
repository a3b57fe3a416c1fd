//! Inputs that cannot be right, and the answers to them.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::super::events::{Effect, Event, LedgerView, Record, Restored, StartError, SubmitError};
use super::super::machine::Machine;
use super::super::options::{SequencerConfigError, SequencerOptions};
use super::super::placement::{Committee, Placement};
use super::super::shared::Config;
use super::super::words::{
    Assembled, Assembly, Contract, Endorsement, Intent, IntentId, Message, Node, Phase, Rejection,
};
use super::plan::names;

const NOW: Duration = Duration::from_secs(1);

fn config(me: &Node, options: SequencerOptions) -> Config {
    let committee = Committee::new(names(3), me).expect("names differ");
    Config { me: me.clone(), contract: Contract::new("c"), committee, options, bug: None }
}

fn machine(me: &Node) -> Machine {
    let config = config(me, SequencerOptions::default());
    Machine::new(config, &Restored::default(), &LedgerView::default()).expect("it can take part")
}

/// Returns the committee as all nodes rank it at height 0.
fn rank() -> Vec<Node> {
    let committee = Committee::new(names(3), &names(3)[0]).expect("names differ");
    Placement::default().rank(&Contract::new("c"), &committee, 0)
}

fn handle(machine: &mut Machine, event: Event) -> Vec<Effect> {
    machine.handle(NOW, event);
    std::iter::from_fn(|| machine.poll_effect()).collect()
}

fn intent(sender: &Node, content: &'static str) -> Intent {
    Intent { id: IntentId::new(sender, "pay"), content: Bytes::from_static(content.as_bytes()) }
}

fn delegate(sender: &Node, height: u64) -> Message {
    let intents = vec![intent(sender, "1").id];
    Message::Delegate { height, skipped: BTreeSet::new(), intents }
}

#[test]
fn an_intent_is_taken_once_and_not_with_other_content() {
    let me = rank()[1].clone();
    let mut machine = machine(&me);
    let submitted = |answer| Effect::Submitted { intent: intent(&me, "1").id, answer };
    let effects = handle(&mut machine, Event::Submit(intent(&me, "1")));
    let written = Effect::Persist(Record::Intent(intent(&me, "1")));
    assert_eq!(effects[..2], [written, submitted(Ok(()))], "it is written before it is answered");
    let effects = handle(&mut machine, Event::Submit(intent(&me, "1")));
    assert_eq!(effects, [submitted(Ok(()))]);
    let effects = handle(&mut machine, Event::Submit(intent(&me, "2")));
    assert_eq!(effects, [submitted(Err(SubmitError::OtherContent(intent(&me, "1").id)))]);
    let foreign = intent(&rank()[0], "1");
    let effects = handle(&mut machine, Event::Submit(foreign.clone()));
    let answer = Err(SubmitError::NotOurs(foreign.id.clone()));
    assert_eq!(effects, [Effect::Submitted { intent: foreign.id, answer }]);
}

#[test]
fn a_delegation_is_rejected_with_the_reason() {
    let [first, second, third] = <[Node; 3]>::try_from(rank()).expect("there are three");
    let mut machine = machine(&second);
    let send = |message| Effect::Send { to: third.clone(), message };
    let from_third = |height| Event::Message { from: third.clone(), message: delegate(&third, height) };
    let effects = handle(&mut machine, from_third(0));
    assert_eq!(effects, [send(Message::Rejected(Rejection::NotCoordinator { who: first }))]);
    let effects = handle(&mut machine, from_third(100));
    assert_eq!(effects, [send(Message::Rejected(Rejection::WrongRange { height: 0 }))]);
    assert_eq!((machine.phase(), machine.deadline()), (Phase::Idle, None), "it is at rest");
}

#[test]
fn strangers_and_the_own_name_are_not_listened_to() {
    let me = rank()[0].clone();
    let mut machine = machine(&me);
    for from in [Node::new("stranger"), me.clone()] {
        let message = delegate(&from, 0);
        assert_eq!(handle(&mut machine, Event::Message { from, message }), []);
    }
    // An intent of another node than the one that delegates it.
    let (from, message) = (rank()[1].clone(), delegate(&rank()[2], 0));
    let effects = handle(&mut machine, Event::Message { from: from.clone(), message });
    let answer = Message::Delegated { accepted: vec![], dispatched: vec![], full: vec![] };
    assert_eq!(effects, [Effect::Send { to: from, message: answer }]);
}

#[test]
fn a_ledger_that_goes_back_or_lacks_a_block_changes_nothing() {
    let me = rank()[0].clone();
    let view = LedgerView { height: 249, ..LedgerView::default() };
    let config = config(&me, SequencerOptions::default());
    let mut machine = Machine::new(config, &Restored::default(), &view).expect("it can take part");
    // Also one that lacks a block: the one that is missing may have confirmed something.
    for (height, range) in [(250, 250), (10, 250), (250, 250), (450, 250)] {
        assert_eq!(handle(&mut machine, Event::Block { height, outcomes: Vec::new() }), []);
        let from = rank()[1].clone();
        let message = delegate(&from, 7_000);
        let effects = handle(&mut machine, Event::Message { from: from.clone(), message });
        let rejected = Message::Rejected(Rejection::WrongRange { height: range });
        assert_eq!(effects, [Effect::Send { to: from, message: rejected }]);
    }
}

#[test]
fn a_database_of_another_node_and_options_that_cannot_be_are_refused() {
    let me = rank()[0].clone();
    let other = rank()[1].clone();
    let restored = Restored { intents: vec![intent(&other, "1")], ..Restored::default() };
    let start = |options, restored: &Restored| {
        Machine::new(config(&me, options), restored, &LedgerView::default()).err()
    };
    let error = StartError::OtherDatabase { found: other, me: me.clone() };
    assert_eq!(start(SequencerOptions::default(), &restored), Some(error));
    let options = SequencerOptions { block_range: 0, ..SequencerOptions::default() };
    let error = StartError::Options(SequencerConfigError::Zero("block_range"));
    assert_eq!(start(options, &Restored::default()), Some(error));
}

/// By its own height: it says that height, and asks its domain nothing.
#[test]
fn an_endorser_rejects_a_coordinator_that_is_not_its_own() {
    let [first, second, third] = <[Node; 3]>::try_from(rank()).expect("there are three");
    let mut machine = machine(&second);
    let id = intent(&third, "1").id;
    let assembly =
        Assembly { intent: id.clone(), inputs: Vec::new(), outputs: Vec::new(), payload: Bytes::new() };
    let mut endorse = |from: &Node, height| {
        let (skipped, assembly) = (BTreeSet::new(), assembly.clone());
        let message = Message::Endorse { round: 1, height, epoch: None, skipped, assembly };
        handle(&mut machine, Event::Message { from: from.clone(), message })
    };
    let rejects = |to: &Node| {
        let answer = Endorsement::WrongCoordinator { height: 0 };
        let message = Message::Endorsed { intent: id.clone(), round: 1, answer };
        [Effect::Send { to: to.clone(), message }]
    };
    assert_eq!(endorse(&third, 0), rejects(&third), "another one is first");
    assert_eq!(endorse(&first, 100), rejects(&first), "it is ahead");
    let asks = Effect::Endorse { to: first.clone(), round: 1, assembly: assembly.clone() };
    assert_eq!(endorse(&first, 99), [asks]);
}

/// The coordinator says which intents it has no room for; the sender delegates them again later.
#[test]
fn a_sender_waits_for_a_coordinator_that_is_full() {
    let [first, second, _] = <[Node; 3]>::try_from(rank()).expect("there are three");
    let machine = |me: &Node, max_in_flight| {
        let config = config(me, SequencerOptions { max_in_flight, ..SequencerOptions::default() });
        Machine::new(config, &Restored::default(), &LedgerView::default()).expect("it can take part")
    };
    let [one, two] = ["1", "2"].map(|name| IntentId::new(&second, name));
    let delegate =
        Message::Delegate { height: 0, skipped: BTreeSet::new(), intents: vec![one.clone(), two.clone()] };
    let mut full = machine(&first, 1);
    let effects = handle(&mut full, Event::Message { from: second.clone(), message: delegate.clone() });
    let answer =
        Message::Delegated { accepted: vec![one.clone()], dispatched: vec![], full: vec![two.clone()] };
    assert!(effects.contains(&Effect::Send { to: second.clone(), message: answer.clone() }), "{effects:?}");

    let mut sender = machine(&second, 2);
    let delegated = Effect::Send { to: first.clone(), message: delegate };
    for (id, content) in [(one, Bytes::new()), (two, Bytes::new())] {
        let effects = handle(&mut sender, Event::Submit(Intent { id: id.clone(), content }));
        assert!(matches!(effects.last(), Some(Effect::Send { .. })), "{effects:?}");
        assert_eq!(effects.contains(&delegated), *id.name == *"2", "{effects:?}");
    }
    assert_eq!(handle(&mut sender, Event::Message { from: first, message: answer }), []);
    let retry_at = NOW + SequencerOptions::default().retry;
    assert_eq!(sender.deadline(), Some(retry_at));
    sender.handle(retry_at, Event::Time);
    assert_eq!(std::iter::from_fn(|| sender.poll_effect()).collect::<Vec<_>>(), [delegated]);
}

/// Of a stranger, of a member that was asked nothing, and about an assembly that nobody works on.
#[test]
fn an_endorsement_by_a_node_that_was_not_asked_changes_nothing() {
    let [me, second, _] = <[Node; 3]>::try_from(rank()).expect("there are three");
    let mut machine = machine(&me);
    let endorsed = |intent: IntentId, round| Message::Endorsed { intent, round, answer: Endorsement::Given };
    for from in [Node::new("stranger"), second.clone()] {
        let message = endorsed(intent(&second, "1").id, 1);
        assert_eq!(handle(&mut machine, Event::Message { from, message }), []);
    }
    let message = delegate(&second, 0);
    let effects = handle(&mut machine, Event::Message { from: second.clone(), message });
    let asks = |it: &Effect| matches!(it, Effect::Send { message: Message::Assemble { .. }, .. });
    assert!(effects.iter().any(asks), "it is being assembled: {effects:?}");
    // It is not assembled yet, so there is nothing to endorse.
    let message = endorsed(intent(&second, "1").id, 1);
    assert_eq!(handle(&mut machine, Event::Message { from: second, message }), []);
    assert_eq!(machine.phase(), Phase::Electing);
}

#[test]
fn an_answer_about_an_intent_is_its_senders() {
    let [me, second, third] = <[Node; 3]>::try_from(rank()).expect("there are three");
    let mut machine = machine(&me);
    let message = delegate(&second, 0);
    handle(&mut machine, Event::Message { from: second.clone(), message });
    let assembled = |from: &Node| {
        let intent = intent(&second, "1").id;
        let assembly = Assembly {
            intent: intent.clone(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            payload: Bytes::new(),
        };
        let message = Message::Assembled { intent, round: 1, answer: Assembled::Done(assembly) };
        Event::Message { from: from.clone(), message }
    };
    assert_eq!(handle(&mut machine, assembled(&third)), [], "it answers for another one");
    assert!(!handle(&mut machine, assembled(&second)).is_empty(), "it is to be endorsed");
}
