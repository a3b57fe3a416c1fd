//! Intents that are assembled together, one on top of the other.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::super::events::{Effect, Event, LedgerView, NotAssembled, Outcome, Restored};
use super::super::machine::Machine;
use super::super::options::{SequencerOptions, Threshold};
use super::super::placement::{Committee, Placement};
use super::super::shared::Config;
use super::super::words::{
    Assembled, Assembly, Contract, Epoch, Intent, IntentId, Message, Node, Speculation, StateId, Transaction,
};
use super::plan::names;

const NOW: Duration = Duration::from_secs(1);
const ROUND: u64 = 1;

/// A node, and the one that it talks to.
struct Talk {
    machine: Machine,
    other: Node,
    sender: Node,
}

impl Talk {
    /// The place of the node in the rank; the other one is the one before or after it.
    fn of(place: usize) -> Talk {
        let committee = Committee::new(names(2), &names(2)[0]).expect("names differ");
        let rank = Placement::default().rank(&Contract::new("c"), &committee, 0);
        let (me, other) = (rank[place].clone(), rank[1 - place].clone());
        let committee = Committee::new(names(2), &me).expect("names differ");
        let options =
            SequencerOptions { batch: 3, threshold: Threshold::AtLeast(2), ..SequencerOptions::default() };
        let config = Config { me, contract: Contract::new("c"), committee, options, bug: None };
        let machine = Machine::new(config, &Restored::default(), &LedgerView::default());
        Talk { machine: machine.expect("it can take part"), other, sender: rank[1].clone() }
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.handle_at(NOW, event)
    }

    fn handle_at(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        self.machine.handle(now, event);
        std::iter::from_fn(|| self.machine.poll_effect()).collect()
    }

    fn hear(&mut self, message: Message) -> Vec<Effect> {
        self.handle(Event::Message { from: self.other.clone(), message })
    }

    fn says(&self, message: Message) -> Effect {
        Effect::Send { to: self.other.clone(), message }
    }

    fn id(&self, number: u32) -> IntentId {
        IntentId::new(&self.sender, &number.to_string())
    }

    fn intent(&self, number: u32) -> Intent {
        Intent { id: self.id(number), content: Bytes::new() }
    }

    /// The assembly of an intent that spends one state and makes another one.
    fn assembly(&self, number: u32, [spent, made]: [&str; 2]) -> Assembly {
        let (inputs, outputs) = (vec![StateId::new(spent)], vec![StateId::new(made)]);
        Assembly { intent: self.id(number), inputs, outputs, payload: Bytes::new() }
    }

    fn assembled(&self, number: u32, states: [&str; 2]) -> Message {
        let answer = Assembled::Done(self.assembly(number, states));
        Message::Assembled { intent: self.id(number), round: ROUND, answer }
    }
}

fn states(names: &[&str]) -> BTreeSet<StateId> {
    names.iter().map(|name| StateId::new(name)).collect()
}

fn speculation(spent: &[&str], created: &[&str]) -> Speculation {
    Speculation { spent: states(spent), created: states(created) }
}

#[test]
fn a_sender_assembles_each_on_top_of_those_before_it() {
    let mut talk = Talk::of(1);
    for number in 1..=3 {
        talk.handle(Event::Submit(talk.intent(number)));
    }
    let question = |talk: &Talk, numbers: &[u32], speculation| Message::Assemble {
        intents: numbers.iter().map(|number| talk.id(*number)).collect(),
        round: ROUND,
        speculation,
    };
    let domain = |talk: &Talk, number, speculation| {
        let (to, intent) = (talk.other.clone(), talk.intent(number));
        Effect::Assemble { to, round: ROUND, intent, speculation }
    };
    let answer = |talk: &Talk, number, answer| {
        let (to, intent) = (talk.other.clone(), talk.id(number));
        Event::Assembled { to, round: ROUND, intent, answer }
    };
    let first = speculation(&["a"], &["b"]);
    let asked = talk.hear(question(&talk, &[1, 2, 3, 4], first.clone()));
    assert_eq!(asked, [domain(&talk, 1, first.clone())]);
    let told = talk.handle(answer(&talk, 1, Ok(talk.assembly(1, ["b", "c"]))));
    let second = speculation(&["a", "b"], &["c"]);
    let done = talk.says(talk.assembled(1, ["b", "c"]));
    assert_eq!(told, [done.clone(), domain(&talk, 2, second.clone())]);
    // The question comes once more: what is assembled stays.
    let again = talk.hear(question(&talk, &[1, 2, 3, 4], first));
    assert_eq!(again, [done.clone(), domain(&talk, 2, second.clone())]);
    let late = talk.handle(answer(&talk, 1, Ok(talk.assembly(1, ["b", "other"]))));
    assert_eq!(late, [done], "others may rest on the first one");
    let told = talk.handle(answer(&talk, 2, Err(NotAssembled::Parked)));
    let parked = Message::Assembled { intent: talk.id(2), round: ROUND, answer: Assembled::Parked };
    assert_eq!(told, [talk.says(parked), domain(&talk, 3, second)], "the next ones do not wait for it");
    let told = talk.handle(answer(&talk, 3, Ok(talk.assembly(3, ["c", "d"]))));
    let not_ours = Message::Assembled { intent: talk.id(4), round: ROUND, answer: Assembled::NotYours };
    assert_eq!(told, [talk.says(talk.assembled(3, ["c", "d"])), talk.says(not_ours)]);
}

