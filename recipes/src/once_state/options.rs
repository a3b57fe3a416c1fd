//! The options of a critical section.

use geolock_client::DcId;
use std::time::Duration;

use crate::limits::{TooLong, check_times};

/// The condition under which a run is taken over whose runner has lost its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takeover {
    /// As soon as the lock is free. Effects of the old run that still arrive carry a lower token.
    #[default]
    Lease,
    /// Once the runner has not shown that it lives for [`OnceOptions::watermark`]. A lock delay, for jobs
    /// whose effects outlive their lease and cannot be fenced.
    Watermark,
}

/// The options of a [`CriticalSection`](crate::CriticalSection). All times are at most 365 days.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OnceOptions {
    /// Pause between rounds when the section is still needed after a run elsewhere, or a claim was refused.
    /// Longer pauses find a late effect of that run; shorter ones cost reads. Default 10 s, at least 1 s.
    pub wait: Duration,
    /// Most rounds: each asks if the section is needed. Default 50, at least 2.
    pub max_retries: u32,
    /// Gives up when it has not begun to run by then. It bounds the waits, not a run. Default: none.
    pub give_up_after: Option<Duration>,
    /// When a run is taken over. Default: with its lease.
    pub takeover: Takeover,
    /// How long a runner counts as alive without a sign of it; renewed every third of it. Default 300 s, at
    /// least 10 s.
    pub watermark: Duration,
    /// Age at which a record counts as none. Above `watermark`, and above `wait` x `max_retries`, so that no
    /// instance forgets a run for which it still waits. Default 600 s.
    pub staleness: Duration,
    /// A run that takes longer is cancelled, and has failed. Default: none.
    pub max_runtime: Option<Duration>,
    /// Where all parts of the lock begin: then only that datacenter has to be up. Default: none, one part in
    /// each datacenter.
    pub home: Option<DcId>,
    /// The name of this instance, shown with the record or the lock. Default: empty, which means the id of
    /// the process.
    pub who: String,
}

impl Default for OnceOptions {
    fn default() -> OnceOptions {
        OnceOptions {
            wait: Duration::from_secs(10),
            max_retries: 50,
            give_up_after: None,
            takeover: Takeover::Lease,
            watermark: Duration::from_secs(300),
            staleness: Duration::from_secs(600),
            max_runtime: None,
            home: None,
            who: String::new(),
        }
    }
}

/// Options of a critical section that cannot be used together, or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnceConfigError {
    /// The name is too long, or empty.
    #[error("a critical section has a name of 1 to {most} bytes, this one has {len}")]
    Name {
        /// Its length in bytes.
        len: usize,
        /// The longest name, in bytes.
        most: usize,
    },
    /// [`OnceOptions::wait`] is below its bound.
    #[error("`wait` is at least 1 s, here it is {0:?}")]
    Wait(Duration),
    /// [`OnceOptions::max_retries`] is below its bound.
    #[error("`max_retries` is at least 2, here it is {0}")]
    MaxRetries(u32),
    /// [`OnceOptions::watermark`] is below its bound.
    #[error("`watermark` is at least 10 s, here it is {0:?}")]
    Watermark(Duration),
    /// [`OnceOptions::staleness`] is too short for the others.
    #[error(
        "`staleness` is {staleness:?}; it has to be above {least:?}, the larger of `watermark` and `wait` x `max_retries`"
    )]
    Staleness {
        /// The value.
        staleness: Duration,
        /// The larger of the others.
        least: Duration,
    },
    /// [`OnceOptions::max_runtime`] is zero.
    #[error("`max_runtime` is above 0, or not set")]
    MaxRuntime,
    /// A time is longer than 365 days.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl OnceOptions {
    /// Checks the options alone and together.
    pub(crate) fn check(&self) -> Result<(), OnceConfigError> {
        check_times(&[
            ("wait", self.wait),
            ("give_up_after", self.give_up_after.unwrap_or_default()),
            ("watermark", self.watermark),
            ("staleness", self.staleness),
            ("max_runtime", self.max_runtime.unwrap_or_default()),
        ])?;
        if self.wait < Duration::from_secs(1) {
            return Err(OnceConfigError::Wait(self.wait));
        }
        if self.max_retries < 2 {
            return Err(OnceConfigError::MaxRetries(self.max_retries));
        }
        if self.watermark < Duration::from_secs(10) {
            return Err(OnceConfigError::Watermark(self.watermark));
        }
        let least = self.watermark.max(self.wait.saturating_mul(self.max_retries));
        if self.staleness <= least {
            return Err(OnceConfigError::Staleness { staleness: self.staleness, least });
        }
        if self.max_runtime.is_some_and(|time| time.is_zero()) {
            return Err(OnceConfigError::MaxRuntime);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_named() {
        let seconds = Duration::from_secs;
        let of = |change: fn(&mut OnceOptions)| {
            let mut options = OnceOptions::default();
            change(&mut options);
            options.check()
        };
        assert_eq!(of(|_| {}), Ok(()));
        assert_eq!(
            of(|it| it.wait = Duration::from_millis(999)),
            Err(OnceConfigError::Wait(Duration::from_millis(999)))
        );
        assert_eq!(of(|it| it.max_retries = 1), Err(OnceConfigError::MaxRetries(1)));
        assert_eq!(
            of(|it| it.watermark = Duration::from_secs(9)),
            Err(OnceConfigError::Watermark(seconds(9)))
        );
        let staleness = |staleness, least| Err(OnceConfigError::Staleness { staleness, least });
        assert_eq!(of(|it| it.staleness = Duration::from_secs(500)), staleness(seconds(500), seconds(500)));
        assert_eq!(of(|it| it.max_retries = u32::MAX), staleness(seconds(600), seconds(10) * u32::MAX));
        assert_eq!(of(|it| it.watermark = Duration::from_secs(700)), staleness(seconds(600), seconds(700)));
        assert_eq!(of(|it| it.max_runtime = Some(Duration::ZERO)), Err(OnceConfigError::MaxRuntime));
        let too_long = |option| Err(TooLong { option, time: Duration::MAX }.into());
        assert_eq!(of(|it| it.wait = Duration::MAX), too_long("wait"));
        assert_eq!(of(|it| it.give_up_after = Some(Duration::MAX)), too_long("give_up_after"));
        assert_eq!(of(|it| it.watermark = Duration::MAX), too_long("watermark"));
        assert_eq!(of(|it| it.staleness = Duration::MAX), too_long("staleness"));
        assert_eq!(of(|it| it.max_runtime = Some(Duration::MAX)), too_long("max_runtime"));
    }
}
