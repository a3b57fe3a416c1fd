//! The locks that are waited for most at present: a table of fixed size, updated at constant cost.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k
//! elements in data streams, ICDT 2005) with weights. A lock that is not in a full table replaces the
//! lightest row and inherits its weight, which is an upper bound of the weight that the lock may have had
//! before. So every lock with more than one part in [`ROWS`] of the whole weight is in the table. The weight
//! of a lock is the time that its grants had waited, plus a constant for each move of its parts. Weights
//! halve every [`HALF_LIFE`], so recent waits count most. The values *shown* for a lock were counted since it
//! entered the table; inherited weight is not shown.
//!
//! Only requests that wait are counted, so a grant of a free lock costs nothing here. A request for many
//! locks counts for one of them: the lock that blocked it last. A wait that has not ended has no duration
//! yet, and that lock is the one that an operator looks for. Therefore a lock with waiters keeps its row:
//! each half-life adds its own length to the weight.
//!
//! The lightest row is found by a scan of all weights (1 KiB), and only when a lock enters that is not in the
//! table.

use std::time::Duration;

use crate::base::keyed_map::KeyedMap;
use crate::base::time::Instant;
use geolock_api::names::LockName;

/// Number of rows in the table. An operator reads some tens of them.
const ROWS: usize = 128;
/// A wait counts half after this time.
pub(super) const HALF_LIFE: Duration = Duration::from_secs(10);
const HALF_LIFE_US: u64 = HALF_LIFE.as_micros() as u64;
/// Weight of a move of parts, in microseconds of waiting: about the delay between neighbouring regions,
/// because a request at the other end has waited for that long.
const MOVE_US: u64 = 10_000;
/// Weight of the beginning of a wait, in microseconds: negligible, but the lock enters the table.
const BEGIN_US: u64 = 1;

/// Figures of a lock, counted since it entered the table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Heat {
    /// Time at which the lock entered the table.
    pub since: Instant,
    /// Sum of the waiting times of the grants here.
    pub waited: Duration,
    /// Number of grants that had waited. Others are not counted.
    pub grants: u64,
    /// Number of times that parts came here or left.
    pub hand_offs: u64,
    /// Longest wait of the last one to two half-lives (10 s to 20 s).
    pub max_wait: Duration,
}

struct Row {
    lock: LockName,
    /// The part of its weight that the row inherited.
    inherited: u64,
    heat: Heat,
    /// Longest wait of the previous half-life; `heat` has that of the current one.
    worst_before: Duration,
}

/// The table of hot locks.
pub(super) struct HotLocks {
    rows: Vec<Row>,
    /// By row, in microseconds of waiting.
    weights: Vec<u64>,
    places: KeyedMap<LockName, usize>,
    halves_at: Instant,
    now: Instant,
}

impl HotLocks {
    pub fn new(hash_seed: u64) -> HotLocks {
        HotLocks {
            rows: Vec::new(),
            weights: Vec::new(),
            places: KeyedMap::with_seed(hash_seed),
            halves_at: Instant::ZERO + HALF_LIFE,
            now: Instant::ZERO,
        }
    }

    /// Records that a request begins to wait for the lock.
    pub fn waits(&mut self, lock: &LockName) {
        self.add(lock, BEGIN_US);
    }

    /// Records a grant of a request that had waited.
    pub fn granted(&mut self, lock: &LockName, waited: Duration) {
        let heat = self.add(lock, waited.as_micros() as u64);
        heat.grants += 1;
        heat.waited += waited;
        heat.max_wait = heat.max_wait.max(waited);
    }

    /// Records that parts of the lock came or left.
    pub fn moved(&mut self, lock: &LockName) {
        self.add(lock, MOVE_US).hand_offs += 1;
    }

    fn add(&mut self, lock: &LockName, weight: u64) -> &mut Heat {
        let place = match self.places.get(lock) {
            Some(place) => *place,
            None => self.enter(lock),
        };
        self.weights[place] = self.weights[place].saturating_add(weight);
        &mut self.rows[place].heat
    }

