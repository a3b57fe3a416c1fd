//! The switchover of the original proposal: each of four senders has an intent that is confirmed, one that is
//! dispatched, and one that is pending when the range ends. Each side of it, step by step.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::super::events::{Effect, Event, LedgerView, LockEffect, LockEvent, Outcome, Restored};
use super::super::machine::Machine;
use super::super::options::{SequencerOptions, Threshold};
use super::super::placement::{Committee, Placement};
use super::super::shared::Config;
use super::super::words::{
    Assembled, Assembly, Contract, Endorsement, Epoch, HandedOver, Handover, Intent, IntentId, Message, Node,
    Phase, StateId, Transaction,
};
use super::plan::names;

const NOW: Duration = Duration::from_secs(1);
const RANGE: u64 = 4;

/// A node, and others that answer each question of it with a yes.
struct Desk {
    machine: Machine,
    me: Node,
    todo: VecDeque<Effect>,
}

/// Returns a contract of which the second range has another coordinator than the first one, and both.
fn contract() -> (Contract, Node, Node) {
    let committee = Committee::new(names(4), &names(4)[0]).expect("names differ");
    let first = |contract: &Contract, range| Placement::default().rank(contract, &committee, range).remove(0);
    let mut contracts = (0..).map(|number| Contract::new(&format!("c{number}")));
    let contract = contracts.find(|it| first(it, 0) != first(it, 1)).expect("three of four are such");
    let [old, new] = [0, 1].map(|range| first(&contract, range));
    (contract, old, new)
}

fn id(sender: &Node, number: u64) -> IntentId {
    IntentId::new(sender, &number.to_string())
}

fn ids(number: u64) -> BTreeSet<IntentId> {
    names(4).iter().map(|sender| id(sender, number)).collect()
}

fn made(intent: &IntentId) -> StateId {
    StateId::new(&format!("{}-{}", intent.sender, intent.name))
}

fn assembly(intent: &IntentId) -> Assembly {
    let outputs = vec![made(intent)];
    Assembly { intent: intent.clone(), inputs: Vec::new(), outputs, payload: Bytes::new() }
}

fn answer(effect: &Effect) -> Option<Event> {
    let from = |from: &Node, message| Some(Event::Message { from: from.clone(), message });
    match effect.clone() {
        Effect::Assemble { to, round, intent, .. } => {
            let answer = Ok(assembly(&intent.id));
            Some(Event::Assembled { to, round, intent: intent.id, answer })
        }
        Effect::Endorse { to, round, assembly } => {
            Some(Event::Endorsed { to, round, intent: assembly.intent, answer: Ok(()) })
        }
        Effect::Send { to, message: Message::Assemble { intents, round, .. } } => {
            let [intent] = &intents[..] else { panic!("one at a time: {intents:?}") };
            let answer = Assembled::Done(assembly(intent));
            from(&to, Message::Assembled { intent: intent.clone(), round, answer })
        }
        Effect::Send { to, message: Message::Endorse { round, assembly, .. } } => {
            let answer = Endorsement::Given;
            from(&to, Message::Endorsed { intent: assembly.intent, round, answer })
        }
        Effect::Send { to, message: Message::AskDispatch { intent, epoch, hash } } => {
            from(&to, Message::Granted { intent, epoch, hash })
        }
        _ => None,
    }
}

impl Desk {
    fn new(contract: &Contract, me: &Node) -> Desk {
        let committee = Committee::new(names(4), me).expect("names differ");
        let options = SequencerOptions {
            batch: 1,
            block_range: RANGE,
            threshold: Threshold::AtLeast(1),
            max_ahead: 8,
            ..SequencerOptions::default()
        };
        let (me, contract) = (me.clone(), contract.clone());
        let config = Config { me: me.clone(), contract, committee, options, bug: None };
        let machine = Machine::new(config, &Restored::default(), &LedgerView::default());
        Desk { machine: machine.expect("it can take part"), me, todo: VecDeque::new() }
    }

    fn handle(&mut self, event: Event) {
        self.machine.handle(NOW, event);
        self.todo.extend(std::iter::from_fn(|| self.machine.poll_effect()));
    }

    /// Answers all questions, and those that follow. Returns all that it does meanwhile.
    fn settle(&mut self) -> Vec<Effect> {
        let mut done = Vec::new();
        while let Some(effect) = self.todo.pop_front() {
            if let Some(event) = answer(&effect) {
                self.handle(event);
            }
            done.push(effect);
        }
        done
    }

