//! The questions to the lifecycle whose answers rest on several of its parts.

use std::time::Duration;

use super::stalls::Stall;
use super::state::{Facts, State};
use super::{Lifecycle, NotServing};
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::replica::call::Phase;

impl Lifecycle {
    pub fn phase(&self) -> Phase {
        let knows_own_log = self.own_log.is_recovered() && self.may_serve && !self.admission.has_ended();
        self.state.phase(Facts { knows_own_log, leases_in_grace: self.leases_in_grace })
    }

    pub fn permissions(&self) -> Permissions {
        let phase = self.phase();
        let writable = matches!(phase, Phase::Grace { .. } | Phase::Serving);
        let append = writable && self.stalls.first().is_none();
        Permissions { grant: phase == Phase::Serving && self.member_lease.is_backed(), append }
    }

    /// Returns true if this datacenter may append what members tell each other about members. A new one may,
    /// before it serves.
    pub fn may_enter(&self) -> bool {
        self.state == State::Running && self.own_log.is_recovered() && self.stalls.first().is_none()
    }

    /// Returns true if own entries are coming back that this disk has lost.
    pub fn is_regaining(&self, applied: &VersionVector) -> bool {
        self.state == State::Running && !self.own_log.has_all_that_is_known(applied)
    }

    /// Returns the reason why this datacenter does not serve, if there is one. `grace_left`: the rest of the
    /// grace period. That its clock is behind is told from the first heartbeat on, whatever the phase: a
    /// member that hears it does not stop because it seems to be ahead.
    pub fn not_serving(&self, grace_left: Duration) -> Option<NotServing> {
        let phase = self.phase();
        let stall = self.stalls.first().filter(|_| phase == Phase::Serving);
        let is_behind = self.stalls.clock_behind_ms().is_some() && stall.is_none();
        match phase {
            Phase::Starting if self.state.is_contradicted() => Some(NotServing::ClockSkew),
            Phase::Starting => Some(NotServing::Starting),
            Phase::Forked { .. } => Some(NotServing::Forked),
            Phase::ReadOnly | Phase::Grace { .. } | Phase::Serving if is_behind => {
                Some(NotServing::ClockBehind)
            }
            Phase::ReadOnly => Some(NotServing::ReadOnly),
            Phase::Grace { .. } => {
                let for_ms = u32::try_from(grace_left.as_millis()).unwrap_or(u32::MAX);
                Some(NotServing::Grace { for_ms })
            }
            Phase::Serving => match stall {
                Some(Stall::ClockSkew) => Some(NotServing::ClockSkew),
                Some(Stall::DiskFull) => Some(NotServing::DiskFull),
                Some(Stall::LogFull) => Some(NotServing::LogFull),
                None => (!self.member_lease.is_backed()).then_some(NotServing::Unbacked),
            },
        }
    }

    /// Returns true if clients may still reclaim what they held before the restart.
    pub fn awaits_reclaims(&self) -> bool {
        self.leases_in_grace > 0
    }

    /// Returns true if the directory can join. Before the own clock is trusted, the token lead cannot be
    /// computed.
    pub fn may_join(&self, applied: &VersionVector) -> bool {
        !self.state.is_starting() && self.own_log.may_join(applied)
    }
}
