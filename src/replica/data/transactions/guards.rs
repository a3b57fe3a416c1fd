//! Transactions under guards: they commit only while requests of their lease are held, and release none of
//! them (`docs/algorithm/log.md#26-transactions-under-a-guard`).
//!
//! Nothing ends such a transaction when its guard does. Ids of requests are never used twice, so each step
//! looks its guards up again, and the last look is in the step that makes the entry of the commit.

use std::sync::Arc;

use super::{Death, TxnId};
use crate::base::bugs::Bug;
use crate::leases::LeaseIndex;
use crate::replica::call::store::{Begin, MAX_GUARDS, TxnRefusal};
use crate::replica::call::{Limit, Refusal, Target};
use crate::replica::clients::RETRY_AFTER;
use crate::replica::clients::force_release::ForceReleased;
use crate::replica::data::transactions::TxnCalls;
use crate::replica::lend::lend;
use geolock_api::names::{LeaseId, Position, RequestId};

/// The state of a request that a transaction names as its guard.
enum Guard {
    Held,
    /// The lease never held it: it waits, its grant is not answered yet, or it is not of this lease.
    Never,
    /// It was held, as far as the server knows, and is not any more.
    Lost,
    Forced(Arc<ForceReleased>),
}

impl TxnCalls<'_> {
    /// Refuses a begin whose guards are not all held.
    pub(super) fn admit_guards(&self, begin: &Begin, lease: LeaseIndex) -> Result<(), Refusal> {
        if begin.under.len() > MAX_GUARDS {
            return Err(TxnRefusal::TooManyGuards(begin.under.len()).into());
        }
        // There was no room to wait for the reclaim.
        let may_reclaim =
            self.clients.leases.is_in_grace(lease) && !self.config.bugs.has(Bug::GuardsNotAwaited);
        if !begin.under.is_empty() && may_reclaim {
            return Err(Refusal::ResourceExhausted { limit: Limit::Transactions, retry_after: RETRY_AFTER });
        }
        let id = TxnId { lease: begin.lease, key: begin.key };
        begin.under.iter().try_for_each(|request| match self.guard(begin.lease, *request) {
            Guard::Held => Ok(()),
            Guard::Never => Err(TxnRefusal::NotHeld(*request).into()),
            Guard::Lost => Err(Death::LocksLost.refusal(id, self.config)),
            Guard::Forced(forced) => Err(Death::ForceReleased(forced).refusal(id, self.config)),
        })
    }

    /// Ends an open transaction if one of its guards is not held any more, and returns the refusal.
    pub(super) fn keep_guards(&mut self, id: TxnId, under: &[RequestId]) -> Result<(), Refusal> {
        if self.config.bugs.has(Bug::GuardsSeenOnce) {
            return Ok(());
        }
        let lost = under.iter().find_map(|request| match self.guard(id.lease, *request) {
            Guard::Held => None,
            Guard::Never | Guard::Lost => Some(Death::LocksLost),
            Guard::Forced(forced) => Some(Death::ForceReleased(forced)),
        });
        let Some(death) = lost else { return Ok(()) };
        lend!(Requests, self).kill(id, death.clone());
        Err(death.refusal(id, self.config))
    }

    /// A commit under these guards is made at this position: a later grant of their locks is answered when it
    /// is durable.
    pub(super) fn note_guarded(&mut self, under: &[RequestId], position: Position) {
        if self.config.bugs.has(Bug::GuardedNotNoted) {
            return;
        }
        for request in under {
            if let Some(request) = self.locks.requests().find(*request) {
                self.locks.local_requests().note_commit(request, position);
            }
        }
    }

    fn guard(&self, lease: LeaseId, request: RequestId) -> Guard {
        let Some(index) = self.locks.requests().find(request) else {
            if let Some(forced) = self.clients.audit.taken(lease, Target::Id(request)) {
                return Guard::Forced(forced.clone());
            }
            // Leases and requests share one series of numbers.
            let was = request.dc == self.config.dc && request.n > lease.n() && request.n < self.ids.next_n;
            return if was { Guard::Lost } else { Guard::Never };
        };
        let row = &self.locks.requests()[index];
        let is_own = row.local().is_some_and(|local| local.lease == lease);
        let client = self.clients.client_requests.get(index);
        // The locks of a transaction end with it, and its client never learns its request.
        if is_own && row.is_held() && client.is_told && client.txn.is_none() {
            Guard::Held
        } else {
            Guard::Never
        }
    }
}
