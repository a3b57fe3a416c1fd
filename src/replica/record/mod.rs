//! The data of a datacenter on disk: records in its journal, and checkpoints.
//!
//! Disk types: enum variants are encoded by position (append only), golden bytes are in `wire.rs`.
//!
//! # Decisions
//!
//! - **A checkpoint is read in small steps, at a snapshot of its own** (`checkpoint_builder.rs`,
//!   `lock_state/request_table.rs`). Leases that end meanwhile are noted for it (`leases/reader.rs`), and
//!   entries are not truncated before they are copied. Outcomes of transactions are copied as they are,
//!   without those of later commits: an outcome that its client acknowledges meanwhile is no longer needed.
//! - **Truncation is recorded** (`Record::Forgotten`), some hundred entries at a time. Otherwise a restart
//!   would keep all entries since the last checkpoint until every member was heard.
//! - **Records are read twice**, once for validation and once for replay, so the log is never in memory as
//!   a whole.

pub(super) mod checkpoint_builder;
pub(super) mod recover;
pub(super) mod v1;
pub(super) mod v2;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::time::Timestamp;
use crate::base::wire::{self, WireError};
use crate::causal_log::Entry;
use crate::crdt::{Ownership, VersionVector};
pub use crate::leases::LeaseRecord;
pub use crate::lock_state::RequestRow;
use crate::membership::{Epoch, Index, LossReport, Proposal, RecoveryPromise};
use crate::replica::clients::force_release::ForceReleased;
use crate::replica::lifecycle::Fork;
use crate::replica::members::{ListState, MembersState, MembersStateV3};
use crate::replica::{CheckpointV1, CommitContent, OutcomeRow, Past, StatePiece};
use crate::store_state::Content;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet, IdempotencyKey, LeaseId, Position};

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Record {
    /// [`Record::Entry`] as version 1 wrote it.
    EntryV1(#[serde(with = "crate::causal_log::v1::entry")] Arc<Entry>),
    /// An id reservation: until the next one, no clock reading above `clock` and no request number from `n`
    /// on is used.
    IdReservation { clock: Timestamp, n: u64 },
    /// A client opened this lease.
    LeaseOpened(LeaseRecord),
    /// A lease ended, with all its requests.
    LeaseEnded { lease: LeaseId },
    /// Every member was heard once, and all that they knew is here: no member knows more of this datacenter's
    /// log.
    Joined,
    /// The next piece of another datacenter's state. Means nothing before [`Record::StateTaken`].
    StatePiece(StatePiece),
    /// The state of all pieces since number 0 is installed: the entries in `vector` are applied here.
    StateTaken { vector: VersionVector },
    /// All records before this one are a copy of a data directory that was used elsewhere since: more was
    /// used than they show.
    Restored,
    /// A held request lost its locks to an operator: it can never be reclaimed.
    ForceReleased(Arc<ForceReleased>),
    /// An entry, own or foreign, in the order of application.
    Entry(Arc<Entry>),
    /// A fork was found: nothing is granted, made or applied from here on.
    Forked(Fork),
    /// An operator keeps this history and has removed the others.
    ForkResolved,
    /// From here on tokens are ahead of the clock by this many milliseconds.
    TokenLead { millis: u64 },
    /// Of the entries before this record, those in this vector are truncated. They come first in the order of
    /// application.
    Forgotten { entries: VersionVector },
    /// All members are known to speak this version of the protocol.
    AllSpeak { version: u16 },
    /// A decision of the control group, by its number.
    Decided { index: Index, proposal: Box<Proposal> },
    /// As a voter this member is silent about `of`: it acknowledges no heartbeat of it until a later
    /// statement is decided. `number` is that of the statement, `policy` the epoch of the policy for which
    /// the silence was counted.
    Silent { of: DcId, number: u64, policy: Epoch },
    /// As a survivor this member promises to take nothing more of the members that a forced recovery gives
    /// up, and no decision of the control group before it; or it was given up.
    RecoveryPromised(RecoveryPromise),
    /// A forced recovery is entered with the next own entry: what it takes with it.
    Recovered(Box<LossReport>),
    /// An operator has taken the leave of this member back: it appends no `Leave` until it knows that it
    /// stays.
    StayPromised,
    /// This epoch is entered. An own entry of before, which this disk has lost, says so, and comes back.
    EnteredAgain { epoch: Epoch },
    /// The decisions that are known begin after these, which are compacted elsewhere, and of which some were
    /// not known here.
    Compacted(Box<ListState>),
}

impl Checkpoint {
    /// Returns the bytes of this checkpoint.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let tail = Tail {
            members_state: Cow::Borrowed(&self.members_state),
            lost_commits: Cow::Borrowed(&self.lost_commits),
            commit_contents: Cow::Borrowed(&self.commit_contents),
            compacted: self.members_state.as_ref().map(|state| Cow::Borrowed(&*state.compacted)),
        };
        wire::encode_checkpoint(self, (tail != Tail::default()).then_some(&tail))
    }

    /// Reads a checkpoint of this version or an earlier one.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, WireError> {
        let (checkpoint, tail) =
            wire::decode_checkpoint::<Checkpoint, CheckpointV1, Tail, TailV3, TailV4>(bytes)?;
        let Tail { members_state, lost_commits, commit_contents, compacted } = tail.unwrap_or_default();
        let compacted = Box::new(compacted.unwrap_or_default().into_owned());
        Ok(Checkpoint {
            members_state: members_state.into_owned().map(|state| MembersState { compacted, ..state }),
            lost_commits: lost_commits.into_owned(),
            commit_contents: commit_contents.into_owned(),
            ..checkpoint
        })
    }
}

