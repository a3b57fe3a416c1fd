//! The list of decisions. For operators, too: all members list the same ones.

use super::list_state::ListState;
use crate::membership::{Command, Config, Epoch, Index, Proposal, WitnessId};
use geolock_api::names::{DcId, DcSet};

/// Most decisions in one message.
const PER_MESSAGE: usize = 64;

/// Most decisions of one answer.
pub const MAX_LISTED: usize = 1_000;

/// Most decisions that one step compacts.
const COMPACTED_AT_ONCE: usize = 256;

/// How this datacenter learnt a decision. Not on disk: after a restart the time is not known any more.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Learnt {
    /// Time by the wall clock, in ms since the epoch.
    pub at_ms: Option<u64>,
    /// It had no effect: the members had changed since it was proposed.
    pub is_refused: bool,
}

/// A decision of the control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Its number; the first one is 1.
    pub number: u64,
    /// When this datacenter learnt it: ms since the epoch by its wall clock. `None`: before its last start,
    /// or with the state of another member.
    pub at_ms: Option<u64>,
    /// The decision, in words.
    pub text: String,
    /// It had no effect: the members had changed since it was proposed.
    pub is_refused: bool,
}

impl Decision {
    /// Returns an upper bound of its memory, in bytes.
    pub fn weight(&self) -> usize {
        std::mem::size_of::<Decision>() + self.text.len()
    }
}

/// The decisions that are known here: the last ones, and the state after those before.
#[derive(Default)]
pub(in crate::replica) struct DecisionList {
    /// The state after those that are compacted.
    compacted: ListState,
    /// Those that follow.
    proposals: Vec<Proposal>,
    /// For each of them: how it was learnt.
    learnt: Vec<Learnt>,
}

/// Decisions that a server lacks.
pub(super) enum Missing<'a> {
    /// Some of them, as many as fit a message.
    Decisions(&'a [Proposal]),
    /// They are compacted here.
    Compacted(&'a ListState),
}

impl DecisionList {
    /// Returns the state after the decisions that are compacted.
    pub fn compacted(&self) -> &ListState {
        &self.compacted
    }

    /// Returns the decisions that follow those.
    pub fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Returns the number of all decisions.
    pub(super) fn len(&self) -> u64 {
        self.compacted.index().0 + self.proposals.len() as u64
    }

    pub(super) fn push(&mut self, proposal: Proposal, learnt: Learnt) {
        self.proposals.push(proposal);
        self.learnt.push(learnt);
    }

    /// Returns a decision by its number, if it is not compacted.
    pub(super) fn get(&self, index: Index) -> Option<&Proposal> {
        self.proposals.get(self.place(index)?)
    }

    /// Returns the place of a decision among those that follow the compacted ones.
    fn place(&self, index: Index) -> Option<usize> {
        usize::try_from(index.0.checked_sub(self.compacted.index().next().0)?).ok()
    }

    /// The list begins after these from now on.
    pub(super) fn begin_after(&mut self, compacted: ListState) {
        assert!(compacted.index().0 > self.len(), "the list goes on with {}", compacted.index());
        *self = DecisionList { compacted, ..DecisionList::default() };
    }

    /// Compacts some of the oldest decisions, if there are many more than `kept`: none after `limit`.
    pub(super) fn compact(&mut self, kept: usize, limit: Index) {
        let at_once = kept.min(COMPACTED_AT_ONCE);
        if self.proposals.len() < kept.saturating_add(at_once)
            || limit.0 < self.compacted.index().0 + at_once as u64
        {
            return;
        }
        self.compacted = self.compacted.after(&self.proposals[..at_once]);
        self.proposals.drain(..at_once);
        self.learnt.drain(..at_once);
        assert!(self.compacted.index() <= limit, "nothing is compacted that a member may still need");
    }

    /// The last decision was learnt now.
    pub(super) fn note_learnt(&mut self, at_ms: u64) {
        let learnt = self.learnt.last_mut().expect("it was just added");
        assert_eq!(learnt.at_ms, None, "a decision is learnt once");
        learnt.at_ms = Some(at_ms);
    }

    /// Returns what a server lacks that knows the first `known` decisions.
    pub(super) fn after(&self, known: Index) -> Missing<'_> {
        let Some(known_here) = known.0.checked_sub(self.compacted.index().0) else {
            return Missing::Compacted(&self.compacted);
        };
        let all = self.proposals.len();
        let rest = &self.proposals[usize::try_from(known_here).map_or(all, |from| from.min(all))..];
        let some = &rest[..rest.len().min(PER_MESSAGE)];
        debug_assert_eq!(some.is_empty(), known.0 >= self.len(), "what is missing is sent");
        Missing::Decisions(some)
    }

    /// Returns the number of the decision that removed the witness with this id, or of one after it; 0 if
    /// none did. An id is used once.
    pub(super) fn removal_of(&self, witness: DcId) -> u64 {
        let before = self.compacted.config().witnesses();
        if before.past_dcs().contains(witness) {
            return self.compacted.index().0;
        }
        let has_effect = self.learnt.iter().map(|learnt| !learnt.is_refused);
        let numbered = (self.compacted.index().next().0..).zip(&self.proposals);
        let with_effect = numbered.zip(has_effect).filter(|(_, has_effect)| *has_effect);
        let mut id = before.at(witness).map(|(id, _)| id);
        for ((number, proposal), _) in with_effect {
            match &proposal.command {
                Command::AddWitness(added) if added.dc == witness => id = Some(WitnessId(number)),
                Command::RemoveWitness { id: removed } if Some(*removed) == id => return number,
                Command::Recover(_) if id.is_some() => return number,
                _ => {}
            }
        }
        0
    }

    /// Returns the survivors of the recovery with this epoch, which not all have entered, and the config
    /// before it.
    pub(super) fn recovery_at(&self, epoch: Epoch) -> Option<(DcSet, Config)> {
        let at = self.place(Index(epoch.0))?;
        let Command::Recover(recovery) = &self.proposals.get(at)?.command else { return None };
        let survivors = recovery.survivors.iter().map(|(dc, _)| *dc).collect();
        Some((survivors, self.compacted.config_after(&self.proposals[..at])))
    }

    /// Returns the last decisions in words, the latest last.
    pub fn listed(&self) -> Vec<Decision> {
        assert_eq!(self.proposals.len(), self.learnt.len(), "each decision was learnt somehow");
        let first = self.proposals.len().saturating_sub(MAX_LISTED);
        let numbers = self.compacted.index().next().0..;
        let rows = self.proposals.iter().zip(&self.learnt).zip(numbers).skip(first);
        rows.map(|((proposal, learnt), number)| Decision {
            number,
            at_ms: learnt.at_ms,
            text: proposal.command.to_string(),
            is_refused: learnt.is_refused,
        })
        .collect()
    }
}
