//! The playground's folder: for one playground at a time, always with the same founders.
//!
//! `dc0`, `dc1`, ... are the data directories. That of a datacenter that has left or was evicted is renamed,
//! to `dc2.left-1` or `dc2.evicted-1`. So the names of the directories say which datacenters there are, and
//! one that returns begins with an empty directory.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::server::members::is_joined;
use geolock_api::names::{DcId, MAX_DCS};

/// Locked while a playground runs in the folder.
#[derive(Debug)]
pub(in crate::cli) struct DataDir {
    _lock: File,
}

/// The action for an earlier playground in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    Continue,
    Forget,
}

/// The reason why a folder cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DataError {
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "another playground runs in {}: stop it, or give this one a folder and ports of its own \
         (--data DIR --base-port PORT)",
        .0.display()
    )]
    InUse(PathBuf),
    #[error(
        "{found} datacenters founded the playground in {}, {wanted} were asked for: leave out --dcs and use \
         `geolock dev add`, start anew with --fresh (its locks are forgotten), or use another folder (--data DIR)",
        dir.display()
    )]
    OtherShape { dir: PathBuf, found: String, wanted: u8 },
    #[error(
        "{} holds other things than a playground: name an empty or a new folder (--data DIR)",
        .0.display()
    )]
    NotOurs(PathBuf),
}

/// A file that marks the folder as a playground's, with its number of datacenters.
const SHAPE: &str = "playground";
const FIRST_LINE: &str = "geolock playground, format 1";
const LOCK: &str = "lock";

/// The part of a datacenter in the playground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Founder,
    /// It has joined.
    Joined,
    /// It was about to join.
    Joins,
}

/// The way in which a datacenter ceased to be a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Evicted,
}

impl End {
    const ALL: [End; 2] = [End::Left, End::Evicted];

    pub(super) fn word(self) -> &'static str {
        match self {
            End::Left => "left",
            End::Evicted => "evicted",
        }
    }
}

/// Returns the number of datacenters with which the playground in the folder began, if there is one.
pub(super) fn founders(dir: &Path) -> Option<u8> {
    number_of_dcs(&fs::read_to_string(dir.join(SHAPE)).ok()?)?.parse().ok()
}

/// Returns the datacenters of the playground that began with so many. A folder that does not exist yet has
/// the founders.
pub(super) fn places(dir: &Path, founders: u8) -> Vec<(DcId, Place)> {
    let ids = (0..MAX_DCS).filter_map(|id| DcId::new(u8::try_from(id).ok()?));
    ids.filter_map(|dc| Some((dc, place(dir, founders, dc)?))).collect()
}

fn place(dir: &Path, founders: u8, dc: DcId) -> Option<Place> {
    let own = dir.join(dc.to_string());
    match own.is_dir() {
        true if is_joined(&own) => Some(Place::Joined),
        _ if dc.get() < founders && !has_ended(dir, dc) => Some(Place::Founder),
        true => Some(Place::Joins),
        false => None,
    }
}

fn has_ended(dir: &Path, dc: DcId) -> bool {
    End::ALL.into_iter().any(|end| aside(dir, dc, end, 1).exists())
}

fn aside(dir: &Path, dc: DcId, end: End, number: u32) -> PathBuf {
    dir.join(format!("{dc}.{}-{number}", end.word()))
}

/// Renames the data directory of a datacenter that is no member any more. Returns the new name; `None` if
/// there is no directory.
pub(super) fn set_aside(dir: &Path, dc: DcId, end: End) -> io::Result<Option<PathBuf>> {
    let own = dir.join(dc.to_string());
    if !own.is_dir() {
        return Ok(None);
    }
    let mut names = (1..).map(|number| aside(dir, dc, end, number));
    let free = names.find(|name| !name.exists()).expect("a disk has fewer folders than there are numbers");
    fs::rename(own, &free)?;
    Ok(Some(free))
}

impl DataDir {
    /// Locks the folder, creating it if needed, for a playground that began with `dcs` datacenters.
    pub(super) fn open(dir: &Path, dcs: u8, earlier: Earlier) -> Result<DataDir, DataError> {
        fs::create_dir_all(dir).map_err(failed("make", dir))?;
        let shape = dir.join(SHAPE);
        let found = match fs::read_to_string(&shape) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read", &shape)(error)),
        };
        if found.is_none() && !is_empty(dir)? {
            return Err(DataError::NotOurs(dir.to_owned()));
        }
        let lock = lock(dir)?;
        match found {
            Some(_) if earlier == Earlier::Forget => forget(dir)?,
            Some(text) if text == render(dcs) => return Ok(DataDir { _lock: lock }),
            Some(text) => {
                let (dir, found) =
                    (dir.to_owned(), number_of_dcs(&text).unwrap_or("another number of").into());
                return Err(DataError::OtherShape { dir, found, wanted: dcs });
            }
            None => {}
        }
        fs::write(&shape, render(dcs)).map_err(failed("write", &shape))?;
        Ok(DataDir { _lock: lock })
    }
}

