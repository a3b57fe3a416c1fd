//! `SIGTERM` and Ctrl-C for commands that run until they are stopped.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A stream of these signals.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Starts to listen: from now on these signals do not end the process by themselves. Must be called
    /// within a runtime.
    pub fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Returns the exit code for the next signal. Cancel-safe.
    pub async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        };
        128 + kind.as_raw_value() as u8
    }
}
