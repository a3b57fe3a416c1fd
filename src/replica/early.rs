//! Calls that come too soon after a start wait until they can be judged.
//!
//! What needs the clock waits until that can be read. What was promised before the start waits until this datacenter has its
//! own log, as far as anybody knows it ([`Replica::has_past`]): a disk that was rolled back believes in parts that it
//! has given away since, lacks others that came since, and knows nothing of commits that it made since. So reclaims wait, and
//! whoever may be asking after a commit of before.

use std::collections::{BTreeMap, BTreeSet};

use super::Replica;
use super::call::{Call, CallId, Limit, Reclaim, Refusal, SessionId, Target};
use super::clients::RETRY_AFTER;
use super::store_call::{Then, TxnRefusal};
use super::transactions::TxnId;
use crate::causal_log::Wants;
use crate::names::LeaseId;
use crate::work;

/// Leases, and requests that they held, which one step gives back, about: a lease gets back all that it held at once.
const RECLAIMED_PER_STEP: usize = 512;
/// Calls that may wait at a time, beside reclaims.
const MAX_EARLY: usize = 10_000;

/// See the module.
#[derive(Default)]
pub(super) struct Early {
    /// In the order in which they came.
    calls: Vec<(CallId, Call)>,
    /// About how many bytes they take.
    bytes: usize,
    /// One for each lease: its last word.
    reclaims: BTreeMap<LeaseId, (CallId, Vec<Reclaim>)>,
    /// The same by the session that they came on, so that closing one looks at no other's.
    by_session: BTreeSet<(SessionId, LeaseId)>,
    /// Requests in them.
    reclaimed: usize,
    /// Transactions that wait and whose keys had their turn when they came: later ones of their leases go on.
    turns: BTreeSet<TxnId>,
    /// Leases with lower numbers are of before the start.
    first_lease: u64,
}

impl Early {
    /// From `n` on numbers are handed out by this run.
    pub fn begin_at(&mut self, n: u64) {
        self.first_lease = n;
    }

    /// Drops the calls that came on a session. A transaction of which a copy waits, which came on another session, keeps its turn.
    pub fn close_session(&mut self, session: SessionId) {
        let mut gone = Vec::new();
        for (_, request) in self.calls.extract_if(.., |(call, _)| call.session == session) {
            self.bytes -= weight(&request);
            gone.extend(key_of(&request).filter(|id| self.turns.contains(id)));
        }
        if !gone.is_empty() {
            let copies: BTreeSet<TxnId> =
                self.calls.iter().filter_map(|(_, request)| key_of(request)).collect();
            for id in gone.iter().filter(|id| !copies.contains(id)) {
                self.turns.remove(id);
            }
        }
        let (first, last) = (LeaseId::from_raw(0), LeaseId::from_raw(u64::MAX));
        let of_session = self.by_session.range((session, first)..=(session, last));
        let ended: Vec<LeaseId> = of_session.map(|(_, lease)| *lease).collect();
        work::count(self.calls.len() + ended.len());
        ended.into_iter().for_each(|lease| drop(self.take_reclaim(lease)));
    }

    fn take_reclaim(&mut self, lease: LeaseId) -> Option<(CallId, Vec<Reclaim>)> {
        let (call, held) = self.reclaims.remove(&lease)?;
        self.by_session.remove(&(call.session, lease));
        self.reclaimed -= held.len();
        Some((call, held))
    }

    /// Whether some lease waits to be given back what it held.
    pub fn has_reclaims(&self) -> bool {
        !self.reclaims.is_empty()
    }

    /// Takes the turn that the key of a transaction had when it came, if it waited. There is one for each key: of copies
    /// that waited together only the first is begun.
    pub fn take_turn(&mut self, id: TxnId) -> bool {
        self.turns.remove(&id)
    }

    /// Whether a call of that weight may wait, beside others that keep so many bytes of the same bound.
    fn has_room(&self, weight: usize, beside: usize, most: usize) -> bool {
        self.calls.len() < MAX_EARLY && self.bytes + weight + beside <= most
    }

    fn push(&mut self, call: CallId, request: Call) {
        self.bytes += weight(&request);
        self.calls.push((call, request));
    }

    fn remove(&mut self, index: usize) -> CallId {
        let (call, request) = self.calls.remove(index);
        self.bytes -= weight(&request);
        call
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.reclaims.is_empty()
    }
}

