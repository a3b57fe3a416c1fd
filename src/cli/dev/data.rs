//! The playground's folder: for one playground at a time, always with the same number of datacenters.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

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
        "the playground in {} has {found} datacenters, {wanted} were asked for: go on with --dcs {found}, start \
         anew with --fresh (its locks are forgotten), or use another folder (--data DIR)",
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

impl DataDir {
    /// Locks the folder, creating it if needed, for a playground of `dcs` datacenters.
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
        let of_a_dc = text.strip_prefix("dc").is_some_and(|id| id.parse::<u8>().is_ok());
        if of_a_dc || matches!(&*text, "ca" | "tls" | "client") {
            let path = dir.join(&name);
            fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
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
        assert!(error.contains("has 3 datacenters, 5") && error.contains("--fresh"), "{error}");
        assert!(dir.join("dc0").exists());
        drop(DataDir::open(&dir, 5, Earlier::Forget).expect("starts anew"));
        assert!(!dir.join("dc0").exists() && dir.join("notes").exists());
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