/// Another coordinator's transaction of it is confirmed meanwhile.
#[test]
fn a_sender_goes_on_behind_an_intent_that_has_ended() {
    let mut talk = Talk::of(1);
    for number in 1..=2 {
        talk.handle(Event::Submit(talk.intent(number)));
    }
    let (intents, round) = (vec![talk.id(1), talk.id(2)], ROUND);
    talk.hear(Message::Assemble { intents, round, speculation: Speculation::default() });
    let assembly = talk.assembly(1, ["a", "b"]);
    let (hash, signer) = (assembly.hash(), talk.other.clone());
    let transaction = Transaction { assembly: assembly.clone(), hash, epoch: Epoch(1), signer, nonce: 1 };
    talk.handle(Event::Block { height: 1, outcomes: vec![Outcome { transaction, result: Ok(()) }] });
    let (to, intent) = (talk.other.clone(), talk.id(1));
    let told = talk.handle(Event::Assembled { to, round: ROUND, intent, answer: Ok(assembly) });
    let over = Message::Assembled { intent: talk.id(1), round: ROUND, answer: Assembled::NotYours };
    let (to, intent, speculation) = (talk.other.clone(), talk.intent(2), Speculation::default());
    let next = Effect::Assemble { to, round: ROUND, intent, speculation };
    assert_eq!(told, [talk.says(over), next], "the coordinator waits for an answer about the first one");
}

/// Returns a coordinator that has asked for three assemblies.
fn asking() -> Talk {
    let mut talk = Talk::of(0);
    let intents = (1..=4).map(|number| talk.id(number)).collect();
    let asked = talk.hear(Message::Delegate { height: 0, skipped: BTreeSet::new(), intents });
    assert_eq!(questions(&asked), [(vec![talk.id(1), talk.id(2), talk.id(3)], speculation(&[], &[]))]);
    talk
}

/// Returns the intents that are asked for, and what they are to rest on.
fn questions(effects: &[Effect]) -> Vec<(Vec<IntentId>, Speculation)> {
    let question = |effect: &Effect| match effect {
        Effect::Send { message: Message::Assemble { intents, speculation, .. }, .. } => {
            Some((intents.clone(), speculation.clone()))
        }
        _ => None,
    };
    effects.iter().filter_map(question).collect()
}

#[test]
fn a_coordinator_asks_for_the_next_ones_when_it_has_all_answers() {
    let mut talk = asking();
    assert_eq!(questions(&talk.hear(talk.assembled(1, ["a", "b"]))), []);
    let parked = Message::Assembled { intent: talk.id(2), round: ROUND, answer: Assembled::Parked };
    assert_eq!(questions(&talk.hear(parked)), []);
    let next = talk.hear(talk.assembled(3, ["b", "c"]));
    assert_eq!(questions(&next), [(vec![talk.id(4)], speculation(&["a", "b"], &["c"]))]);
}

#[test]
fn an_answer_that_overtakes_a_lost_one_is_not_taken() {
    let mut talk = asking();
    talk.hear(talk.assembled(1, ["a", "b"]));
    let effects = talk.hear(talk.assembled(3, ["c", "d"]));
    assert_eq!(effects, [], "what it rests on is not here");
    let later = NOW + SequencerOptions::default().request_timeout;
    let again = talk.handle_at(later, Event::Time);
    let left = vec![talk.id(2), talk.id(3)];
    assert_eq!(questions(&again), [(left, speculation(&["a"], &["b"]))]);
}

#[test]
fn those_behind_an_assembly_that_cannot_stand_are_asked_for_again() {
    let mut talk = asking();
    talk.hear(talk.assembled(1, ["a", "b"]));
    let again = talk.hear(talk.assembled(2, ["a", "c"]));
    let rest = vec![talk.id(2), talk.id(3), talk.id(4)];
    assert_eq!(questions(&again), [(rest, speculation(&["a"], &["b"]))]);
    assert_eq!(talk.hear(talk.assembled(3, ["c", "d"])), [], "it rests on the second one");
}
