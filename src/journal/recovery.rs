//! From files to state: the newest checkpoint, the records after it, and a writer that continues there.
//!
//! Recovery first reads and checks everything, one segment at a time; it changes the disk only once nothing
//! speaks against the directory, so a refusal leaves the directory as it was. All recovered data is made
//! durable before it is used: the previous process may have been killed between a write and its sync, and
//! recovered data is announced to peers. The records are read once more when they are replayed
//! (`records.rs`).
//!
//! A crash can leave the following behind. A partly written batch at the end of the newest segment is cut
//! off. A newest segment without a complete header, a temporary file, and segments that the checkpoint covers
//! are deleted. A damaged newest checkpoint does not matter while an older one and all records after it
//! exist.

use super::checkpoint::{self, Checkpoint};
use super::data_dir::{IDENTITY_TEMP, Known, check_identity, write_identity};
use super::disk::{Context, Disk, DiskFile, no_room};
use super::error::{Identity, JournalError};
use super::format::{BadHeader, FRAME_HEADER, MAX_BODY, SEGMENT_HEADER, SegmentHeader, VERSION};
use super::handle::MAX_SEGMENT_BYTES;
use super::queue::record_bytes;
use super::records::Records;
use super::scan::{End, Scanned, scan};
use super::writer::{
    Sealed, Segment, Tried, Writer, create_segment, parse_segment_name, remove, segment_name,
};

/// The recovered content of a directory.
pub(super) struct Recovery<D: Disk> {
    pub checkpoint: Option<Checkpoint>,
    /// The records after the checkpoint, in order.
    pub records: Records,
    /// Bytes that these records take in the log.
    pub since_checkpoint: u64,
    pub writer: Writer<D>,
}

/// Files by kind, each in order of position.
#[derive(Default)]
struct Files {
    segments: Vec<u64>,
    checkpoints: Vec<u64>,
    temporary: Vec<String>,
}

/// The log as read.
struct Log {
    /// The needed segments, oldest first.
    segments: Vec<(SegmentHeader, Scanned)>,
    /// File length of the newest segment, including the bytes to be cut off.
    file_len: usize,
    /// Bytes that the records after the checkpoint take.
    since_checkpoint: u64,
}

/// Recovers a directory. This is the only way to get a [`Writer`]; no other process may use the directory.
pub(super) fn recover<D: Disk>(
    disk: &D,
    identity: Identity,
    segment_bytes: u64,
) -> Result<Recovery<D>, JournalError> {
    let known = check_identity(disk, identity)?;
    let recovery = recover_files(disk, identity, segment_bytes, known)?;
    if known == Known::Unknown {
        write_identity(disk, identity)?;
    }
    Ok(recovery)
}

fn recover_files<D: Disk>(
    disk: &D,
    identity: Identity,
    segment_bytes: u64,
    known: Known,
) -> Result<Recovery<D>, JournalError> {
    disk.sync_dir().doing("sync the directory", disk, "")?;
    let files = list(disk)?;
    if let Some(newest) = files.segments.last() {
        let name = segment_name(*newest);
        let mut file = disk.open(&name).doing("open", disk, &name)?;
        file.settle().doing("sync", disk, &name)?;
    }
    let Found { checkpoint, log, leftover } = find(disk, identity, files, known)?;
    for name in leftover {
        remove(disk, &name)?;
    }
    disk.sync_dir().doing("sync the directory", disk, "")?;
    let position = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.position);
    let since_checkpoint = log.as_ref().map_or(0, |log| log.since_checkpoint);
    let (records, writer) = match log {
        Some(log) => {
            let records = Records::read(disk, &log.segments, position);
            (records, resume(disk, identity, segment_bytes, position, log)?)
        }
        None => {
            let current = create_segment(disk, identity, position + 1, 0)?;
            let current = current.ok_or_else(|| no_room(disk, ""))?;
            let (disk, sealed, next) = (disk.clone(), Default::default(), position + 1);
            (Records::none(), Writer { disk, identity, segment_bytes, sealed, current, next })
        }
    };
    Ok(Recovery { checkpoint, records, since_checkpoint, writer })
}

