//! This server's part in the control group: its start, its end, and the handle for operators.
//!
//! It runs on a thread of its own, with a runtime of its own, like the links. An election, or a sync of its
//! file, may then take as long as it likes: no client and no lock waits for that thread.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};

use super::decisions::DecisionList;
use super::lanes::Lanes;
use super::leading::Leading;
use super::succession::succession;
use super::tasks::{Calls, Frames, Outputs, follow_decisions, follow_links};
use crate::control::{
    ControlConfig, ControlFile, ControlGroup, MAX_VOTERS, MemberId, ProposeError, Relay, Start, StartError,
    Timing,
};
use crate::interdc::{ControlFrame, JoinCall, Links};
use crate::lock_server::{MembersHandle, MembersInput, MembersOutput, MembersView};
use crate::membership::{
    Attempt, Command, Config, Evictee, Eviction, Founding, Index, Lineage, MemberName, Phase, Policy,
    Proposal, Refused, TextError, Vouch,
};
use crate::runtime::tasks::joined;
use geolock_api::names::{DcId, DcSet};

/// Most frames that wait; then the control lanes of the peers stop. A frame has at most 64 KiB.
const WAITING_FRAMES: usize = 64;
/// Most servers that wait for an answer to their request to join.
const WAITING_CALLS: usize = 16;
/// How long an operator waits until a decision is known here, after it was made.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// How often a command of an operator is checked again because others were decided meanwhile.
const ATTEMPTS: usize = 3;

/// The reason why this server takes no part in the control group. It serves locks all the same.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the members of the configuration cannot found the cluster: {0}")]
    Founding(#[from] Refused),
    #[error(
        "{0} members are configured, and at most {MAX_VOTERS} can found a control group: no server can join"
    )]
    TooMany(usize),
    #[error("the members of the configuration cannot found the cluster: {0}")]
    Text(TextError),
    #[error("the operating system gives no random numbers")]
    NoRandomness,
}

/// How the control group begins at this server.
pub enum Founders {
    /// These members found the cluster, this one among them.
    Configured(Result<Founding, TextError>),
    /// The group exists, and takes this server in.
    Joins,
}

/// Everything that this server needs to take part.
pub struct GroupConfig {
    pub me: MemberId,
    /// The data directory.
    pub dir: PathBuf,
    /// Its file, if it is open already.
    pub file: Option<ControlFile>,
    pub founders: Founders,
    pub timing: Timing,
    /// How long clients of any member may believe in their leases.
    pub max_lease_ttl: Duration,
}

/// Where the links put what is for the control group.
pub struct Channels {
    frames: mpsc::Receiver<ControlFrame>,
    calls: mpsc::Receiver<JoinCall>,
}

/// Returns the channels, and their senders for the links.
pub fn channels() -> (Channels, mpsc::Sender<ControlFrame>, mpsc::Sender<JoinCall>) {
    let (frames_in, frames) = mpsc::channel(WAITING_FRAMES);
    let (calls_in, calls) = mpsc::channel(WAITING_CALLS);
    (Channels { frames, calls }, frames_in, calls_in)
}

/// The thread of the control group. Dropping it stops that thread without waiting for it;
/// [`Group::shutdown`] waits.
pub struct Group {
    api: MembersApi,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
    thread: thread::JoinHandle<()>,
}

impl Group {
    /// Starts the thread. It opens or founds this server's part; if that fails, it logs the reason, and the
    /// server serves its locks without it.
    pub fn start(
        config: GroupConfig,
        channels: Channels,
        links: Links,
        members: MembersHandle,
    ) -> io::Result<Group> {
        let dc = config.me.dc;
        let control = watch::Sender::new(None);
        let api = MembersApi {
            me: dc,
            max_lease_ttl: config.max_lease_ttl,
            control: control.subscribe(),
            inputs: members.inputs.clone(),
            view: members.view.clone(),
        };
        let (stop, stopping) = watch::channel(false);
        let (ending, ended) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let sources = Sources::new(channels, links, members);
        let run = async move {
            if let Err(error) = run(config, sources, control, stopping).await {
                tracing::error!(%dc, %error, "this server takes no part in the control group");
            }
        };
        let thread = thread::Builder::new().name(format!("control-{dc}")).spawn(move || {
            runtime.block_on(run);
            // The receiver may be dropped.
            let _ = ending.send(());
        })?;
        Ok(Group { api, stop, ended, thread })
    }

