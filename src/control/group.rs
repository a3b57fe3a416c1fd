//! One member of the control group: start, propose, read, change, shut down.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use geolock_api::names::DcId;
use openraft::async_runtime::WatchReceiver;
use openraft::{Config, Raft, SnapshotPolicy};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinHandle;

use super::client::{Caller, Peers};
use super::config::{ControlConfig, Start, Timing};
use super::elections::keep_a_leader;
use super::error::{ProposeError, StartError, StoreError};
use super::fold::{Applied, Fold, SharedList};
use super::founding::{Founding, found};
use super::log_store::LogStore;
use super::machine::Machine;
use super::member::{MemberId, ServerId};
use super::message::{LeaderRequest, MemberStep};
use super::pieces::Assembly;
use super::serve::Contact;
use super::status::Status;
use super::store::Store;
use super::types::Types;
use crate::base::wire;
use crate::runtime::tasks::joined;

/// Most members that vote. More would make each decision wait for more of them, for no gain.
pub const MAX_VOTERS: usize = 7;
/// Most members: one for each slot, and a former generation of each that has not been removed yet.
pub(super) const MAX_MEMBERS: usize = 128;
/// Maximum size of an encoded command, in bytes.
pub const MAX_COMMAND: usize = 16 << 10;
/// Requests of others that are handled at a time, of Raft and of proposers each.
const MAX_HANDLED: usize = 64;
/// Entries of the log after which a snapshot is made, and entries that are kept before it: a member that was
/// away for fewer decisions gets them one by one.
const SNAPSHOT_AFTER: u64 = 512;

/// A member of the control group. Cheap to clone. Needs tokio with time.
pub struct ControlGroup<F: Fold>(pub(super) Arc<Core<F>>);

impl<F: Fold> Clone for ControlGroup<F> {
    fn clone(&self) -> ControlGroup<F> {
        ControlGroup(self.0.clone())
    }
}

/// The file of a member's vote and log, opened before the member starts: a server that is to join shows the
/// name of its directory first.
pub struct ControlFile(Store);

impl ControlFile {
    /// Opens the file in `dir`, or makes both, as those of `me`.
    pub fn open(dir: &Path, me: MemberId) -> Result<ControlFile, StoreError> {
        Store::open(dir, me).map(ControlFile)
    }

    /// The member that this file is of is known now: a server that joins learns its generation with its
    /// admission.
    pub fn of_member(self, me: MemberId) -> Result<ControlFile, StoreError> {
        self.0.of_member(me).map(ControlFile)
    }

    /// Returns the name of this directory.
    pub fn server_id(&self) -> ServerId {
        self.0.server()
    }

    /// Returns the state of the list in the last snapshot; the first state if there is none.
    pub fn saved_state<F: Fold>(&self) -> Result<F, StoreError> {
        match self.0.snapshot()? {
            Some(snapshot) => Ok(wire::decode("state of the list", &snapshot.state)?),
            None => Ok(F::default()),
        }
    }
}

/// The parts of a member.
pub(super) struct Core<F: Fold> {
    pub raft: Raft<Types, Machine<F>>,
    pub caller: Arc<Caller>,
    pub list: Arc<SharedList<F>>,
    pub decided: watch::Receiver<u64>,
    /// When the leader was last heard of.
    pub contact: Contact,
    /// When this member last voted for another one, or said that it would.
    pub voted: watch::Sender<Option<Instant>>,
    /// It asks the others if they would vote for it.
    pub asks: AtomicBool,
    pub founders: Option<BTreeSet<MemberId>>,
    pub founding: watch::Sender<Founding>,
    /// A snapshot that comes in pieces.
    pub assembly: std::sync::Mutex<Assembly>,
    pub for_raft: Semaphore,
    pub for_leader: Semaphore,
    pub stopping: AtomicBool,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    stop: watch::Sender<bool>,
}

impl<F: Fold> ControlGroup<F> {
    /// Starts a member where it was, or as `config` says if its directory is empty. Returns before the group
    /// is founded or has a leader.
    pub async fn start(config: ControlConfig) -> Result<ControlGroup<F>, StartError> {
        let file = ControlFile::open(&config.dir, config.me)?;
        ControlGroup::start_with(file, config).await
    }