/// Returns the newest checkpoint of a directory, and the records after it. Changes nothing: the directory
/// may be read only. A batch that was being written when its server died is left out.
pub(super) fn read_only<D: Disk>(
    disk: &D,
    identity: Identity,
) -> Result<(Option<Checkpoint>, Records), JournalError> {
    let Found { checkpoint, log, .. } = find(disk, identity, list(disk)?, Known::Ours)?;
    let position = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.position);
    let records = log.map_or_else(Records::none, |log| Records::read(disk, &log.segments, position));
    Ok((checkpoint, records))
}

/// The content of a directory.
struct Found {
    checkpoint: Option<Checkpoint>,
    /// `None` if no record was ever durable after the checkpoint.
    log: Option<Log>,
    /// Files that are not needed any more.
    leftover: Vec<String>,
}

/// Reads and checks everything, and changes nothing.
fn find<D: Disk>(
    disk: &D,
    identity: Identity,
    mut files: Files,
    known: Known,
) -> Result<Found, JournalError> {
    let (checkpoint, damaged) = newest_checkpoint(disk, identity, &files.checkpoints)?;
    let position = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.position);
    let torn = pop_torn_segment(disk, &mut files.segments)?;

    let missing = || JournalError::Missing { dir: disk.path(""), from: position + 1 };
    let needed = files.segments.iter().rposition(|first| *first <= position + 1);
    let log = match needed {
        Some(start) => read_log(disk, identity, &files.segments[start..], torn, position).map(Some),
        // The header of the first segment is durable before the identity file is written.
        None if known == Known::Unknown && torn.is_some_and(|first| first <= position + 1) => Ok(None),
        None if !files.segments.is_empty() || torn.is_some() => Err(missing()),
        None if known == Known::Ours || position > 0 => Err(missing()),
        None => Ok(None),
    };
    // Without that checkpoint older records are missing; the operator must be told of the checkpoint.
    let log = log.map_err(|error| damaged.unwrap_or(error))?;

    let leftover = files.segments[..needed.unwrap_or(0)].iter().chain(&torn);
    let leftover = leftover.map(|first| segment_name(*first)).chain(files.temporary).collect();
    Ok(Found { checkpoint, log, leftover })
}

fn list<D: Disk>(disk: &D) -> Result<Files, JournalError> {
    let mut files = Files::default();
    for name in disk.names().doing("list", disk, "")? {
        files.segments.extend(parse_segment_name(&name));
        files.checkpoints.extend(checkpoint::parse_name(&name));
        if name == checkpoint::TEMP || name == IDENTITY_TEMP {
            files.temporary.push(name);
        }
    }
    files.segments.sort_unstable();
    files.checkpoints.sort_unstable();
    Ok(files)
}

