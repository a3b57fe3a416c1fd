//! Deliberate bugs: each breaks one rule of the protocol, to prove that the checks notice it.

/// A deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The first `Enter` of a member that took a state does its work once more, on top of the state.
    EnterAppliedTwice,
    /// The transfers of one entry are judged and done one after the other.
    TransfersInSequence,
    /// `Split` excepts locks whose part is elsewhere.
    ExceptWhatIsAway,
    /// `Home` is not written for a part that was split off when the sponsor's part leaves.
    NoHomeWhenSponsorLeaves,
    /// A part is sent home before the sponsor split it off: its member may not live yet.
    HomeBeforeSplit,
    /// A part does not go along when the sponsor's part is moved by a datacenter that does not know of it.
    StaysBehind,
    /// A datacenter that knows of a part that goes along does not name it.
    NotNamed,
    /// `Split` excepts nothing, not even locks that are held.
    NoExceptions,
    /// A transfer to a member that is over is written down as it is.
    LateTransfersStand,
    /// `Split` and `Done` for a member that is over count for the next one in its slot.
    OldWordsCount,
    /// A slot is entered again while registers of its last generation are there.
    OldRegistersStay,
    /// A leaving datacenter enters epochs after its `Leave`.
    EntersAfterLeave,
    /// Proposals are decided although the members changed since they were checked.
    NoCompareAndSet,
    /// Members change although not all have entered the last change.
    SeveralChangesAtOnce,
    /// A member enters an end without the entries up to the cut.
    EntersWithoutTheCut,
    /// A member enters an end before it has applied the entries that others made before their last `Enter`.
    EntersBeforeOthersDid,
    /// A member that promised goes on taking entries of the member that is to end.
    PromiseBroken,
    /// A crash takes a promise back though it was reported.
    PromiseForgotten,
    /// An end is decided when one report is missing.
    CutFromMost,
    /// An attempt over an end that not all have entered lets them take entries up to the old cut.
    OldCutNotFrozen,
    /// An attempt over an end that not all have entered leaves its cuts as they are.
    OldCutStays,
    /// A state may contain entries beyond a cut.
    StateBeyondCut,
    /// A member takes no state of one that left in an earlier epoch.
    NoStateOfLeaver,
    /// `Enter` is not said again after a crash.
    EnterNotRepeated,
    /// A sponsor's end is entered while parts may go with the sponsor's parts.
    EndWithoutDone,
    /// A leaving datacenter appends `Leave` before it has applied the `Enter` of all.
    LeavesUnseen,
    /// A leaving datacenter exits before all others have entered the last epoch.
    ExitsEarly,
    /// A datacenter is evicted though nobody would be left who is not leaving.
    NobodyStays,
    /// A server believes that it is a member if its slot is.
    AdmissionBySlot,
    /// A server that was evicted before it took a state is admitted again under the same id.
    ServerAdmittedTwice,
    /// Members that joined later, or left, owe a `Done`, too.
    EverybodyOwesDone,
    /// `Settled` is proposed by the sponsor.
    SettledBySponsor,
    /// An unsettled joiner is not evicted with its sponsor.
    JoinerLeftBehind,
    /// A joiner that has no state yet stays when another member is evicted.
    StatelessJoinerStays,
}

/// All of them.
pub const ALL: [Bug; 34] = [
    Bug::EnterAppliedTwice,
    Bug::TransfersInSequence,
    Bug::ExceptWhatIsAway,
    Bug::NoHomeWhenSponsorLeaves,
    Bug::HomeBeforeSplit,
    Bug::StaysBehind,
    Bug::NotNamed,
    Bug::NoExceptions,
    Bug::LateTransfersStand,
    Bug::OldWordsCount,
    Bug::OldRegistersStay,
    Bug::EntersAfterLeave,
    Bug::NoCompareAndSet,
    Bug::SeveralChangesAtOnce,
    Bug::EntersWithoutTheCut,
    Bug::EntersBeforeOthersDid,
    Bug::PromiseBroken,
    Bug::PromiseForgotten,
    Bug::CutFromMost,
    Bug::OldCutNotFrozen,
    Bug::OldCutStays,
    Bug::StateBeyondCut,
    Bug::NoStateOfLeaver,
    Bug::EnterNotRepeated,
    Bug::EndWithoutDone,
    Bug::LeavesUnseen,
    Bug::ExitsEarly,
    Bug::NobodyStays,
    Bug::AdmissionBySlot,
    Bug::ServerAdmittedTwice,
    Bug::EverybodyOwesDone,
    Bug::SettledBySponsor,
    Bug::JoinerLeftBehind,
    Bug::StatelessJoinerStays,
];
