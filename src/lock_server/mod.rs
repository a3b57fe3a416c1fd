//! Edge. Runs one datacenter's [`Replica`](crate::replica::Replica) and connects it to clients, peers and the
//! disk.
//!
//! ```text
//!  Session, LockServerHandle --Input--> mailbox --.  (the submitting thread)
//!                                                 +--> engine: handle(now, event), perform effects
//!  links --LinkEvent---------------.              |         |         |         |
//!  journal --JournalEvent----------+--> actor ----'      Outbox    journal    links
//!  timers, drain ------------------'  (its own thread)      |
//!  Session <------------------------------------Output------'
//! ```
//!
//! A thread that submits a call steps the machine itself if no other thread does so at that moment, and
//! performs the effects; `combiner.rs` says how and why (flat combining). Everything else is the job of the
//! actor, one task on its own thread: it waits for the next input, does the same, and sleeps until the
//! machine's next deadline. Neither of them waits for a client, a peer or the disk. Output to those is
//! queued, and every queue has a bound. A full queue ends the slow session or link; while the disk is slow,
//! the server accepts nothing that would be written.
//!
//! **Start** ([`start_datacenter`]): open the journal; recover the machine from its records; start the links
//! (their events are queued until the actor runs); start the actor's thread. Only then does the API listen.
//!
//! **Stop** (`drain`): the API stays up and acquires are refused. When no lock is held, or the drain timeout
//! is over, the actor accepts no more inputs, waits until all appended records are durable, sends the answers
//! that waited for them, ends every session, shuts the links down, closes the journal, and returns.
//!
//! | file | job |
//! |---|---|
//! | `datacenter.rs` | puts journal, links and machine together |
//! | `recover.rs` | recovers the machine from the journal |
//! | `start.rs` | [`LockServer`]: runs the server, waits for its end |
//! | `handle.rs`, `session.rs` | calls in: the handles that the API holds |
//! | `outbox.rs` | answers out, batched and bounded |
//! | `combiner.rs`, `sync.rs` | the combiner: which thread steps the machine, and what a failed step means |
//! | `engine.rs` | one step and its inputs |
//! | `mailbox.rs`, `budget.rs` | waiting calls of clients: their order, their bytes |
//! | `inputs.rs`, `actor.rs` | choose an input that is not a call; handle it |
//! | `effects.rs`, `fault_points.rs` | perform effects; map them to fault points |
//! | `shutdown.rs` | drain, last sync, end |
//! | `members.rs` | decisions in, proposals out: the machine's side of the control group |
//! | `sessions.rs` | sessions and calls that wait for an answer |
//! | `overload.rs`, `probe.rs` | detect overload |
//! | `fencing.rs` | logs when no majority backs this member |
//! | `checkpoints.rs` | when to write a checkpoint |
//! | `ports.rs`, `journal_inbox.rs`, `interdc_links.rs` | the actor's interface to journal and links |
//! | `clock.rs`, `options.rs`, `report.rs` | clocks, options, log lines |

mod actor;
mod budget;
mod checkpoints;
mod clock;
mod combiner;
mod datacenter;
mod effects;
mod engine;
mod fault_points;
mod fencing;
mod handle;
mod inputs;
mod interdc_links;
mod journal_inbox;
mod mailbox;
mod members;
mod options;
mod outbox;
mod overload;
mod ports;
mod probe;
mod recover;
mod report;
mod session;
mod sessions;
mod shutdown;
mod start;
mod sync;
mod witness;

#[cfg(test)]
pub(crate) mod fakes;
#[cfg(test)]
mod tests;

pub use budget::{Allowance, ClientAllowance};
pub use datacenter::{Datacenter, DatacenterConfig, start_datacenter};
pub use handle::{LockServerHandle, OpenError, Stage, Stopped, TooManySessions};
pub use journal_inbox::JournalInbox;
pub use members::{MembersHandle, MembersInput, MembersOutput, MembersPort, MembersView, members_port};
pub use options::LockServerOptions;
pub use outbox::{ByteCount, End, Output};
pub use ports::{LinkInput, Links, Machine, Store};
pub use recover::recover;
pub use session::Session;
pub use start::{LockServer, Parts, StartError, StopError};
pub use witness::{WitnessServerConfig, start_witness};
