//! The machine of one node for one contract: sender, coordinator and endorser, `now` and an event in,
//! effects out.
//!
//! `now` is the time since this process began to take part. It never goes back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::bugs::Bug;
use super::coordinator::Coordinator;
use super::endorser;
use super::events::{Effect, Event, Grant, LedgerView, Outcome, Restored, StartError};
use super::sender::Sender;
use super::shared::{Config, Local, Shared};
use super::words::{Assembly, Beat, Endorsement, Epoch, IntentId, Message, Node, Phase};

/// Most times that a node talks to itself in one step. A conversation has at most one round for each intent
/// of the window of its own sender.
const MAX_TURNS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Machine {
    shared: Shared,
    sender: Sender,
    coordinator: Coordinator,
    now: Duration,
}

impl Machine {
    /// Begins at time 0 with the node's database and its view of the ledger.
    pub fn new(config: Config, restored: &Restored, view: &LedgerView) -> Result<Machine, StartError> {
        config.options.check(config.committee.members().len())?;
        restored.check(&config.me, &config.contract)?;
        let mut shared = Shared::new(config, view);
        let sender = Sender::new(&mut shared, restored, view);
        let coordinator = Coordinator::new(&mut shared, restored);
        let mut machine = Machine { shared, sender, coordinator, now: Duration::ZERO };
        machine.settle();
        Ok(machine)
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.shared.poll_effect()
    }

