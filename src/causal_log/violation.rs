//! Violations of the rules of the log (`docs/algorithm/log.md#16-validation`). Such an entry is never
//! applied, and the link that delivered it is closed.

use crate::base::time::Timestamp;
use crate::causal_log::commit::CommitFault;
use crate::causal_log::entry::WantsError;
use geolock_api::names::{ClusterId, DcId, DcSet, EntryNumber, LockName, RequestId};

/// A peer broke the protocol. Nothing of the message was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum Violation {
    #[error("entry {dc}:{} {fault}", EntryNumber(*.seq))]
    Entry { dc: DcId, seq: u64, fault: EntryFault },
    #[error("{entries} entries of {bytes} bytes wait for others that do not come")]
    TooManyHeldBack { entries: usize, bytes: usize },
    #[error("a message names {dc}, which is no member of this cluster")]
    UnknownDc { dc: DcId },
    #[error(
        "its cluster has the members {theirs:?}, ours {ours:?}: in this version members cannot be added or removed by editing \
         the configuration; make it the same in all datacenters"
    )]
    Members { theirs: DcSet, ours: DcSet },
    #[error("two owners of part {part} of lock {lock} at version {version}: {ours} here, {theirs} there")]
    DoubleOwner { lock: LockName, part: DcId, version: u64, ours: DcId, theirs: DcId },
    #[error("a message asks for {count} locks, at most {limit} are answered")]
    QueryTooLarge { count: usize, limit: usize },
    #[error("the state that it gives cannot be taken over: {why}")]
    State { why: String },
    #[error(
        "it speaks version {speaks} of the protocol, but all members have spoken version {all} before: run the release \
         there that the others run"
    )]
    OldVersion { speaks: u16, all: u16 },
}

/// The rule that an entry breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum EntryFault {
    #[error("belongs to cluster {0}")]
    Cluster(ClusterId),
    #[error("is of epoch {epoch}, its predecessor of epoch {before}")]
    Epoch { epoch: u64, before: u64 },
    #[error("is of a datacenter that is no member")]
    UnknownDc,
    #[error("does not follow its predecessor: it says that it was made at {}", EntryNumber(*.deps_on_self))]
    Gap { deps_on_self: u64 },
    #[error("depends on {dc}, which is no member")]
    UnknownDependency { dc: DcId },
    #[error("is stamped {at}, its predecessor {before}")]
    StampNotIncreasing { at: Timestamp, before: Timestamp },
    #[error("publishes request {id} of another datacenter")]
    ForeignRequest { id: RequestId },
    #[error("publishes request {id} a second time")]
    DuplicateRequest { id: RequestId },
    #[error("publishes request {id} for {at}, more than 500 ms after its own stamp")]
    RequestFromTheFuture { id: RequestId, at: Timestamp },
    #[error("publishes request {id}: {error}")]
    Wants { id: RequestId, error: WantsError },
    #[error("withdraws request {id} of another datacenter")]
    ForeignWithdraw { id: RequestId },
    #[error("transfers part {part} of lock {lock} to {to}, which is no member")]
    TransferToStranger { lock: LockName, part: DcId, to: DcId },
    #[error("transfers part {part} of lock {lock}, which {owner} owns")]
    NotTheOwner { lock: LockName, part: DcId, owner: DcId },
    #[error("transfers part {part} of lock {lock} as version {version} after version {current}")]
    WrongVersion { lock: LockName, part: DcId, version: u64, current: u64 },
    #[error("transfers part {part} of lock {lock} twice")]
    MovedTwice { lock: LockName, part: DcId },
    #[error("commits, but {0}")]
    Commit(#[from] CommitFault),
    #[error("transfers part {part} of lock {lock}: there is no such part")]
    UnknownPart { lock: LockName, part: DcId },
    #[error("publishes request {id}: no datacenter ever made so many")]
    RequestNumber { id: RequestId },
    #[error(
        "splits off part {part}, but its maker is not the sponsor of that part, or it was split off before"
    )]
    NotTheSponsor { part: DcId },
    #[error(
        "says that nothing goes along of part {part}, which is settled, or which its maker has not split off"
    )]
    NotSplit { part: DcId },
    #[error("names lock {lock}, whose home is no member")]
    UnknownHome { lock: LockName },
    #[error("is of a generation of its datacenter that is not a member in epoch {epoch}")]
    Generation { epoch: u64 },
    #[error("frees slot {slot}, which has a member")]
    NotOver { slot: DcId },
    #[error("gives parts by the rule of epoch {epoch}; there is no such rule, or it did so before")]
    NotRehoming { epoch: u64 },
    #[error("names the token of a commit, and has none")]
    UnderNothing,
}
