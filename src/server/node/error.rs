//! Errors of a server's start and end, and their remedies.

use std::io;
use std::net::SocketAddr;

use crate::control::StoreError;
use crate::interdc::{InterdcError, JoinCallError};
use crate::journal::JournalError;
use crate::lock_server::{StartError, StopError};
use crate::membership::TextError;
use crate::pki::PkiError;
use crate::server::api::ServeError;
use crate::server::config::ConfigError;
use crate::server::members::{JoinError, JoinedFileError, ReturningError};
use crate::server::reload::ReloadError;

/// The remedy after a server could not start, or ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The reason passes without an operator: start the server again, as often as it takes.
    Wait,
    /// Every further start fails until an operator has changed something.
    Change,
    /// Room on the disk.
    Room,
    /// Another start may succeed, as after a failed sync.
    Retry,
}

/// The reason why a server did not start, or did not end properly.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(
        "cannot listen on {address} ({port}): {source}. If another server has that port, stop it or choose another"
    )]
    Listen { port: Port, address: SocketAddr, source: io::Error },
    /// Certificates, rules or tokens.
    #[error(transparent)]
    Files(#[from] ReloadError),
    #[error("the operating system gives no random bytes")]
    NoRandomness,
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Joined(#[from] JoinedFileError),
    #[error(transparent)]
    Returning(#[from] ReturningError),
    #[error(transparent)]
    Text(#[from] TextError),
    /// It has stopped, or was not started.
    #[error(
        "{by} takes this server for a member of its cluster and is not known here: the data directory was lost, or is an old \
         copy, and locks that are granted here may be held elsewhere. Restore its latest copy. If instead the configuration of \
         {by} was wrong, correct it and remove {}",
        file.display()
    )]
    LostHistory { by: String, file: std::path::PathBuf },
    #[error(
        "data directory {} is that of {found}, this server is {configured}: correct the data directory, or the \
         certificate and the configuration",
        dir.display()
    )]
    OtherMember { dir: std::path::PathBuf, found: String, configured: String },
    #[error(
        "data directory {} is that of {}: run `geolock {}`", dir.display(),
        if *is_witness { "a witness" } else { "a member" }, if *is_witness { "witness" } else { "server" }
    )]
    OtherCommand { dir: std::path::PathBuf, is_witness: bool },
    #[error("a witness joins a cluster that runs: give it the address of a member with --join")]
    NoJoin,
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Stop(#[from] StopError),
    #[error(transparent)]
    Api(#[from] ServeError),
}

/// The purpose of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    Client,
    Quic,
    Http,
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Port::Client => "TCP, for clients",
            Port::Quic => "UDP, for other datacenters",
            Port::Http => "TCP, for metrics and probes",
        })
    }
}

impl NodeError {
    /// Returns the remedy.
    pub fn remedy(&self) -> Remedy {
        match self {
            NodeError::Listen { source, .. } => of_listening(source),
            NodeError::Files(ReloadError::Certificate { source, .. }) => of_certificates(source),
            NodeError::NoRandomness => Remedy::Wait,
            NodeError::Join(error) => of_joining(error),
            NodeError::Returning(ReturningError::Lock(error))
            | NodeError::Start(StartError::Journal(error))
            | NodeError::Stop(StopError::Journal(error)) => of_journal(error),
            NodeError::Returning(ReturningError::Io { .. })
            | NodeError::Joined(JoinedFileError::Io { .. })
            | NodeError::Start(StartError::Thread(_) | StartError::Links(InterdcError::Setup(_)))
            | NodeError::Stop(_)
            | NodeError::Api(_) => Remedy::Retry,
            NodeError::Files(_)
            | NodeError::Joined(_)
            | NodeError::Returning(_)
            | NodeError::Text(_)
            | NodeError::LostHistory { .. }
            | NodeError::OtherMember { .. }
            | NodeError::OtherCommand { .. }
            | NodeError::NoJoin
            | NodeError::Start(_) => Remedy::Change,
        }
    }
}

impl ConfigError {
    /// Returns the remedy.
    pub fn remedy(&self) -> Remedy {
        match self {
            ConfigError::Certificate { source, .. } => of_certificates(source),
            _ => Remedy::Change,
        }
    }
}

/// An address appears with its interface, and a port is free when the process before has ended. Only a
/// privileged port stays refused.
fn of_listening(error: &io::Error) -> Remedy {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => Remedy::Change,
        _ => Remedy::Wait,
    }
}

/// A certificate that is not valid yet becomes valid: at boot, a clock without a battery begins in 1970.
fn of_certificates(error: &PkiError) -> Remedy {
    match error {
        PkiError::NotYetValid { .. } => Remedy::Wait,
        _ => Remedy::Change,
    }
}

fn of_joining(error: &JoinError) -> Remedy {
    match error {
        JoinError::Call(
            JoinCallError::Unreachable { .. }
            | JoinCallError::TimedOut { .. }
            | JoinCallError::Refused { .. },
        )
        | JoinError::Store(StoreError::InUse { .. }) => Remedy::Wait,
        JoinError::Store(StoreError::Io(_)) | JoinError::File(JoinedFileError::Io { .. }) => Remedy::Retry,
        _ => Remedy::Change,
    }
}

fn of_journal(error: &JournalError) -> Remedy {
    match error {
        JournalError::AlreadyInUse { .. } | JournalError::InUse { .. } => Remedy::Wait,
        JournalError::NoRoom { .. } => Remedy::Room,
        JournalError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
        {
            Remedy::Room
        }
        JournalError::Io { .. } | JournalError::Stopped => Remedy::Retry,
        _ => Remedy::Change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_pass_and_reasons_that_stay_are_told_apart() {
        let listen = |kind: io::ErrorKind| NodeError::Listen {
            port: Port::Quic,
            address: SocketAddr::from(([10, 0, 0, 1], 7401)),
            source: kind.into(),
        };
        let certificate = |source| NodeError::Files(ReloadError::Certificate { name: "tls.dc", source });
        let file = std::path::PathBuf::from("cert.pem");
        let journal = |error| NodeError::Start(StartError::Journal(error));
        for (error, remedy) in [
            (listen(io::ErrorKind::AddrNotAvailable), Remedy::Wait),
            (listen(io::ErrorKind::AddrInUse), Remedy::Wait),
            (listen(io::ErrorKind::PermissionDenied), Remedy::Change),
            (certificate(PkiError::NotYetValid { file: file.clone(), from: String::new() }), Remedy::Wait),
            (certificate(PkiError::Missing { file: file.clone() }), Remedy::Change),
            (journal(JournalError::AlreadyInUse { dir: file.clone() }), Remedy::Wait),
            (journal(JournalError::NoRoom { lacking: "room", path: file.clone() }), Remedy::Room),
            (journal(JournalError::Stopped), Remedy::Retry),
            (journal(JournalError::NoData { dir: file }), Remedy::Change),
        ] {
            assert_eq!(error.remedy(), remedy, "{error}");
        }
    }
}