    /// Returns when [`Event::Time`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        let silence = self.shared.presence.deadline(self.shared.silence());
        let silence = silence.filter(|_| !self.shared.has(Bug::SilenceIgnored));
        let sender = self.sender.deadline(&self.shared);
        let coordinator = self.coordinator.deadline(self.now, &self.shared);
        silence.into_iter().chain(sender).chain(coordinator).min()
    }

    pub fn handle(&mut self, now: Duration, event: Event) {
        debug_assert!(now >= self.now, "time does not go back");
        self.now = now;
        if !self.shared.has(Bug::SilenceIgnored) {
            self.shared.presence.expire(now, self.shared.silence());
        }
        match event {
            Event::Submit(intent) => self.sender.on_submit(&mut self.shared, intent),
            Event::Message { from, .. } | Event::Beat { from, .. } if !self.is_other_member(&from) => {}
            Event::Message { from, message } => {
                self.shared.presence.hear(now, &from);
                self.on_message(&from, message);
            }
            Event::Beat { from, beat } => {
                self.shared.presence.hear(now, &from);
                self.on_beat(&from, &beat);
            }
            Event::Lock(event) => self.coordinator.on_lock(now, &mut self.shared, event),
            Event::Block { height, outcomes } => self.on_block(height, &outcomes),
            Event::Assembled { to, round, intent, answer } => {
                self.sender.on_assembled(&mut self.shared, &to, round, &intent, answer);
            }
            Event::Endorsed { to, round, intent, answer } => {
                self.shared.send(&to, Message::Endorsed { intent, round, answer: answer.into() });
            }
            Event::NotSubmitted { nonce } => self.coordinator.on_not_submitted(now, &self.shared, nonce),
            Event::Resumed { restored, view } => self.on_resumed(&restored, &view),
            Event::Time => {}
        }
        self.settle();
    }

    /// Returns true for a node that this one listens to.
    fn is_other_member(&self, node: &Node) -> bool {
        node != self.shared.me() && self.shared.members().contains(node)
    }

    /// Lets both halves do what they can, until they have nothing more to say to each other.
    fn settle(&mut self) {
        let me = self.shared.me().clone();
        for _ in 0..MAX_TURNS {
            self.sender.step(self.now, &mut self.shared);
            self.coordinator.step(self.now, &mut self.shared);
            match self.shared.poll_local() {
                Some(Local::Message(message)) => self.on_message(&me, message),
                Some(Local::Beat(beat)) => self.sender.on_beat(self.now, &self.shared, &me, &beat),
                None => return,
            }
        }
        panic!("a node settles with itself");
    }

    fn on_beat(&mut self, from: &Node, beat: &Beat) {
        self.shared.presence.hear_beat(self.now, from, beat);
        self.sender.on_beat(self.now, &self.shared, from, beat);
        self.coordinator.on_beat(self.now, beat);
    }

    /// A block that does not follow the last one is passed over: the ledger has gone back, or lacks a block,
    /// and this node waits until it has the next one.
    fn on_block(&mut self, height: u64, outcomes: &[Outcome]) {
        let before = self.shared.range();
        if !self.shared.chain.take(height, outcomes) {
            return;
        }
        if self.shared.range() != before {
            self.shared.rerank();
        }
        self.sender.on_block(&mut self.shared, outcomes);
        self.coordinator.on_block(self.now, &mut self.shared, outcomes);
    }

    /// Takes up what only the database has. A view of another height is passed over: one that is ahead knows
    /// of blocks that this node has not seen, and one that is behind does not know what became of an intent
    /// in the blocks since then.
    fn on_resumed(&mut self, restored: &Restored, view: &LedgerView) {
        if view.height != self.shared.chain.height() {
            return;
        }
        self.sender.on_resumed(self.now, &mut self.shared, restored, view);
        self.coordinator.on_resumed(&mut self.shared, restored);
    }

    fn on_message(&mut self, from: &Node, message: Message) {
        let Machine { shared, sender, coordinator, now } = self;
        let now = *now;
        match message {
            // Nobody but its sender answers for an intent.
            Message::Assembled { intent, .. }
            | Message::Granted { intent, .. }
            | Message::Refused { intent, .. }
                if intent.sender != *from => {}
            Message::Delegate { height, skipped, intents } => {
                coordinator.on_delegate(now, shared, from, (height, &skipped), intents);
            }
            Message::Delegated { accepted, dispatched, full } => {
                sender.on_delegated(now, shared, from, [&accepted, &dispatched, &full]);
            }
            Message::Rejected(why) => sender.on_rejected(now, shared, from, &why),
            Message::Assemble { intents, round, speculation } => {
                sender.on_assemble(shared, from, round, intents, speculation);
            }
            Message::Assembled { intent, round, answer } => {
                coordinator.on_assembled(now, shared, &intent, round, answer);
            }
            Message::Endorse { round, height, skipped, assembly, .. } => {
                self.on_endorse(from, (round, height), &skipped, assembly);
            }
            Message::Endorsed { intent, round, answer } => {
                coordinator.on_endorsed(now, shared, from, (&intent, round), answer);
            }
            Message::AskDispatch { intent, epoch, hash } => {
                sender.on_ask_dispatch(shared, from, &intent, epoch, hash);
            }
            Message::Granted { intent, epoch, hash } => {
                coordinator.on_dispatch_granted(shared, &intent, epoch, hash);
            }
            Message::Refused { intent, epoch, hash, why } => {
                coordinator.on_dispatch_refused(now, shared, &intent, (epoch, hash), why);
            }
            Message::Dispatched(notice) => sender.on_dispatched(now, shared, from, &notice),
            Message::DispatchedAck(notice) => coordinator.on_ack(from, &notice),
            Message::Revoke { intent, epoch, hash } => {
                coordinator.on_revoke(
                    now,
                    shared,
                    from,
                    Grant { intent, to: shared.me().clone(), epoch, hash },
                );
            }
            Message::Revoked { intent, epoch, hash, height } => {
                sender.on_revoked(shared, Grant { intent, to: from.clone(), epoch, hash }, height);
            }
            Message::Returned { intents, why } => sender.on_returned(shared, from, &intents, why.as_deref()),
        }
    }

    fn on_endorse(
        &mut self,
        from: &Node,
        (round, height): (u64, u64),
        skipped: &BTreeSet<Node>,
        assembly: Assembly,
    ) {
        if endorser::accepts(&self.shared, from, height, skipped) {
            return self.shared.effect(Effect::Endorse { to: from.clone(), round, assembly });
        }
        let answer = Endorsement::WrongCoordinator { height: self.shared.chain.height() };
        self.shared.send(from, Message::Endorsed { intent: assembly.intent, round, answer });
    }

    /// Returns the node that this one takes for the coordinator.
    pub fn choice(&self) -> &Node {
        self.shared.choice()
    }

    /// Returns the committee in the order in which it is to coordinate.
    pub fn rank(&self) -> &[Node] {
        self.shared.rank()
    }

    /// Returns the height of this node's view of the ledger.
    pub fn height(&self) -> u64 {
        self.shared.chain.height()
    }

    /// Returns the epoch under which it may dispatch.
    pub fn epoch(&self) -> Option<Epoch> {
        self.coordinator.epoch()
    }

    /// Returns the highest nonce that this node has used, as far as its database and the ledger know.
    pub fn last_nonce(&self) -> u64 {
        self.coordinator.last_nonce()
    }

    /// Returns the names of the intents that have not ended.
    pub fn undecided(&self) -> impl ExactSizeIterator<Item = &IntentId> {
        self.sender.undecided()
    }

    /// Returns true if the intent has not ended.
    pub fn is_undecided(&self, intent: &IntentId) -> bool {
        self.sender.has(intent)
    }

    /// Returns the node that this one delegates to.
    pub fn delegate(&self) -> Option<&Node> {
        self.sender.delegate()
    }

    /// Returns the state of its coordinator.
    pub fn phase(&self) -> Phase {
        self.coordinator.phase()
    }

    /// Returns the nodes that are silent for this one.
    pub fn silent(&self) -> &BTreeSet<Node> {
        self.shared.presence.silent()
    }
}
