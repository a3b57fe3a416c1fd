//! Ground. Deliberate bugs in the core, which prove that the simulator and other tests notice bugs.
//!
//! The core asks for a bug at the place that it changes. Outside of tests there is none: [`Bugs::has`] is a
//! constant, and the compiler removes the question.

/// The deliberate bug of a state machine, or none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Bugs {
    #[cfg(test)]
    bug: Option<Bug>,
}

impl Bugs {
    /// Asks for one bug. Outside of tests there is none all the same.
    pub const fn one(bug: Bug) -> Bugs {
        #[cfg(test)]
        return Bugs { bug: Some(bug) };
        #[cfg(not(test))]
        return {
            let _ = bug;
            Bugs {}
        };
    }

    /// Returns true if the machine is to have this bug. Always false outside of tests.
    #[inline(always)]
    pub const fn has(self, bug: Bug) -> bool {
        #[cfg(test)]
        return matches!(self.bug, Some(own) if own as u8 == bug as u8);
        #[cfg(not(test))]
        return {
            let _ = bug;
            false
        };
    }

    /// Returns true if the machine has any bug. Always false outside of tests.
    #[inline(always)]
    pub const fn has_any(self) -> bool {
        #[cfg(test)]
        return self.bug.is_some();
        #[cfg(not(test))]
        return false;
    }
}

