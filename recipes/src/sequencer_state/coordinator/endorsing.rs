//! Assemblies that the committee is asked to endorse: any number at a time, each on top of those before it.
//! They leave in their order, so that a coordinator never dispatches one before those that it rests on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::super::shared::Shared;
use super::super::words::{Assembly, Endorsement, Epoch, IntentId, Message, Node};

#[derive(Debug, Default)]
pub(super) struct Endorsing {
    queue: VecDeque<Asked>,
}

/// An assembly, and the answers of the committee.
#[derive(Debug)]
struct Asked {
    assembly: Assembly,
    round: u64,
    answers: BTreeMap<Node, Endorsement>,
    since: Duration,
    /// The time at which those that have not answered are asked again.
    again_at: Duration,
}

/// The reason why an assembly is not endorsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotEndorsed {
    /// Too many members refuse.
    Denied(String),
    /// It takes too long: others are to have their turn.
    TooLong,
}

impl Endorsing {
    /// Asks for the endorsements of an assembly.
    pub fn push(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        (assembly, round): (Assembly, u64),
        epoch: Option<Epoch>,
    ) {
        let again_at = now + shared.options().request_timeout;
        let asked = Asked { assembly, round, answers: BTreeMap::new(), since: now, again_at };
        asked.ask(shared, epoch);
        self.queue.push_back(asked);
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn assemblies(&self) -> impl Iterator<Item = &Assembly> {
        self.queue.iter().map(|it| &it.assembly)
    }

    pub fn contains(&self, intent: &IntentId) -> bool {
        self.assemblies().any(|it| it.intent == *intent)
    }

    /// Takes an answer. Returns the assembly if the committee refuses it.
    pub fn on_answer(
        &mut self,
        now: Duration,
        shared: &Shared,
        from: &Node,
        (intent, round): (&IntentId, u64),
        answer: Endorsement,
    ) -> Option<(Assembly, NotEndorsed)> {
        let is_it = |it: &Asked| it.assembly.intent == *intent && it.round == round;
        let place = self.queue.iter().position(is_it)?;
        let why = self.queue[place].on_answer(now, shared, from, answer)?;
        self.queue.remove(place).map(|it| (it.assembly, why))
    }

    /// Asks again where it is time. Returns those that are given up.
    pub fn step(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        epoch: Option<Epoch>,
    ) -> Vec<(Assembly, NotEndorsed)> {
        let mut given_up = Vec::new();
        if self.deadline(shared).is_none_or(|at| at > now) {
            return given_up;
        }
        for mut asked in std::mem::take(&mut self.queue) {
            match asked.step(now, shared, epoch) {
                Some(why) => given_up.push((asked.assembly, why)),
                None => self.queue.push_back(asked),
            }
        }
        given_up
    }

    /// Returns the first assembly, if the committee agrees.
    pub fn pop(&mut self, shared: &Shared) -> Option<Assembly> {
        self.queue.front().filter(|it| it.is_endorsed(shared))?;
        self.queue.pop_front().map(|it| it.assembly)
    }

    /// Removes those that `keep` does not want, in order. Returns them.
    pub fn sieve(&mut self, mut keep: impl FnMut(&Assembly) -> bool) -> Vec<Assembly> {
        let mut removed = Vec::new();
        for asked in std::mem::take(&mut self.queue) {
            match keep(&asked.assembly) {
                true => self.queue.push_back(asked),
                false => removed.push(asked.assembly),
            }
        }
        removed
    }

    pub fn deadline(&self, shared: &Shared) -> Option<Duration> {
        let open = self.queue.iter().filter(|it| !it.is_endorsed(shared));
        open.map(|it| it.again_at.min(it.since + shared.options().state_timeout)).min()
    }
}

impl Asked {
    /// Asks all that have not answered; nobody but this node while its own endorsement is enough.
    fn ask(&self, shared: &mut Shared, epoch: Option<Epoch>) {
        let is_alone = self.may_be_alone(shared);
        let is_open = |node: &&Node| {
            let answer = self.answers.get(node);
            let has_to_answer = matches!(answer, None | Some(Endorsement::WrongCoordinator { .. }));
            has_to_answer && (!is_alone || *node == shared.me())
        };
        let asked: Vec<Node> = shared.members().iter().filter(is_open).cloned().collect();
        for node in asked {
            let (height, skipped) = (shared.chain.height(), shared.presence.silent().clone());
            let (round, assembly) = (self.round, self.assembly.clone());
            shared.send(&node, Message::Endorse { round, height, epoch, skipped, assembly });
        }
    }

    fn on_answer(
        &mut self,
        now: Duration,
        shared: &Shared,
        from: &Node,
        answer: Endorsement,
    ) -> Option<NotEndorsed> {
        if matches!(answer, Endorsement::WrongCoordinator { .. }) {
            self.again_at = self.again_at.min(now + shared.options().retry);
        }
        let was_alone = self.may_be_alone(shared);
        // An endorsement stands; a later answer to a question that was repeated does not take it back.
        if self.answers.get(from) != Some(&Endorsement::Given) {
            self.answers.insert(from.clone(), answer);
        }
        if was_alone && !self.may_be_alone(shared) {
            // Now the others are asked.
            self.again_at = now;
        }
        let members = shared.members().len();
        let spare = members - shared.options().endorsements(members);
        self.denials().nth(spare).filter(|_| !self.is_endorsed(shared)).cloned().map(NotEndorsed::Denied)
    }

    /// Returns true if one endorsement is enough, and this node has not refused its own.
    fn may_be_alone(&self, shared: &Shared) -> bool {
        let own = self.answers.get(shared.me());
        let is_enough = shared.options().endorsements(shared.members().len()) == 1;
        is_enough && matches!(own, None | Some(Endorsement::Given))
    }

    fn is_endorsed(&self, shared: &Shared) -> bool {
        let given = self.answers.values().filter(|it| **it == Endorsement::Given).count();
        given >= shared.options().endorsements(shared.members().len())
    }

    /// Returns the reasons of those that refuse.
    fn denials(&self) -> impl Iterator<Item = &String> {
        self.answers.values().filter_map(|it| match it {
            Endorsement::Denied(why) => Some(why),
            Endorsement::Given | Endorsement::WrongCoordinator { .. } => None,
        })
    }

    /// Asks again, or gives up.
    fn step(&mut self, now: Duration, shared: &mut Shared, epoch: Option<Epoch>) -> Option<NotEndorsed> {
        if self.is_endorsed(shared) {
            return None;
        }
        if self.since + shared.options().state_timeout <= now {
            // With those that are away it might be endorsed; the sender decides how often it tries.
            let denied = self.denials().next().cloned().map(NotEndorsed::Denied);
            return Some(denied.unwrap_or(NotEndorsed::TooLong));
        }
        if self.again_at <= now {
            // Those that were at another height are asked until they are not.
            let is_other = |it: &Endorsement| matches!(it, Endorsement::WrongCoordinator { .. });
            let options = shared.options();
            let any = self.answers.values().any(is_other);
            self.again_at = now + if any { options.retry } else { options.request_timeout };
            self.ask(shared, epoch);
        }
        None
    }
}
