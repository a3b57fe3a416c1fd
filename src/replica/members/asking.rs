//! A restart: a restarted server asks the voters if it was evicted while it was down, before it serves.
//!
//! It may have been evicted meanwhile: its parts are at home then, and it knows nothing of that. Each member
//! that remained has the decision that began its eviction, so it waits until a majority of the voters has
//! told it how many decisions they know, and it knows all of those. It does not ask where the others cannot
//! have decided without it, nor where nobody is evicted: there a server that starts alone serves what it
//! owns.

use super::Members;
use super::decided::Decided;
use crate::base::bugs::{Bug, Bugs};
use crate::membership::{Index, Voter};
use geolock_api::names::{DcId, MAX_DCS};

/// The question of this run to the voters.
pub(super) struct Asking {
    /// It is not answered yet.
    is_open: bool,
    /// The number of decisions that each peer has told in this run.
    told: [Option<Index>; MAX_DCS],
}

impl Asking {
    /// Returns the state before the run begins.
    pub(super) fn new() -> Asking {
        Asking { is_open: false, told: [None; MAX_DCS] }
    }

    /// Returns true if this run has not heard yet whether this server still is a member.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    fn begin(&mut self, decided: &Decided, bugs: Bugs) {
        assert!(!self.is_open, "a run begins once");
        self.is_open = decided.has_decisions() && !decided.awaits_state() && !bugs.has(Bug::ServesUnasked);
        self.end_if_answered(decided);
    }

    /// A peer knows so many decisions, in this run.
    pub(super) fn note_told(&mut self, peer: DcId, index: Index) {
        self.told[peer.index()] = Some(index);
    }

    /// Ends the question if it is answered. Returns true if it does.
    pub(super) fn end_if_answered(&mut self, decided: &Decided) -> bool {
        let was_open = self.is_open;
        self.is_open &= decided.may_be_evicted() && !self.is_told(decided);
        was_open && !self.is_open
    }

    /// Returns true if a majority of the voters knows no decision that is unknown here, and nobody evicts
    /// this member.
    fn is_told(&self, decided: &Decided) -> bool {
        let (me, config) = (decided.me(), decided.config());
        let knows = |told: Index| told <= config.index();
        let is_told = |voter: &&Voter| {
            let link = config.witnesses().link_id(**voter);
            link.is_some_and(|dc| dc == me || self.told[dc.index()].is_some_and(knows))
        };
        let voters = config.voters();
        let is_evicted = config.attempt().is_some_and(|attempt| attempt.evicting().contains(me));
        !is_evicted && voters.is_majority(voters.voters.iter().filter(is_told))
    }
}

impl Members {
    /// This run begins with what its journal says.
    pub fn begin_run(&mut self, bugs: Bugs) {
        self.asking.begin(&self.decided, bugs);
    }
}
