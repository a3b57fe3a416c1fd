//! Errors of a data directory, and how to resolve them.

use std::fmt;
use std::io;
use std::path::PathBuf;

use geolock_api::names::{ClusterId, DcId};

/// The owner of the data in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub cluster: ClusterId,
    pub dc: DcId,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of cluster {}", self.dc, self.cluster)
    }
}

/// The reason why a journal cannot be opened, or stopped. A refusal to open changes nothing on disk.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "there is no {lacking} on the disk for {}: make some. Nothing that was acknowledged is lost; what nobody was told of \
         yet is not kept",
        path.display()
    )]
    NoRoom { lacking: &'static str, path: PathBuf },
    #[error(
        "data directory {} belongs to user {owner}, this server runs as user {user}: run it as that user, or give it a \
         directory of its own",
        dir.display()
    )]
    WrongOwner { dir: PathBuf, owner: u32, user: u32 },
    #[error(
        "data directory {} is in use by another geolock server: stop that one, or give this one a \
         directory of its own",
        dir.display()
    )]
    AlreadyInUse { dir: PathBuf },
    #[error("data directory {} is in use by a geolock server: stop it first", dir.display())]
    InUse { dir: PathBuf },
    #[error(
        "{} is not the data directory of a geolock server: it has no file `identity`",
        dir.display()
    )]
    NoData { dir: PathBuf },
    #[error(
        "data directory {} belongs to {found}, this server is {expected}: correct the cluster name, the \
         datacenter or the data directory in the configuration",
        dir.display()
    )]
    WrongIdentity { dir: PathBuf, found: Identity, expected: Identity },
    #[error(
        "{} has format version {found}, this release reads version {known}: start the release that wrote it, or a later one; the files were not changed",
        path.display()
    )]
    UnknownVersion { path: PathBuf, found: u8, known: u8 },
    #[error(
        "{} is damaged at byte {offset}: {what}. What was durable may be lost, so the server does not start on \
         it: check the disk, keep a copy of the directory, restore a backup of it; the server then fetches \
         from its peers what the backup lacks",
        path.display()
    )]
    Damaged { path: PathBuf, offset: u64, what: String },
    #[error(
        "records from position {from} on are missing in {}: files were removed from it. Put them back, or \
         restore a backup of the whole directory",
        dir.display()
    )]
    Missing { dir: PathBuf, from: u64 },
    #[error("the journal stopped after an earlier error: records that were not reported durable may be lost")]
    Stopped,
}
