//! The end of the wait of a call that came before the clock of a server that starts may be read.
//!
//! A start takes some milliseconds, or as long as the clock is ahead of most others. Its client must not wait
//! for longer than it said, and is told the cause.

use std::time::Duration;

use crate::base::time::Instant;
use crate::base::work;
use crate::replica::call::{Call, CallId, Refusal, Wait};
use crate::replica::clients::ClientCalls;
use crate::replica::clients::deferral::Deferral;
use crate::replica::clients::deferred_calls::{key_of, opener_of};
use crate::replica::clients::describe::MAX_EXPLAINED;
use crate::replica::data::transactions::can_commit;
use crate::replica::lend::lend;
use geolock_api::names::LockName;

/// Most calls that one step refuses, because the locks of each are described.
const ENDED_PER_STEP: usize = 64;

/// Returns how long a call says that it waits for locks; `None` if it wants none.
fn wait_of(request: &Call) -> Option<Wait> {
    match request {
        Call::Acquire(acquire) => Some(acquire.request.wait),
        Call::AcquireEnough(acquire) => Some(acquire.wait),
        Call::Begin(begin) => begin.locks.as_ref().map(|locks| locks.wait),
        _ => None,
    }
}

/// Returns some of the locks that a call wants.
fn names_of(request: &Call) -> Vec<&LockName> {
    fn some<T>(locks: &[(LockName, T)]) -> Vec<&LockName> {
        locks.iter().map(|(lock, _)| lock).take(MAX_EXPLAINED).collect()
    }
    match request {
        Call::Acquire(acquire) => some(acquire.request.wants.locks()),
        Call::Begin(begin) => begin.locks.as_ref().map_or(Vec::new(), |locks| some(locks.wants.locks())),
        Call::AcquireEnough(acquire) => some(acquire.of.candidates()),
        _ => Vec::new(),
    }
}

/// The call has waited already: only so much of its time is left.
pub(super) fn limit_wait(request: &mut Call, left: Duration) {
    let wait = match request {
        Call::Acquire(acquire) => &mut acquire.request.wait,
        Call::AcquireEnough(acquire) => &mut acquire.wait,
        Call::Begin(begin) => match &mut begin.locks {
            Some(locks) => &mut locks.wait,
            None => return,
        },
        _ => return,
    };
    if let Wait::AtMost(wait) = wait {
        *wait = left.min(*wait);
    }
}

impl Deferral<'_> {
    /// Returns until when a call that comes now waits for the clock; `None`: for as long as that takes.
    ///
    /// One that wants no locks waits for a start in which all others are down, and so does its client. One
    /// that wants them at once waits for a start that somebody confirms.
    pub(super) fn waits_until(&self, request: &Call) -> Option<Instant> {
        let agreed = &self.config.agreed;
        let wait = match (wait_of(request), request) {
            (Some(Wait::Forever), _) => return None,
            (Some(Wait::AtMost(wait)), _) => wait,
            (Some(Wait::Try), _) => 2 * agreed.heartbeat,
            (None, Call::Begin(begin)) => (2 * agreed.peer_timeout).max(begin.at_least.patience),
            // It asks for the outcome of what began before, which the time until then does not change.
            (None, _) => return None,
        };
        Some(self.now.mono + wait)
    }

    /// Returns true if a call may ask for what was done before: a refusal would deny that.
    fn may_be_done(&self, request: &Call) -> bool {
        let is_known = |id| matches!(request, Call::Begin(_)) && self.data.transactions.knows(id);
        self.may_be_commit_of_before(request).is_some() || key_of(request).is_some_and(is_known)
    }
}

impl ClientCalls<'_> {
    /// Refuses calls that have waited for the clock for as long as they say. The others wait on, for as long
    /// as it takes to judge them.
    pub(in crate::replica) fn expire_deferred(&mut self) {
        for _ in 0..ENDED_PER_STEP {
            let Some(number) = self.clients.deferred.first_expired(self.now.mono) else { break };
            work::count(1);
            let waited = self.clients.deferred.remove(number);
            match self.too_early(&waited.request) {
                Some(refusal) => {
                    let refusal = self.finish_early(waited.call, &waited.request).err().unwrap_or(refusal);
                    self.out.refuse(waited.call, refusal);
                }
                None => self.clients.deferred.put_back(number, waited),
            }
        }
    }

    /// Returns the refusal of a call whose wait is over; `None` if it can be judged, or has to be.
    fn too_early(&mut self, request: &Call) -> Option<Refusal> {
        if lend!(Deferral, self).may_be_done(request) {
            return None;
        }
        match wait_of(request) {
            None => can_commit(self.lifecycle).err(),
            Some(Wait::AtMost(_)) => {
                self.out.counts.timeouts += 1;
                let locks = lend!(Describer, self).describe_awaited(names_of(request));
                Some(match request {
                    Call::AcquireEnough(_) => Refusal::NotEnoughInTime { locks, free: 0 },
                    _ => Refusal::TimedOut(locks),
                })
            }
            Some(Wait::Try | Wait::Forever) => {
                let why = self.lifecycle.not_serving(self.clients.grace_left(self.config, self.now));
                Some(why.map_or(Refusal::NotFree, Refusal::NotServing))
            }
        }
    }

    /// Nothing begins under the key of this call any more. Returns an error if it is not the client's.
    fn finish_early(&mut self, call: CallId, request: &Call) -> Result<(), Refusal> {
        let Some((lease, proof)) = opener_of(request) else { return Ok(()) };
        let index = self.clients.authorise(self.config.lease_time(self.now), lease, proof, call)?;
        if let Some(id) = key_of(request) {
            self.clients.leases.get_mut(index).finished.finish(id.key);
        }
        Ok(())
    }
}
