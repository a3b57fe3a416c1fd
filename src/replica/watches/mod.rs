//! Watches: clients that follow keys or locks.
//!
//! ```text
//!  entries, once durable --> [ index: watches of these names ] --> Changed, Moved    (once, in causal order)
//!                |                                                 Reached           (from time to time)
//!                '--> history: a watch can resume from here
//!  grants, releases here --> [ index ] --> Granted, Released  (while the client keeps up, `holders.rs`)
//! ```
//!
//! A watch receives entries when they are durable here, in the order in which they were applied. Its client
//! keeps a vector of all that it has received, and resumes from there after a reconnect, at any datacenter.
//! [`history`] bounds how far back it may resume; from an older vector, the client reads the present state
//! and begins a new watch. A watch without matching changes receives its vector from time to time, so that
//! its client's vector does not fall behind.
//!
//! The cost of a commit is that of the watches that follow it. The other watches cost nothing but a `Reached`
//! every [`REACHED_BYTES`] of commits.
//!
//! # Decisions
//!
//! - **Holders of locks are shown as fast as the client reads** (`holders.rs`), because they are in no log
//!   that could be read later. The edge says how far the client has read (`Call::WatchTaken`). If too much
//!   is unread, events are dropped, and the watch begins again with the present holders. If no watch
//!   follows locks, a grant checks one empty map.
//! - **A watch can continue from the last 4 MiB of entries with events**, or fewer that take 8 MiB of
//!   memory (`history.rs`). A checkpoint keeps those of them that the log does not.

mod check;
mod history;
mod holders;
mod index;

pub use history::Past;
pub(crate) use holders::SAY_TAKEN_AT;

use crate::base::bugs::Bug;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crdts::CvRDT;

use super::call::{CallId, Limit, Refusal, Reply};
use super::clients::RETRY_AFTER;
use super::effect::{Effect, Notice};
use crate::base::time::{Instant, Now};
use crate::base::work;
use crate::causal_log::{Entry, LockParts, Log, Op};
use crate::crdt::VersionVector;
use crate::leases::SessionId;
use crate::lock_state::Locks;
use crate::replica::call::watch::{Changed, LockEvent, LockMove, LockNews, MAX_PATTERNS, Pattern};
use crate::replica::call::watch::{Subject, Watch, WatchRefusal};
use crate::replica::clients::{Clients, admit_load};
use crate::replica::config::ReplicaConfig;
use crate::replica::data::transactions::validate_vector;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::outputs::Outputs;
use geolock_api::names::{DcId, DcSet};
use history::{HISTORY_BYTES, History};
use holders::Holders;
use index::Index;

/// Most watches of one session.
const MAX_PER_SESSION: usize = 1_000;
/// After this many bytes of entries a watch receives a `Reached`: soon enough that the entries after its
/// vector are still remembered when its client reconnects.
const REACHED_BYTES: u64 = HISTORY_BYTES as u64 / 4;
/// After this time, too, if there was any entry.
const REACHED_AFTER: Duration = Duration::from_secs(5);
/// Most watches to which one step sends a `Reached`; the rest follow in later steps.
const REACHED_PER_STEP: usize = 1_000;
/// Approximate memory of a watch without its patterns, and of a pattern without its bytes.
const WATCH_WEIGHT: usize = 512;
const PATTERN_WEIGHT: usize = 128;

const _: () =
    assert!(2 * REACHED_BYTES <= HISTORY_BYTES as u64, "a watch can resume from its last `Reached`");

/// All watches of this datacenter.
#[derive(Default)]
pub(super) struct Watches {
    /// By the call that began the watch.
    rows: BTreeMap<CallId, Row>,
    followers: Followers,
    pub(super) history: History,
    /// The last `Reached` of each watch: [`History::passed`] at that moment, and the time. Both grow.
    reached: BTreeSet<(u64, Instant, CallId)>,
    /// Watches whose holder scan has more to do, in turn.
    scans: VecDeque<CallId>,
    /// Approximate memory of all watches, in bytes.
    weight: usize,
}

struct Row {
    subject: Subject,
    patterns: Vec<Pattern>,
    /// The vector that its client had before it began.
    from: VersionVector,
    /// Its key in [`Watches::reached`].
    reached: (u64, Instant),
    /// The state of its holder events; for watches of locks.
    holders: Holders,
}

/// Watches by the names that they follow.
#[derive(Default)]
struct Followers {
    keys: Index,
    locks: Index,
}

impl Followers {
    fn of(&mut self, subject: Subject) -> &mut Index {
        match subject {
            Subject::Keys => &mut self.keys,
            Subject::Locks => &mut self.locks,
        }
    }

