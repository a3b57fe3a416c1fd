//! The part of a selection that waits for what others have.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::bugs::Bug;
use super::super::fit::{Rank, exceeds, preferred};
use super::super::options::{Backoff, MAX_CANDIDATES};
use super::super::space::Space;
use super::super::verdict::{HeldBy, Limit, Verdict};
use super::{Effect, Select, State, Wait, Waiting, bounded, reach};
use crate::selector_state::token::{Token, TokenId};

impl Select {
    pub(super) fn on_news(&mut self, now: Duration, space: &mut Space) {
        if self.is_reserved_elsewhere(space) && !self.has(Bug::NewsIgnored) {
            self.leave_asking();
            self.unclaim(space);
            self.effects.push_back(Effect::ReadRecord);
            (self.state, self.has_read_own) = (State::Record, true);
        }
        match &self.state {
            State::Pausing { until } | State::BackingOff { until } if *until <= now => {
                self.decide(now, space);
            }
            State::Listing { .. } | State::Behind => self.decide(now, space),
            State::Waiting(_) => self.while_waiting(now, space),
            _ => {}
        }
        self.on_time(now, space);
    }

    /// Returns true if a token has a mark of this transaction, of another replica, and its record was read
    /// before that.
    fn is_reserved_elsewhere(&self, space: &Space) -> bool {
        let waits = match self.state {
            State::Listing { .. } | State::Behind | State::Waiting(_) => true,
            State::Pausing { .. } | State::BackingOff { .. } => true,
            State::Trying { .. } | State::Reading { .. } | State::Record | State::Over => false,
        };
        waits && self.has_read_record && !self.has_read_own && space.has_mark_of(&self.ask.tx)
    }

    /// The tokens that are free here do not do: waits for others, or says why that is no use.
    pub(super) fn queue(&mut self, now: Duration, space: &mut Space, choice: Vec<Rank>, most: usize) {
        if !self.has_read_record {
            self.effects.push_back(Effect::ReadRecord);
            self.state = State::Record;
            return;
        }
        if self.is_short(now, space) {
            return;
        }
        let cache = space.pool(&self.ask.pool);
        if cache.reach(self.options.max_inputs) < u128::from(self.ask.amount) {
            return self
                .finish(space, Verdict::Limit { which: Limit::Inputs, most: self.options.max_inputs });
        }
        if cache.reach(most) < u128::from(self.ask.amount) {
            return self
                .finish(space, Verdict::Limit { which: Limit::Locked, most: self.options.max_locked });
        }
        let left = self.over_at().saturating_sub(now);
        let is_here = self.are_here(space, &choice) && !choice.is_empty();
        let wait = match self.options.backoff {
            Backoff::Queue => Wait::AtMost(left),
            // The attempt asks another datacenter.
            Backoff::Random { max, .. } if !choice.is_empty() && !is_here => Wait::AtMost(max.min(left)),
            Backoff::Random { .. } => return self.pause_or_end(now, space),
        };
        self.wait_for(space, &choice, most, wait);
    }

    /// Returns a time up to `max`, another one for each pause.
    fn random(&self, max: Duration) -> Duration {
        let seed = self.seed ^ u64::from(self.pauses);
        let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        max.saturating_mul(u32::try_from(bits).unwrap_or(0)) / (1 << 16)
    }

    /// Returns true if less is listed than asked, and the selection ends or reads the pool again.
    fn is_short(&mut self, now: Duration, space: &mut Space) -> bool {
        let amount = u128::from(self.ask.amount);
        let cache = space.pool(&self.ask.pool);
        let (have, is_cut) = (cache.total(), cache.is_cut());
        if have >= amount {
            self.short_since = None;
            return false;
        }
        let is_new = cache.listed_total() >= amount && self.short_since.is_some_and(|at| cache.is_since(at));
        if is_new {
            // There was enough when the pool was read, and somebody may have added to it since.
            self.short_since = Some(now);
        }
        let since = *self.short_since.get_or_insert(now);
        if cache.is_since(since) || self.has(Bug::OldListingTrusted) {
            let most = self.options.max_examined;
            let verdict = match is_cut {
                true => Verdict::Limit { which: Limit::Examined, most },
                false => Verdict::Insufficient { have },
            };
            self.finish(space, verdict);
        } else if cache.has_failed_since(since) {
            self.finish(space, Verdict::SourceUnavailable);
        } else if matches!(self.state, State::Waiting(_)) {
            cache.demand(since);
        } else {
            self.list(space, since);
        }
        true
    }

