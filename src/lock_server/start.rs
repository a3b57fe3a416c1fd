//! Starts a lock server: recovers, runs the actor on its own thread, waits for the end.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use super::actor::Actor;
use super::budget::{Allowance, Budget, ClientAllowance};
use super::checkpoints::Checkpoints;
use super::clock;
use super::combiner::{Combine, Combiner};
use super::effects::Outlets;
use super::engine::{Engine, StatusPublisher};
use super::handle::{LockServerHandle, Shared, Stage};
use super::inputs::Inputs;
use super::journal_inbox::JournalInbox;
use super::mailbox::Mailbox;
use super::members::MembersPort;
use super::options::LockServerOptions;
use super::overload::Overload;
use super::ports::{Links, Machine, Store};
use super::probe::Probes;
use super::sessions::FIRST_CLIENT;
use crate::access::LogLimit;
use crate::base::time::brief;
use crate::base::wire::WireError;
use crate::interdc::InterdcError;
use crate::journal::{JournalError, MembersError};
use crate::replica::call::ClientId;
use crate::replica::{Position, RecoveryError, WitnessRecoveryError};
use crate::telemetry::{Board, Places};
use geolock_api::names::DcId;

/// The reason why a lock server did not start. No client was answered, and no record was written or lost.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Members(#[from] MembersError),
    #[error(transparent)]
    Links(#[from] InterdcError),
    #[error(
        "the checkpoint in the data directory cannot be read ({0}): another release wrote it, or it is damaged"
    )]
    Checkpoint(#[source] WireError),
    #[error(
        "record {} of the journal cannot be read ({source}): another release wrote it, or it is damaged",
        position.0
    )]
    Record { position: Position, source: WireError },
    #[error("the data directory does not fit this server: {0}")]
    Recovery(#[from] RecoveryError),
    #[error("the data directory does not fit a witness: {0}")]
    Witness(#[from] WitnessRecoveryError),
    #[error("no thread for the lock server: {0}")]
    Thread(#[source] io::Error),
}

/// The reason why a lock server stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error("the journal failed, so nothing more can be promised: {0}")]
    Journal(#[source] JournalError),
    #[error("the disk did not take the last records within {}", brief(*.0))]
    LastSync(Duration),
    #[error("this is a bug in geolock: a record cannot be encoded: {0}")]
    Encode(#[source] WireError),
}

/// A running lock server.
pub struct LockServer {
    handle: LockServerHandle,
    ended: oneshot::Receiver<Result<(), StopError>>,
    thread: thread::JoinHandle<()>,
}

/// The parts of a lock server. `last` is the position of the last record that `machine` knows.
pub struct Parts<M, S, L: Links> {
    pub dc: DcId,
    pub machine: M,
    pub last: Position,
    pub store: S,
    pub journal: Arc<JournalInbox>,
    pub links: L,
    pub link_events: mpsc::Receiver<L::Event>,
    /// The board on which the server publishes its status.
    pub board: Arc<Board>,
    pub members: MembersPort,
}

impl LockServer {
    /// Starts the actor on its own thread.
    pub fn start<M: Machine, S: Store, L: Links>(
        options: LockServerOptions,
        parts: Parts<M, S, L>,
    ) -> Result<LockServer, StartError> {
        // Each open session reserves a place for its closing.
        let (mailbox, inputs) = mpsc::channel(options.max_sessions + options.mailbox);
        let mailbox_bytes = Budget::new(options.mailbox_bytes);
        let (wanted, wanted_by_actor) = watch::channel(Stage::Running);
        let (stage, stage_for_handles) = watch::channel(Stage::Running);
        let now = clock::now();
        let wake_actor = Arc::new(Notify::new());
        let MembersPort { inputs: members, outlet } = parts.members;
        let engine = Engine {
            machine: parts.machine,
            mailbox: Mailbox::new(inputs, mailbox_bytes.clone()),
            outlets: Outlets::new(parts.dc, parts.store, parts.links, outlet, parts.last),
            publisher: StatusPublisher::new(stage, Arc::clone(&parts.board), now.mono),
            overload: Overload::new(options.max_queue_delay),
            probes: Probes::new(mailbox.downgrade(), Arc::clone(&wake_actor)),
            sleeps_until: now.mono,
            takes_bulk: true,
            cut_off: 0,
            cut_off_logged: LogLimit::default(),
            drained_by: None,
            now,
            options: options.clone(),
        };
        let combiner = Arc::new(Combiner::new(engine, Arc::clone(&wake_actor)));
        let sessions = Arc::new(Semaphore::new(options.max_sessions));
        parts.board.show_places(Places {
            name: "sessions",
            help: "Open sessions: streams and watches of clients",
            free: Arc::clone(&sessions),
            most: options.max_sessions,
        });
        let shared = Shared {
            combiner: Arc::clone(&combiner) as Arc<dyn Combine>,
            mailbox,
            sessions,
            max_sessions: options.max_sessions,
            session_backlog: options.session_backlog,
            session_mailbox: options.session_mailbox,
            client_mailbox: options.client_mailbox,
            anybody: of_anybody(&options, &mailbox_bytes),
            unary: half_of(options.mailbox_bytes, &mailbox_bytes),
            mailbox_bytes,
            drain_timeout: options.drain_timeout,
            next_session: AtomicU64::new(FIRST_CLIENT),
            wanted,
            stage: stage_for_handles,
            board: parts.board,
        };
        let actor = Actor {
            combiner,
            inputs: Inputs::new(parts.link_events, parts.journal, members, wake_actor, wanted_by_actor),
            checkpoints: Checkpoints::default(),
        };
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        let thread = thread::Builder::new()
            .name(format!("lock-server-{}", parts.dc))
            .spawn(move || {
                // The receiver may be dropped.
                end.send(runtime.block_on(actor.run())).ok();
            })
            .map_err(StartError::Thread)?;
        Ok(LockServer { handle: LockServerHandle { shared: Arc::new(shared) }, ended, thread })
    }

    pub fn handle(&self) -> LockServerHandle {
        self.handle.clone()
    }

    /// Waits until the server has stopped.
    ///
    /// # Panics
    /// If the server panicked.
    pub async fn stopped(self) -> Result<(), StopError> {
        let ended = self.ended.await;
        // The thread has nothing left to do, so this does not block.
        if let Err(panic) = self.thread.join() {
            resume_unwind(panic);
        }
        ended.expect("the thread sends how it ended unless it panics")
    }
}

/// The allowance of sessions that belong to no particular client.
fn of_anybody(options: &LockServerOptions, all: &Budget) -> ClientAllowance {
    ClientAllowance::new(ClientId::UNKNOWN, (options.session_mailbox, options.mailbox_bytes), all)
}

/// The allowance of calls that belong to no particular client.
fn half_of(bytes: usize, all: &Budget) -> Arc<Allowance> {
    ClientAllowance::new(ClientId::UNKNOWN, (bytes / 2, bytes / 2), all).allowance()
}