    /// Returns the handle for operators.
    pub fn api(&self) -> MembersApi {
        self.api.clone()
    }

    /// Ends everything. A proposal that is under way may be decided or not.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        // An error means that the thread panicked; joining it propagates the panic.
        let _ = self.ended.await;
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Takes part until it is to stop: in the group of the file, and then, whenever the cluster is recovered by
/// force, in the one that takes its place.
async fn run(
    mut config: GroupConfig,
    sources: Sources,
    control: watch::Sender<Option<ControlGroup<DecisionList>>>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), GroupError> {
    let (me, dir) = (config.me, config.dir.clone());
    let (timing, max_lease_ttl) = (config.timing, config.max_lease_ttl);
    loop {
        let running = Running::start(config, &sources).await?;
        let lineage = running.lineage;
        control.send_replace(Some(running.control.clone()));
        let succession = tokio::select! {
            // An error means that the handle is dropped, which is also a stop.
            _ = stopping.wait_for(|stop| *stop) => None,
            succession = succession(sources.view.clone(), me, lineage) => succession,
        };
        control.send_replace(None);
        running.shutdown().await;
        let Some(succession) = succession else { return Ok(()) };
        let begun = {
            let dir = dir.clone();
            joined(spawn_blocking(move || succession.begin(&dir, me)).await)
        };
        let file = begun.map_err(StartError::from)?;
        tracing::warn!(dc = %me.dc, "the control group begins anew: the cluster was recovered by force");
        let founders = Founders::Joins;
        config = GroupConfig { me, dir: dir.clone(), file: Some(file), founders, timing, max_lease_ttl };
    }
}

/// The channels of the tasks of a group, which the next group takes over.
#[derive(Clone)]
pub(super) struct Sources {
    frames: Arc<AsyncMutex<mpsc::Receiver<ControlFrame>>>,
    calls: Arc<AsyncMutex<mpsc::Receiver<JoinCall>>>,
    outputs: Arc<AsyncMutex<mpsc::Receiver<MembersOutput>>>,
    inputs: mpsc::Sender<MembersInput>,
    view: watch::Receiver<MembersView>,
    links: Links,
}

impl Sources {
    fn new(channels: Channels, links: Links, members: MembersHandle) -> Sources {
        let MembersHandle { inputs, outputs, view } = members;
        Sources {
            frames: Arc::new(AsyncMutex::new(channels.frames)),
            calls: Arc::new(AsyncMutex::new(channels.calls)),
            outputs: Arc::new(AsyncMutex::new(outputs)),
            inputs,
            view,
            links,
        }
    }
}

/// The running tasks, as their thread sees them.
struct Running {
    lineage: Lineage,
    control: ControlGroup<DecisionList>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Opens or founds this server's part, and starts its tasks. Returns before there is a leader.
    async fn start(config: GroupConfig, sources: &Sources) -> Result<Running, GroupError> {
        let Sources { frames: arrived, calls: asked, outputs, inputs, view, links } = sources.clone();
        let GroupConfig { me, dir, file, founders, timing, max_lease_ttl: _ } = config;
        let (start, founding) = match founders {
            Founders::Configured(founding) => {
                let founding = founding.map_err(GroupError::Text)?;
                (Start::Found(founders_of(&founding)?), Some(founding))
            }
            Founders::Joins => (Start::Join, None),
        };
        let relay = Relay::new(me.dc, Lanes::new(links.clone()), first_id()?);
        let file = match file {
            Some(file) => file,
            None => ControlFile::open(&dir, me).map_err(StartError::from)?,
        };
        let saved: DecisionList = file.saved_state().map_err(StartError::from)?;
        let lineage = saved.0.lineage();
        let config = ControlConfig { me, dir, start, timing, transport: Arc::clone(&relay) as _ };
        let control = ControlGroup::<DecisionList>::start_with(file, config).await?;

        let last_refusal = Arc::new(Mutex::new(None));
        let stop = watch::Sender::new(false);
        let mut running = Running { lineage, control, stop, tasks: Vec::new() };
        let control = || running.control.clone();
        let frames = Frames { control: control(), relay: Arc::clone(&relay), links: links.clone() };
        let leading = Leading {
            group: control(),
            founding,
            view: view.clone(),
            inputs: inputs.clone(),
            links: links.clone(),
        };
        let calls = Calls {
            control: control(),
            me: me.dc,
            view,
            inputs: inputs.clone(),
            last_refusal: Arc::clone(&last_refusal),
        };
        let outputs_of = Outputs { control: control(), last_refusal };
        let decisions = follow_decisions(control(), inputs);
        running.spawn(async move { frames.run(&mut *arrived.lock().await).await });
        running.spawn(follow_links(links.control_peers(), relay));
        running.spawn(decisions);
        running.spawn(async move { outputs_of.run(&mut *outputs.lock().await).await });
        running.spawn(async move { calls.run(&mut *asked.lock().await).await });
        running.spawn(leading.run());
        Ok(running)
    }

