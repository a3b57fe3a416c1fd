//! The bytes of segments and checkpoints. All numbers are little endian.
//!
//! ```text
//! segment     "geolockj" version:u8 dc:u8 0:u16 chain:u32 cluster:u64 first:u64 salt:u64 crc:u32 then frames
//! frame       len:u32 first:u64 body_crc:u32 crc:u32   then `len` bytes of body: the records of one batch
//! record      len:u32 payload
//! checkpoint  "geolockc" version:u8 dc:u8 0:u16 body_crc:u32 cluster:u64 position:u64 len:u64 crc:u32
//!             then body
//! ```
//!
//! The batch is checked, not the record, because the batch is the unit that one write and one sync make
//! durable: a batch is written only after the one before it is synced. So a valid frame *after* a bad one
//! proves that the bad one was durable once, and that it is damage and not a torn write. Each frame has a
//! checksum over its own header, so that a length is never trusted unchecked and later frames can be found
//! cheaply.
//!
//! `salt` is random per segment and goes into the checksums of its frames: bytes of another segment, or bytes
//! that a client had journaled inside a record, are not a frame. `chain` is the checksum of the last frame of
//! the previous segment: segments of two histories do not fit together.

use crate::base::wire::MAX_FRAME;
use geolock_api::names::{ClusterId, DcId};

use super::error::Identity;

/// The version that is written. The bytes of the files are the same in all versions. In version 1, records
/// and checkpoints have no hashes of entries; in version 2, names of locks have no home; in version 3,
/// checkpoints have no hashes of the contents of commits, and no homes of prefixes; in version 4, no
/// decisions are compacted.
pub(super) const VERSION: u8 = 5;
/// The oldest version that is read.
const OLDEST: u8 = 1;
const SEGMENT_MAGIC: &[u8; 8] = b"geolockj";
const CHECKPOINT_MAGIC: &[u8; 8] = b"geolockc";

pub(super) const SEGMENT_HEADER: usize = 44;
pub(super) const FRAME_HEADER: usize = 20;
pub(super) const CHECKPOINT_HEADER: usize = 44;
/// Bytes in front of each record in a frame.
pub(super) const RECORD_HEADER: usize = 4;
/// Most bytes in the body of a frame: a record of the largest size, and as much again beside it.
pub(super) const MAX_BODY: usize = 2 * (MAX_FRAME + RECORD_HEADER);

const _: () = assert!(MAX_BODY < u32::MAX as usize);

/// The reason why a file header is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadHeader {
    /// Truncated or overwritten.
    Damaged,
    /// Written by a later release.
    Version { found: u8, known: u8 },
}

/// The start of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    pub version: u8,
    pub identity: Identity,
    /// Position of the first record that is or will be in it.
    pub first: u64,
    pub chain: u32,
    pub salt: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        put_prefix(&mut bytes, SEGMENT_MAGIC, self.identity.dc, self.chain);
        bytes[8] = self.version;
        bytes[16..24].copy_from_slice(&self.identity.cluster.get().to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, BadHeader> {
        let dc = check_prefix::<SEGMENT_HEADER>(bytes, SEGMENT_MAGIC)?;
        Ok(SegmentHeader {
            version: bytes[8],
            identity: Identity { cluster: ClusterId::from_raw(u64_at(bytes, 16)), dc },
            first: u64_at(bytes, 24),
            chain: u32_at(bytes, 12),
            salt: u64_at(bytes, 32),
        })
    }
}

/// The start of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CheckpointHeader {
    pub identity: Identity,
    pub position: u64,
    pub len: u64,
    pub body_crc: u32,
}

impl CheckpointHeader {
    pub fn encode(&self) -> [u8; CHECKPOINT_HEADER] {
        let mut bytes = [0; CHECKPOINT_HEADER];
        put_prefix(&mut bytes, CHECKPOINT_MAGIC, self.identity.dc, self.body_crc);
        bytes[16..24].copy_from_slice(&self.identity.cluster.get().to_le_bytes());
        bytes[24..32].copy_from_slice(&self.position.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.len.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<CheckpointHeader, BadHeader> {
        let dc = check_prefix::<CHECKPOINT_HEADER>(bytes, CHECKPOINT_MAGIC)?;
        Ok(CheckpointHeader {
            identity: Identity { cluster: ClusterId::from_raw(u64_at(bytes, 16)), dc },
            position: u64_at(bytes, 24),
            len: u64_at(bytes, 32),
            body_crc: u32_at(bytes, 12),
        })
    }
}

/// The start of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHeader {
    /// Bytes of the body.
    pub len: u32,
    /// Position of its first record.
    pub first: u64,
    pub body_crc: u32,
    /// Checksum of the fields above. It is the next segment's `chain` if this is the last frame of its
    /// segment.
    pub crc: u32,
}

impl FrameHeader {
    pub fn of(body: &[u8], first: u64, salt: u64) -> FrameHeader {
        assert!((1..=MAX_BODY).contains(&body.len()), "a frame of {} bytes", body.len());
        let body_crc = body_crc(body, salt);
        let mut header = FrameHeader { len: body.len() as u32, first, body_crc, crc: 0 };
        header.crc = salted(&header.encode()[..FRAME_HEADER - 4], salt);
        header
    }

