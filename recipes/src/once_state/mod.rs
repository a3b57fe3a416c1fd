//! Pure. A critical section that one of many instances runs: its record in the store, the decision which
//! instance may claim it, and the loop of an instance.
//!
//! ```text
//!           .------------------------------ pause <-----------------------------.
//!           v                                                                   |
//!  --> needed? --yes--> queue for the lock --granted--> read, decide --no-------|
//!        |  ^                  |                              | claim           |
//!        no '-- news of Done --'                        write Started           |
//!        v                                     (needed? again, if it takes over)  |
//!   NotNeeded,                                            the section --Err--> write Failed
//!   DoneByOther                                               | Ok
//!                                               write Done --> Ran
//! ```
//!
//! The record is read and written under the lock only, by transactions that commit only while it is held. A
//! grant's snapshot has everything that was committed under the lock before, so the decision never rests on
//! an old record.

mod decide;
mod events;
mod machine;
mod options;
mod record;
#[cfg(test)]
mod tests;

pub use events::LastSeen;
pub(crate) use events::{Effect, Event, NotWritten, Told, Verdict, Write};
pub(crate) use machine::Machine;
pub use options::{OnceConfigError, OnceOptions, Takeover};
pub(crate) use record::Content;
pub use record::{Record, RunState};
