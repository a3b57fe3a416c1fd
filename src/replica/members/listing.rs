//! The decisions for operators: all members list the same ones.

use crate::membership::{Command, Config, Epoch, Proposal, WitnessId};
use geolock_api::names::{DcId, DcSet};

/// Most decisions in one message.
const PER_MESSAGE: usize = 64;

/// Most decisions of one answer.
pub const MAX_LISTED: usize = 1_000;

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

/// All decisions that are known here: the first one is number 1.
#[derive(Default)]
pub(in crate::replica) struct DecisionList {
    proposals: Vec<Proposal>,
    /// For each of them: how it was learnt.
    learnt: Vec<Learnt>,
}

impl DecisionList {
    /// Returns the decisions.
    pub fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Returns the number of decisions.
    pub(super) fn len(&self) -> u64 {
        self.proposals.len() as u64
    }

    /// Returns the last decision.
    pub(super) fn last(&self) -> Option<&Proposal> {
        self.proposals.last()
    }

    pub(super) fn push(&mut self, proposal: Proposal, learnt: Learnt) {
        self.proposals.push(proposal);
        self.learnt.push(learnt);
    }

    /// The last decision was learnt now.
    pub(super) fn note_learnt(&mut self, at_ms: u64) {
        let learnt = self.learnt.last_mut().expect("it was just added");
        assert_eq!(learnt.at_ms, None, "a decision is learnt once");
        learnt.at_ms = Some(at_ms);
    }

    /// Returns some of the decisions after the first `known`, as many as fit a message.
    pub(super) fn after(&self, known: u64) -> &[Proposal] {
        let all = self.proposals.len();
        let rest = &self.proposals[usize::try_from(known).map_or(all, |from| from.min(all))..];
        let some = &rest[..rest.len().min(PER_MESSAGE)];
        debug_assert_eq!(some.is_empty(), known >= self.len(), "what is missing is sent");
        some
    }

    /// Returns the number of the decision that removed the witness with this id; 0 if none did. An id is
    /// used once.
    pub(super) fn removal_of(&self, witness: DcId) -> u64 {
        let has_effect = self.learnt.iter().map(|learnt| !learnt.is_refused);
        let with_effect = (1..).zip(&self.proposals).zip(has_effect).filter(|(_, has_effect)| *has_effect);
        let mut id = None;
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

    /// Returns the survivors of the recovery with this epoch, and the config before it.
    pub(super) fn recovery_at(&self, epoch: Epoch) -> Option<(DcSet, Config)> {
        let at = usize::try_from(epoch.0).ok()?.checked_sub(1)?;
        let Command::Recover(recovery) = &self.proposals.get(at)?.command else { return None };
        let survivors = recovery.survivors.iter().map(|(dc, _)| *dc).collect();
        Some((survivors, config_after(&self.proposals[..at])))
    }

    /// Returns the last decisions in words, the latest last.
    pub fn listed(&self) -> Vec<Decision> {
        assert_eq!(self.proposals.len(), self.learnt.len(), "each decision was learnt somehow");
        let first = self.proposals.len().saturating_sub(MAX_LISTED);
        let rows = self.proposals.iter().zip(&self.learnt).zip(1..).skip(first);
        rows.map(|((proposal, learnt), number)| Decision {
            number,
            at_ms: learnt.at_ms,
            text: proposal.command.to_string(),
            is_refused: learnt.is_refused,
        })
        .collect()
    }
}

/// Returns the config after the first decisions.
pub(super) fn config_after(decisions: &[Proposal]) -> Config {
    let mut config = Config::default();
    for proposal in decisions {
        // A refused command is a decision without effect.
        let _applied = config.apply(config.index().next(), proposal);
    }
    config
}
