//! The members of the cluster, as the log of this datacenter has entered them.

use geolock_api::names::{DcId, DcSet};

/// The members of the cluster.
pub(super) struct Members {
    me: DcId,
    all: DcSet,
}

impl Members {
    /// Returns the founding members: those of the configuration.
    pub fn founding(me: DcId, all: DcSet) -> Members {
        assert!(all.contains(me), "{me} is a member of its own cluster {all:?}");
        Members { me, all }
    }

    /// Returns all members, this datacenter included.
    #[inline]
    pub fn all(&self) -> DcSet {
        self.all
    }

    /// Returns the other members.
    #[inline]
    pub fn peers(&self) -> DcSet {
        self.all.difference(DcSet::only(self.me))
    }

    /// Returns true if `dc` is a member.
    #[inline]
    pub fn contains(&self, dc: DcId) -> bool {
        self.all.contains(dc)
    }
}