    /// As [`ControlGroup::start`], with the file of `config.dir`, which is already open.
    pub async fn start_with(file: ControlFile, config: ControlConfig) -> Result<ControlGroup<F>, StartError> {
        ControlGroup::start_on(file.0, config).await
    }

    pub(super) async fn start_on(store: Store, config: ControlConfig) -> Result<ControlGroup<F>, StartError> {
        let founders = match config.start {
            Start::Found(founders) if !founders.contains(&config.me) => {
                return Err(StartError::NotAFounder(config.me));
            }
            Start::Follow(founders) if founders.contains(&config.me) => {
                return Err(StartError::Founder(config.me));
            }
            Start::Found(founders) | Start::Follow(founders) if founders.len() > MAX_VOTERS => {
                return Err(StartError::TooManyFounders(founders.len()));
            }
            Start::Found(founders) | Start::Follow(founders) => Some(founders),
            Start::Join => None,
        };
        let has_log = store.last()?.is_some();
        let (store, list) = (Arc::new(store), SharedList::new());
        let caller = Arc::new(Caller::new(config.me, store.server(), config.transport, config.timing));
        let (decided, decided_seen) = watch::channel(0);
        let machine = Machine { store: store.clone(), list: list.clone(), decided };
        let raft_config = Arc::new(raft_config()?);
        let peers = Peers(caller.clone());
        let raft = Raft::new(config.me, raft_config, peers, LogStore(store), machine).await;
        let core = Arc::new(Core {
            raft: raft.map_err(|error| StartError::Raft(error.to_string()))?,
            caller,
            list,
            decided: decided_seen,
            contact: Contact::default(),
            voted: watch::Sender::default(),
            asks: AtomicBool::new(false),
            founders,
            founding: watch::Sender::new(Founding::Waiting),
            assembly: std::sync::Mutex::default(),
            for_raft: Semaphore::new(MAX_HANDLED),
            for_leader: Semaphore::new(MAX_HANDLED),
            stopping: AtomicBool::new(false),
            tasks: Mutex::default(),
            stop: watch::Sender::new(false),
        });
        if has_log {
            core.loaded().await;
        }
        let founding = tokio::spawn(found(core.clone(), core.stop.subscribe()));
        let elections = tokio::spawn(keep_a_leader(core.clone(), core.stop.subscribe()));
        core.tasks.lock().await.extend([founding, elections]);
        Ok(ControlGroup(core))
    }

    /// Returns the name of this member's directory, by which [`MemberStep::AddLearner`] takes it in.
    pub fn server_id(&self) -> ServerId {
        self.0.caller.server
    }

    /// Asks a member of [`Start::Follow`] for the name of its directory, by which it is taken in. `None` if
    /// it does not answer now.
    pub async fn directory_of(&self, member: MemberId) -> Option<ServerId> {
        let identity = self.0.identity_of(member, self.0.status().voters).await;
        identity.map(|identity| identity.server)
    }

    /// Returns true if a member answers now, with another directory than the group knows it by: its own was
    /// lost or exchanged.
    pub async fn has_lost_directory(&self, member: MemberId) -> bool {
        let (known, present) = (self.0.server_of(member), self.directory_of(member).await);
        known.zip(present).is_some_and(|(known, present)| known != present)
    }

    /// Proposes a command and returns the number of the decision that it became. The leader may be elsewhere.
    ///
    /// A command is decided at least once if this returns a number, and may be decided, also later, after
    /// [`ProposeError::Timeout`] and [`ProposeError::ShuttingDown`]. So callers repeat, and a command says
    /// itself which state it is made for. Takes at most 16 election timeouts.
    pub async fn propose(&self, command: &F::Command) -> Result<u64, ProposeError> {
        let limit = MAX_COMMAND;
        let encoded = wire::encode("command", command);
        let bytes = encoded.map_err(|_| ProposeError::TooLarge { size: wire::MAX_FRAME + 1, limit })?;
        if bytes.len() > limit {
            return Err(ProposeError::TooLarge { size: bytes.len(), limit });
        }
        self.0.at_leader(LeaderRequest::Propose(bytes.into())).await
    }

