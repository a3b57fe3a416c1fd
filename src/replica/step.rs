//! What every step has in common: expiry before it, consequences after it, records and stamps on the way.

use std::sync::Arc;

use super::Replica;
use super::bounds::{Bound, NUMBERS, NUMBERS_PER_MILLI};
use super::config::CLOCK_BOUND;
use super::effect::{Effect, Report};
use super::gate::Gated;
use super::record::Record;
use crate::causal_log::{Entry, Op};
use crate::names::{MAX_NUMBER, Position};
use crate::room::Room;
use crate::time::{Now, Timestamp};
use crate::work;

/// Idle locks that one step looks at, at most.
const IDLE_PER_STEP: usize = 64;
/// Effects of commits that one step folds, and keys that it settles, at most.
const EFFECTS_PER_STEP: usize = 1024;
/// Records that one step takes note of when the journal has made more durable at once.
const RECORDS_PER_STEP: u64 = 512;
/// Answers and grants that waited for these and go out in one step, at most.
const GATED_PER_STEP: usize = 512;
/// Operations of one entry stop at about that many bytes: far below a frame.
const ENTRY_WEIGHT: usize = 1 << 20;
/// And at so many locks and parts in them, if that is not one request: an entry is applied in one step.
const ENTRY_ROWS: usize = 64;
/// Locks of one transfer, at most.
const TRANSFER_LOCKS: usize = 64;

