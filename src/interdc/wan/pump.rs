//! The task that sends datagrams when they are due.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use quinn::AsyncUdpSocket;

use super::line::Line;
use crate::runtime::fine_timer::FineTimer;

/// Sends delayed datagrams when they are due.
pub(in crate::interdc) struct Pump {
    inner: Arc<dyn AsyncUdpSocket>,
    line: Arc<Line>,
    timer: FineTimer,
}

impl Pump {
    pub(super) fn new(inner: Arc<dyn AsyncUdpSocket>, line: Arc<Line>) -> io::Result<Pump> {
        Ok(Pump { inner, line, timer: FineTimer::new()? })
    }

    /// Never ends by itself.
    pub(in crate::interdc) async fn run(self) {
        let mut writable = self.inner.clone().create_io_poller();
        loop {
            while let Some(parcel) = self.line.take_due() {
                while let Err(error) = self.inner.try_send(&parcel.transmit()) {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        // The datagram is lost, as datagrams may be.
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
                    () = self.timer.at(due) => {}
                    () = self.line.changed.notified() => {}
                },
            }
        }
    }
}
