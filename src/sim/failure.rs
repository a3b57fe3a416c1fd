//! The verdicts of a run that fails, and the faults of the world.

use crate::sim::plan::Profile;

/// The promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// Two clients held a lock in conflict.
    ConflictingHolders,
    /// A fencing token was not above those of earlier conflicting grants.
    TokenOrder,
    /// A restarted server handed out a token, a clock reading or a request number that is not above the old
    /// ones.
    HandedOutAgain,
    /// A grant's snapshot does not cover that of an earlier conflicting grant.
    SnapshotOrder,
    /// Two datacenters believe that they own one part.
    TwoOwners,
    /// After delivery of all logs no datacenter believes that it owns a part.
    NoOwner,
    /// Two replicas that applied the same entries differ.
    Diverged,
    /// Something left a datacenter before its journal was durable up to what it depends on.
    LeftBeforeDurable,
    /// A lock was granted again before the end of the lease that held it was durable.
    LeaseEndNotDurable,
    /// A crash lost something that the datacenter had announced.
    Forgotten,
    /// State recovered from a checkpoint differs from that recovered from all records.
    RecoveryDiffers,
    /// A lease ended although its client had renewed it in time.
    LeaseEndedEarly,
    /// A client that came back in time after a restart did not get its locks back.
    HoldLost,
    /// A client that had lost a lock to an operator got it back, committed under it, or got no notice.
    ForcedKeeps,
    /// A restarted server waited longer for possible lock holders than it may.
    GraceTooLong,
    /// A watch got an event twice, or a wrong one, or missed one.
    WatchedWrong,
    /// Parts were transferred for a request although an earlier one of another datacenter wants them.
    Overtaken,
    /// Parts were transferred to a datacenter that wants none, as far as the sender knew.
    GivenUnasked,
    /// Parts were transferred to a datacenter that the sender could not reach.
    GivenToUnreachable,
    /// A request waited longer than the bound of its scenario.
    Starved,
    /// After all faults were healed a request was not answered within the bound.
    NotAnswered,
    /// After the load was gone a gauge did not return to its floor.
    NotQuiet,
    /// The core broke its contract with the edge: a gap in positions, a message to a link that is down, a
    /// second reply, a refusal that cannot be.
    Contract,
    /// The part of a new member was split off before that was settled: it may never serve.
    SplitEarly,
    /// A correct peer was accused of breaking the protocol.
    Violation,
    /// The codec changed a message.
    Codec,
    /// A snapshot shows an entry without all that it depends on.
    SnapshotNotClosed,
    /// A reader saw a part of a commit without the rest of it.
    TornCommit,
    /// A reader saw something else than what the commits in its snapshot amount to.
    WrongReading,
    /// A reader saw something at a key that had been removed.
    Resurrected,
    /// A key expired before its time was over, or without any reason.
    ExpiredEarly,
    /// A bounded counter is below its bound somewhere.
    BelowBound,
    /// A snapshot does not show what its client required it to show.
    SnapshotTooOld,
    /// Two transactions committed in conflict on a lock, and neither had seen the other's commit.
    NotSerialised,
    /// A transaction committed under a request that was not held any more.
    GuardLost,
    /// A commit was answered as durable at a majority, and no majority had it on disk; or it was lost
    /// although most disks were not.
    NotAtMajority,
    /// A transaction was committed more than once.
    CommittedTwice,
    /// Something was committed that its client did not ask for, or that the client heard would not be
    /// committed.
    GhostCommit,
    /// A change was committed although its maker knew that it has no effect.
    WithoutEffect,
    /// A commit that was acknowledged to a client is missing.
    CommitLost,
    /// Too little happened for the run to prove anything.
    NothingHappened,
    /// A step examined more rows, keys, waiters or elements than one may.
    TooMuchWork,
    /// There are two histories of one log, and some datacenter continues as if there were one.
    ForkUnseen,
    /// Something was derived from two histories of one log.
    ForkMerged,
    /// The core panicked: one of its own invariants is broken.
    Panic,
}

