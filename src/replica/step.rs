//! The parts that all steps share: expired timers before the event, consequences after it, and the records
//! and stamps that both make (`docs/algorithm/model.md#2-the-machine`).

use std::time::Duration;

use crate::base::bugs::Bug;

use super::Replica;
use super::effect::Report;
use super::lend::lend;
use crate::base::time::Now;
use crate::base::work;
use crate::replica::outputs::output_commit::Output;
use geolock_api::names::Position;

/// Most idle locks that one step examines.
const IDLE_PER_STEP: usize = 64;
/// Most effects of commits that one step folds, and most keys that it compacts.
const EFFECTS_PER_STEP: usize = 1024;
/// Most records that one step notes as durable when a sync covers more.
const RECORDS_PER_STEP: u64 = 512;
/// Most outputs that waited for the journal and that one step emits.
const OUTPUTS_PER_STEP: usize = 512;

/// The wall clock may run ahead of the monotonic one by this much between two steps. More says that the whole
/// machine stood still, and its monotonic clock with it.
const MOST_AHEAD: Duration = Duration::from_millis(500);

/// Returns true if the monotonic clock has advanced by less than the wall clock since `before`.
fn is_behind(before: Now, now: Now) -> bool {
    let mono = now.mono.saturating_since(before.mono) + MOST_AHEAD;
    Duration::from_millis(now.wall.0.saturating_sub(before.wall.0)) > mono
}

impl Replica {
    /// Moves the time to `now` and fires all timers that have expired. Returns true if there were any.
    pub(super) fn advance(&mut self, now: Now) -> bool {
        assert!(
            now.mono >= self.now.mono,
            "the monotonic clock went back from {:?} to {:?}",
            self.now.mono,
            now.mono
        );
        self.clients.deferred.begin_step();
        let stood_still = self.members.decided.evict_by_time() && is_behind(self.now, now);
        self.now = now;
        if stood_still {
            self.peers.member_lease.forget();
            self.lifecycle.on_clock_stood_still(self.config.bugs);
            lend!(FailureDetector, self).follow_member_lease();
        }
        if let Some(ahead_ms) = self.ids.clock.advance(now) {
            self.out.report(Report::WallClockJumped { ahead_ms });
        }
        if self.lifecycle.begin_step(now.mono) {
            // If an operator marked the directory as a copy, that record precedes those of this step.
            self.ids.skip_used_numbers(&mut self.out);
            self.clients.deferred.begin_at(self.ids.next_n);
        } else if !self.due.has_come(now.mono)
            && !self.peers.reachability.has_news()
            && !self.config.bugs.has(Bug::LeaseByWallClock)
        {
            return false;
        }
        if self.out.has_more_durable() {
            self.note_some_durable();
        }
        lend!(ClientCalls, self).expire();
        if self.peers.links.retry_at().is_some_and(|at| at <= now.mono) {
            self.drain_inbox();
        }
        if self.ids.renew_reservation_at <= now.mono {
            self.ids.renew_reservation(&mut self.out, now, self.lifecycle.stalls.disk());
        }
        if self.peers.heartbeat_at <= now.mono {
            self.peers.heartbeat_at = now.mono + self.config.agreed.heartbeat;
            lend!(Peering, self).on_heartbeat_due();
            lend!(WatchCalls, self).on_watch_heartbeat();
            let counts = self.locks.requests().counts();
            if counts.held + counts.waiting == 0 {
                self.clients.client_requests.give_back();
            }
        }
        if self.peers.anti_entropy.next_at <= now.mono {
            lend!(Comparison, self).on_anti_entropy_due();
        }
        lend!(Clocks, self).update_reachability();
        self.update_lifecycle();
        let keys = lend!(KeyExpiry, self).take_due();
        lend!(Writer, self).end_keys(keys);
        // A granted request gets its token before the event can end it. A transfer is in the log before the
        // event can read the ownership.
        if self.config.bugs.has(Bug::SeenBeforeLogged) {
            self.locks.schedule(now.mono);
            lend!(AcquireCalls, self).tell_grants();
            return true;
        }
        self.schedule();
        true
    }

