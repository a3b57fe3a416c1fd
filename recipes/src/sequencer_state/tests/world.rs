//! A world of nodes, a lock and a ledger.

mod nodes;
mod outside;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::nodes::Decided;
use super::super::events::{Event, LockEvent};
use super::super::machine::Machine;
use super::super::options::Stickiness;
use super::super::placement::Committee;
use super::super::shared::Config;
use super::super::words::{
    Assembly, Beat, Contract, Handover, Intent, IntentId, Message, Node, Phase, StateId, Transaction,
};
use super::checker::{Broken, Checker, check_agreement};
use super::database::Database;
use super::ledger::{Ledger, first_states};
use super::lock::{Lock, Ticket};
use super::plan::{CONTRACT, Ms, Plan, names};
use crate::dice::{Agenda, Dice};

/// A lease of the lock, after the crash of its holder.
pub const LEASE: Ms = 3_000;
/// The holder hears of a loss by so much before the lock is free.
const LOSS_LEAD: Ms = 100;
/// Everything is quiet for so long at the end.
const QUIET: Ms = 10_000;
/// A node compares its database with memory so often, in blocks.
const RESUMES_EVERY: u64 = 8;
/// Most events of a run: a conversation that never ends fails.
const MOST_EVENTS: u64 = 3_000_000;

#[derive(Clone)]
enum Packet {
    Message(Message),
    Beat(Beat),
}

enum Action {
    Submit(usize, Intent),
    Deliver {
        from: usize,
        to: usize,
        packet: Packet,
    },
    Tick(usize),
    /// A domain's answer, for that life of the node.
    Domain(usize, u64, Event),
    Mine,
    Pull(usize, u64),
    Ledger(Transaction),
    Acquire(Ticket),
    WriteHandover(u64, Handover),
    EndTicket(u64),
    LockNews(Ticket, LockEvent),
    LoseLock,
    Cut(BTreeSet<usize>, Ms),
    Crash(usize),
    Restart(usize),
    Heal,
    /// The round of that life of the node is over.
    Round(usize, u64),
}

struct SimNode {
    name: Node,
    machine: Option<Machine>,
    /// Counts the lives of the node.
    life: u64,
    began: Ms,
    tick_at: Option<Ms>,
    decided: VecDeque<Decided>,
    ticket: Option<Ticket>,
    /// The view of the ledger.
    height: u64,
    unspent: BTreeSet<StateId>,
    lag: u64,
}

