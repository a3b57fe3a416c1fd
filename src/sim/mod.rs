//! Pure. The simulator: a world of replicas, network, disks, clients, faults and an oracle in one loop. It
//! takes a seed and returns a verdict.
//!
//! The nodes run exactly the code that production runs ([`crate::replica::Replica`]); everything around them
//! is simulated in virtual time. [`run()`] has the two phases of a run, `plan.rs` the choices of a seed,
//! `world/` the loop, `client/` the rules that clients keep, and `oracle/` the promises that are checked.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod client;
mod clock;
mod disk;
mod failure;
mod figures;
mod idle_figures;
#[cfg(test)]
mod mutations;
mod network;
mod oracle;
mod outcome;
mod plan;
mod queue;
mod run;
mod scene;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod stories;
mod trace;
mod world;

pub use failure::{Failure, FailureKind, FaultKind};
pub use figures::{Figures, HAND_OFF_LIMIT, figures};
pub use idle_figures::{IdleFigures, idle_figures};
pub use outcome::Outcome;
pub use plan::{Profile, UnknownProfile};
pub use run::{SimOptions, run};
pub use trace::TraceMode;