    /// Returns true if every change that is still to come waits for an event or a deadline, so that a step
    /// without either has nothing to find out.
    #[inline]
    pub(super) fn rests(&self) -> bool {
        let is_settled = !self.lifecycle.needs_update(self.log.entries().weight());
        let members_rest = self.members.is_quiet() && !self.members.goes_on();
        is_settled && members_rest && self.clients.deferred.is_empty()
    }

    /// Applies the consequences of an event until nothing more follows, and does a part of the work that is
    /// spread over steps. Each call stands behind those whose results it reads. `only_locks`: nothing but
    /// locks has changed. Returns true if that is still so.
    pub(super) fn finish_step(&mut self, only_locks: bool) -> bool {
        let before = self.out.position;
        if !only_locks {
            // The members that are away, then the permissions, which decide if locks are scheduled at all. If
            // the permissions change, requests are parked again, by the set of members that are away.
            if self.peers.reachability.may_change(self.now.mono) {
                // Lending costs more than a look.
                lend!(Clocks, self).update_reachability();
            }
            self.update_lifecycle();
        }
        // Both mark locks for the scheduler. The sweep comes first: it renews the budgets that idle returns
        // draw from, too.
        self.locks.sweep();
        self.locks.return_idle(self.now.mono);
        // The last entry of this step: from here on no part moves, and the applied vector stays.
        self.schedule();
        let only_locks = only_locks && self.out.position == before;
        if !only_locks {
            self.follow_entries();
        }
        self.locks.forget_idle(self.now.mono, self.out.output_commit.durable(), IDLE_PER_STEP);
        if !only_locks {
            self.work_in_background();
        }
        debug_assert!(self.locks.is_scheduled(), "a step settles what it touched");
        let now = self.now.mono;
        debug_assert!(self.peers.heartbeat_at > now, "a heartbeat that was due is sent");
        debug_assert!(self.peers.anti_entropy.next_at > now, "a comparison that was due has begun");
        debug_assert!(self.ids.renew_reservation_at > now, "a reservation that was due is renewed");
        only_locks
    }

    /// Applies what follows from entries and decisions, and sends entries to peers.
    fn follow_entries(&mut self) {
        if !self.members.is_quiet() {
            let before = self.members.entered.epoch();
            lend!(Writer, self).update_members();
            if self.members.entered.epoch() != before {
                // Entries of that epoch were held back.
                self.peers.links.retry_at_most(self.now.mono);
                lend!(FailureDetector, self).follow_member_lease();
            }
            self.forget_who_left();
            self.stop_if_left();
            self.schedule();
        }
        if self.members.goes_on() {
            lend!(Decisions, self).go_on();
        }
        self.send_entries();
        if self.data.acknowledgements.have_news() {
            lend!(MajorityCommits, self).update_majority();
        }
    }

    /// Sends peers the entries that they lack. Truncation comes first: a peer that is too far behind after it
    /// is sent none of the entries that are left, which it could not apply.
    fn send_entries(&mut self) {
        if self.out.truncates {
            lend!(StateTransfer, self).truncate_log();
        }
        if std::mem::take(&mut self.out.pump) {
            lend!(LinkHandler, self).pump_links();
        }
    }

    /// Does a part of each work that is spread over steps. It reads ownership, holders and contents, so the
    /// log must already have all that moved. Folding is last: a checkpoint or a transfer that ends closes its
    /// snapshot, and then more can be folded.
    fn work_in_background(&mut self) {
        if self.watches.are_scanning() {
            lend!(WatchCalls, self).scan_some();
        }
        self.continue_checkpoint();
        if self.copies.transfers.are_giving() {
            lend!(StateTransfer, self).give_some();
        }
        let more_to_fold = self.data.store.fold(EFFECTS_PER_STEP);
        self.data.store_backlog = self.data.store.compact(EFFECTS_PER_STEP) || more_to_fold;
        // The sums belong to the vectors at the end of the step, and include what was folded.
        let durable = self.out.output_commit.durable();
        if self.peers.anti_entropy.lacks_sums(self.out.position, durable) {
            lend!(Comparison, self).note_sums();
        }
    }