/// Under which lease and key something new would begin.
fn key_of(request: &Call) -> Option<TxnId> {
    match request {
        Call::Begin(begin) => Some(TxnId { lease: begin.lease, key: begin.key }),
        Call::Acquire(acquire) => acquire.key.map(|key| TxnId { lease: acquire.lease, key }),
        _ => None,
    }
}

/// About how many bytes a call keeps while it waits.
fn weight(request: &Call) -> usize {
    let names =
        |wants: &Wants| wants.locks().iter().map(|(name, _)| 32 + name.as_bytes().len()).sum::<usize>();
    match request {
        Call::Begin(begin) => {
            begin.step.weight() + begin.locks.as_ref().map_or(0, |locks| names(&locks.wants))
        }
        Call::GoOn(go_on) => go_on.step.weight(),
        Call::Acquire(acquire) => names(&acquire.wants),
        _ => 0,
    }
}

impl Replica {
    /// Whether what was promised before the start can be judged.
    pub(super) fn has_past(&self) -> bool {
        self.life.quiet_until.is_none() && self.has_own_log()
    }

    /// Whether a call comes too soon.
    pub(super) fn must_wait(&self, request: &Call) -> bool {
        let needs_clock = matches!(request, Call::Acquire(_) | Call::Begin(_) | Call::GoOn(_));
        (needs_clock && self.life.quiet_until.is_some()) || self.may_be_commit_of_before(request).is_some()
    }

    /// A call that must wait does so, if there is room.
    pub(super) fn put_off(&mut self, call: CallId, request: Call) {
        let (beside, most) = (self.kept_for_transactions(), self.config.local.max_transaction_bytes);
        if self.early.has_room(weight(&request), beside, most) {
            self.keep_turn(call, &request);
            self.early.push(call, request);
        } else if let Some(id) = self.may_be_commit_of_before(&request) {
            self.refuse(call, TxnRefusal::OutcomeUnknown(id.key).into());
        } else {
            // It is told what it may not do yet.
            self.do_for_client(call, request);
        }
    }

    /// The transaction that a call may ask after, if it may have been committed before the start without being known here.
    fn may_be_commit_of_before(&self, request: &Call) -> Option<TxnId> {
        let (lease, key) = match request {
            Call::Begin(begin) if begin.step.then == Then::Commit && !begin.step.changes.is_empty() => {
                (begin.lease, begin.key)
            }
            // Also one that does not commit: it is not to overtake one that does.
            Call::GoOn(go_on) => (go_on.lease, go_on.key),
            _ => return None,
        };
        let id = TxnId { lease, key };
        let is_of_before = lease.dc() == Some(self.config.dc) && lease.n() < self.early.first_lease;
        // Not before those that came earlier either, which go on when all reclaims are judged.
        let is_judged = self.has_past() && !self.early.has_reclaims();
        (is_of_before && !is_judged && !self.transactions.knows(id)).then_some(id)
    }

    /// Keys of a lease are new in rising order, and others go on while a transaction waits. Until the clock can be read all that
    /// begins waits, in order; cancels do not, and so many of them say something of all keys below.
    fn keep_turn(&mut self, call: CallId, request: &Call) {
        let (proof, id) = match (request, key_of(request)) {
            (Call::Begin(begin), Some(id)) => (begin.proof, id),
            (Call::Acquire(acquire), Some(id)) => (acquire.proof, id),
            _ => return,
        };
        let Ok(index) = self.authorise(id.lease, proof, call) else { return };
        let finished = &mut self.leases.get_mut(index).finished;
        match request {
            _ if finished.is_over(id.key) => {}
            _ if self.life.quiet_until.is_some() => finished.wait(id.key),
            Call::Begin(_) => {
                finished.begin(Some(id.key));
                self.early.turns.insert(id);
            }
            _ => {}
        }
    }

    /// A reclaim waits, the only one of its lease. All together want no more than could be held.
    pub(super) fn put_off_reclaim(&mut self, call: CallId, lease: LeaseId, held: Vec<Reclaim>) {
        if self.early.reclaimed + held.len() > self.config.local.max_held {
            let limit = Limit::HeldPerServer;
            return self.refuse(call, Refusal::ResourceExhausted { limit, retry_after: RETRY_AFTER });
        }
        self.early.reclaimed += held.len();
        self.early.by_session.insert((call.session, lease));
        self.early.reclaims.insert(lease, (call, held));
    }

