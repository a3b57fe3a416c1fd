//! A restart: a restarted server asks the voters if it was evicted while it was down, before it serves.
//!
//! It may have been evicted meanwhile: its parts are at home then, and it knows nothing of that. Each member
//! that remained has the decision that began its eviction, so it waits until a majority of the voters has
//! told it how many decisions they know, and it knows all of those. It does not ask where the others cannot
//! have decided without it, nor where nobody is evicted: there a server that starts alone serves what it
//! owns.

use std::time::Duration;

use super::Members;
use crate::base::bugs::{Bug, Bugs};
use crate::membership::{EvictPolicy, Index, Voter};
use geolock_api::names::DcId;

impl Members {
    /// This run begins with what its journal says. `longest_lease`: the longest time to live in it.
    pub fn begin_run(&mut self, longest_lease: Duration, bugs: Bugs) {
        self.longest_before = longest_lease;
        self.asks = self.are_decided() && !self.awaits_state && !bugs.has(Bug::ServesUnasked);
        self.end_asking();
    }

    /// A peer knows so many decisions, in this run.
    pub(super) fn note_told(&mut self, peer: DcId, index: Index) {
        self.told[peer.index()] = Some(index);
    }

    /// Ends the question if it is answered. Returns true if it does.
    pub(super) fn end_asking(&mut self) -> bool {
        let was_asking = self.asks;
        self.asks &= self.may_be_evicted() && !self.is_told();
        was_asking && !self.asks
    }

    /// Returns true if the others could have evicted this member while it was down.
    fn may_be_evicted(&self) -> bool {
        let voters = self.config.voters();
        let others = voters.without([self.me].into_iter().collect());
        self.config.policy().evict != EvictPolicy::Wait && others.voters.len() >= voters.majority()
    }

    /// Returns true if a majority of the voters knows no decision that is unknown here, and nobody evicts
    /// this member.
    fn is_told(&self) -> bool {
        let knows = |told: Index| told <= self.config.index();
        let is_told = |voter: &&Voter| {
            voter.dc().is_some_and(|dc| dc == self.me || self.told[dc.index()].is_some_and(knows))
        };
        let voters = self.config.voters();
        let is_evicted = self.config.attempt().is_some_and(|attempt| attempt.evicting().contains(self.me));
        !is_evicted && voters.is_majority(voters.voters.iter().filter(is_told))
    }
}
