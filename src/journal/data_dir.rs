//! The identity of a data directory, and its lock: only one server uses it.
//!
//! The identity file is written last, when the first segment is durable. So a directory that has one had a
//! segment once, and if it has no segment now, the segment was lost.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::process::{getegid, geteuid, getgroups};

use geolock_api::names::{ClusterId, DcId};

use super::disk::{Context, Disk, DiskFile, no_room};
use super::error::{Identity, JournalError};
use super::writer::{Tried, create_file, put};

pub(super) const IDENTITY: &str = "identity";
pub(super) const IDENTITY_TEMP: &str = "identity.tmp";
/// An empty file that an operator puts into a copy of a directory. The server that starts from it gets this
/// flag until it has recorded it durably (`docs/algorithm/recovery.md#4-doubted-datacenters`).
pub(super) const RESTORED: &str = "restored";
/// An empty file that an operator puts into the directory to be kept when there are two histories
/// (`docs/algorithm/recovery.md#6-two-histories`).
pub(super) const RESOLVED: &str = "keep-history";
const LOCK: &str = "lock";
const FIRST_LINE: &str = "geolock data directory, format ";
const VERSION: u8 = 1;
/// A file larger than this is not an identity file; it is not read.
const MAX_IDENTITY: u64 = 4096;

/// Creates the directory if need be and takes its lock, which lasts as long as the file is open. The lock
/// file is never removed: two servers could then lock two files of that name.
pub fn own(dir: &Path) -> Result<File, JournalError> {
    create(dir)?;
    check_owner(dir)?;
    let path = dir.join(LOCK);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|source| JournalError::Io { doing: "open", path: path.clone(), source })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(JournalError::AlreadyInUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(JournalError::Io { doing: "lock", path, source }),
    }
}

/// Refuses a directory of another user: files of two users in one directory end with neither being able to
/// use it.
fn check_owner(dir: &Path) -> Result<(), JournalError> {
    let failed = |source| JournalError::Io { doing: "look at", path: dir.to_owned(), source };
    let (found, user) = (dir.metadata().map_err(failed)?, geteuid().as_raw());
    let is_in = |group| {
        getegid().as_raw() == group || getgroups().is_ok_and(|of| of.iter().any(|g| g.as_raw() == group))
    };
    match found.uid() == user || is_lent(found.uid(), found.mode(), is_in(found.gid())) {
        true => Ok(()),
        false => Err(JournalError::WrongOwner { dir: dir.to_owned(), owner: found.uid(), user }),
    }
}

/// Returns true if root has made the directory for a group that this process belongs to, as Kubernetes does
/// with `fsGroup`: the group may do everything in it, and no others may write.
fn is_lent(owner: u32, mode: u32, is_in_group: bool) -> bool {
    owner == 0 && is_in_group && mode & 0o072 == 0o070
}

/// Creates the directory and those above it, durably, for their owner only.
fn create(dir: &Path) -> Result<(), JournalError> {
    let failed = |doing, path: &Path, source| JournalError::Io { doing, path: path.to_owned(), source };
    let parent =
        dir.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let Some(parent) = parent else { return Ok(()) };
    if !dir.exists() {
        if !parent.exists() {
            create(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("create the directory", dir, error));
            }
            _ => {}
        }
    }
    // Also for a directory that exists: its creator may have crashed before the parent was synced.
    match File::open(parent).and_then(|parent| parent.sync_all()) {
        // Created by a user with the right to write there, which this process lacks.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|source| failed("sync the directory", parent, source)),
    }
}

/// Returns true if the directory is marked as a copy.
pub(super) fn is_restored<D: Disk>(disk: &D) -> Result<bool, JournalError> {
    exists(disk, RESTORED)
}

/// Returns true if an operator decided to keep the history of this directory.
pub(super) fn is_resolved<D: Disk>(disk: &D) -> Result<bool, JournalError> {
    exists(disk, RESOLVED)
}

fn exists<D: Disk>(disk: &D, name: &str) -> Result<bool, JournalError> {
    Ok(disk.names().doing("list", disk, "")?.iter().any(|other| other == name))
}

/// Removes a mark that is not needed any more.
pub(super) fn forget<D: Disk>(disk: &D, mark: &str) -> Result<(), JournalError> {
    match disk.remove(mark) {
        // It was removed concurrently.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.doing("remove", disk, mark)?,
    }
    disk.sync_dir().doing("sync the directory", disk, "")
}

