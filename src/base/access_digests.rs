//! Digests of the files that say which clients may do what.

use serde::{Deserialize, Serialize};

/// Digests of what a server's files mean (SHA-256): equal if they mean the same, in whatever order they have
/// it. `None` without the file. Wire type.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccessDigests {
    /// Of the rules (`api.acl`).
    pub rules: Option<[u8; 32]>,
    /// Of the tokens (`api.tokens`).
    pub tokens: Option<[u8; 32]>,
}
