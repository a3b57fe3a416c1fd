//! Errors of certificates on disk.

use std::io;
use std::path::PathBuf;

use super::identity::IdentityError;

/// The reason why certificates could not be created or used. Nothing was changed on disk, except where noted.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("{} is missing; `geolock ca issue --out {}` makes a folder with all it needs",
        file.display(), file.parent().unwrap_or(file).display())]
    Missing { file: PathBuf },
    #[error("{} is missing; `geolock ca init --dir {}` makes an authority",
        file.display(), file.parent().unwrap_or(file).display())]
    NoAuthority { file: PathBuf },
    #[error("{} already exists; to replace it, say so (--force)", file.display())]
    Exists { file: PathBuf },
    #[error("could not {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not PEM with a {expected} in it", file.display())]
    NotPem { file: PathBuf, expected: &'static str },
    #[error("{} holds no usable {expected}: {reason}", file.display())]
    Unusable { file: PathBuf, expected: &'static str, reason: String },
    #[error("{} is not the key of {}; issue both again", key.display(), certificate.display())]
    KeyMismatch { key: PathBuf, certificate: PathBuf },
    #[error("{} expired on {since}; issue a new one (geolock ca issue --force)", file.display())]
    Expired { file: PathBuf, since: String },
    #[error("{} is valid from {from} on; is this machine's clock right?", file.display())]
    NotYetValid { file: PathBuf, from: String },
    #[error("{} was not signed by {}: {reason}", certificate.display(), ca.display())]
    NotSigned { certificate: PathBuf, ca: PathBuf, reason: String },
    #[error("{} was revoked: it stands in {}; issue a new one (geolock ca issue --force)",
        certificate.display(), crl.display())]
    Revoked { certificate: PathBuf, crl: PathBuf },
    #[error("{}: {source}", file.display())]
    Identity { file: PathBuf, source: IdentityError },
    #[error("{} belongs to {found}; here it takes that of {needed}", file.display())]
    WrongIdentity { file: PathBuf, found: String, needed: String },
    #[error(transparent)]
    Label(#[from] IdentityError),
    #[error("{host:?} is neither an IP address nor a DNS name")]
    BadHost { host: String },
    #[error("a certificate for a datacenter needs at least one host name or address it is reached at")]
    NoHosts,
    #[error("could not make a certificate: {0}")]
    Making(#[from] rcgen::Error),
    #[error("these certificates give no TLS settings: {0}")]
    Tls(#[from] rustls::Error),
}
