//! Pure. The next request of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::keys::Choice;
use super::options::{Options, Workload};
use crate::base::rng::Rng;
use geolock_api::names::{LockName, Mode};

/// A lock, by number.
pub(super) type Key = u64;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub locks: Vec<(Key, Mode)>,
    /// True for a transaction under the locks.
    pub is_txn: bool,
}

/// The next action of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Ask(Ask),
    /// Nothing, until that long after the beginning.
    Rest(Duration),
}

/// All locks of the test.
#[derive(Debug)]
pub(super) struct Locks {
    prefix: String,
    names: Vec<LockName>,
    /// For [`Workload::First`]: the next lock that was never used.
    fresh: AtomicU64,
}

impl Locks {
    /// Creates the locks for that many datacenters. Different runs never want the same locks if their
    /// prefixes differ.
    pub(super) fn new(options: &Options, dcs: usize, prefix: &str) -> Locks {
        let count = match options.workload {
            Workload::Hot => 1,
            Workload::First => 0,
            workload if workload.is_common() => options.keys,
            _ => options.keys * dcs,
        };
        let names = (0..count as u64).map(|key| name(prefix, key)).collect();
        Locks { prefix: prefix.into(), names, fresh: AtomicU64::new(0) }
    }

    pub(super) fn name(&self, key: Key) -> LockName {
        match self.names.get(key as usize) {
            Some(name) => name.clone(),
            None => name(&self.prefix, key),
        }
    }

    /// Returns all numbered locks; not those of [`Workload::First`].
    pub(super) fn names(&self) -> &[LockName] {
        &self.names
    }

    /// Returns the locks that a datacenter has to acquire before the measurement.
    pub(super) fn of_home(&self, options: &Options, dc: usize) -> std::ops::Range<Key> {
        match options.workload {
            Workload::Home | Workload::Mixed | Workload::Batch | Workload::Txn => {
                (dc * options.keys) as Key..((dc + 1) * options.keys) as Key
            }
            Workload::Hot | Workload::Readers | Workload::FollowTheSun | Workload::First => 0..0,
        }
    }
}

fn name(prefix: &str, key: Key) -> LockName {
    LockName::try_from(format!("{prefix}/{key}").as_str()).expect("a short text is the name of a lock")
}

/// The choices of one client.
#[derive(Debug)]
pub(super) struct Mind {
    options: Arc<Options>,
    locks: Arc<Locks>,
    choice: Arc<Choice>,
    dc: usize,
    dcs: usize,
    rng: Rng,
}

impl Mind {
    /// Creates those of the `n`-th client in the `dc`-th of `dcs` datacenters; they differ in each phase.
    pub(super) fn new(
        options: &Arc<Options>,
        locks: &Arc<Locks>,
        choice: &Arc<Choice>,
        (dc, dcs): (usize, usize),
        (n, phase): (usize, u32),
    ) -> Mind {
        Mind {
            options: Arc::clone(options),
            locks: Arc::clone(locks),
            choice: Arc::clone(choice),
            dc,
            dcs,
            rng: Rng::new(options.seed, u64::from(phase) << 32 | (n * dcs + dc) as u64),
        }
    }

    /// Returns the action at that time after the beginning.
    pub(super) fn next(&mut self, elapsed: Duration) -> Turn {
        match self.options.workload {
            Workload::FollowTheSun => {
                let turn = self.options.active_for;
                let shift = (elapsed.as_nanos() / turn.as_nanos()) as usize;
                let ahead = (self.dcs + self.dc - shift % self.dcs) % self.dcs;
                if ahead > 0 {
                    return Turn::Rest(turn * (shift + ahead) as u32);
                }
                self.ask(0, Mode::Exclusive)
            }
            Workload::Hot => Turn::Ask(Ask { locks: vec![(0, Mode::Exclusive)], is_txn: false }),
            Workload::Home | Workload::Batch | Workload::Txn => self.ask(self.dc, Mode::Exclusive),
            Workload::Mixed => {
                let is_foreign = self.dcs > 1 && self.rng.percent(self.options.foreign_percent.into());
                let away = if is_foreign { self.rng.between(1, self.dcs as u64 - 1) as usize } else { 0 };
                self.ask((self.dc + away) % self.dcs, Mode::Exclusive)
            }
            Workload::Readers => {
                let writes = self.dc == 0 && self.rng.percent(self.options.writes_percent.into());
                self.ask(0, if writes { Mode::Exclusive } else { Mode::Shared })
            }
            Workload::First => {
                let count = self.options.batch as u64;
                let first = self.locks.fresh.fetch_add(count, Ordering::Relaxed);
                let locks = (first..first + count).map(|key| (key, Mode::Exclusive)).collect();
                Turn::Ask(Ask { locks, is_txn: false })
            }
        }
    }

