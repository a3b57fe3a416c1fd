//! Frames: one byte for the kind, four for the length of the body (big-endian), the body.
//!
//! A length from a peer is checked before memory is allocated for it, and a decoder keeps at most one
//! incomplete frame and the pieces of one message. An invalid frame ends the connection, because the start of
//! the next frame is not known.
//!
//! **Pieces**: a message that is longer than [`MAX_PIECE`] travels in several frames, so that a renewal of a
//! lease waits behind one piece of it, not behind all. One message at a time is in pieces, and whole messages
//! may come between them. Peers of the first version of the protocol send none and know none.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Length of the kind and the length, in bytes.
pub(super) const HEADER: usize = 5;
/// Longest body of a [`Kind::Start`], in bytes: the client is not authenticated yet.
pub const MAX_START: usize = 4 << 10;
/// Longest piece of a message, in bytes: a TLS record.
pub const MAX_PIECE: usize = 16 << 10;

/// The kind of a frame. Numbers are on the wire: never reused for another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A `ClientMessage` or a `ServerMessage`.
    Message = 0,
    /// The first frame of a client, and only that: a [`Start`].
    Start = 1,
    /// The last frame of a side, except answers to pings: an [`End`]; from a client, an empty one.
    End = 2,
    /// Asks the peer for a [`Kind::Pong`].
    Ping = 3,
    /// The answer to a ping.
    Pong = 4,
    /// The next piece of a message; another one follows.
    Piece = 5,
    /// The last piece of a message.
    LastPiece = 6,
}

/// The credentials that a client sends before anything else.
#[derive(Clone, PartialEq, Message)]
pub struct Start {
    /// As the `authorization` of a gRPC call: `Bearer TOKEN`; empty for a client with a certificate, or
    /// without credentials.
    #[prost(bytes = "bytes", tag = "1")]
    pub authorization: Bytes,
}

/// The end of a session, with the content of a gRPC status.
#[derive(Clone, PartialEq, Message)]
pub struct End {
    /// A gRPC status code; 0 for success.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The message of the status, for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// An encoded `geolock.v1.Error`, if there is one.
    #[prost(bytes = "bytes", tag = "3")]
    pub error: Bytes,
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of the body.
    pub kind: Kind,
    /// The encoded message; empty for a ping and a pong.
    pub body: Bytes,
}

/// The reason why bytes are no frames. Nothing after them can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame, or a message in pieces, is longer than its reader allows.
    #[error("a frame here has at most {most} bytes; this one says it has {found}")]
    TooLong {
        /// The length, in bytes.
        found: usize,
        /// The longest length that is allowed, in bytes.
        most: usize,
    },
    /// No version of the protocol that is known here has this kind.
    #[error("there is no kind {0} of frames")]
    UnknownKind(u8),
    /// A frame of this kind is not allowed at this point of the session.
    #[error("a frame of kind {0:?} does not belong here")]
    Unexpected(Kind),
    /// The body of a frame is no message of its kind.
    #[error("the body of a frame cannot be read: {0}")]
    Body(#[from] prost::DecodeError),
}

impl Kind {
    fn of(byte: u8) -> Result<Kind, FrameError> {
        const ALL: [Kind; 7] =
            [Kind::Message, Kind::Start, Kind::End, Kind::Ping, Kind::Pong, Kind::Piece, Kind::LastPiece];
        ALL.get(usize::from(byte)).copied().ok_or(FrameError::UnknownKind(byte))
    }

    /// Returns the longest body, where messages have at most `most` bytes.
    fn longest(self, most: usize) -> usize {
        match self {
            Kind::Message | Kind::End => most,
            Kind::Start => MAX_START,
            Kind::Ping | Kind::Pong => 0,
            Kind::Piece | Kind::LastPiece => MAX_PIECE.min(most),
        }
    }
}

/// Decodes frames from a stream of bytes.
#[derive(Debug)]
pub struct Decoder {
    most: usize,
    bytes: BytesMut,
    /// The pieces of a message that have arrived: at most `most` bytes.
    pieces: BytesMut,
}

impl Decoder {
    /// Creates a decoder for messages of at most `most` bytes.
    pub fn new(most: usize) -> Decoder {
        Decoder { most, bytes: BytesMut::new(), pieces: BytesMut::new() }
    }

    /// Sets the longest message from now on, in bytes.
    pub fn allow(&mut self, most: usize) {
        self.most = most;
    }

    /// Returns the number of bytes that have arrived and are no complete frame, or message of pieces, yet.
    pub fn unfinished(&self) -> usize {
        self.bytes.len() + self.pieces.len()
    }