/// Returns true if a journal was begun in this directory.
pub fn is_begun(dir: &Path) -> bool {
    dir.join(IDENTITY).exists()
}

/// Returns true if an operator has marked this directory as a restored copy, and no server has recorded that.
pub fn is_restored_copy(dir: &Path) -> bool {
    dir.join(RESTORED).exists()
}

/// Tells if a directory names its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// It belongs to the expected datacenter.
    Ours,
    /// No identity file: no record was ever reported durable in it, or the file was removed.
    Unknown,
}

pub(super) fn check_identity<D: Disk>(disk: &D, expected: Identity) -> Result<Known, JournalError> {
    match read_identity(disk)? {
        None => Ok(Known::Unknown),
        Some(found) if found == expected => Ok(Known::Ours),
        Some(found) => Err(JournalError::WrongIdentity { dir: disk.path(""), found, expected }),
    }
}

/// Returns the owner of the directory, if it has an identity file.
pub(super) fn read_identity<D: Disk>(disk: &D) -> Result<Option<Identity>, JournalError> {
    if !exists(disk, IDENTITY)? {
        return Ok(None);
    }
    let damaged =
        |what: &str| JournalError::Damaged { path: disk.path(IDENTITY), offset: 0, what: what.into() };
    if disk.size(IDENTITY).doing("read", disk, IDENTITY)? > MAX_IDENTITY {
        return Err(damaged("no identity file is that long"));
    }
    let bytes = disk.read(IDENTITY).doing("read", disk, IDENTITY)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged("not text"))?;
    let version = text.lines().next().and_then(|line| line.strip_prefix(FIRST_LINE)?.parse().ok());
    if let Some(found) = version.filter(|found| *found > VERSION) {
        return Err(JournalError::UnknownVersion { path: disk.path(IDENTITY), found, known: VERSION });
    }
    parse(text).ok_or_else(|| damaged("it is not an identity file")).map(Some)
}

/// Takes a share of the lock of a directory that is only read, so no server uses it meanwhile. `None` if no
/// server has ever locked it under this path.
pub(super) fn share(dir: &Path) -> Result<Option<File>, JournalError> {
    let path = dir.join(LOCK);
    let lock = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|source| JournalError::Io { doing: "open", path: path.clone(), source })?,
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Err(JournalError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(JournalError::Io { doing: "lock", path, source }),
    }
}

pub(super) fn write_identity<D: Disk>(disk: &D, identity: Identity) -> Result<(), JournalError> {
    let no_room = || no_room(disk, IDENTITY);
    let mut file = create_file(disk, IDENTITY_TEMP)?.ok_or_else(no_room)?;
    if put(disk, IDENTITY_TEMP, &mut file, 0, render(identity).as_bytes())? == Tried::NoRoom {
        return Err(no_room());
    }
    file.sync().doing("sync", disk, IDENTITY_TEMP)?;
    disk.rename(IDENTITY_TEMP, IDENTITY).doing("rename", disk, IDENTITY_TEMP)?;
    disk.sync_dir().doing("sync the directory", disk, "")
}

fn render(identity: Identity) -> String {
    format!("{FIRST_LINE}{VERSION}\ncluster {}\ndc {}\n", identity.cluster, identity.dc.get())
}

/// Accepts exactly the output of [`render`].
fn parse(text: &str) -> Option<Identity> {
    let mut lines = text.lines();
    let (_, cluster, dc) = (lines.next()?, lines.next()?, lines.next()?);
    let cluster = u64::from_str_radix(cluster.strip_prefix("cluster ")?, 16).ok()?;
    let dc = DcId::new(dc.strip_prefix("dc ")?.parse().ok()?)?;
    let identity = Identity { cluster: ClusterId::from_raw(cluster), dc };
    (render(identity) == text).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::is_lent;

    #[test]
    fn a_directory_of_root_may_be_lent_to_a_group_and_to_nobody_else() {
        let ours = [(0, 0o2770, true), (0, 0o2775, true), (0, 0o770, true)];
        assert!(ours.into_iter().all(|(owner, mode, is_in)| is_lent(owner, mode, is_in)));
        let others = [(0, 0o770, false), (0, 0o777, true), (0, 0o750, true), (1_000, 0o770, true)];
        assert!(!others.into_iter().any(|(owner, mode, is_in)| is_lent(owner, mode, is_in)));
    }
}
