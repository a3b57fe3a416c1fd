//! Errors of a configuration, and their places.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::renamed::NewNames;
use crate::pki::PkiError;

/// The reason why a configuration is refused. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Not TOML, an unknown key, or a value of another type; `source` names line and key.
    #[error("{}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: {names}", path.display())]
    Renamed { path: PathBuf, names: NewNames },
    #[error("the environment: {0}")]
    RenamedVariables(NewNames),
    #[error("{place}: {key} is missing: {what}")]
    Missing { place: Place, key: &'static str, what: &'static str },
    /// A server that joins takes its cluster and its id from its certificate.
    #[error("{place}: {key}: {source}")]
    Certificate { place: Place, key: &'static str, source: PkiError },
    #[error("{place}: {key} = {value}: {allowed}")]
    Invalid {
        place: Place,
        key: &'static str,
        value: String,
        /// The allowed values.
        allowed: String,
    },
}

/// The place where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    File(PathBuf),
    /// In a flag or an environment variable; this key names both.
    Flag(&'static str),
    /// Nowhere, and there is no file.
    NoFile,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => write!(f, "{}", path.display()),
            Place::Flag(key) => write!(f, "{} or {}", flag_of(key), variable_of(key)),
            Place::NoFile => f.write_str("no --config, no flag"),
        }
    }
}

/// Returns the flag of a key.
pub(super) fn flag_of(key: &str) -> String {
    format!("--{}", key.replace(['.', '_'], "-"))
}

/// Returns the environment variable of a key.
pub(super) fn variable_of(key: &str) -> String {
    format!("GEOLOCK_{}", key.replace('.', "_").to_uppercase())
}
