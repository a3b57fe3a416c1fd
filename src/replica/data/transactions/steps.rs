//! Steps of an open transaction: changes, then reads, then the end if it asks for it.

use crate::base::bugs::Bug;
use std::collections::BTreeMap;

use super::commit::can_commit;
use super::{Open, Txn, TxnId};
use crate::causal_log::{Action, Change, MAX_CHANGES, MAX_COMMIT_BYTES};
use crate::crdt::VersionVector;
use crate::crdt::value::SharedValue;
use crate::replica::call::store::{
    Durability, Durable, MAX_CHANGE_BYTES, MAX_READS, Step, Stepped, Then, TxnRefusal, TxnState,
};
use crate::replica::call::{CallId, Limit, Refusal, Reply};
use crate::replica::clients::RETRY_AFTER;
use crate::replica::clients::grants::Requests;
use crate::replica::data::transactions::TxnCalls;
use crate::replica::lend::lend;
use geolock_api::keys::Key;
use geolock_api::names::Position;

/// Approximate bound of the bytes that one step reads: far below the limit of a reply.
const MAX_READ_BYTES: usize = 4 << 20;
/// Up to this many changes are checked with every step; more are checked at the commit.
const CHECKED_EARLY: usize = 256;

/// The locks may be granted elsewhere by the time at which others see the commit.
const NOT_BACKED: &str = "a majority of the voters does not acknowledge it, so it may be evicted: until one does it \
                          commits nothing under locks";

