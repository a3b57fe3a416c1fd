//! The driver of a node's machine for one contract: passes it news and time, and performs its effects, one
//! after the other. Nothing after a record is performed before the record is in the database.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::application::{Block, Domain, Ledger, NodeStore};
use super::ask::{Answer, assemble, endorse};
use super::keys::Keys;
use super::lock::Command as LockCommand;
use super::node::SequencerNode;
use super::{SequencerError, SequencerStatus, Warning};
use crate::sequencer_state::{
    Beat, Effect, End, Event, Intent, IntentId, LedgerView, LockEffect, LockEvent, Machine, Node, Phase,
    Record, SubmitError, Transaction,
};

/// Questions to the domain at a time. Further ones are lost, and asked again.
const MAX_ASKED: usize = 64;
/// The database and the ledger are compared with memory this often.
const RESUME_EVERY: Duration = Duration::from_secs(300);
/// Time for the last messages of a node that closes.
const CLOSING: Duration = Duration::from_secs(2);

/// News for the driver.
pub(super) enum Input {
    Event(Event),
    Block(Block),
    /// The node's view of the ledger, to compare with.
    View(LedgerView),
    Warning(Warning),
    Failed(SequencerError),
}

/// News of the lock.
pub(super) enum LockInput {
    /// Of that request.
    Event(u64, LockEvent),
    Warning(Warning),
    Failed(SequencerError),
}

/// A call of the application.
pub(super) enum Call {
    Submit(Intent, oneshot::Sender<Result<(), SubmitError>>, oneshot::Sender<End>),
    Status(oneshot::Sender<SequencerStatus>),
    Close,
}

/// The channels of a driver.
pub(super) struct Channels {
    pub calls: mpsc::Receiver<Call>,
    pub lock_events: mpsc::UnboundedReceiver<LockInput>,
    pub inputs: mpsc::Receiver<Input>,
    pub lock: mpsc::UnboundedSender<LockCommand>,
    pub to_ledger: mpsc::Sender<Transaction>,
    pub warnings: broadcast::Sender<Warning>,
    pub ends: broadcast::Sender<(IntentId, End)>,
}

pub(super) struct Driver<D, L, S> {
    pub node: SequencerNode,
    pub keys: Arc<Keys>,
    pub machine: Machine,
    pub domain: Arc<D>,
    pub ledger: Arc<L>,
    pub store: S,
    pub max_undecided: usize,
    pub beat: Duration,
    pub channels: Channels,
    pub state: DriverState,
}

/// The part of a driver that begins empty.
pub(super) struct DriverState {
    began: Instant,
    /// The number of the latest request for the lock.
    lock_number: u64,
    unwritten: Vec<Record>,
    /// The caller whose intent is being entered.
    submitting: Option<oneshot::Sender<Result<(), SubmitError>>>,
    /// Callers that wait for the end of an intent.
    waiting: BTreeMap<IntentId, Vec<oneshot::Sender<End>>>,
    asked: JoinSet<Answer>,
    last_beat: Option<Beat>,
    /// A view of the ledger is being read.
    views: JoinSet<Option<LedgerView>>,
}

impl DriverState {
    pub fn new() -> DriverState {
        DriverState {
            began: Instant::now(),
            lock_number: 0,
            unwritten: Vec::new(),
            submitting: None,
            waiting: BTreeMap::new(),
            asked: JoinSet::new(),
            last_beat: None,
            views: JoinSet::new(),
        }
    }
}

/// One thing that happened.
enum Turn {
    Lock(LockInput),
    Call(Option<Call>),
    Input(Input),
    Answer(Answer),
    Time,
    Resume,
    Refused(SequencerError),
    /// A task of the domain was stopped.
    Nothing,
}

