//! The epochs that are known and not entered, and what each changes.

use std::collections::VecDeque;

use crate::membership::{Epoch, Generation};
use geolock_api::names::{DcId, DcSet};

/// A change of the members by a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) epoch: Epoch,
    pub(super) kind: Kind,
}

/// The effect of an epoch on the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A member is admitted.
    Admits(Admitted),
    /// This member is to leave.
    Leaves(DcId),
    /// This member stays: its leave is cancelled.
    Stays(DcId),
    /// This member has left. The number of its last entry.
    Ends(DcId, u64),
    /// These members are evicted.
    Evicts(Evicted),
    /// Members are evicted by time, from when all know that.
    Policy,
    /// Locks with a prefix of their names get another home.
    Rules,
    /// The members stay the same.
    None,
}

/// The members that a decision evicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Evicted {
    pub(super) members: DcSet,
    /// The others that are joining, and not settled yet.
    pub(super) joining: DcSet,
    /// The number of evictions that it counts for.
    pub(super) fences: u16,
}

/// A member that a decision admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Admitted {
    pub(super) dc: DcId,
    pub(super) generation: Generation,
    pub(super) sponsor: DcId,
}

/// Epochs that are known and not entered.
#[derive(Default)]
pub(super) struct Pending {
    /// In the order of their epochs.
    changes: VecDeque<Change>,
    /// The last epoch of decisions that are compacted, if it is not entered: what it and those before have
    /// changed is not known. Only the state of another member brings them.
    compacted: Option<Epoch>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.compacted.is_none()
    }

    /// Returns true if epochs can only be entered with a state.
    #[inline]
    pub(super) fn needs_state(&self) -> bool {
        self.compacted.is_some()
    }

    /// Returns the change that is entered next, if it is known.
    pub(super) fn next(&self) -> Option<Change> {
        self.changes.front().copied().filter(|_| self.compacted.is_none())
    }

    /// An epoch is decided.
    pub(super) fn push(&mut self, change: Change) {
        let last = self.changes.back().map(|change| change.epoch);
        assert!(last < Some(change.epoch), "epoch {:?} is decided after {last:?}", change.epoch);
        self.changes.push_back(change);
    }

    /// This epoch is entered. Returns its change.
    pub(super) fn enter(&mut self, epoch: Epoch) -> Kind {
        let change = self.changes.pop_front().filter(|change| change.epoch == epoch);
        debug_assert!(change.is_some(), "epoch {epoch:?} is the next one that is known");
        change.map_or(Kind::None, |change| change.kind)
    }

    /// Epochs up to this one are decided, and it is not known what they change.
    pub(super) fn push_compacted(&mut self, epoch: Epoch) {
        let last = self.changes.back().map(|change| change.epoch).max(self.compacted);
        assert!(last <= Some(epoch), "epoch {epoch:?} is decided after {last:?}");
        self.changes.clear();
        self.compacted = Some(epoch);
    }

    /// Epochs up to this one were entered in a state, or before a checkpoint.
    pub(super) fn install(&mut self, entered: Epoch) {
        self.changes.retain(|change| change.epoch > entered);
        self.compacted = self.compacted.filter(|epoch| *epoch > entered);
    }

    /// Returns the member that this epoch, which is the next one, admits.
    pub(super) fn to_admit(&self, epoch: Epoch) -> Option<DcId> {
        match self.next().filter(|change| change.epoch == epoch)?.kind {
            Kind::Admits(admitted) => Some(admitted.dc),
            _ => None,
        }
    }

    /// Returns the evictions that are decided and not entered.
    fn evictions(&self) -> impl Iterator<Item = Evicted> {
        self.changes.iter().filter_map(|change| match change.kind {
            Kind::Evicts(evicted) => Some(evicted),
            _ => None,
        })
    }

    /// Returns the members whose evictions are decided and not entered.
    pub(super) fn evicted(&self) -> DcSet {
        self.evictions().fold(DcSet::EMPTY, |all, evicted| all.union(evicted.members))
    }

    /// Returns the number of evictions for which these epochs count.
    pub(super) fn fences(&self) -> u16 {
        self.evictions().map(|evicted| evicted.fences).sum()
    }

    /// Asserts that these are the epochs between the entered one and the last one that is decided.
    pub(super) fn check(&self, entered: Epoch, decided: Epoch) {
        let epochs = || self.changes.iter().map(|change| change.epoch);
        assert!(epochs().is_sorted(), "epochs are entered in their order");
        assert!(epochs().all(|epoch| entered < epoch), "no epoch is entered again after {entered:?}");
        assert!(entered <= decided, "{entered:?} is entered, {decided:?} is the last one that is decided");
        assert!(self.compacted.is_none_or(|epoch| entered < epoch), "{:?} is entered", self.compacted);
        assert!(epochs().all(|epoch| self.compacted < Some(epoch)), "known epochs follow compacted ones");
        let last = epochs().next_back().or(self.compacted).unwrap_or(entered);
        assert_eq!(last, decided, "every epoch that is decided is entered, or waits for that");
    }
}