    /// Requests different locks of one home.
    fn ask(&mut self, home: usize, mode: Mode) -> Turn {
        let first = (home * self.options.keys) as Key;
        let is_txn = self.options.workload == Workload::Txn;
        let mut locks: Vec<(Key, Mode)> = Vec::with_capacity(self.options.batch);
        while locks.len() < self.options.batch {
            let mut key = self.choice.draw(&mut self.rng) as Key;
            // Takes the next free number: in a large batch further draws would almost always hit locks that
            // are in it.
            while locks.iter().any(|(other, _)| *other == first + key) {
                key = (key + 1) % self.options.keys as Key;
            }
            locks.push((first + key, mode));
        }
        Turn::Ask(Ask { locks, is_txn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minds(options: Options) -> Vec<Mind> {
        let locks = Arc::new(Locks::new(&options, 3, "test"));
        let (choice, options) = (Arc::new(Choice::new(options.keys, options.zipf)), Arc::new(options));
        (0..3).map(|dc| Mind::new(&options, &locks, &choice, (dc, 3), (0, 0))).collect()
    }

    fn asks(mind: &mut Mind, count: usize) -> Vec<Ask> {
        let next = |_| match mind.next(Duration::ZERO) {
            Turn::Ask(ask) => ask,
            Turn::Rest(until) => panic!("rests until {until:?}"),
        };
        (0..count).map(next).collect()
    }

    fn options(workload: Workload) -> Options {
        Options { workload, keys: 10, ..Options::default() }
    }

    #[test]
    fn at_home_everybody_stays_at_home() {
        for (dc, mind) in minds(options(Workload::Home)).iter_mut().enumerate() {
            let asks = asks(mind, 1_000);
            let own = dc as u64 * 10..(dc as u64 + 1) * 10;
            assert!(asks.iter().flat_map(|ask| &ask.locks).all(|(key, _)| own.contains(key)));
            assert!(own.clone().all(|key| asks.iter().any(|ask| ask.locks[0].0 == key)));
        }
    }

    #[test]
    fn a_mix_goes_elsewhere_as_often_as_it_is_told() {
        let mut minds = minds(Options { foreign_percent: 30, ..options(Workload::Mixed) });
        let asks = asks(&mut minds[1], 10_000);
        let foreign = asks.iter().filter(|ask| !(10..20).contains(&ask.locks[0].0)).count();
        assert!((2_800..3_200).contains(&foreign), "{foreign}");
    }

    #[test]
    fn a_batch_has_different_locks() {
        let mut minds = minds(Options { batch: 10, zipf: 2.0, ..options(Workload::Batch) });
        for Ask { mut locks, .. } in asks(&mut minds[2], 100) {
            locks.sort_by_key(|(key, _)| *key);
            assert!(locks.iter().map(|(key, _)| *key).eq(20..30));
        }
    }

    #[test]
    fn only_the_first_datacenter_writes() {
        let mut minds = minds(Options { writes_percent: 10, ..options(Workload::Readers) });
        let writes: Vec<usize> = minds
            .iter_mut()
            .map(|mind| asks(mind, 10_000).iter().filter(|ask| ask.locks[0].1 == Mode::Exclusive).count())
            .collect();
        assert!((800..1_200).contains(&writes[0]) && writes[1..] == [0, 0], "{writes:?}");
    }

    #[test]
    fn the_sun_goes_round() {
        let second = Duration::from_secs(1);
        let mut minds = minds(Options { active_for: second, ..options(Workload::FollowTheSun) });
        for at in 0..9 {
            let now = second * at + second / 2;
            for (dc, mind) in minds.iter_mut().enumerate() {
                let ahead = (3 + dc as u32 - at % 3) % 3;
                match mind.next(now) {
                    Turn::Ask(_) => assert_eq!(ahead, 0),
                    Turn::Rest(until) => assert_eq!(until, second * (at + ahead)),
                }
            }
        }
    }

    #[test]
    fn nobody_gets_what_was_had_before() {
        let mut minds = minds(Options { batch: 3, ..options(Workload::First) });
        let mut seen: Vec<u64> = minds
            .iter_mut()
            .flat_map(|mind| asks(mind, 5))
            .flat_map(|ask| ask.locks.into_iter().map(|(key, _)| key))
            .collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..45));
    }
}
