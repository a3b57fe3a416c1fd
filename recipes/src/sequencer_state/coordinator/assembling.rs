//! The sender whose turn it is: it is asked to assemble some of its intents, one on top of the other. One
//! sender at a time, as each assembly rests on all before it.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::bugs::Bug;
use super::super::shared::Shared;
use super::super::words::{Assembly, IntentId, Message, Node, Speculation};

#[derive(Debug)]
pub(super) struct Assembling {
    pub sender: Node,
    pub round: u64,
    /// Those without an answer, in order: at least one, until the last one is answered.
    intents: VecDeque<IntentId>,
    /// The effect of everything that the first of them rests on.
    speculation: Speculation,
    since: Duration,
    /// The time at which a sender that has not answered is asked again.
    again_at: Duration,
    asked_again: bool,
}

impl Assembling {
    /// Asks the sender of these for assemblies.
    pub fn begin(
        now: Duration,
        shared: &mut Shared,
        (sender, intents): (Node, VecDeque<IntentId>),
        round: u64,
        speculation: Speculation,
    ) -> Assembling {
        let again_at = now + shared.options().request_timeout;
        let assembling =
            Assembling { sender, intents, round, speculation, since: now, again_at, asked_again: false };
        assembling.ask(shared);
        assembling
    }

    fn ask(&self, shared: &mut Shared) {
        let (intents, speculation) = (self.intents().cloned().collect(), self.speculation.clone());
        shared.send(&self.sender, Message::Assemble { intents, round: self.round, speculation });
    }

    /// Returns those without an answer.
    pub fn intents(&self) -> impl DoubleEndedIterator<Item = &IntentId> {
        self.intents.iter()
    }

    /// Takes an answer for the first intent: true if it was awaited. Those behind it rest on its assembly, so
    /// an answer that overtakes others says nothing: they are asked for again.
    pub fn on_answer(&mut self, now: Duration, shared: &Shared, intent: &IntentId, round: u64) -> bool {
        let place = if shared.has(Bug::GapTaken) {
            self.intents.iter().position(|it| it == intent)
        } else {
            (self.intents.front() == Some(intent)).then_some(0)
        };
        let is_awaited = self.round == round && place.is_some();
        if is_awaited {
            place.and_then(|place| self.intents.remove(place));
            (self.since, self.asked_again) = (now, false);
            self.again_at = now + shared.options().request_timeout;
        }
        is_awaited
    }

    /// The next ones rest on this assembly.
    pub fn add(&mut self, assembly: &Assembly) {
        self.speculation.add(assembly);
    }

    pub fn is_done(&self) -> bool {
        self.intents.is_empty()
    }

    /// Asks again when it is time. Returns false if the sender does not answer.
    pub fn step(&mut self, now: Duration, shared: &mut Shared) -> bool {
        let (timeout, retry) = (shared.options().state_timeout, shared.options().request_timeout);
        if self.since + timeout <= now {
            return false;
        }
        if self.again_at > now {
            return true;
        }
        if self.asked_again {
            return false;
        }
        (self.again_at, self.asked_again) = (now + retry, true);
        self.ask(shared);
        true
    }

    pub fn deadline(&self, shared: &Shared) -> Duration {
        self.again_at.min(self.since + shared.options().state_timeout)
    }
}