    /// Sends the changes of an entry to the watches that follow them, unless their client had the entry
    /// before.
    fn tell(&self, rows: &BTreeMap<CallId, Row>, entry: &Entry, effects: &mut VecDeque<Effect>) {
        let Entry { dc, seq, at, .. } = *entry;
        let lacks = |call: &CallId| rows.get(call).is_some_and(|row| seq > row.from.get(dc));
        if let Some(commit) = entry.ops.iter().find_map(Op::as_commit) {
            let names = commit.changes.iter().map(|change| (change.key.as_bytes(), change.key.as_bytes()));
            for (call, places) in self.keys.matches(names).into_iter().filter(|(call, _)| lacks(call)) {
                let changes = places.into_iter().map(|place| commit.changes[place].clone()).collect();
                let notice = Notice::Changed(Box::new(Changed { watch: call.tag, dc, seq, at, changes }));
                effects.push_back(Effect::Notify { session: call.session, notice });
            }
        }
        if self.locks.is_empty() {
            return;
        }
        let moved: Vec<(DcId, &LockParts)> = entry.ops.iter().flat_map(moves).collect();
        let names = moved.iter().map(|(_, lock)| (lock.lock.identity(), lock.lock.as_bytes()));
        for (call, places) in self.locks.matches(names).into_iter().filter(|(call, _)| lacks(call)) {
            let moves = places.into_iter().map(|place| lock_move(moved[place])).collect();
            tell_lock(call, LockEvent::Moved { dc, seq, at, moves }, effects);
        }
    }
}

fn moves(op: &Op) -> impl Iterator<Item = (DcId, &LockParts)> {
    let (to, parts) = match op {
        Op::Transfer { to, parts } => (Some(*to), &parts[..]),
        _ => (None, &[][..]),
    };
    to.into_iter().flat_map(move |to| parts.iter().map(move |lock| (to, lock)))
}

fn lock_move((to, moved): (DcId, &LockParts)) -> LockMove {
    let parts: DcSet = moved.parts.iter().map(|(part, _)| *part).collect();
    LockMove { lock: moved.lock.clone(), parts, to }
}

fn tell_lock(call: CallId, event: LockEvent, effects: &mut VecDeque<Effect>) {
    let notice = Notice::Lock(Box::new(LockNews { watch: call.tag, event }));
    effects.push_back(Effect::Notify { session: call.session, notice });
}

fn weight(patterns: &[Pattern]) -> usize {
    let pattern = |pattern: &Pattern| PATTERN_WEIGHT + pattern.as_bytes().len();
    WATCH_WEIGHT + patterns.iter().map(pattern).sum::<usize>()
}

impl Watches {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    fn insert(&mut self, call: CallId, row: Row) {
        self.remove(call);
        self.weight += weight(&row.patterns);
        self.followers.of(row.subject).insert(call, &row.patterns);
        self.reached.insert((row.reached.0, row.reached.1, call));
        self.rows.insert(call, row);
    }

    fn remove(&mut self, call: CallId) {
        let Some(row) = self.rows.remove(&call) else { return };
        self.weight -= weight(&row.patterns);
        self.followers.of(row.subject).remove(call, &row.patterns);
        let was_listed = self.reached.remove(&(row.reached.0, row.reached.1, call));
        assert!(was_listed, "watch {call:?} is listed by its last `Reached`");
    }

    pub fn close_session(&mut self, session: SessionId) {
        let gone: Vec<CallId> = self.rows.range(all_of(session)).map(|(call, _)| *call).collect();
        gone.into_iter().for_each(|call| self.remove(call));
    }

    /// Sends a new watch the remembered entries that its client lacks. A client whose vector covers `durable`
    /// lacks none.
    fn catch_up(&self, call: CallId, durable: &VersionVector, effects: &mut VecDeque<Effect>) {
        let Some(row) = self.rows.get(&call).filter(|row| !row.from.covers(durable)) else { return };
        let mut alone = Followers::default();
        alone.of(row.subject).insert(call, &row.patterns);
        let lacks = |entry: &&Arc<Entry>| entry.seq > row.from.get(entry.dc);
        self.history.entries().filter(lacks).for_each(|entry| {
            work::count(1);
            alone.tell(&self.rows, entry, effects);
        });
    }

    /// Returns the next watch that is to receive a `Reached`: because of the bytes that passed since its last
    /// one or, at a heartbeat, because of the time.
    fn next_to_reach(&self, heartbeat: Option<Instant>) -> Option<CallId> {
        let (told, since, call) = *self.reached.first()?;
        let passed = self.history.passed();
        assert!(told <= passed, "watch {call:?} was told of {told} bytes, {passed} have passed");
        let news = passed - told;
        let is_long_ago = heartbeat.is_some_and(|now| since + REACHED_AFTER <= now);
        (news >= REACHED_BYTES || (news > 0 && is_long_ago)).then_some(call)
    }
}

fn all_of(session: SessionId) -> std::ops::RangeInclusive<CallId> {
    CallId { session, tag: 0 }..=CallId { session, tag: u64::MAX }
}

/// Calls on watches, and what they are sent.
pub(in crate::replica) struct WatchCalls<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) clients: &'a Clients,
    pub(in crate::replica) watches: &'a mut Watches,
}

