//! The driver of a node's machine for one contract: passes it news and time, and performs its effects.
//!
//! It works in rounds. A round takes what is there of each source, up to a bound: so no source keeps another
//! one waiting for longer than a round, however much it brings. The machine handles all of it. Effects that
//! rest on no record, as a question for an assembly, are performed at once; then the records of all of it are
//! written, in one transaction, and after that the other effects are performed, in order. So nothing is told
//! before the record that it rests on is in the database, and a node that has much to do does not wait for
//! the disk once for each message.

mod calls;
mod effects;
mod resume;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::iter::from_fn;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};

use self::effects::Outward;
use super::application::{Block, Domain, Ledger, NodeStore};
use super::ask::Answer;
use super::keys::Keys;
use super::lock::Command as LockCommand;
use super::outbox::Outbox;
use super::{CLOSING, SequencerError, SequencerStatus, Warning};
use crate::sequencer_state::{
    Beat, Effect, End, Epoch, Event, Intent, IntentId, LedgerView, LockEffect, LockEvent, Machine, Record,
    SubmitError, Transaction,
};

/// The database and the ledger are compared with memory this often.
const RESUME_EVERY: Duration = Duration::from_secs(300);
/// Most news of one source in a round.
const OF_EACH: usize = 64;

/// News for the driver.
pub(super) enum Input {
    Event(Event),
    Block(Block),
    Warning(Warning),
    Failed(SequencerError),
}

/// News of the lock.
pub(super) enum LockInput {
    /// Of that request.
    Event(u64, LockEvent),
    /// The handover with that number is written.
    Written(u64),
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
    /// Few: a request for the lock tells of its grant and its end, and at most once in each beat if it can be
    /// had.
    pub lock_events: mpsc::UnboundedReceiver<LockInput>,
    pub inputs: mpsc::Receiver<Input>,
    pub lock: mpsc::UnboundedSender<LockCommand>,
    pub to_ledger: mpsc::Sender<Transaction>,
    pub warnings: broadcast::Sender<Warning>,
    pub ends: broadcast::Sender<(IntentId, End)>,
}

pub(super) struct Driver<D, L, S> {
    pub outbox: Arc<Outbox>,
    pub keys: Arc<Keys>,
    pub machine: Machine,
    pub domain: Arc<D>,
    pub ledger: Arc<L>,
    pub store: S,
    pub max_undecided: usize,
    pub beat: Duration,
    /// Longest time for which a coordinator holds the lock and cannot send.
    pub unheard: Duration,
    pub channels: Channels,
    /// The tasks that read the watch and the ledger, and that submit. They end with the driver.
    pub tasks: JoinSet<()>,
    pub stopped: Arc<OnceLock<SequencerError>>,
    pub state: DriverState,
}

/// The part of a driver that begins empty.
pub(super) struct DriverState {
    began: Instant,
    /// The number of the latest request for the lock.
    lock_number: u64,
    /// The number of the latest handover that is to be written.
    handover_number: u64,
    /// Effects that rest on no record.
    early: Vec<Effect>,
    unwritten: Vec<Record>,
    /// Other effects, which are performed when the records are written.
    outward: Vec<Outward>,
    /// Callers whose intents are being entered, in the order in which the machine answers.
    submitting: VecDeque<oneshot::Sender<Result<(), SubmitError>>>,
    /// Callers that wait for the end of an intent.
    waiting: BTreeMap<IntentId, Vec<oneshot::Sender<End>>>,
    asked: JoinSet<Answer>,
    last_beat: Option<Beat>,
    /// A view of the ledger is being read.
    views: JoinSet<Result<LedgerView, String>>,
    /// The intents that the latest view was asked for.
    viewed: BTreeSet<IntentId>,
    /// A view that is ahead of the blocks.
    view: Option<LedgerView>,
    /// The last view was behind the blocks: it is read again with the next block.
    is_view_wanted: bool,
}

impl DriverState {
    pub fn new() -> DriverState {
        DriverState {
            began: Instant::now(),
            lock_number: 0,
            handover_number: 0,
            early: Vec::new(),
            unwritten: Vec::new(),
            outward: Vec::new(),
            submitting: VecDeque::new(),
            waiting: BTreeMap::new(),
            asked: JoinSet::new(),
            last_beat: None,
            views: JoinSet::new(),
            viewed: BTreeSet::new(),
            view: None,
            is_view_wanted: false,
        }
    }
}

/// One thing that happened.
enum Turn {
    Lock(LockInput),
    Call(Option<Call>),
    Input(Input),
    Answer(Result<Answer, JoinError>),
    View(Result<Result<LedgerView, String>, JoinError>),
    Time,
    Resume,
    /// A task has ended.
    Ended(Result<(), JoinError>),
}

impl<D: Domain, L: Ledger, S: NodeStore> Driver<D, L, S> {
    /// Runs until the application closes it, or it cannot go on.
    pub async fn run(mut self) -> Result<(), SequencerError> {
        let ended = self.work().await;
        // It coordinates no more, and does not say so later.
        self.outbox.withdraw_beat(self.keys.beat());
        match &ended {
            Ok(()) => self.close().await,
            // Those that wait for an intent learn the reason. It is set once.
            Err(error) => drop(self.stopped.set(error.clone())),
        }
        ended
    }

    async fn work(&mut self) -> Result<(), SequencerError> {
        let mut resume = interval(RESUME_EVERY);
        resume.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // It has just begun with all of it.
        resume.tick().await;
        let mut refused = self.outbox.failed();
        self.take_effects();
        loop {
            self.commit().await?;
            let first = self.next(&mut resume, &mut refused).await;
            let is_closed = self.round(first).await?;
            if is_closed {
                return self.commit().await;
            }
        }
    }

