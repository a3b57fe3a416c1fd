//! The locks that are waited for most at this time: a table of fixed size, kept up at constant cost.
//!
//! This is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data
//! streams, ICDT 2005) with weights: a lock that is not in a full table takes the place of the lightest one and inherits
//! its weight, as the most that it may have had before. So every lock with more than one part in [`ROWS`] of the whole
//! weight is in the table, whatever else comes by. The weight of a lock is how long its grants had waited, and a bit for each
//! move of its parts; it halves every [`HALF_LIFE`], so that what counts is now. Whatever is *shown* of a lock was
//! counted since it came into the table, and not inherited.
//!
//! Only what waited is counted: a lock that is here and free costs nothing. A request of many locks waits for one of
//! them: the one that stood in its way last. A wait that does not end would be forgotten, and that is the lock that an
//! operator looks for; so a lock keeps its place for as long as somebody waits for it, by a weight at each half-life.
//!
//! The lightest row is found by a look at all weights: 1 KiB, and only when a lock comes that is not in the table.

use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::names::LockName;
use crate::time::Instant;

/// Locks in the table. An operator looks at some tens.
const ROWS: usize = 128;
/// After that long a wait counts half.
pub(super) const HALF_LIFE: Duration = Duration::from_secs(10);
const HALF_LIFE_US: u64 = HALF_LIFE.as_micros() as u64;
/// What a move of parts weighs, in microseconds of waiting: a way between neighbouring regions. Somebody has waited for
/// that at the other end.
const MOVE_US: u64 = 10_000;
/// What a wait weighs when it begins: next to nothing, but the lock is in the table.
const BEGIN_US: u64 = 1;

/// What was seen of a lock since it came into the table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Heat {
    /// When that was.
    pub since: Instant,
    /// How long grants here had waited, all together.
    pub waited: Duration,
    /// Those grants. Others are not counted.
    pub grants: u64,
    /// How often parts came here or went away.
    pub hand_offs: u64,
    /// The longest wait of the last one to two half-lives (10 s to 20 s).
    pub worst_wait: Duration,
}

struct Row {
    lock: LockName,
    /// Of its weight, what it inherited.
    inherited: u64,
    heat: Heat,
    /// The longest wait of the half-life before; that of this one is in `heat`.
    worst_before: Duration,
}

/// See the top of this file.
pub(super) struct HotLocks {
    rows: Vec<Row>,
    /// By row, in microseconds of waiting.
    weights: Vec<u64>,
    places: HashMap<LockName, usize, FixedState>,
    halves_at: Instant,
    now: Instant,
}

impl HotLocks {
    pub fn new(hash_seed: u64) -> HotLocks {
        HotLocks {
            rows: Vec::new(),
            weights: Vec::new(),
            places: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            halves_at: Instant::ZERO + HALF_LIFE,
            now: Instant::ZERO,
        }
    }

    /// Somebody begins to wait for it.
    pub fn waits(&mut self, lock: &LockName) {
        self.add(lock, BEGIN_US);
    }

    /// Somebody got it who has waited.
    pub fn granted(&mut self, lock: &LockName, waited: Duration) {
        let heat = self.add(lock, waited.as_micros() as u64);
        heat.grants += 1;
        heat.waited += waited;
        heat.worst_wait = heat.worst_wait.max(waited);
    }

    /// Parts of it came or went.
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

    /// Takes a free place, or that of the lightest.
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
        self.places.insert(lock.clone(), place);
        place
    }

    /// Lets time pass. Whether [`HotLocks::halve`] is due.
    pub fn advance(&mut self, now: Instant) -> bool {
        self.now = now;
        self.halves_at <= now
    }

    /// A half-life is over: what was counts half. Forgets what nobody waits for and weighs less than a move, what it inherited left
    /// out: so thousands of locks that moved once are gone soon.
    pub fn halve(&mut self, is_waited_for: impl Fn(&LockName) -> bool) {
        let over = self.now.saturating_since(self.halves_at).as_nanos() / HALF_LIFE.as_nanos() + 1;
        self.halves_at = self.now + HALF_LIFE;
        let mut place = 0;
        while place < self.rows.len() {
            let (row, weight) = (&mut self.rows[place], &mut self.weights[place]);
            let halved = |weight: u64| u32::try_from(over).ok().and_then(|over| weight.checked_shr(over));
            *weight = halved(*weight).unwrap_or(0);
            row.inherited = halved(row.inherited).unwrap_or(0);
            row.worst_before = if over == 1 { row.heat.worst_wait } else { Duration::ZERO };
            row.heat.worst_wait = Duration::ZERO;
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

    /// All of them, with their weights (what they inherited left out), in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&LockName, u64, Heat)> {
        self.rows.iter().zip(&self.weights).map(|(row, weight)| {
            let worst_wait = row.heat.worst_wait.max(row.worst_before);
            (&row.lock, weight - row.inherited.min(*weight), Heat { worst_wait, ..row.heat })
        })
    }

    /// That it is a table: each lock once, in its place, no more than there is room for.
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

    /// Lets `halves` half-lives pass.
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
        let expected = Heat {
            since: Instant::from_nanos(7),
            waited: ms(50),
            grants: 2,
            hand_offs: 0,
            worst_wait: ms(30),
        };
        assert_eq!(heat(&hot, 1), Some((50_001, expected)));
        assert_eq!(heat(&hot, 2).map(|(weight, heat)| (weight, heat.hand_offs)), Some((MOVE_US, 1)));
        assert_eq!(heat(&hot, 3), None);
    }

    #[test]
    fn what_was_fades_and_is_forgotten() {
        let mut hot = HotLocks::new(0);
        hot.granted(&lock(1), ms(1_000));
        pass(&mut hot, 1, None);
        assert_eq!(heat(&hot, 1).map(|(weight, heat)| (weight, heat.worst_wait)), Some((500_000, ms(1_000))));
        pass(&mut hot, 1, None);
        let (weight, then) = heat(&hot, 1).expect("it is still there");
        assert_eq!((weight, then.worst_wait, then.waited), (250_000, Duration::ZERO, ms(1_000)));
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
        /// The promise of the paper: the weight of a row is never too low, what is shown never too high, and whoever has more
        /// than one part in [`ROWS`] of it all is in the table.
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