    /// Returns the number of the last decision, once this member has applied it: every decision that anybody
    /// knew of when this was called is in [`ControlGroup::applied`] then.
    pub async fn read_index(&self) -> Result<u64, ProposeError> {
        let index = self.0.at_leader(LeaderRequest::ReadIndex).await?;
        self.reaches(index, self.0.timing().request()).await?;
        Ok(index)
    }

    /// Waits until this member has applied decision `index`, for at most that time.
    pub async fn reaches(&self, index: u64, limit: Duration) -> Result<(), ProposeError> {
        let mut decided = self.0.decided.clone();
        match tokio::time::timeout(limit, decided.wait_for(|n| *n >= index)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ProposeError::ShuttingDown),
            Err(_) => Err(ProposeError::Timeout),
        }
    }

    /// Changes the members of the group by one step. Returns once a majority has it.
    pub async fn change(&self, step: MemberStep) -> Result<(), ProposeError> {
        self.0.at_leader(LeaderRequest::Change(step)).await.map(drop)
    }

    /// Hands the leadership, if this member has it, over to one of these voters. Returns the one that is to
    /// lead.
    pub async fn hand_over(&self, to: &BTreeSet<MemberId>) -> Option<MemberId> {
        self.0.hand_over(to).await
    }

    /// Waits until another member leads, or none.
    pub async fn led_elsewhere(&self) {
        self.0.led_elsewhere().await;
    }

    /// Returns a reader of the decisions after decision `seen`; 0 for all.
    pub fn applied(&self, seen: u64) -> Applied<F> {
        Applied { seen, list: self.0.list.clone(), decided: self.0.decided.clone() }
    }

    /// Returns the state of the list, after the decisions that this member has applied.
    pub fn state(&self) -> F {
        self.0.list.lock().state.clone()
    }

    /// Returns the state of this member.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Answers a request of another member: the receiving side of
    /// [`ControlTransport`](super::ControlTransport). `from` is the datacenter that the request is from, as
    /// far as the links know. Any bytes are answered; a member that shuts down answers with a refusal.
    pub async fn handle_request(&self, from: DcId, request: Bytes) -> Bytes {
        self.0.handle_request(from, &request).await
    }

    /// Stops this member. Answers of requests that are under way may be lost. The file can be opened again
    /// once all clones of this and all futures of it are dropped.
    pub async fn shutdown(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        self.0.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.0.tasks.lock().await);
        for task in tasks {
            joined(task.await);
        }
        // An error means that the core had panicked: that has ended the process, or a test.
        let _ = self.0.raft.shutdown().await;
    }
}

impl<F: Fold> Core<F> {
    /// Returns the times for the round trips that were measured last.
    pub(super) fn timing(&self) -> Timing {
        *self.caller.timing.borrow()
    }

    /// Waits until openraft shows the members that it has read from the log. Until then this member would
    /// deny to be in a group, and a founder that lost its directory could found another one.
    async fn loaded(&self) {
        let mut metrics = self.raft.metrics();
        while !self.is_in_group() && self.status().failed.is_none() {
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Returns the options of openraft. Its times are fixed, so they are those for members that are far apart,
/// and elections, leases and heartbeats are ours ([`keep_a_leader`]).
fn raft_config() -> Result<Config, StartError> {
    let millis = |duration: Duration| duration.as_millis() as u64;
    let longest = millis(Timing::LONGEST);
    let config = Config {
        cluster_name: "control".into(),
        enable_elect: false,
        // The limit for the answer to a vote, wherever the voter is, and a lease that is not used.
        election_timeout_min: longest,
        election_timeout_max: 2 * longest,
        // The limit for the answer to a heartbeat.
        heartbeat_interval: longest / 4,
        install_snapshot_timeout: longest,
        // Before a member that was not reached is asked again.
        backoff: "100ms ...500ms".into(),
        enable_pre_vote: Some(false),
        max_payload_entries: 64,
        replication_lag_threshold: SNAPSHOT_AFTER * 2,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_AFTER),
        max_in_snapshot_log_to_keep: SNAPSHOT_AFTER,
        api_channel_size: Some(1024),
        notification_channel_size: Some(1024),
        state_machine_channel_size: Some(256),
        ..Config::default()
    };
    config.validate().map_err(|error| StartError::Raft(error.to_string()))
}
