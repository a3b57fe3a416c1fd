//! When a lock was used here, and how soon it is used again: the facts that hold policies judge by.

use super::reuse_estimate::ReuseEstimate;
use crate::base::time::Instant;
use geolock_api::names::Mode;

/// The past use of a lock by the clients of this datacenter.
#[derive(Default, Debug)]
pub(super) struct UseHistory {
    /// Time of the first local grant since a part last came.
    pub acquired_at: Option<Instant>,
    pub last_release: Option<Instant>,
    pub last_exclusive_release: Option<Instant>,
    /// Reuse estimates, measured while others want the lock too: `reuse` for any mode, `exclusive_reuse`
    /// for exclusive requests.
    pub reuse: ReuseEstimate,
    pub exclusive_reuse: ReuseEstimate,
}

impl UseHistory {
    /// Records a local request for the lock. The time is measured only after a release with other waiters,
    /// because a lock that no other datacenter wants stays anyway. Returns true if a reuse estimate changed:
    /// then remote requests may become due at another time than the timer says.
    pub fn note_request(&mut self, mode: Mode, now: Instant) -> bool {
        let learnt = self.reuse.note_request(now);
        learnt | (mode == Mode::Exclusive && self.exclusive_reuse.note_request(now))
    }

    /// Records the time of a release by a holder in `mode`.
    pub fn note_release(&mut self, mode: Mode, now: Instant) {
        debug_assert!(self.last_release.is_none_or(|last| last <= now), "time does not go back");
        self.last_release = Some(now);
        if mode == Mode::Exclusive {
            self.last_exclusive_release = Some(now);
        }
    }

    /// Returns the time of the last release that conflicts with `mode`, and the reuse estimate of such
    /// grants.
    pub fn against(&self, mode: Mode) -> (Option<Instant>, ReuseEstimate) {
        match mode {
            Mode::Exclusive => (self.last_release, self.reuse),
            Mode::Shared => (self.last_exclusive_release, self.exclusive_reuse),
        }
    }
}
