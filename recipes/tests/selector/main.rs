//! The token selector on real servers in three datacenters. Guarantees: docs/guarantees.md#token-selector.
//!
//! It needs the server's binary: `GEOLOCK_BIN`, or `cargo build` of the workspace before.

mod failures;
mod fixture;
mod payments;
#[path = "../../examples/sequencer/playground.rs"]
#[expect(dead_code, reason = "the example of the sequencer needs more of it")]
mod playground;
mod same_tx;
