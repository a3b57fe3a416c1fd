//! The intent whose turn it is: its sender is asked for an assembly. One at a time, as each rests on all
//! before it.

use std::time::Duration;

use super::super::shared::Shared;
use super::super::words::{IntentId, Message, Speculation};

#[derive(Debug)]
pub(super) struct Assembling {
    pub intent: IntentId,
    pub round: u64,
    speculation: Speculation,
    since: Duration,
    /// The time at which a sender that has not answered is asked again.
    again_at: Duration,
    asked_again: bool,
}

impl Assembling {
    /// Asks the sender for an assembly.
    pub fn begin(
        now: Duration,
        shared: &mut Shared,
        intent: IntentId,
        round: u64,
        speculation: Speculation,
    ) -> Assembling {
        let again_at = now + shared.options().request_timeout;
        let assembling = Assembling { intent, round, speculation, since: now, again_at, asked_again: false };
        assembling.ask(shared);
        assembling
    }

    fn ask(&self, shared: &mut Shared) {
        let (intent, speculation) = (self.intent.clone(), self.speculation.clone());
        shared.send(&self.intent.sender, Message::Assemble { intent, round: self.round, speculation });
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
