//! Frames over a socket: each poll reads and writes as much as possible, into reused buffers.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use prost::Message;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::frame::{self, Decoder, Frame, FrameError, HEADER, Kind, MAX_PIECE};

/// Space made before a read, in bytes: a TLS record.
const READ: usize = 16 << 10;
/// With so many bytes waiting to be written, no more frames are added.
const FULL: usize = 64 << 10;
/// A buffer that grew beyond this size is not kept.
const KEPT: usize = 4 * FULL;

/// Approximate bound on the bytes that a kernel buffers of a connection whose peer does not read: enough for
/// a network of one site. The buffer is a queue in front of every call, and without a bound it grows to
/// megabytes.
const KERNEL: usize = 64 << 10;

/// Bounds the bytes of a connection that the kernel buffers, at the client and at the server.
pub fn bound_kernel(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(stream, KERNEL)?;
    Ok(sockopt::set_socket_recv_buffer_size(stream, KERNEL)?)
}

/// A socket that sends and receives frames.
#[derive(Debug)]
pub struct FrameSocket<S> {
    stream: S,
    decoder: Decoder,
    out: BytesMut,
    /// The peer knows pieces.
    cuts: bool,
    /// The rest of a message that is written in pieces.
    long: BytesMut,
    /// Frames to be written after it.
    behind: BytesMut,
    /// Bytes were written since the last flush.
    unflushed: bool,
    /// One pong answers any number of pings.
    owes_pong: bool,
    progress: Progress,
}

/// The progress of a socket. Written bytes are only in flight: the kernel accepts them even if the peer is
/// gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that came from the peer so far.
    pub read: u64,
    /// Bytes that the kernel accepted so far.
    pub written: u64,
    /// Waits for bytes of the peer.
    pub reads: bool,
    /// Waits until the peer accepts bytes.
    pub writes: bool,
}

