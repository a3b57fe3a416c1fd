//! Write stalls: conditions under which a datacenter makes no entries for some time, although its own log is
//! whole. Each begins and ends by itself, independently of the state.

use crate::base::capacity::DiskSpace;
use crate::replica::call::Refusal;

/// A minority keeps up to this many times `max_log` for the others.
const MINORITY_LOGS: usize = 4;

/// The write stalls.
pub(super) struct WriteStalls {
    /// Our clock, or the stamps that we gave, are too far ahead of most linked peers.
    clock_skew: bool,
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

impl WriteStalls {
    pub fn new(max_log: usize) -> WriteStalls {
        let most_log = max_log.saturating_mul(MINORITY_LOGS);
        WriteStalls { clock_skew: false, disk: DiskSpace::default(), log_full: false, most_log }
    }

    /// Returns true if that is a change.
    pub fn set_clock_skew(&mut self, active: bool) -> bool {
        std::mem::replace(&mut self.clock_skew, active) != active
    }

    /// Returns the space before.
    pub fn set_disk(&mut self, disk: DiskSpace) -> DiskSpace {
        std::mem::replace(&mut self.disk, disk)
    }

    pub fn has_clock_skew(&self) -> bool {
        self.clock_skew
    }

    pub fn disk(&self) -> DiskSpace {
        self.disk
    }

    pub fn is_log_full(&self) -> bool {
        self.log_full
    }

    /// Returns true if the log is full when its entries have this weight. A minority, which can give no
    /// member up, keeps all that the others lack, but at most four times as much as a majority keeps
    /// (`docs/algorithm.md#84-truncation`).
    #[inline]
    pub fn is_full_at(&self, weight: usize) -> bool {
        // Hysteresis: when the others are back the log shrinks entry by entry, and making entries for a
        // moment helps nobody.
        weight > if self.log_full { self.most_log / 8 * 7 } else { self.most_log }
    }

    /// The entries of the log have this weight. Returns the new state if the log becomes full or ceases to be
    /// full.
    pub fn on_log_weight(&mut self, weight: usize) -> Option<bool> {
        let full = self.is_full_at(weight);
        (std::mem::replace(&mut self.log_full, full) != full).then_some(full)
    }

    /// Returns the stall to name, if there is one.
    pub fn first(&self) -> Option<Stall> {
        match self {
            WriteStalls { clock_skew: true, .. } => Some(Stall::ClockSkew),
            WriteStalls { disk: DiskSpace::Full, .. } => Some(Stall::DiskFull),
            WriteStalls { log_full: true, .. } => Some(Stall::LogFull),
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
        let mut stalls = WriteStalls::new(20);
        assert_eq!(stalls.on_log_weight(80), None);
        assert!(stalls.is_full_at(81));
        assert_eq!((stalls.on_log_weight(81), stalls.first()), (Some(true), Some(Stall::LogFull)));
        assert_eq!(stalls.on_log_weight(71), None);
        assert_eq!((stalls.on_log_weight(70), stalls.first()), (Some(false), None));
    }

    #[test]
    fn a_nearly_full_disk_refuses_clients_and_a_full_one_all_writes() {
        let mut stalls = WriteStalls::new(20);
        assert_eq!(stalls.set_disk(DiskSpace::Low), DiskSpace::Enough);
        assert!(stalls.admit_write().is_err() && stalls.first().is_none());
        assert_eq!(stalls.set_disk(DiskSpace::Full), DiskSpace::Low);
        assert!(stalls.admit_write().is_err() && stalls.first() == Some(Stall::DiskFull));
    }

    #[test]
    fn a_wrong_clock_is_named_before_a_full_disk() {
        let mut stalls = WriteStalls::new(20);
        assert!(stalls.set_clock_skew(true) && !stalls.set_clock_skew(true));
        stalls.set_disk(DiskSpace::Full);
        assert_eq!(stalls.first(), Some(Stall::ClockSkew));
    }
}