    /// All senders have these intents, in this order.
    fn take(&mut self, height: u64, numbers: &[u64]) {
        for number in numbers {
            let intent = Intent { id: id(&self.me, *number), content: Bytes::new() };
            self.handle(Event::Submit(intent));
        }
        let me = self.me.clone();
        for from in names(4).into_iter().filter(|node| *node != me) {
            let intents = numbers.iter().map(|number| id(&from, *number)).collect();
            let message = Message::Delegate { height, skipped: BTreeSet::new(), intents };
            self.handle(Event::Message { from, message });
        }
    }

    fn block(&mut self, height: u64, confirmed: &[Transaction]) -> Vec<Effect> {
        let outcome = |it: &Transaction| Outcome { transaction: it.clone(), result: Ok(()) };
        self.handle(Event::Block { height, outcomes: confirmed.iter().map(outcome).collect() });
        self.settle()
    }
}

fn submitted(effects: &[Effect]) -> Vec<Transaction> {
    let transaction = |effect: &Effect| match effect {
        Effect::SubmitToLedger(transaction) => Some(transaction.clone()),
        _ => None,
    };
    effects.iter().filter_map(transaction).collect()
}

fn intents(transactions: &[Transaction]) -> BTreeSet<IntentId> {
    transactions.iter().map(|it| it.intent().clone()).collect()
}

/// Returns those of the old coordinator, and the handover that it writes.
fn old_side(contract: &Contract, old: &Node) -> (Vec<Transaction>, Handover) {
    let mut desk = Desk::new(contract, old);
    desk.take(0, &[1, 2, 3]);
    desk.handle(Event::Lock(LockEvent::Granted { epoch: Epoch(1), handover: None }));
    let dispatched = submitted(&desk.settle());
    assert_eq!(dispatched.len(), 8, "as many as it may be ahead");
    assert_eq!(intents(&dispatched[..4]), ids(1));
    assert_eq!(intents(&dispatched[4..]), ids(2));
    for height in 1..RANGE {
        assert_eq!(submitted(&desk.block(height, &[])), []);
    }
    // The boundary.
    let effects = desk.block(RANGE, &dispatched[..4]);
    assert_eq!(submitted(&effects), [], "it dispatches no more");
    assert_eq!(desk.machine.phase(), Phase::Flushing);
    for sender in names(4).into_iter().filter(|node| node != old) {
        let returned = Message::Returned { intents: vec![id(&sender, 3)], why: None };
        assert!(effects.contains(&Effect::Send { to: sender, message: returned }), "{effects:?}");
    }
    let delegates_own = |it: &Effect| {
        let own = [id(old, 3)];
        matches!(it, Effect::Send { message: Message::Delegate { intents, .. }, .. } if *intents == own)
    };
    assert!(effects.iter().any(delegates_own), "its own one, to the next coordinator: {effects:?}");
    let written = |it: &Effect| match it {
        Effect::Lock(LockEffect::WriteHandover(handover)) => Some(handover.clone()),
        _ => None,
    };
    let handover = effects.iter().find_map(written).expect("it hands over");
    let open = dispatched[4..].iter().cloned();
    let open: Vec<_> = open.map(|transaction| HandedOver { transaction, waited: Duration::ZERO }).collect();
    assert_eq!(handover, Handover { epoch: Epoch(1), dispatched: open, last: Some(dispatched[7].hash) });
    // It keeps the lock until the ledger has decided all of them.
    let release = Effect::Lock(LockEffect::Release);
    desk.handle(Event::Lock(LockEvent::HandoverWritten));
    let mut effects = desk.settle();
    effects.extend(desk.block(RANGE + 1, &dispatched[4..7]));
    assert!(!effects.contains(&release), "one is open: {effects:?}");
    assert!(desk.block(RANGE + 2, &dispatched[7..]).contains(&release));
    (dispatched, handover)
}

