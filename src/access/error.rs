//! What can be wrong with a file of tokens or rules.

use std::io;
use std::path::PathBuf;

/// Why a file is not used. What was used before goes on.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("{key}: cannot read {}: {source}", path.display())]
    Read { key: &'static str, path: PathBuf, source: io::Error },
    #[error("{key}: {}, line {line}: {what}", path.display())]
    Line { key: &'static str, path: PathBuf, line: usize, what: String },
    #[error("{key}: {}: {what}", path.display())]
    File { key: &'static str, path: PathBuf, what: String },
}