fn lock(dir: &Path) -> Result<File, DataError> {
    let path = dir.join(LOCK);
    let file = File::create(&path).map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataError::InUse(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
    }
}

/// Returns true if the folder is empty, except for a lock file of an earlier attempt.
fn is_empty(dir: &Path) -> Result<bool, DataError> {
    for entry in fs::read_dir(dir).map_err(failed("list", dir))? {
        if entry.map_err(failed("list", dir))?.file_name() != LOCK {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the files of a playground, and nothing else. The marker file goes last: until then the removal can
/// be repeated.
fn forget(dir: &Path) -> Result<(), DataError> {
    for entry in fs::read_dir(dir).map_err(failed("list", dir))? {
        let name = entry.map_err(failed("list", dir))?.file_name();
        let text = name.to_string_lossy();
        if is_of_dc(&text) || matches!(&*text, "ca" | "tls" | "client") {
            let path = dir.join(&name);
            fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
}

/// Returns true for `dc2`, `dc2.left-1` and the like.
fn is_of_dc(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("dc") else { return false };
    let (id, end) = rest.split_once('.').unwrap_or((rest, ""));
    let is_end = End::ALL.into_iter().any(|it| end.starts_with(it.word()));
    id.parse::<u8>().is_ok() && (is_end || end.is_empty())
}

fn render(dcs: u8) -> String {
    format!("{FIRST_LINE}\ndatacenters {dcs}\n")
}

fn number_of_dcs(text: &str) -> Option<&str> {
    text.lines().nth(1)?.strip_prefix("datacenters ")
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DataError + use<'a> {
    move |source| DataError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playground_keeps_its_shape_unless_it_is_forgotten() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let dir = temp.path().join("a/b");
        drop(DataDir::open(&dir, 3, Earlier::Continue).expect("a new folder"));
        fs::create_dir(dir.join("dc0")).expect("it is writable");
        fs::write(dir.join("notes"), "mine").expect("it is writable");
        drop(DataDir::open(&dir, 3, Earlier::Continue).expect("the same shape"));
        let error = DataDir::open(&dir, 5, Earlier::Continue).expect_err("another shape").to_string();
        assert!(error.starts_with("3 datacenters founded") && error.contains("--fresh"), "{error}");
        assert!(dir.join("dc0").exists());
        drop(DataDir::open(&dir, 5, Earlier::Forget).expect("starts anew"));
        assert!(!dir.join("dc0").exists() && dir.join("notes").exists());
    }

    #[test]
    fn directories_say_which_datacenters_there_are() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let (dir, dc) = (temp.path(), |id| DcId::new(id).expect("small"));
        let founders = [(dc(0), Place::Founder), (dc(1), Place::Founder)];
        assert_eq!((places(dir, 2), super::founders(dir)), (founders.to_vec(), None));
        let data = DataDir::open(dir, 2, Earlier::Continue).expect("a new folder");
        assert_eq!(super::founders(dir), Some(2));
        for name in ["dc0", "dc1", "dc3"] {
            fs::create_dir(dir.join(name)).expect("it is writable");
        }
        assert_eq!(places(dir, 2), [founders[0], founders[1], (dc(3), Place::Joins)]);

        let moved = set_aside(dir, dc(1), End::Left).expect("it is writable");
        assert_eq!(moved, Some(dir.join("dc1.left-1")));
        assert_eq!(set_aside(dir, dc(1), End::Left).expect("there is nothing to do"), None);
        assert_eq!(places(dir, 2), [founders[0], (dc(3), Place::Joins)]);
        fs::create_dir(dir.join("dc1")).expect("it is writable");
        assert_eq!(places(dir, 2)[1], (dc(1), Place::Joins), "it returns");
        assert!(
            set_aside(dir, dc(1), End::Left)
                .expect("it is writable")
                .is_some_and(|dir| dir.ends_with("dc1.left-2"))
        );
        set_aside(dir, dc(3), End::Evicted).expect("it is writable");
        drop(data);
        drop(DataDir::open(dir, 1, Earlier::Forget).expect("starts anew"));
        assert!(
            ["dc0", "dc1.left-1", "dc1.left-2", "dc3.evicted-1"].iter().all(|name| !dir.join(name).exists())
        );
    }

    #[test]
    fn a_folder_of_others_is_left_alone() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(temp.path().join("ca")).expect("it is writable");
        for earlier in [Earlier::Continue, Earlier::Forget] {
            assert!(matches!(DataDir::open(temp.path(), 3, earlier), Err(DataError::NotOurs(_))));
        }
        assert!(temp.path().join("ca").exists());
    }

    #[test]
    fn one_playground_at_a_time() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let _running = DataDir::open(temp.path(), 3, Earlier::Continue).expect("an empty folder");
        for earlier in [Earlier::Continue, Earlier::Forget] {
            assert!(matches!(DataDir::open(temp.path(), 3, earlier), Err(DataError::InUse(_))));
        }
    }
}
