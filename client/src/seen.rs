//! Connections under gRPC that record when bytes arrived.
//!
//! HTTP/2 shows only whole messages. On a slow line one large answer takes longer than the client waits for
//! a renewal before it tries another connection. The bytes show that the server is alive.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::address::Address;
use super::clock;
use geolock_api::time::Instant;

/// When bytes arrived last, in nanoseconds of the clock; 0: none since the value was taken.
#[derive(Clone, Debug, Default)]
pub(super) struct LastSeen(Arc<AtomicU64>);

impl LastSeen {
    /// Returns when bytes arrived last, or `None` if none did since the previous call.
    pub(super) fn take(&self) -> Option<Instant> {
        let nanos = self.0.swap(0, Ordering::Relaxed);
        (nanos > 0).then(|| Instant::from_nanos(nanos))
    }
}

/// Makes such connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub address: Address,
    /// The caller times out after this.
    pub time: Duration,
    pub seen: LastSeen,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<SeenStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<SeenStream>>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _endpoint: Uri) -> Self::Future {
        let Connector { address, time, seen } = self.clone();
        Box::pin(async move {
            let stream = address.connect(time).await?;
            Ok(TokioIo::new(SeenStream { stream, seen }))
        })
    }
}

/// Passes everything through, and records when bytes arrived.
#[derive(Debug)]
pub(super) struct SeenStream {
    stream: TcpStream,
    seen: LastSeen,
}

impl AsyncRead for SeenStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = bytes.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, bytes))?;
        if bytes.filled().len() > before {
            self.seen.0.store(clock::now().as_nanos(), Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SeenStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
