//! The calls to the file system, behind a trait so that the crash tests can put their own disk under the rest
//! of the module. All files of a data directory lie flat in it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::error::JournalError;

/// One directory. Names are those of files in it.
pub(super) trait Disk: Clone + Send + 'static {
    type File: DiskFile;

    /// The path for error messages.
    fn path(&self, name: &str) -> PathBuf;
    /// Returns the names of all files, in no order. Names that are not UTF-8 belong to other programs and are
    /// left out.
    fn names(&self) -> io::Result<Vec<String>>;
    fn size(&self, name: &str) -> io::Result<u64>;
    /// Returns the whole content. The caller has checked the size.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Returns `len` bytes from `offset` on; an error if there are fewer.
    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;
    /// Creates an empty file; an error if there is one of that name.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing file for writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes every create, rename and remove so far durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Returns how many bytes may still be written, as far as the file system knows; quotas are not
    /// considered.
    fn free(&self) -> io::Result<u64>;
    /// Returns true if the file system can make no further file, however much of its space is free.
    fn is_out_of_inodes(&self) -> bool {
        false
    }
}

/// Returns the error of a disk that has no room for that file.
pub(super) fn no_room<D: Disk>(disk: &D, name: &str) -> JournalError {
    let lacking = if disk.is_out_of_inodes() { "inode (`df -i`)" } else { "room" };
    JournalError::NoRoom { lacking, path: disk.path(name) }
}

/// Returns true if a call failed because the disk, or a quota, is full: then it can be repeated when there is
/// room.
pub(super) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A file open for writing.
pub(super) trait DiskFile: Send {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file, durably.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes durable the writes of another process, and drops the operating system's cache of the file.
    fn settle(&mut self) -> io::Result<()>;
}

/// Adds the failed call and its file to an error.
pub(super) trait Context<T> {
    fn doing<D: Disk>(self, doing: &'static str, disk: &D, name: &str) -> Result<T, JournalError>;
}

impl<T> Context<T> for io::Result<T> {
    fn doing<D: Disk>(self, doing: &'static str, disk: &D, name: &str) -> Result<T, JournalError> {
        self.map_err(|source| JournalError::Io { doing, path: disk.path(name), source })
    }
}

/// A directory of this machine.
#[derive(Clone)]
pub(super) struct RealDisk {
    dir: PathBuf,
}

impl RealDisk {
    pub fn new(dir: PathBuf) -> RealDisk {
        RealDisk { dir }
    }
}

/// How long to wait for a file descriptor: connections are opened and closed all the time.
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(60);
const DESCRIPTOR_RETRY: Duration = Duration::from_millis(20);

/// Opens a file, and retries while this process or the machine has too many files open: such a failure
/// changes nothing.
fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    let mut was_told = false;
    loop {
        match open() {
            Err(error) if is_out_of_descriptors(&error) && start.elapsed() < DESCRIPTOR_WAIT => {
                if !was_told {
                    tracing::warn!(%error, "the journal waits for a file descriptor: raise the limit of open files (ulimit -n, LimitNOFILE)");
                }
                was_told = true;
                thread::sleep(DESCRIPTOR_RETRY);
            }
            opened => return opened,
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let error = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(error, Some(Errno::MFILE | Errno::NFILE))
}

impl Disk for RealDisk {
    type File = File;

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.path(name))?.len())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        patiently(|| fs::read(self.path(name)))
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let (file, mut bytes) = (patiently(|| File::open(self.path(name)))?, vec![0; len]);
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let path = self.path(name);
        patiently(|| OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let path = self.path(name);
        patiently(|| OpenOptions::new().read(true).write(true).open(&path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        patiently(|| File::open(&self.dir))?.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        let figures = rustix::fs::statvfs(&self.dir)?;
        // Some FUSE file systems report no size at all.
        let known = figures.f_blocks > 0;
        Ok(if known { figures.f_bavail.saturating_mul(figures.f_frsize) } else { u64::MAX })
    }

    fn is_out_of_inodes(&self) -> bool {
        // File systems without a limit report no number at all.
        rustix::fs::statvfs(&self.dir).is_ok_and(|figures| figures.f_files > 0 && figures.f_favail == 0)
    }
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.sync_all()
    }

    /// After a failed sync Linux marks the pages as clean: they can be read, a new sync succeeds, and they
    /// are not on the disk. So a process that starts after such a failure must not trust the cache.
    fn settle(&mut self) -> io::Result<()> {
        self.sync_all()?;
        rustix::fs::fadvise(&*self, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }
}
