//! The options of a token selector.

use std::time::Duration;

use crate::limits::{TooLong, check_times};

/// Most candidates of one request, and so most tokens of a selection.
pub(crate) const MAX_CANDIDATES: usize = 10_000;
/// Longest name of a space, in bytes: with the longest id of a token it makes names that the server takes.
pub(crate) const MAX_SPACE: usize = 100;

/// The options of a [`TokenSelector`](crate::selector::TokenSelector). All times are at most 365 days.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SelectorOptions {
    /// The name under which all replicas of a service lock its tokens: the same in all of them. 1 to 100
    /// bytes without a slash. Default `default`.
    pub space: String,
    /// How long a selection waits for tokens that others have. Default 30 s.
    pub wait: Duration,
    /// A selection that has waited for so long announces its need: later selections of the pool, in all
    /// replicas, wait behind it. Shorter ones serve large amounts sooner and hold up small ones. At most
    /// `wait`. Default 2 s.
    pub patience: Duration,
    /// Most tokens of a selection. At most `max_examined`. Default 256.
    pub max_inputs: usize,
    /// Most tokens of a pool that are read from the source and considered, at most 10 000. More of them cost
    /// memory and a longer query. Default 10 000.
    pub max_examined: usize,
    /// Most tokens of a pool that this replica has selected and not spent or released. At least 1. Default
    /// 1 000.
    pub max_locked: usize,
    /// How long a listing of a pool is fresh. The next selection then has it read again, and one that finds
    /// it twice as old waits for that. Shorter ones cost queries. Default 1 s.
    pub freshness: Duration,
    /// A listing is read again after so many selections, too, while it is fresh. At least 1. Default 5.
    pub soft_after: u32,
    /// How long a reservation keeps its tokens from others when its replica dies or forgets it; prolonged
    /// while the selection is open. It has to be above the time in which the ledger settles a payment. At
    /// least the TTL of the lease. Default 180 s.
    pub reserve_for: Duration,
    /// How long it is remembered that tokens are spent. At least `linger`, and twice `freshness`, so that no
    /// listing is older. Default 60 s.
    pub spent_keep: Duration,
    /// How long spent tokens stay locked, until every replica has heard that they are spent: above the
    /// one-way delay between any two datacenters. Default 5 s.
    pub linger: Duration,
    /// A pause in place of a wait. Default: none, a selection waits in the order of the requests.
    pub backoff: Backoff,
}

/// The behaviour of a selection when the tokens that it wants are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backoff {
    /// It waits in the order of the requests.
    #[default]
    Queue,
    /// It releases everything, pauses for a random time and tries again.
    Random {
        /// The longest pause, above 0.
        max: Duration,
        /// Most pauses of a selection, at least 1.
        retries: u32,
    },
}

impl Default for SelectorOptions {
    fn default() -> SelectorOptions {
        SelectorOptions {
            space: "default".to_owned(),
            wait: Duration::from_secs(30),
            patience: Duration::from_secs(2),
            max_inputs: 256,
            max_examined: MAX_CANDIDATES,
            max_locked: 1_000,
            freshness: Duration::from_secs(1),
            soft_after: 5,
            reserve_for: Duration::from_secs(180),
            spent_keep: Duration::from_secs(60),
            linger: Duration::from_secs(5),
            backoff: Backoff::Queue,
        }
    }
}

