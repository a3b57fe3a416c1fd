//! From the begin of a transaction until it is open.

use super::content::TxnContent;
use super::snapshot_waits::{Waiter, first_missing};
use super::steps::validate_reads;
use super::{Open, Txn, TxnId, Waiting};
use std::time::Duration;

use crate::base::bugs::Bug;
use crate::base::time::Instant;
use crate::causal_log::Log;
use crate::crdt::VersionVector;
use crate::leases::{LeaseIndex, Proof};
use crate::replica::call::store::{
    AtLeast, Begin, Durability, Durable, MAX_SNAPSHOT_WAIT, NextStep, Read, STATE_WAIT, Step, Stepped, Then,
    TxnRefusal, TxnState, reads_weight,
};
use crate::replica::call::{CallId, Limit, ListCursor, Refusal, Reply};
use crate::replica::clients::client_requests::ClientRequest;
use crate::replica::clients::grants::Requests;
use crate::replica::clients::status::MAX_PAGE;
use crate::replica::clients::{admit_load, not_free};
use crate::replica::data::transactions::TxnCalls;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::store_state::Listing;
use geolock_api::names::{DcId, FencingToken, IdempotencyKey, LeaseId, MAX_LABEL, RequestId};

/// The kind of a begin.
enum Begun {
    New(LeaseIndex),
    /// A retry, already handled.
    Again,
}

