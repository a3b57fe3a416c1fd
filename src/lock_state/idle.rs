//! Idle locks, each with the time at which it may be dropped.
//!
//! There is one list per hold rule, so each list is in order of time: locks that have to stay long do not
//! delay others.

use super::lock::LockIndex;
use crate::base::tables::Fifo;
use crate::base::time::Instant;

/// The lists of idle locks.
#[derive(Debug)]
pub(super) struct IdleLocks {
    by_rule: Vec<Fifo<(Instant, LockIndex)>>,
    /// Time at which the first of all is due, [`Instant::FAR_FUTURE`] if there is none: every step reads it.
    next: Instant,
}

impl IdleLocks {
    pub fn new(rules: usize) -> IdleLocks {
        IdleLocks { by_rule: (0..rules).map(|_| Fifo::default()).collect(), next: Instant::FAR_FUTURE }
    }

    /// Adds an idle lock of a rule. It is due from `due` on, and after the locks of its rule that were added
    /// before.
    pub fn push(&mut self, rule: u32, due: Instant, lock: LockIndex) {
        self.by_rule[rule as usize].push_back((due, lock));
        self.next = self.next.min(due);
    }

    /// Returns true if a lock is due.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Removes and returns a lock that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<LockIndex> {
        if !self.is_due(now) {
            return None;
        }
        let popped = self.by_rule.iter_mut().find_map(|list| list.pop_front_if(|(due, _)| *due <= now));
        let fronts = self.by_rule.iter().filter_map(|list| list.front());
        self.next = fronts.map(|(due, _)| *due).min().unwrap_or(Instant::FAR_FUTURE);
        popped.map(|(_, lock)| lock)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_that_has_to_stay_keeps_none_of_another_rule() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut idle = IdleLocks::new(2);
        idle.push(0, at(3_600), LockIndex(1));
        idle.push(1, at(2), LockIndex(2));
        idle.push(1, at(3), LockIndex(3));
        assert_eq!(idle.pop_due(at(1)), None);
        assert_eq!(idle.pop_due(at(3)), Some(LockIndex(2)));
        assert_eq!(idle.pop_due(at(3)), Some(LockIndex(3)));
        assert!(idle.pop_due(at(3)).is_none() && !idle.is_due(at(3_599)) && idle.is_due(at(3_600)));
        assert_eq!(idle.pop_due(at(4_000)), Some(LockIndex(1)));
        assert_eq!(idle.pop_due(at(9_000)), None);
    }
}
