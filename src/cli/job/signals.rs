//! Signals to geolock itself, as a stream.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What `geolock lock` listens to. From then on these do not end or stop the process by themselves.
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

/// `CHILD` tells of the command; the others are passed on to it.
const HEARD: [Signal; 8] = [
    Signal::CHILD,
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::TSTP,
    Signal::USR1,
    Signal::USR2,
];

impl Signals {
    /// Those that are ignored stay so, for the command too: somebody wants it that way, such as `nohup`. Must be called
    /// within a runtime.
    pub fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let heard = HEARD
            .into_iter()
            .filter(|signal| *signal == Signal::CHILD || ignored & (1 << (signal.as_raw() - 1)) == 0);
        let streams = heard.map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok((signal, stream))
        });
        Ok(Signals { streams: streams.collect::<io::Result<_>>()? })
    }

    /// The next one. Several of a kind may count as one. May be dropped while it waits without losing any.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let arrived = self.streams.iter_mut().find_map(|(signal, stream)| {
                matches!(stream.poll_recv(cx), Poll::Ready(Some(()))).then_some(*signal)
            });
            arrived.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits for one that asks geolock to end, before there is a command. Ctrl-Z stops it meanwhile.
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

/// The signals that this process ignores, as a set of bits from signal 1 on. Where there is no `/proc` nothing is
/// known of them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Stops this process, all threads of it; returns when it goes on. Sent to the calling thread, because only then
/// nothing runs on for a moment.
pub(super) fn stop_this_process() {
    // It fails only for signals that do not exist.
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
}