/// A deliberate bug. `src/sim/mutations.rs` has the seeds and verdicts by which the simulator catches it,
/// or a story asserts the opposite with it; `tests/documents` fails if neither does.
///
/// Not in the list, because the simulator would not notice it: a datacenter that ends keys before it has
/// caught up. The checker judges an expiry by the entries that its datacenter had seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
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
    /// (s) A reclaim is accepted although the lock has another holder meanwhile.
    StaleReclaim,
    /// (t) A state is installed without the own entries that it lacks.
    StateWithoutOwn,
    /// A new member shows its clients an empty store before its first state. Caught by a story alone
    /// (`replica/tests/too_early.rs`); a seed in a thousand catches it, too.
    ReadsBeforeState,
    /// A state is installed although the truncated entries have come from another member meanwhile.
    StateUnneeded,
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
    /// A directory that never joined is taken for a new one, although others know entries of its log. Caught
    /// by a story alone (`replica/tests/regained.rs`).
    LostDiskNotDoubted,
    /// Hashes of entries are not compared.
    ForksNotCompared,
    /// Hashes are not sent to peers.
    HeadsNotTold,
    /// After a lost disk tokens continue from the clock, without a lead. Caught by a story alone
    /// (`replica/tests/forked.rs`); 60 seeds of `disks` do not catch it.
    LostTokensNotPassed,
    /// All expired waits end in one step, however many.
    AllWaitsAtOnce,
    /// The digest of a value is computed from all of its elements for each change.
    LargeValueWalked,
    /// A lock is granted again before its force release is durable.
    ForceNotDurable,
    /// The server does not remember from which lease a lock was taken by force.
    ForceForgotten,
    /// After a lost disk a lock is granted before the regained entries of the own log are durable.
    RegainedNotAwaited,
    /// A datacenter that lacks entries of its own log announces a stability floor. Caught by a story alone
    /// (`replica/tests/regained.rs`).
    FloorWithoutOwnLog,
    /// An idempotency key counts only for the session of its call.
    KeyOfSession,
    /// A client that renews and does not reclaim prolongs the grace period without end.
    GraceRenewed,
    /// A lease whose client does not reconnect after a restart never ends.
    AbandonedLeaseStays,
    /// A transaction opens although its snapshot lacks commits that the client has seen elsewhere.
    AtLeastIgnored,
    /// A refused commit leaves its changes in the transaction.
    RefusedStays,
    /// A resumed watch misses the events before its resumption.
    WatchMissesPast,
    /// A call that is refused because of overload is executed all the same.
    RefusedIsDone,
    /// A sponsor splits a part off without naming it for the locks that it holds exclusively.
    SplitUnnamed,
    /// A sponsor keeps the new part of locks that were in use, also where its own part is elsewhere.
    NamedElsewhere,
    /// A member says that nothing goes along any more and has named nothing.
    DoneUnnamed,
    /// A sponsor announces it without having named the new part of homed locks.
    HomedUnnamed,
    /// A member that has restarted names the part of a new member before its clients have reclaimed. Caught
    /// by a story alone (`replica/tests/too_early.rs`); a seed in a thousand catches it, too.
    NamesInGrace,
    /// A new member gets a state before all others have entered its epoch.
    StateBeforeEpoch,
    /// A new member serves before its part is settled.
    ServesUnsettled,
    /// An epoch is entered before the sponsor of its new member is settled as seen here.
    SponsorUnsettled,
    /// A sponsor splits a part off before its member is settled.
    SplitsUnsettled,
    /// A change is proposed before those that can be reached have seen the splits of all parts.
    SplitUnseen,
    /// A member does not remember the readings that it tells others, which may take them over.
    ToldNotRemembered,
    /// A member waits until a sponsor whose end is decided has split a part off.
    OrphansAwaited,
    /// Parts are given to a member that leaves.
    GivenToLeaver,
    /// A member leaves with parts of others.
    LeavesWithParts,
    /// A member that has restarted leaves before its clients have reclaimed.
    LeavesInGrace,
    /// A member leaves though it has proposed to stay.
    LeavesAfterCancel,
    /// A member proposes to stay before its promise not to leave is on disk.
    StayNotOnDisk,
    /// A member says that nothing is still to come that names one that has ended, before all others have
    /// entered that end. Caught by a story alone (`replica/tests/evicting.rs`); a seed in a thousand catches
    /// it, too.
    FreedUnseen,
    /// Registers still name an ended member when its slot is given out again.
    RowsNotForgotten,
    /// A member accepts further entries of a member that is being evicted after it has reported its entries.
    /// Caught by a story alone (`replica/tests/evicting.rs`).
    PromiseBroken,
    /// A survivor of a forced recovery reports its entries before its promise is on disk. Caught by a story
    /// alone (`replica/tests/recovering.rs`): a lost member would have to run.
    ReportBeforePromise,
    /// The survivor that is asked for a forced recovery decides before the others have reported.
    RecoversWithoutReports,
    /// The end of an eviction is entered before all entries up to the cut are applied. Caught by a story
    /// alone (`replica/tests/evicting.rs`); one of 150 seeds of `evictions` catches it, too.
    EndWithoutCut,
    /// Tokens have no fence: a member that was evicted and whose clock was ahead has given out higher ones.
    /// Caught by a story alone (`replica/tests/evicting.rs`); a seed in a thousand catches it, too.
    TokensUnfenced,
    /// A member that was down serves without having asked whether it was evicted.
    ServesUnasked,
    /// A restarted member does not ask if the policy that it knows evicts nobody.
    TrustsPolicy,
    /// A restarted member counts voters that have not heard this run.
    ConfirmedUnheard,
    /// An evicted member renews leases until it stops. Caught by a story alone
    /// (`replica/tests/second_holders.rs`); 30 seeds of `absences` do not catch it.
    EvictedRenews,
    /// The lengths of other members' leases are not heard, and the own limit is taken for theirs. Caught by a
    /// story alone (`replica/tests/second_holders.rs`); 1 500 seeds of `absences` do not catch it.
    LeaseLimitsUnheard,
    /// A member whose clock stood still tells its clients times of that clock. Caught by a story alone
    /// (`replica/tests/timed.rs`); 30 seeds of `stopped-clocks` do not catch it.
    TellsStoppedClock,
    /// A member that no majority of the voters backs continues to grant.
    GrantsUnbacked,
    /// A member that no majority of the voters backs continues to renew the leases of its clients. Caught by
    /// a story alone (`replica/tests/timed.rs`).
    RenewsUnbacked,
    /// A member can be evicted by time although leases of its clients are longer than that permits. Caught by
    /// a story alone (`replica/tests/timed.rs`): the simulator's policy would have to permit shorter leases
    /// than its clients have.
    LeasesOutlivePolicy,
    /// A voter acknowledges a member about which it is silent.
    AcknowledgesSilent,
    /// A voter that crashes forgets that it is silent about a member.
    SilenceNotOnDisk,
    /// A voter that has just started is silent about a member at once. Caught by a story alone
    /// (`replica/tests/timed.rs`).
    SilenceFromBefore,
    /// A voter promises although it knows that the lost member was started after the operator's word.
    StartNotSeen,
    /// Locks that were used while a member joins are forgotten, and lose its part, after a moment.
    UseForgotten,
    /// A member promises in the name of a witness that may not know of the eviction yet.
    PromisesForWitness,
    /// A witness promises before that is on its disk.
    WitnessPromiseNotOnDisk,
    /// The requests of a member that was evicted stay in the request table.
    RequestsOutlive,
    /// Of too many locks that are away here, those that were used last are returned first.
    NewestReturned,
    /// Foreign parts are returned beside a shared request although an exclusive request waits.
    ReturnedPastExclusive,
    /// Locks whose parts are away elsewhere count for the limit of locks that are away here.
    AwayElsewhereCounted,
    /// A server does not notice that its clock is behind most others.
    BehindNotNoticed,
    /// The sum over ownership is announced with a vector at which it was different.
    SumOfAnotherVector,
    /// A commit is durable at a majority when half as many members as that have it: each counts twice.
    MemberCountsTwice,
    /// A commit is durable at a majority of the members, without regard to votes.
    VotersDoNotCount,
    /// A commit is durable at a majority when it was sent to one.
    SentCountsAsDurable,
    /// An entry is acknowledged on request when it is applied, before it is durable.
    AckFromMemory,
    /// A lock that becomes active takes its parts from the names of the datacenters, not from its home.
    HomeIgnored,
    /// Idle parts of a homed lock are returned to the datacenters that they are named after.
    ReturnedByName,
    /// A transaction under a guard looks at the guard when it begins, and not when it commits.
    GuardsSeenOnce,
    /// A lock does not remember a commit that its holder made under its guard.
    GuardedNotNoted,
    /// A downgrade releases the locks of its request.
    DowngradeLetsGo,
    /// A request for enough locks asks others only for what is not here.
    EnoughMissingOnly,
    /// A request for enough locks that asks again does so with a new time.
    EnoughAsksLater,
    /// A request for enough locks takes locks for which an earlier one waits.
    EnoughFromTargets,
    /// A request for enough locks examines its whole target whenever a lock of it changes.
    EnoughTargetWalked,
    /// A request for enough locks is granted less than the amount.
    EnoughBelowAmount,
    /// A request for enough locks counts a lock that it has not got.
    EnoughSpareHeld,
    /// A request for enough locks that is amended goes to the end of the queues.
    AmendLosesPlace,
    /// An amended request for enough locks keeps the candidates that were dropped.
    AmendKeepsDropped,
    /// A begin after a restart does not wait for the reclaim of its guards.
    GuardsNotAwaited,
    /// A checkpoint has outcomes of transactions that are not in the journal before its position.
    LaterOutcomes,
    /// Entries that a checkpoint in progress is still to copy are truncated.
    EntriesNotKept,
    /// Homed locks are used before all members are known to understand their names.
    HomedTooEarly,
    /// The rule of a prefix changes the owners of parts when its epoch is entered, before they are given.
    RuleAtOnce,
    /// A rule takes the parts of locks that are held.
    RehomedInUse,
    /// The default owner of a part that moves is judged by what is known here, not by what its maker knew.
    RuleJudgedHere,
    /// A rule or a new member is proposed before all have given by the rule before.
    RuleUnseen,
    /// The cluster uses a later version as soon as one member speaks it.
    VersionTooEarly,
    /// An older disk waits with an epoch until its own entries that enter it are back.
    EpochAwaitsItsEntry,
    /// An older disk waits for members whose end is decided.
    AwaitsTheEnded,
    /// An entry that splits off a part whose member has ended meanwhile is taken for a fault.
    EndedPartUnknown,
    /// A member that lacks compacted decisions asks nobody for a state.
    NeededStateUnasked,
    /// A server whose end is decided takes over a state.
    StateAfterEnd,
    /// All entries that were held back are applied in one step.
    HeldBackAtOnce,
    /// A member that lacks compacted decisions serves without the epochs among them.
    ServesWithoutCompacted,
}
