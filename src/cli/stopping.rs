//! `SIGTERM` and Ctrl-C for what runs until it is told to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// See the top of this file.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From now on they do not end the process by themselves. Must be called within a runtime.
    pub fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The exit code that the next one stands for. May be dropped while it waits without losing any.
    pub async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        };
        128 + kind.as_raw_value() as u8
    }
}
