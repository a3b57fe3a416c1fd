//! The body of the fuzz target for the frames of the native protocol.

use std::fmt::Debug;

use bytes::BytesMut;
use prost::Message;

use geolock_api::native::{Decoder, End, Frame, Kind, Start, decode, put};
use geolock_api::proto::{ClientMessage, ServerMessage};

/// Longest message, in bytes: small, so that inputs exceed it.
const MOST: usize = 1 << 10;

/// Cuts the bytes of a connection as the first byte determines. Asserts that the frames do not depend on the
/// cut, and that their bodies survive decoding and encoding. Returns true if there were frames, all of them
/// valid.
pub(crate) fn frames(data: &[u8]) -> bool {
    let Some((cut, stream)) = data.split_first() else { return false };
    let (frames, is_over) = read(stream, stream.len().max(1));
    assert_eq!(
        read(stream, usize::from(*cut) + 1),
        (frames.clone(), is_over),
        "cut after every {cut} + 1 bytes"
    );
    is_over && !frames.is_empty() && frames.into_iter().all(is_good)
}

/// Returns the frames, and true if the stream ends after the last of them.
fn read(stream: &[u8], cut: usize) -> (Vec<Frame>, bool) {
    let (mut decoder, mut frames) = (Decoder::new(MOST), Vec::new());
    for piece in stream.chunks(cut) {
        decoder.bytes().extend_from_slice(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, false),
            }
        }
    }
    let is_over = decoder.bytes().is_empty();
    (frames, is_over)
}

fn is_good(frame: Frame) -> bool {
    match frame.kind {
        Kind::Message => there_and_back::<ClientMessage>(&frame) || there_and_back::<ServerMessage>(&frame),
        Kind::Start => there_and_back::<Start>(&frame),
        Kind::End => there_and_back::<End>(&frame),
        Kind::Ping | Kind::Pong => frame.body.is_empty(),
        Kind::Piece | Kind::LastPiece => unreachable!("a decoder makes one message of pieces"),
    }
}

fn there_and_back<M: Message + Default + PartialEq + Debug>(frame: &Frame) -> bool {
    let Ok(value) = decode::<M>(frame.body.clone()) else { return false };
    let mut bytes = BytesMut::new();
    put(&mut bytes, frame.kind, &value);
    let (again, is_over) = read_all(&bytes);
    assert!(is_over, "what is put is a whole frame");
    assert_eq!(decode::<M>(again.body).expect("its own bytes"), value);
    true
}

/// Returns the one frame of these bytes. They may be longer than the input: unknown fields are gone, and
/// numbers have one form.
fn read_all(bytes: &[u8]) -> (Frame, bool) {
    let mut decoder = Decoder::new(16 * MOST);
    decoder.bytes().extend_from_slice(bytes);
    let frame = decoder.next_frame().expect("it is good").expect("it is whole");
    let is_over = decoder.bytes().is_empty();
    (frame, is_over)
}

/// Returns the input of [`frames`] for messages that are cut after every `cut` + 1 bytes.
#[cfg(test)]
pub(crate) fn stream_bytes(cut: u8, messages: &[ClientMessage]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    put(&mut bytes, Kind::Start, &Start { authorization: bytes::Bytes::from_static(b"Bearer a.b") });
    for message in messages {
        put(&mut bytes, Kind::Message, message);
        put(&mut bytes, Kind::Ping, &());
    }
    put(&mut bytes, Kind::End, &End { code: 7, message: "no".into(), ..End::default() });
    [&[cut], &bytes[..]].concat()
}
