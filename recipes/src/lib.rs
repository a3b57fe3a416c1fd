//! Recipes: common constructions on top of locks, which need only [`geolock_client`].
//!
//! | recipe | type |
//! |---|---|
//! | run a job once, of many instances that start at the same time | [`CriticalSection`] |
//! | run a job once in a period, of all instances that try | [`Periodic`] |
//! | elect a leader that observers can see | [`Election`] |
//! | a lock with a value that its holder sets | [`ValuedLock`] |
//! | acquire a lock again that the owner holds | [`Reentrant`] |
//! | a number of permits that all datacenters share | [`Semaphore`] |
//! | many readers or one writer, who may become a reader | [`RwLock`] |
//! | wait until others have counted down | [`Latch`] |
//! | begin and end together with others | [`Barrier`] |
//! | select tokens that no other payment has taken | `selector::TokenSelector` |
//! | order the transactions of a contract, each once | [`Sequencer`](sequencer::Sequencer) |
//!
//! A recipe is thin. Locks, transactions under guards, expiring keys and watches do the work. Each has a pure
//! part, a state machine without clock and IO that its tests run in simulation, and a small driver:
//!
//! | folder | job |
//! |---|---|
//! | `once_state/` | pure: records, decisions and the loop of a critical section |
//! | `once/` | its driver |
//! | `periodic_state.rs` | pure: the decisions of one attempt to run a periodic job |
//! | `periodic.rs` | its driver |
//! | `held_state/` | pure: a value that the holder of a lock keeps in the store, and its followers |
//! | `held/` | its driver |
//! | `election.rs`, `valued.rs` | elections and locks with a value, for callers |
//! | `reentrant_state.rs` | pure: the locks that owners hold, and how often |
//! | `reentrant.rs` | its driver |
//! | `semaphore.rs` | semaphores: requests for enough of many locks |
//! | `rwlock.rs` | read-write locks: shared and exclusive requests, and downgrades |
//! | `barrier_state.rs` | pure: a member of a double barrier |
//! | `barrier.rs`, `barrier/` | its driver |
//! | `latch_state.rs` | pure: a caller that waits for a latch |
//! | `latch.rs` | its driver |
//! | `selector_state/` | pure: what is known of tokens, and the selection of them |
//! | `selector/` | its driver |
//! | `sequencer_state/` | pure: the coordinator of a contract, its senders and endorsers |
//! | `sequencer/` | its driver |
//! | `hash.rs` | a hash that all processes compute alike |
//! | `limits.rs` | the longest time of an option |
//! | `random.rs` | random numbers |
//! | `retry.rs` | errors that pass |
//! | `dice.rs` | for tests: chance and agenda of a simulation |
//!
//! No recipe compares the clocks of two machines. Ages are keys with an expiry, which the datacenters count.
#![deny(missing_docs)]

mod barrier;
mod barrier_state;
#[cfg(test)]
mod dice;
mod election;
mod hash;
mod held;
mod held_state;
mod latch;
mod latch_state;
mod limits;
mod once;
mod once_state;
mod periodic;
mod periodic_state;
mod random;
mod reentrant;
mod reentrant_state;
mod retry;
mod rwlock;
pub mod selector;
mod selector_state;
mod semaphore;
pub mod sequencer;
mod sequencer_state;
mod valued;

pub use barrier::{Barrier, BarrierError, BarrierOptions, Inside};
pub use election::{Elected, Election, Leader};
pub use held::{HeldError, HeldOptions, HeldWatch};
pub use held_state::HeldValue;
pub use latch::{Latch, LatchError, LatchOptions};
pub use limits::TooLong;
pub use once::{CriticalSection, OnceError, Outcome, Progress, Run, Status};
pub use once_state::{LastSeen, OnceConfigError, OnceOptions, Record, RunState, Takeover};
pub use periodic::{Periodic, PeriodicError, PeriodicOptions, PeriodicOutcome};
pub use reentrant::{Reentrant, ReentrantError, ReentrantGuard};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use semaphore::{Permits, Semaphore, SemaphoreError};
pub use valued::{ValuedGuard, ValuedLock};
