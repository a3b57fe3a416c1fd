//! The only file that knows bincode: how messages and records become bytes.
//!
//! Nothing here allocates what a length from outside says before it is checked, and nothing may follow a
//! value. Enum variants are encoded by position, so wire and disk enums are append only; golden bytes in the
//! tests hold them. The first byte of every stream and segment is a format version (kept by the rooms that
//! own streams and segments), so the codec itself can be replaced.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest frame on a link, and largest record in a journal, in bytes.
pub const MAX_FRAME: usize = 8 << 20;
/// Largest checkpoint, in bytes: some 20 million locks that ever moved.
pub const MAX_CHECKPOINT: usize = 2 << 30;

/// Bytes that are not what they should be. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct WireError {
    /// What was being encoded or decoded.
    pub what: &'static str,
    pub reason: String,
}

const fn config<const LIMIT: usize>() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<LIMIT>()
}

/// The bytes of a value that fits a frame.
pub fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, WireError> {
    encode_limited::<T, MAX_FRAME>(what, value)
}

/// A value from exactly these bytes, at most a frame of them.
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, WireError> {
    decode_limited::<T, MAX_FRAME>(what, bytes)
}

/// As [`encode`], for checkpoints.
pub fn encode_checkpoint<T: Serialize>(value: &T) -> Result<Vec<u8>, WireError> {
    encode_limited::<T, MAX_CHECKPOINT>("checkpoint", value)
}

/// As [`decode`], for checkpoints.
pub fn decode_checkpoint<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    decode_limited::<T, MAX_CHECKPOINT>("checkpoint", bytes)
}

fn encode_limited<T: Serialize, const LIMIT: usize>(
    what: &'static str,
    value: &T,
) -> Result<Vec<u8>, WireError> {
    let bytes = bincode::serde::encode_to_vec(value, config::<LIMIT>())
        .map_err(|error| WireError { what, reason: error.to_string() })?;
    if bytes.len() > LIMIT {
        return Err(WireError { what, reason: format!("{} bytes, the limit is {LIMIT}", bytes.len()) });
    }
    Ok(bytes)
}

fn decode_limited<T: DeserializeOwned, const LIMIT: usize>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, WireError> {
    if bytes.len() > LIMIT {
        return Err(WireError { what, reason: format!("{} bytes, the limit is {LIMIT}", bytes.len()) });
    }
    let (value, used) = bincode::serde::decode_from_slice(bytes, config::<LIMIT>())
        .map_err(|error| WireError { what, reason: error.to_string() })?;
    if used != bytes.len() {
        return Err(WireError { what, reason: format!("{} bytes follow it", bytes.len() - used) });
    }
    Ok(value)
}