impl Replica {
    /// Lets time pass and fires whatever has expired.
    pub(super) fn advance(&mut self, now: Now) {
        assert!(
            now.mono >= self.now.mono,
            "the monotonic clock went back from {:?} to {:?}",
            self.now.mono,
            now.mono
        );
        self.now = now;
        if let Some(ahead_ms) = self.clock.advance(now) {
            self.report(Report::WallClockJumped { ahead_ms });
        }
        if !std::mem::replace(&mut self.life.begun, true) {
            self.begin();
        } else if !self.is_anything_due() {
            return;
        }
        if self.has_more_durable() {
            self.note_some_durable();
        }
        self.locks.expire(now.mono);
        self.expire_leases();
        self.expire_waits();
        self.expire_descriptions();
        self.expire_transactions();
        if self.links.retry_at().is_some_and(|at| at <= now.mono) {
            self.drain_inbox();
        }
        if self.renew_bound_at <= now.mono {
            self.renew_bound();
        }
        if self.heartbeat_at <= now.mono {
            self.heartbeat_at = now.mono + self.config.agreed.heartbeat;
            self.on_heartbeat_due();
            self.on_watch_heartbeat();
            let counts = self.locks.counts();
            if counts.held + counts.waiting == 0 {
                self.tickets.give_back();
            }
        }
        if self.anti_entropy.next_at <= now.mono {
            self.on_anti_entropy_due();
        }
        self.update_reach();
        self.update_phase();
        self.expire_keys();
        // Who was granted has its token before the event can end it, and what moved stands in the log before the event can
        // look at who owns what.
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::SeenBeforeLogged) {
            self.locks.settle(now.mono);
            return self.tell_grants();
        }
        self.settle();
    }

    /// Whether the time that passed can change anything. If not, the step before this has left nothing to be done.
    fn is_anything_due(&self) -> bool {
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::LeaseByWallClock) {
            return true;
        }
        self.reach.has_news() || self.wakes_at() <= self.now.mono
    }

    /// Draws the consequences of an event until nothing more follows.
    pub(super) fn finish_step(&mut self) {
        self.update_reach();
        self.update_phase();
        self.locks.sweep();
        self.locks.go_home(self.now.mono);
        self.settle();
        if self.truncates {
            self.truncate_log();
        }
        if std::mem::take(&mut self.pump) {
            self.pump_links();
        }
        self.locks.forget_idle(self.now.mono, self.gate.durable(), IDLE_PER_STEP);
        self.scan_some();
        self.make_postponed_checkpoint();
        self.export_some();
        self.give_some();
        let more_to_fold = self.store.fold(EFFECTS_PER_STEP);
        self.store_backlog = self.store.settle(EFFECTS_PER_STEP) || more_to_fold;
        self.note_sums();
    }

    /// Grants, moves and asks, until nothing more follows; what moves and what is asked is in the log then.
    fn settle(&mut self) {
        loop {
            self.locks.settle(self.now.mono);
            self.tell_grants();
            let ops = self.locks.take_ops();
            if !ops.is_empty() {
                self.make_entries(ops);
            } else if self.locks.is_settled() {
                // A transaction in one step may have committed as soon as it was granted, and let its locks go.
                break;
            }
        }
    }

    /// Appends own entries: one, unless it would be too large for a frame, or for those who apply it.
    pub(super) fn make_entries(&mut self, ops: Vec<Op>) {
        let mut chunk = Vec::new();
        let (mut weight, mut rows) = (0, 0);
        for op in ops.into_iter().flat_map(split_op) {
            (weight, rows) = (weight + op.weight(), rows + op.rows());
            if (weight > ENTRY_WEIGHT || rows > ENTRY_ROWS) && !chunk.is_empty() {
                self.make_entry(std::mem::take(&mut chunk));
                (weight, rows) = (op.weight(), op.rows());
            }
            chunk.push(op);
        }
        self.make_entry(chunk);
    }

    /// Appends one own entry. Answers where the journal has it.
    pub(super) fn make_entry(&mut self, ops: Vec<Op>) -> Position {
        let at = self.stamp();
        let dc = self.config.dc;
        let deps = self.log.applied().clone();
        let seq = deps.get(dc) + 1;
        self.locks.note_own_entry(seq, &ops, self.now.mono);
        let (cluster, prev) = (self.config.agreed.cluster, self.own_head());
        // Version 1 would lose it on the way.
        let lead_ms = if self.life.chained { self.lead.millis } else { 0 };
        assert!(!self.is_forked(), "nothing is added to one of two histories");
        let entry = Arc::new(Entry { cluster, epoch: 0, dc, seq, at, deps, ops, prev, lead_ms });
        let position = self.persist(Record::Entry(entry.clone()));
        for (index, commit) in entry.ops.iter().enumerate().filter_map(|(i, op)| Some((i, op.as_commit()?))) {
            self.take_in_commit(&entry, index, commit, position);
        }
        self.log.apply(entry, position, self.now.mono);
        self.counts.entries_made += 1;
        self.pump = true;
        position
    }

    /// Hands a record to the journal.
    pub(super) fn persist(&mut self, record: Record) -> Position {
        self.position.0 += 1;
        self.effects.push_back(Effect::Persist { position: self.position, record });
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::SendBeforeDurable) {
            self.gate.note_durable(self.position);
            self.bounds.note_durable(self.position);
        }
        self.position
    }

    pub(super) fn on_durable(&mut self, position: Position) {
        assert!(
            position <= self.position,
            "the journal is durable up to {position:?}, {:?} was the last",
            self.position
        );
        if position < self.gate.durable() {
            return;
        }
        self.durable_to = self.durable_to.max(position);
        self.note_some_durable();
    }

    /// Whether more is durable, or may go out, than the steps before this one took note of.
    pub(super) fn has_more_durable(&self) -> bool {
        self.durable_to > self.gate.durable() || self.gate.has_ready()
    }

    /// Goes on with what is durable, and with what waited for it, as far as one step may.
    fn note_some_durable(&mut self) {
        let mut news = false;
        if !self.gate.has_ready() {
            let most = Position(self.gate.durable().0 + RECORDS_PER_STEP);
            news = self.note_durable(self.durable_to.min(most).max(self.gate.durable()));
        }
        for _ in 0..GATED_PER_STEP {
            let Some(gated) = self.gate.next() else { break };
            work::count(1);
            if let Gated::Grant(id) = gated
                && let Some(request) = self.locks.find(id)
            {
                self.time_grant(request);
            }
            self.let_out(gated);
        }
        if news {
            self.wake_snapshot_waits();
        }
    }

    /// Answers whether that holds more entries than before.
    fn note_durable(&mut self, position: Position) -> bool {
        work::count((position.0 - self.gate.durable().0) as usize);
        self.gate.note_durable(position);
        self.bounds.note_durable(position);
        let before = self.log.durable_end();
        let news = self.log.note_durable(position, self.now.mono);
        self.tell_watches(self.log.durable_since(before));
        self.store.note_durable(position);
        self.pump |= news;
        news
    }

    /// Lets an effect out once the journal is durable up to `position`.
    pub(super) fn after(&mut self, position: Position, gated: Gated) {
        if let Some(gated) = self.gate.pass(position, gated) {
            self.let_out(gated);
        }
    }

    fn let_out(&mut self, gated: Gated) {
        match gated {
            Gated::Grant(id) => {
                if let Some(request) = self.locks.find(id) {
                    self.tell_granted(request);
                    self.answer_grant(request);
                }
            }
            Gated::GrantAgain(id) => {
                if let Some(request) = self.locks.find(id) {
                    self.answer_grant(request);
                }
            }
            Gated::Effect(effect) => self.effects.push_back(effect),
            Gated::Heartbeat(peer) if self.log.is_linked(peer) => self.send_gated_heartbeat(peer),
            Gated::Heartbeat(_) => {}
            Gated::AskState(peer) => self.ask_for_more(peer),
        }
    }

    /// A new reading of the clock, to be handed out; never above what the journal will bound.
    pub(super) fn stamp(&mut self) -> Timestamp {
        assert!(self.life.quiet_until.is_none(), "nothing is stamped right after a restart");
        let stamp = self.clock.tick();
        if stamp > self.bounds.recorded().clock {
            self.record_bound();
        }
        stamp
    }

    /// A new request number.
    pub(super) fn number(&mut self) -> u64 {
        let n = self.next_n;
        self.pass_number(n);
        n
    }

    /// Numbers up to `n` were handed out.
    pub(super) fn pass_number(&mut self, n: u64) {
        self.next_n = self.next_n.max(n + 1);
        if self.next_n > self.bounds.recorded().n {
            self.record_bound();
        }
    }

    /// Goes on above all numbers that were ever handed out: this start may be that of an old copy of the disk, or of an
    /// empty one in its place, and nobody else knows what was.
    pub(super) fn outnumber(&mut self) {
        self.pass_numbers_until(self.clock.physical_millis());
    }

    /// Goes on above the numbers that were handed out while the clock had not passed these milliseconds.
    pub(super) fn pass_numbers_until(&mut self, millis: u64) {
        // Half of all numbers, whatever a wall clock says.
        let millis = millis.min(MAX_NUMBER / 2 / NUMBERS_PER_MILLI);
        self.pass_number(millis * NUMBERS_PER_MILLI);
    }

    /// Sets readings and numbers aside for the next half second.
    pub(super) fn record_bound(&mut self) {
        // Right after a restart the clock's bound stays: one that grew with every restart would run away.
        let clock = match self.life.quiet_until {
            Some(_) => self.bounds.recorded().clock,
            None => self.clock.bound(CLOCK_BOUND),
        };
        let bound = Bound { clock, n: self.next_n + NUMBERS };
        let position = self.persist(Record::Bound { clock: bound.clock, n: bound.n });
        self.bounds.record(position, bound);
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::SendBeforeDurable) {
            self.bounds.note_durable(position);
        }
    }

    /// Renews the bound ahead of time, so that no grant has to wait for the disk because of it.
    pub(super) fn renew_bound(&mut self) {
        self.renew_bound_at = self.now.mono + CLOCK_BOUND / 2;
        let soon = self.clock.bound(CLOCK_BOUND / 2);
        let writes = self.life.quiet_until.is_none() && self.life.room != Room::Full;
        if writes && soon > self.bounds.recorded().clock {
            self.record_bound();
        }
    }

    pub(super) fn report(&mut self, report: Report) {
        self.effects.push_back(Effect::Report(report));
    }
}

/// Transfers of many locks are cut into pieces of moderate size; a request stays whole, its limit is 1 MiB.
fn split_op(op: Op) -> Vec<Op> {
    match op {
        Op::Transfer { to, parts } if op_is_large(&parts) => {
            parts.chunks(TRANSFER_LOCKS).map(|chunk| Op::Transfer { to, parts: chunk.to_vec() }).collect()
        }
        op => vec![op],
    }
}

fn op_is_large(parts: &[crate::causal_log::LockParts]) -> bool {
    parts.len() > TRANSFER_LOCKS
}
