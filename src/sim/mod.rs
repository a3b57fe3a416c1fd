//! Pure. The simulator: a world of replicas, network, disks, clients, faults and an oracle in one loop. It
//! takes a seed and returns a verdict.
//!
//! The nodes run exactly the code that production runs ([`crate::replica::Replica`]); everything around them
//! is simulated in virtual time. [`run()`] has the two phases of a run, `plan.rs` the choices of a seed,
//! `world/` the loop, `client/` the rules that clients keep, and `oracle/` the promises that are checked.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod client;
mod clock;
mod disk;
mod failure;
mod figures;
#[cfg(test)]
mod mutations;
mod network;
mod oracle;
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

pub use failure::{Failure, FailureKind, FaultKind, Outcome};
pub use figures::{Figures, HAND_OFF_LIMIT, figures};
pub use plan::{Profile, UnknownProfile};
pub use run::{SimOptions, run};
pub use trace::TraceMode;

/// The deliberate bug of a run: none outside tests.
#[cfg(test)]
pub(crate) type MutationOfRun = Mutation;
#[cfg(not(test))]
pub(crate) type MutationOfRun = std::convert::Infallible;

/// A deliberate bug in the core, to prove that the oracle catches it. Compiled into tests only.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// (a) Parts leave while the lock is held.
    TransferWhileHeld,
    /// (b) Entries and answers leave before the journal is durable.
    SendBeforeDurable,
    /// (c) A later local reader overtakes a due writer.
    ReaderOvertakesDueWriter,
    /// (d) A request lost with a link reset is not sent again.
    LostRequestNotResent,
    /// (e) No grace period after a restart.
    NoGrace,
    /// (f) Clock readings, and so tokens, are handed out again after a restart.
    TokensReused,
    /// (g) A lock is granted again before the end of the lease that held it is durable.
    LeaseEndNotDurable,
    /// (h) Only the first local waiter is ever published.
    PublishFirstOnly,
    /// (i) Shared requests are served past an earlier exclusive one.
    SharedPastExclusive,
    /// (j) The vector in memory is announced to peers, not the durable one.
    VectorFromMemory,
    /// (k) A due request of a datacenter that died still blocks local grants.
    DeadDueBlocks,
    /// (l) Entries are relayed on connect only.
    RelayOnConnectOnly,
    /// (m) A lock is granted before the data of its previous holder is applied: the snapshot of a transaction
    /// is not the one that its grant needs.
    GrantBeforeData,
    /// (n) The tombstone of a removal is dropped before every datacenter has seen it.
    TombstoneDroppedTooEarly,
    /// (o) Leases are measured by the wall clock.
    LeaseByWallClock,
    /// (p) A duplicate entry, as after a resume, is applied again.
    AppliedTwice,
    /// (q) A request is served although it is withdrawn.
    WithdrawnServed,
    /// (r) Parts are sent to a datacenter that cannot be reached.
    PartsToUnreachable,
    /// (s) A reclaim is accepted whatever happened meanwhile.
    StaleReclaim,
    /// (t) A state is installed without the own entries that it lacks.
    StateWithoutOwn,
    /// (u) An installed state is announced before it is durable.
    StateToldBeforeDurable,
    /// (v) A key whose time is over is removed, as by a client.
    ExpiryByRemoval,
    /// (w) Parts of a held lock are returned to their homes.
    HeldGoesHome,
    /// (aa) Parts are sent to a datacenter that does not serve, and requests that need it block others.
    NotServingBlocks,
    /// (x) The effects of expired timers are not in the log yet when the next event reads the locks.
    SeenBeforeLogged,
    /// (y) A change of a key that ended after the transaction's snapshot is committed, and has no effect.
    ChangeOfEndedKey,
    /// (z) A cancel that overtakes its acquire is answered and has no further effect.
    CancelForgotten,
    /// A directory that never joined is taken for a new one, whatever others know of its log.
    LostDiskNotDoubted,
    /// Hashes of entries are not compared.
    ForksNotCompared,
    /// Hashes are not sent to peers.
    HeadsNotTold,
    /// After a lost disk tokens continue from the clock, without a lead.
    LostTokensNotPassed,
    /// All expired waits end in one step, however many.
    AllWaitsAtOnce,
    /// A lock is granted again before its force release is durable.
    ForceNotDurable,
    /// The server does not remember from which lease a lock was taken by force.
    ForceForgotten,
    /// After a lost disk a lock is granted before the regained entries of the own log are durable.
    RegainedNotAwaited,
    /// A datacenter that lacks entries of its own log announces a stability floor.
    FloorWithoutOwnLog,
    /// A idempotency key counts only for the session of its call.
    KeyOfSession,
    /// A client that renews and does not reclaim prolongs the grace period without end.
    GraceRenewed,
    /// A refused commit leaves its changes in the transaction.
    RefusedStays,
    /// A resumed watch misses the events before its resumption.
    WatchMissesPast,
    /// A call that is refused because of overload is executed all the same.
    RefusedIsDone,
    /// The sum over ownership is announced with a vector at which it was different.
    SumOfAnotherVector,
}
