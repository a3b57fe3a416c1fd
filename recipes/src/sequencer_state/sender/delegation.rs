//! The node to which a sender delegates, and how long it waits for what.

use std::time::Duration;

use super::super::bugs::Bug;
use super::super::options::SequencerOptions;
use super::super::shared::Shared;
use super::super::words::{Message, Node};
use super::{Sender, Stage, Task};

#[derive(Debug)]
pub(super) struct Delegation {
    pub to: Node,
    pub waits: Waits,
}

/// The thing that a sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing: it delegates now.
    Nothing,
    /// An answer. `since`: asked first; `sent`: asked last.
    ForAnswer { since: Duration, sent: Duration },
    /// Heartbeats that list its intents.
    ForBeats { since: Duration },
    /// To be asked again: the delegate is behind, or has no room, or is about to give up.
    Later { at: Duration },
    /// Its own height: the delegate is in that range already.
    ForRange(u64),
}

impl Delegation {
    /// A delegate that beats is asked again at once.
    pub fn on_beat(&mut self, now: Duration) {
        if let Waits::Later { at } = &mut self.waits {
            *at = now;
        }
    }
}

impl Sender {
    /// Returns the intents that are delegated, or are to be: the first ones of those that are not on their
    /// way to the ledger, and that have not failed too often.
    pub(super) fn window(&self, shared: &Shared) -> impl Iterator<Item = &Task> {
        let SequencerOptions { max_in_flight, max_failures, .. } = *shared.options();
        let is_open = move |task: &&Task| !task.is_dispatched() && !task.is_hopeless(max_failures);
        self.tasks.values().filter(is_open).take(max_in_flight)
    }

    pub(super) fn delegate_all(&mut self, now: Duration, shared: &mut Shared) {
        if self.window(shared).next().is_none() {
            self.delegation = None;
            return;
        }
        // A silent delegate is replaced by the next one, which owes nothing yet: there are few turns.
        for _ in 0..=shared.members().len() {
            self.follow_choice(shared);
            if !self.is_delegate_silent(now, shared) {
                break;
            }
            let to = self.delegate().expect("it was just chosen").clone();
            shared.presence.miss(&to);
        }
        self.ask(now, shared);
    }

    /// Delegates to the node that is to coordinate, if that is another one.
    fn follow_choice(&mut self, shared: &Shared) {
        if !self.is_delegate(shared.choice()) {
            self.tasks.values_mut().for_each(Task::take_back);
            self.delegation = Some(Delegation { to: shared.choice().clone(), waits: Waits::Nothing });
        }
    }

    /// Returns true if the delegate owes an answer or a heartbeat, and nothing was heard of it for too long.
    fn is_delegate_silent(&self, now: Duration, shared: &Shared) -> bool {
        self.silent_at(shared).is_some_and(|at| at <= now) && !shared.has(Bug::SilenceIgnored)
    }

    fn silent_at(&self, shared: &Shared) -> Option<Duration> {
        let Delegation { to, waits } = self.delegation.as_ref()?;
        match waits {
            Waits::ForAnswer { since, .. } | Waits::ForBeats { since } if to != shared.me() => {
                let heard = shared.presence.last_heard(to).unwrap_or_default();
                Some(heard.max(*since) + shared.silence())
            }
            _ => None,
        }
    }

    fn ask(&mut self, now: Duration, shared: &mut Shared) {
        let again_after = shared.options().request_timeout;
        let is_new = self.window(shared).any(|task| task.stage == Stage::Pending);
        let Some(delegation) = &mut self.delegation else { return };
        let since = match delegation.waits {
            Waits::Nothing => now,
            Waits::ForBeats { .. } if is_new => now,
            Waits::ForAnswer { since, .. } if is_new => since,
            Waits::ForAnswer { since, sent } if sent + again_after <= now => since,
            Waits::Later { at } if at <= now => now,
            Waits::ForRange(range) if range <= shared.range() => now,
            _ => return,
        };
        delegation.waits = Waits::ForAnswer { since, sent: now };
        let to = delegation.to.clone();
        let SequencerOptions { max_in_flight, max_failures, .. } = *shared.options();
        let is_open = |task: &&mut Task| !task.is_dispatched() && !task.is_hopeless(max_failures);
        let mut intents = Vec::new();
        for task in self.tasks.values_mut().filter(is_open).take(max_in_flight) {
            if task.stage == Stage::Pending {
                task.stage = Stage::Delegated { accepted: false };
            }
            intents.push(task.intent.id.clone());
        }
        let (height, skipped) = (shared.chain.height(), shared.presence.silent().clone());
        shared.send(&to, Message::Delegate { height, skipped, intents });
    }

    pub(super) fn delegation_deadline(&self, shared: &Shared) -> Option<Duration> {
        let at = match self.delegation.as_ref()?.waits {
            Waits::ForAnswer { sent, .. } => Some(sent + shared.options().request_timeout),
            Waits::Later { at } => Some(at),
            Waits::Nothing | Waits::ForBeats { .. } | Waits::ForRange(_) => None,
        };
        let silent_at = self.silent_at(shared).filter(|_| !shared.has(Bug::SilenceIgnored));
        at.into_iter().chain(silent_at).min()
    }
}
