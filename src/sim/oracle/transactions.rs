//! The promises to transactions (`docs/algorithm/log.md#2-transactions`), checked from outside: the intents
//! of clients, the commits that were made, and the answers to clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::time::TimeToLive;
use crate::causal_log::{Action, Change, Entry, Op, Wants};
use crate::crdt::value::Dot;
use crate::crdt::{Ownership, VersionVector};
use crate::replica::call::store::{Stepped, TxnState};
use crate::sim::disk::apply_transfers;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::Broken;
use crate::sim::oracle::commits::{Commits, Mortality, is_large};
use crate::sim::oracle::locked::{Guard, Locked};
use crate::sim::outcome::Outcome;
use crate::sim::queue::Moment;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, FencingToken, IdempotencyKey, LeaseId, LockName, Mode};
use geolock_api::value::{Op as ValueOp, Reading, Update};

/// A transaction by its lease and idempotency key.
pub(crate) type TxnKey = (LeaseId, IdempotencyKey);

/// Whole stores are read as by clients of this datacenter: some types show each datacenter its own share.
pub(crate) const READER: DcId = match DcId::new(0) {
    Some(dc) => dc,
    None => panic!("there is a first datacenter"),
};

/// The intent of a client for a transaction from its first step to its end.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    pub wants: Option<Wants>,
    pub under: Vec<Guard>,
    /// Of all its steps.
    pub changes: Vec<Change>,
    /// It ends with a commit, if all goes well.
    pub commits: bool,
}

/// The content of a step's call.
#[derive(Clone, Debug)]
pub(crate) struct AskedStep {
    /// `None`: reads without a transaction.
    pub txn: Option<TxnKey>,
    pub reads: Vec<Key>,
    /// Changes of this step and those before it.
    pub own: Vec<Change>,
    pub at_least: VersionVector,
    /// It may have been answered before.
    pub resent: bool,
}

/// The circumstances of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeAt {
    pub now: Moment,
    /// No wall clock of this run jumps, or is off at a restart.
    pub clocks_are_right: bool,
}

/// All transactions of a run.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    pub(super) commits: Commits,
    pub(super) intents: BTreeMap<TxnKey, Intent>,
    made: BTreeMap<TxnKey, Dot>,
    /// Answered to their clients as committed: the commit vectors.
    told: BTreeMap<TxnKey, VersionVector>,
    /// Answered to their clients as not committed.
    never: BTreeMap<TxnKey, &'static str>,
    /// By lock, in the order made.
    pub(super) locks: BTreeMap<LockName, Vec<Locked>>,
    tokens: BTreeMap<TxnKey, FencingToken>,
    /// Times of the commits that give keys a time to live.
    asked_at: BTreeMap<Dot, Moment>,
    /// Entries that no node had any more after a disk had lost them; some may have been on their way.
    lost: Vec<Arc<Entry>>,
    /// Counted at the end, so that transactions that a crash takes away are not counted.
    pub uncommitted: u64,
}

/// Removes the rights from a reading. Rights move key by key, and they decide if a counter of 0 is visible at
/// all: a transaction that reads a counter which it decrements itself, before it commits, may do so with
/// rights that its snapshot does not show.
fn without_rights(value: &Option<Reading>) -> Option<Reading> {
    match value {
        Some(Reading::BoundedCounter { value: 0, .. }) => None,
        Some(Reading::BoundedCounter { value, .. }) => {
            Some(Reading::BoundedCounter { value: *value, rights: 0 })
        }
        other => other.clone(),
    }
}

pub(super) fn broken(kind: FailureKind, what: String) -> Result<(), Broken> {
    Err(Broken::new(kind, what))
}

impl Transactions {
    /// Returns the number of commits that were made for clients.
    pub fn made(&self) -> usize {
        self.made.len()
    }

    /// Returns true if a commit that changes something was made for this transaction.
    pub fn is_made_for(&self, txn: TxnKey) -> bool {
        self.made.contains_key(&txn)
    }

