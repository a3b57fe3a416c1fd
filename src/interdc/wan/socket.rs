//! The wrapper of quinn's socket: decides the fate of every datagram that is sent.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::line::Line;
use super::{Fate, Wan};

pub(super) struct DelayingSocket {
    pub inner: Arc<dyn AsyncUdpSocket>,
    pub wan: Wan,
    pub line: Arc<Line>,
}

impl DelayingSocket {
    fn send_one(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.wan.fate(transmit.destination, transmit.contents.len()) {
            Fate::Now => return self.inner.try_send(transmit),
            Fate::After(delay) => self.line.add(transmit, delay),
            Fate::Lost => {}
        }
        Ok(())
    }
}

impl fmt::Debug for DelayingSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayingSocket").field("inner", &self.inner).field("wan", &self.wan).finish()
    }
}

impl AsyncUdpSocket for DelayingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if !self.wan.is_fickle(transmit.destination) {
            return self.send_one(transmit);
        }
        // Each datagram has its own fate. One that does not fit the socket's buffer now is lost, too.
        for contents in transmit.contents.chunks(transmit.segment_size.unwrap_or(usize::MAX)) {
            let datagram = Transmit { contents, segment_size: None, ..transmit.clone() };
            let _ = self.send_one(&datagram);
            if self.wan.duplicates(transmit.destination) {
                let _ = self.send_one(&datagram);
            }
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