    /// Grants, transfers and publishes until nothing more follows. On return, every transfer and published
    /// request is in the log.
    #[inline]
    fn schedule(&mut self) {
        while self.locks.schedule(self.now.mono) {
            // A one-step transaction may commit as soon as it is granted, and release its locks.
            lend!(AcquireCalls, self).follow_schedule();
        }
    }

    pub(super) fn on_durable(&mut self, position: Position) {
        assert!(
            position <= self.out.position,
            "the journal is durable up to {position:?}, {:?} was the last",
            self.out.position
        );
        if position < self.out.output_commit.durable() {
            return;
        }
        self.out.durable_to = self.out.durable_to.max(position);
        self.note_some_durable();
    }

    /// Processes durable records and emits the outputs that waited for them, within the limits of one step.
    fn note_some_durable(&mut self) {
        let mut news = false;
        if !self.out.output_commit.has_ready() {
            let most = Position(self.out.output_commit.durable().0 + RECORDS_PER_STEP);
            news = self.note_durable(self.out.durable_to.min(most).max(self.out.output_commit.durable()));
        }
        for _ in 0..OUTPUTS_PER_STEP {
            let Some(output) = self.out.output_commit.next() else { break };
            work::count(1);
            if let Output::Grant(id) = output
                && let Some(request) = self.locks.requests().find(id)
            {
                lend!(Requests, self).time_grant(request);
            }
            self.emit(output);
        }
        if news {
            self.data.acknowledgements.note_news();
        }
        if news || lend!(TxnCalls, self).has_state_now() {
            lend!(TxnCalls, self).wake_snapshot_waits();
        }
    }

    /// Returns true if more entries are durable than before.
    fn note_durable(&mut self, position: Position) -> bool {
        let (last, before) = (self.out.position, self.out.output_commit.durable());
        assert!(position <= last, "{position:?} is noted as durable, {last:?} was the last record");
        assert!(position >= before, "{position:?} is noted as durable after {before:?}");
        debug_assert!(position.0 - before.0 <= RECORDS_PER_STEP, "a step notes {before:?} to {position:?}");
        work::count((position.0 - before.0) as usize);
        self.out.output_commit.note_durable(position);
        self.ids.reservations.note_durable(position);
        let before = self.log.entries().durable_end();
        let news = self.log.note_durable(position, self.now.mono);
        lend!(WatchCalls, self).tell_watches(self.log.entries().durable_since(before));
        self.data.store.note_durable(position);
        self.out.pump |= news;
        news
    }

    fn emit(&mut self, output: Output) {
        match output {
            Output::Grant(id) => {
                if let Some(request) = self.locks.requests().find(id) {
                    debug_assert!(self.locks.requests()[request].is_held(), "{id} is held since its grant");
                    lend!(Requests, self).tell_granted(request);
                    lend!(AcquireCalls, self).answer_grant(request);
                }
            }
            Output::GrantAgain(id) => {
                if let Some(request) = self.locks.requests().find(id) {
                    debug_assert!(
                        self.locks.requests()[request].is_held(),
                        "{id} is held since its first answer"
                    );
                    lend!(AcquireCalls, self).answer_grant(request);
                }
            }
            Output::Effect(effect) => self.out.effects.push_back(effect),
            Output::Committed(seq, answer) => lend!(MajorityCommits, self).answer_committed(seq, *answer),
            Output::Heartbeat(peer)
                if self.log.peer(peer).is_linked() || self.peers.witnesses.linked().contains(peer) =>
            {
                lend!(LinkHandler, self).send_waiting_heartbeat(peer)
            }
            Output::Heartbeat(_) => {}
            Output::AskState(peer) => lend!(StateTransfer, self).ask_for_more(peer),
        }
    }
}
