//! The coordinator: it orders the intents that are delegated to it, has them assembled and endorsed, and
//! dispatches them to the ledger under the contract's lock.
//!
//! ```text
//!              delegated, and first                  lock, nothing handed over
//!   Resting ------------------------> Electing ------------------------------> Active
//!     ^  ^     a less preferred beats    |  |  lock       all of it decided      ^ |
//!     |  |                               |  '--------> Prepared -----------------' | another is first:
//!     |  |                               | another is first                        | a new range, or
//!     |  | closing_grace beats           v              all decided                v it is heard again
//!     |  '--------------------------- Closing <-------------------------------- Flushing
//!     |                                  ^
//!     |  a beat with nothing in flight   '--- the lock is lost (from Prepared, Active, Flushing)
//!     '-- Electing, Active
//! ```
//!
//! There is no election: each node ranks the committee by its own height, leaves out those that are silent
//! for it, and queues for the lock when it finds itself first and has work. The lock decides who dispatches,
//! its token is the epoch. A coordinator that gives up says what it gives back, and hands over, under the
//! lock, what it has dispatched: that is in the snapshot of the next grant.

mod assembling;
mod dispatches;
mod endorsing;
mod footing;
mod lock;
mod pipeline;
mod pool;
mod ready;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use self::assembling::Assembling;
use self::dispatches::Dispatches;
use self::endorsing::Endorsing;
use self::lock::{Blocked, LockState};
use self::pool::Pool;
use self::ready::Ready;
use super::bugs::Bug;
use super::events::{Effect, Grant, LockEffect, Restored};
use super::options::Stickiness;
use super::shared::Shared;
use super::words::{
    Assembly, AssemblyHash, Beat, Epoch, HandedOver, Handover, IntentId, Message, Node, Notice, Phase,
    Rejection,
};

/// See the picture at the top of the file. The silence or the activity of others, which sets "idle" and
/// "observing" apart, is in [`Presence`](super::presence::Presence).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Resting,
    Electing,
    Prepared { since: Duration },
    Active,
    Flushing { until: Duration, is_handed_over: bool },
    Closing { beats: u32 },
}

#[derive(Debug)]
pub(super) struct Coordinator {
    state: State,
    lock: LockState,
    blocked: Option<Blocked>,
    /// It dispatches without the lock, behind a partition.
    is_solo: bool,
    beat_at: Duration,
    /// It has nothing in flight since then.
    empty_since: Duration,
    pool: Pool,
    assembling: Option<Assembling>,
    endorsing: Endorsing,
    ready: Ready,
    dispatches: Dispatches,
    /// Transactions of the coordinators before this one that the ledger has not decided.
    handed_over: Vec<HandedOver>,
    /// The latest confirmed assemblies: a sender whose view is older has to know of them.
    settled: VecDeque<Assembly>,
    round: u64,
    last_hash: Option<AssemblyHash>,
}