/// Options of a token selector that cannot be used together, or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorConfigError {
    /// [`SelectorOptions::space`] is empty, too long, or has a slash.
    #[error(
        "`space` has 1 to {MAX_SPACE} bytes without a slash, because ids of tokens follow it; here it is {0:?}"
    )]
    Space(String),
    /// [`SelectorOptions::wait`] is 0.
    #[error("`wait` is above 0")]
    Wait,
    /// [`SelectorOptions::patience`] is above `wait`.
    #[error("`patience` is {patience:?}; it has to be at most `wait`, {wait:?}")]
    Patience {
        /// The value.
        patience: Duration,
        /// The wait.
        wait: Duration,
    },
    /// [`SelectorOptions::max_inputs`] is out of range.
    #[error("`max_inputs` is 1 to `max_examined`, {examined}; here it is {inputs}")]
    MaxInputs {
        /// The value.
        inputs: usize,
        /// The tokens that are examined.
        examined: usize,
    },
    /// [`SelectorOptions::max_examined`] is out of range.
    #[error("`max_examined` is 1 to {MAX_CANDIDATES}, here it is {0}")]
    MaxExamined(usize),
    /// [`SelectorOptions::max_locked`] is 0.
    #[error("`max_locked` is at least 1")]
    MaxLocked,
    /// [`SelectorOptions::freshness`] is 0.
    #[error("`freshness` is above 0")]
    Freshness,
    /// [`SelectorOptions::soft_after`] is 0.
    #[error("`soft_after` is at least 1")]
    SoftAfter,
    /// [`SelectorOptions::reserve_for`] is below the TTL of the client's lease.
    #[error("`reserve_for` is {reserve_for:?}; it has to be at least the TTL of the client's lease, {ttl:?}")]
    ReserveFor {
        /// The value.
        reserve_for: Duration,
        /// The TTL.
        ttl: Duration,
    },
    /// [`SelectorOptions::spent_keep`] is too short for the others.
    #[error(
        "`spent_keep` is {spent_keep:?}; it has to be at least {least:?}, the larger of `linger` and twice `freshness`"
    )]
    SpentKeep {
        /// The value.
        spent_keep: Duration,
        /// The larger of the others.
        least: Duration,
    },
    /// A value of [`SelectorOptions::backoff`] is 0.
    #[error("`backoff`: `max` is above 0, and `retries` at least 1")]
    Backoff,
    /// A time is longer than 365 days.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl SelectorOptions {
    /// Checks the options alone and together. `ttl`: of the client's lease.
    pub fn check(&self, ttl: Duration) -> Result<(), SelectorConfigError> {
        use SelectorConfigError as Error;
        if !(1..=MAX_SPACE).contains(&self.space.len()) || self.space.contains('/') {
            return Err(Error::Space(self.space.clone()));
        }
        check_times(&[
            ("wait", self.wait),
            ("patience", self.patience),
            ("freshness", self.freshness),
            ("reserve_for", self.reserve_for),
            ("spent_keep", self.spent_keep),
            ("linger", self.linger),
            ("backoff", if let Backoff::Random { max, .. } = self.backoff { max } else { Duration::ZERO }),
        ])?;
        if self.wait.is_zero() {
            return Err(Error::Wait);
        }
        if self.patience > self.wait {
            return Err(Error::Patience { patience: self.patience, wait: self.wait });
        }
        if !(1..=MAX_CANDIDATES).contains(&self.max_examined) {
            return Err(Error::MaxExamined(self.max_examined));
        }
        if !(1..=self.max_examined).contains(&self.max_inputs) {
            return Err(Error::MaxInputs { inputs: self.max_inputs, examined: self.max_examined });
        }
        if self.max_locked == 0 {
            return Err(Error::MaxLocked);
        }
        if self.freshness.is_zero() {
            return Err(Error::Freshness);
        }
        if self.soft_after == 0 {
            return Err(Error::SoftAfter);
        }
        if self.reserve_for < ttl {
            return Err(Error::ReserveFor { reserve_for: self.reserve_for, ttl });
        }
        let least = self.linger.max(self.freshness.saturating_mul(2));
        if self.spent_keep < least {
            return Err(Error::SpentKeep { spent_keep: self.spent_keep, least });
        }
        match self.backoff {
            Backoff::Random { max, retries } if max.is_zero() || retries == 0 => Err(Error::Backoff),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_named() {
        use SelectorConfigError as Error;
        let (seconds, ttl) = (Duration::from_secs, Duration::from_secs(10));
        let of = |change: fn(&mut SelectorOptions)| {
            let mut options = SelectorOptions::default();
            change(&mut options);
            options.check(Duration::from_secs(10))
        };
        assert_eq!(of(|_| {}), Ok(()));
        assert_eq!(of(|it| it.space = String::new()), Err(Error::Space(String::new())));
        assert_eq!(of(|it| it.space = "a/b".to_owned()), Err(Error::Space("a/b".to_owned())));
        assert_eq!(of(|it| it.space = "x".repeat(101)), Err(Error::Space("x".repeat(101))));
        assert_eq!(of(|it| it.wait = Duration::ZERO), Err(Error::Wait));
        let patience = Error::Patience { patience: seconds(31), wait: seconds(30) };
        assert_eq!(of(|it| it.patience = Duration::from_secs(31)), Err(patience));
        assert_eq!(of(|it| it.max_examined = 10_001), Err(Error::MaxExamined(10_001)));
        let inputs = |inputs, examined| Err(Error::MaxInputs { inputs, examined });
        assert_eq!(of(|it| it.max_examined = 255), inputs(256, 255));
        assert_eq!(of(|it| it.max_inputs = 0), inputs(0, 10_000));
        assert_eq!(of(|it| it.max_locked = 0), Err(Error::MaxLocked));
        assert_eq!(of(|it| it.freshness = Duration::ZERO), Err(Error::Freshness));
        assert_eq!(of(|it| it.soft_after = 0), Err(Error::SoftAfter));
        let reserve_for = Error::ReserveFor { reserve_for: seconds(9), ttl };
        assert_eq!(of(|it| it.reserve_for = Duration::from_secs(9)), Err(reserve_for));
        let keep = |spent_keep, least| Err(Error::SpentKeep { spent_keep, least });
        assert_eq!(of(|it| it.spent_keep = Duration::from_secs(4)), keep(seconds(4), seconds(5)));
        assert_eq!(of(|it| it.freshness = Duration::from_secs(31)), keep(seconds(60), seconds(62)));
        let too_long = |option| Err(TooLong { option, time: Duration::MAX }.into());
        assert_eq!(of(|it| it.wait = Duration::MAX), too_long("wait"));
        assert_eq!(of(|it| it.patience = Duration::MAX), too_long("patience"));
        assert_eq!(of(|it| it.freshness = Duration::MAX), too_long("freshness"));
        assert_eq!(of(|it| it.reserve_for = Duration::MAX), too_long("reserve_for"));
        assert_eq!(of(|it| it.spent_keep = Duration::MAX), too_long("spent_keep"));
        assert_eq!(of(|it| it.linger = Duration::MAX), too_long("linger"));
        let random = |max, retries| Backoff::Random { max, retries };
        let backoff = |backoff| SelectorOptions { backoff, ..SelectorOptions::default() }.check(ttl);
        assert_eq!(backoff(random(seconds(1), 3)), Ok(()));
        assert_eq!(backoff(random(Duration::ZERO, 3)), Err(Error::Backoff));
        assert_eq!(backoff(random(seconds(1), 0)), Err(Error::Backoff));
        assert_eq!(backoff(random(Duration::MAX, 1)), too_long("backoff"));
    }
}