    /// Returns the buffer; new bytes are appended at its end.
    pub fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Returns the next frame, if it is complete; pieces are returned as the message that they form. After an
    /// error the decoder cannot be used any more.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            let Some(frame) = self.next_on_wire()? else { return Ok(None) };
            match frame.kind {
                Kind::Piece => self.add(&frame.body)?,
                Kind::LastPiece => {
                    self.add(&frame.body)?;
                    let body = std::mem::take(&mut self.pieces).freeze();
                    return Ok(Some(Frame { kind: Kind::Message, body }));
                }
                _ => return Ok(Some(frame)),
            }
        }
    }

    fn add(&mut self, piece: &Bytes) -> Result<(), FrameError> {
        let (found, most) = (self.pieces.len() + piece.len(), self.most);
        if found > most {
            return Err(FrameError::TooLong { found, most });
        }
        self.pieces.extend_from_slice(piece);
        Ok(())
    }

    fn next_on_wire(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((header, _)) = self.bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [kind, length @ ..] = *header;
        let kind = Kind::of(kind)?;
        let (found, most) = (u32::from_be_bytes(length) as usize, kind.longest(self.most));
        if found > most {
            return Err(FrameError::TooLong { found, most });
        }
        if self.bytes.len() < HEADER + found {
            return Ok(None);
        }
        self.bytes.advance(HEADER);
        Ok(Some(Frame { kind, body: self.bytes.split_to(found).freeze() }))
    }
}

/// Appends a frame.
pub fn put(bytes: &mut BytesMut, kind: Kind, body: &impl Message) {
    let length = body.encoded_len();
    let on_wire = u32::try_from(length).expect("nobody here makes messages of 4 GiB");
    let start = bytes.len();
    bytes.resize(start + HEADER + length, 0);
    // Writes into a slice, which needs no check of the capacity for each byte.
    let mut rest = &mut bytes[start..];
    rest.put_u8(kind as u8);
    rest.put_u32(on_wire);
    body.encode_raw(&mut rest);
    debug_assert!(rest.is_empty(), "a message has the length it says");
}

/// Appends a piece of a message, at most [`MAX_PIECE`] bytes.
pub(super) fn put_piece(bytes: &mut BytesMut, kind: Kind, piece: &[u8]) {
    debug_assert!(piece.len() <= MAX_PIECE, "a piece has a longest length");
    bytes.reserve(HEADER + piece.len());
    bytes.put_u8(kind as u8);
    bytes.put_u32(piece.len() as u32);
    bytes.put_slice(piece);
}

