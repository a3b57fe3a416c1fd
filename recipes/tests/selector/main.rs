//! The token selector on real servers in three datacenters. Guarantees: docs/guarantees.md#token-selector.
//!
//! It needs the server's binary: `GEOLOCK_BIN`, or `cargo build` of the workspace before. Payments also run
//! over databases: features `tokens-sqlite`, `tokens-postgres`.

mod failures;
mod fixture;
#[path = "../selector_sources/open.rs"]
#[expect(dead_code, reason = "the stories of the sources need more of it")]
mod open;
mod payments;
#[path = "../../examples/sequencer/playground.rs"]
#[expect(dead_code, reason = "the example of the sequencer needs more of it")]
mod playground;
#[cfg(feature = "tokens-postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod same_tx;
mod sources;
