//! The sequencer on real servers, with nodes in processes of their own. Guarantees:
//! docs/guarantees.md#sequencer.
//!
//! It needs the server's binary: `GEOLOCK_BIN`, or `cargo build` of the workspace before.

#[path = "../../examples/sequencer/coins.rs"]
mod coins;
mod fixture;
mod inputs;
#[path = "../../examples/sequencer/node.rs"]
mod node;
#[path = "../../examples/sequencer/options.rs"]
mod options;
#[path = "../../examples/sequencer/playground.rs"]
#[expect(dead_code, reason = "the example can use one that runs already")]
mod playground;
mod processes;