impl FailureKind {
    /// Returns the promise that it breaks.
    pub fn promise(self) -> &'static str {
        match self {
            FailureKind::ConflictingHolders => "no two clients hold a lock in conflict",
            FailureKind::TokenOrder => "a fencing token is above those of earlier conflicting grants",
            FailureKind::HandedOutAgain => "no token, clock reading or number is handed out twice",
            FailureKind::SnapshotOrder => "a grant sees all that earlier conflicting grants saw",
            FailureKind::TwoOwners => "a part has at most one owner",
            FailureKind::NoOwner => "a part has an owner once all logs are delivered",
            FailureKind::Diverged => "replicas that applied the same entries are equal",
            FailureKind::LeftBeforeDurable => "nothing leaves a datacenter before it is durable there",
            FailureKind::LeaseEndNotDurable => {
                "a lock is granted again only when the end of the lease that held it is durable"
            }
            FailureKind::Forgotten => "a crash loses nothing that others were told",
            FailureKind::RecoveryDiffers => "a checkpoint recovers the same state as all records",
            FailureKind::LeaseEndedEarly => "a lease that is renewed in time does not end",
            FailureKind::HoldLost => "a client that comes back in time gets its locks back",
            FailureKind::ForcedKeeps => "a lock that an operator took away is lost, and its victim is told",
            FailureKind::GraceTooLong => {
                "a restarted server waits for its clients for two times to live at most"
            }
            FailureKind::WatchedWrong => "a watch is told everything that it follows once, in order",
            FailureKind::Overtaken => "parts go to the earliest request that wants them",
            FailureKind::GivenUnasked => "parts go only to datacenters that want them",
            FailureKind::GivenToUnreachable => "parts go only to datacenters that can be reached",
            FailureKind::Starved => "a request waits no longer than its scenario allows",
            FailureKind::NotAnswered => "every request is answered once all faults are healed",
            FailureKind::NotQuiet => "everything goes back to its floor once the load is gone",
            FailureKind::Contract => "the core and its callers keep the contract between them",
            FailureKind::SplitEarly => "nobody needs a part of a new member before that is settled",
            FailureKind::Violation => "a correct peer is accused of nothing",
            FailureKind::Codec => "the codec changes no message",
            FailureKind::SnapshotNotClosed => "a snapshot has all that its entries depend on",
            FailureKind::TornCommit => "a reader sees all of a commit or nothing of it",
            FailureKind::WrongReading => "a reader sees what the commits in its snapshot amount to",
            FailureKind::Resurrected => "a removed key stays removed",
            FailureKind::ExpiredEarly => "a key lives as long as it was asked to",
            FailureKind::BelowBound => "a bounded counter stays above its bound",
            FailureKind::SnapshotTooOld => "a snapshot shows what its client asked it to show",
            FailureKind::NotSerialised => "transactions in conflict on a lock see each other's commits",
            FailureKind::GuardLost => "a holder that has lost its lock commits nothing under it",
            FailureKind::NotAtMajority => "a commit that is durable at a majority is on most disks",
            FailureKind::CommittedTwice => "a transaction is committed at most once",
            FailureKind::GhostCommit => "nothing is committed that its client was told would not be",
            FailureKind::CommitLost => "a commit that its client was told of stays",
            FailureKind::WithoutEffect => "a change that is acknowledged has an effect",
            FailureKind::NothingHappened => "enough happens in a run for it to prove something",
            FailureKind::TooMuchWork => "a step looks at no more than a step may",
            FailureKind::ForkUnseen => "two histories of one log stop every datacenter",
            FailureKind::ForkMerged => "two histories of one log are never merged",
            FailureKind::Panic => "the core keeps its own invariants",
        }
    }
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: {kind:?}: {what}\n{detail}\n{trace}replay: {replay}")]
pub struct Failure {
    /// The seed that repeats it.
    pub seed: u64,
    /// The profile of the run.
    pub profile: Profile,
    /// The broken promise.
    pub kind: FailureKind,
    /// A description for people.
    pub what: String,
    /// The state of everything that the failure is about, for people who search for the cause; may be long,
    /// or empty.
    pub detail: String,
    /// The last part of the trace, line by line; empty if none was kept.
    pub trace: String,
    /// The command that shows the whole run.
    pub replay: String,
}

impl Failure {
    /// Returns the promise and its breach, in one line.
    pub fn headline(&self) -> String {
        let Failure { seed, profile, kind, what, .. } = self;
        let mut shown: String =
            what.chars().take(HEADLINE).map(|c| if c == '\n' { ' ' } else { c }).collect();
        if what.chars().nth(HEADLINE).is_some() {
            shown.push_str(" ...");
        }
        format!("seed {seed} of {profile} broke \"{}\" ({kind:?}): {shown}", kind.promise())
    }
}

