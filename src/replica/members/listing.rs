//! The decisions for operators: all members list the same ones.

use super::Members;

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

impl Members {
    /// Returns the last decisions, the latest last.
    pub fn listed(&self) -> Vec<Decision> {
        debug_assert_eq!(self.decisions.len(), self.learnt.len(), "each decision was learnt somehow");
        let first = self.decisions.len().saturating_sub(MAX_LISTED);
        let rows = self.decisions.iter().zip(&self.learnt).zip(1..).skip(first);
        rows.map(|((proposal, learnt), number)| Decision {
            number,
            at_ms: learnt.at_ms,
            text: proposal.command.to_string(),
            is_refused: learnt.is_refused,
        })
        .collect()
    }

    /// The last decision was learnt now.
    pub(super) fn note_learnt(&mut self, at_ms: u64) {
        self.learnt.last_mut().expect("it was just added").at_ms = Some(at_ms);
    }
}