    /// Runs a task until it ends, or the group is shut down.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stop = self.stop.subscribe();
        self.tasks.push(tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }));
    }

    async fn shutdown(self) {
        self.stop.send_replace(true);
        self.control.shutdown().await;
        for task in self.tasks {
            joined(task.await);
        }
    }
}

/// Returns the founders as voters. A founding that every member would refuse is found here.
fn founders_of(founding: &Founding) -> Result<std::collections::BTreeSet<MemberId>, GroupError> {
    let founders = founding.founders.iter().map(|founder| MemberId { dc: founder.dc, generation: 0 });
    if founding.founders.len() > MAX_VOTERS {
        return Err(GroupError::TooMany(founding.founders.len()));
    }
    let mut config = Config::default();
    let proposal = Proposal { checked: config.revision(), command: Command::Found(founding.clone()) };
    config.apply(Index(1), &proposal)?;
    Ok(founders.collect())
}

/// Returns a random number, by which answers to an earlier run are recognised.
fn first_id() -> Result<u64, GroupError> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| GroupError::NoRandomness)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The members as operators see and change them. Cheap to clone.
#[derive(Clone)]
pub struct MembersApi {
    pub(super) me: DcId,
    pub(super) max_lease_ttl: Duration,
    /// None if this server takes no part, or not yet.
    pub(super) control: watch::Receiver<Option<ControlGroup<DecisionList>>>,
    pub(super) inputs: mpsc::Sender<MembersInput>,
    pub(super) view: watch::Receiver<MembersView>,
}

impl std::fmt::Debug for MembersApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MembersApi")
    }
}

/// The reason why a command of an operator has no effect.
#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    /// Nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// Nothing was changed.
    #[error("this server takes no part in the control group; its log says why")]
    NoGroup,
    /// It was decided.
    #[error("decision {0} was made and is not known here yet: look again with `geolock member list`")]
    NotKnown(u64),
    /// It may be done later.
    #[error("not done yet: {0}; repeat it, or look with `geolock member list`")]
    Unfinished(String),
}

impl MembersApi {
    /// Returns the name of a member, as this server sees it.
    pub fn name(&self, dc: DcId) -> Option<String> {
        Some(self.view.borrow().config.member(dc)?.name.to_string())
    }

    /// Returns the members as this server sees them, and the leader of the control group if one is known.
    pub fn list(&self) -> (MembersView, Option<DcId>) {
        let mut view = self.view.borrow().clone();
        let Some(control) = self.control.borrow().clone() else { return (view, None) };
        // The machine learns a decision a moment later, and of what is in other members' logs it alone knows.
        let config = control.state().0;
        if is_newer(&config, &view.config) {
            view.config = config;
        }
        (view, control.status().leader.map(|leader| leader.dc))
    }

    /// Allows a server with this name to join, once. Returns the number of the decision. Repeating it is
    /// harmless.
    pub async fn invite(&self, name: MemberName, sponsor: Option<DcId>) -> Result<u64, ProposalError> {
        let command = Command::Invite { name: name.clone(), sponsor };
        let is_invited = |config: &Config| config.invitations().any(|(invited, _)| *invited == name);
        self.decide(|_| Ok(command.clone()), is_invited).await
    }

    /// Lets a member leave. Returns the number of the decision. Repeating it is harmless.
    pub async fn remove(&self, dc: DcId) -> Result<u64, ProposalError> {
        let leaves = |config: &Config| config.member(dc).is_none_or(|member| member.phase == Phase::Leaving);
        {
            let (view, _) = self.list();
            if view.config.member(dc).is_some_and(|member| member.phase == Phase::Leaving) {
                return Ok(view.config.index().0);
            }
        }
        let command = |config: &Config| {
            let generation = config.generation(dc).ok_or(Refused::NotMember { dc })?;
            Ok(Command::Leaving { dc, generation })
        };
        self.decide(command, leaves).await
    }

