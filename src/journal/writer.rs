//! Segments: append a batch, begin the next segment, delete old ones.
//!
//! The order of the calls is the whole point here. A segment's header is durable, and its name in the
//! directory too, before a batch goes into it; a batch is durable before the next one is written; a
//! checkpoint is durable before anything that it covers is deleted. After an error the writer is not used
//! again: what the failed call left on the disk is unknown, and a second sync would lie about it.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::checkpoint;
use super::disk::{Context, Disk, DiskFile};
use super::error::{Identity, JournalError};
use super::format::{FRAME_HEADER, FrameHeader, SEGMENT_HEADER, SegmentHeader};
use super::queue::Batch;

const SUFFIX: &str = ".log";

pub(super) fn segment_name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// The position of its first record, if this is the name of a segment.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    let first = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (segment_name(first) == name && first > 0).then_some(first)
}

/// The segment that batches go to.
pub(super) struct Segment<F> {
    pub file: F,
    pub header: SegmentHeader,
    /// Bytes in it, all durable.
    pub len: u64,
    /// Checksum of its last frame's header; its own `chain` while it has none.
    pub chain: u32,
}

/// A segment that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sealed {
    pub first: u64,
    pub len: u64,
}

/// The log on disk.
pub(super) struct Writer<D: Disk> {
    pub disk: D,
    pub identity: Identity,
    pub segment_bytes: u64,
    /// In order of position.
    pub sealed: VecDeque<Sealed>,
    pub current: Segment<D::File>,
    /// Position of the next record.
    pub next: u64,
}

impl<D: Disk> Writer<D> {
    /// Returns when the batch is durable.
    pub fn write(&mut self, batch: &mut Batch) -> Result<(), JournalError> {
        assert_eq!(batch.first, self.next, "batches come in order");
        let full = self.current.len + batch.bytes.len() as u64 > self.segment_bytes;
        if full && !self.is_empty() {
            self.rotate()?;
        }
        let segment = &mut self.current;
        let (header, body) = batch.bytes.split_at_mut(FRAME_HEADER);
        let frame = FrameHeader::of(body, batch.first, segment.header.salt);
        header.copy_from_slice(&frame.encode());
        let name = || segment_name(segment.header.first);
        segment.file.write_at(segment.len, &batch.bytes).doing("write", &self.disk, &name())?;
        segment.file.sync().doing("sync", &self.disk, &name())?;
        segment.len += batch.bytes.len() as u64;
        segment.chain = frame.crc;
        self.next = batch.last + 1;
        Ok(())
    }

    /// Begins a new segment if the current one is worth it, so that a checkpoint taken now covers whole
    /// segments.
    pub fn rotate_for_checkpoint(&mut self) -> Result<(), JournalError> {
        if self.current.len >= self.segment_bytes / 4 && !self.is_empty() { self.rotate() } else { Ok(()) }
    }

    /// Deletes the segments of which `position` covers every record, and the checkpoints before it, which
    /// must be durable itself. The bytes of the segments.
    pub fn truncate(&mut self, position: u64) -> Result<u64, JournalError> {
        let mut freed = 0;
        while let Some(&Sealed { first, len }) = self.sealed.front() {
            let next_first = self.sealed.get(1).map_or(self.current.header.first, |next| next.first);
            if next_first > position + 1 {
                break;
            }
            remove(&self.disk, &segment_name(first))?;
            self.sealed.pop_front();
            freed += len;
        }
        for name in self.disk.names().doing("list", &self.disk, "")? {
            if checkpoint::parse_name(&name).is_some_and(|older| older < position) {
                remove(&self.disk, &name)?;
            }
        }
        self.disk.sync_dir().doing("sync the directory", &self.disk, "")?;
        Ok(freed)
    }

    /// How many files the log has.
    pub fn segments(&self) -> u64 {
        self.sealed.len() as u64 + 1
    }

    fn is_empty(&self) -> bool {
        self.current.len == SEGMENT_HEADER as u64
    }

    /// Begins the next segment.
    pub fn rotate(&mut self) -> Result<(), JournalError> {
        let next = create_segment(&self.disk, self.identity, self.next, self.current.chain)?;
        let full = std::mem::replace(&mut self.current, next);
        self.sealed.push_back(Sealed { first: full.header.first, len: full.len });
        Ok(())
    }
}

/// A segment without records, durable with its name.
pub(super) fn create_segment<D: Disk>(
    disk: &D,
    identity: Identity,
    first: u64,
    chain: u32,
) -> Result<Segment<D::File>, JournalError> {
    let salt = RandomState::new().build_hasher().finish();
    let header = SegmentHeader { identity, first, chain, salt };
    let name = segment_name(first);
    let mut file = disk.create(&name).doing("create", disk, &name)?;
    file.write_at(0, &header.encode()).doing("write", disk, &name)?;
    file.sync().doing("sync", disk, &name)?;
    disk.sync_dir().doing("sync the directory", disk, "")?;
    Ok(Segment { file, header, len: SEGMENT_HEADER as u64, chain })
}

pub(super) fn remove<D: Disk>(disk: &D, name: &str) -> Result<(), JournalError> {
    disk.remove(name).doing("remove", disk, name)
}
