//! The task that sends what is due.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::AsyncUdpSocket;

use super::line::Line;

/// Sends the delayed datagrams when they are due.
pub(in crate::interdc) struct Pump {
    inner: Arc<dyn AsyncUdpSocket>,
    line: Arc<Line>,
    alarm: Alarm,
}

impl Pump {
    pub(super) fn new(inner: Arc<dyn AsyncUdpSocket>, line: Arc<Line>) -> io::Result<Pump> {
        Ok(Pump { inner, line, alarm: Alarm::new()? })
    }

    /// Never ends by itself.
    pub(in crate::interdc) async fn run(self) {
        let mut writable = self.inner.clone().create_io_poller();
        loop {
            while let Some(parcel) = self.line.take_due() {
                while let Err(error) = self.inner.try_send(&parcel.transmit()) {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        // Lost, as datagrams may be.
                        break;
                    }
                    if poll_fn(|cx| writable.as_mut().poll_writable(cx)).await.is_err() {
                        break;
                    }
                }
            }
            match self.line.next_due() {
                None => self.line.changed.notified().await,
                Some(due) => tokio::select! {
                    () = self.alarm.at(due) => {}
                    () = self.line.changed.notified() => {}
                },
            }
        }
    }
}

/// A timer that is exact to some ten microseconds.
#[cfg(target_os = "linux")]
struct Alarm(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl Alarm {
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types that may change their descriptor; OwnedFd never does"
    )]
    fn new() -> io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Alarm(tokio::io::unix::AsyncFd::new(timer)?))
    }

    /// Completes at that time, or early when the timer fails: then whoever waits looks again.
    async fn at(&self, due: Instant) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // 0 would turn it off.
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
struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    fn new() -> io::Result<Alarm> {
        Ok(Alarm)
    }

    async fn at(&self, due: Instant) {
        tokio::time::sleep_until(due.into()).await;
    }
}