    /// Waits for the next thing to happen.
    async fn next(
        &mut self,
        resume: &mut Interval,
        refused: &mut watch::Receiver<Option<SequencerError>>,
    ) -> Turn {
        let due = self.due();
        let due = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            Some(news) = self.channels.lock_events.recv() => Turn::Lock(news),
            error = refusal(refused) => Turn::Input(Input::Failed(error)),
            () = due => Turn::Time,
            Some(answer) = self.state.asked.join_next() => Turn::Answer(answer),
            Some(view) = self.state.views.join_next() => Turn::View(view),
            Some(ended) = self.tasks.join_next() => Turn::Ended(ended),
            Some(input) = self.channels.inputs.recv() => Turn::Input(input),
            call = self.channels.calls.recv() => Turn::Call(call),
            _ = resume.tick() => Turn::Resume,
        }
    }

    fn due(&self) -> Option<Instant> {
        self.machine.deadline().map(|at| self.state.began + at)
    }

    /// Handles what has happened, and what else is there. Returns true when it was closed.
    async fn round(&mut self, first: Turn) -> Result<bool, SequencerError> {
        let mut turns = vec![first];
        self.collect(&mut turns);
        // News of the lock come first: it may be lost.
        turns.sort_by_key(|turn| !matches!(turn, Turn::Lock(_)));
        let mut is_closed = false;
        for turn in turns {
            match turn {
                Turn::Call(None | Some(Call::Close)) => is_closed = true,
                turn => self.on_turn(turn).await?,
            }
        }
        self.let_go_if_unheard();
        Ok(is_closed)
    }

    /// Takes what is there of each source, up to a bound.
    fn collect(&mut self, turns: &mut Vec<Turn>) {
        let Channels { lock_events, inputs, calls, .. } = &mut self.channels;
        let news = from_fn(|| lock_events.try_recv().ok()).take(OF_EACH);
        turns.extend(news.map(Turn::Lock));
        let asked = &mut self.state.asked;
        let answers = from_fn(|| asked.try_join_next()).take(OF_EACH);
        turns.extend(answers.map(Turn::Answer));
        let inputs = from_fn(|| inputs.try_recv().ok()).take(OF_EACH);
        turns.extend(inputs.map(Turn::Input));
        let calls = from_fn(|| calls.try_recv().ok()).take(OF_EACH);
        turns.extend(calls.map(|call| Turn::Call(Some(call))));
        if self.due().is_some_and(|at| at <= Instant::now()) {
            turns.push(Turn::Time);
        }
    }

    async fn on_turn(&mut self, turn: Turn) -> Result<(), SequencerError> {
        match turn {
            Turn::Lock(LockInput::Event(number, event)) if number == self.state.lock_number => {
                self.handle(Event::Lock(event));
            }
            Turn::Lock(LockInput::Written(number)) if number == self.state.handover_number => {
                self.handle(Event::Lock(LockEvent::HandoverWritten));
            }
            // Of a request that is over, or of a handover that is not the last one.
            Turn::Lock(LockInput::Event(..) | LockInput::Written(_)) => {}
            Turn::Lock(LockInput::Warning(warning)) | Turn::Input(Input::Warning(warning)) => {
                self.warn(warning);
            }
            Turn::Lock(LockInput::Failed(error)) | Turn::Input(Input::Failed(error)) => return Err(error),
            Turn::Input(Input::Event(event)) => self.handle(event),
            Turn::Input(Input::Block(block)) => self.on_block(block).await?,
            Turn::Answer(Ok(Answer(event))) => self.handle(event),
            Turn::View(Ok(view)) => self.on_view(view).await?,
            // They never panic, and were stopped with the runtime.
            Turn::Answer(Err(_)) | Turn::Ended(Ok(())) => {}
            Turn::View(Err(error)) | Turn::Ended(Err(error)) => {
                return Err(SequencerError::Ledger(error.to_string()));
            }
            Turn::Time => self.handle(Event::Time),
            Turn::Resume => self.ask_view().await?,
            Turn::Call(Some(call)) => self.on_call(call).await?,
            Turn::Call(None) => {}
        }
        Ok(())
    }

    /// Lets the lock go that this node holds, if it has not been able to send for too long: its server takes
    /// no commits. The others count it as silent, and the next one waits for the lock.
    fn let_go_if_unheard(&mut self) {
        let is_held = self.machine.epoch().is_some_and(|epoch| epoch != Epoch::SOLO);
        if is_held && self.outbox.waits_for() >= self.unheard {
            self.lock_effect(LockEffect::Release);
            self.handle(Event::Lock(LockEvent::Lost));
        }
    }

    fn handle(&mut self, event: Event) {
        self.machine.handle(self.state.began.elapsed(), event);
        self.take_effects();
    }

    fn warn(&self, warning: Warning) {
        // Nobody may listen.
        let _ = self.channels.warnings.send(warning);
    }

    /// Lets the lock go, and sees the last messages and transactions off.
    async fn close(self) {
        let Driver { outbox, channels, mut tasks, .. } = self;
        drop(channels);
        // If no server answers, the others notice that this node is silent.
        let _ = timeout(CLOSING, async {
            outbox.flushed().await;
            while tasks.join_next().await.is_some() {}
        })
        .await;
    }
}

/// Waits until the server refuses a commit of the outbox for good.
async fn refusal(refused: &mut watch::Receiver<Option<SequencerError>>) -> SequencerError {
    let error = refused.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
    match error {
        Some(error) => error,
        None => pending().await,
    }
}
