//! All outputs of a datacenter.

use std::sync::Arc;

use crate::base::capacity::DiskSpace;
use crate::causal_log::Violation;
use crate::crdt::VersionVector;
use crate::membership::{LossReport, Proposal};
use crate::replica::call::watch::{Changed, LockNews, WatchRefusal};
use crate::replica::call::{CallId, Reply, SessionId};
use crate::replica::clients::force_release::ForceReleased;
use crate::replica::lifecycle::{Fork, NotServing};
use crate::replica::message::Message;
use crate::replica::peers::anti_entropy::Summed;
use crate::replica::record::{Checkpoint, Record};
use crate::store_state::Bucket;
use geolock_api::names::{DcId, LeaseId, Position, RequestId};

/// An output of [`super::Replica::poll_effect`], to be performed in this order. The machine has already
/// waited for the journal before it emits an output, so no effect waits for another
/// (`docs/algorithm/log.md#13-output-commit`).
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Effect {
    /// Append this record at `position`. Positions have no gaps. [`super::Event::Durable`] follows, one for
    /// many records.
    Persist { position: Position, record: Record },
    /// Queue this message on the link to `peer`, which is up. [`super::Event::Flushed`] follows.
    Send { peer: DcId, message: Message },
    /// Send this reply to the session of `call`. The session may have ended.
    Reply { call: CallId, reply: Reply },
    /// Send this notice to a session. The session may have ended.
    Notify { session: SessionId, notice: Notice },
    /// `peer` broke the protocol: close its link with this error. It may connect again.
    CloseLink { peer: DcId, violation: Violation },
    /// Store this checkpoint once everything up to its position is durable. Then the records that it covers
    /// can be dropped.
    Checkpoint(Box<Checkpoint>),
    /// Report this to the operator.
    Report(Report),
    /// Propose this to the control group. It may be lost, and may be decided twice.
    Propose(Box<Proposal>),
}

/// A message to a session that is not the reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Notice {
    /// The lease ended, with all its held and waiting requests.
    LeaseEnded { lease: LeaseId },
    /// A reclaimed lock belongs to another holder: this request holds nothing any more.
    LockLost { lease: LeaseId, request: RequestId },
    /// This request holds nothing any more: an operator released its locks by force. May be sent twice.
    ForceReleased(Arc<ForceReleased>),
    /// A commit for a watch of this session. It carries the tag of the call that began the watch.
    Changed(Box<Changed>),
    /// A change of locks for a watch of this session.
    Lock(Box<LockNews>),
    /// All changes up to this vector that match the watch have been sent. `watch`: the tag of the call that
    /// began it.
    Progress { watch: u64, vector: VersionVector },
    /// The watch ended: later changes cannot be sent, for the reason `why`.
    WatchEnded { watch: u64, why: WatchRefusal },
}

/// A report to the operator: one line in the log each.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Report {
    /// This datacenter has entered another phase of its lifecycle.
    PhaseChanged(crate::replica::call::Phase),
    /// A command was not proposed to the control group. `why`: for people.
    ProposalRefused { why: String },
    /// A forced recovery was refused, or given up. `why`: for people.
    RecoveryRefused { why: String },
    /// A forced recovery is entered: what it takes with it.
    Recovered(Box<LossReport>),
    /// `peer` is reachable again, directly or through others, or no longer.
    PeerReachable { peer: DcId, reachable: bool },
    /// `peer` is reachable and does not serve, or (`None`) serves again.
    PeerServes { peer: DcId, why: Option<NotServing> },
    /// `peer` has another value of the option with this name, which must be equal in the cluster. Values are
    /// in milliseconds.
    OptionDiffers { peer: DcId, option: &'static str, ours: u32, theirs: u32 },
    /// `peer` has another file of this option, which should have the same meaning everywhere. `ours`,
    /// `theirs`: there is a file.
    AccessDiffers { peer: DcId, option: &'static str, ours: bool, theirs: bool },
    /// The clock of `peer` is ahead of ours, or behind (negative), by more than half of `max_clock_skew`.
    ClockDrifts { peer: DcId, ahead_ms: i64 },
    /// Entry `seq` of `dc` is stamped `ahead_ms` milliseconds ahead of our clock and is held back on the link
    /// from `peer`.
    EntryTooFarAhead { peer: DcId, dc: DcId, seq: u64, ahead_ms: u64 },
    /// Our clock is ahead of most peers by more than `max_clock_skew` (or no longer is): we make no entries.
    ClockSkew { active: bool },
    /// Our clock is behind most peers by more than `max_clock_skew`, by at least `by_ms` milliseconds (or
    /// `None`: no longer): we hold their entries back.
    ClockBehind { by_ms: Option<u64> },
    /// Our wall clock was set forward, and other clocks confirm it: the hybrid clock has followed by so many
    /// milliseconds at once.
    ClockSetForward { by_ms: u64 },
    /// After a restart our wall clock is ahead of the clocks of most heard members by more than
    /// `max_clock_skew`; `ahead_ms` is the least of these differences. `None`: no longer. Meanwhile we stamp
    /// nothing.
    ClockContradicted { ahead_ms: Option<i64> },
    /// Our wall clock jumped: it is ahead of our hybrid clock by so many milliseconds, or behind (negative).
    /// The hybrid clock follows slowly.
    WallClockJumped { ahead_ms: i64 },
    /// The journal's disk has more room than before, or less.
    DiskRoom { room: DiskSpace },
    /// A minority keeps as many entries for the others as it may (or no longer does): it makes no more
    /// entries.
    LogFull { full: bool },
    /// An operator released the locks of a request by force.
    ForceReleased(Arc<ForceReleased>),
    /// A lease was not renewed, or not reclaimed, in time and ended, with this number of held and of waiting
    /// requests.
    LeaseExpired { lease: LeaseId, held: usize, waiting: usize },
    /// `peer` lacks entries that are truncated here: it needs a state transfer.
    PeerTooFarBehind { peer: DcId },
    /// `peer` has truncated entries that we lack: we ask for its state.
    StateWanted { peer: DcId },
    /// The state of `peer` was installed: the entries in `vector` are applied here.
    StateTaken { peer: DcId, vector: VersionVector },
    /// The state of `peer` was received and could not be installed. We try again.
    StateOfNoUse { peer: DcId, why: &'static str },
    /// Our state cannot be sent to `peer`: an item of it cannot be encoded.
    StateNotGiven { peer: DcId, why: String },
    /// `peer` shows its readers different data in this bucket than we do, although both have applied the same
    /// entries: one of the two replicas is broken.
    DigestsDiffer { peer: DcId, bucket: Bucket },
    /// `peer` had different data than we at a vector that both passed under load: one of the two replicas is
    /// broken.
    SumsDiffer { peer: DcId, of: Summed },
    /// Peers know our log up to `theirs`, we know it only up to `ours`.
    OwnLogBehind { ours: u64, theirs: u64 },
    /// Two histories of one log exist: we no longer grant, transfer or commit.
    Forked(Fork),
}
