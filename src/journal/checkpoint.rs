//! Checkpoint files. A checkpoint is one value, rewritten as a whole. It is written beside the older one,
//! made durable, renamed into place, and the rename is made durable; only then may the records that it covers
//! be deleted. So a crash at any moment leaves the older checkpoint with all records after it, or the new
//! one.

use crate::base::wire::MAX_CHECKPOINT;
use crate::testkit::faults::{self, Step};

use super::disk::{Context, Disk, DiskFile};
use super::error::{Identity, JournalError};
use super::format::{BadHeader, CHECKPOINT_HEADER, CheckpointHeader, body_crc};
use super::writer::{Tried, create_file, put};

pub(super) const TEMP: &str = "checkpoint.tmp";
const SUFFIX: &str = ".checkpoint";

pub(super) fn name_of(position: u64) -> String {
    format!("{position:020}{SUFFIX}")
}

/// Returns the position if this is the name of a checkpoint.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    let position = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (name_of(position) == name).then_some(position)
}

/// The state after all records up to `position`. Those must be durable.
pub(super) struct Checkpoint {
    pub position: u64,
    pub body: Vec<u8>,
}

impl Checkpoint {
    /// Writes the checkpoint. Returns when it is durable, or when there is no room for it.
    pub fn write<D: Disk>(&self, disk: &D, identity: Identity) -> Result<Tried, JournalError> {
        faults::before(Step::Checkpoint);
        let header = CheckpointHeader {
            identity,
            position: self.position,
            len: self.body.len() as u64,
            body_crc: body_crc(&self.body, self.position),
        };
        // An attempt that cannot succeed must not take the last room from the log. On a disk that does not
        // report its free space, the attempt is made.
        if disk.free().is_ok_and(|free| free < self.bytes()) {
            return Ok(Tried::NoRoom);
        }
        let Some(mut file) = create_file(disk, TEMP)? else { return Ok(Tried::NoRoom) };
        for (offset, bytes) in [(0, &header.encode()[..]), (CHECKPOINT_HEADER as u64, &self.body)] {
            if put(disk, TEMP, &mut file, offset, bytes)? == Tried::NoRoom {
                return Ok(Tried::NoRoom);
            }
        }
        file.sync().doing("sync", disk, TEMP)?;
        disk.rename(TEMP, &name_of(self.position)).doing("rename", disk, TEMP)?;
        disk.sync_dir().doing("sync the directory", disk, "")?;
        faults::after(Step::Checkpoint);
        Ok(Tried::Done)
    }

    /// Returns the size of its file.
    pub fn bytes(&self) -> u64 {
        (CHECKPOINT_HEADER + self.body.len()) as u64
    }

    pub fn read<D: Disk>(disk: &D, identity: Identity, position: u64) -> Result<Checkpoint, JournalError> {
        let name = name_of(position);
        let damaged =
            |what: &str| JournalError::Damaged { path: disk.path(&name), offset: 0, what: what.into() };
        if disk.size(&name).doing("read", disk, &name)? > (CHECKPOINT_HEADER + MAX_CHECKPOINT) as u64 {
            return Err(damaged("no checkpoint is that large"));
        }
        let mut bytes = disk.read(&name).doing("read", disk, &name)?;
        let header = CheckpointHeader::decode(&bytes).map_err(|bad| match bad {
            BadHeader::Damaged => damaged("its header is not that of a checkpoint"),
            BadHeader::Version { found, known } => {
                JournalError::UnknownVersion { path: disk.path(&name), found, known }
            }
        })?;
        if header.identity != identity {
            let (dir, found) = (disk.path(""), header.identity);
            return Err(JournalError::WrongIdentity { dir, found, expected: identity });
        }
        bytes.drain(..CHECKPOINT_HEADER);
        let body = bytes;
        let sound = header.position == position
            && header.len == body.len() as u64
            && header.body_crc == body_crc(&body, position);
        if !sound {
            return Err(damaged("its content does not fit its header"));
        }
        Ok(Checkpoint { position, body })
    }
}
