//! Two histories of one log: how they show, and how people keep one of them.

use super::disks::History;
use super::{Node, Phase, World};
use crate::replica::Inspect;
use crate::replica::call::Phase as ReplicaPhase;
use crate::sim::disk::Disk;
use crate::sim::oracle::Holders;
use geolock_api::names::DcId;

impl World {
    /// Returns a description of two nodes that have different entries under one number.
    pub fn difference(&self) -> Option<String> {
        let pairs = self.nodes.iter().flat_map(|a| self.nodes.iter().map(move |b| (a, b)));
        let mut differ = pairs.filter_map(|(a, b)| Some((a.dc, b.dc, a.disk.differs_from(&b.disk)?)));
        let (a, b, (of, seq)) = differ.next()?;
        let phase = |node: &Node| node.inspect().map(|replica| replica.phase());
        let phases: Vec<_> = self.nodes.iter().map(phase).collect();
        Some(format!("{a} and {b} have different entries {of}:{seq}; the phases are {phases:?}"))
    }

    /// Returns true if no node knows of two histories, and all serve: a crash has taken one of them away.
    pub fn all_serve(&self) -> bool {
        let serves =
            |node: &Node| node.inspect().is_some_and(|replica| replica.phase() == ReplicaPhase::Serving);
        self.nodes.iter().all(serves)
    }

    pub fn all_forked(&self) -> bool {
        self.nodes.iter().all(Node::is_forked)
    }

    /// Returns a datacenter whose history can be kept: one that lacks decisions needs the state of another,
    /// which is gone then. `None` if all lack some.
    fn choose_keeper(&mut self) -> Option<DcId> {
        let (first, all) = (self.random_dc().index(), self.nodes.len());
        let mut nodes = (first..first + all).map(|index| &self.nodes[index % all]);
        let has_entered = |replica: Inspect<'_>| replica.decisions().0.config().epoch() <= replica.epoch();
        let has_all = |node: &&Node| node.inspect().is_some_and(has_entered);
        nodes.find(has_all).map(|node| node.dc)
    }

    /// Stops all servers, chooses one history, empties all other directories, and starts all, as people do.
    /// Returns false if none can be kept.
    pub fn keep_one_history(&mut self) -> bool {
        let Some(keeper) = self.choose_keeper() else { return false };
        for dc in self.members().iter() {
            self.crash(dc);
        }
        self.trace.line(self.now, "**", || format!("the history of {keeper} is kept"));
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let keeps = node.dc == keeper;
            (node.damage, node.copy, node.keeps_history, node.forked_since_ms) = (None, None, keeps, None);
            if keeps {
                continue;
            }
            let emptied = std::mem::replace(&mut node.disk, Disk::new());
            let dc = node.dc;
            for client in self.clients.iter_mut().filter(|client| client.dc == dc) {
                client.lost_leases.extend(emptied.facts.opened.iter());
            }
        }
        self.history = History::Chosen;
        self.tally.forks_resolved += 1;
        // Earlier holds may have been in conflict.
        self.holders = Holders::default();
        self.phase = Phase::Calm;
        for dc in self.members().iter() {
            self.start_node(dc);
        }
        true
    }
}
