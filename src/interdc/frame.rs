//! Messages on a stream: a length (u32, big endian), then that many bytes.
//!
//! Pure. The length of a frame is checked first; then memory is allocated no faster than its bytes arrive. So
//! a peer that announces much and sends little occupies little memory.

use bytes::{Buf, Bytes, BytesMut};

use super::error::FrameError;
use crate::base::wire::MAX_FRAME;

/// The first byte of every stream.
pub(super) const FORMAT: u8 = 1;

/// Bytes allocated at once for a frame that has not arrived yet.
const FIRST_ROOM: usize = 64 << 10;
const HEADER: usize = size_of::<u32>();

/// Returns the header of a frame of `len` bytes, at most [`MAX_FRAME`].
pub(super) fn header(len: usize) -> [u8; HEADER] {
    let len = u32::try_from(len).expect("no message is longer than a frame: checked when it was queued");
    len.to_be_bytes()
}

/// Extracts frames from the pieces of a stream, however it is cut.
#[derive(Default)]
pub(super) struct Deframer {
    header: [u8; HEADER],
    header_have: usize,
    body: BytesMut,
    body_len: usize,
}

impl Deframer {
    /// Returns the next frame once it is complete. Consumes the bytes it uses from `input`; returns `None`
    /// only when `input` is empty.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, FrameError> {
        if self.header_have < HEADER {
            let taken = input.len().min(HEADER - self.header_have);
            input.copy_to_slice(&mut self.header[self.header_have..self.header_have + taken]);
            self.header_have += taken;
            if self.header_have < HEADER {
                return Ok(None);
            }
            self.body_len = checked_len(u32::from_be_bytes(self.header))?;
            self.body = BytesMut::with_capacity(self.body_len.min(FIRST_ROOM));
        }
        let taken = input.len().min(self.body_len - self.body.len());
        self.body.extend_from_slice(&input.split_to(taken));
        if self.body.len() < self.body_len {
            return Ok(None);
        }
        self.header_have = 0;
        Ok(Some(std::mem::take(&mut self.body).freeze()))
    }

    /// Checks that the stream does not end within a frame. Call at the end of the stream.
    pub(super) fn finish(&self) -> Result<(), FrameError> {
        if self.header_have == 0 { Ok(()) } else { Err(FrameError::Truncated) }
    }
}

fn checked_len(len: u32) -> Result<usize, FrameError> {
    match len as usize {
        0 => Err(FrameError::Empty),
        1..=MAX_FRAME => Ok(len as usize),
        _ => Err(FrameError::TooLarge(len)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, proptest};
    use proptest::{collection, prop_assert_eq};

    use super::*;

    fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
        collection::vec(collection::vec(any::<u8>(), 1..300), 0..20)
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(messages in messages(), cuts in collection::vec(1_usize..50, 1..20)) {
            let mut stream = BytesMut::new();
            for message in &messages {
                stream.extend_from_slice(&header(message.len()));
                stream.extend_from_slice(message);
            }
            let mut stream = stream.freeze();
            let (mut deframer, mut found) = (Deframer::default(), Vec::new());
            for cut in cuts.iter().cycle() {
                let mut piece = stream.split_to((*cut).min(stream.len()));
                while let Some(frame) = deframer.next(&mut piece).unwrap() {
                    found.push(frame.to_vec());
                }
                if stream.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert_eq!(deframer.finish(), Ok(()));
        }
    }

    fn fed(bytes: &[u8]) -> (Deframer, Result<Option<Bytes>, FrameError>) {
        let mut deframer = Deframer::default();
        let outcome = deframer.next(&mut Bytes::copy_from_slice(bytes));
        (deframer, outcome)
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_any_byte_of_it() {
        let too_large = MAX_FRAME as u32 + 1;
        assert_eq!(fed(&too_large.to_be_bytes()).1, Err(FrameError::TooLarge(too_large)));
        assert_eq!(fed(&u32::MAX.to_be_bytes()).1, Err(FrameError::TooLarge(u32::MAX)));
        assert_eq!(fed(&[0; 4]).1, Err(FrameError::Empty));
    }

    #[test]
    fn an_announced_frame_takes_room_only_as_it_arrives() {
        let (deframer, outcome) = fed(&(MAX_FRAME as u32).to_be_bytes());
        assert_eq!(outcome, Ok(None));
        assert!(deframer.body.capacity() <= FIRST_ROOM);
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_is_truncated() {
        for bytes in [&[0][..], &[0, 0, 0, 2], &[0, 0, 0, 2, 7]] {
            assert_eq!(fed(bytes).0.finish(), Err(FrameError::Truncated));
        }
    }
}
