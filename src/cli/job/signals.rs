//! Signals to geolock itself, as a stream.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The signals that `geolock lock` handles. From `listen` on these do not end or stop the process by
/// themselves.
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

/// `CHILD` reports changes of the command; the others are passed on to it. They are all that end or stop a
/// process, but for those that cannot be heard, or that tell of a fault in this process.
const HEARD: [Signal; 16] = [
    Signal::CHILD,
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::TSTP,
    Signal::USR1,
    Signal::USR2,
    Signal::ABORT,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::IO,
    Signal::SYS,
];

/// Those that only Linux has.
#[cfg(target_os = "linux")]
const OF_LINUX: [Signal; 2] = [Signal::POWER, Signal::STKFLT];
#[cfg(not(target_os = "linux"))]
const OF_LINUX: [Signal; 0] = [];

/// Returns the real-time signals, which end a process, too. They have no names, so they count as `TERM`.
#[cfg(target_os = "linux")]
fn real_time() -> std::ops::Range<i32> {
    // tokio does not hear the last one.
    nix::libc::SIGRTMIN()..nix::libc::SIGRTMAX()
}

#[cfg(not(target_os = "linux"))]
fn real_time() -> std::ops::Range<i32> {
    0..0
}

impl Signals {
    /// Starts to listen. Ignored signals stay ignored, for the command too, because a parent such as `nohup`
    /// wants that. Must be called within a runtime.
    pub fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let named = HEARD.into_iter().chain(OF_LINUX).map(|signal| (signal.as_raw(), signal));
        let heard = named
            .chain(real_time().map(|raw| (raw, Signal::TERM)))
            .filter(|(raw, signal)| *signal == Signal::CHILD || ignored & (1 << (raw - 1)) == 0);
        let streams = heard.map(|(raw, signal)| Ok((signal, unix::signal(SignalKind::from_raw(raw))?)));
        Ok(Signals { streams: streams.collect::<io::Result<_>>()? })
    }

    /// Returns the next signal. Several of a kind may count as one. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let arrived = self.streams.iter_mut().find_map(|(signal, stream)| {
                matches!(stream.poll_recv(cx), Poll::Ready(Some(()))).then_some(*signal)
            });
            arrived.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits for a signal that asks geolock to end, before there is a command. Ctrl-Z stops it meanwhile.
    pub async fn wish_to_end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::USR1 | Signal::USR2 => {}
                Signal::TSTP => stop_this_process(),
                signal => return signal,
            }
        }
    }
}

/// Returns the signals that this process ignores, as a set of bits from signal 1 on. Empty where there is no
/// `/proc`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Stops this process with all threads; returns when it is continued. The signal is sent to the calling
/// thread, because only then no code runs in between.
pub(super) fn stop_this_process() {
    // It fails only for signals that do not exist.
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
}
