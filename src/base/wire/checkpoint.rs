//! The bytes of checkpoints, of this version and earlier ones.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CONFIG, MAX_CHECKPOINT, WireError, decode_limited};

/// The beginning of a checkpoint of version 2. One of version 1 begins with a number, and no number begins
/// like this.
const CHECKPOINT_V2: [u8; 2] = [0xff, 2];
/// The beginning of a checkpoint of version 3: as version 2, with a second value behind it.
const CHECKPOINT_V3: [u8; 2] = [0xff, 3];
/// The beginning of a checkpoint of version 4: as version 3, with more in the second value.
const CHECKPOINT_V4: [u8; 2] = [0xff, 4];
/// The beginning of a checkpoint of version 5: as version 4, with more in the second value.
const CHECKPOINT_V5: [u8; 2] = [0xff, 5];

/// As [`encode`](super::encode), for checkpoints. `more` is stored behind the value.
pub fn encode_checkpoint<T: Serialize, M: Serialize>(
    value: &T,
    more: Option<&M>,
) -> Result<Vec<u8>, WireError> {
    let what = "checkpoint";
    let mut bytes = if more.is_some() { CHECKPOINT_V5 } else { CHECKPOINT_V2 }.to_vec();
    bincode::serde::encode_into_std_write(value, &mut bytes, CONFIG)
        .map_err(|error| WireError { what, reason: error.to_string() })?;
    if let Some(more) = more {
        bincode::serde::encode_into_std_write(more, &mut bytes, CONFIG)
            .map_err(|error| WireError { what, reason: error.to_string() })?;
    }
    if bytes.len() > MAX_CHECKPOINT {
        let reason = format!("{} bytes, the limit is {MAX_CHECKPOINT}", bytes.len());
        return Err(WireError { what, reason });
    }
    Ok(bytes)
}

/// As [`decode`](super::decode), for checkpoints of this version or an earlier one. Returns the value that is
/// stored behind, too.
pub fn decode_checkpoint<T, V1, M, M3, M4>(bytes: &[u8]) -> Result<(T, Option<M>), WireError>
where
    T: DeserializeOwned,
    V1: DeserializeOwned + Into<T>,
    M: DeserializeOwned,
    M3: DeserializeOwned + Into<M>,
    M4: DeserializeOwned + Into<M>,
{
    if let Some(bytes) = bytes.strip_prefix(&CHECKPOINT_V5) {
        let (value, more) = decode_limited::<(T, M), MAX_CHECKPOINT>("checkpoint", bytes)?;
        return Ok((value, Some(more)));
    }
    if let Some(bytes) = bytes.strip_prefix(&CHECKPOINT_V4) {
        let (value, more) = decode_limited::<(T, M4), MAX_CHECKPOINT>("checkpoint of version 4", bytes)?;
        return Ok((value, Some(more.into())));
    }
    if let Some(bytes) = bytes.strip_prefix(&CHECKPOINT_V3) {
        let (value, more) = decode_limited::<(T, M3), MAX_CHECKPOINT>("checkpoint of version 3", bytes)?;
        return Ok((value, Some(more.into())));
    }
    match bytes.strip_prefix(&CHECKPOINT_V2) {
        Some(bytes) => Ok((decode_limited::<T, MAX_CHECKPOINT>("checkpoint", bytes)?, None)),
        None => Ok((decode_limited::<V1, MAX_CHECKPOINT>("checkpoint of version 1", bytes)?.into(), None)),
    }
}
