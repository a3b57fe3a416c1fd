//! A socket that shows if the peer acknowledges the bytes written to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Passes everything through, and counts the bytes that were accepted after the kernel's buffer had been
/// full. The kernel accepts bytes while it has space, even if the peer is dead. Once the buffer is full, it
/// accepts more only because the peer has acknowledged some: a socket alone gives no other sign of that.
#[derive(Debug)]
pub struct Line<S> {
    stream: S,
    is_full: bool,
    drained: u64,
}

impl<S> Line<S> {
    /// Wraps a connection to which nothing was written yet.
    pub fn new(stream: S) -> Line<S> {
        Line { stream, is_full: false, drained: 0 }
    }

    /// Returns how many bytes were accepted right after the buffer had been full. A higher value than before
    /// shows that the peer is alive.
    pub fn drained(&self) -> u64 {
        self.drained
    }

    fn note(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.is_full = true,
            Poll::Ready(Ok(count)) if self.is_full => {
                self.is_full = false;
                self.drained += *count as u64;
            }
            Poll::Ready(_) => {}
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, bytes)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(written)
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn only_what_follows_a_full_queue_shows_that_somebody_is_there() {
        let (ours, mut theirs) = duplex(1_000);
        let mut line = Line::new(ours);
        for _ in 0..10 {
            line.write_all(&[0; 100]).await.expect("there is room");
        }
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for _ in 0..10 {
            assert!(pin!(line.write(&[0; 100])).poll(&mut cx).is_pending(), "nobody reads");
        }
        assert_eq!(line.drained(), 0, "it was taken by nobody but the queue");
        theirs.read_exact(&mut [0; 300]).await.expect("it is there");
        line.write_all(&[0; 100]).await.expect("there is room again");
        assert_eq!(line.drained(), 100);
        line.write_all(&[0; 100]).await.expect("there is room");
        assert_eq!(line.drained(), 100, "there was room before");
    }
}
