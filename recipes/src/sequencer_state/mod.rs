//! Pure. A sequencer: the members of a contract submit intents, one of them coordinates, and each intent is
//! confirmed by the ledger once.
//!
//! | file | job |
//! |---|---|
//! | `placement.rs` | who is to coordinate: a pure function of contract, committee and height |
//! | `words.rs`, `options.rs` | names and messages; figures |

mod hash;
mod options;
mod placement;
mod words;
