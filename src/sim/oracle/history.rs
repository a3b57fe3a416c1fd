//! The holds of a run, checked after it: sort by lock and time, compare neighbours. It shares no code with
//! the online check, so that a mistake in one of them shows.

use crate::sim::failure::FailureKind;
use crate::sim::oracle::Broken;
use crate::sim::queue::Moment;
use geolock_api::names::{FencingToken, LockName, Mode};

/// One hold of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub lock: LockName,
    pub mode: Mode,
    pub token: FencingToken,
    pub from: Moment,
    pub until: Moment,
}

impl Interval {
    /// Returns true if this exclusive hold was downgraded to that one, which has its token.
    fn becomes(&self, hold: &Interval) -> bool {
        let is_downgrade = self.mode == Mode::Exclusive && hold.mode == Mode::Shared;
        is_downgrade && self.token == hold.token && self.until == hold.from
    }
}

/// Checks that no two holds in conflict overlap, and that tokens of conflicting ones grow with time. O(n log
/// n).
pub(crate) fn verify(mut intervals: Vec<Interval>) -> Result<(), Broken> {
    intervals.sort_by(|a, b| (&a.lock, a.from, a.token).cmp(&(&b.lock, b.from, b.token)));
    for holds in intervals.chunk_by(|a, b| a.lock == b.lock) {
        verify_lock(holds)?;
    }
    Ok(())
}

/// For each mode, the hold so far that ends last and the one with the highest token.
#[derive(Default)]
struct Worst<'a> {
    until: Option<&'a Interval>,
    token: Option<&'a Interval>,
}

impl<'a> Worst<'a> {
    fn add(&mut self, hold: &'a Interval) {
        if self.until.is_none_or(|worst| worst.until < hold.until) {
            self.until = Some(hold);
        }
        if self.token.is_none_or(|worst| worst.token < hold.token) {
            self.token = Some(hold);
        }
    }

    fn allows(&self, hold: &Interval) -> Result<(), Broken> {
        if let Some(other) = self.until.filter(|other| other.until > hold.from) {
            let what = format!("these holds overlap: {other:?} and {hold:?}");
            return Err(Broken::new(FailureKind::ConflictingHolders, what));
        }
        if let Some(other) = self.token.filter(|other| other.token >= hold.token && !other.becomes(hold)) {
            let what = format!("the token of {hold:?} is not above that of {other:?}");
            return Err(Broken::new(FailureKind::TokenOrder, what));
        }
        Ok(())
    }
}

fn verify_lock(holds: &[Interval]) -> Result<(), Broken> {
    let (mut shared, mut exclusive) = (Worst::default(), Worst::default());
    for hold in holds {
        exclusive.allows(hold)?;
        match hold.mode {
            Mode::Shared => shared.add(hold),
            Mode::Exclusive => {
                shared.allows(hold)?;
                exclusive.add(hold);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(lock: &str, mode: Mode, token: u64, millis: std::ops::Range<u64>) -> Interval {
        Interval {
            lock: LockName::try_from(lock).expect("a test name is valid"),
            mode,
            token: FencingToken(token),
            from: Moment::from_millis(millis.start),
            until: Moment::from_millis(millis.end),
        }
    }

    fn kind(holds: Vec<Interval>) -> Option<FailureKind> {
        verify(holds).err().map(|broken| broken.kind)
    }

    use Mode::{Exclusive as X, Shared as S};

    #[test]
    fn a_fair_history_passes_in_whatever_order_it_comes() {
        let history = vec![
            hold("b", X, 1, 0..100),
            hold("a", X, 9, 60..70),
            hold("a", S, 4, 20..60),
            hold("a", S, 3, 25..30),
            hold("a", X, 1, 0..20),
        ];
        assert_eq!(verify(history), Ok(()));
    }

    #[test]
    fn a_downgraded_hold_keeps_its_token_and_lets_readers_in_and_no_writer() {
        let downgraded = [hold("a", X, 7, 0..20), hold("a", S, 7, 20..60)];
        let with = |other| downgraded.iter().cloned().chain([other]).collect();
        assert_eq!(kind(with(hold("a", S, 8, 20..30))), None);
        assert_eq!(kind(with(hold("a", X, 9, 60..70))), None);
        assert_eq!(kind(with(hold("a", X, 9, 40..70))), Some(FailureKind::ConflictingHolders));
        assert_eq!(kind(with(hold("a", S, 7, 30..40))), Some(FailureKind::TokenOrder), "it is another hold");
    }

    #[test]
    fn an_overlap_is_found_across_a_short_hold_between() {
        let history = vec![hold("a", S, 1, 0..50), hold("a", S, 2, 10..20), hold("a", X, 3, 40..60)];
        assert_eq!(kind(history), Some(FailureKind::ConflictingHolders));
    }

    #[test]
    fn a_token_that_falls_is_found_across_a_low_one_between() {
        let history = vec![hold("a", S, 8, 0..5), hold("a", S, 2, 10..20), hold("a", X, 5, 40..60)];
        assert_eq!(kind(history), Some(FailureKind::TokenOrder));
    }
}