    /// A client begins, or begins again.
    pub fn on_begin(&mut self, txn: TxnKey, intent: Intent) {
        self.intents.entry(txn).or_insert(intent);
    }

    /// Returns the commit that was made for this transaction.
    pub fn made_as(&self, txn: TxnKey) -> Option<Dot> {
        self.made.get(&txn).copied()
    }

    /// Records that no node knows this commit any more: if its client asks again, it is made again.
    pub fn forget_outcome(&mut self, txn: TxnKey) {
        self.made.remove(&txn);
        self.told.remove(&txn);
    }

    /// A client changes the intent of its transaction: refused changes are not to be committed.
    pub fn on_other_intent(&mut self, txn: TxnKey, intent: Intent) {
        self.intents.insert(txn, intent);
    }

    /// Returns true if its datacenter made this entry before its disk lost it.
    pub fn is_made(&self, entry: &Entry) -> bool {
        self.commits.get(Dot { dc: entry.dc, seq: entry.seq }).is_some()
    }

    /// A datacenter appended an entry of its own to its journal.
    pub fn on_made(&mut self, entry: &Arc<Entry>, at: &MadeAt) -> Result<(), Broken> {
        self.commits.add(entry);
        let Some(commit) = entry.ops.iter().find_map(Op::as_commit) else { return Ok(()) };
        let dot = Dot { dc: entry.dc, seq: entry.seq };
        if commit.changes.iter().any(|change| matches!(change.action, Action::Expire(_))) {
            self.asked_at.insert(dot, at.now);
        }
        let ghost = |what: String| broken(FailureKind::GhostCommit, what);
        let Some(txn) = commit.client else {
            return commit.changes.iter().try_for_each(|change| match &change.action {
                // Rights of bounded counters move to the datacenters that need them.
                Action::Update(Update { op: ValueOp::TransferRights { .. }, .. }) => Ok(()),
                Action::Expired => self.check_lapse(dot, &change.key, &commit.seen, at),
                _ => ghost(format!("nobody asked for {change:?}, committed as {dot:?}")),
            });
        };
        if let Some(first) = self.made.insert(txn, dot) {
            let what = format!("transaction {txn:?} is committed as {first:?} and as {dot:?}");
            return broken(FailureKind::CommittedTwice, what);
        }
        let Some(intent) = self.intents.get(&txn) else {
            return ghost(format!("nobody began {txn:?}, which is committed as {dot:?}"));
        };
        if let Some(why) = self.never.get(&txn) {
            return ghost(format!("{txn:?} is committed as {dot:?}; its client was told: {why}"));
        }
        if !intent.commits || intent.changes != commit.changes {
            return ghost(format!("{txn:?} wants {intent:?}; committed as {dot:?} is {:?}", commit.changes));
        }
        if let Some(change) = self.commits.without_effect(dot) {
            let what = format!(
                "{change:?} of {txn:?} is committed as {dot:?}, at {}: its key had ended",
                commit.seen
            );
            return broken(FailureKind::WithoutEffect, what);
        }
        let intent = intent.clone();
        self.check_serial_commit(txn, &commit.seen, &intent)?;
        self.note_locked(dot, txn, &intent);
        Ok(())
    }

    /// Checks that a key may end in a datacenter that had applied `seen`: by its time, or by its value.
    fn check_lapse(&self, dot: Dot, key: &Key, seen: &VersionVector, at: &MadeAt) -> Result<(), Broken> {
        let Mortality { expiries, is_done } = self.commits.mortality(key, seen);
        let is_over = |(asked, ttl): &(Dot, TimeToLive)| {
            // Clocks differ in speed.
            let least = ttl.duration() - ttl.duration() / 32;
            !at.clocks_are_right || at.now.since(self.asked_at[asked]) >= least
        };
        if is_done || (!expiries.is_empty() && expiries.iter().all(is_over)) {
            return Ok(());
        }
        broken(
            FailureKind::ExpiredEarly,
            format!("{key} lapses as {dot:?} at {}; asked for are {expiries:?}", at.now),
        )
    }

