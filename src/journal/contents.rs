//! Reads a data directory that no server uses, and changes nothing in it.

use std::fs::File;
use std::path::Path;

use super::data_dir::{read_identity, share};
use super::disk::RealDisk;
use super::error::{Identity, JournalError};
use super::records::Records;
use super::recovery::read_only;

/// The content of a data directory, as a server that starts on it would find it.
#[derive(Debug)]
pub struct Contents {
    /// The owner of the directory.
    pub identity: Identity,
    /// The body of the newest checkpoint.
    pub checkpoint: Option<Vec<u8>>,
    /// The records after it, in order.
    pub records: Records,
    /// Held until the records are read.
    _lock: Option<File>,
}

impl Contents {
    /// Reads the directory. The records are read from disk as they are iterated.
    ///
    /// # Errors
    /// If it is not the directory of a server, if a server uses it, and if its files are damaged.
    pub fn read(dir: &Path) -> Result<Contents, JournalError> {
        let disk = RealDisk::new(dir.to_owned());
        let identity = read_identity(&disk)?.ok_or_else(|| JournalError::NoData { dir: dir.to_owned() })?;
        let lock = share(dir)?;
        let (checkpoint, records) = read_only(&disk, identity)?;
        Ok(Contents {
            identity,
            checkpoint: checkpoint.map(|checkpoint| checkpoint.body),
            records,
            _lock: lock,
        })
    }
}
