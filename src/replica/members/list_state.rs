//! The state after some decisions: it stands in for those that are compacted.
//!
//! The list of decisions grows for as long as the cluster lives: a member that is unheard and heard again
//! adds two decisions of each voter. So a member keeps the last ones, and the state after those before. It
//! compacts only what all members have entered: each of them knows these decisions. A server that lacks some
//! of them gets the state:
//!
//! ```text
//! message  KnowsDecisions   of a server that lacks decisions which are compacted here
//! message  Compacted        the answer: the state after them; then come those that follow
//! record   Compacted        of the server: from now on its list begins with this state
//! ```
//!
//! The state says who the members are, and not how that came about. So a member that has not entered all
//! epochs in it, because its disk is of before them, cannot enter them one by one: it serves nothing until
//! it has the state of another member, and asks for that (`docs/algorithm/recovery.md#2-state-transfer`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::membership::{Applied, Command, Config, Index, Member, Proposal, Refused};
use geolock_api::names::{ClusterId, DcId, DcSet};

/// The state after some decisions, from the first one on. Wire and disk type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListState {
    config: Config,
    /// The config after the last forced recovery: the control group begins with it anew.
    recovered: Option<Box<Config>>,
    /// The members whose last leave was cancelled, with that decision.
    cancelled: BTreeMap<DcId, Index>,
}

impl ListState {
    /// Returns the state after all of these, which follow it.
    pub(super) fn after(&self, decisions: &[Proposal]) -> ListState {
        let mut state = self.clone();
        for proposal in decisions {
            // A refused command is a decision without effect.
            let _applied = state.apply(state.index().next(), proposal);
        }
        state
    }

    /// Returns the config after all of these, which follow it.
    pub(super) fn config_after(&self, decisions: &[Proposal]) -> Config {
        self.after(decisions).config
    }

    /// Applies the next decision. One that is refused is a decision without effect.
    pub(super) fn apply(&mut self, index: Index, proposal: &Proposal) -> Result<Applied, Refused> {
        let applied = self.config.apply(index, proposal)?;
        self.note_leaves(index, &proposal.command);
        if matches!(proposal.command, Command::Recover(_)) {
            self.recovered = Some(Box::new(self.config.clone()));
        }
        Ok(applied)
    }

    fn note_leaves(&mut self, index: Index, command: &Command) {
        match command {
            Command::CancelLeave { dc, .. } => {
                self.cancelled.insert(*dc, index);
            }
            Command::Leaving { dc, .. } => {
                self.cancelled.remove(dc);
            }
            _ => {
                let slots = self.config.slots();
                self.cancelled
                    .retain(|dc, index| slots.member(*dc).is_some_and(|member| member.admitted.0 < index.0));
            }
        }
    }

    /// Returns the members, voters and policies.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of decisions.
    #[inline]
    pub fn index(&self) -> Index {
        self.config.index()
    }

    /// Returns the config after the last forced recovery.
    pub(super) fn recovered(&self) -> Option<&Config> {
        self.recovered.as_deref()
    }

    /// Returns the members whose last leave was cancelled, with that decision.
    pub(super) fn cancelled(&self) -> &BTreeMap<DcId, Index> {
        &self.cancelled
    }

    /// Returns the slots that have another member than after the decisions before.
    pub(super) fn renewed_since(&self, before: &Config) -> DcSet {
        let generation = |dc| before.slots().generation(dc);
        let is_other = |(dc, member): &(DcId, &Member)| generation(*dc) != Some(member.generation);
        self.config.slots().members().filter(is_other).map(|(dc, _)| dc).collect()
    }

    /// Returns true if this is a state of the cluster that follows these decisions.
    pub(in crate::replica) fn follows(&self, known: &Config, cluster: ClusterId) -> bool {
        let is_of_it = |config: &Config| config.cluster() == Some(cluster);
        let is_before = |config: &Config| is_of_it(config) && config.index() <= self.index();
        is_of_it(&self.config)
            && self.index() > known.index()
            && self.config.lineage() >= known.lineage()
            && self.config.epoch() >= known.epoch()
            && self.recovered().is_none_or(is_before)
    }
}