#[test]
fn the_old_coordinator_hands_over_what_is_dispatched_and_the_new_one_waits_for_it() {
    let (contract, old, new) = contract();
    let (dispatched, handover) = old_side(&contract, &old);
    let mut desk = Desk::new(&contract, &new);
    for height in 1..RANGE {
        desk.block(height, &[]);
    }
    desk.block(RANGE, &dispatched[..4]);
    // It assembles and endorses before it has the lock.
    desk.take(RANGE, &[3]);
    let effects = desk.settle();
    assert!(effects.contains(&Effect::Lock(LockEffect::Acquire)), "{effects:?}");
    let endorsed = |it: &&Effect| matches!(it, Effect::Endorse { .. });
    assert_eq!(effects.iter().filter(endorsed).count(), 4);
    // The handover is in the snapshot of its grant: also if the old one had died while it flushed.
    let handover = Some(handover);
    desk.handle(Event::Lock(LockEvent::Granted { epoch: Epoch(2), handover }));
    let message = Message::Delegate {
        height: RANGE,
        skipped: BTreeSet::new(),
        intents: vec![id(&old, 3), id(&old, 4)],
    };
    desk.handle(Event::Message { from: old.clone(), message });
    let mut effects = desk.settle();
    let rests_on_all = |it: &Effect| match it {
        Effect::Send { message: Message::Assemble { intents, speculation, .. }, .. } => {
            *intents == [id(&old, 4)] && ids(2).iter().all(|it| speculation.created.contains(&made(it)))
        }
        _ => false,
    };
    effects.extend(desk.block(RANGE + 1, &dispatched[4..7]));
    assert!(effects.iter().any(rests_on_all), "{effects:?}");
    assert_eq!(submitted(&effects), [], "one of the old coordinator is open");
    let now = submitted(&desk.block(RANGE + 2, &dispatched[7..]));
    let mut expected = ids(3);
    expected.insert(id(&old, 4));
    assert_eq!(intents(&now), expected);
    assert!(now.iter().all(|it| it.epoch == Epoch(2) && it.signer == new), "{now:?}");
}

/// Returns the question for an assembly of the intent, if there is one among the effects: its round, and the
/// states on which it may rest.
fn question(effects: &VecDeque<Effect>, of: &IntentId) -> Option<(u64, BTreeSet<StateId>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Assemble { intents, round, speculation }, .. } => {
            intents.contains(of).then(|| (*round, speculation.created.clone()))
        }
        _ => None,
    })
}

/// Its signer is gone for ever: assemblies that rest on its transaction would revert.
#[test]
fn nothing_rests_on_a_transaction_that_was_awaited_in_vain() {
    let (contract, old, new) = contract();
    let mut desk = Desk::new(&contract, &new);
    for height in 1..=RANGE {
        desk.block(height, &[]);
    }
    let other = names(4).into_iter().find(|it| *it != old && *it != new).expect("there are four");
    let (lost, intent) = (assembly(&id(&old, 1)), id(&other, 3));
    let message = Message::Delegate { height: RANGE, skipped: BTreeSet::new(), intents: vec![id(&other, 2)] };
    desk.handle(Event::Message { from: other.clone(), message });
    let (hash, signer) = (lost.hash(), old.clone());
    let transaction = Transaction { assembly: lost, hash, epoch: Epoch(1), signer, nonce: 1 };
    let dispatched = vec![HandedOver { transaction, waited: Duration::ZERO }];
    let handover = Some(Handover { epoch: Epoch(1), dispatched, last: None });
    desk.handle(Event::Lock(LockEvent::Granted { epoch: Epoch(2), handover }));
    desk.settle();
    let message =
        Message::Delegate { height: RANGE, skipped: BTreeSet::new(), intents: vec![intent.clone()] };
    desk.handle(Event::Message { from: other.clone(), message });
    let (round, created) = question(&desk.todo, &intent).expect("it is asked for");
    assert!(created.contains(&made(&id(&old, 1))), "it may rest on what was handed over: {created:?}");
    let (inputs, outputs) = (vec![made(&id(&old, 1))], vec![made(&intent)]);
    let rests = Assembly { intent: intent.clone(), inputs, outputs, payload: Bytes::new() };
    let answer = Assembled::Done(rests);
    let assembled = Message::Assembled { intent: intent.clone(), round, answer };
    desk.handle(Event::Message { from: other, message: assembled });
    desk.todo.retain(|it| !matches!(it, Effect::Send { message: Message::Assemble { .. }, .. }));
    desk.settle();
    desk.machine.handle(NOW + SequencerOptions::default().flush_timeout, Event::Time);
    desk.todo.extend(std::iter::from_fn(|| desk.machine.poll_effect()));
    assert_eq!(desk.machine.phase(), Phase::Active);
    let (_, created) = question(&desk.todo, &intent).expect("it is asked for again");
    assert!(!created.contains(&made(&id(&old, 1))), "{created:?}");
}
