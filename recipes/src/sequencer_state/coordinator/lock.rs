//! The contract's lock: the right to dispatch, or the time for which it cannot be had.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::bugs::Bug;
use super::super::events::{Effect, LockEffect, LockEvent};
use super::super::options::Solo;
use super::super::shared::Shared;
use super::super::words::{Beat, Epoch, Handover, IntentId, Transaction};
use super::{Coordinator, State};

/// The contract's lock, as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    None,
    /// `is_blocked`: it cannot be had now.
    Queued {
        is_blocked: bool,
    },
    Held(Epoch),
}

/// The time for which the lock could not be had. It outlives a request: ranges may be shorter than the wait
/// for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    since: Duration,
    /// The last time at which it was known to be so.
    seen: Duration,
}

impl Coordinator {
    pub fn on_lock(&mut self, now: Duration, shared: &mut Shared, event: LockEvent) {
        match event {
            LockEvent::Granted { epoch, handover } => self.on_granted(now, shared, epoch, handover),
            LockEvent::Blocked => self.on_blocked(now, shared),
            LockEvent::Unblocked => {
                self.blocked = None;
                if let LockState::Queued { is_blocked } = &mut self.lock {
                    *is_blocked = false;
                }
            }
            LockEvent::HandoverWritten => {
                if let State::Flushing { is_handed_over, .. } = &mut self.state {
                    *is_handed_over = true;
                }
            }
            LockEvent::Lost => self.on_lost(now, shared),
        }
    }

    /// The wait of an earlier request counts, if it has not ended too long ago.
    fn on_blocked(&mut self, now: Duration, shared: &Shared) {
        let LockState::Queued { is_blocked } = &mut self.lock else { return };
        *is_blocked = true;
        let patience = match shared.options().solo {
            Solo::After(time) => time,
            Solo::Never => Duration::ZERO,
        };
        let before = self.blocked.filter(|it| it.seen + patience >= now);
        let since = before.map_or(now, |it| it.since);
        self.blocked = Some(Blocked { since, seen: now });
    }

    /// Another node that is heard has the lock: it can be had.
    pub fn on_beat(&mut self, now: Duration, beat: &Beat) {
        if beat.epoch.is_some_and(|epoch| epoch != Epoch::SOLO) {
            let is_blocked = self.lock == LockState::Queued { is_blocked: true };
            self.blocked = is_blocked.then_some(Blocked { since: now, seen: now });
        }
    }

    fn on_granted(&mut self, now: Duration, shared: &mut Shared, epoch: Epoch, handover: Option<Handover>) {
        if !matches!(self.lock, LockState::Queued { .. }) {
            return;
        }
        (self.lock, self.is_solo, self.blocked) = (LockState::Held(epoch), false, None);
        self.last_hash = None;
        self.ready.unask();
        if let State::Flushing { .. } = self.state {
            return;
        }
        let dispatched = handover.into_iter().flat_map(|it| it.dispatched);
        self.handed_over = dispatched.filter(|it| is_awaited(shared, &it.transaction)).collect();
        let taken: BTreeSet<IntentId> =
            self.handed_over.iter().map(|it| it.transaction.intent().clone()).collect();
        // Another assembly of it may have been made here meanwhile, and others on top of that.
        let broken = self.forget(now, |intent| taken.contains(intent));
        self.recheck(now, broken);
        self.state = match self.handed_over.is_empty() || shared.has(Bug::HandoverIgnored) {
            true => State::Active,
            false => State::Prepared { since: now },
        };
    }

    fn on_lost(&mut self, now: Duration, shared: &mut Shared) {
        match (self.lock, self.state) {
            _ if shared.has(Bug::LossIgnored) => {}
            (LockState::None, _) => {}
            // The request has ended with its lease.
            (LockState::Queued { .. }, State::Electing | State::Active) => {
                self.lock = LockState::Queued { is_blocked: false };
                shared.effect(Effect::Lock(LockEffect::Acquire));
            }
            (LockState::Queued { .. } | LockState::Held(_), _) => {
                self.lock = LockState::None;
                self.close(now, shared);
            }
        }
    }

    pub(super) fn solo_at(&self, shared: &Shared) -> Option<Duration> {
        match (self.state, self.lock, shared.options().solo) {
            (State::Electing, LockState::Queued { is_blocked: true }, Solo::After(time)) => {
                self.blocked.map(|blocked| blocked.since + time)
            }
            _ => None,
        }
    }

    pub(super) fn release(&mut self, now: Duration, shared: &mut Shared) {
        if let (LockState::Queued { is_blocked: true }, Some(blocked)) = (self.lock, &mut self.blocked) {
            blocked.seen = now;
        }
        if self.lock != LockState::None {
            shared.effect(Effect::Lock(LockEffect::Release));
        }
        (self.lock, self.is_solo) = (LockState::None, false);
        self.handed_over.clear();
    }
}

/// Returns true for a transaction of another node that the ledger has not decided. Its own ones come before
/// anything that this node dispatches now, by their nonces.
fn is_awaited(shared: &Shared, transaction: &Transaction) -> bool {
    transaction.signer != *shared.me() && !shared.chain.has_decided(transaction)
}
