//! The signs of life of the other nodes, as this one has heard them.
//!
//! Nobody votes on who is away. A node that owes a sign (an answer, a heartbeat) and gives none is silent for
//! the one that waits, until it is heard again, by any message.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::words::{Beat, Epoch, Node, Phase};

/// The latest heartbeat of a coordinator that owes the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beating {
    at: Duration,
    pub phase: Phase,
    pub epoch: Option<Epoch>,
    pub height: u64,
}

#[derive(Debug, Default)]
pub(super) struct Presence {
    heard: BTreeMap<Node, Duration>,
    silent: BTreeSet<Node>,
    beating: BTreeMap<Node, Beating>,
}

impl Presence {
    /// Notes a sign of life.
    pub fn hear(&mut self, now: Duration, node: &Node) {
        self.silent.remove(node);
        self.heard.insert(node.clone(), now);
    }

    /// Notes a heartbeat. One that says that the node has given up is its last: it owes no further one.
    pub fn hear_beat(&mut self, now: Duration, node: &Node, beat: &Beat) {
        match beat.phase {
            Phase::Electing | Phase::Active | Phase::Flushing => {
                let Beat { phase, epoch, height, .. } = *beat;
                self.beating.insert(node.clone(), Beating { at: now, phase, epoch, height });
            }
            Phase::Closing | Phase::Idle => {
                self.beating.remove(node);
            }
        }
    }

    /// Notes that a node owes a sign for too long.
    pub fn miss(&mut self, node: &Node) {
        self.silent.insert(node.clone());
        self.beating.remove(node);
    }

    /// Takes another node's word that these are silent, except for those that this one has heard within the
    /// time after which a node is silent.
    pub fn believe_silent(&mut self, now: Duration, limit: Duration, nodes: &BTreeSet<Node>) {
        let is_quiet = |node: &&Node| self.heard.get(*node).is_none_or(|at| *at + limit <= now);
        self.silent.extend(nodes.iter().filter(is_quiet).cloned());
    }

    /// Misses the coordinators whose heartbeats have stopped.
    pub fn expire(&mut self, now: Duration, limit: Duration) {
        let is_late = |beating: &Beating| beating.at + limit <= now;
        let late: Vec<Node> =
            self.beating.iter().filter(|(_, it)| is_late(it)).map(|(node, _)| node.clone()).collect();
        late.iter().for_each(|node| self.miss(node));
    }

    /// Returns when [`Presence::expire`] has something to do.
    pub fn deadline(&self, limit: Duration) -> Option<Duration> {
        self.beating.values().map(|it| it.at + limit).min()
    }

    pub fn last_heard(&self, node: &Node) -> Option<Duration> {
        self.heard.get(node).copied()
    }

    pub fn silent(&self) -> &BTreeSet<Node> {
        &self.silent
    }

    pub fn is_silent(&self, node: &Node) -> bool {
        self.silent.contains(node)
    }

    /// Returns the other nodes that coordinate, or flush.
    pub fn beating(&self) -> impl Iterator<Item = (&Node, &Beating)> {
        self.beating.iter()
    }

    pub fn is_beating(&self, node: &Node) -> bool {
        self.beating.contains_key(node)
    }
}