impl TxnCalls<'_> {
    pub(in crate::replica) fn on_begin(&mut self, call: CallId, begin: Begin) {
        match self.admit_begin(call, &begin) {
            Ok(Begun::New(lease)) => self.start_begin(call, begin, lease),
            Ok(Begun::Again) => {}
            Err(refusal) => self.out.refuse(call, refusal),
        }
    }

    fn admit_begin(&mut self, call: CallId, begin: &Begin) -> Result<Begun, Refusal> {
        let id = TxnId { lease: begin.lease, key: begin.key };
        let lease =
            match self.clients.authorise(self.config.lease_time(self.now), begin.lease, begin.proof, call) {
                Ok(lease) => lease,
                Err(refusal) => {
                    let told = self.tell_ended(call, id, (begin.proof, Some(begin)), &begin.step, refusal);
                    return told.map(|()| Begun::Again);
                }
            };
        self.data.transactions.outcomes.acknowledge(begin.lease, begin.acknowledged_through);
        self.data.transactions.dead.acknowledge(begin.lease, begin.acknowledged_through);
        if self.begin_again(call, id, begin)? {
            return Ok(Begun::Again);
        }
        if id.key <= self.data.transactions.outcomes.acknowledged_through(begin.lease) {
            return Err(TxnRefusal::OutcomeUnknown(id.key).into());
        }
        let had_its_turn = self.clients.leases.get(lease).finished.is_over(id.key);
        if had_its_turn && !self.clients.deferred.take_turn(id) {
            return Err(TxnRefusal::Unknown(id.key).into());
        }
        if self.lifecycle.admission.is_draining() {
            return Err(Refusal::Draining);
        }
        admit_load(self.lifecycle.admission.load(), self.out.counts.calls_shed)?;
        let full =
            |limit| Refusal::ResourceExhausted { limit, retry_after: crate::replica::clients::RETRY_AFTER };
        if self.data.transactions.len() + self.data.transactions.majority.len()
            >= self.config.local.max_transactions
        {
            return Err(full(Limit::Transactions));
        }
        self.admit_bytes(begin.step.weight())?;
        if self.data.transactions.outcomes.is_full(begin.lease) {
            return Err(full(Limit::Outcomes));
        }
        validate_vector(&begin.at_least.snapshot, self.members, self.log, self.lifecycle)?;
        self.admit_guards(begin, lease)?;
        if let Some(locks) = &begin.locks {
            if locks.label.len() > MAX_LABEL {
                return Err(Refusal::LabelTooLong { len: locks.label.len(), max: MAX_LABEL });
            }
            lend!(AcquireCalls, self).admit_request(lease)?;
        }
        Ok(Begun::New(lease))
    }

    /// The lease has ended, but its client may still ask for the outcomes of its transactions.
    fn tell_ended(
        &mut self,
        call: CallId,
        id: TxnId,
        (proof, begin): (Proof, Option<&Begin>),
        step: &Step,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        let commits = step.then == Then::Commit;
        let is_unknown = matches!(refusal, Refusal::UnknownLease(_));
        let is_lost = self.data.transactions.outcomes.is_lost(id.lease, id.key);
        if is_unknown && (is_lost || commits && self.may_be_of_an_earlier_member(id.lease)) {
            return Err(TxnRefusal::OutcomeUnknown(id.key).into());
        }
        let (Refusal::UnknownLease(_), Proof::Secret(secret)) = (&refusal, proof) else {
            return Err(refusal);
        };
        let Some(outcome) = self.data.transactions.outcomes.get_ended(id.lease, secret, id.key).cloned()
        else {
            return Err(refusal);
        };
        if begin.is_some_and(|begin| !outcome.content.may_be_of(begin)) {
            return Err(Refusal::IdempotencyKeyReused(id.key));
        }
        self.tell_committed(call, id, &outcome, step.durability);
        Ok(())
    }

    /// Returns true if an earlier member with this id may have opened the lease: it was evicted or has left,
    /// what it committed may count, and nobody knows its leases any more. A lease of an earlier run of this
    /// member that has ended is not distinguished from that.
    fn may_be_of_an_earlier_member(&self, lease: LeaseId) -> bool {
        let decided = &self.members.decided;
        let has_opened_none = decided.awaits_state();
        let may_follow_another = has_opened_none || decided.own_base() > 0;
        let is_of_before = has_opened_none || self.clients.deferred.is_of_before(lease);
        lease.dc() == Some(self.config.dc) && may_follow_another && is_of_before
    }

    /// Handles a begin whose transaction is known already. Returns false if it is new.
    fn begin_again(&mut self, call: CallId, id: TxnId, begin: &Begin) -> Result<bool, Refusal> {
        if let Some(outcome) = self.data.transactions.outcomes.get(id.lease, id.key).cloned() {
            if !outcome.content.may_be_of(begin) {
                return Err(Refusal::IdempotencyKeyReused(id.key));
            }
            self.tell_committed(call, id, &outcome, begin.step.durability);
            return Ok(true);
        }
        let is_same = |content: TxnContent| content.may_be_of(begin);
        if self.data.transactions.content_of(id).is_some_and(|content| !is_same(content)) {
            return Err(Refusal::IdempotencyKeyReused(id.key));
        }
        if let Some(death) = self.data.transactions.dead.take(&id) {
            return Err(death.refusal(id, self.config));
        }
        match self.data.transactions.rows.get_mut(&id) {
            None => Ok(false),
            Some(Txn::Waiting(waiting)) => {
                waiting.call = call;
                let request = waiting.request.and_then(|request| self.locks.requests().find(request));
                if let Some(request) = request {
                    let client = self.clients.client_requests.get_mut(request);
                    client.call = client.call.is_some().then_some(call);
                }
                Ok(true)
            }
            Some(Txn::Open(_)) => {
                // The first step was made: its changes are not made again, its reads are repeated.
                let reads = begin.step.reads.clone();
                let (changes, then, durability) = (Vec::new(), Then::Continue, Durability::Local);
                let step = crate::replica::call::store::Step { changes, reads, then, durability };
                self.step(call, id, step);
                Ok(true)
            }
        }
    }

    fn start_begin(&mut self, call: CallId, begin: Begin, lease: LeaseIndex) {
        let id = TxnId { lease: begin.lease, key: begin.key };
        assert!(!self.data.transactions.dead.knows(&id), "{id:?} begins, and its death is not told");
        assert_eq!(self.clients.leases.get(lease).id, id.lease, "{id:?} begins under its own lease");
        self.clients.leases.get_mut(lease).finished.begin(Some(id.key));
        let mut request = None;
        if let Some(locks) = &begin.locks {
            if let Err(refusal) = self.lifecycle.versions.admit_homes(
                self.config,
                self.locks.view().members,
                locks.wants.locks().iter().map(|(lock, _)| lock),
            ) {
                return self.out.refuse(call, refusal);
            }
            let client = ClientRequest { call: Some(call), txn: Some(id.key), ..ClientRequest::default() };
            match lend!(AcquireCalls, self).start_request(lease, locks, client) {
                Some(index) => request = Some(self.locks.requests()[index].id),
                None => {
                    let refusal = not_free(locks.wait);
                    return self.out.refuse(call, refusal);
                }
            }
        }
        let waits_for_locks = request.is_some();
        let (bytes, content) = (begin.step.weight(), TxnContent::of(&begin));
        let waiting = Waiting { call, begin, content, request, token: None, bytes };
        let before = self.data.transactions.rows.insert(id, Txn::Waiting(Box::new(waiting)));
        assert!(before.is_none(), "{id:?} begins once");
        if !waits_for_locks {
            self.await_snapshot(id);
        }
    }

    /// The locks of a transaction are granted, and everything that was committed under them is durable here.
    pub(in crate::replica) fn on_txn_locks(
        &mut self,
        lease: LeaseId,
        key: IdempotencyKey,
        id: RequestId,
        token: FencingToken,
    ) {
        let txn = TxnId { lease, key };
        if let Some(Txn::Waiting(waiting)) = self.data.transactions.rows.get_mut(&txn)
            && waiting.request == Some(id)
            && waiting.token.is_none()
        {
            waiting.token = Some(token);
            self.await_snapshot(txn);
        }
    }

    fn await_snapshot(&mut self, id: TxnId) {
        let Some(Txn::Waiting(waiting)) = self.data.transactions.rows.get(&id) else { return };
        let has_locks = waiting.request.is_none() || waiting.token.is_some();
        assert!(has_locks, "{id:?} waits for its snapshot, and for its locks {:?}", waiting.request);
        let at_least = &waiting.begin.at_least;
        match self.first_missing(&at_least.snapshot) {
            None => self.open(id),
            Some(entry) => {
                let until = self.waits_until(at_least);
                self.data.transactions.waits.insert(Waiter::Txn(id), entry, until);
            }
        }
    }

    /// Returns true if the data of the cluster is not here yet: a new member waits for its first state, or a
    /// directory without an entry has not heard every member, and may be in the place of a used one. A
    /// snapshot would show that nothing exists.
    fn lacks_state(&self) -> bool {
        let may_be_lost = !self.lifecycle.own_log.has_joined() && self.log.durable().iter().next().is_none();
        (self.members.decided.awaits_state() || may_be_lost) && !self.config.bugs.has(Bug::ReadsBeforeState)
    }

    /// Returns the end of a wait that begins now.
    fn waits_until(&self, at_least: &AtLeast) -> Instant {
        // All servers of a cluster start together, and their clients with them.
        let least = if self.lacks_state() { STATE_WAIT } else { Duration::ZERO };
        self.now.mono + at_least.patience.clamp(least, MAX_SNAPSHOT_WAIT)
    }

    /// Returns true if somebody waits for the data of the cluster, and it is here.
    pub(in crate::replica) fn has_state_now(&self) -> bool {
        self.data.transactions.waits.is_awaited((self.config.dc, 0)) && !self.lacks_state()
    }

    /// Returns the first entry that a snapshot with `wanted` needs and that is not durable here. Without a
    /// state that is any first entry: number 0 stands for it.
    fn first_missing(&self, wanted: &VersionVector) -> Option<(DcId, u64)> {
        if self.lacks_state() {
            return Some((self.config.dc, 0));
        }
        let durable = self.log.durable();
        // No snapshot opens between the installation of a state and its durability, nor before a regained log
        // is on disk.
        let wanted: &VersionVector = if self.config.bugs.has(Bug::AtLeastIgnored) { durable } else { wanted };
        let missing = first_missing(wanted, durable).or_else(|| first_missing(self.log.taken()?, durable));
        missing
            .or_else(|| self.out.is_regaining().then(|| first_missing(self.log.applied(), durable)).flatten())
    }

    fn open(&mut self, id: TxnId) {
        let Some(Txn::Waiting(waiting)) = self.data.transactions.rows.remove(&id) else {
            unreachable!("a transaction opens once");
        };
        let snapshot = self.log.durable().clone();
        let is_held = |request| {
            self.locks.requests().find(request).is_some_and(|row| self.locks.requests()[row].is_held())
        };
        debug_assert!(waiting.request.is_none_or(is_held), "{id:?} opens under {:?}", waiting.request);
        assert!(!self.lacks_state(), "the snapshot of {id:?} shows what exists");
        let at = self.data.store.open_snapshot(&snapshot);
        let expires = self.now.mono + self.config.local.max_transaction;
        let Waiting { call, begin, content, request, token, .. } = *waiting;
        let (under, changes) = (begin.under, Vec::new());
        assert_eq!(request.is_some(), token.is_some(), "{id:?} has a token if it has locks");
        let open = Open { at, snapshot, request, token, under, content, changes, bytes: 0, expires };
        self.data.transactions.deadlines.insert(expires, id);
        self.data.transactions.rows.insert(id, Txn::Open(Box::new(open)));
        self.first_step(call, id, begin.step);
    }

    pub(in crate::replica) fn on_next_step(&mut self, call: CallId, next_step: NextStep) {
        let id = TxnId { lease: next_step.lease, key: next_step.key };
        if let Err(refusal) =
            self.clients.authorise(self.config.lease_time(self.now), next_step.lease, next_step.proof, call)
        {
            let asked = (next_step.proof, None);
            if let Err(refusal) = self.tell_ended(call, id, asked, &next_step.step, refusal) {
                self.out.refuse(call, refusal);
            }
            return;
        }
        if let Some(outcome) = self.data.transactions.outcomes.get(id.lease, id.key).cloned() {
            return match next_step.step.then {
                Then::Commit => self.tell_committed(call, id, &outcome, next_step.step.durability),
                Then::Continue | Then::Abort => self.out.refuse(call, TxnRefusal::Committed(id.key).into()),
            };
        }
        if let Some(death) = self.data.transactions.dead.take(&id) {
            return self.out.refuse(call, death.refusal(id, self.config));
        }
        match self.data.transactions.rows.get(&id) {
            Some(Txn::Open(_)) => self.next_step(call, id, next_step.after, next_step.step),
            Some(Txn::Waiting(_)) if next_step.step.then == Then::Abort => {
                lend!(Requests, self).give_up(id);
                self.out.reply(call, Reply::Stepped(Box::new(aborted())));
            }
            Some(Txn::Waiting(_)) => self.out.refuse(call, TxnRefusal::NotOpenYet(id.key).into()),
            None if id.key <= self.data.transactions.outcomes.acknowledged_through(id.lease) => {
                self.out.refuse(call, TxnRefusal::OutcomeUnknown(id.key).into());
            }
            None => self.out.refuse(call, TxnRefusal::Unknown(id.key).into()),
        }
    }

    pub(in crate::replica) fn on_read(&mut self, call: CallId, read: Read) {
        let checked = validate_vector(&read.at_least.snapshot, self.members, self.log, self.lifecycle)
            .and_then(|()| validate_reads(&read.reads));
        if let Err(refusal) = checked {
            return self.out.refuse(call, refusal.into());
        }
        let Some(entry) = self.first_missing(&read.at_least.snapshot) else {
            return self.read(call, &read);
        };
        if self.data.transactions.waits.len() >= self.config.local.max_transactions {
            let retry_after = crate::replica::clients::RETRY_AFTER;
            let full = Refusal::ResourceExhausted { limit: Limit::Transactions, retry_after };
            return self.out.refuse(call, full);
        }
        if let Err(refusal) = self.admit_bytes(reads_weight(&read.reads)) {
            return self.out.refuse(call, refusal);
        }
        let until = self.waits_until(&read.at_least);
        self.data.transactions.waits.insert(Waiter::Read(call, read), entry, until);
    }

    /// Each page shows the keys of its own moment, so a listing is of no one snapshot.
    pub(in crate::replica) fn on_list_keys(
        &mut self,
        call: CallId,
        prefix: &[u8],
        cursor: ListCursor,
        limit: usize,
    ) {
        if self.first_missing(&VersionVector::default()).is_some() {
            return self.out.refuse(call, self.not_reached(self.log.applied()));
        }
        let snapshot = self.log.durable().clone();
        let at = self.data.store.open_snapshot(&snapshot);
        let place = usize::try_from(cursor.0).unwrap_or(usize::MAX);
        let listing = Listing { prefix, at, limit: limit.clamp(1, MAX_PAGE) };
        let (keys, next) = listing.page(&mut self.data.store, place);
        self.data.store.close_snapshot(at);
        let next = next.map(|place| ListCursor(place as u64));
        self.out.reply(call, Reply::KeysListed { keys, next });
    }

    fn read(&mut self, call: CallId, read: &Read) {
        let snapshot = self.log.durable().clone();
        let at = self.data.store.open_snapshot(&snapshot);
        let values = self.read_all(&read.reads, at, &snapshot, &[]);
        self.data.store.close_snapshot(at);
        match values {
            Ok(values) => {
                let (state, durable) = (TxnState::Aborted, Durable::Here);
                let stepped = Stepped { snapshot, token: None, values, state, durable };
                self.out.reply(call, Reply::Stepped(Box::new(stepped)));
            }
            Err(refusal) => self.out.refuse(call, refusal.into()),
        }
    }

    /// More entries are durable: resumes the reads and transactions that waited for them.
    pub(in crate::replica) fn wake_snapshot_waits(&mut self) {
        if self.lacks_state() {
            return;
        }
        loop {
            let durable = self.log.durable().clone();
            let Some((waiter, until)) = self.data.transactions.waits.next_ready(&durable) else { return };
            let wanted = match &waiter {
                Waiter::Read(_, read) => Some(&read.at_least.snapshot),
                Waiter::Txn(id) => match self.data.transactions.rows.get(id) {
                    Some(Txn::Waiting(waiting)) => Some(&waiting.begin.at_least.snapshot),
                    _ => unreachable!("{id:?} waits for its snapshot until it is open or over"),
                },
            };
            let missing = wanted.and_then(|wanted| self.first_missing(wanted));
            match (missing, waiter) {
                (Some(entry), waiter) => self.data.transactions.waits.insert(waiter, entry, until),
                (None, Waiter::Read(call, read)) => self.read(call, &read),
                (None, Waiter::Txn(id)) => self.await_snapshot(id),
            }
        }
    }

    fn not_reached(&self, wanted: &VersionVector) -> Refusal {
        if self.lacks_state() {
            return TxnRefusal::NoState.into();
        }
        let durable = self.log.durable();
        let lacks = wanted.iter().filter(|(dc, seq)| durable.get(*dc) < *seq).collect();
        TxnRefusal::SnapshotNotReached { lacks }.into()
    }

    pub(super) fn expire_snapshot_waits(&mut self) {
        for _ in 0..super::EXPIRED_PER_STEP {
            let Some(waiter) = self.data.transactions.waits.next_expired(self.now.mono) else { break };
            crate::base::work::count(1);
            match waiter {
                Waiter::Read(call, read) => {
                    let refusal = self.not_reached(&read.at_least.snapshot);
                    self.out.refuse(call, refusal);
                }
                Waiter::Txn(id) => {
                    let Some(Txn::Waiting(waiting)) = self.data.transactions.rows.get(&id) else {
                        unreachable!("{id:?} waits for its snapshot until it is open or over");
                    };
                    let (call, refusal) = (waiting.call, self.not_reached(&waiting.begin.at_least.snapshot));
                    let request = waiting.request.and_then(|request| self.locks.requests().find(request));
                    self.data.transactions.rows.remove(&id);
                    if let Some(request) = request {
                        lend!(Requests, self).end_held(request, geolock_api::names::Position::default());
                    }
                    self.out.refuse(call, refusal);
                }
            }
        }
    }
}

