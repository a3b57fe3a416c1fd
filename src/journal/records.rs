//! The records of a journal, read from its segments again as they are iterated.
//!
//! Recovery has read and checked all of them before. Keeping them in memory until they are replayed would
//! take the memory of the whole log, beside that of the state.

use std::fmt;
use std::vec;

use bytes::Bytes;

use super::disk::{Context, Disk};
use super::error::JournalError;
use super::format::{FRAME_HEADER, FrameHeader, SEGMENT_HEADER, SegmentHeader, take_record};
use super::scan::{Scanned, frame};
use super::writer::segment_name;

/// Bytes of a segment that are read at a time; a larger batch is read as a whole.
const PIECE: usize = 1 << 20;

type Numbered = (u64, Bytes);

/// Records with their positions, in order and without gaps. An error is the last item.
pub struct Records(Box<dyn Iterator<Item = Result<Numbered, JournalError>> + Send>);

impl Records {
    pub(super) fn none() -> Records {
        Records(Box::new(std::iter::empty()))
    }

    /// Returns the records after `position`, from segments that were found valid.
    pub(super) fn read<D: Disk>(disk: &D, segments: &[(SegmentHeader, Scanned)], position: u64) -> Records {
        let part = |(header, scanned): &(SegmentHeader, Scanned)| Part {
            header: *header,
            at: SEGMENT_HEADER,
            end: scanned.len,
        };
        let parts: Vec<Part> = segments.iter().map(part).collect();
        let (parts, ready) = (parts.into_iter(), Vec::new().into_iter());
        Records(Box::new(Reader { disk: disk.clone(), position, parts, current: None, ready }))
    }
}

impl Iterator for Records {
    type Item = Result<Numbered, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records")
    }
}

/// The range of a segment that is still to be read.
struct Part {
    header: SegmentHeader,
    at: usize,
    end: usize,
}

struct Reader<D> {
    disk: D,
    position: u64,
    parts: vec::IntoIter<Part>,
    current: Option<Part>,
    ready: vec::IntoIter<Numbered>,
}

impl<D: Disk> Iterator for Reader<D> {
    type Item = Result<Numbered, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.next() {
                return Some(Ok(record));
            }
            if self.current.as_ref().is_none_or(|part| part.at == part.end) {
                self.current = Some(self.parts.next()?);
            }
            if let Err(error) = self.read_on() {
                (self.current, self.parts) = (None, Vec::new().into_iter());
                return Some(Err(error));
            }
        }
    }
}

impl<D: Disk> Reader<D> {
    /// Reads the next batches of the segment.
    fn read_on(&mut self) -> Result<(), JournalError> {
        let Some(part) = self.current.as_mut().filter(|part| part.at < part.end) else { return Ok(()) };
        let (name, salt) = (segment_name(part.header.first), part.header.salt);
        let read = |disk: &D, at: usize, len: usize| {
            disk.read_at(&name, at as u64, len.min(part.end - at)).doing("read", disk, &name).map(Bytes::from)
        };
        let mut piece = read(&self.disk, part.at, PIECE)?;
        if let Some(header) = FrameHeader::decode(&piece, salt)
            && FRAME_HEADER + header.len as usize > piece.len()
        {
            piece = read(&self.disk, part.at, FRAME_HEADER + header.len as usize)?;
        }
        let (mut records, mut used) = (Vec::new(), 0);
        while let Some((header, mut body)) = frame(&piece[used..], salt) {
            used += FRAME_HEADER + header.len as usize;
            let mut position = header.first;
            while let Some(record) = take_record(&mut body) {
                if position > self.position {
                    records.push((position, piece.slice_ref(record)));
                }
                position += 1;
            }
        }
        if used == 0 {
            let (path, offset) = (self.disk.path(&name), part.at as u64);
            let what = "a batch that was read a moment ago does not read back".into();
            return Err(JournalError::Damaged { path, offset, what });
        }
        part.at += used;
        self.ready = records.into_iter();
        Ok(())
    }
}