/// The reason why no more frames come.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection without an [`End`](super::End).
    #[error("the connection ended without a message")]
    Closed,
    /// The peer sent bytes that are no frames.
    #[error("{0}")]
    Frame(#[from] FrameError),
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameSocket<S> {
    /// Creates a socket for messages of at most `most` bytes from the peer.
    pub fn new(stream: S, most: usize) -> FrameSocket<S> {
        FrameSocket {
            stream,
            decoder: Decoder::new(most),
            out: BytesMut::new(),
            cuts: false,
            long: BytesMut::new(),
            behind: BytesMut::new(),
            unflushed: false,
            owes_pong: false,
            progress: Progress::default(),
        }
    }

    /// Notes that the peer knows pieces: from now on long messages are written in pieces.
    pub fn cut_messages(&mut self) {
        self.cuts = true;
    }

    /// Adds a frame to be written.
    pub fn put(&mut self, kind: Kind, body: &impl Message) {
        if !self.long.is_empty() {
            return frame::put(&mut self.behind, kind, body);
        }
        let start = self.out.len();
        frame::put(&mut self.out, kind, body);
        if self.cuts && kind == Kind::Message && self.out.len() > start + HEADER + MAX_PIECE {
            self.long = self.out.split_off(start + HEADER);
            self.out.truncate(start);
        }
    }

    /// Adds a short message that need not wait for the rest of a long one.
    pub fn put_first(&mut self, body: &impl Message) {
        frame::put(&mut self.out, Kind::Message, body);
    }

    /// Returns true if more frames may be added. While the peer is slow, only few are, because a message with
    /// priority waits for all of them.
    pub fn has_room(&self) -> bool {
        self.long.is_empty() && self.out.len() < if self.progress.writes { MAX_PIECE } else { FULL }
    }

    /// Returns true if more messages with priority may be added.
    pub fn has_room_for_first(&self) -> bool {
        self.out.len() < 2 * FULL
    }

    /// Returns the number of bytes that have arrived and are no complete message yet.
    pub fn unfinished(&self) -> usize {
        self.decoder.unfinished()
    }

    /// Returns the underlying stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the progress of the socket so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Begins another round of polling. If nothing is read from now on, the socket does not count as waiting
    /// for the peer.
    pub fn begin_turn(&mut self) {
        self.progress.reads = false;
    }

    /// Sets the longest message from now on, in bytes.
    pub fn allow(&mut self, most: usize) {
        self.decoder.allow(most);
    }

    /// Returns the next frame that is no ping and no pong. Reads even if bytes wait to be written: two peers
    /// that both wait for the other to read would block for ever. A caller that bounds its answers stops
    /// polling for frames while there is no space.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, SocketError>> {
        loop {
            match self.decoder.next_frame()? {
                Some(Frame { kind: Kind::Ping, .. }) => self.owes_pong = true,
                Some(Frame { kind: Kind::Pong, .. }) => {}
                Some(frame) => return Poll::Ready(Ok(frame)),
                None => {
                    self.progress.reads = true;
                    let bytes = self.decoder.bytes();
                    if bytes.is_empty() && bytes.capacity() > KEPT {
                        *bytes = BytesMut::new();
                    }
                    bytes.reserve(READ);
                    let read = ready!(pin!(self.stream.read_buf(bytes)).poll(cx))?;
                    if read == 0 {
                        return Poll::Ready(Err(SocketError::Closed));
                    }
                    self.progress.reads = false;
                    self.progress.read += read as u64;
                }
            }
        }
    }

    /// Writes until nothing is left.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.owes_pong {
            self.owes_pong = false;
            self.put(Kind::Pong, &());
        }
        loop {
            self.cut();
            if self.out.is_empty() {
                break;
            }
            let Poll::Ready(written) = pin!(self.stream.write_buf(&mut self.out)).poll(cx) else {
                self.progress.writes = true;
                return Poll::Pending;
            };
            let written = written?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.progress.written += written as u64;
            self.unflushed = true;
        }
        if self.unflushed {
            self.progress.writes = true;
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
            if self.out.capacity() > KEPT {
                self.out = BytesMut::new();
            }
        }
        self.progress.writes = false;
        Poll::Ready(Ok(()))
    }

    /// Moves pieces of a long message to the bytes to be written next: one at a time when the peer is slow.
    fn cut(&mut self) {
        let room = if self.progress.writes { 1 } else { FULL / 2 };
        while !self.long.is_empty() && self.out.len() < room {
            let piece = self.long.split_to(self.long.len().min(MAX_PIECE));
            let kind = if self.long.is_empty() { Kind::LastPiece } else { Kind::Piece };
            frame::put_piece(&mut self.out, kind, &piece);
        }
        if self.long.is_empty() && !self.behind.is_empty() {
            self.out.extend_from_slice(&std::mem::take(&mut self.behind));
        }
    }

    /// As [`FrameSocket::poll_frame`], and answers pings meanwhile.
    pub async fn frame(&mut self) -> Result<Frame, SocketError> {
        poll_fn(|cx| {
            let frame = self.poll_frame(cx)?;
            // An error is reported by the read.
            let _ = self.poll_write(cx);
            frame.map(Ok)
        })
        .await
    }

    /// Writes the last frame, and waits until the peer has read it. Bytes that it sent meanwhile are read and
    /// discarded, because closing a socket with unread bytes discards the bytes that were just written.
    pub async fn finish(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_write(cx)).await?;
        self.stream.shutdown().await?;
        let mut thrown_away = BytesMut::new();
        loop {
            thrown_away.clear();
            thrown_away.reserve(READ);
            if self.stream.read_buf(&mut thrown_away).await? == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::native::End;

    const MOST: usize = 1 << 20;

    #[tokio::test]
    async fn pings_are_answered_once_and_not_shown() {
        let (ours, theirs) = duplex(1 << 16);
        let (mut ours, mut theirs) = (FrameSocket::new(ours, MOST), FrameSocket::new(theirs, MOST));
        for _ in 0..1_000 {
            theirs.put(Kind::Ping, &());
        }
        theirs.put(Kind::End, &End::default());
        poll_fn(|cx| theirs.poll_write(cx)).await.expect("there is room");
        assert_eq!(ours.frame().await.expect("it came").kind, Kind::End);
        poll_fn(|cx| ours.poll_write(cx)).await.expect("there is room");
        drop(ours);
        assert!(matches!(theirs.frame().await, Err(SocketError::Closed)));
        assert_eq!(theirs.progress().read, 5, "one pong");
    }

    #[tokio::test]
    async fn two_who_say_much_at_a_time_both_hear_it() {
        let (ours, theirs) = duplex(1_000);
        let (mut ours, mut theirs) = (FrameSocket::new(ours, MOST), FrameSocket::new(theirs, MOST));
        let long = End { message: "x".repeat(2 * FULL), ..End::default() };
        ours.put(Kind::Message, &long);
        theirs.put(Kind::Message, &long);
        assert!(!ours.has_room() && !theirs.has_room());
        let (heard, said) = tokio::join!(ours.frame(), theirs.frame());
        for frame in [heard, said] {
            assert_eq!(frame::decode(frame.expect("it came").body), Ok(long.clone()));
        }
    }

    #[tokio::test]
    async fn who_does_not_write_waits_for_who_does_not_read() {
        let (ours, theirs) = duplex(1_000);
        let (mut ours, mut theirs) = (FrameSocket::new(ours, MOST), FrameSocket::new(theirs, MOST));
        ours.put(Kind::Message, &End { message: "x".repeat(2 * FULL), ..End::default() });
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(ours.poll_write(&mut cx).is_pending());
        let waits = ours.progress();
        assert!(!ours.has_room() && waits.writes && !waits.reads);
        let (read, wrote) = tokio::join!(theirs.frame(), poll_fn(|cx| ours.poll_write(cx)));
        assert!(read.is_ok() && wrote.is_ok());
        assert!(ours.has_room() && !ours.progress().writes);
    }

    #[tokio::test]
    async fn a_short_message_waits_for_one_piece_of_a_long_one() {
        let (ours, theirs) = duplex(1_000);
        let (mut ours, mut theirs) = (FrameSocket::new(ours, MOST), FrameSocket::new(theirs, MOST));
        ours.cut_messages();
        let end = |length: usize| End { message: "x".repeat(length), ..End::default() };
        ours.put(Kind::Message, &end(10 * FULL));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(ours.poll_write(&mut cx).is_pending());
        assert!(!ours.has_room() && ours.has_room_for_first());
        ours.put_first(&end(1));
        ours.put(Kind::End, &end(2));
        let mut lengths = Vec::new();
        let reads = async {
            while lengths.len() < 3 {
                let frame = theirs.frame().await.expect("it comes");
                lengths.push(frame::decode::<End>(frame.body).expect("it is one").message.len());
            }
            lengths
        };
        let (wrote, lengths) = tokio::join!(poll_fn(|cx| ours.poll_write(cx)), reads);
        wrote.expect("it is read");
        assert_eq!(lengths, [1, 10 * FULL, 2]);
        assert!(ours.has_room() && ours.long.is_empty() && ours.behind.is_empty());
    }

    #[tokio::test]
    async fn a_last_word_is_heard_although_more_was_sent() {
        let (ours, theirs) = duplex(1_000);
        let (mut ours, mut theirs) = (FrameSocket::new(ours, MOST), FrameSocket::new(theirs, MOST));
        theirs.put(Kind::Message, &End { message: "x".repeat(FULL), ..End::default() });
        ours.put(Kind::End, &End { code: 7, ..End::default() });
        let hears = async {
            poll_fn(|cx| theirs.poll_write(cx)).await.expect("it is thrown away");
            let end = theirs.frame().await.expect("the last word");
            drop(theirs);
            end
        };
        let (finished, end) = tokio::join!(ours.finish(), hears);
        finished.expect("it was heard");
        assert_eq!(frame::decode::<End>(end.body).expect("an end").code, 7);
    }
}
