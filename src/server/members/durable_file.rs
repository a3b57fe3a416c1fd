//! Small files of a data directory, in JSON: written durably or not at all, and never read if they are long.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A file larger than this is none of these; it is not read.
const MAX_BYTES: u64 = 64 << 10;

/// The reason why a file cannot be read or written.
#[derive(Debug)]
pub(super) enum FileFault {
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    Damaged { path: PathBuf, reason: String },
}

/// Returns the name under which a file is written, before it gets its own.
pub(super) fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}

/// Reads a file of a directory, if there is one.
pub(super) fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, FileFault> {
    let path = dir.join(name);
    let failed = |source| FileFault::Io { doing: "read", path: path.clone(), source };
    let damaged = |reason| FileFault::Damaged { path: path.clone(), reason };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(file) if file.len() > MAX_BYTES => return Err(damaged("it is too long".into())),
        Ok(_) => {}
    }
    let text = fs::read(&path).map_err(failed)?;
    serde_json::from_slice(&text).map(Some).map_err(|error| damaged(error.to_string()))
}

/// Writes a file durably, in a directory that exists.
pub(super) fn write(dir: &Path, name: &str, content: &impl Serialize) -> Result<(), FileFault> {
    let text = serde_json::to_vec_pretty(content).expect("it is made of numbers and texts");
    let (temp, path) = (dir.join(temporary(name)), dir.join(name));
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| FileFault::Io { doing, path, source }
    };
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&temp);
    let mut file = file.map_err(failed("create", &temp))?;
    file.write_all(&text).map_err(failed("write", &temp))?;
    file.sync_all().map_err(failed("sync", &temp))?;
    fs::rename(&temp, &path).map_err(failed("rename", &temp))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync the directory", dir))
}