/// The fields of a checkpoint behind those of version 2, stored if it has any: see `base/wire.rs`.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
struct Tail<'a> {
    members_state: Cow<'a, Option<MembersState>>,
    lost_commits: Cow<'a, [(LeaseId, IdempotencyKey)]>,
    commit_contents: Cow<'a, [CommitContent]>,
    /// Of the members.
    compacted: Option<Cow<'a, ListState>>,
}

/// The same in version 4. Disk type: this never changes.
#[derive(Deserialize)]
struct TailV4 {
    members_state: Option<MembersState>,
    lost_commits: Vec<(LeaseId, IdempotencyKey)>,
    commit_contents: Vec<CommitContent>,
}

impl From<TailV4> for Tail<'_> {
    fn from(TailV4 { members_state, lost_commits, commit_contents }: TailV4) -> Self {
        let (members_state, lost_commits) = (Cow::Owned(members_state), Cow::Owned(lost_commits));
        let commit_contents = Cow::Owned(commit_contents);
        Tail { members_state, lost_commits, commit_contents, compacted: None }
    }
}

/// The same in version 3. Disk type: this never changes.
#[derive(Deserialize)]
struct TailV3 {
    members_state: Option<MembersStateV3>,
    lost_commits: Vec<(LeaseId, IdempotencyKey)>,
}

impl From<TailV3> for Tail<'_> {
    fn from(TailV3 { members_state, lost_commits }: TailV3) -> Self {
        let members_state = Cow::Owned(members_state.map(MembersState::from));
        let lost_commits = Cow::Owned(lost_commits);
        Tail { members_state, lost_commits, ..Tail::default() }
    }
}

/// The state on disk that the records up to `position` amount to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The last record that it covers.
    pub position: Position,
    /// The members of the entered epoch. While there are no decisions, the configuration must name the same.
    pub members: DcSet,
    /// Every member was heard once, as in [`Record::Joined`].
    pub joined: bool,
    /// The id reservation: no higher clock reading was used.
    pub clock: Timestamp,
    /// The id reservation: no request or lease number from this one on was used.
    pub n: u64,
    /// The vector of the entries that are applied.
    pub applied: VersionVector,
    /// The stamp of the last applied entry of each datacenter.
    pub last_stamps: Vec<(DcId, Timestamp)>,
    /// The owners of the parts that are not at their homes.
    pub ownership: Ownership,
    /// The request table, by id.
    pub requests: Vec<RequestRow>,
    /// In no order.
    pub leases: Vec<LeaseRecord>,
    /// The contents of keys, in no order.
    pub contents: Vec<(Key, Content)>,
    /// Outcomes of transactions, by lease.
    pub outcomes: Vec<OutcomeRow>,
    /// Entries that some member may still lack, in the order of application.
    pub log: Vec<Arc<Entry>>,
    /// Further entries from which watches can resume.
    pub past: Past,
    /// Force releases: the latest ones, and all of living leases. By number.
    pub forced: Vec<Arc<ForceReleased>>,
    /// For each log the hashes of its last entries, up to `applied`; 0: not known.
    pub hashes: Vec<(DcId, Vec<u64>)>,
    /// The highest version of the protocol that all members were known to speak: from 2 on, own entries name
    /// their predecessor. On disk it is one less: version 2 had a boolean here.
    #[serde(with = "one_less")]
    pub all_speak: u16,
    /// The fork that was found and is not resolved.
    pub fork: Option<Fork>,
    /// The token lead, in milliseconds.
    pub lead_ms: u64,
    /// The members, once there are decisions about them. Stored behind the rest.
    #[serde(skip)]
    pub members_state: Option<MembersState>,
    /// Own commits that came back from peers after the disk had lost their leases. Stored behind the rest.
    #[serde(skip)]
    pub lost_commits: Vec<(LeaseId, IdempotencyKey)>,
    /// The known contents of the commits in `outcomes`. Stored behind the rest.
    #[serde(skip)]
    pub commit_contents: Vec<CommitContent>,
}

/// A number from 1 on as one less, for `#[serde(with)]`.
mod one_less {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(number: &u16, serializer: S) -> Result<S::Ok, S::Error> {
        number.saturating_sub(1).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
        Ok(u16::deserialize(deserializer)?.saturating_add(1))
    }
}