impl TxnCalls<'_> {
    /// Makes the step of a begin. If it is refused, the transaction does not exist.
    pub(super) fn first_step(&mut self, call: CallId, id: TxnId, step: Step) {
        if let Err(refusal) = self.try_step(call, id, step) {
            lend!(Requests, self).abort(id);
            self.out.refuse(call, refusal);
        }
    }

    /// Makes a step that follows `after` changes. Changes of it that the transaction already has are skipped.
    pub(super) fn next_step(&mut self, call: CallId, id: TxnId, after: usize, mut step: Step) {
        let Some(Txn::Open(open)) = self.data.transactions.rows.get(&id) else {
            unreachable!("only open transactions make steps, {id:?} is not");
        };
        let made = open.changes.len();
        let Some(again) = made.checked_sub(after) else {
            return self.out.refuse(call, TxnRefusal::StepMissing { key: id.key, after, made }.into());
        };
        step.changes.drain(..again.min(step.changes.len()));
        let bytes = step.changes.iter().map(Change::weight).sum();
        if let Err(refusal) = self.admit_bytes(bytes) {
            return self.out.refuse(call, refusal);
        }
        self.step(call, id, step);
    }

    /// Makes a step of an open transaction. If it is refused, the transaction is as before.
    pub(super) fn step(&mut self, call: CallId, id: TxnId, step: Step) {
        if let Err(refusal) = self.try_step(call, id, step) {
            self.out.refuse(call, refusal);
        }
    }

    /// Refuses `bytes` more if transactions and waiting reads would keep too much.
    pub(super) fn admit_bytes(&self, bytes: usize) -> Result<(), Refusal> {
        if self.data.transactions.kept_bytes() + bytes > self.config.local.max_transaction_bytes {
            return Err(Refusal::ResourceExhausted {
                limit: Limit::TransactionBytes,
                retry_after: RETRY_AFTER,
            });
        }
        Ok(())
    }

    fn try_step(&mut self, call: CallId, id: TxnId, step: Step) -> Result<(), Refusal> {
        validate_reads(&step.reads)?;
        let added = validate_changes(&step.changes)?;
        let named = step.changes.iter().filter_map(Change::names_dc);
        if let Some(stranger) = named
            .into_iter()
            .find(|dc| !self.members.entered.contains(*dc) || self.members.entered.is_parting(*dc))
        {
            return Err(TxnRefusal::UnknownDc(stranger).into());
        }
        let Some(Txn::Open(open)) = self.data.transactions.rows.get(&id) else {
            unreachable!("only open transactions make steps, {id:?} is not");
        };
        let (before, has_locks) = (open.changes.len(), open.token.is_some() || !open.under.is_empty());
        let (changes, bytes) = (before + step.changes.len(), open.bytes + added);
        if changes > MAX_CHANGES || bytes > MAX_COMMIT_BYTES {
            let (max_changes, max_bytes) = (MAX_CHANGES, MAX_COMMIT_BYTES);
            return Err(TxnRefusal::TooLarge { changes, bytes, max_changes, max_bytes }.into());
        }
        if step.then != Then::Abort && !open.under.is_empty() {
            let under = open.under.clone();
            self.keep_guards(id, &under)?;
        }
        if step.then == Then::Commit && changes > 0 {
            // Before any change is taken in: a refused step leaves no changes behind.
            let can = can_commit(self.lifecycle);
            if can.is_err()
                && self.config.bugs.has(Bug::RefusedStays)
                && let Some(Txn::Open(open)) = self.data.transactions.rows.get_mut(&id)
            {
                open.changes.extend(step.changes.iter().cloned());
            }
            can?;
            if has_locks && !self.lifecycle.member_lease.is_backed() {
                return Err(TxnRefusal::CannotCommit(NOT_BACKED).into());
            }
        }
        let Some(Txn::Open(open)) = self.data.transactions.rows.get_mut(&id) else {
            unreachable!("nothing happened to {id:?} meanwhile");
        };
        // Taken out while the store reads.
        let mut all = std::mem::take(&mut open.changes);
        let (at, snapshot, token) = (open.at, open.snapshot.clone(), open.token);
        all.extend(step.changes);
        let done = self.check_and_read(&all, &step.reads, at, &snapshot, step.then).map_err(Refusal::from);
        let done = done.and_then(|values| self.admit_answer(&all, step.then, step.durability, values));
        let Some(Txn::Open(open)) = self.data.transactions.rows.get_mut(&id) else {
            unreachable!("nothing happened to {id:?} meanwhile");
        };
        if done.is_err() {
            all.truncate(before);
        }
        open.changes = all;
        if done.is_ok() {
            self.data.transactions.rows.grow(id, added);
        }
        let (state, durable) = (TxnState::Open, Durable::Here);
        let stepped = Stepped { snapshot, token, values: done?, state, durable };
        match step.then {
            Then::Continue => self.out.reply(call, Reply::Stepped(Box::new(stepped))),
            Then::Commit => self.commit(call, id, stepped, step.durability),
            Then::Abort => {
                lend!(Requests, self).abort(id);
                let stepped = Stepped { state: TxnState::Aborted, ..stepped };
                self.out.reply(call, Reply::Stepped(Box::new(stepped)));
            }
        }
        Ok(())
    }

    /// Refuses a commit whose answer would wait for a majority with more values than may be kept.
    fn admit_answer(
        &self,
        changes: &[Change],
        then: Then,
        durability: Durability,
        values: Vec<Option<SharedValue>>,
    ) -> Result<Vec<Option<SharedValue>>, Refusal> {
        let asks = durability != Durability::Local;
        if then == Then::Commit && !values.is_empty() && (asks || self.config.local.needs_majority(changes)) {
            self.admit_bytes(values.iter().flatten().map(SharedValue::weight).sum())?;
        }
        Ok(values)
    }

    fn check_and_read(
        &mut self,
        changes: &[Change],
        reads: &[Key],
        at: Position,
        snapshot: &VersionVector,
        then: Then,
    ) -> Result<Vec<Option<SharedValue>>, TxnRefusal> {
        let checks = match then {
            Then::Commit => true,
            Then::Continue => changes.len() <= CHECKED_EARLY,
            // An abort must succeed, whatever other transactions committed meanwhile.
            Then::Abort => false,
        };
        if checks {
            self.data.store.check(changes, snapshot).inspect_err(|error| self.ask_for_rights(error))?;
        }
        self.read_all(reads, at, snapshot, changes)
    }

    pub(super) fn read_all(
        &mut self,
        reads: &[Key],
        at: Position,
        snapshot: &VersionVector,
        own: &[Change],
    ) -> Result<Vec<Option<SharedValue>>, TxnRefusal> {
        let mut by_key: BTreeMap<&Key, Vec<&Action>> = BTreeMap::new();
        if !reads.is_empty() {
            own.iter().for_each(|change| by_key.entry(&change.key).or_default().push(&change.action));
        }
        let mut bytes = 0;
        let mut values = Vec::with_capacity(reads.len());
        for key in reads {
            let own = by_key.get(key).into_iter().flatten().copied();
            let value = self.data.store.read(key, at, snapshot, own);
            bytes += value.as_ref().map_or(1, SharedValue::weight);
            if bytes > MAX_READ_BYTES {
                return Err(TxnRefusal::ReadsTooLarge(MAX_READ_BYTES));
            }
            values.push(value);
        }
        Ok(values)
    }
}

impl Requests<'_> {
    /// Ends an open transaction without a trace.
    pub(super) fn abort(&mut self, id: TxnId) {
        if let Some(Txn::Open(open)) = self.data.transactions.rows.remove(&id) {
            let open: Open = *open;
            self.out.counts.aborts += 1;
            self.close(id, open, Position::default());
        }
    }
}

/// Returns the sum of the weights of the changes, if each is within the limit.
fn validate_changes(changes: &[Change]) -> Result<usize, TxnRefusal> {
    let mut sum = 0;
    for (index, change) in changes.iter().enumerate() {
        let bytes = change.weight();
        if bytes > MAX_CHANGE_BYTES {
            return Err(TxnRefusal::ChangeTooLarge { index, bytes });
        }
        sum += bytes;
    }
    Ok(sum)
}

pub(super) fn validate_reads(reads: &[Key]) -> Result<(), TxnRefusal> {
    if reads.len() > MAX_READS { Err(TxnRefusal::TooManyReads(reads.len())) } else { Ok(()) }
}