impl<D: Domain, L: Ledger, S: NodeStore> Driver<D, L, S> {
    /// Runs until the application closes it, or it cannot go on.
    pub async fn run(mut self) -> Result<(), SequencerError> {
        let mut resume = interval(RESUME_EVERY);
        resume.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // It has just begun with all of it.
        resume.tick().await;
        let mut refused = self.node.outbox().failed();
        self.perform().await?;
        loop {
            match self.next(&mut resume, &mut refused).await {
                Turn::Call(None | Some(Call::Close)) => break,
                Turn::Call(Some(call)) => self.on_call(call).await?,
                Turn::Lock(LockInput::Event(number, event)) if number == self.state.lock_number => {
                    self.handle(Event::Lock(event)).await?;
                }
                // Of a request that is over.
                Turn::Lock(LockInput::Event(..)) | Turn::Nothing => {}
                Turn::Lock(LockInput::Warning(warning)) | Turn::Input(Input::Warning(warning)) => {
                    self.warn(warning);
                }
                Turn::Lock(LockInput::Failed(error))
                | Turn::Input(Input::Failed(error))
                | Turn::Refused(error) => return Err(error),
                Turn::Input(Input::Event(event)) => self.handle(event).await?,
                Turn::Input(Input::Block(block)) => self.on_block(block).await?,
                Turn::Input(Input::View(view)) => self.on_view(view).await?,
                Turn::Answer(Answer(event)) => self.handle(event).await?,
                Turn::Time => self.handle(Event::Time).await?,
                Turn::Resume => self.ask_view(),
            }
        }
        self.close().await;
        Ok(())
    }

