//! The parts of a node's machine that sender, coordinator and endorser share.

use std::collections::VecDeque;
use std::time::Duration;

use super::bugs::Bug;
use super::chain::Chain;
use super::events::{Effect, LedgerView, Record};
use super::options::{SequencerOptions, Stickiness};
use super::placement::Committee;
use super::presence::Presence;
use super::words::{Beat, Contract, Message, Node, Phase};

/// The node, its contract and its options.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub me: Node,
    pub contract: Contract,
    pub committee: Committee,
    pub options: SequencerOptions,
    pub bug: Option<Bug>,
}

/// Something that this node says to itself.
#[derive(Debug)]
pub(super) enum Local {
    Message(Message),
    Beat(Beat),
}

#[derive(Debug)]
pub(super) struct Shared {
    config: Config,
    pub presence: Presence,
    pub chain: Chain,
    /// The rank of the committee in the range of the present height.
    rank: Vec<Node>,
    ranked: u64,
    /// The own phase and epoch, which need no heartbeat.
    own_beat: Option<Beat>,
    effects: VecDeque<Effect>,
    local: VecDeque<Local>,
}

impl Shared {
    pub fn new(config: Config, view: &LedgerView) -> Shared {
        // Senders whose views lag by less than that are told that an intent is confirmed.
        let kept = config.options.max_in_flight.saturating_mul(config.committee.members().len());
        let mut shared = Shared {
            config,
            presence: Presence::default(),
            chain: Chain::new(view, kept),
            rank: Vec::new(),
            ranked: 0,
            own_beat: None,
            effects: VecDeque::new(),
            local: VecDeque::new(),
        };
        shared.rerank();
        shared
    }

    pub fn me(&self) -> &Node {
        &self.config.me
    }

    pub fn members(&self) -> &[Node] {
        self.config.committee.members()
    }

    pub fn options(&self) -> &SequencerOptions {
        &self.config.options
    }

    pub fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.config.bug == Some(bug)
    }

    pub fn range(&self) -> u64 {
        self.options().range(self.chain.height())
    }

    /// Ranks the committee anew, for a new range.
    pub fn rerank(&mut self) {
        let Config { contract, committee, options, .. } = &self.config;
        self.ranked = self.range();
        self.rank = options.placement.rank(contract, committee, self.ranked);
        if self.has(Bug::OwnRank) {
            let own = self.rank.iter().position(|node| *node == self.config.me);
            self.rank.swap(0, own.expect("the committee names this node"));
        }
    }

    /// Returns the committee in the order of the present range.
    pub fn rank(&self) -> &[Node] {
        debug_assert_eq!(self.ranked, self.range(), "a new range has a new rank");
        &self.rank
    }

    /// Returns the node that is to coordinate, as far as this one knows: the first in rank that is not
    /// silent. A node is never silent for itself, so there is one.
    pub fn choice(&self) -> &Node {
        if self.options().stickiness == Stickiness::Stay
            && let Some(active) = self.active()
        {
            return active;
        }
        let first = self.rank().iter().find(|node| !self.presence.is_silent(node));
        first.expect("this node is not silent for itself")
    }

    pub fn is_first(&self) -> bool {
        self.choice() == self.me()
    }

    /// Returns the node that coordinates now, of several that one with the highest epoch, then the most
    /// preferred one.
    fn active(&self) -> Option<&Node> {
        let others = self.presence.beating().map(|(node, beating)| (node, beating.phase, beating.epoch));
        let own = self.own_beat.iter().map(|beat| (self.me(), beat.phase, beat.epoch));
        let active = others.chain(own).filter(|(_, phase, _)| phase.coordinates());
        let place = |node: &Node| self.rank.iter().position(|it| it == node);
        active.min_by_key(|(node, _, epoch)| (std::cmp::Reverse(*epoch), place(node))).map(|(node, ..)| node)
    }

    pub fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub fn persist(&mut self, record: Record) {
        self.effect(Effect::Persist(record));
    }

    pub fn send(&mut self, to: &Node, message: Message) {
        match to == self.me() {
            true => self.local.push_back(Local::Message(message)),
            false => self.effect(Effect::Send { to: to.clone(), message }),
        }
    }

    /// Tells all nodes, this one included.
    pub fn beat(&mut self, beat: Beat) {
        self.own_beat = Some(beat.clone()).filter(|beat| beat.phase != Phase::Idle);
        self.local.push_back(Local::Beat(beat.clone()));
        self.effect(Effect::Beat(beat));
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub fn poll_local(&mut self) -> Option<Local> {
        self.local.pop_front()
    }

    /// Returns the time after which a node that owes a sign is silent.
    pub fn silence(&self) -> Duration {
        self.options().silence()
    }
}
