//! Bodies of fuzz targets, see `crate::testkit::fuzz`.

use bytes::Bytes;

use super::frame::{Deframer, FORMAT};
use super::hello::Hello;
use super::shared::Context;
use crate::base::wire;
#[cfg(test)]
use geolock_api::names::ClusterId;

/// Deframes a stream that is cut as its first byte says; the frames must not depend on the cut.
pub(crate) fn frames(data: &[u8]) -> bool {
    let Some((cut, stream)) = data.split_first() else { return false };
    let whole = deframe(stream, stream.len().max(1));
    assert_eq!(deframe(stream, usize::from(*cut) + 1), whole, "cut after every {cut} + 1 bytes");
    whole.1 && !whole.0.is_empty()
}

/// Returns the frames, and true if the stream ends after the last of them.
fn deframe(stream: &[u8], cut: usize) -> (Vec<Bytes>, bool) {
    let (mut deframer, mut frames) = (Deframer::default(), Vec::new());
    for piece in stream.chunks(cut) {
        let mut piece = Bytes::copy_from_slice(piece);
        while !piece.is_empty() {
            match deframer.next(&mut piece) {
                Ok(frame) => frames.extend(frame),
                Err(_) => return (frames, false),
            }
        }
    }
    let is_over = deframer.finish().is_ok();
    (frames, is_over)
}

/// Decodes the start of a stream: format, length, hello. Returns true if it is the hello of another member of
/// the cluster `fuzz`.
pub(crate) fn hello(data: &[u8]) -> bool {
    let Some((&[format, a, b], body)) = data.split_first_chunk() else { return false };
    if format != FORMAT || usize::from(u16::from_be_bytes([a, b])) != body.len() {
        return false;
    }
    let Ok(hello) = wire::decode::<Hello>("hello", body) else { return false };
    hello.probe(&Context::of_fuzz())
}

/// Builds an input of [`frames`]: cut after every `cut` + 1 bytes.
#[cfg(test)]
pub(crate) fn stream_bytes(cut: u8, messages: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![cut];
    for message in messages {
        bytes.extend_from_slice(&super::frame::header(message.len()));
        bytes.extend_from_slice(message);
    }
    bytes
}

/// Builds an input of [`hello`]: a member that speaks these versions.
#[cfg(test)]
pub(crate) fn hello_bytes(versions: (u16, u16)) -> Vec<u8> {
    let hello = Hello::of_test(versions, ClusterId::of("fuzz"));
    let body = wire::encode("hello", &hello).expect("it is small");
    [&[FORMAT, 0, body.len() as u8][..], &body].concat()
}
