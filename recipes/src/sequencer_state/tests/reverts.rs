//! A transaction reverts because an input is not there: whose failure that is.

use std::time::Duration;

use bytes::Bytes;

use super::super::events::{Effect, End, Event, Failure, Outcome, Revert};
use super::super::machine::Machine;
use super::super::options::SequencerOptions;
use super::super::words::{
    Assembly, Epoch, Intent, IntentId, Message, Node, Speculation, StateId, Transaction,
};
use super::sender::sender;

const NOW: Duration = Duration::from_secs(1);
const EPOCH: Epoch = Epoch(7);

/// A sender that gives an intent up with its first failure, and its coordinator.
struct Talk {
    machine: Machine,
    coordinator: Node,
    intent: IntentId,
    height: u64,
    nonce: u64,
}

impl Talk {
    fn begin() -> Talk {
        let (machine, coordinator, intent) = sender(None);
        let mut talk = Talk { machine, coordinator, intent: intent.clone(), height: 0, nonce: 0 };
        talk.handle(Event::Submit(Intent { id: intent, content: Bytes::new() }));
        talk
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.machine.handle(NOW, event);
        std::iter::from_fn(|| self.machine.poll_effect()).collect()
    }

    fn hear(&mut self, message: Message) {
        self.handle(Event::Message { from: self.coordinator.clone(), message });
    }

    /// A transaction of the coordinator, which spends a state and makes another one.
    fn transaction(&mut self, intent: &IntentId, [spent, made]: [&str; 2]) -> Transaction {
        let (inputs, outputs) = (vec![StateId::new(spent)], vec![StateId::new(made)]);
        let assembly = Assembly { intent: intent.clone(), inputs, outputs, payload: Bytes::new() };
        self.nonce += 1;
        let (signer, nonce) = (self.coordinator.clone(), self.nonce);
        Transaction { hash: assembly.hash(), assembly, epoch: EPOCH, signer, nonce }
    }

    /// The same, of an intent of another node.
    fn other(&mut self, states: [&str; 2]) -> Transaction {
        let intent = IntentId::new(&self.coordinator, &self.nonce.to_string());
        self.transaction(&intent, states)
    }

    /// The intent is assembled, and its coordinator may dispatch it.
    fn dispatched(&mut self, states: [&str; 2]) -> Transaction {
        let (intent, round) = (self.intent.clone(), self.nonce);
        let transaction = self.transaction(&intent, states);
        let (intents, speculation) = (vec![intent.clone()], Speculation::default());
        self.hear(Message::Assemble { intents, round, speculation });
        let (to, answer) = (self.coordinator.clone(), Ok(transaction.assembly.clone()));
        self.handle(Event::Assembled { to, round, intent: intent.clone(), answer });
        self.hear(Message::AskDispatch { intent, epoch: EPOCH, hash: transaction.hash });
        transaction
    }

    /// Returns how the intent ended in the next block.
    fn block(&mut self, outcomes: Vec<(Transaction, Result<(), Revert>)>) -> Option<End> {
        self.height += 1;
        let outcomes = outcomes.into_iter().map(|(transaction, result)| Outcome { transaction, result });
        let effects = self.handle(Event::Block { height: self.height, outcomes: outcomes.collect() });
        effects.into_iter().find_map(|effect| match effect {
            Effect::Finished { end, .. } => Some(end),
            _ => None,
        })
    }
}

fn failed(why: &str) -> Option<End> {
    Some(End::Failed(Failure::Reverted(why.to_owned())))
}

#[test]
fn an_intent_on_top_of_one_that_reverts_has_not_failed() {
    let mut talk = Talk::begin();
    let (bad, good) = (talk.other(["a", "b"]), talk.dispatched(["b", "c"]));
    let reverts = vec![(bad, Err(Revert::Contract("no".to_owned()))), (good, Err(Revert::Spent))];
    assert_eq!(talk.block(reverts), None);
    // Also on top of one that reverts for the sake of another one, in an earlier block.
    let (first, second) = (talk.other(["a", "b"]), talk.other(["b", "c"]));
    let good = talk.dispatched(["c", "d"]);
    let reverts = vec![(first, Err(Revert::StaleEpoch)), (second, Err(Revert::Spent))];
    assert_eq!(talk.block(reverts), None);
    assert_eq!(talk.block(vec![(good, Err(Revert::Spent))]), None);
    let good = talk.dispatched(["a", "b"]);
    assert_eq!(talk.block(vec![(good, Ok(()))]), Some(End::Confirmed));
}

#[test]
fn an_intent_whose_input_another_one_spends_meanwhile_has_not_failed() {
    let mut talk = Talk::begin();
    let (good, rival) = (talk.dispatched(["a", "b"]), talk.other(["a", "c"]));
    assert_eq!(talk.block(vec![(rival, Ok(())), (good, Err(Revert::Spent))]), None);
    // A memory that is too short excuses it, too.
    let good = talk.dispatched(["c", "d"]);
    let rival = talk.other(["c", "e"]);
    assert_eq!(talk.block(vec![(rival, Ok(()))]), None);
    let kept = SequencerOptions::default().max_in_flight * 3;
    let others = (0..=kept).map(|number| talk.other([&format!("x{number}"), &format!("y{number}")]));
    let others: Vec<_> = others.map(|it| (it, Ok(()))).collect();
    assert_eq!(talk.block(others), None);
    assert_eq!(talk.block(vec![(good, Err(Revert::Spent))]), None);
}

#[test]
fn an_intent_that_asks_for_what_is_not_there_has_failed() {
    let never_made = |talk: &mut Talk| talk.dispatched(["nothing", "b"]);
    let spent_before = |talk: &mut Talk| {
        let other = talk.other(["a", "b"]);
        assert_eq!(talk.block(vec![(other, Ok(()))]), None);
        talk.dispatched(["a", "c"])
    };
    for assemble in [never_made, spent_before] {
        let mut talk = Talk::begin();
        let transaction = assemble(&mut talk);
        assert_eq!(talk.block(vec![(transaction, Err(Revert::Spent))]), failed("an input is spent"));
    }
    let mut talk = Talk::begin();
    let transaction = talk.dispatched(["a", "b"]);
    assert_eq!(talk.block(vec![(transaction, Err(Revert::Contract("no".to_owned())))]), failed("no"));
}