/// Number of characters of the breach that a headline shows.
const HEADLINE: usize = 240;

/// A fault of the world's machines or networks. Each seed picks about a third of [`FaultKind::ALL`]; the
/// profile `busy` has all of them. A run in which a planned kind never occurred fails.
///
/// Beside these kinds, every run has: urgent messages that overtake entries, and relayed entries that
/// overtake those of their makers; entries that arrive again, from a third datacenter or after a reset;
/// timers that fire up to 2 ms late, so that events in between are handled first; clients that reclaim a
/// lock which they have released. In a third of the seeds monotonic clocks drift by up to 1 %. In half of
/// the seeds of `clocks` a server restarts up to two hours behind (`world/behind.rs`). A torn record, a
/// flipped bit, a failed sync and a wrong data directory are below the state machine: the tests of
/// `src/journal` have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A node stops at once and starts again later. A random part of what was not synced is lost, and the
    /// wall clock may be hours off afterwards.
    Crash,
    /// All nodes stop at once and start again later.
    CrashAll,
    /// A link loses everything in flight.
    LinkReset,
    /// A link carries nothing for a while: messages wait, and arrive late or never.
    CutPair,
    /// A link carries nothing one way for a while.
    CutOneWay,
    /// All links of a datacenter carry nothing for a while.
    Isolate,
    /// A link breaks several times in a row, each time with everything in flight.
    Flap,
    /// A wall clock jumps, by up to two hours either way.
    WallJump,
    /// A client stops without notice.
    ClientDies,
    /// A client loses its session.
    ClientDisconnects,
    /// A disk has little space for a while, or none.
    DiskFull,
    /// Some of 2 to 5 datacenters and the rest carry nothing to each other for a while: a majority and a
    /// minority, or halves.
    Split,
    /// A link loses 5 % of its messages for a while: a lost one arrives a round trip later, and all behind it
    /// wait.
    Lossy,
    /// Messages of a link take up to 300 ms longer for a while.
    Jitter,
    /// A link carries ten messages a second each way for a while.
    Slow,
    /// A link is up and carries nothing one way for a while: its end accepts and never answers.
    Mute,
    /// The process of a server stops for longer than every lease and timeout, and continues: all waiting
    /// messages arrive at once.
    Pause,
    /// The process of a client does the same.
    ClientPause,
    /// A node crashes and its disk is found as it was some time before, without a mark.
    DiskRolledBack,
    /// The same, and its operator has marked the copy as a restored one.
    DiskRestored,
    /// A node crashes and its disk is found empty.
    DiskLost,
}

impl FaultKind {
    /// Faults that leave durable data intact: any profile may have them.
    pub const ALL: [FaultKind; 18] = [
        FaultKind::Crash,
        FaultKind::CrashAll,
        FaultKind::LinkReset,
        FaultKind::CutPair,
        FaultKind::CutOneWay,
        FaultKind::Isolate,
        FaultKind::Flap,
        FaultKind::WallJump,
        FaultKind::ClientDies,
        FaultKind::ClientDisconnects,
        FaultKind::DiskFull,
        FaultKind::Split,
        FaultKind::Lossy,
        FaultKind::Jitter,
        FaultKind::Slow,
        FaultKind::Mute,
        FaultKind::Pause,
        FaultKind::ClientPause,
    ];
    /// Faults that lose durable data.
    pub const DISKS: [FaultKind; 3] =
        [FaultKind::DiskRolledBack, FaultKind::DiskRestored, FaultKind::DiskLost];
    /// Number of kinds.
    pub const COUNT: usize = FaultKind::ALL.len() + FaultKind::DISKS.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headline_is_one_line_that_says_what_was_promised_and_broken() {
        let what = format!("dc0 granted\n{}", "x".repeat(300));
        let failure = Failure {
            seed: 74,
            profile: Profile::Crashes,
            kind: FailureKind::TokenOrder,
            what,
            detail: "Client { .. }".to_owned(),
            trace: "a trace".to_owned(),
            replay: "geolock sim".to_owned(),
        };
        let line = failure.headline();
        let promise = "seed 74 of crashes broke \"a fencing token is above those of earlier conflicting grants\" (TokenOrder): dc0 granted xxx";
        assert!(line.starts_with(promise) && line.ends_with("x ...") && line.len() < 400, "{line}");
        assert!(!line.contains('\n') && !line.contains("Client"));
    }
}
