//! Pure. A sequencer: the members of a contract submit intents, one of them coordinates, and each intent is
//! confirmed by the ledger once.
//!
//! ```text
//!   sender                 coordinator                endorsers        ledger
//!     | Delegate --------------> |                        |               |
//!     | <-- Delegated            |                        |               |
//!     | <-- Assemble             |                        |               |
//!     | Assembled -------------> | Endorse -------------> |               |
//!     |                          | <------------ Endorsed |               |
//!     | <-- AskDispatch          |                        |               |
//!   [grant] Granted -----------> |                        |               |
//!     |                      [dispatch] ----------------------- submit -> |
//!     | <-- Dispatched           |                                        |
//!   [notice] DispatchedAck ----> |                                        |
//!   [end] <--------------------------------------- block: confirmed ----- |
//! ```
//!
//! In brackets: rows of the node's own database, written before the message that follows.
//!
//! | file | job |
//! |---|---|
//! | `machine.rs` | one node: `now` and an event in, effects out |
//! | `placement.rs` | who is to coordinate: a pure function of contract, committee and height |
//! | `presence.rs`, `chain.rs` | what a node has heard of the others, and seen of the ledger |
//! | `sender/` | an intent until its end; to whom all of them are delegated |
//! | `coordinator/` | its states, the pipeline to the ledger, transactions until they are decided |
//! | `endorser.rs` | for whom a member endorses |
//! | `words.rs`, `events.rs`, `options.rs` | names and messages; events and effects; figures |
//! | `wire/` | the bytes of messages |
//!
//! **Once, and at least once.** The lock lets one coordinator dispatch, its token is the epoch. The ledger
//! confirms an intent once, and refuses an epoch below the highest it has seen. The sender keeps at it until
//! it sees the confirmation, or a failure after which no permission of its own can be used any more.
//!
//! # Decisions
//!
//! - **A coordinator asks a sender for several assemblies at a time.** The first design had one question
//!   for each intent, which bounds a contract to one transaction in a round trip to its sender: 17/s
//!   between five continents, where it has 139/s now. The sender assembles one after the other, each on top
//!   of those before it. An answer that overtakes a lost one is not taken, and those behind an assembly
//!   that cannot stand are asked for again.
//! - **Of the messages of a node, only those that rest on a row of its database wait for the disk.**
//!   Questions for assemblies, endorsements and permissions rest on memory, which a crash loses together
//!   with all that came of them.

mod bugs;
mod chain;
mod coordinator;
mod endorser;
mod events;
mod machine;
mod options;
mod placement;
mod presence;
mod sender;
mod shared;
#[cfg(test)]
mod tests;
mod wire;
mod words;

pub(crate) use events::{Effect, Event, LockEffect, LockEvent};
pub use events::{
    End, Failure, Grant, LedgerView, NotAssembled, Outcome, Owner, Record, Restored, Revert, StartError,
    SubmitError,
};
pub(crate) use machine::Machine;
pub use options::{SequencerConfigError, SequencerOptions, Solo, Stickiness, Threshold};
pub use placement::{Committee, CommitteeError, Placement};
pub(crate) use shared::Config;
pub(crate) use wire::{Content, Envelope, MAX_ENVELOPE, message_len};
#[cfg(test)]
pub(crate) use words::HandedOver;
pub use words::{
    Assembly, AssemblyHash, Contract, Epoch, Intent, IntentId, Node, Notice, Phase, Speculation, StateId,
    Transaction,
};
pub(crate) use words::{Beat, Handover, MAX_NAME, MAX_REASON, MAX_STATE, Message};
