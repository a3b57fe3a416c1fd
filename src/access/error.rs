//! Errors in a file of tokens or rules.

use std::io;
use std::path::PathBuf;

/// The reason why a file is not used. The previous content stays in force.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("{key}: cannot read {}: {source}", path.display())]
    Read { key: &'static str, path: PathBuf, source: io::Error },
    #[error("{key}: {}, line {line}: {what}", path.display())]
    Line { key: &'static str, path: PathBuf, line: usize, what: String },
    #[error("{key}: {}: {what}", path.display())]
    File { key: &'static str, path: PathBuf, what: String },
}