    /// Waits for the next thing to happen. News of the lock come first: it may be lost.
    async fn next(
        &mut self,
        resume: &mut tokio::time::Interval,
        refused: &mut watch::Receiver<Option<SequencerError>>,
    ) -> Turn {
        let due = self.machine.deadline().map(|at| self.state.began + at);
        let due = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(news) = self.channels.lock_events.recv() => Turn::Lock(news),
            Ok(()) = refused.changed() => {
                let error = refused.borrow_and_update().clone();
                error.map_or(Turn::Nothing, Turn::Refused)
            }
            () = due => Turn::Time,
            Some(answer) = self.state.asked.join_next() => answer.map_or(Turn::Nothing, Turn::Answer),
            Some(view) = self.state.views.join_next() => {
                view.ok().flatten().map_or(Turn::Nothing, |view| Turn::Input(Input::View(view)))
            }
            Some(input) = self.channels.inputs.recv() => Turn::Input(input),
            call = self.channels.calls.recv() => Turn::Call(call),
            _ = resume.tick() => Turn::Resume,
        }
    }

    async fn handle(&mut self, event: Event) -> Result<(), SequencerError> {
        self.machine.handle(self.state.began.elapsed(), event);
        self.perform().await
    }

    fn warn(&self, warning: Warning) {
        // Nobody may listen.
        let _ = self.channels.warnings.send(warning);
    }

    async fn on_call(&mut self, call: Call) -> Result<(), SequencerError> {
        match call {
            Call::Submit(intent, answer, end) => self.submit(intent, answer, end).await,
            Call::Status(answer) => {
                // The caller may have gone.
                let _ = answer.send(self.status());
                Ok(())
            }
            Call::Close => Ok(()),
        }
    }

    async fn submit(
        &mut self,
        intent: Intent,
        answer: oneshot::Sender<Result<(), SubmitError>>,
        end: oneshot::Sender<End>,
    ) -> Result<(), SequencerError> {
        let id = intent.id.clone();
        if !self.machine.is_undecided(&id) {
            // One that has ended is not to begin again.
            let refused = match self.store.find(&id).await.map_err(SequencerError::store)? {
                Some((known, _)) if known != intent => Some(SubmitError::OtherContent(id.clone())),
                Some((_, Some(known))) => {
                    // The caller may have gone.
                    let _ = (answer.send(Ok(())), end.send(known));
                    return Ok(());
                }
                _ if self.machine.undecided().len() >= self.max_undecided => {
                    Some(SubmitError::TooMany(self.max_undecided))
                }
                _ => None,
            };
            if let Some(refused) = refused {
                let _ = answer.send(Err(refused));
                return Ok(());
            }
        }
        let waiting = self.state.waiting.entry(id).or_default();
        waiting.retain(|waiting| !waiting.is_closed());
        waiting.push(end);
        self.state.submitting = Some(answer);
        self.handle(Event::Submit(intent)).await
    }

    fn status(&self) -> SequencerStatus {
        let machine = &self.machine;
        SequencerStatus {
            node: self.keys.me().clone(),
            phase: machine.phase(),
            epoch: machine.epoch(),
            height: machine.height(),
            coordinator: machine.choice().clone(),
            rank: machine.rank().to_vec(),
            delegate: machine.delegate().cloned(),
            silent: machine.silent().iter().cloned().collect(),
            undecided: machine.undecided().len(),
        }
    }

    async fn on_block(&mut self, Block { height, outcomes }: Block) -> Result<(), SequencerError> {
        let last = self.machine.height();
        if height <= last {
            self.warn(Warning::LedgerWentBack { from: last, to: height });
        } else if height > last + 1 {
            self.ask_view();
        }
        self.handle(Event::Block { height, outcomes }).await
    }

    /// Reads the view of the ledger beside the work, to compare it with memory.
    fn ask_view(&mut self) {
        if self.state.views.is_empty() {
            let intents = self.machine.undecided().cloned().collect();
            let ledger = Arc::clone(&self.ledger);
            self.state.views.spawn(async move { ledger.view(intents).await.ok() });
        }
    }

    async fn on_view(&mut self, view: LedgerView) -> Result<(), SequencerError> {
        let restored = self.store.load().await.map_err(SequencerError::store)?;
        self.handle(Event::Resumed { restored, view }).await
    }

    async fn perform(&mut self) -> Result<(), SequencerError> {
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Persist(record) => self.state.unwritten.push(record),
                effect => {
                    self.write().await?;
                    self.perform_one(effect)?;
                }
            }
        }
        self.write().await
    }

    async fn write(&mut self) -> Result<(), SequencerError> {
        match self.state.unwritten.is_empty() {
            true => Ok(()),
            false => {
                let records = std::mem::take(&mut self.state.unwritten);
                self.store.write(records).await.map_err(SequencerError::store)
            }
        }
    }

    fn perform_one(&mut self, effect: Effect) -> Result<(), SequencerError> {
        match effect {
            Effect::Persist(record) => self.state.unwritten.push(record),
            Effect::Send { to, message } => {
                if !self.node.outbox().send(&self.keys.to(&to)?, message) {
                    self.warn(Warning::NotSent { to });
                }
            }
            Effect::Beat(beat) => self.beat(beat),
            Effect::Lock(effect) => {
                if matches!(effect, LockEffect::Acquire | LockEffect::Release) {
                    self.state.lock_number += 1;
                }
                // The task is there as long as this.
                let _ = self.channels.lock.send((self.state.lock_number, effect));
            }
            // If there is no room it is submitted again later.
            Effect::SubmitToLedger(transaction) => {
                let _ = self.channels.to_ledger.try_send(transaction);
            }
            Effect::Assemble { to, round, intent, speculation } => {
                if self.state.asked.len() < MAX_ASKED {
                    let domain = Arc::clone(&self.domain);
                    self.state.asked.spawn(assemble(domain, to, round, intent, speculation));
                }
            }
            Effect::Endorse { to, round, assembly } => {
                if self.state.asked.len() < MAX_ASKED {
                    self.state.asked.spawn(endorse(Arc::clone(&self.domain), to, round, assembly));
                }
            }
            // The callers of both may have gone.
            Effect::Submitted { answer, .. } => {
                let _ = self.state.submitting.take().map(|caller| caller.send(answer));
            }
            Effect::Finished { intent, end } => {
                for waiting in self.state.waiting.remove(&intent).into_iter().flatten() {
                    let _ = waiting.send(end.clone());
                }
                let _ = self.channels.ends.send((intent, end));
            }
        }
        Ok(())
    }

    /// A heartbeat with another state than the last one goes at once.
    fn beat(&mut self, beat: Beat) {
        let is_routine = self
            .state
            .last_beat
            .as_ref()
            .is_some_and(|last| (last.phase, last.epoch) == (beat.phase, beat.epoch));
        self.state.last_beat = Some(beat.clone()).filter(|beat| beat.phase != Phase::Idle);
        let within = is_routine.then_some(self.beat / 2);
        if !self.node.outbox().beat(self.keys.beat(), beat, within) {
            self.warn(Warning::NotSent { to: Node::new("*") });
        }
    }

    /// Lets the lock go, and sees the last messages off.
    async fn close(self) {
        let Driver { node, channels, .. } = self;
        drop(channels);
        // If no server answers, the others notice that this node is silent.
        let _ = timeout(CLOSING, node.outbox().flushed()).await;
    }
}
