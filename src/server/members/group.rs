//! This server's part in the control group: its start and its end.
//!
//! It runs on a thread of its own, with a runtime of its own, like the links. An election, or a sync of its
//! file, may take any time: no client and no lock waits for that thread.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{io, thread};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::admission::Asked;
use super::decisions::DecisionList;
use super::lanes::Lanes;
use super::leading::Leading;
use super::operators::MembersApi;
use super::succession::succession;
use super::tasks::{Calls, Frames, Outputs, follow_decisions, follow_links};
use crate::control::{ControlConfig, ControlFile, ControlGroup, MemberId, Relay, Start, StartError, Timing};
use crate::interdc::{ControlFrame, JoinCall, Links};
use crate::lock_server::{MembersHandle, MembersInput, MembersOutput, MembersView};
use crate::membership::{Command, Config, Founding, Index, Lineage, Proposal, Refused, TextError};
use crate::runtime::tasks::joined;

/// Most frames that wait; then the control lanes of the peers stop. A frame has at most 64 KiB.
const WAITING_FRAMES: usize = 64;
/// Most servers that wait for an answer to their request to join.
const WAITING_CALLS: usize = 16;

/// The reason why this server takes no part in the control group. It serves locks all the same.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the members of the configuration cannot found the cluster: {0}")]
    Founding(#[from] Refused),
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
    /// Its server has access rules.
    pub has_rules: bool,
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
    let (timing, has_rules) = (config.timing, config.has_rules);
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
        tracing::warn!(dc = %me.dc, "a new control group begins: the cluster was recovered by force");
        let founders = Founders::Joins;
        config = GroupConfig { me, dir: dir.clone(), file: Some(file), founders, timing, has_rules };
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
        let GroupConfig { me, dir, file, founders, timing, has_rules } = config;
        let (start, founding) = match founders {
            Founders::Configured(founding) => {
                let founding = founding.map_err(GroupError::Text)?;
                (start_of(me, &founding)?, Some(founding))
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
            me,
            group: control(),
            founding,
            view: view.clone(),
            inputs: inputs.clone(),
            links: links.clone(),
        };
        let calls = Calls {
            control: control(),
            asked: Asked { dc: me.dc, has_rules },
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

/// Returns the start of a founder: some of them vote, the others follow. A founding that every member would
/// refuse is found here.
fn start_of(me: MemberId, founding: &Founding) -> Result<Start, GroupError> {
    let mut config = Config::default();
    let proposal = Proposal { checked: config.revision(), command: Command::Found(founding.clone()) };
    config.apply(Index(1), &proposal)?;
    let voters = founding.founders.iter().filter(|founder| founder.votes);
    let voters: BTreeSet<_> = voters.map(|it| MemberId { dc: it.dc, generation: 0 }).collect();
    Ok(if voters.contains(&me) { Start::Found(voters) } else { Start::Follow(voters) })
}

/// Returns a random number, by which answers to an earlier run are recognised.
fn first_id() -> Result<u64, GroupError> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| GroupError::NoRandomness)?;
    Ok(u64::from_le_bytes(bytes))
}
