//! The file by which a data directory remembers that its server was evicted and will join again.
//!
//! ```text
//! evicted   `remember` writes the file, while the server still has its directory
//! stopped   `set_aside` moves all other files into `evicted-GENERATION`, and notes that in the file
//! joins     as any server with an empty directory; the file names the members to ask
//! admitted  there is a later generation in the directory, and `set_aside` removes the file
//! ```
//!
//! It is on disk before the first file is moved, so a server that is stopped anywhere continues at its next
//! start, and never takes the directory for a new one. Nothing of the old data is deleted: commits that no
//! other member has are only there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::durable_file::{self, FileFault};
use super::joined_file::{self, JoinedFileError};
use crate::journal::{JournalError, lock_directory};
use crate::membership::Generation;

const FILE: &str = "returning.json";
const FORMAT: u32 = 1;
const EVICTED: &str = "evicted-";
/// The file that the process locks stays: the lock is held while the others move.
const LOCK: &str = "lock";

/// The reason why a directory cannot be set aside. It is tried again at the next start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum ReturningError {
    #[error(transparent)]
    Joined(#[from] JoinedFileError),
    #[error(transparent)]
    Lock(#[from] JournalError),
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} does not say how this evicted server is to return ({reason}): move the data directory away, and start the \
         server with an empty one and --join",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
}

impl From<FileFault> for ReturningError {
    fn from(fault: FileFault) -> ReturningError {
        match fault {
            FileFault::Io { doing, path, source } => ReturningError::Io { doing, path, source },
            FileFault::Damaged { path, reason } => ReturningError::Damaged { path, reason },
        }
    }
}

/// An evicted server that is to join again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returning {
    format: u32,
    /// The generation that was evicted.
    generation: Generation,
    /// The addresses of the other members, to ask one after the other.
    pub members: Vec<String>,
    /// The old files are out of the way.
    is_set_aside: bool,
}

impl Returning {
    /// Returns the note of a server whose generation was evicted. `members`: the addresses of the others.
    pub fn new(generation: Generation, members: Vec<String>) -> Returning {
        Returning { format: FORMAT, generation, members, is_set_aside: false }
    }

    /// Writes the file durably. From then on the directory is that of a server that returns.
    pub fn remember(&self, dir: &Path) -> Result<(), ReturningError> {
        Ok(durable_file::write(dir, FILE, self)?)
    }
}

/// Returns true if the directory is that of a server that returns, or has returned.
pub fn is_returning(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Returns the note of a server that is to join again, with all old files out of the way. Moves them if that
/// was not done. `None` if the server was not evicted, or has joined again.
pub fn set_aside(dir: &Path) -> Result<Option<Returning>, ReturningError> {
    let Some(mut returning) = durable_file::read::<Returning>(dir, FILE)? else { return Ok(None) };
    if returning.format != FORMAT {
        let reason = format!("format {}, known here is {FORMAT}", returning.format);
        return Err(ReturningError::Damaged { path: dir.join(FILE), reason });
    }
    let _lock = lock_directory(dir)?;
    if returning.is_set_aside {
        let is_back = joined_file::read(dir)?.is_some_and(|now| now.generation > returning.generation);
        if is_back {
            let failed = |source| ReturningError::Io { doing: "remove", path: dir.join(FILE), source };
            fs::remove_file(dir.join(FILE)).map_err(failed)?;
            return Ok(None);
        }
        return Ok(Some(returning));
    }
    let aside = dir.join(format!("{EVICTED}{}", returning.generation.0));
    move_all(dir, &aside)?;
    returning.is_set_aside = true;
    returning.remember(dir)?;
    tracing::warn!(
        dir = %aside.display(),
        "the data of the evicted server is kept there; `geolock journal orphans` lists the commits that no other member has"
    );
    Ok(Some(returning))
}

fn move_all(dir: &Path, aside: &Path) -> Result<(), ReturningError> {
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| ReturningError::Io { doing, path, source }
    };
    match fs::create_dir(aside) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("create the directory", aside)(error));
        }
        _ => {}
    }
    for entry in fs::read_dir(dir).map_err(failed("list", dir))? {
        let name = entry.map_err(failed("list", dir))?.file_name();
        let stays = [LOCK, FILE].iter().any(|file| name == *file)
            || name == *durable_file::temporary(FILE)
            || name.to_string_lossy().starts_with(EVICTED);
        if !stays {
            let from = dir.join(&name);
            fs::rename(&from, aside.join(&name)).map_err(failed("move", &from))?;
        }
    }
    for synced in [aside, dir] {
        File::open(synced).and_then(|dir| dir.sync_all()).map_err(failed("sync the directory", synced))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries =
            fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("readable").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn evicted(files: &[&str]) -> (tempfile::TempDir, Returning) {
        let dir = tempfile::tempdir().expect("there is room");
        for file in files {
            fs::write(dir.path().join(file), file).expect("there is room");
        }
        let returning = Returning::new(Generation(3), vec!["fra:7401".into()]);
        returning.remember(dir.path()).expect("there is room");
        (dir, returning)
    }

    #[test]
    fn a_directory_that_was_not_evicted_stays_as_it_is() {
        let dir = tempfile::tempdir().expect("there is room");
        assert!(set_aside(dir.path()).expect("nothing is wrong").is_none());
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn all_files_are_moved_also_if_the_server_was_stopped_in_between() {
        let (dir, returning) = evicted(&["identity", "control.redb", "lock"]);
        let aside = dir.path().join("evicted-3");
        // It was stopped when one file had been moved.
        fs::create_dir(&aside).expect("there is room");
        fs::rename(dir.path().join("identity"), aside.join("identity")).expect("it is there");
        let known = set_aside(dir.path()).expect("nothing is wrong").expect("it returns");
        assert_eq!(known, Returning { is_set_aside: true, ..returning });
        assert_eq!(names(&aside), ["control.redb", "identity"]);
        assert_eq!(names(dir.path()), ["evicted-3", "lock", FILE]);
    }

    /// Its new identity is in the directory before it is admitted: a restart keeps that, and the old one.
    #[test]
    fn what_comes_after_is_not_moved() {
        let (dir, _) = evicted(&["control.redb"]);
        set_aside(dir.path()).expect("nothing is wrong");
        fs::write(dir.path().join("control.redb"), "new").expect("there is room");
        assert!(set_aside(dir.path()).expect("nothing is wrong").is_some());
        let content = |path: PathBuf| fs::read_to_string(path).expect("it is there");
        assert_eq!(content(dir.path().join("control.redb")), "new");
        assert_eq!(content(dir.path().join("evicted-3/control.redb")), "control.redb");
    }

    #[test]
    fn a_file_that_says_something_else_is_refused() {
        let (dir, _) = evicted(&["identity"]);
        fs::write(dir.path().join(FILE), r#"{"format":2,"generation":3,"members":[],"is_set_aside":false}"#)
            .expect("there is room");
        assert!(matches!(set_aside(dir.path()), Err(ReturningError::Damaged { .. })));
        fs::write(dir.path().join(FILE), "{").expect("there is room");
        assert!(matches!(set_aside(dir.path()), Err(ReturningError::Damaged { .. })));
        assert!(dir.path().join("identity").exists(), "nothing was changed");
    }
}