    /// An entry of another datacenter is applied somewhere.
    pub fn on_applied(&self, at: DcId, entry: &Arc<Entry>) -> Result<(), Broken> {
        match self.commits.get(Dot { dc: entry.dc, seq: entry.seq }) {
            Some(made) if made == entry => Ok(()),
            made => broken(FailureKind::Diverged, format!("{at} applied {entry:?}, made was {made:?}")),
        }
    }

    /// Checks that a state has all dependencies of its entries.
    pub fn check_closed(&self, vector: &VersionVector) -> Result<(), Broken> {
        self.commits.check_closed(vector)
    }

    /// Returns the ownership map after all of these entries.
    pub fn ownership_at(&self, vector: &VersionVector) -> Ownership {
        let mut ownership = Ownership::new(0);
        let mut entries: Vec<&Arc<Entry>> = self.commits.entries(vector).collect();
        // An order in which causes come before their effects.
        entries.sort_by_key(|entry| (entry.at, entry.dc));
        entries.iter().flat_map(|entry| &entry.ops).for_each(|op| apply_transfers(&mut ownership, op));
        ownership
    }

    /// A crash of `dc` lost its entries after `seq`.
    pub fn on_crash(&mut self, dc: DcId, seq: u64) -> Result<(), Broken> {
        self.commits.cut(dc, seq);
        let is_lost = |dot: Dot| dot.dc == dc && dot.seq > seq;
        if let Some((txn, dot)) =
            self.made.iter().find(|(txn, dot)| is_lost(**dot) && self.told.contains_key(*txn))
        {
            let what = format!("{txn:?} was told to be committed as {dot:?}, which a crash took away");
            return broken(FailureKind::CommitLost, what);
        }
        self.made.retain(|_, dot| !is_lost(*dot));
        self.locks.values_mut().for_each(|commits| commits.retain(|commit| !is_lost(commit.dot)));
        Ok(())
    }

    /// Returns the entry that is known under that number.
    pub fn entry(&self, dot: Dot) -> Option<&Arc<Entry>> {
        self.commits.get(dot)
    }

    /// No node has the entries of `dc` after `seq` any more: the answers that rest on them are lost. Returns
    /// the number of the last one that is left.
    pub fn on_lost(&mut self, dc: DcId, seq: u64) -> u64 {
        let is_lost = |dot: Dot| dot.dc == dc && dot.seq > seq;
        self.lost.extend(self.commits.cut(dc, seq));
        let Transactions { made, told, .. } = self;
        made.iter().filter(|(_, dot)| is_lost(**dot)).for_each(|(txn, _)| {
            told.remove(txn);
        });
        made.retain(|_, dot| !is_lost(*dot));
        self.locks.values_mut().for_each(|commits| commits.retain(|commit| !is_lost(commit.dot)));
        self.commits.last_of(dc)
    }

    /// Adds an entry again that seemed to be lost and was on its way to a node. Returns true if it was such
    /// an entry.
    pub fn revive(&mut self, entry: &Arc<Entry>) -> bool {
        if !self.commits.is_next(entry) || !self.lost.contains(entry) {
            return false;
        }
        self.commits.add(entry);
        let Some(commit) = entry.ops.iter().find_map(Op::as_commit) else { return true };
        let dot = Dot { dc: entry.dc, seq: entry.seq };
        if let Some(txn) = commit.client {
            self.made.insert(txn, dot);
            if let Some(intent) = self.intents.get(&txn).cloned() {
                self.note_locked(dot, txn, &intent);
            }
        }
        true
    }

    /// A client knows that its transaction is not committed and will not be.
    pub fn on_never(&mut self, txn: TxnKey, why: &'static str) -> Result<(), Broken> {
        self.uncommitted += 1;
        self.never.insert(txn, why);
        match self.made.get(&txn) {
            Some(dot) => {
                broken(FailureKind::GhostCommit, format!("{txn:?} is committed as {dot:?}; told was: {why}"))
            }
            None => Ok(()),
        }
    }

