//! A restart: a restarted server asks the voters if it was evicted while it was down, before it serves.
//!
//! It may have been evicted meanwhile: its parts are at home then, and it knows nothing of that. Each member
//! that remained has the decision that began its eviction, so it waits until a majority of the voters has
//! told it how many decisions they know, and it knows all of those. A voter counts only once it has echoed a
//! heartbeat of this run: until then it may still promise the eviction of the run before. On one link
//! decisions and heartbeats keep their order, so a voter that learns of an eviction before it hears this run
//! says so before it echoes it.
//!
//! It asks under every policy, because the others may have changed the policy meanwhile; and it does not ask
//! where the others cannot decide without it (one or two voters).

use super::Members;
use super::decided::Decided;
use crate::base::bugs::{Bug, Bugs};
use crate::base::wire::CONTROL_VERSION;
use crate::membership::{Index, Voter};
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// The question of this run to the voters.
pub(in crate::replica) struct Asking {
    /// It is not answered yet.
    is_open: bool,
    /// Members of the configuration that may have decided something that is not known here; empty once
    /// decisions are known here, or if there is no control group.
    founders: DcSet,
    /// The number of decisions that each peer has told on its present link.
    told: [Option<Index>; MAX_DCS],
    /// The peers that have said, on their present link, that they heard a heartbeat of this run.
    hear_this_run: DcSet,
    bugs: Bugs,
}

impl Asking {
    /// Returns the state before the run begins.
    pub(super) fn new() -> Asking {
        Asking {
            is_open: false,
            founders: DcSet::EMPTY,
            told: [None; MAX_DCS],
            hear_this_run: DcSet::EMPTY,
            bugs: Bugs::default(),
        }
    }

    /// Returns true if this run has not heard yet whether this server still is a member.
    pub(in crate::replica) fn is_open(&self) -> bool {
        self.is_open
    }

    /// `founders`: if there is a control group and this is a restart, the members of the configuration.
    fn begin(&mut self, decided: &Decided, founders: DcSet, bugs: Bugs) {
        assert!(!self.is_open, "a run begins once");
        (self.founders, self.bugs) = (founders, bugs);
        let may_be_decided = decided.has_decisions() || founders != DcSet::EMPTY;
        self.is_open = may_be_decided && !decided.awaits_state() && !bugs.has(Bug::ServesUnasked);
        self.end_if_answered(decided);
    }

    /// A link to a peer is up: what it said on an earlier one is older than what it may have decided since.
    /// One of a release before the control group decides nothing, and says nothing.
    pub(in crate::replica) fn note_link_up(&mut self, peer: DcId, version: u16) {
        let decides = version >= CONTROL_VERSION;
        self.told[peer.index()] = (!decides).then_some(Index(0));
        match decides {
            true => self.hear_this_run.remove(peer),
            false => self.hear_this_run.insert(peer),
        };
    }

    /// A peer has heard a heartbeat of this run.
    pub(super) fn note_hears_this_run(&mut self, peer: DcId) {
        self.hear_this_run.insert(peer);
    }

    /// A peer knows so many decisions, in this run.
    pub(super) fn note_told(&mut self, peer: DcId, index: Index) {
        self.told[peer.index()] = Some(index);
    }

    /// Ends the question if it is answered. Returns true if it does.
    pub(super) fn end_if_answered(&mut self, decided: &Decided) -> bool {
        let was_open = self.is_open;
        self.is_open &= self.may_be_evicted(decided) && !self.is_told(decided);
        was_open && !self.is_open
    }

    /// Returns true if the others can evict this member while it is down.
    fn may_be_evicted(&self, decided: &Decided) -> bool {
        if decided.has_decisions() {
            return decided.may_be_evicted(self.bugs);
        }
        // As many as found the group vote.
        let others = self.founders.difference(DcSet::only(decided.me())).len();
        others > self.founders.len() / 2
    }

    /// Returns true if a majority of the voters has heard this run, and knows no decision that is unknown
    /// here, and nobody evicts this member.
    fn is_told(&self, decided: &Decided) -> bool {
        let (me, config) = (decided.me(), decided.config());
        let hears = |dc: DcId| self.hear_this_run.contains(dc) || self.bugs.has(Bug::ConfirmedUnheard);
        let knows_no_more = |told: Index| told <= config.index();
        let confirms = |dc: DcId| dc == me || (hears(dc) && self.told[dc.index()].is_some_and(knows_no_more));
        if !decided.has_decisions() {
            return self.founders.iter().filter(|dc| confirms(*dc)).count() > self.founders.len() / 2;
        }
        let is_told = |voter: &&Voter| config.witnesses().link_id(**voter).is_some_and(confirms);
        let voters = config.voters();
        let is_evicted = config.attempt().is_some_and(|attempt| attempt.evicting().contains(me));
        !is_evicted && voters.is_majority(voters.voters.iter().filter(is_told))
    }
}

impl Members {
    /// This run begins with what its journal says. `founders`: if there is a control group and this is a
    /// restart, the members of the configuration.
    pub fn begin_run(&mut self, founders: DcSet, bugs: Bugs) {
        self.asking.begin(&self.decided, founders, bugs);
    }
}
