//! The servers that only vote, as `geolock status` and `geolock member list` show them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::base::time::brief;
use geolock_api::proto::Witness;

/// Returns if it votes, and when it was heard.
pub fn state(witness: &Witness) -> String {
    let votes = if witness.votes { "votes" } else { "does not vote yet" };
    match (witness.heard, witness.heard_ms) {
        (true, _) => format!("{votes}, heard"),
        (false, Some(ms)) => format!("{votes}, last heard {} ago", brief(Duration::from_millis(ms))),
        (false, None) => format!("{votes}, not heard"),
    }
}

/// Returns the warning about a witness that is not heard.
pub fn unreachable(witness: &Witness) -> String {
    let ago = witness.heard_ms.map(|ms| format!(", last heard {} ago", brief(Duration::from_millis(ms))));
    let (dc, name, ago) = (witness.dc, &witness.name, ago.unwrap_or_default());
    format!("witness dc{dc} ({name}) is unreachable{ago}: its vote is missing")
}

/// Returns a witness for programs.
pub fn json(it: &Witness) -> Value {
    json!({
        "dc": it.dc,
        "name": it.name,
        "address": it.address,
        "heard": it.heard,
        "heard_ms": it.heard_ms,
        "votes": it.votes,
    })
}