    /// Checks an answer to a step by `dc`, which has `durable` on its disk.
    pub fn on_stepped(
        &mut self,
        dc: DcId,
        durable: &VersionVector,
        asked: &AskedStep,
        stepped: &Stepped,
    ) -> Result<(), Broken> {
        let Stepped { snapshot, values, state, token, .. } = stepped;
        let vectors = match state {
            TxnState::Committed(vector) => [Some(snapshot), Some(vector)],
            TxnState::Open | TxnState::Aborted => [Some(snapshot), None],
        };
        for vector in vectors.into_iter().flatten() {
            if !durable.covers(vector) {
                let what = format!("{dc} answered {asked:?} with {vector}; durable are only {durable}");
                return broken(FailureKind::LeftBeforeDurable, what);
            }
        }
        // A repeated answer has the commit vector in place of the snapshot. That vector need not be closed: a
        // transaction may have seen less than its entry depends on.
        let is_told_again = asked.resent && values.is_empty();
        if !is_told_again {
            self.commits.check_closed(snapshot)?;
            self.check_values(dc, asked, snapshot, &stepped.readings())?;
        }
        let Some(txn) = asked.txn else { return Ok(()) };
        if let (TxnState::Open, Some(_), Some(intent)) = (state, token, self.intents.get(&txn))
            && let Some(wants) = &intent.wants
        {
            self.check_serial(&format_args!("{txn:?}"), snapshot, wants.locks())?;
        }
        self.tokens.extend(token.map(|token| (txn, token)));
        match state {
            TxnState::Committed(vector) => self.on_told(dc, txn, snapshot, vector, is_told_again),
            TxnState::Open | TxnState::Aborted => Ok(()),
        }
    }

    fn check_values(
        &self,
        dc: DcId,
        asked: &AskedStep,
        snapshot: &VersionVector,
        values: &[Option<Reading>],
    ) -> Result<(), Broken> {
        if !snapshot.covers(&asked.at_least) {
            let what = format!("{dc} answered {asked:?} at {snapshot}");
            return broken(FailureKind::SnapshotTooOld, what);
        }
        if values.len() != asked.reads.len() {
            let what = format!("{dc} answered {asked:?} with {} values", values.len());
            return broken(FailureKind::Contract, what);
        }
        for (key, value) in asked.reads.iter().zip(values) {
            let should = self.commits.reading(key, snapshot, &asked.own, dc);
            self.check_reading(dc, key, snapshot, (value.as_ref(), should.as_ref()))?;
        }
        // Keys are read in pairs that are always written together.
        for (keys, values) in asked.reads.chunks_exact(2).zip(values.chunks_exact(2)) {
            if without_rights(&values[0]) != without_rights(&values[1]) {
                let what = format!("{dc} shows {keys:?}, written together, at {snapshot} as {values:?}");
                return broken(FailureKind::TornCommit, what);
            }
        }
        Ok(())
    }

    /// Compares a reading with the expected one.
    fn check_reading(
        &self,
        dc: DcId,
        key: &Key,
        snapshot: &VersionVector,
        (is, should): (Option<&Reading>, Option<&Reading>),
    ) -> Result<(), Broken> {
        if self.commits.is_below_bound(key, snapshot) {
            let what = format!("{key} is below its bound at {snapshot}; {dc} shows {is:?}");
            return broken(FailureKind::BelowBound, what);
        }
        if is == should {
            return Ok(());
        }
        let kind = match self.commits.was_removed(key, snapshot) {
            true => FailureKind::Resurrected,
            false => FailureKind::WrongReading,
        };
        broken(kind, format!("{dc} shows {key} at {snapshot} as {is:?}; it should be {should:?}"))
    }