/// Returns the newest valid checkpoint, and the error of a newer, damaged one.
fn newest_checkpoint<D: Disk>(
    disk: &D,
    identity: Identity,
    positions: &[u64],
) -> Result<(Option<Checkpoint>, Option<JournalError>), JournalError> {
    let mut damaged = None;
    for position in positions.iter().rev() {
        match Checkpoint::read(disk, identity, *position) {
            Ok(checkpoint) => return Ok((Some(checkpoint), damaged)),
            Err(error @ JournalError::Damaged { .. }) => damaged = damaged.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Ok((None, damaged))
}

/// Removes the newest segment from the list if it was being created: no batch was ever written to it, and all
/// records in the segment before it are durable.
fn pop_torn_segment<D: Disk>(disk: &D, segments: &mut Vec<u64>) -> Result<Option<u64>, JournalError> {
    let Some(newest) = segments.last().copied() else { return Ok(None) };
    let name = segment_name(newest);
    if disk.size(&name).doing("read", disk, &name)? > SEGMENT_HEADER as u64 {
        return Ok(None);
    }
    let bytes = disk.read(&name).doing("read", disk, &name)?;
    Ok(match SegmentHeader::decode(&bytes) {
        Err(BadHeader::Damaged) => segments.pop(),
        Ok(_) | Err(BadHeader::Version { .. }) => None,
    })
}

/// Reads consecutive segments, the newest last. `torn`: the one after them, without records.
fn read_log<D: Disk>(
    disk: &D,
    identity: Identity,
    segments: &[u64],
    torn: Option<u64>,
    position: u64,
) -> Result<Log, JournalError> {
    let mut log = Log { segments: Vec::new(), file_len: 0, since_checkpoint: 0 };
    for (i, first) in segments.iter().enumerate() {
        let name = segment_name(*first);
        let newest = i + 1 == segments.len() && torn.is_none();
        let damaged = |offset, what| JournalError::Damaged { path: disk.path(&name), offset, what };
        if disk.size(&name).doing("read", disk, &name)? > MAX_SEGMENT_BYTES + (FRAME_HEADER + MAX_BODY) as u64
        {
            return Err(damaged(0, "no segment is that large".into()));
        }
        let bytes = disk.read(&name).doing("read", disk, &name)?;
        let header = decode_header(disk, identity, &name, &bytes)?;
        if header.first != *first {
            return Err(damaged(0, format!("its header is that of segment {}", header.first)));
        }
        if let Some((_, before)) = log.segments.last() {
            if before.next < *first {
                return Err(JournalError::Missing { dir: disk.path(""), from: before.next });
            }
            if before.next > *first || before.chain != header.chain {
                return Err(damaged(0, "it does not follow the segment before it".into()));
            }
        }
        let end = if newest { End::Torn } else { End::Sealed };
        let since_checkpoint = &mut log.since_checkpoint;
        let scanned = scan(&bytes, &header, end, |at, record| {
            *since_checkpoint += if at > position { record_bytes(record) } else { 0 };
        });
        log.segments.push((header, scanned.map_err(|damage| damaged(damage.offset, damage.what))?));
        log.file_len = bytes.len();
    }
    let next = log.segments.last().map_or(position + 1, |(_, scanned)| scanned.next);
    match torn {
        Some(first) if first != next => Err(JournalError::Missing { dir: disk.path(""), from: next }),
        _ => Ok(log),
    }
}

fn decode_header<D: Disk>(
    disk: &D,
    identity: Identity,
    name: &str,
    bytes: &[u8],
) -> Result<SegmentHeader, JournalError> {
    let path = disk.path(name);
    match SegmentHeader::decode(bytes) {
        Ok(header) if header.identity == identity => Ok(header),
        Ok(header) => {
            let (dir, found) = (disk.path(""), header.identity);
            Err(JournalError::WrongIdentity { dir, found, expected: identity })
        }
        Err(BadHeader::Version { found, known }) => Err(JournalError::UnknownVersion { path, found, known }),
        Err(BadHeader::Damaged) => {
            let what = "its header is not that of a segment".into();
            Err(JournalError::Damaged { path, offset: 0, what })
        }
    }
}

/// Returns a writer that continues after the last record.
fn resume<D: Disk>(
    disk: &D,
    identity: Identity,
    segment_bytes: u64,
    position: u64,
    mut log: Log,
) -> Result<Writer<D>, JournalError> {
    let (header, scanned) = log.segments.pop().expect("a log has a segment");
    let name = segment_name(header.first);
    let mut file = disk.open(&name).doing("open", disk, &name)?;
    if scanned.len < log.file_len {
        file.truncate(scanned.len as u64).doing("cut", disk, &name)?;
    }
    let sealed =
        log.segments.iter().map(|(header, at)| Sealed { first: header.first, len: at.len as u64 }).collect();
    let is_old = header.version != VERSION;
    let current = Segment { file, header, len: scanned.len as u64, chain: scanned.chain };
    let mut writer =
        Writer { disk: disk.clone(), identity, segment_bytes, sealed, current, next: scanned.next };
    if writer.next <= position {
        // The last batch is damaged, but the checkpoint covers it: continue after the checkpoint.
        writer.next = position + 1;
        if writer.rotate()? == Tried::NoRoom {
            return Err(no_room(disk, ""));
        }
    } else if is_old && writer.rotate()? == Tried::NoRoom {
        // The previous release cannot read records written from here on, so they must not follow a header of
        // its version.
        return Err(no_room(disk, ""));
    }
    Ok(writer)
}
