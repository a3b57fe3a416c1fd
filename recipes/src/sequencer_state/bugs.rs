//! Deliberate bugs, which prove that the simulator notices bugs. Outside of tests there is none.

/// A deliberate bug of one node's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The coordinator dispatches while it waits for its lock.
    DispatchWhileElecting,
    /// The coordinator works on when its lock is lost.
    LossIgnored,
    /// The coordinator does not wait for what the one before it dispatched.
    HandoverIgnored,
    /// Each coordinator waits anew for what was handed over, however long others have waited.
    WaitsAnew,
    /// A transaction that was awaited in vain stays in the handover.
    HandoverKept,
    /// The coordinator dispatches on in a range that is another node's.
    BoundaryIgnored,
    /// A stand-in does not give back to a preferred node that is heard again.
    PreferredIgnored,
    /// A transaction is submitted, and then written to the database.
    SubmitBeforeDispatch,
    /// A restarted coordinator begins with the nonces again.
    NoncesReused,
    /// A restarted coordinator does not submit again what it had dispatched.
    DispatchesForgotten,
    /// The sender answers that it grants, and then writes the grant.
    GrantAfterAnswer,
    /// The sender grants to a former delegate.
    GrantToFormer,
    /// The sender grants under an epoch that is not above that of another coordinator's grant.
    GrantToLowerEpoch,
    /// The sender acknowledges a dispatch, and then writes the notice.
    NoticeAfterAck,
    /// The sender leaves an intent alone that was dispatched once, whatever became of it.
    DispatchTrusted,
    /// The sender believes for ever that a coordinator has its intents.
    BeatNotCompared,
    /// Nobody notices that a coordinator is silent.
    SilenceIgnored,
    /// The sender gives an intent up while a grant of it may still be confirmed.
    GivenUpTooSoon,
    /// The sender waits for ever for permissions that nobody uses.
    GrantsNotRevoked,
    /// A coordinator says that it has not used a permission, and has.
    RevokedThoughUsed,
    /// The sender believes that a permission is not used before it has seen the blocks up to then.
    RevokedTooSoon,
    /// The sender takes each input that is not there for a failure of the intent.
    SpentIsOwn,
    /// The sender tells of the end of an intent, and then writes it.
    EndToldBeforeWritten,
    /// Each node ranks the committee in an order of its own.
    OwnRank,
    /// A coordinator with nothing to do goes on beating.
    BeatsAtRest,
    /// An endorser does not look at the height.
    EndorsesAnyRange,
    /// Assemblies that rest on one that the committee refuses are dispatched.
    DeniedKept,
    /// A coordinator takes an assembly that rests on one which it has not got.
    GapTaken,
    /// The inputs of dispatched transactions are not kept from later assemblies.
    SpentNotTold,
}