    fn on_told(
        &mut self,
        dc: DcId,
        txn: TxnKey,
        snapshot: &VersionVector,
        vector: &VersionVector,
        is_told_again: bool,
    ) -> Result<(), Broken> {
        let changes = self.intents.get(&txn).map_or(0, |intent| intent.changes.len());
        let mut should = snapshot.clone();
        match self.made.get(&txn) {
            Some(dot) => {
                let commit = self.commits.commit(*dot).expect("what is made is kept");
                if !is_told_again && commit.seen != *snapshot {
                    let what = format!("{txn:?} read at {snapshot} and has seen {}", commit.seen);
                    return broken(FailureKind::WrongReading, what);
                }
                should = commit.seen.clone();
                should.raise(dot.dc, dot.seq);
            }
            None if changes > 0 => {
                let what = format!("{dc} says that {txn:?} is committed at {vector}; it never was");
                return broken(FailureKind::CommitLost, what);
            }
            None => {}
        }
        let before = self.told.insert(txn, vector.clone());
        // A transaction without changes that is asked for again after a restart may read anew.
        let differs = changes > 0 && before.as_ref().is_some_and(|before| before != vector);
        if *vector != should || differs {
            let what = format!("{txn:?} is committed at {vector}, should be {should}, before {before:?}");
            return broken(FailureKind::Contract, what);
        }
        Ok(())
    }

    /// Checks that the content of a replica is what the commits that it applied amount to.
    pub fn check_contents(
        &self,
        dc: DcId,
        applied: &VersionVector,
        contents: &BTreeMap<Key, Reading>,
    ) -> Result<(), Broken> {
        for key in self.commits.keys() {
            let should = self.commits.reading(key, applied, &[], READER);
            self.check_reading(dc, key, applied, (contents.get(key), should.as_ref()))?;
        }
        Ok(())
    }

    /// In the quiet: every commit is in the common vector, and tokens grow along the commits under a lock.
    pub fn check_all(&self, applied: &VersionVector) -> Result<(), Broken> {
        for (txn, dot) in &self.made {
            if applied.get(dot.dc) < dot.seq {
                let what = format!("{txn:?} was committed as {dot:?}; applied is only {applied}");
                return broken(FailureKind::CommitLost, what);
            }
        }
        for (lock, commits) in &self.locks {
            let (mut shared, mut exclusive) = (None, None);
            // A transaction that was committed again has another token.
            let are_last = commits.iter().filter(|commit| self.made.get(&commit.txn) == Some(&commit.dot));
            for Locked { mode, txn, .. } in are_last {
                let Some(token) = self.tokens.get(txn).copied() else { continue };
                let conflicting = if *mode == Mode::Exclusive { exclusive.max(shared) } else { exclusive };
                if conflicting >= Some(token) {
                    let what = format!("{txn:?} committed under {lock} with {token:?} after {conflicting:?}");
                    return broken(FailureKind::TokenOrder, what);
                }
                let highest = if *mode == Mode::Exclusive { &mut exclusive } else { &mut shared };
                *highest = (*highest).max(Some(token));
            }
        }
        Ok(())
    }

    /// Adds the counts to an outcome.
    pub fn count(&self, outcome: &mut Outcome) {
        outcome.commits = self.made.len() as u64;
        outcome.uncommitted = self.uncommitted;
        let made = |is: fn(&Intent) -> bool| {
            self.made.keys().filter(|txn| self.intents.get(*txn).is_some_and(is)).count() as u64
        };
        outcome.locked_commits = made(|intent| intent.wants.is_some());
        outcome.guarded_commits = made(|intent| !intent.under.is_empty());
        let moved = |commits: &Vec<Locked>| {
            commits.windows(2).filter(|pair| pair[0].dot.dc != pair[1].dot.dc).count() as u64
        };
        outcome.commit_hand_offs = self.locks.values().map(moved).sum();
        let changes = || self.made.values().flat_map(|dot| self.commits.changes(*dot));
        outcome.removals = changes().filter(|change| change.action == Action::Remove).count() as u64;
        outcome.large_changes = changes().filter(|change| is_large(change)).count() as u64;
        outcome.keys_expired = self.commits.lapses();
    }
}
