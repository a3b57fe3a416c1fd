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
    /// Must be called within a runtime.
    pub fn listen() -> io::Result<Signals> {
        let streams = HEARD.into_iter().map(|signal| {
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

/// Stops this process, all threads of it; returns when it goes on. Sent to the calling thread, because only then
/// nothing runs on for a moment.
pub(super) fn stop_this_process() {
    // It fails only for signals that do not exist.
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
}
