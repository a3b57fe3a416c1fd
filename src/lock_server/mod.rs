//! Edge. One datacenter's [`Replica`](crate::replica::Replica) at work: the actor around it.
//!
//! ```text
//!  Session, LockServerHandle --Input--> mailbox --.  (who brings it works it off)
//!  links --LinkEvent----------------> mailbox ----+--> works: handle(now, event), perform effects
//!  journal --JournalEvent-----------> JournalInbox'         |         |         |
//!  Session <--Output-- Outbox <-----------------------------'     journal     links
//! ```
//!
//! Who brings a call hands it to the machine in his own thread, if nobody else is at it, and performs what the machine wants
//! done; `workshop.rs` says how and why. For all else there is the actor, one task on a thread of its own. It waits for
//! whichever input comes first, does the same, and sleeps until the machine's next deadline. Nobody waits there
//! for a client, a peer or the disk: what goes to those is queued, every queue has a bound, and a bound that is
//! reached ends the one who is slow (a session, a link) or, of a slow disk, stops the taking of what would be written.
//!
//! **Start** ([`start_datacenter`]): the journal is opened; the machine is recovered from its records; links start
//! (their events are queued until the actor looks); the actor's thread starts. Only then the API listens.
//! **Stop** (`drain`): the API goes on; acquires are refused; when nothing is held, or the time is up, the actor
//! takes no more inputs, waits until all that was appended is durable and answers what waited for that, ends
//! every session, shuts the links down, closes the journal, and returns.
//!
//! | file | job |
//! |---|---|
//! | `datacenter.rs` | journal, links and machine put together |
//! | `recover.rs` | from what the journal kept to the state it amounts to |
//! | `start.rs` | [`LockServer`]: run, wait for the end |
//! | `handle.rs`, `session.rs` | what the API holds: calls in |
//! | `outbox.rs` | answers out, batched and bounded |
//! | `workshop.rs`, `works.rs` | who has the turn; a step, and what it is made with |
//! | `mailbox.rs`, `budget.rs` | what clients have put in: in which order, and how many bytes |
//! | `inlets.rs`, `actor.rs` | choose an input that is no call; take the turn with it |
//! | `effects.rs`, `steps.rs` | perform; which steps that is, for faults on purpose |
//! | `stopping.rs` | drain, last sync, end |
//! | `callers.rs` | who waits for an answer |
//! | `overload.rs`, `probe.rs` | whether there is more to do than can be done |
//! | `checkpoints.rs` | when to write state to disk |
//! | `ports.rs`, `journal_inbox.rs`, `interdc_links.rs` | what the actor needs of journal and links |
//! | `clock.rs`, `options.rs`, `report.rs` | the clocks, the options, the log |

mod actor;
mod budget;
mod callers;
mod checkpoints;
mod clock;
mod datacenter;
mod effects;
mod handle;
mod inlets;
mod interdc_links;
mod journal_inbox;
mod mailbox;
mod options;
mod outbox;
mod overload;
mod ports;
mod probe;
mod recover;
mod report;
mod session;
mod start;
mod steps;
mod stopping;
mod works;
mod workshop;

#[cfg(test)]
pub(crate) mod fakes;
#[cfg(test)]
mod tests;

pub use budget::{Allowance, ClientAllowance};
pub use datacenter::{DatacenterConfig, start_datacenter};
pub use handle::{LockServerHandle, OpenError, Stage, Stopped, TooManySessions};
pub use journal_inbox::JournalInbox;
pub use options::LockServerOptions;
pub use outbox::{ByteCount, End, Output};
pub use ports::{LinkInput, Links, Machine, Store};
pub use recover::recover;
pub use session::Session;
pub use start::{LockServer, Parts, StartError, StopError};