/// Decodes the message in a body.
pub fn decode<M: Message + Default>(body: Bytes) -> Result<M, FrameError> {
    Ok(M::decode(body)?)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::proto::client_message::Call;
    use crate::proto::{ClientMessage, Hello};

    const MOST: usize = 1_000;

    fn hello(tag: u64, client: String) -> ClientMessage {
        ClientMessage { tag, call: Some(Call::Hello(Hello { revision: 1, client })) }
    }

    /// Returns all frames, and how the decoding ended.
    fn read(decoder: &mut Decoder) -> (Vec<Frame>, Result<(), FrameError>) {
        let mut frames = Vec::new();
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return (frames, Ok(())),
                Err(error) => return (frames, Err(error)),
            }
        }
    }

    fn in_pieces(bytes: &[u8], cuts: &[usize]) -> (Vec<Frame>, Result<(), FrameError>) {
        let mut decoder = Decoder::new(MOST);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut all = Vec::new();
        for ends in cuts.windows(2) {
            decoder.bytes().extend_from_slice(&bytes[ends[0]..ends[1]]);
            let (frames, went) = read(&mut decoder);
            all.extend(frames);
            if went.is_err() {
                return (all, went);
            }
        }
        (all, Ok(()))
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_their_bytes_come(
            names in vec("[a-z]{0,200}", 0..20),
            cuts in vec(any::<usize>(), 0..40),
        ) {
            let messages: Vec<_> = names.into_iter().zip(1..).map(|(name, tag)| hello(tag, name)).collect();
            let mut bytes = BytesMut::new();
            for message in &messages {
                put(&mut bytes, Kind::Message, message);
                put(&mut bytes, Kind::Ping, &());
            }
            let (frames, went) = in_pieces(&bytes, &cuts);
            prop_assert_eq!(went, Ok(()));
            let (pings, bodies): (Vec<_>, Vec<_>) = frames.into_iter().partition(|it| it.kind == Kind::Ping);
            prop_assert_eq!(pings.len(), messages.len());
            let read: Result<Vec<ClientMessage>, _> = bodies.into_iter().map(|it| decode(it.body)).collect();
            prop_assert_eq!(read, Ok(messages));
        }

        #[test]
        fn garbage_is_the_same_however_it_comes(bytes in vec(any::<u8>(), 0..100), cuts in vec(any::<usize>(), 0..9)) {
            prop_assert_eq!(in_pieces(&bytes, &cuts), in_pieces(&bytes, &[]));
        }
    }

    #[test]
    fn a_frame_that_is_not_whole_waits() {
        let mut bytes = BytesMut::new();
        put(&mut bytes, Kind::Message, &hello(1, "a".into()));
        for length in 0..bytes.len() {
            assert_eq!(in_pieces(&bytes[..length], &[]), (vec![], Ok(())), "{length} bytes of it");
        }
    }

    #[test]
    fn a_length_is_checked_before_its_body_is_there() {
        let with = |kind: Kind, length: u32| {
            let mut bytes = vec![kind as u8];
            bytes.extend(length.to_be_bytes());
            in_pieces(&bytes, &[]).1
        };
        assert_eq!(with(Kind::Message, MOST as u32), Ok(()));
        let too_long = |found, most| Err(FrameError::TooLong { found, most });
        assert_eq!(with(Kind::Message, MOST as u32 + 1), too_long(MOST + 1, MOST));
        assert_eq!(with(Kind::Message, u32::MAX), too_long(u32::MAX as usize, MOST));
        assert_eq!(with(Kind::Start, 5_000), too_long(5_000, MAX_START));
        assert_eq!(with(Kind::Ping, 1), too_long(1, 0));
        assert_eq!(with(Kind::Piece, MOST as u32 + 1), too_long(MOST + 1, MOST));
    }

    #[test]
    fn pieces_are_one_message_and_others_come_between_them() {
        let whole = hello(9, "a long name".into()).encode_to_vec();
        let (first, rest) = whole.split_at(4);
        let mut bytes = BytesMut::new();
        put_piece(&mut bytes, Kind::Piece, first);
        put(&mut bytes, Kind::Message, &hello(1, "short".into()));
        put_piece(&mut bytes, Kind::Piece, &[]);
        put_piece(&mut bytes, Kind::LastPiece, rest);
        for cut in 0..bytes.len() {
            let (frames, went) = in_pieces(&bytes, &[cut]);
            let read: Result<Vec<ClientMessage>, _> = frames.into_iter().map(|it| decode(it.body)).collect();
            assert_eq!(
                (read, went),
                (Ok(vec![hello(1, "short".into()), hello(9, "a long name".into())]), Ok(()))
            );
        }
    }

    #[test]
    fn pieces_together_have_the_bound_of_a_message() {
        let mut bytes = BytesMut::new();
        for _ in 0..=MOST / 100 {
            put_piece(&mut bytes, Kind::Piece, &[0; 100]);
        }
        let too_long = FrameError::TooLong { found: MOST + 100, most: MOST };
        assert_eq!(in_pieces(&bytes, &[]), (vec![], Err(too_long)));
    }

    #[test]
    fn what_comes_before_an_error_counts() {
        let mut bytes = BytesMut::new();
        put(&mut bytes, Kind::Message, &hello(1, "a".into()));
        bytes.extend_from_slice(&[7, 0, 0, 0, 0]);
        let (frames, went) = in_pieces(&bytes, &[]);
        assert_eq!((frames.len(), went), (1, Err(FrameError::UnknownKind(7))));
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = BytesMut::new();
        put(&mut bytes, Kind::Start, &Start { authorization: Bytes::from_static(b"Bearer a.b") });
        put(&mut bytes, Kind::Message, &hello(7, "me".into()));
        put(&mut bytes, Kind::Pong, &());
        put(&mut bytes, Kind::End, &End { code: 7, message: "no".into(), error: Bytes::from_static(b"e") });
        put_piece(&mut bytes, Kind::Piece, b"ab");
        put_piece(&mut bytes, Kind::LastPiece, b"c");
        let golden: &[u8] = b"\x01\0\0\0\x0c\x0a\x0aBearer a.b\
            \0\0\0\0\x0a\x08\x07\x12\x06\x08\x01\x12\x02me\
            \x04\0\0\0\0\
            \x02\0\0\0\x09\x08\x07\x12\x02no\x1a\x01e\
            \x05\0\0\0\x02ab\
            \x06\0\0\0\x01c";
        assert_eq!(&bytes[..], golden);
    }
}
