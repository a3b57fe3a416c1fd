//! Events and effects of the nodes. A node works in rounds: what it decides on is written and told at the end
//! of one, but what rests on no record at once.

use std::time::Duration;

use super::super::super::events::{Effect, Event};
use super::super::super::machine::Machine;
use super::super::super::words::Node;
use super::super::checker::{Broken, Sight};
use super::super::plan::Ms;
use super::{Action, SimNode, World};

/// Longest round.
const LONGEST_ROUND: Ms = 3;

/// An effect that was not performed yet, and what its node went by when it decided on it.
pub(super) struct Decided {
    effect: Effect,
    choice: Node,
    rank: Vec<Node>,
    delegate: Option<Node>,
}

impl World {
    pub(super) fn handle(&mut self, number: usize, event: Event) -> Result<(), Broken> {
        let node = &mut self.nodes[number];
        let now = Duration::from_millis(self.now - node.began);
        let Some(machine) = &mut node.machine else { return Ok(()) };
        machine.handle(now, event);
        self.decide(number);
        let goes_on = self.happens(self.plan.rounds);
        if goes_on {
            let (at, life) = (self.now + 1 + self.dice.below(LONGEST_ROUND), self.nodes[number].life);
            self.agenda.enter(at, Action::Round(number, life));
        }
        self.effects(number, goes_on)?;
        self.tick(number)
    }

    /// Takes the effects of the machine.
    pub(super) fn decide(&mut self, number: usize) {
        let SimNode { machine, decided, .. } = &mut self.nodes[number];
        let Some(machine) = machine else { return };
        while let Some(effect) = machine.poll_effect() {
            let (choice, rank) = (machine.choice().clone(), machine.rank().to_vec());
            decided.push_back(Decided { effect, choice, rank, delegate: machine.delegate().cloned() });
        }
    }

    /// Performs the effects of a node: those that rest on no record, and then, unless the round goes on, the
    /// others in order. The node may crash before and after each.
    pub(super) fn effects(&mut self, number: usize, goes_on: bool) -> Result<(), Broken> {
        loop {
            let decided = &mut self.nodes[number].decided;
            let early = decided.iter().position(|it| !it.effect.rests_on_records());
            let next = early.or((!goes_on).then_some(0)).and_then(|place| decided.remove(place));
            let Some(decided) = next else { break };
            let mut crashes = self.is_trouble() && self.dice.below(10_000) < self.plan.crashes;
            let mut is_before = self.dice.percent(50);
            self.effects += 1;
            if let Some((at, before)) = self.plan.crash_at
                && at == self.effects
            {
                (crashes, is_before) = (true, before);
            }
            let down = 1 + self.dice.below(self.plan.down);
            if crashes && is_before {
                self.crash(number, Some(down));
                return Ok(());
            }
            self.check(number, &decided)?;
            self.carry_out(number, decided.effect);
            if crashes {
                self.crash(number, Some(down));
                return Ok(());
            }
        }
        Ok(())
    }

    fn check(&mut self, number: usize, decided: &Decided) -> Result<(), Broken> {
        let Decided { effect, choice, rank, delegate } = decided;
        let text = format!("{number} {effect:?}");
        let hash = text.bytes().fold(self.trace ^ self.now, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        self.trace = hash;
        if self.is_told {
            eprintln!("{:>7} {text}", self.now);
        }
        let node = &self.nodes[number];
        let holder = self.lock.holder.map(|(ticket, epoch)| (&self.nodes[ticket.node].name, epoch));
        let sight = Sight {
            now: self.now,
            me: &node.name,
            databases: &self.databases,
            ledger: &self.ledger,
            holder,
            choice,
            rank,
            delegate: delegate.as_ref(),
        };
        self.checker.on_effect(&sight, effect)
    }

    pub(super) fn tick(&mut self, number: usize) -> Result<(), Broken> {
        let node = &mut self.nodes[number];
        let Some(due) = node.machine.as_ref().and_then(Machine::deadline) else { return Ok(()) };
        let due = node.began + u64::try_from(due.as_millis()).expect("a run is short");
        if due <= self.now {
            return Err(format!("{} does not do what is due", node.name));
        }
        if node.tick_at.is_none_or(|at| at > due || at <= self.now) {
            node.tick_at = Some(due);
            self.agenda.enter(due, Action::Tick(number));
        }
        Ok(())
    }
}