    pub fn encode(&self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.first.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// `None` when no frame of a segment with this salt starts here.
    pub fn decode(bytes: &[u8], salt: u64) -> Option<FrameHeader> {
        let bytes = bytes.get(..FRAME_HEADER)?;
        let header = FrameHeader {
            len: u32_at(bytes, 0),
            first: u64_at(bytes, 4),
            body_crc: u32_at(bytes, 12),
            crc: u32_at(bytes, 16),
        };
        let plausible = (1..=MAX_BODY).contains(&(header.len as usize)) && header.first > 0;
        (plausible && salted(&bytes[..FRAME_HEADER - 4], salt) == header.crc).then_some(header)
    }
}

pub(super) fn body_crc(body: &[u8], salt: u64) -> u32 {
    salted(body, salt)
}

fn salted(bytes: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

/// Adds a record to the body of a frame.
pub(super) fn put_record(body: &mut Vec<u8>, record: &[u8]) {
    assert!(record.len() <= MAX_FRAME, "a record of {} bytes, the limit is {MAX_FRAME}", record.len());
    body.extend_from_slice(&(record.len() as u32).to_le_bytes());
    body.extend_from_slice(record);
}

/// Takes the first record off a body. `None` when the body ends within the record.
pub(super) fn take_record<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = body.split_at_checked(RECORD_HEADER)?;
    let (record, rest) = rest.split_at_checked(u32_at(len, 0) as usize)?;
    *body = rest;
    Some(record)
}

fn put_prefix(bytes: &mut [u8], magic: &[u8; 8], dc: DcId, word: u32) {
    bytes[..8].copy_from_slice(magic);
    bytes[8] = VERSION;
    bytes[9] = dc.get();
    bytes[12..16].copy_from_slice(&word.to_le_bytes());
}

/// Ends a file header with the checksum of all bytes before.
fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a file header of `LEN` bytes. Returns its datacenter.
fn check_prefix<const LEN: usize>(bytes: &[u8], magic: &[u8; 8]) -> Result<DcId, BadHeader> {
    let header = bytes.get(..LEN).ok_or(BadHeader::Damaged)?;
    if !header.starts_with(magic) {
        return Err(BadHeader::Damaged);
    }
    // A later release may have other fields where this one has the checksum, so the version is checked first.
    if header[8] > VERSION {
        return Err(BadHeader::Version { found: header[8], known: VERSION });
    }
    let sound = crc32c::crc32c(&header[..LEN - 4]) == u32_at(header, LEN - 4) && header[8] >= OLDEST;
    DcId::new(header[9]).filter(|_| sound).ok_or(BadHeader::Damaged)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were taken"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were taken"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { cluster: ClusterId::from_raw(0x0102_0304_0506_0708), dc: DcId::new(3).expect("small") }
    }

    /// The format on disk does not change without a new version.
    #[test]
    fn golden_bytes() {
        let segment =
            SegmentHeader { version: 2, identity: identity(), first: 9, chain: 0xa1a2_a3a4, salt: 0x77 };
        assert_eq!(
            segment.encode()[..40],
            *b"geolockj\x02\x03\0\0\xa4\xa3\xa2\xa1\x08\x07\x06\x05\x04\x03\x02\x01\
               \x09\0\0\0\0\0\0\0\x77\0\0\0\0\0\0\0"
        );
        assert_eq!(SegmentHeader::decode(&segment.encode()), Ok(segment));
        let old = SegmentHeader { version: 1, ..segment };
        assert_eq!(SegmentHeader::decode(&old.encode()), Ok(old));
        let mut body = Vec::new();
        put_record(&mut body, b"one");
        assert_eq!(body, b"\x03\0\0\0one");
        let frame = FrameHeader::of(&body, 9, 0x77);
        let crcs = (frame.body_crc, frame.crc);
        assert_eq!(frame.encode()[..12], *b"\x07\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(crcs, (GOLDEN_BODY_CRC, GOLDEN_FRAME_CRC));
        let checkpoint = CheckpointHeader { identity: identity(), position: 5, len: 6, body_crc: 7 };
        assert_eq!(CheckpointHeader::decode(&checkpoint.encode()), Ok(checkpoint));
    }

    const GOLDEN_BODY_CRC: u32 = 2_831_413_598;
    const GOLDEN_FRAME_CRC: u32 = 1_093_498_437;

    #[test]
    fn a_header_with_any_bit_flipped_is_none() {
        let good = SegmentHeader { version: 2, identity: identity(), first: 9, chain: 1, salt: 2 }.encode();
        let mut body = Vec::new();
        put_record(&mut body, b"one");
        let frame = FrameHeader::of(&body, 9, 2).encode();
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
        for bit in 0..FRAME_HEADER * 8 {
            let mut bad = frame;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&bad, 2), None, "bit {bit}");
        }
        assert_eq!(FrameHeader::decode(&frame, 3), None, "a frame of another segment");
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes =
            SegmentHeader { version: VERSION, identity: identity(), first: 9, chain: 1, salt: 2 }.encode();
        bytes[8] = VERSION + 1;
        let later = BadHeader::Version { found: VERSION + 1, known: VERSION };
        assert_eq!(SegmentHeader::decode(&bytes), Err(later));
    }

    #[test]
    fn a_record_that_leaves_its_body_is_none() {
        let mut body: &[u8] = b"\x02\0\0\0ab\xff\xff\xff\xffc";
        assert_eq!(take_record(&mut body), Some(b"ab".as_slice()));
        assert_eq!(take_record(&mut body), None);
    }
}
