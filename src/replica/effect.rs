//! All that a datacenter can want done.

use std::sync::Arc;

use crate::causal_log::Violation;
use crate::crdt::VersionVector;
use crate::names::{DcId, LeaseId, Position, RequestId};
use crate::replica::anti_entropy::Summed;
use crate::replica::call::{CallId, Reply, SessionId};
use crate::replica::forced::Forced;
use crate::replica::fork::Fork;
use crate::replica::message::Message;
use crate::replica::record::{Checkpoint, Record};
use crate::replica::serving::NotServing;
use crate::replica::watch_call::{Changed, LockNews, WatchRefusal};
use crate::room::Room;
use crate::store_state::Bucket;

/// An output of [`super::Replica::poll_effect`], to be performed in this order. Everything that leaves the
/// datacenter has already waited for the journal: no effect has to wait for another.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append this record; positions come without gaps. Answered by [`super::Event::Durable`], one for many.
    Persist { position: Position, record: Record },
    /// Queue this on the link to `peer`, which is up. Answered by [`super::Event::Flushed`].
    Send { peer: DcId, message: Message },
    /// Answer this call. The session may be gone.
    Reply { call: CallId, reply: Reply },
    /// Tell this session something it did not ask for. The session may be gone.
    Notify { session: SessionId, notice: Notice },
    /// `peer` broke the protocol: close its link with this error. It may connect again.
    CloseLink { peer: DcId, violation: Violation },
    /// Keep this state once everything up to its position is durable; then what it covers can be forgotten.
    Checkpoint(Box<Checkpoint>),
    /// Tell the operator.
    Report(Report),
}

/// What a session is told unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The lease ended, with all that it held.
    LeaseEnded { lease: LeaseId },
    /// A reclaimed lock turned out to be somebody else's: this request holds nothing any more.
    LockLost { lease: LeaseId, request: RequestId },
    /// This request holds nothing any more: its locks were taken away. May be told twice.
    ForcedOut(Arc<Forced>),
    /// A watch of this session, by the tag of the call that began it, saw a commit.
    Changed(Box<Changed>),
    /// A watch of this session saw something happen to locks.
    Lock(Box<LockNews>),
    /// A watch was told all that there is for it up to here.
    Reached { watch: u64, vector: VersionVector },
    /// A watch is over: what follows cannot be told.
    WatchEnded { watch: u64, why: WatchRefusal },
}

/// What an operator is told: one line in the log each.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    PhaseChanged(crate::replica::call::Phase),
    PeerReachable {
        peer: DcId,
        reachable: bool,
    },
    /// `peer` is there and does not serve, or (`None`) serves again.
    PeerServes {
        peer: DcId,
        why: Option<NotServing>,
    },
    /// `peer` goes by another value of an option that all should have in common, in milliseconds.
    OptionDiffers {
        peer: DcId,
        option: &'static str,
        ours: u32,
        theirs: u32,
    },
    /// `peer`'s clock is ahead of ours, or behind (negative), by more than half of `max_clock_skew`.
    ClockDrifts {
        peer: DcId,
        ahead_ms: i64,
    },
    /// An entry of `dc` stamped that far ahead waits before the link from `peer`.
    EntryTooFarAhead {
        peer: DcId,
        dc: DcId,
        seq: u64,
        ahead_ms: u64,
    },
    /// Our clock is ahead of most peers by more than `max_clock_skew` (or no longer is): no entries are made.
    ClockSkew {
        active: bool,
    },
    /// After a restart our wall clock is ahead of most others that were heard by more than `max_clock_skew`, of each of these by
    /// at least so many milliseconds (`None`: no longer): nothing is stamped.
    ClockContradicted {
        ahead_ms: Option<i64>,
    },
    /// Our wall clock jumped; the hybrid clock follows slowly.
    WallClockJumped {
        ahead_ms: i64,
    },
    /// The journal's disk has more room than before, or less.
    DiskRoom {
        room: Room,
    },
    /// As many entries are kept for others as a minority may keep (or no longer are): no more are made.
    LogFull {
        full: bool,
    },
    /// A request lost its locks to an operator.
    Forced(Arc<Forced>),
    LeaseExpired {
        lease: LeaseId,
        held: usize,
        waiting: usize,
    },
    /// `peer` lacks entries that are no longer kept here: it needs a state transfer.
    PeerTooFarBehind {
        peer: DcId,
    },
    /// `peer` keeps what we lack no more: we ask for its state.
    StateWanted {
        peer: DcId,
    },
    /// The state of `peer` was taken over.
    StateTaken {
        peer: DcId,
        vector: VersionVector,
    },
    /// The state of `peer` came and was not taken over. It is tried again.
    StateOfNoUse {
        peer: DcId,
        why: &'static str,
    },
    /// Our state cannot be given to `peer`.
    StateNotGiven {
        peer: DcId,
        why: String,
    },
    /// `peer` shows its readers something else than we do, although both have applied the same: one of the two replicas is
    /// broken.
    DigestsDiffer {
        peer: DcId,
        bucket: Bucket,
    },
    /// `peer` had something else than we at a vector that both passed under load: one of the two replicas is broken.
    SumsDiffer {
        peer: DcId,
        of: Summed,
    },
    /// Peers know our log up to `theirs`, we only up to `ours`.
    OwnLogBehind {
        ours: u64,
        theirs: u64,
    },
    /// There are two histories: nothing is granted, moved or committed here any more.
    Forked(Fork),
}
