//! The times at which clients acquire, and the length of their holds.
//!
//! A client of a closed loop acquires when it has released, so a slow server gets fewer requests, and its
//! worst moments hardly count. In an open loop acquisitions are due at fixed times, and a latency counts
//! from then, however late the request was sent (Gil Tene calls the omission of this *coordinated
//! omission*).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};

use crate::runtime::fine_timer::FineTimer;

/// Normal delay of a timer: it ticks in milliseconds.
const TICK: Duration = Duration::from_millis(2);

/// Up to this number of clients hold for exactly the wanted time.
const MAX_TIMERS: usize = 256;

/// The times for all clients of a datacenter.
#[derive(Clone, Debug)]
pub(super) enum Pace {
    Closed,
    Open(Arc<Schedule>),
}

/// Turns that were due and that no client has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missed {
    pub count: u64,
    /// Time since the first of them was due.
    pub oldest: Duration,
}

impl Missed {
    /// Returns the time since each of them was due.
    pub(super) fn waits(self) -> impl Iterator<Item = Duration> {
        (1..=self.count).map(move |n| self.oldest.mul_f64(n as f64 / self.count as f64))
    }
}

/// Evenly spaced times.
#[derive(Debug)]
pub(super) struct Schedule {
    begins: Instant,
    rate: f64,
    next: AtomicU64,
}

impl Schedule {
    fn due(&self, n: u64) -> Instant {
        self.begins + Duration::from_secs_f64(n as f64 / self.rate)
    }
}

impl Pace {
    pub(super) fn new(begins: Instant, rate: Option<f64>) -> Pace {
        match rate {
            None => Pace::Closed,
            Some(rate) => Pace::Open(Arc::new(Schedule { begins, rate, next: AtomicU64::new(0) })),
        }
    }

    /// Waits for the next turn. Returns the time from which its latency counts.
    pub(super) async fn next(&self) -> Instant {
        let Pace::Open(schedule) = self else { return Instant::now() };
        let due = schedule.due(schedule.next.fetch_add(1, Ordering::Relaxed));
        if due <= Instant::now() {
            return due;
        }
        sleep_until(due.into()).await;
        let now = Instant::now();
        if now.duration_since(due) <= TICK { now } else { due }
    }

    /// Returns the turns that were due by `now`.
    pub(super) fn missed(&self, now: Instant) -> Missed {
        let Pace::Open(schedule) = self else { return Missed::default() };
        let due = (now.saturating_duration_since(schedule.begins).as_secs_f64() * schedule.rate) as u64;
        let next = schedule.next.load(Ordering::Relaxed);
        match due.saturating_sub(next) {
            0 => Missed::default(),
            count => Missed { count, oldest: now.saturating_duration_since(schedule.due(next)) },
        }
    }
}

/// The length of a hold.
pub(super) struct Hold {
    lasts: Duration,
    /// It is a file descriptor, and servers in the same process need some, too.
    timer: Option<FineTimer>,
}

impl Hold {
    /// Creates the hold of one of `clients` clients: if these are more than [`MAX_TIMERS`], each hold lasts
    /// up to two milliseconds longer.
    pub(super) fn new(lasts: Duration, clients: usize) -> Hold {
        let is_fine = !lasts.is_zero() && clients <= MAX_TIMERS;
        Hold { lasts, timer: is_fine.then(FineTimer::new).and_then(Result::ok) }
    }

    pub(super) async fn pass(&self) {
        match &self.timer {
            Some(timer) => timer.at(Instant::now() + self.lasts).await,
            None if self.lasts.is_zero() => {}
            None => sleep(self.lasts).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_late_counts_from_when_it_was_due() {
        let begins = Instant::now() - Duration::from_secs(1);
        let pace = Pace::new(begins, Some(100.0));
        assert_eq!(pace.next().await, begins);
        assert_eq!(pace.next().await, begins + Duration::from_millis(10));
        let oldest = Duration::from_millis(980);
        let missed = pace.missed(begins + Duration::from_secs(1));
        assert_eq!(missed, Missed { count: 98, oldest });
        let waits: Vec<_> = missed.waits().collect();
        assert_eq!((waits.len(), waits[0], waits[97]), (98, Duration::from_millis(10), oldest));
    }

    #[tokio::test]
    async fn what_is_early_waits() {
        let begins = Instant::now() + Duration::from_millis(20);
        let pace = Pace::new(begins, Some(1.0));
        assert!(pace.next().await >= begins);
        assert_eq!(pace.missed(begins), Missed::default());
    }

    #[tokio::test]
    async fn a_closed_loop_misses_nothing() {
        let pace = Pace::new(Instant::now(), None);
        let before = Instant::now();
        assert!(pace.next().await >= before);
        assert_eq!(pace.missed(Instant::now() + Duration::from_secs(9)), Missed::default());
    }
}
