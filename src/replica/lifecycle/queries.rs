//! The questions that the replica asks its lifecycle: what is permitted, and why it is not.

use std::time::Duration;

use super::peer_versions::PeerVersions;
use super::stalls::Stall;
use super::state::State;
use super::{Fork, Lifecycle, NotServing};
use crate::base::capacity::{DiskSpace, Load};
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::replica::call::{Phase, Refusal};
use geolock_api::names::DcSet;

impl Lifecycle {
    pub fn phase(&self) -> Phase {
        self.state.phase()
    }

    /// Returns true if nothing may be stamped yet after a restart.
    #[inline]
    pub fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting(_))
    }

    /// Returns true if two histories of one log are known. This may be so in a start.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.state.fork().is_some()
    }

    pub fn fork(&self) -> Option<Fork> {
        self.state.fork()
    }

    pub fn permissions(&self) -> Permissions {
        let writable = matches!(self.state, State::Grace { .. } | State::Serving);
        let append = writable && self.stalls.first().is_none();
        Permissions { grant: self.state == State::Serving && self.is_backed(), append }
    }

    /// Returns true if this datacenter may append what members tell each other about members. A new one may,
    /// before it serves.
    pub fn may_enter(&self) -> bool {
        let is_known = !self.is_starting() && !self.is_forked() && self.knows_own_log();
        is_known && self.stalls.first().is_none()
    }

    /// Returns the reason why this datacenter does not serve, if there is one. `grace_left`: the rest of the
    /// grace period. That its clock is behind is told from the first heartbeat on, whatever the phase: a
    /// member that hears it does not stop because it seems to be ahead.
    pub fn not_serving(&self, grace_left: Duration) -> Option<NotServing> {
        let is_stalled = self.state == State::Serving && self.stalls.first().is_some();
        match self.state {
            State::Starting(_) => Some(NotServing::Starting),
            State::ReadOnly | State::Grace { .. } | State::Serving
                if self.clock_behind_ms.is_some() && !is_stalled =>
            {
                Some(NotServing::ClockBehind)
            }
            State::ReadOnly => Some(NotServing::ReadOnly),
            State::Forked(_) => Some(NotServing::Forked),
            State::Grace { .. } => {
                let for_ms = u32::try_from(grace_left.as_millis()).unwrap_or(u32::MAX);
                Some(NotServing::Grace { for_ms })
            }
            State::Serving => match self.stalls.first() {
                Some(Stall::ClockSkew) => Some(NotServing::ClockSkew),
                Some(Stall::DiskFull) => Some(NotServing::DiskFull),
                Some(Stall::LogFull) => Some(NotServing::LogFull),
                None => (!self.is_backed()).then_some(NotServing::Unbacked),
            },
        }
    }

    /// Returns true if clients may still reclaim what they held before the restart.
    pub fn awaits_reclaims(&self) -> bool {
        self.leases_in_grace > 0
    }

    /// Returns false if members are evicted by time, and no majority of the voters backs this one: it may be
    /// evicted, so it grants nothing and renews no lease.
    #[inline]
    pub fn is_backed(&self) -> bool {
        self.member_lease.backed
    }

    /// Returns how long a majority of the voters backs this member without further acknowledgements; `None`
    /// if that is not needed.
    pub fn backed_for(&self, now: Instant) -> Option<Duration> {
        let until = self.member_lease.fenced_at;
        (until != Instant::FAR_FUTURE).then(|| until.saturating_since(now))
    }

    /// Returns true if a majority of the voters backs this member, whether that is needed or not yet.
    pub fn would_be_backed(&self, now: Instant) -> bool {
        now < self.member_lease.until
    }

    /// Returns the longest time to live that a client's lease may have here. `most`: by the configuration.
    pub fn longest_lease(&self, most: Duration) -> Duration {
        self.member_lease.longest.map_or(most, |longest| longest.min(most))
    }

    /// Returns true if the own log is whole, as far as any heard member knows.
    pub fn has_own_log(&self, applied: &VersionVector) -> bool {
        self.own_log.is_whole(applied)
    }

    /// Returns true if the own log is whole, as far as any heard member knows, and leases that this disk may
    /// not know are over.
    pub fn knows_own_log(&self) -> bool {
        self.own_log.is_recovered()
    }

    /// Returns true if every member was heard once, now or before a restart, and all that they knew of the
    /// own log is here.
    pub fn has_joined(&self) -> bool {
        self.own_log.has_joined()
    }

    /// Returns true if the directory is thought to be an old copy, or an empty one in the place of a used
    /// one.
    pub fn is_doubted(&self) -> bool {
        self.own_log.is_doubted()
    }

    /// Returns true if the directory can join. Before the own clock is trusted, the token lead cannot be
    /// computed.
    pub fn may_join(&self, applied: &VersionVector) -> bool {
        !self.is_starting() && self.own_log.may_join(applied)
    }

    /// Returns true if this run still waits for members because it has restarted.
    pub fn is_asking(&self) -> bool {
        self.own_log.is_asking()
    }

    /// Returns the members without a link that have still to be asked for the own log.
    pub fn to_ask(&self, linked: DcSet) -> DcSet {
        match self.own_log.needs_answers() {
            true => self.own_log.unheard().difference(linked),
            false => DcSet::EMPTY,
        }
    }

    /// Returns true if most peers contradict the clock of this restarted server.
    pub fn is_contradicted(&self) -> bool {
        matches!(self.state, State::Starting(start) if start.contradicted)
    }

    /// Returns true if our stamps are too far ahead of most linked peers.
    pub fn has_clock_skew(&self) -> bool {
        self.stalls.has_clock_skew()
    }

    /// Returns by how many milliseconds at least our clock is behind most linked peers, if that exceeds the
    /// limit: this datacenter holds their entries back. It makes entries, which the others apply.
    #[inline]
    pub fn clock_behind_ms(&self) -> Option<u64> {
        self.clock_behind_ms
    }

    /// Returns true if a minority keeps as many entries for others as it may.
    pub fn is_log_full(&self) -> bool {
        self.stalls.is_log_full()
    }

    #[inline]
    pub fn disk_space(&self) -> DiskSpace {
        self.stalls.disk()
    }

    /// Refuses a write of a client unless the disk has enough room.
    pub fn admit_write(&self) -> Result<(), Refusal> {
        self.stalls.admit_write()
    }

    #[inline]
    pub fn is_draining(&self) -> bool {
        self.admission.is_draining()
    }

    #[inline]
    pub fn load(&self) -> Load {
        self.admission.load()
    }

    #[inline]
    pub fn versions(&self) -> &PeerVersions {
        &self.versions
    }

    /// Returns the time of the first step; before it, the origin of time.
    pub fn began_at(&self) -> Instant {
        self.run.began_at.unwrap_or(Instant::ZERO)
    }

    /// Returns the clock at the start of this run, in milliseconds since the Unix epoch.
    pub fn clock_at_start_ms(&self) -> u64 {
        self.run.clock_ms
    }
}