impl WatchCalls<'_> {
    pub(super) fn on_watch(&mut self, call: CallId, watch: Watch) {
        let from = match self.admit_watch(call, &watch) {
            Ok(from) => from,
            Err(refusal) => return self.out.refuse(call, refusal),
        };
        self.out.reply(call, Reply::Watching { from: from.clone() });
        let Watch { subject, patterns, .. } = watch;
        let reached = (self.watches.history.passed(), self.now.mono);
        let row = Row { subject, patterns, from, reached, holders: Holders::default() };
        self.watches.insert(call, row);
        let misses = self.config.bugs.has(Bug::WatchMissesPast);
        if !misses {
            self.watches.catch_up(call, self.log.durable(), &mut self.out.effects);
        }
        if subject == Subject::Locks {
            self.watches.begin_holders(call, &mut self.out.effects);
        }
    }

    /// Checks if a watch may begin; returns the vector that it begins from.
    fn admit_watch(&self, call: CallId, watch: &Watch) -> Result<VersionVector, Refusal> {
        admit_load(self.lifecycle.admission.load(), self.out.counts.calls_shed)?;
        let patterns = watch.patterns.len();
        if patterns == 0 || patterns > MAX_PATTERNS {
            return Err(WatchRefusal::Patterns(patterns).into());
        }
        self.lifecycle.versions.admit_homes(
            self.config,
            self.locks.owners().homes(),
            watch.patterns.iter().filter_map(Pattern::as_lock),
        )?;
        if self.watches.rows.range(all_of(call.session)).count() >= MAX_PER_SESSION {
            return Err(WatchRefusal::TooMany(MAX_PER_SESSION).into());
        }
        if self.watches.weight + weight(&watch.patterns) > self.config.local.max_watch_bytes {
            let retry_after = RETRY_AFTER;
            return Err(Refusal::ResourceExhausted { limit: Limit::Watches, retry_after });
        }
        let from = match &watch.from {
            Some(from) => {
                validate_vector(from, self.members, self.log, self.lifecycle)?;
                from.clone()
            }
            None => (**self.log.durable()).clone(),
        };
        let begins = self.watches.history.forgotten();
        // After a state was installed, this covers also its entries that are not durable yet: no watch
        // receives them.
        if !from.covers(begins) {
            return Err(WatchRefusal::TooOld { begins: begins.clone() }.into());
        }
        Ok(from)
    }

    /// Ends a watch. Succeeds if it has ended already.
    pub(super) fn on_unwatch(&mut self, call: CallId, watch: u64) {
        self.watches.remove(CallId { session: call.session, tag: watch });
        self.out.reply(call, Reply::Unwatched);
    }

    /// A state of another datacenter was installed. The entries that it contains cannot be sent, so all
    /// watches end.
    pub(super) fn end_watches(&mut self) {
        self.watches.history.forget_up_to(self.log.applied());
        let begins = self.watches.history.forgotten().clone();
        let calls: Vec<CallId> = self.watches.rows.keys().copied().collect();
        for call in calls {
            self.watches.remove(call);
            let why = WatchRefusal::TooOld { begins: begins.clone() };
            let notice = Notice::WatchEnded { watch: call.tag, why };
            self.out.effects.push_back(Effect::Notify { session: call.session, notice });
        }
    }

    /// Sends entries that became durable, in this order.
    pub(super) fn tell_watches(&mut self, entries: Vec<Arc<Entry>>) {
        let watches = &mut self.watches;
        for entry in entries {
            watches.followers.tell(&watches.rows, &entry, &mut self.out.effects);
            watches.history.remember(&entry);
        }
        self.tell_reached(None);
    }

    pub(super) fn on_watch_heartbeat(&mut self) {
        self.tell_reached(Some(self.now.mono));
    }

    /// Sends a `Reached` to the watches for which it is time. All durable entries have been sent to the
    /// watches that follow them.
    fn tell_reached(&mut self, heartbeat: Option<Instant>) {
        let now = self.now.mono;
        for _ in 0..REACHED_PER_STEP {
            let Some(call) = self.watches.next_to_reach(heartbeat) else { return };
            let reached = (self.watches.history.passed(), now);
            let row = self.watches.rows.get_mut(&call).expect("who is to be told is there");
            let before = std::mem::replace(&mut row.reached, reached);
            let was_listed = self.watches.reached.remove(&(before.0, before.1, call));
            assert!(was_listed, "watch {call:?} is listed by its last `Reached`");
            assert!(before.0 < reached.0, "watch {call:?} is told of news, not of {before:?} again");
            self.watches.reached.insert((reached.0, reached.1, call));
            let mut vector = row.from.clone();
            vector.merge((**self.log.durable()).clone());
            let notice = Notice::Progress { watch: call.tag, vector };
            self.out.effects.push_back(Effect::Notify { session: call.session, notice });
        }
    }
}