    /// Requests enough of all candidates, the choice first. Waits without a request while they do not reach
    /// the amount.
    fn wait_for(&mut self, space: &mut Space, choice: &[Rank], most: usize, wait: Wait) {
        self.is_in_front = true;
        let amount = u128::from(self.ask.amount);
        let cache = &*space.pool(&self.ask.pool);
        let chosen: BTreeSet<&TokenId> = choice.iter().map(|rank| &rank.id).collect();
        let is_other = |rank: &&Rank| !chosen.contains(&rank.id);
        // A large token that is here would be had before small ones that are elsewhere.
        let is_narrow = !is_large(choice, self.ask.amount);
        let allows = |rank: &&Rank| !is_narrow || !exceeds(rank.amount, self.ask.amount);
        let others = preferred(cache.open(), self.ask.amount).filter(is_other).filter(allows);
        let (free, taken): (Vec<&Rank>, Vec<&Rank>) = others.partition(|rank| cache.is_free(&rank.id));
        let all = choice.iter().chain(free).chain(taken).take(MAX_CANDIDATES);
        let asked = bounded(all.filter_map(|rank| cache.token(&rank.id).cloned()));
        let candidates = asked.iter().map(|token| (token.id.clone(), token.clone())).collect();
        let position = cache.position();
        let is_asked = reach(&asked, most) >= amount;
        if is_asked {
            self.effects.push_back(Effect::Request { tokens: asked.clone(), most, wait });
        }
        // So that the selections of this replica do not all wait for the same ones.
        self.claim(space, choice.iter().map(|rank| rank.id.clone()).collect());
        self.state = State::Waiting(Waiting { is_asked, is_narrow, asked, candidates, position });
    }

    /// The pool may have changed while the selection waits.
    pub(super) fn while_waiting(&mut self, now: Duration, space: &mut Space) {
        space.pool(&self.ask.pool).touch(now);
        if self.is_short(now, space) || self.has(Bug::NewsIgnored) {
            return;
        }
        let is_due = self.news_due() <= now;
        let State::Waiting(waiting) = &mut self.state else { return };
        let cache = space.pool(&self.ask.pool);
        let serves =
            |choice: Option<Vec<Rank>>| choice.is_some_and(|choice| !is_large(&choice, self.ask.amount));
        let fit = || cache.free().fit(self.ask.amount, self.options.max_inputs);
        let is_served = self.claimed.iter().all(|id| cache.is_open(id)) || serves(fit());
        let widens = waiting.is_narrow && (is_due || !is_served);
        if waiting.position == cache.position() && !widens {
            return;
        }
        let changed: Option<BTreeSet<TokenId>> =
            cache.changes_since(waiting.position).map(|changes| changes.cloned().collect());
        let Some(mut changed) = changed else {
            // It has missed some: it asks for all again, behind others.
            self.leave_asking();
            self.unclaim(space);
            return self.decide(now, space);
        };
        waiting.position = cache.position();
        if widens {
            waiting.is_narrow = false;
            changed.extend(cache.open().iter().map(|rank| rank.id.clone()));
        }
        let (mut add, mut drop) = (Vec::new(), Vec::new());
        for id in changed {
            let allows = |token: &&Token| !waiting.is_narrow || !exceeds(token.amount, self.ask.amount);
            let token = cache.token(&id).filter(|_| cache.is_open(&id)).filter(allows);
            match (token, waiting.candidates.contains_key(&id)) {
                (Some(token), false) if waiting.candidates.len() < MAX_CANDIDATES => {
                    waiting.candidates.insert(id, token.clone());
                    add.push(token.clone());
                }
                (None, true) => drop.extend(waiting.candidates.remove(&id)),
                _ => {}
            }
        }
        if add.is_empty() && drop.is_empty() {
            return;
        }
        waiting.asked.extend(add.iter().cloned());
        let candidates = waiting.candidates.values();
        let reaches = reach(candidates, self.options.max_inputs) >= u128::from(self.ask.amount);
        match (waiting.is_asked, reaches) {
            (true, true) => self.effects.push_back(Effect::Amend { add, drop }),
            (true, false) => self.leave_asking(),
            (false, true) => {
                self.unclaim(space);
                self.decide(now, space);
            }
            (false, false) => {}
        }
    }

    /// The wait is over, or there is no use in waiting.
    pub(super) fn finish_locked(
        &mut self,
        now: Duration,
        space: &mut Space,
        told: Vec<HeldBy>,
        free: Option<u64>,
    ) {
        let free = free.map_or_else(|| space.pool(&self.ask.pool).free_total(), u128::from);
        let (mut by, retry_after) = space.blockers(now, &self.ask.pool, &self.ask.tx, self.ttl);
        let known: BTreeSet<Option<TokenId>> = by.iter().map(|held| held.token.clone()).collect();
        let is_other = |held: &HeldBy| !held.is_of(&self.ask.tx);
        by.extend(told.into_iter().filter(|held| !known.contains(&held.token)).filter(is_other));
        self.finish(space, Verdict::Locked { free, by, retry_after });
    }

    pub(super) fn pause_or_end(&mut self, now: Duration, space: &mut Space) {
        match self.options.backoff {
            Backoff::Random { max, retries } if self.pauses < retries => {
                self.unclaim(space);
                (self.pauses, self.tries) = (self.pauses + 1, 0);
                self.state = State::BackingOff { until: now + self.random(max) };
            }
            _ => self.finish_locked(now, space, Vec::new(), None),
        }
    }
}

/// Returns true if a choice breaks a large token, or there is none.
fn is_large(choice: &[Rank], amount: u64) -> bool {
    choice.is_empty() || choice.iter().any(|rank| exceeds(rank.amount, amount))
}
