//! Folders with certificates and keys: the names of the files, and writing them so that a crash leaves the
//! old set or the new one.
//!
//! The files are first written and synced in a staging folder beside the target. A target that does not exist
//! yet (or is empty) is then created by one rename. In a folder that already holds files, each file is
//! renamed separately, the certificate last; a crash in between leaves a pair that does not match. Loading
//! reports that, and issuing again repairs it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::error::PkiError;

/// The authority's certificate: in its own folder, and in the folder of every holder it signed.
pub const CA_FILE: &str = "ca.pem";
/// The authority's private key: only in its own folder.
pub const CA_KEY_FILE: &str = "ca-key.pem";
/// Certificates that the authority revoked before they expire: in its own folder, and in those of servers
/// that shall refuse them. Optional.
pub const CRL_FILE: &str = "crl.pem";
/// The holder's certificate.
pub const CERT_FILE: &str = "cert.pem";
/// The holder's private key.
pub const KEY_FILE: &str = "key.pem";

/// How to treat certificates and keys that already exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Replace,
}

/// A file to be written.
pub(super) struct NewFile<'a> {
    pub name: &'static str,
    pub content: &'a str,
    pub secret: Secrecy,
}

/// The readers of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// All users (mode 0644).
    Public,
    /// Only its owner (mode 0600).
    Owner,
}

impl Secrecy {
    fn mode(self) -> u32 {
        match self {
            Secrecy::Public => 0o644,
            Secrecy::Owner => 0o600,
        }
    }
}

/// Writes `files` into `dir`, creating it if need be. With [`Existing::Refuse`], none of them may exist.
pub(super) fn write_set(dir: &Path, files: &[NewFile<'_>], existing: Existing) -> Result<(), PkiError> {
    if existing == Existing::Refuse {
        refuse_existing(dir, files)?;
    }
    let parent = parent_of(dir);
    fs::create_dir_all(parent).map_err(failed("make", parent))?;
    let staging = staging_beside(dir);
    let outcome = stage(&staging, files).and_then(|()| move_in(&staging, dir, files));
    if outcome.is_err() {
        // The first error is reported; a staging folder left behind is harmless.
        let _ = fs::remove_dir_all(&staging);
    }
    outcome?;
    sync_dir(dir)?;
    sync_dir(parent)
}

/// Returns the text of an optional file.
pub(super) fn read_if_there(file: &Path) -> Result<Option<String>, PkiError> {
    match read(file, |file| PkiError::Missing { file }) {
        Ok(text) => Ok(Some(text)),
        Err(PkiError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the text of a file. `missing` makes the error for one that does not exist.
pub(super) fn read(file: &Path, missing: impl FnOnce(PathBuf) -> PkiError) -> Result<String, PkiError> {
    // Reading a named pipe would block until another process writes to it.
    let text = fs::metadata(file).and_then(|found| match found.is_file() || found.is_dir() {
        true => fs::read_to_string(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    });
    match text {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(file.into())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(PkiError::NotPem { file: file.into(), expected: "certificate or key" })
        }
        Err(error) => Err(failed("read", file)(error)),
    }
}

/// Returns the private key in the folder with its mode, if users besides its owner and its group may read it.
pub fn key_that_all_may_read(dir: &Path) -> Option<(PathBuf, u32)> {
    let key = dir.join(KEY_FILE);
    let mode = fs::metadata(&key).ok()?.permissions().mode() & 0o777;
    (mode & 0o004 != 0).then_some((key, mode))
}

fn refuse_existing(dir: &Path, files: &[NewFile<'_>]) -> Result<(), PkiError> {
    for file in files {
        let path = dir.join(file.name);
        if path.try_exists().map_err(failed("look at", &path))? {
            return Err(PkiError::Exists { file: path });
        }
    }
    Ok(())
}

/// Two processes that write the same folder must not share a staging folder.
fn staging_beside(dir: &Path) -> PathBuf {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    parent_of(dir).join(format!(".{name}.new-{}", std::process::id()))
}

fn parent_of(dir: &Path) -> &Path {
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn stage(staging: &Path, files: &[NewFile<'_>]) -> Result<(), PkiError> {
    match fs::remove_dir_all(staging) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("clear", staging)(error)),
        _ => {}
    }
    fs::create_dir(staging).map_err(failed("make", staging))?;
    for file in files {
        let path = staging.join(file.name);
        let written =
            OpenOptions::new().write(true).create_new(true).mode(file.secret.mode()).open(&path).and_then(
                |mut opened| opened.write_all(file.content.as_bytes()).and_then(|()| opened.sync_all()),
            );
        written.map_err(failed("write", &path))?;
    }
    sync_dir(staging)
}

fn move_in(staging: &Path, dir: &Path, files: &[NewFile<'_>]) -> Result<(), PkiError> {
    if fs::rename(staging, dir).is_ok() {
        return Ok(());
    }
    for file in files {
        let target = dir.join(file.name);
        fs::rename(staging.join(file.name), &target).map_err(failed("write", &target))?;
    }
    fs::remove_dir(staging).map_err(failed("remove", staging))
}

fn sync_dir(dir: &Path) -> Result<(), PkiError> {
    File::open(dir).and_then(|opened| opened.sync_all()).map_err(failed("sync", dir))
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> PkiError + use<'a> {
    move |source| PkiError::Io { action, path: path.into(), source }
}
