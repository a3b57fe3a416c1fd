//! An intent that has failed too often, and a permission that may have been used: the conversation, step by
//! step.

use std::time::Duration;

use bytes::Bytes;

use super::super::bugs::Bug;
use super::super::events::{Effect, End, Event, Failure, LedgerView, Outcome, Record, Restored};
use super::super::machine::Machine;
use super::super::words::{
    Assembly, Epoch, Intent, IntentId, Message, Node, Speculation, StateId, Transaction,
};
use super::sender::sender;

const NOW: Duration = Duration::from_secs(1);
const EPOCH: Epoch = Epoch(7);

/// A sender and its coordinator.
struct Talk {
    machine: Machine,
    coordinator: Node,
    assembly: Assembly,
}

impl Talk {
    /// The coordinator has a permission to dispatch, and then says that an endorser refuses.
    fn begin(bug: Option<Bug>) -> Talk {
        let (machine, coordinator, intent) = sender(bug);
        let (inputs, outputs) = (vec![StateId::new("i")], vec![StateId::new("o")]);
        let assembly = Assembly { intent: intent.clone(), inputs, outputs, payload: Bytes::new() };
        let mut talk = Talk { machine, coordinator: coordinator.clone(), assembly: assembly.clone() };
        talk.handle(Event::Submit(Intent { id: intent.clone(), content: Bytes::new() }));
        let speculation = Speculation::default();
        talk.hear(Message::Assemble { intents: vec![intent.clone()], round: 1, speculation });
        let answer = Ok(assembly.clone());
        talk.handle(Event::Assembled { to: coordinator, round: 1, intent: intent.clone(), answer });
        let hash = assembly.hash();
        let granted = talk.hear(Message::AskDispatch { intent: intent.clone(), epoch: EPOCH, hash });
        let answer = Message::Granted { intent: intent.clone(), epoch: EPOCH, hash };
        assert_eq!(granted.last(), Some(&talk.says(answer)));
        let returned = Message::Returned { intents: vec![intent.clone()], why: Some("no".to_owned()) };
        let revoked = talk.hear(returned);
        assert_eq!(revoked, [talk.says(Message::Revoke { intent, epoch: EPOCH, hash })]);
        talk
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.machine.handle(NOW, event);
        std::iter::from_fn(|| self.machine.poll_effect()).collect()
    }

    fn hear(&mut self, message: Message) -> Vec<Effect> {
        self.handle(Event::Message { from: self.coordinator.clone(), message })
    }

    fn says(&self, message: Message) -> Effect {
        Effect::Send { to: self.coordinator.clone(), message }
    }

    fn give_back(&mut self, height: u64) -> Vec<Effect> {
        let (intent, hash) = (self.assembly.intent.clone(), self.assembly.hash());
        self.hear(Message::Revoked { intent, epoch: EPOCH, hash, height })
    }

    fn transaction(&self) -> Transaction {
        let (assembly, signer) = (self.assembly.clone(), self.coordinator.clone());
        Transaction { hash: assembly.hash(), assembly, epoch: EPOCH, signer, nonce: 1 }
    }

    fn ends(&self, end: End) -> [Effect; 2] {
        let intent = self.assembly.intent.clone();
        let written = Effect::Persist(Record::Ended { intent: intent.clone(), end: end.clone() });
        [written, Effect::Finished { intent, end }]
    }
}

fn failed() -> End {
    End::Failed(Failure::Endorsement("no".to_owned()))
}

#[test]
fn a_permission_that_was_not_used_ends_the_wait() {
    let mut talk = Talk::begin(None);
    assert_eq!(talk.give_back(0), talk.ends(failed()));
}

/// It was used, and the coordinator has seen the outcome before the sender.
#[test]
fn the_sender_waits_for_the_blocks_that_the_coordinator_has_seen() {
    let confirmed = |talk: &Talk| vec![Outcome { transaction: talk.transaction(), result: Ok(()) }];
    let mut talk = Talk::begin(None);
    assert_eq!(talk.give_back(2), []);
    assert_eq!(talk.handle(Event::Block { height: 1, outcomes: Vec::new() }), []);
    let outcomes = confirmed(&talk);
    assert_eq!(talk.handle(Event::Block { height: 2, outcomes }), talk.ends(End::Confirmed));

    let mut talk = Talk::begin(None);
    assert_eq!(talk.give_back(2), []);
    assert_eq!(talk.handle(Event::Block { height: 1, outcomes: Vec::new() }), []);
    assert_eq!(talk.handle(Event::Block { height: 2, outcomes: Vec::new() }), talk.ends(failed()));

    let mut talk = Talk::begin(Some(Bug::RevokedTooSoon));
    assert_eq!(talk.give_back(2), talk.ends(failed()), "the deliberate bug shows");
}

#[test]
fn a_hopeless_intent_is_granted_to_nobody_and_a_used_permission_is_a_dispatch() {
    let mut talk = Talk::begin(None);
    let (intent, hash) = (talk.assembly.intent.clone(), talk.assembly.hash());
    let again = talk.hear(Message::AskDispatch { intent: intent.clone(), epoch: EPOCH, hash });
    assert!(matches!(&again[..], [Effect::Send { message: Message::Refused { .. }, .. }]), "{again:?}");
    let notice = super::super::words::Notice { intent, epoch: EPOCH, hash, nonce: 1 };
    let effects = talk.hear(Message::Dispatched(notice.clone()));
    assert_eq!(effects.last(), Some(&talk.says(Message::DispatchedAck(notice))));
    let outcomes = vec![Outcome { transaction: talk.transaction(), result: Ok(()) }];
    assert_eq!(talk.handle(Event::Block { height: 1, outcomes }), talk.ends(End::Confirmed));
}

/// Without the node that has the permission, another confirmed transaction of a higher epoch ends the wait.
#[test]
fn a_permission_that_is_fenced_ends_the_wait() {
    let mut talk = Talk::begin(None);
    let mut transaction = talk.transaction();
    transaction.epoch = Epoch(EPOCH.0 + 1);
    transaction.assembly.intent = IntentId::new(&talk.coordinator, "other");
    let outcomes = vec![Outcome { transaction, result: Ok(()) }];
    assert_eq!(talk.handle(Event::Block { height: 1, outcomes }), talk.ends(failed()));
}

/// A view is read beside the blocks: it may have been read before the intent was known to be in one.
#[test]
fn a_view_that_is_ahead_of_the_blocks_ends_nothing() {
    let mut talk = Talk::begin(None);
    assert_eq!(talk.give_back(2), []);
    let intent = Intent { id: talk.assembly.intent.clone(), content: Bytes::new() };
    let restored = Restored { intents: vec![intent], ..Restored::default() };
    let view = LedgerView { height: 2, epoch: Some(Epoch(EPOCH.0 + 1)), ..LedgerView::default() };
    assert_eq!(talk.handle(Event::Resumed { restored, view }), []);
    assert_eq!(talk.handle(Event::Block { height: 1, outcomes: Vec::new() }), []);
    let outcomes = vec![Outcome { transaction: talk.transaction(), result: Ok(()) }];
    assert_eq!(talk.handle(Event::Block { height: 2, outcomes }), talk.ends(End::Confirmed));
}