pub struct World {
    plan: Plan,
    now: Ms,
    dice: Dice,
    agenda: Agenda<Ms, Action>,
    nodes: Vec<SimNode>,
    databases: BTreeMap<Node, Database>,
    pub ledger: Ledger,
    lock: Lock,
    tickets: u64,
    blocked: BTreeSet<u64>,
    /// Datacenters of one side of a partition, and its end.
    cut: Option<(BTreeSet<usize>, Ms)>,
    arrivals: BTreeMap<(usize, usize), Ms>,
    pub checker: Checker,
    pub crashes: u64,
    pub restarts: u64,
    /// A hash of all effects, in order, and their number.
    pub trace: u64,
    pub effects: u64,
    /// All effects are printed.
    is_told: bool,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let names = names(plan.nodes);
        let node = |name: &Node| SimNode {
            name: name.clone(),
            machine: None,
            life: 0,
            began: 0,
            tick_at: None,
            decided: VecDeque::new(),
            ticket: None,
            height: 0,
            unspent: BTreeSet::new(),
            lag: 0,
        };
        let mut world = World {
            now: 0,
            dice: Dice::new(seed),
            agenda: Agenda::default(),
            nodes: names.iter().map(node).collect(),
            databases: names.iter().map(|name| (name.clone(), Database::default())).collect(),
            ledger: Ledger::new(plan.states),
            lock: Lock::default(),
            tickets: 0,
            blocked: BTreeSet::new(),
            cut: None,
            arrivals: BTreeMap::new(),
            checker: Checker::new(plan.options.clone()),
            crashes: 0,
            restarts: 0,
            trace: 0,
            effects: 0,
            is_told: std::env::var_os("SEQUENCER_TRACE").is_some(),
            plan,
        };
        world.prepare(&names);
        world
    }

    /// Enters all that does not depend on the nodes.
    fn prepare(&mut self, names: &[Node]) {
        let plan = self.plan.clone();
        for number in 0..plan.nodes {
            self.agenda.enter(0, Action::Restart(number));
        }
        self.agenda.enter(plan.block, Action::Mine);
        for number in 0..plan.intents {
            let is_of_first = self.dice.percent(plan.of_first);
            let mut node = if is_of_first { 0 } else { self.dice.place(plan.nodes) };
            if self.is_gone(node) {
                node = (node + 1) % plan.nodes;
            }
            let kind = match self.dice.below(100) {
                roll if roll < plan.invalid => "invalid",
                roll if roll < plan.invalid + plan.denied => "denied",
                roll if roll < plan.invalid + plan.denied + plan.refused => "refused",
                _ => "good",
            };
            let id = IntentId::new(&names[node], &format!("{kind}-{number}"));
            let intent = Intent { id, content: bytes::Bytes::new() };
            let at = self.dice.below(plan.submit_within);
            self.agenda.enter(at, Action::Submit(node, intent));
        }
        for _ in 0..plan.losses {
            let at = self.dice.below(plan.trouble_until);
            self.agenda.enter(at, Action::LoseLock);
        }
        if let Some((side, from, until)) = plan.cut_off {
            self.agenda.enter(from, Action::Cut(side.iter().copied().collect(), until));
        }
        for (node, lag) in self.nodes.iter_mut().zip(&plan.lags) {
            node.lag = *lag;
        }
        for _ in 0..plan.cuts {
            let side = (0..plan.dcs).filter(|_| self.dice.percent(50)).collect();
            let (at, time) = (self.dice.below(plan.trouble_until), self.dice.below(plan.cut));
            self.agenda.enter(at, Action::Cut(side, (at + time).min(plan.trouble_until)));
        }
        if let Some((node, at, _)) = plan.dies {
            self.agenda.enter(at, Action::Crash(node));
        }
        self.agenda.enter(plan.trouble_until, Action::Heal);
    }

    /// Returns true for a node that dies and never comes back.
    fn is_gone(&self, number: usize) -> bool {
        self.plan.dies.is_some_and(|(node, _, for_ever)| for_ever && node == number)
    }

    fn is_trouble(&self) -> bool {
        self.now < self.plan.trouble_until
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.is_trouble() && self.dice.percent(percent)
    }

    fn soon(&mut self, action: Action) {
        let at = self.now + 1 + self.dice.below(self.plan.delay);
        self.agenda.enter(at, action);
    }

    pub fn run(mut self) -> Result<World, Broken> {
        let until = self.plan.trouble_until + self.plan.settles_within;
        for _ in 0..MOST_EVENTS {
            let Some((at, action)) = self.agenda.next().filter(|(at, _)| *at <= until) else {
                self.check_end(until)?;
                return Ok(self);
            };
            self.now = at;
            self.perform(action)?;
        }
        Err("it goes on for ever".to_owned())
    }

    fn check_end(&self, until: Ms) -> Result<(), Broken> {
        if let Some((open, _)) = self.checker.open().next() {
            return Err(format!("{open:?} waits for ever"));
        }
        if self.plan.is_calm && !self.ledger.reverts.is_empty() {
            return Err(format!("without trouble the ledger reverts: {:?}", self.ledger.reverts));
        }
        if self.checker.submitted.len() != self.plan.intents {
            return Err("an intent was never taken".to_owned());
        }
        let is_idle = |node: &SimNode| {
            node.machine.as_ref().is_some_and(|it| it.phase() == Phase::Idle && it.delegate().is_none())
        };
        let mut living =
            (0..self.nodes.len()).filter(|node| !self.is_gone(*node)).map(|node| &self.nodes[node]);
        if let Some(node) = living.find(|node| !is_idle(node)) {
            return Err(format!("{} does not come to rest", node.name));
        }
        if self.lock.holder.is_some() || !self.lock.queue.is_empty() {
            return Err("the lock is not let go".to_owned());
        }
        if self.checker.last_message + QUIET > until {
            return Err("there are messages, and nothing to do".to_owned());
        }
        Ok(())
    }

    fn perform(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Submit(node, intent) => self.submit(node, intent)?,
            Action::Deliver { from, to, packet } => {
                let from = self.nodes[from].name.clone();
                let event = match packet {
                    Packet::Message(message) => Event::Message { from, message },
                    Packet::Beat(beat) => Event::Beat { from, beat },
                };
                self.handle(to, event)?;
            }
            Action::Tick(node) => {
                if self.nodes[node].tick_at == Some(self.now) {
                    self.nodes[node].tick_at = None;
                    self.handle(node, Event::Time)?;
                }
            }
            Action::Domain(node, life, event) => {
                if self.nodes[node].life == life {
                    self.handle(node, event)?;
                }
            }
            Action::Mine => self.mine()?,
            Action::Pull(node, height) => self.pull(node, height)?,
            Action::Ledger(transaction) => self.ledger.submit(transaction),
            Action::Acquire(ticket) => self.lock.queue.push(ticket),
            Action::WriteHandover(number, handover) => self.write_handover(number, handover),
            Action::EndTicket(number) => self.lock.end(number),
            Action::LockNews(ticket, event) => {
                let node = &mut self.nodes[ticket.node];
                if node.ticket == Some(ticket) {
                    if matches!(event, LockEvent::Lost) {
                        node.ticket = None;
                    }
                    self.handle(ticket.node, Event::Lock(event))?;
                }
            }
            Action::LoseLock => self.lose_lock(),
            Action::Round(node, life) => {
                if self.nodes[node].life == life {
                    self.effects(node, false)?;
                }
            }
            Action::Cut(side, until) => self.cut = Some((side, until)),
            Action::Crash(node) => self.crash(node, None),
            Action::Restart(node) => self.restart(node)?,
            Action::Heal => {
                self.cut = None;
                for node in (0..self.nodes.len()).filter(|node| !self.is_gone(*node)).collect::<Vec<_>>() {
                    self.nodes[node].lag = 0;
                    self.agenda.enter(self.now, Action::Restart(node));
                }
            }
        }
        self.serve_lock();
        Ok(())
    }

    /// The application submits again until it has an answer.
    fn submit(&mut self, node: usize, intent: Intent) -> Result<(), Broken> {
        if self.checker.submitted.contains_key(&intent.id) {
            return Ok(());
        }
        // Records that are not written yet are written before the database is read.
        self.effects(node, false)?;
        let is_ended = self.databases[&self.nodes[node].name].ended.contains_key(&intent.id);
        if is_ended {
            // It was told of the end, and its process died before the answer.
            self.checker.submitted.insert(intent.id, self.now);
            return Ok(());
        }
        self.agenda.enter(self.now + 700, Action::Submit(node, intent.clone()));
        self.handle(node, Event::Submit(intent))
    }

    fn mine(&mut self) -> Result<(), Broken> {
        self.ledger.mine(&mut self.dice);
        self.checker.on_block(&self.ledger)?;
        let healed = self.plan.trouble_until;
        let is_late = |(_, at): &(&IntentId, Ms)| healed.max(*at) + self.plan.patience < self.now;
        if let Some((late, _)) = self.checker.open().find(is_late) {
            return Err(format!("{late:?} waits too long"));
        }
        let height = self.ledger.height();
        self.agenda.enter(self.now + self.plan.block, Action::Mine);
        for node in 0..self.nodes.len() {
            if self.plan.lags.is_empty() && self.happens(10) {
                self.nodes[node].lag = self.dice.below(self.plan.lag + 1);
            }
            self.soon(Action::Pull(node, height.saturating_sub(self.nodes[node].lag)));
        }
        let options = &self.plan.options;
        if options.stickiness == Stickiness::Stay {
            return Ok(());
        }
        let views = self.nodes.iter().filter_map(|node| {
            let machine = node.machine.as_ref()?;
            Some((options.range(node.height), machine.silent(), machine.choice()))
        });
        check_agreement(views)
    }

    fn pull(&mut self, node: usize, until: u64) -> Result<(), Broken> {
        while self.nodes[node].machine.is_some() && self.nodes[node].height < until {
            self.nodes[node].height += 1;
            let height = self.nodes[node].height;
            let outcomes = self.ledger.blocks[height as usize - 1].clone();
            self.see_states(node, height);
            self.handle(node, Event::Block { height, outcomes })?;
            if height.is_multiple_of(RESUMES_EVERY) {
                self.resume(node, height)?;
                self.resume(node, self.ledger.height())?;
            }
        }
        Ok(())
    }

    /// The database is compared with memory, which changes nothing.
    fn resume(&mut self, node: usize, height: u64) -> Result<(), Broken> {
        self.effects(node, false)?;
        let database = &self.databases[&self.nodes[node].name];
        let (restored, view) = (database.restore(), self.ledger.view(height, &database.intents));
        self.handle(node, Event::Resumed { restored, view })
    }

    fn see_states(&mut self, node: usize, height: u64) {
        let unspent = &mut self.nodes[node].unspent;
        for outcome in self.ledger.blocks[height as usize - 1].iter().filter(|it| it.result.is_ok()) {
            let Assembly { inputs, outputs, .. } = &outcome.transaction.assembly;
            unspent.retain(|state| !inputs.contains(state));
            unspent.extend(outputs.iter().cloned());
        }
    }

    fn restart(&mut self, number: usize) -> Result<(), Broken> {
        if self.nodes[number].machine.is_some() || self.is_gone(number) && self.now > 0 {
            return Ok(());
        }
        let lag = self.nodes[number].lag;
        // A view that goes back is another one's: this node waits until it is where it was.
        let height = self.ledger.height().saturating_sub(lag).max(self.nodes[number].height);
        self.nodes[number].unspent = first_states(self.plan.states).collect();
        for height in 1..=height {
            self.see_states(number, height);
        }
        let node = &mut self.nodes[number];
        let database = &self.databases[&node.name];
        self.checker.on_restart(database, &self.ledger)?;
        let config = Config {
            me: node.name.clone(),
            contract: Contract::new(CONTRACT),
            committee: Committee::new(names(self.plan.nodes), &node.name).expect("names differ"),
            options: self.plan.options.clone(),
            bug: self.plan.bug,
        };
        let view = self.ledger.view(height, &database.intents);
        node.machine = Some(Machine::new(config, &database.restore(), &view).expect("its own database"));
        (node.height, node.began, node.tick_at) = (height, self.now, None);
        self.restarts += u64::from(node.life > 0);
        self.decide(number);
        self.effects(number, false)?;
        self.tick(number)
    }

    fn crash(&mut self, number: usize, back_after: Option<Ms>) {
        let node = &mut self.nodes[number];
        (node.machine, node.tick_at) = (None, None);
        node.decided.clear();
        node.life += 1;
        self.crashes += 1;
        if let Some(ticket) = node.ticket.take() {
            self.agenda.enter(self.now + LEASE, Action::EndTicket(ticket.number));
        }
        if let Some(after) = back_after {
            self.agenda.enter(self.now + after, Action::Restart(number));
        }
    }
}
