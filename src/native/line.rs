//! A socket that shows whether the other side takes what is written to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Passes everything through, and counts what was taken where nothing could be before. The kernel takes what is written as long
/// as it has room, whether or not there is anybody at the other end. Once it is full, it takes more only because the other end
/// has confirmed something: no other sign of that can be had from a socket alone.
#[derive(Debug)]
pub struct Line<S> {
    stream: S,
    is_full: bool,
    drained: u64,
}

impl<S> Line<S> {
    pub fn new(stream: S) -> Line<S> {
        Line { stream, is_full: false, drained: 0 }
    }

    /// How many bytes were taken at first after it had been full. A higher figure than before: the other side is there.
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
