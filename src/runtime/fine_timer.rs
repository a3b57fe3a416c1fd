//! A timer with a finer resolution than the runtime's.
//!
//! Tokio's timers count whole milliseconds and round up. On Linux this is a kernel timer, whose descriptor
//! wakes the same poll that waits for packets; elsewhere it is tokio's timer.

use std::io;
use std::time::Instant;

/// A timer that is exact to some ten microseconds.
#[cfg(target_os = "linux")]
pub(crate) struct FineTimer(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl FineTimer {
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types that may change their descriptor; OwnedFd never does"
    )]
    pub fn new() -> io::Result<FineTimer> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(FineTimer(tokio::io::unix::AsyncFd::new(timer)?))
    }

    /// Completes at that time, or earlier if the timer fails: the caller checks the time again.
    pub async fn at(&self, due: Instant) {
        use std::time::Duration;

        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // A value of 0 would disarm the timer.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let setting = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        if timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &setting).is_err() {
            return tokio::time::sleep(left).await;
        }
        loop {
            let Ok(mut ready) = self.0.readable().await else { return };
            let expired = ready.try_io(|timer| {
                let mut count = [0; size_of::<u64>()];
                Ok(rustix::io::read(timer.get_ref(), &mut count)?)
            });
            if expired.is_ok() {
                return;
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) struct FineTimer;

#[cfg(not(target_os = "linux"))]
impl FineTimer {
    pub fn new() -> io::Result<FineTimer> {
        Ok(FineTimer)
    }

    pub async fn at(&self, due: Instant) {
        tokio::time::sleep_until(due.into()).await;
    }
}