    /// Takes a free row, or that of the lightest lock.
    fn enter(&mut self, lock: &LockName) -> usize {
        let heat = Heat { since: self.now, ..Heat::default() };
        let row = Row { lock: lock.clone(), inherited: 0, heat, worst_before: Duration::ZERO };
        let place = if self.rows.len() < ROWS {
            self.rows.push(row);
            self.weights.push(0);
            self.rows.len() - 1
        } else {
            let lightest = self.weights.iter().enumerate().min_by_key(|(_, weight)| **weight);
            let (place, inherited) = lightest.map(|(place, weight)| (place, *weight)).expect("it is full");
            let out = std::mem::replace(&mut self.rows[place], Row { inherited, ..row });
            self.places.remove(&out.lock);
            place
        };
        let before = self.places.insert(lock.clone(), place);
        debug_assert!(before.is_none(), "lock {lock} enters once");
        assert!(self.rows.len() <= ROWS, "the table has a bound");
        place
    }

    /// Sets the time. Returns true if [`HotLocks::halve`] is due.
    pub fn advance(&mut self, now: Instant) -> bool {
        debug_assert!(self.now <= now, "time does not go back");
        self.now = now;
        self.halves_at <= now
    }

    /// Halves all weights after a half-life. Removes locks without waiters whose weight, without the
    /// inherited one, is below that of a move: so thousands of locks that moved once leave the table soon.
    pub fn halve(&mut self, is_waited_for: impl Fn(&LockName) -> bool) {
        debug_assert!(self.halves_at <= self.now, "a half-life is over");
        let over = self.now.saturating_since(self.halves_at).as_nanos() / HALF_LIFE.as_nanos() + 1;
        self.halves_at = self.now + HALF_LIFE;
        let mut place = 0;
        while place < self.rows.len() {
            let (row, weight) = (&mut self.rows[place], &mut self.weights[place]);
            let halved = |weight: u64| u32::try_from(over).ok().and_then(|over| weight.checked_shr(over));
            *weight = halved(*weight).unwrap_or(0);
            row.inherited = halved(row.inherited).unwrap_or(0);
            row.worst_before = if over == 1 { row.heat.max_wait } else { Duration::ZERO };
            row.heat.max_wait = Duration::ZERO;
            if is_waited_for(&row.lock) {
                *weight = weight.saturating_add(HALF_LIFE_US);
            }
            if *weight - row.inherited.min(*weight) >= MOVE_US {
                place += 1;
                continue;
            }
            let out = self.rows.swap_remove(place);
            self.weights.swap_remove(place);
            self.places.remove(&out.lock);
            if let Some(moved) = self.rows.get(place) {
                *self.places.get_mut(&moved.lock).expect("each row has its place") = place;
            }
        }
    }