    /// Checks that these members can be evicted now. Returns how long their clients may still believe in
    /// their leases.
    pub fn check_eviction(&self, dcs: &[DcId]) -> Result<Duration, ProposalError> {
        let control = self.control.borrow().clone().ok_or(ProposalError::NoGroup)?;
        let config = control.state().0;
        if dcs.iter().all(|dc| config.has_ended(*dc)) {
            return Ok(Duration::ZERO);
        }
        config.check_proposal(&self.view.borrow().facts(self.me, &config), begin(&config, dcs)?)?;
        Ok(self.max_lease_ttl)
    }

    /// Begins to evict members that are lost. No client of them may believe in a lease any more. Returns the
    /// number of the decision; they are evicted when they are listed no more.
    pub async fn evict(&self, dcs: &[DcId]) -> Result<u64, ProposalError> {
        let begun = |config: &Config| {
            let evicting = config.attempt().map_or(DcSet::EMPTY, Attempt::evicting);
            dcs.iter().all(|dc| evicting.contains(*dc) || config.has_ended(*dc))
        };
        {
            let (view, _) = self.list();
            if view.config.cluster().is_some() && begun(&view.config) {
                return Ok(view.config.index().0);
            }
        }
        self.decide(|config| begin(config, dcs), begun).await
    }

    /// Returns this datacenter.
    pub fn me(&self) -> DcId {
        self.me
    }

    /// Returns the policy, as the newest decision that is known here has it.
    pub fn policy(&self) -> Policy {
        let control = self.control.borrow();
        control.as_ref().map_or_else(Policy::default, |control| *control.state().0.policy())
    }

    /// Sets the policy. Returns the number of the decision.
    pub async fn set_policy(&self, policy: Policy) -> Result<u64, ProposalError> {
        let is_set = |config: &Config| config.cluster().is_some() && *config.policy() == policy;
        {
            let (view, _) = self.list();
            if is_set(&view.config) {
                return Ok(view.config.index().0);
            }
        }
        self.decide(|_| Ok(Command::SetPolicy(policy)), is_set).await
    }

    /// Proposes a command until it is decided, or refused. Returns the number of the decision. `is_done`: the
    /// command had its effect.
    async fn decide(
        &self,
        command: impl Fn(&Config) -> Result<Command, Refused>,
        is_done: impl Fn(&Config) -> bool,
    ) -> Result<u64, ProposalError> {
        let control = self.control.borrow().clone().ok_or(ProposalError::NoGroup)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let config = control.state().0;
            let proposal =
                config.check_proposal(&self.view.borrow().facts(self.me, &config), command(&config)?)?;
            let index = control.propose(&proposal).await?;
            let now = known(&control, index).await?;
            if is_done(&now) {
                return Ok(index);
            }
            if attempts == ATTEMPTS {
                return Err(Refused::Changed { checked: proposal.checked, now: now.revision() }.into());
            }
        }
    }
}

/// Returns true if this state is after that one: of a later group, or after more decisions of the same.
pub(super) fn is_newer(a: &Config, b: &Config) -> bool {
    (a.lineage(), a.index()) > (b.lineage(), b.index())
}

/// Returns the command that evicts members. An operator vouches for their end.
fn begin(config: &Config, dcs: &[DcId]) -> Result<Command, Refused> {
    let dcs: DcSet = dcs.iter().copied().collect();
    let evictee = |dc| {
        let generation = config.generation(dc).ok_or(Refused::NotMember { dc })?;
        Ok(Evictee { dc, generation, run: 0 })
    };
    let members = dcs.iter().map(evictee).collect::<Result<_, Refused>>()?;
    Ok(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }))
}

/// Returns the state after a decision, once it is known here.
async fn known(control: &ControlGroup<DecisionList>, index: u64) -> Result<Config, ProposalError> {
    let deadline = Instant::now() + KNOWN_WITHIN;
    loop {
        let config = control.state().0;
        if config.index() >= Index(index) {
            return Ok(config);
        }
        if Instant::now() >= deadline {
            return Err(ProposalError::NotKnown(index));
        }
        sleep(Duration::from_millis(20)).await;
    }
}
