//! From the bytes of a segment to its records: finds the end of the log, and checks that it may end there.
//!
//! A crash can leave the last batch partly written, in any order of its sectors; no record of that batch was
//! reported durable, and the batch is cut off. Everything else that is not readable is damage to records that
//! *were* durable, and the server must not start without them. The two are distinguished as follows:
//!
//! - a segment that is not the newest was synced before the next one was created: any bad frame is damage;
//! - a batch is written when the one before it is synced: a frame header anywhere after a bad frame proves
//!   that the bad one was durable;
//! - a torn batch is at most one frame long.
//!
//! The remaining case is damage to exactly the last batch of the log. It cannot be distinguished from a torn
//! write.

use super::format::{
    FRAME_HEADER, FrameHeader, MAX_BODY, SEGMENT_HEADER, SegmentHeader, body_crc, take_record,
};

/// How a segment may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// With its last frame: it is not the newest, so all of it was durable.
    Sealed,
    /// Within a batch that was being written.
    Torn,
}

/// The end of the log in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scanned {
    /// Length up to the end of the last valid frame.
    pub len: usize,
    /// Position of the next record.
    pub next: u64,
    /// Checksum of the last frame's header, or the segment's own `chain` if there is no frame.
    pub chain: u32,
}

/// A description of damage, and its offset in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Damage {
    pub offset: u64,
    pub what: String,
}

/// Passes all records of the segment with this header to `on_record`, in order.
pub(super) fn scan(
    bytes: &[u8],
    header: &SegmentHeader,
    end: End,
    mut on_record: impl FnMut(u64, &[u8]),
) -> Result<Scanned, Damage> {
    let mut at = Scanned { len: SEGMENT_HEADER, next: header.first, chain: header.chain };
    while at.len < bytes.len() {
        let rest = &bytes[at.len..];
        let damage = |what: String| Damage { offset: at.len as u64, what };
        let Some((frame, mut body)) = frame(rest, header.salt) else {
            check_torn(rest, header.salt, end).map_err(damage)?;
            return Ok(at);
        };
        if frame.first != at.next {
            return Err(damage(format!("position {} comes where {} must", frame.first, at.next)));
        }
        let mut next = at.next;
        while !body.is_empty() {
            let record = take_record(&mut body).ok_or_else(|| damage("a record leaves its batch".into()))?;
            on_record(next, record);
            next += 1;
        }
        at = Scanned { len: at.len + FRAME_HEADER + frame.len as usize, next, chain: frame.crc };
    }
    Ok(at)
}

/// Returns the frame that starts here, if it is complete.
pub(super) fn frame(bytes: &[u8], salt: u64) -> Option<(FrameHeader, &[u8])> {
    let header = FrameHeader::decode(bytes, salt)?;
    let body = bytes[FRAME_HEADER..].get(..header.len as usize)?;
    (body_crc(body, salt) == header.body_crc).then_some((header, body))
}

/// Checks that the rest of a file, which starts with a bad frame, can be a batch that was being written.
fn check_torn(rest: &[u8], salt: u64, end: End) -> Result<(), String> {
    if end == End::Sealed {
        return Err("a batch that was durable does not read back".into());
    }
    if rest.len() > FRAME_HEADER + MAX_BODY {
        return Err(format!("{} bytes after the last good batch are more than one batch", rest.len()));
    }
    let later = (1..rest.len()).find_map(|at| Some((at, FrameHeader::decode(&rest[at..], salt)?)));
    match later {
        None => Ok(()),
        Some((at, frame)) => Err(format!(
            "a batch does not read back, and {at} bytes further there is one of position {}",
            frame.first
        )),
    }
}
