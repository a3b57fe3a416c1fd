//! Pure. A world in a for-loop: replicas, network, disks, clients, faults, an oracle. Seed in, verdict out.
//!
//! The nodes run exactly the code that production runs ([`crate::replica::Replica`]); everything around them is
//! simulated in virtual time. Where to look: [`run()`] for the two phases of a run, `plan.rs` for what a seed
//! decides, `world/` for the loop, `client/` for the rules that clients keep, `oracle/` for what must be true.
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

/// The bug of a run: none outside tests.
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
    /// (j) Peers are told the vector in memory.
    VectorFromMemory,
    /// (k) A due request of a datacenter that died still stops local grants.
    DeadDueBlocks,
    /// (l) Entries are relayed on connect only.
    RelayOnConnectOnly,
    /// (m) A lock is granted before the data of its previous holder is applied: the snapshot of a transaction is not
    /// the one that its grant needs.
    GrantBeforeData,
    /// (n) The tombstone of a removal is dropped before every datacenter has seen it.
    TombstoneDroppedTooEarly,
    /// (o) Leases are measured by the wall clock.
    LeaseByWallClock,
    /// (p) An entry that comes again, as after a resume, is applied again.
    AppliedTwice,
    /// (q) A request is served although it is withdrawn.
    WithdrawnServed,
    /// (r) Parts are sent to a datacenter that cannot be reached.
    PartsToUnreachable,
    /// (s) A reclaim is accepted whatever happened meanwhile.
    StaleReclaim,
    /// (t) A state is taken over without the own entries that it lacks.
    StateWithoutOwn,
    /// (u) A state that is taken over is told before it is durable.
    StateToldBeforeDurable,
    /// (v) A key whose time is over is removed, as by a client.
    LapseByRemoval,
    /// (w) A lock goes home although somebody holds it.
    HeldGoesHome,
    /// (aa) Parts are sent to a datacenter that does not serve, and what needs it stops others.
    NotServingBlocks,
    /// (x) What time does to locks is not in the log yet when the event after it looks at them.
    SeenBeforeLogged,
    /// (y) A change of a key that ended after the transaction's snapshot is committed, and has no effect.
    ChangeOfEndedKey,
    /// (z) A cancel that overtakes its acquire is answered and forgotten.
    CancelForgotten,
    /// A directory that never joined is taken for a new one, whatever others know of its log.
    LostDiskNotDoubted,
    /// Hashes of entries are not compared.
    ForksNotCompared,
    /// Peers are not told hashes.
    HeadsNotTold,
    /// After a lost disk tokens go on from the clock.
    LostTokensNotPassed,
    /// All waits that are over end in one step, however many.
    AllWaitsAtOnce,
    /// A lock that was taken away is granted again before that is durable.
    ForceNotDurable,
    /// Nobody remembers from which lease a lock was taken.
    ForceForgotten,
    /// After a lost disk a lock is granted before what came back of the own log is durable.
    RegainedNotAwaited,
    /// A datacenter that lacks entries of its own log says what its further entries will have seen.
    FloorWithoutOwnLog,
    /// A client key counts for the session that it came by only.
    KeyOfSession,
    /// Who renews and does not reclaim prolongs the grace period without end.
    GraceRenewed,
    /// A refused commit leaves its changes in the transaction.
    RefusedStays,
    /// A watch that goes on is not told what it missed.
    WatchMissesPast,
    /// What is refused because there is too much to do is done all the same.
    RefusedIsDone,
    /// The sum over who owns what is told with a vector at which it was another.
    SumOfAnotherVector,
}