    /// Returns all rows with their weights (without inherited weight), in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&LockName, u64, Heat)> {
        self.rows.iter().zip(&self.weights).map(|(row, weight)| {
            let max_wait = row.heat.max_wait.max(row.worst_before);
            (&row.lock, weight - row.inherited.min(*weight), Heat { max_wait, ..row.heat })
        })
    }

    /// Asserts that each lock has one row, is found at its place, and that the table is not larger than
    /// allowed.
    pub fn check(&self) {
        assert!(self.rows.len() <= ROWS && self.rows.len() == self.weights.len());
        assert_eq!(self.rows.len(), self.places.len(), "each row has one place");
        for (place, row) in self.rows.iter().enumerate() {
            assert_eq!(self.places.get(&row.lock), Some(&place), "the place of {}", row.lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn lock(n: usize) -> LockName {
        LockName::try_from(&*format!("lock {n}")).expect("a short name")
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn heat(hot: &HotLocks, n: usize) -> Option<(u64, Heat)> {
        hot.iter().find(|(name, ..)| **name == lock(n)).map(|(_, weight, heat)| (weight, heat))
    }

    /// Advances by `halves` half-lives.
    fn pass(hot: &mut HotLocks, halves: u32, waited_for: Option<usize>) {
        for _ in 0..halves {
            assert!(hot.advance(hot.now + HALF_LIFE));
            hot.halve(|name| waited_for.is_some_and(|n| *name == lock(n)));
            hot.check();
        }
    }

    #[test]
    fn it_counts_what_waited_and_what_moved() {
        let mut hot = HotLocks::new(0);
        hot.advance(Instant::from_nanos(7));
        hot.waits(&lock(1));
        hot.granted(&lock(1), ms(30));
        hot.granted(&lock(1), ms(20));
        hot.moved(&lock(2));
        let expected =
            Heat { since: Instant::from_nanos(7), waited: ms(50), grants: 2, hand_offs: 0, max_wait: ms(30) };
        assert_eq!(heat(&hot, 1), Some((50_001, expected)));
        assert_eq!(heat(&hot, 2).map(|(weight, heat)| (weight, heat.hand_offs)), Some((MOVE_US, 1)));
        assert_eq!(heat(&hot, 3), None);
    }

    #[test]
    fn what_was_fades_and_is_forgotten() {
        let mut hot = HotLocks::new(0);
        hot.granted(&lock(1), ms(1_000));
        pass(&mut hot, 1, None);
        assert_eq!(heat(&hot, 1).map(|(weight, heat)| (weight, heat.max_wait)), Some((500_000, ms(1_000))));
        pass(&mut hot, 1, None);
        let (weight, then) = heat(&hot, 1).expect("it is still there");
        assert_eq!((weight, then.max_wait, then.waited), (250_000, Duration::ZERO, ms(1_000)));
        pass(&mut hot, 4, None);
        assert_eq!(heat(&hot, 1).map(|(weight, _)| weight), Some(15_625));
        pass(&mut hot, 1, None);
        assert_eq!(hot.iter().count(), 0);
    }

    #[test]
    fn a_long_silence_is_many_half_lives() {
        let mut hot = HotLocks::new(0);
        hot.granted(&lock(1), ms(1_000));
        hot.granted(&lock(2), ms(1_000));
        assert!(hot.advance(Instant::ZERO + HALF_LIFE * 1_000));
        hot.halve(|name| *name == lock(2));
        hot.check();
        assert_eq!(heat(&hot, 1), None);
        assert_eq!(heat(&hot, 2).map(|(weight, _)| weight), Some(HALF_LIFE_US));
        assert!(!hot.advance(hot.now + ms(9_999)));
    }

    #[test]
    fn a_lock_that_somebody_waits_for_stays_whatever_comes_by() {
        let mut hot = HotLocks::new(0);
        hot.waits(&lock(0));
        pass(&mut hot, 100, Some(0));
        for n in 1..10 * ROWS {
            hot.waits(&lock(n));
            hot.granted(&lock(n), ms(1));
        }
        hot.check();
        assert!(heat(&hot, 0).is_some());
    }

    #[test]
    fn nothing_that_is_shown_was_inherited() {
        let mut hot = HotLocks::new(0);
        for n in 0..ROWS {
            hot.granted(&lock(n), ms(100));
        }
        hot.granted(&lock(ROWS), ms(1));
        assert_eq!(heat(&hot, ROWS).map(|(weight, heat)| (weight, heat.waited)), Some((1_000, ms(1))));
        assert_eq!(hot.iter().count(), ROWS);
    }

    proptest! {
        /// The promise of the paper: the weight of a row is never too low, the shown values are never too
        /// high, and every lock with more than one part in [`ROWS`] of the whole weight is in the table.
        #[test]
        fn whatever_is_hot_is_in_the_table(
            steps in prop::collection::vec((0..3 * ROWS, 0_u64..50), 0..3_000),
            hot_one in 0..3 * ROWS,
        ) {
            let mut hot = HotLocks::new(0);
            let mut truth: BTreeMap<usize, u64> = BTreeMap::new();
            for (i, (n, waited)) in steps.into_iter().enumerate() {
                let n = if i % 20 == 0 { hot_one } else { n };
                hot.granted(&lock(n), Duration::from_micros(waited));
                *truth.entry(n).or_default() += waited;
            }
            hot.check();
            let all: u64 = truth.values().sum();
            for (n, waited) in truth {
                match hot.places.get(&lock(n)) {
                    Some(place) => {
                        let (seen, heat) = heat(&hot, n).expect("it has a row");
                        prop_assert!(hot.weights[*place] >= waited);
                        prop_assert!(seen <= waited && heat.waited.as_micros() as u64 == seen);
                    }
                    None => prop_assert!(waited <= all / ROWS as u64, "{} of {}", waited, all),
                }
            }
        }
    }
}
