//! Every decoder of bytes from a peer, a disk, a client or an operator.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::native_frames;
use super::{Target, sequence};
use crate::access;
use crate::base::wire;
use crate::causal_log::Entry;
use crate::replica::{Checkpoint, Message, Record, StatePiece};
use crate::server::{api, config};
use crate::{interdc, journal, replica};

/// All targets.
pub const TARGETS: [Target; 15] = [
    ("link_frames", interdc::fuzz::frames),
    ("hello", interdc::fuzz::hello),
    ("message", message),
    ("entry", entry),
    ("journal_segment", journal::fuzz::segment),
    ("journal_checkpoint", journal::fuzz::checkpoint),
    ("record", record),
    ("checkpoint", checkpoint),
    ("state_piece", state_piece),
    ("config_text", config::fuzz::text),
    ("access_rules", access::fuzz::rules),
    ("access_tokens", access::fuzz::tokens),
    ("client_message", api::fuzz::message),
    ("native_frames", native_frames::frames),
    ("sequence", |data| sequence(data).steps > 0),
];

/// Checks that a decoded value is encoded as bytes that decode to the same value.
fn there_and_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(
    what: &'static str,
    data: &[u8],
) -> bool {
    let Ok(value) = wire::decode::<T>(what, data) else { return false };
    // A number can be encoded longer than needed, so the values are compared, not the bytes.
    let again = wire::encode(what, &value).expect("what was read fits a frame");
    assert!(again.len() <= data.len(), "the shortest bytes are written: {} for {}", again.len(), data.len());
    assert_eq!(wire::decode::<T>(what, &again).expect("its own bytes"), value);
    true
}

fn message(data: &[u8]) -> bool {
    there_and_back::<Message>("message", data)
}

fn entry(data: &[u8]) -> bool {
    there_and_back::<Entry>("entry", data)
}

fn record(data: &[u8]) -> bool {
    there_and_back::<Record>("record", data)
}

fn checkpoint(data: &[u8]) -> bool {
    let Ok(checkpoint) = Checkpoint::decode(data) else { return false };
    let again = checkpoint.encode().expect("what was read fits a checkpoint");
    assert_eq!(Checkpoint::decode(&again).expect("its own bytes"), checkpoint);
    true
}

fn state_piece(data: &[u8]) -> bool {
    let piece = StatePiece { number: 0, bytes: bytes::Bytes::copy_from_slice(data), last: true };
    replica::fuzz::is_a_state(&piece)
}