    /// A reclaim that waits counts no more: its lease ends, or reclaims anew, because the stream that it came from is gone.
    /// Were it kept beside a new one, a release would be taken out of it, and not out of what is held by then.
    pub(super) fn end_early_reclaim(&mut self, lease: LeaseId, why: Refusal) {
        if let Some((call, _)) = self.early.take_reclaim(lease) {
            self.refuse(call, why);
        }
    }

    /// A client lets go what its reclaim, which waits, says that it holds. Whether that did.
    pub(super) fn release_early(&mut self, lease: LeaseId, target: Target) -> bool {
        let Some((_, held)) = self.early.reclaims.get_mut(&lease) else { return false };
        let is_it = |reclaim: &mut Reclaim| match target {
            Target::Id(id) => reclaim.request == id,
            Target::Key(key) => reclaim.key == Some(key),
        };
        let released: Vec<Reclaim> = held.extract_if(.., is_it).collect();
        self.early.reclaimed -= released.len();
        if let Some(index) = self.leases.find(lease) {
            let keys = released.iter().filter_map(|reclaim| reclaim.key);
            keys.for_each(|key| self.leases.get_mut(index).finished.finish(key));
        }
        !released.is_empty()
    }

    /// An acquire that has not started yet is cancelled by its key, on its own session. Whether there was one.
    pub(super) fn cancel_early(&mut self, call: CallId, lease: LeaseId, target: Target) -> bool {
        let Target::Key(key) = target else { return false };
        let is_it = |(other, early): &(CallId, Call)| {
            let Call::Acquire(acquire) = early else { return false };
            other.session == call.session && acquire.lease == lease && acquire.key == Some(key)
        };
        let before = self.early.calls.len();
        while let Some(index) = self.early.calls.iter().position(is_it) {
            let cancelled = self.early.remove(index);
            self.refuse(cancelled, Refusal::Cancelled);
        }
        let was_there = self.early.calls.len() < before;
        if was_there && let Some(index) = self.leases.find(lease) {
            self.leases.get_mut(index).finished.finish(key);
        }
        was_there
    }

    /// The past is known now, if it is: whatever waited for that goes on. Reclaims some at a time, then the rest.
    pub(super) fn judge_past(&mut self) {
        if self.early.is_empty() || !self.has_past() {
            return;
        }
        let mut looked_at = 0;
        while let Some((lease, (_, held))) = self.early.reclaims.first_key_value() {
            let lease = *lease;
            looked_at += 1 + held.len();
            if looked_at > RECLAIMED_PER_STEP && looked_at > 1 + held.len() {
                return;
            }
            let (call, held) = self.early.take_reclaim(lease).expect("it was there just now");
            let index = self.leases.find(lease).expect("a lease's reclaim ends with it");
            work::count(1 + held.len());
            self.reclaim(call, index, held);
        }
        self.start_early();
        self.early.turns.clear();
    }

    /// Starts what came before the clock could be read.
    pub(super) fn start_early(&mut self) {
        self.early.bytes = 0;
        for (call, request) in std::mem::take(&mut self.early.calls) {
            self.on_client(call, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::Proof;
    use crate::names::{LockName, Mode};
    use crate::replica::call::{Acquire, Wait};

    fn acquire(name: &str) -> Call {
        let name = LockName::try_from(name).expect("a valid name");
        let wants = Wants::all(vec![(name, Mode::Exclusive)]).expect("one lock");
        let (lease, label) = (LeaseId::from_raw(1), "".into());
        Call::Acquire(Acquire { lease, proof: Proof::Attached, key: None, wants, wait: Wait::Forever, label })
    }

    #[test]
    fn what_waits_is_bounded_by_what_it_takes() {
        let mut early = Early::default();
        let call = |session, tag| CallId { session: SessionId(session), tag };
        early.push(call(1, 1), acquire("0123456789"));
        early.push(call(2, 1), acquire("01234567"));
        early.push(call(1, 2), acquire("0123456789"));
        assert_eq!(early.bytes, 3 * 32 + 28);
        assert!(early.has_room(26, 0, 150) && !early.has_room(27, 0, 150) && !early.has_room(26, 1, 150));
        early.close_session(SessionId(1));
        assert_eq!((early.bytes, early.remove(0)), (40, call(2, 1)));
        assert_eq!(early.bytes, 0);
        (0..MAX_EARLY as u64).for_each(|tag| early.push(call(3, tag), acquire("a")));
        assert!(!early.has_room(0, 0, usize::MAX));
    }
}
