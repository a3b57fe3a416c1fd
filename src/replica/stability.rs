//! What everybody has seen: commits that every transaction from now on, in every datacenter, has in its snapshot.
//!
//! Each datacenter says from time to time "my entries after `seq` have seen at least `floor`"; once its entries up to
//! `seq` are applied here, everything of it that is applied later has seen that. What all of them have seen is stable: no
//! operation will ever be concurrent with it again (Baquero, Almeida, Shoker 2014).

use serde::{Deserialize, Serialize};

use super::Replica;
use crate::crdt::VersionVector;
use crate::names::{DcId, DcSet, MAX_DCS};

/// What a datacenter says of its own further commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    pub dc: DcId,
    /// Its entries after this one ...
    pub after: u64,
    /// ... have seen at least this.
    pub floor: VersionVector,
}

/// See the module.
pub(super) struct Stability {
    told: [Option<Floor>; MAX_DCS],
    stable: VersionVector,
}

impl Default for Stability {
    fn default() -> Stability {
        Stability { told: std::array::from_fn(|_| None), stable: VersionVector::default() }
    }
}

impl Stability {
    pub fn stable(&self) -> &VersionVector {
        &self.stable
    }

    /// A datacenter said so, directly or not; what was said before counts if it says more.
    pub fn note(&mut self, floor: Floor) {
        let before = &mut self.told[floor.dc.index()];
        let says_more = before.as_ref().is_none_or(|before| floor.floor.covers(&before.floor));
        if says_more {
            *before = Some(floor);
        }
    }

    /// Draws the conclusion, given what is applied here.
    fn update(&mut self, members: DcSet, applied: &VersionVector) {
        let mut stable: Option<VersionVector> = None;
        for dc in members.iter() {
            let Some(told) = &self.told[dc.index()] else { return };
            if applied.get(dc) < told.after {
                return;
            }
            stable = Some(match stable {
                None => told.floor.clone(),
                Some(stable) => stable.iter().map(|(dc, seq)| (dc, seq.min(told.floor.get(dc)))).collect(),
            });
        }
        if let Some(stable) = stable.filter(|stable| stable.covers(&self.stable)) {
            self.stable = stable;
        }
    }
}

impl Replica {
    /// What this datacenter says of its further commits: they have seen what its oldest open snapshot shows.
    fn own_floor(&self) -> Floor {
        let dc = self.config.dc;
        let floor = self.store.oldest_vector().unwrap_or(self.log.durable());
        Floor { dc, after: self.log.applied().get(dc), floor: (**floor).clone() }
    }

    /// Looks again at what is stable.
    pub(super) fn update_stability(&mut self) {
        self.stability.note(self.own_floor());
        self.stability.update(self.config.agreed.members, self.log.applied());
    }

    /// What is said to peers: of this datacenter and, for those who do not hear them, of the others.
    pub(super) fn floors(&self) -> Vec<Floor> {
        self.stability.told.iter().flatten().cloned().collect()
    }
}
