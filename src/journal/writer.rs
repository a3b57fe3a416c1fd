//! Segments: appends a batch, begins the next segment, deletes old ones.
//!
//! The order of the calls is essential. A segment's header and its name in the directory are durable before a
//! batch is written to it; a batch is durable before the next one is written; a checkpoint is durable before
//! the records that it covers are deleted. After an error the writer is not used again: the failed call has
//! left unknown bytes on the disk, and a second sync could succeed wrongly. A write that finds no room is not
//! an error: its bytes are cut off again, and it can be repeated.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::testkit::faults::{self, Step};

use super::checkpoint;
use super::disk::{Context, Disk, DiskFile, is_no_room};
use super::error::{Identity, JournalError};
use super::format::{FRAME_HEADER, FrameHeader, SEGMENT_HEADER, SegmentHeader, VERSION};
use super::queue::Batch;

const SUFFIX: &str = ".log";

pub(super) fn segment_name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// Returns the position of its first record, if this is the name of a segment.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    let first = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (segment_name(first) == name && first > 0).then_some(first)
}

/// The result of an operation that needs room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Tried {
    Done,
    /// The disk is full, and unchanged.
    NoRoom,
}

/// The segment that batches are appended to.
pub(super) struct Segment<F> {
    pub file: F,
    pub header: SegmentHeader,
    /// Bytes in it, all durable.
    pub len: u64,
    /// Checksum of its last frame's header; its own `chain` while it has no frame.
    pub chain: u32,
}

/// A segment that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sealed {
    pub first: u64,
    pub len: u64,
}

/// The size of the log on disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogSize {
    /// The number of its files.
    pub segments: u64,
    pub bytes: u64,
    /// Bytes that a checkpoint taken now would free.
    pub reclaimable: u64,
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
    /// Returns when the batch is durable, or when there is no room for it.
    pub fn write(&mut self, batch: &mut Batch) -> Result<Tried, JournalError> {
        assert_eq!(batch.first, self.next, "batches come in order");
        let full = self.current.len + batch.bytes.len() as u64 > self.segment_bytes;
        if full && !self.is_empty() && self.rotate()? == Tried::NoRoom {
            return Ok(Tried::NoRoom);
        }
        let segment = &mut self.current;
        let (header, body) = batch.bytes.split_at_mut(FRAME_HEADER);
        let frame = FrameHeader::of(body, batch.first, segment.header.salt);
        header.copy_from_slice(&frame.encode());
        let name = || segment_name(segment.header.first);
        match segment.file.write_at(segment.len, &batch.bytes) {
            Err(error) if is_no_room(&error) => {
                segment.file.truncate(segment.len).doing("cut", &self.disk, &name())?;
                return Ok(Tried::NoRoom);
            }
            written => written.doing("write", &self.disk, &name())?,
        }
        faults::before(Step::Sync);
        let synced = faults::attempt(Step::Sync).and_then(|()| segment.file.sync());
        synced.doing("sync", &self.disk, &name())?;
        faults::after(Step::Sync);
        segment.len += batch.bytes.len() as u64;
        segment.chain = frame.crc;
        self.next = batch.last + 1;
        Ok(Tried::Done)
    }

    /// Begins a new segment if the current one is worth it, so that a checkpoint taken now covers whole
    /// segments. Without room for a new one, the checkpoint covers one segment less.
    pub fn rotate_for_checkpoint(&mut self) -> Result<(), JournalError> {
        if self.is_worth_rotating() {
            let _ = self.rotate()?;
        }
        Ok(())
    }

    fn is_worth_rotating(&self) -> bool {
        self.current.len >= self.segment_bytes / 4 && !self.is_empty()
    }

    /// Deletes the segments whose records are all covered by `position`, and the checkpoints before it. The
    /// checkpoint at `position` must be durable. Returns the bytes of the deleted segments.
    pub fn truncate(&mut self, position: u64) -> Result<u64, JournalError> {
        faults::before(Step::Truncate);
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
        faults::after(Step::Truncate);
        Ok(freed)
    }

    /// Returns the size of the log.
    pub fn size(&self) -> LogSize {
        let sealed: u64 = self.sealed.iter().map(|segment| segment.len).sum();
        let current = if self.is_worth_rotating() { self.current.len } else { 0 };
        LogSize {
            segments: self.sealed.len() as u64 + 1,
            bytes: sealed + self.current.len,
            reclaimable: sealed + current,
        }
    }

    fn is_empty(&self) -> bool {
        self.current.len == SEGMENT_HEADER as u64
    }

    /// Begins the next segment.
    pub fn rotate(&mut self) -> Result<Tried, JournalError> {
        let Some(next) = create_segment(&self.disk, self.identity, self.next, self.current.chain)? else {
            return Ok(Tried::NoRoom);
        };
        let full = std::mem::replace(&mut self.current, next);
        self.sealed.push_back(Sealed { first: full.header.first, len: full.len });
        Ok(Tried::Done)
    }
}

/// Creates a segment without records, durable with its name; `None` if there is no room for it.
pub(super) fn create_segment<D: Disk>(
    disk: &D,
    identity: Identity,
    first: u64,
    chain: u32,
) -> Result<Option<Segment<D::File>>, JournalError> {
    let salt = RandomState::new().build_hasher().finish();
    let header = SegmentHeader { version: VERSION, identity, first, chain, salt };
    let name = segment_name(first);
    let Some(mut file) = create_file(disk, &name)? else { return Ok(None) };
    if put(disk, &name, &mut file, 0, &header.encode())? == Tried::NoRoom {
        // The previous segment may be appended to, and would not fit a removed file that reappeared after a
        // crash.
        disk.sync_dir().doing("sync the directory", disk, "")?;
        return Ok(None);
    }
    file.sync().doing("sync", disk, &name)?;
    disk.sync_dir().doing("sync the directory", disk, "")?;
    Ok(Some(Segment { file, header, len: SEGMENT_HEADER as u64, chain }))
}

/// Creates a file; `None` if there is no room for it.
pub(super) fn create_file<D: Disk>(disk: &D, name: &str) -> Result<Option<D::File>, JournalError> {
    match disk.create(name) {
        Err(error) if is_no_room(&error) => Ok(None),
        created => created.doing("create", disk, name).map(Some),
    }
}

/// Writes to a new file. Without room for it the file is removed.
pub(super) fn put<D: Disk>(
    disk: &D,
    name: &str,
    file: &mut D::File,
    offset: u64,
    bytes: &[u8],
) -> Result<Tried, JournalError> {
    match file.write_at(offset, bytes) {
        Err(error) if is_no_room(&error) => remove(disk, name).map(|()| Tried::NoRoom),
        written => written.doing("write", disk, name).map(|()| Tried::Done),
    }
}

pub(super) fn remove<D: Disk>(disk: &D, name: &str) -> Result<(), JournalError> {
    disk.remove(name).doing("remove", disk, name)
}
