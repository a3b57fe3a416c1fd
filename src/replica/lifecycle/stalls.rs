//! Stalls: conditions that hinder a datacenter for some time, although its own log is whole. Each begins and
//! ends by itself, independently of the state. A write stall keeps it from making entries; a clock that is
//! behind stops no writes, but keeps parts from moving (`docs/algorithm/grants.md#23-clock-skew`).

use crate::base::capacity::DiskSpace;
use crate::replica::call::Refusal;

/// A minority keeps up to this many times `max_log` for the others.
const MINORITY_LOGS: usize = 4;

/// The write stalls, and the clock that is behind.
pub(in crate::replica) struct Stalls {
    /// Our clock, or the stamps that we gave, are too far ahead of most linked peers.
    clock_skew: bool,
    /// By how many milliseconds at least our clock is behind most others, if that exceeds the limit.
    clock_behind_ms: Option<u64>,
    disk: DiskSpace,
    /// A minority keeps as many entries for others as it may.
    log_full: bool,
    /// The log is full when its entries weigh more.
    most_log: usize,
}

/// The reason why no entries are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stall {
    ClockSkew,
    DiskFull,
    LogFull,
}

impl Stalls {
    pub(super) fn new(max_log: usize) -> Stalls {
        let most_log = max_log.saturating_mul(MINORITY_LOGS);
        Stalls {
            clock_skew: false,
            clock_behind_ms: None,
            disk: DiskSpace::default(),
            log_full: false,
            most_log,
        }
    }

    /// Returns true if that is a change.
    pub(super) fn set_clock_skew(&mut self, active: bool) -> bool {
        std::mem::replace(&mut self.clock_skew, active) != active
    }

    /// Returns true if the clock is behind now and was not before, or the other way round.
    pub(super) fn set_clock_behind(&mut self, behind_ms: Option<u64>) -> bool {
        std::mem::replace(&mut self.clock_behind_ms, behind_ms).is_some() != behind_ms.is_some()
    }

    /// Returns the space before.
    pub(super) fn set_disk(&mut self, disk: DiskSpace) -> DiskSpace {
        std::mem::replace(&mut self.disk, disk)
    }

    /// Returns true if our stamps are too far ahead of most linked peers.
    pub fn has_clock_skew(&self) -> bool {
        self.clock_skew
    }

    /// Returns by how many milliseconds at least our clock is behind most linked peers, if that exceeds the
    /// limit: this datacenter holds their entries back. It makes entries, which the others apply.
    #[inline]
    pub fn clock_behind_ms(&self) -> Option<u64> {
        self.clock_behind_ms
    }

    #[inline]
    pub fn disk(&self) -> DiskSpace {
        self.disk
    }

    /// Returns true if a minority keeps as many entries for others as it may.
    #[inline]
    pub fn is_log_full(&self) -> bool {
        self.log_full
    }

    /// Returns true if the log is full when its entries have this weight. A minority, which can give no
    /// member up, keeps all that the others lack, but at most four times as much as a majority keeps
    /// (`docs/algorithm/log.md#34-truncation`).
    #[inline]
    pub(super) fn is_full_at(&self, weight: usize) -> bool {
        // Hysteresis: when the others are back the log shrinks entry by entry, and making entries for a
        // moment helps nobody.
        weight > self.most_log || (self.log_full && weight > self.most_log / 8 * 7)
    }

    /// The entries of the log have this weight. Returns the new state if the log becomes full or ceases to be
    /// full.
    pub(super) fn on_log_weight(&mut self, weight: usize) -> Option<bool> {
        let full = self.is_full_at(weight);
        let changed = std::mem::replace(&mut self.log_full, full) != full;
        debug_assert_eq!(self.is_full_at(weight), full, "one weight does not change it twice");
        changed.then_some(full)
    }

    /// Returns the write stall to name, if there is one.
    pub(super) fn first(&self) -> Option<Stall> {
        match self {
            Stalls { clock_skew: true, .. } => Some(Stall::ClockSkew),
            Stalls { disk: DiskSpace::Full, .. } => Some(Stall::DiskFull),
            Stalls { log_full: true, .. } => Some(Stall::LogFull),
            _ => None,
        }
    }

    /// Refuses a write of a client unless the disk has enough room.
    pub fn admit_write(&self) -> Result<(), Refusal> {
        if self.disk == DiskSpace::Enough { Ok(()) } else { Err(Refusal::DiskFull) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_minority_is_full_at_four_times_the_limit_and_not_before_an_eighth_less_again() {
        let mut stalls = Stalls::new(20);
        assert_eq!(stalls.on_log_weight(80), None);
        assert!(stalls.is_full_at(81));
        assert_eq!((stalls.on_log_weight(81), stalls.first()), (Some(true), Some(Stall::LogFull)));
        assert_eq!(stalls.on_log_weight(71), None);
        assert_eq!((stalls.on_log_weight(70), stalls.first()), (Some(false), None));
    }

    #[test]
    fn a_nearly_full_disk_refuses_clients_and_a_full_one_all_writes() {
        let mut stalls = Stalls::new(20);
        assert_eq!(stalls.set_disk(DiskSpace::Low), DiskSpace::Enough);
        assert!(stalls.admit_write().is_err() && stalls.first().is_none());
        assert_eq!(stalls.set_disk(DiskSpace::Full), DiskSpace::Low);
        assert!(stalls.admit_write().is_err() && stalls.first() == Some(Stall::DiskFull));
    }

    #[test]
    fn a_wrong_clock_is_named_before_a_full_disk() {
        let mut stalls = Stalls::new(20);
        assert!(stalls.set_clock_skew(true) && !stalls.set_clock_skew(true));
        stalls.set_disk(DiskSpace::Full);
        assert_eq!(stalls.first(), Some(Stall::ClockSkew));
    }
}
