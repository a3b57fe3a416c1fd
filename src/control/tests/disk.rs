//! A disk in memory that loses what is not synced.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

use crate::base::rng::Rng;

#[derive(Clone, Debug, Default)]
pub(super) struct CrashDisk(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync.
    pending: Vec<(u64, Vec<u8>)>,
    syncs: u64,
    fails: bool,
}

impl CrashDisk {
    /// Returns the disk as a loss of power leaves it now: with all that was synced, and any of the writes
    /// since.
    pub(super) fn after_power_loss(&self, rng: &mut Rng) -> CrashDisk {
        let content = self.0.lock().unwrap();
        let mut left = content.synced.clone();
        for (offset, data) in content.pending.iter().filter(|_| rng.below(2) == 0) {
            put(&mut left, *offset, data);
        }
        CrashDisk(Arc::new(Mutex::new(Content { now: left.clone(), synced: left, ..Content::default() })))
    }

    /// Returns how often the disk was synced.
    pub(super) fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs
    }

    /// From now on no write and no sync succeeds.
    pub(super) fn fail(&self) {
        self.0.lock().unwrap().fails = true;
    }
}

fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(data);
}

fn failure() -> io::Error {
    io::Error::other("the disk fails on purpose")
}

impl StorageBackend for CrashDisk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let content = self.0.lock().unwrap();
        out.copy_from_slice(&content.now[offset as usize..offset as usize + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        // The new length is at once on disk: a file that is too long does no harm.
        let mut content = self.0.lock().unwrap();
        content.now.resize(len as usize, 0);
        content.synced.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut content = self.0.lock().unwrap();
        if content.fails {
            return Err(failure());
        }
        content.synced = content.now.clone();
        content.pending.clear();
        content.syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut content = self.0.lock().unwrap();
        if content.fails {
            return Err(failure());
        }
        put(&mut content.now, offset, data);
        content.pending.push((offset, data.to_vec()));
        Ok(())
    }
}
