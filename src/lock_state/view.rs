//! The cluster as this datacenter sees it, and the actions that are allowed here at this moment.

use super::lock::Lock;
use crate::base::bugs::{Bug, Bugs};
use geolock_api::names::{DcId, DcSet, Mode};

/// The actions that the phase allows at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permissions {
    /// Grant, and transfer parts. False in the grace period.
    pub grant: bool,
    /// Make entries.
    pub append: bool,
}

impl Permissions {
    /// Returns true if the server grants from the parts that are here, and no part can arrive or leave.
    pub fn is_alone(self) -> bool {
        self.grant && !self.append
    }

    /// Returns true if parts can leave.
    pub fn can_transfer(self) -> bool {
        self.grant && self.append
    }
}

/// The members, those of them that are away, and the permissions.
pub(crate) struct View {
    pub(super) me: DcId,
    pub members: DcSet,
    /// Unreachable, or not serving.
    pub(super) away: DcSet,
    /// These leave: this datacenter has said, in its log, that it gives them nothing any more.
    pub(super) leaving: DcSet,
    pub permissions: Permissions,
    pub(super) bugs: Bugs,
}

impl View {
    pub(super) fn new(me: DcId, members: DcSet) -> View {
        assert!(members.contains(me), "{me} is a member of its own cluster {members:?}");
        View {
            me,
            members,
            away: DcSet::EMPTY,
            leaving: DcSet::EMPTY,
            permissions: Permissions { grant: false, append: false },
            bugs: Bugs::default(),
        }
    }

    /// Returns true if no part is given to `dc` now.
    #[inline]
    pub(super) fn takes_none(&self, dc: DcId) -> bool {
        let leaving = if self.bugs.has(Bug::GivenToLeaver) { DcSet::EMPTY } else { self.leaving };
        self.away.union(leaving).contains(dc)
    }

    /// Returns true if the parts that a local grant in `mode` needs are here.
    #[inline]
    pub(super) fn has_parts(&self, lock: &Lock, mode: Mode) -> bool {
        lock.has_parts(mode, self.me, self.members)
    }
}