impl Requests<'_> {
    /// The client cancels a transaction that is not open yet.
    fn give_up(&mut self, id: TxnId) {
        let Some(Txn::Waiting(waiting)) = self.data.transactions.rows.remove(&id) else { return };
        self.data.transactions.waits.forget_txn(id);
        match waiting.request.and_then(|request| self.locks.requests().find(request)) {
            Some(request) if self.locks.requests()[request].is_held() => {
                let waits_for_snapshot = waiting.token.is_some();
                self.end_held(request, geolock_api::names::Position::default());
                if waits_for_snapshot {
                    self.out.refuse(waiting.call, Refusal::Cancelled);
                }
            }
            Some(request) => self.end_waiting(request, Refusal::Cancelled),
            None => self.out.refuse(waiting.call, Refusal::Cancelled),
        }
    }
}

/// Returns the reply to an abort.
pub(super) fn aborted() -> Stepped {
    let (snapshot, values, state) = (std::sync::Arc::default(), Vec::new(), TxnState::Aborted);
    Stepped { snapshot, token: None, values, state, durable: Durable::Here }
}

/// Checks that a vector from a client can be one of this cluster.
pub(in crate::replica) fn validate_vector(
    vector: &VersionVector,
    members: &Members,
    log: &Log,
    lifecycle: &Lifecycle,
) -> Result<(), TxnRefusal> {
    let all = members.entered.all();
    // A new member may not be known here yet.
    let is_strange = |dc: DcId| !all.contains(dc) && !members.decided.names_members();
    if let Some((dc, _)) = vector.iter().find(|(dc, _)| is_strange(*dc)) {
        return Err(TxnRefusal::UnknownDc(dc));
    }
    if let Some((dc, seq, cut)) = members.lost_in(vector) {
        return Err(TxnRefusal::SnapshotLost { dc, seq, cut });
    }
    let me = members.decided.me();
    let (seq, made) = (vector.get(me), log.applied().get(me));
    // A datacenter that may lack entries of its own log gets them back soon, or its wait ends. A new member
    // may follow another one with its slot.
    let is_wrong = seq > made
        && !members.decided.awaits_state()
        && !lifecycle.state.is_starting()
        && lifecycle.own_log.is_recovered();
    if is_wrong { Err(TxnRefusal::SnapshotAhead { seq, made }) } else { Ok(()) }
}