impl Coordinator {
    pub fn new(shared: &mut Shared, restored: &Restored) -> Coordinator {
        Coordinator {
            state: State::Resting,
            lock: LockState::None,
            blocked: None,
            is_solo: false,
            beat_at: Duration::ZERO,
            empty_since: Duration::ZERO,
            pool: Pool::default(),
            assembling: None,
            endorsing: Endorsing::default(),
            ready: Ready::default(),
            dispatches: Dispatches::new(shared, restored),
            handed_over: Vec::new(),
            settled: VecDeque::new(),
            round: 0,
            last_hash: None,
        }
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            State::Resting => Phase::Idle,
            State::Electing | State::Prepared { .. } => Phase::Electing,
            State::Active => Phase::Active,
            State::Flushing { .. } => Phase::Flushing,
            State::Closing { .. } => Phase::Closing,
        }
    }

    /// Returns the epoch under which it may dispatch.
    pub fn epoch(&self) -> Option<Epoch> {
        match self.lock {
            LockState::Held(epoch) => Some(epoch),
            LockState::None | LockState::Queued { .. } => self.is_solo.then_some(Epoch::SOLO),
        }
    }

    pub fn last_nonce(&self) -> u64 {
        self.dispatches.last_nonce()
    }

    fn has_work(&self) -> bool {
        !self.pool.is_empty() || self.assembling.is_some() || self.endorsing.len() + self.ready.len() > 0
    }

    fn is_in_flight(&self) -> bool {
        self.has_work() || !self.dispatches.is_empty() || !self.handed_over.is_empty()
    }

    /// Does all that its time has come for, or that became possible.
    pub fn step(&mut self, now: Duration, shared: &mut Shared) {
        self.follow_choice(now, shared);
        self.follow_time(now, shared);
        self.work_on(now, shared);
        self.dispatches.step(now, shared);
        self.beat(now, shared);
    }

    pub fn deadline(&self, now: Duration, shared: &Shared) -> Option<Duration> {
        let own = match self.state {
            State::Prepared { since } => {
                self.handed_over.iter().map(|it| waits_until(shared, it, since)).min()
            }
            State::Flushing { until, is_handed_over: true } => Some(until),
            // The handover is being written: the answer, or the loss of the lock, comes as an event.
            State::Flushing { is_handed_over: false, .. } => None,
            State::Resting | State::Electing | State::Active | State::Closing { .. } => None,
        };
        let beat_at = (self.state != State::Resting).then_some(self.beat_at);
        let is_open = matches!(self.state, State::Electing | State::Prepared { .. } | State::Active);
        let assembling = self.assembling.as_ref().map(|it| it.deadline(shared));
        let work = [assembling, self.endorsing.deadline(shared), self.ready.deadline()];
        let waits = [beat_at, own, self.dispatches.deadline(), self.solo_at(shared)];
        // The pool is only looked at when nothing else is being assembled.
        let pool = self.pool.deadline(now).filter(|_| is_open && self.assembling.is_none());
        waits.into_iter().chain(work).flatten().chain(pool).min()
    }

    /// Elects itself when it is first and another one works, gives up when it is first no longer.
    fn follow_choice(&mut self, now: Duration, shared: &mut Shared) {
        let is_first = shared.is_first();
        match self.state {
            State::Resting if is_first && shared.options().stickiness == Stickiness::Return => {
                // One whose height is ahead coordinates the next range: it is this node that is late.
                let is_behind = |height: u64| shared.options().range(height) <= shared.range();
                if shared.presence.beating().any(|(_, beating)| is_behind(beating.height)) {
                    self.elect(now, shared);
                }
            }
            State::Electing if !is_first => self.close(now, shared),
            State::Prepared { .. } | State::Active if !is_first && !self.is_stubborn(shared) => {
                self.flush(now, shared);
            }
            _ => {}
        }
    }

    /// Returns true if a deliberate bug keeps it from giving up.
    fn is_stubborn(&self, shared: &Shared) -> bool {
        let is_boundary = shared.rank().first() == Some(shared.choice());
        shared.has(Bug::PreferredIgnored) || shared.has(Bug::BoundaryIgnored) && is_boundary
    }

    fn elect(&mut self, now: Duration, shared: &mut Shared) {
        debug_assert_eq!(self.lock, LockState::None, "the lock of the last time was released");
        self.state = State::Electing;
        self.lock = LockState::Queued { is_blocked: false };
        (self.beat_at, self.empty_since) = (now, now);
        shared.effect(Effect::Lock(LockEffect::Acquire));
    }

    /// Stops to dispatch, says what it gives back, and hands over the rest.
    fn flush(&mut self, now: Duration, shared: &mut Shared) {
        self.give_back(shared);
        let until = now + shared.options().flush_timeout;
        let mut is_handed_over = true;
        if let LockState::Held(epoch) = self.lock {
            self.write_handover(now, shared, epoch);
            is_handed_over = false;
        }
        self.state = State::Flushing { until, is_handed_over };
        self.is_solo = false;
        self.beat_at = now;
    }

    fn write_handover(&self, now: Duration, shared: &mut Shared, epoch: Epoch) {
        let waited = match self.state {
            State::Prepared { since } if !shared.has(Bug::WaitsAnew) => now - since,
            _ => Duration::ZERO,
        };
        let inherited =
            self.handed_over.iter().cloned().map(|it| HandedOver { waited: it.waited + waited, ..it });
        let own = self.dispatches.transactions().cloned();
        let own = own.map(|transaction| HandedOver { transaction, waited: Duration::ZERO });
        let handover = Handover { epoch, dispatched: inherited.chain(own).collect(), last: self.last_hash };
        shared.effect(Effect::Lock(LockEffect::WriteHandover(handover)));
    }

    fn close(&mut self, now: Duration, shared: &mut Shared) {
        self.give_back(shared);
        self.release(now, shared);
        self.state = State::Closing { beats: shared.options().closing_grace };
        self.beat_at = now;
    }

    /// Forgets all that is not dispatched, and tells the senders.
    fn give_back(&mut self, shared: &mut Shared) {
        let mut given: BTreeMap<Node, Vec<IntentId>> = BTreeMap::new();
        for intent in self.undispatched() {
            given.entry(intent.sender.clone()).or_default().push(intent);
        }
        (self.pool, self.assembling) = (Pool::default(), None);
        (self.endorsing, self.ready) = (Endorsing::default(), Ready::default());
        for (sender, intents) in given {
            shared.send(&sender, Message::Returned { intents, why: None });
        }
    }

    fn undispatched(&self) -> BTreeSet<IntentId> {
        let assembling = self.assembling.iter().flat_map(Assembling::intents);
        let assembled = self.endorsing.assemblies().chain(self.ready.assemblies()).map(|it| &it.intent);
        self.pool.intents().chain(assembling).chain(assembled).cloned().collect()
    }

    /// Ends waits that are over.
    fn follow_time(&mut self, now: Duration, shared: &mut Shared) {
        match self.state {
            State::Electing if self.solo_at(shared).is_some_and(|at| at <= now) => {
                (self.state, self.is_solo) = (State::Active, true);
            }
            State::Prepared { since } => {
                let mut broken = BTreeSet::new();
                let awaited = self.handed_over.len();
                self.handed_over.retain(|it| {
                    let is_awaited = waits_until(shared, it, since) > now;
                    if !is_awaited {
                        broken.extend(it.transaction.assembly.outputs.iter().cloned());
                    }
                    is_awaited
                });
                let is_written = self.handed_over.len() == awaited;
                if !broken.is_empty() {
                    // Assemblies that rest on what is awaited no longer would revert.
                    self.recheck(now, broken);
                }
                if self.handed_over.is_empty() {
                    self.state = State::Active;
                }
                // The next one is not to wait once more for what is not awaited any longer.
                if let LockState::Held(epoch) = self.lock
                    && !is_written
                    && !shared.has(Bug::HandoverKept)
                {
                    self.write_handover(now, shared, epoch);
                }
            }
            State::Flushing { until, is_handed_over: true } if self.dispatches.is_empty() || until <= now => {
                self.close(now, shared);
            }
            _ => {}
        }
    }

    /// Sends a heartbeat when it is time, and comes to rest with the last one.
    fn beat(&mut self, now: Duration, shared: &mut Shared) {
        if self.is_in_flight() {
            self.empty_since = now;
        }
        if self.state == State::Resting || self.beat_at > now {
            return;
        }
        let is_done = match &mut self.state {
            State::Closing { beats: 0 } => true,
            State::Closing { beats } => {
                *beats -= 1;
                false
            }
            // It has just shown itself: the senders need time to delegate.
            State::Electing => self.empty_since + shared.silence() <= now,
            State::Active => !self.is_in_flight(),
            State::Resting | State::Prepared { .. } | State::Flushing { .. } => false,
        };
        if is_done && !shared.has(Bug::BeatsAtRest) {
            self.release(now, shared);
            self.state = State::Resting;
        }
        self.beat_at = now + shared.options().beat;
        let mut coordinates = self.undispatched();
        coordinates.extend(self.dispatches.transactions().map(|it| it.intent().clone()));
        let (phase, epoch, height) = (self.phase(), self.epoch(), shared.chain.height());
        shared.beat(Beat { phase, epoch, height, coordinates });
    }

    pub fn on_delegate(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        from: &Node,
        (height, skipped): (u64, &BTreeSet<Node>),
        intents: Vec<IntentId>,
    ) {
        if let Some(why) = self.rejects(now, shared, height, skipped) {
            return shared.send(from, Message::Rejected(why));
        }
        let listed: BTreeSet<&IntentId> = intents.iter().collect();
        self.pool.retain(|intent| intent.sender != *from || listed.contains(intent));
        let (mut accepted, mut dispatched, mut full) = (Vec::new(), Vec::new(), Vec::new());
        for intent in intents.into_iter().filter(|intent| intent.sender == *from) {
            if self.dispatches.contains(&intent) {
                self.dispatches.remind(now, &intent);
                dispatched.push(intent);
            } else if shared.chain.has_confirmed(&intent)
                || self.handed_over.iter().any(|it| *it.transaction.intent() == intent)
            {
                dispatched.push(intent);
            } else if self.undispatched_has(&intent) {
                accepted.push(intent);
            } else if self.pool.len_of(from) < shared.options().max_in_flight {
                self.pool.push(intent.clone());
                accepted.push(intent);
            } else {
                full.push(intent);
            }
        }
        if !accepted.is_empty() && matches!(self.state, State::Resting | State::Closing { .. }) {
            self.elect(now, shared);
        }
        shared.send(from, Message::Delegated { accepted, dispatched, full });
    }

    fn undispatched_has(&self, intent: &IntentId) -> bool {
        let is_asked_for = self.assembling.as_ref().is_some_and(|it| it.intents().any(|it| it == intent));
        let is_assembled = self.endorsing.contains(intent) || self.ready.contains(intent);
        is_asked_for || is_assembled || self.pool.contains(intent)
    }

    /// Returns why it does not take a delegation, if it does not. It takes the sender's word that a node is
    /// silent: if that is wrong, the node hears this one's heartbeat, and shows itself.
    fn rejects(
        &self,
        now: Duration,
        shared: &mut Shared,
        height: u64,
        skipped: &BTreeSet<Node>,
    ) -> Option<Rejection> {
        let is_return = shared.options().stickiness == Stickiness::Return;
        if is_return && shared.options().range(height) != shared.range() {
            return Some(Rejection::WrongRange { height: shared.chain.height() });
        }
        let is_other = |node: &&Node| *node != shared.me() && shared.members().contains(node);
        let others: BTreeSet<Node> = skipped.iter().filter(is_other).cloned().collect();
        let silence = shared.silence();
        shared.presence.believe_silent(now, silence, &others);
        match self.state {
            _ if !shared.is_first() => Some(Rejection::NotCoordinator { who: shared.choice().clone() }),
            State::Flushing { .. } => Some(Rejection::Flushing),
            _ => None,
        }
    }

    /// Gives a permission back that it has not used: it forgets the intent, and cannot use the permission
    /// without being granted it again.
    pub fn on_revoke(&mut self, now: Duration, shared: &mut Shared, from: &Node, grant: Grant) {
        let Grant { intent, epoch, hash, .. } = grant;
        if intent.sender != *from {
            return;
        }
        if self.dispatches.has(&intent, epoch, hash) && !shared.has(Bug::RevokedThoughUsed) {
            return self.dispatches.remind(now, &intent);
        }
        let broken = self.forget(now, |it| *it == intent);
        self.recheck(now, broken);
        let height = shared.chain.height();
        shared.send(from, Message::Revoked { intent, epoch, hash, height });
    }

    /// Takes up transactions that only the database has.
    pub fn on_resumed(&mut self, shared: &mut Shared, restored: &Restored) {
        self.dispatches.take_up(shared, restored);
    }

    pub fn on_not_submitted(&mut self, now: Duration, shared: &Shared, nonce: u64) {
        self.dispatches.on_not_submitted(now, shared, nonce);
    }

    pub fn on_ack(&mut self, from: &Node, notice: &Notice) {
        self.dispatches.on_ack(from, notice);
    }
}

/// Returns the end of the wait for a transaction, of a coordinator that waits since then.
fn waits_until(shared: &Shared, handed_over: &HandedOver, since: Duration) -> Duration {
    since + shared.options().flush_timeout.saturating_sub(handed_over.waited)
}
