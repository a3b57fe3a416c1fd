//! A client that behaves like the real client library: one session at a time, one lease, requests with
//! idempotency keys.
//!
//! It keeps these rules (`docs/algorithm/grants.md#14-leases`), on which the oracle's notion of *holding*
//! rests:
//!
//! - It holds a lock from the grant that it received until it decides to release it, hears that it lost it,
//!   or its lease runs out by its own count, whichever is first. It counts from before the send of the call
//!   that renewed the lease, and leaves a margin for clocks that run at different speeds.
//! - It takes a lock out of what it would reclaim before it sends the release.
//! - A lease that ends with its session ([`OnDisconnect::Release`]) is over for it as soon as the session is.
//! - On a new session it attaches its lease, reclaims if the server asks for that, and sends every release
//!   and every waiting request again, under the same key.
//!
//! Some clients do otherwise, as clients in other languages do ([`behaviour`]).

mod amendments;
mod behaviour;
mod downgrades;
mod enough;
mod replies;
mod requests;
mod transactions;
mod txn_refusals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(in crate::sim) use amendments::Amended;
pub(in crate::sim) use behaviour::Behaviour;
pub(in crate::sim) use enough::chosen_wants;
pub(in crate::sim) use requests::{Order, Request, State};
pub(in crate::sim) use transactions::{Txn, TxnOrder, TxnStep};

use transactions::TxnCall;

use crate::causal_log::Wants;
use crate::crdt::VersionVector;
use crate::replica::call::store::Read;
use crate::replica::call::{Call, Grant, IdempotencyKey, OnDisconnect, Proof, Reclaim, SessionId};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::TxnKey;
use crate::sim::queue::Moment;
use geolock_api::names::{DcId, FencingToken, LeaseId, LockName, RequestId, Secret};

/// An output of a client, for its world.
#[derive(Debug)]
pub(super) enum Out {
    Call {
        tag: u64,
        call: Box<Call>,
        /// Outside of its stream.
        beside: bool,
    },
    Timer {
        at: Moment,
        timer: Timer,
    },
    /// It holds that request from now on.
    Holds {
        key: IdempotencyKey,
        grant: Grant,
    },
    /// It does not hold it any more.
    Ends {
        key: IdempotencyKey,
        why: HoldEnd,
    },
    /// It holds that lock shared from now on, and no more exclusively.
    Downgrades {
        key: IdempotencyKey,
        lock: LockName,
    },
    /// That request, which was never held, is over.
    Over {
        key: IdempotencyKey,
    },
    Reclaimed {
        count: usize,
    },
    /// It reclaims what it has released.
    ReclaimsStale,
    /// A transaction is open and holds its locks from now on.
    HoldsInTxn {
        key: IdempotencyKey,
        token: FencingToken,
        snapshot: Arc<VersionVector>,
    },
    /// It learned that a transaction is committed.
    Committed {
        vector: Arc<VersionVector>,
    },
    /// It learned that a transaction is not committed and will not be.
    NotCommitted {
        txn: TxnKey,
        why: &'static str,
    },
    /// It has changed its intent for a transaction.
    Intends {
        key: IdempotencyKey,
    },
    /// It sends a call of a transaction again.
    Retries,
    Fails {
        kind: FailureKind,
        what: String,
    },
}

/// The reason for which a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldEnd {
    Released,
    /// The lease ran out by the client's own count, or ended with the session.
    Expired,
    /// The server said so.
    Told,
}

/// A timer of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    KeepAlive,
    /// Attach the lease again.
    Attach,
    LeaseOver,
    Release(IdempotencyKey),
    Cancel(IdempotencyKey),
    /// It needs the exclusive locks of that request only shared from now on.
    Downgrade(IdempotencyKey),
    /// It wants enough of other locks.
    Amend(IdempotencyKey),
    Reconnect,
    /// It had been refused a lease.
    OpenLease,
    /// It had been refused the request under that key.
    AskAgain(IdempotencyKey),
    /// The next step of a transaction.
    Step(IdempotencyKey),
    /// A transaction has been open for so long that its locks may be gone.
    HoldOver(IdempotencyKey),
    /// It cancels a transaction that still waits to begin.
    GiveUp(IdempotencyKey),
    /// The load decides its next action.
    Act,
}

/// The properties of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub ttl: Duration,
    pub on_disconnect: OnDisconnect,
    /// When its lease has run out by its own count it still tries to attach it, and keeps its places in
    /// queues if the server counted longer.
    pub stubborn: bool,
    /// It breaks a rule: it also reclaims the last lock that it released, and releases it again when it gets
    /// it back.
    pub forgetful: bool,
    pub behaviour: Behaviour,
}

/// Returns true if a lock among them has a home.
pub(super) fn names_home(wants: &Wants) -> bool {
    wants.locks().iter().any(|(lock, _)| lock.home().is_some())
}

/// Returns the part of a lease's time that a client counts on: clocks may differ in speed by 1 % each.
pub(super) fn usable(ttl: Duration) -> Duration {
    ttl - ttl / 32
}

#[derive(Clone, Debug)]
struct Lease {
    id: LeaseId,
    secret: Secret,
    valid_until: Moment,
    /// Attached to the current session.
    attached: bool,
    /// It ran out by the client's own count; its state at the server is unknown.
    lapsed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Open {
        sent: Moment,
        secret: Secret,
    },
    Attach {
        sent: Moment,
    },
    KeepAlive {
        sent: Moment,
    },
    Acquire(IdempotencyKey),
    End(IdempotencyKey),
    Downgrade(IdempotencyKey),
    Amend(IdempotencyKey),
    Reclaim,
    /// The release of a lock that it does not want.
    Drop(RequestId),
    Close {
        lease: LeaseId,
        /// It runs out then, by the client's own count.
        valid_until: Moment,
    },
    Txn(IdempotencyKey, TxnCall),
    Read,
}

#[derive(Debug)]
pub(super) struct Client {
    pub number: usize,
    pub dc: DcId,
    pub manner: Manner,
    /// It stopped without notice: does nothing, hears nothing.
    pub dead: bool,
    /// It closed its lease and wants no other.
    pub retired: bool,
    /// Disks may lose data that was acknowledged to it.
    pub disks_forget: bool,
    /// Its leases that its server's disk has lost.
    pub lost_leases: BTreeSet<LeaseId>,
    /// Its leases from before its server's disk lost something.
    pub old_leases: BTreeSet<LeaseId>,
    /// The lease that it had when its server's disk was rolled back without a mark.
    pub rolled_back: Option<LeaseId>,
    /// Grants of its datacenter while that could not know that it had given the parts away; transactions by
    /// their tokens.
    pub blind_grants: BTreeSet<u64>,
    /// Its server had too little disk space at some time; the client may have missed the answers that said
    /// so.
    pub disk_was_full: bool,
    /// The last of its leases that lost a lock to an operator; the client may have heard neither of the lock
    /// nor of the loss.
    pub lost_to_operator: Option<LeaseId>,
    /// Its server sometimes refuses calls because of overload.
    pub may_be_refused: bool,
    /// Its datacenter leaves: it makes nothing new there, and is told to go elsewhere.
    pub is_moving: bool,
    /// A home may leave, and is none then.
    pub homes_may_end: bool,
    /// The time of its first grant that has a home in its names.
    first_home: Option<Moment>,
    /// Refused orders that it will send again, by the keys that were refused.
    deferred: BTreeMap<IdempotencyKey, Order>,
    session: Option<SessionId>,
    lease: Option<Lease>,
    requests: BTreeMap<IdempotencyKey, Request>,
    txns: BTreeMap<IdempotencyKey, Txn>,
    reads: BTreeMap<u64, Read>,
    /// The lock that it released last, if it is forgetful.
    released: Option<Reclaim>,
    /// Locks that it does not want and that the server may have granted it: it reclaimed them after it had
    /// released them, or had already cancelled them. Each is released until that is answered.
    unwanted: Vec<RequestId>,
    /// The commit vector of its last transaction.
    pub last_commit: VersionVector,
    /// Requests whose cancel was answered.
    cancelled: BTreeSet<IdempotencyKey>,
    pending: BTreeMap<u64, Pending>,
    next_tag: u64,
    next_key: IdempotencyKey,
    label: Arc<str>,
    over_armed: bool,
}

impl Client {
    pub fn new(number: usize, dc: DcId, manner: Manner) -> Client {
        Client {
            number,
            dc,
            manner,
            dead: false,
            retired: false,
            disks_forget: false,
            lost_leases: BTreeSet::new(),
            old_leases: BTreeSet::new(),
            rolled_back: None,
            blind_grants: BTreeSet::new(),
            disk_was_full: false,
            lost_to_operator: None,
            first_home: None,
            may_be_refused: false,
            is_moving: false,
            homes_may_end: false,
            deferred: BTreeMap::new(),
            session: None,
            lease: None,
            requests: BTreeMap::new(),
            txns: BTreeMap::new(),
            reads: BTreeMap::new(),
            released: None,
            unwanted: Vec::new(),
            last_commit: VersionVector::default(),
            cancelled: BTreeSet::new(),
            pending: BTreeMap::new(),
            next_tag: 1,
            next_key: 1,
            label: format!("c{number}").into(),
            over_armed: false,
        }
    }

    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    pub fn lease(&self) -> Option<LeaseId> {
        self.lease.as_ref().map(|lease| lease.id)
    }

    /// Returns true if its lease is attached to its session, so that it can acquire locks.
    pub fn is_ready(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.attached)
    }

    /// Returns true if its lease has run out by its own count: the server may end it at any moment, with any
    /// request made now.
    fn is_lapsed(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.lapsed)
    }

    pub fn requests(&self) -> &BTreeMap<IdempotencyKey, Request> {
        &self.requests
    }

    /// Returns a short description of something that it waits for.
    pub fn first_unfinished(&self) -> String {
        let Client { number, dc, .. } = self;
        if let Some((key, Request { state, issued, .. })) = self.requests.first_key_value() {
            return format!("request {key} of client {number} at {dc}, asked for at {issued}: {state:?}");
        }
        match self.txns.first_key_value() {
            Some((key, txn)) => {
                let Txn { issued, stage, .. } = txn;
                format!("transaction {key} of client {number} at {dc}, begun at {issued}: {stage:?}")
            }
            None => format!("a read of client {number} at {dc}"),
        }
    }

    /// Returns the request of an acquire call of the current session.
    pub fn acquire_of(&self, tag: u64) -> Option<(IdempotencyKey, &Request)> {
        match self.pending.get(&tag) {
            Some(Pending::Acquire(key)) => self.requests.get(key).map(|request| (*key, request)),
            _ => None,
        }
    }

    /// Returns the lease that a call of the current session closes.
    pub fn closing_of(&self, tag: u64) -> Option<LeaseId> {
        match self.pending.get(&tag) {
            Some(Pending::Close { lease, .. }) => Some(*lease),
            _ => None,
        }
    }

    fn call(&mut self, pending: Pending, mut call: Call, out: &mut Vec<Out>) {
        let beside = self.manner.behaviour.unary && self.prove_by_secret(&mut call);
        let tag = self.next_tag;
        self.next_tag += 1;
        self.pending.insert(tag, pending);
        out.push(Out::Call { tag, call: Box::new(call), beside });
    }

    pub fn on_connected(&mut self, now: Moment, session: SessionId, out: &mut Vec<Out>) {
        assert!(self.session.is_none(), "client {} has one session at a time", self.number);
        self.session = Some(session);
        match &self.lease {
            Some(_) => self.attach(now, out),
            None => self.open_lease(now, out),
        }
        self.ask_doubts(out);
    }

    /// Attaches the lease to the session, if there are both.
    pub fn attach(&mut self, now: Moment, out: &mut Vec<Out>) {
        if let Some(lease) = self.lease.as_ref().filter(|lease| self.session.is_some() && !lease.attached) {
            let call = Call::AttachLease { lease: lease.id, secret: lease.secret };
            self.call(Pending::Attach { sent: now }, call, out);
        }
    }

    fn open_lease(&mut self, now: Moment, out: &mut Vec<Out>) {
        if self.session.is_none() || self.retired || self.dead {
            return;
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(self.number as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&self.next_tag.to_le_bytes());
        let secret = Secret::new(bytes);
        let Manner { ttl, on_disconnect, .. } = self.manner;
        self.call(
            Pending::Open { sent: now, secret },
            Call::OpenLease { secret, ttl: Some(ttl), on_disconnect },
            out,
        );
    }

    /// Opens a lease once more, unless it has one by now.
    pub fn open_lease_again(&mut self, now: Moment, out: &mut Vec<Out>) {
        let asked = self.pending.values().any(|pending| matches!(pending, Pending::Open { .. }));
        if self.lease.is_none() && !asked {
            self.open_lease(now, out);
        }
    }

    pub fn on_disconnected(&mut self, out: &mut Vec<Out>) {
        self.session = None;
        self.pending.clear();
        self.reads.clear();
        self.end_txn_holds(out);
        match (&mut self.lease, self.manner.on_disconnect) {
            (Some(lease), OnDisconnect::Keep) => lease.attached = false,
            (_, OnDisconnect::Release) => self.forget_lease(HoldEnd::Expired, out),
            (None, OnDisconnect::Keep) => {}
        }
    }

    /// The lease is over, with everything that it had.
    fn forget_lease(&mut self, why: HoldEnd, out: &mut Vec<Out>) {
        self.released = None;
        self.unwanted.clear();
        if let Some(lease) = self.lease.take() {
            self.forget_txns_of(lease.id, out);
        }
        for (key, request) in std::mem::take(&mut self.requests) {
            match request.state {
                State::Held { .. } => out.push(Out::Ends { key, why }),
                State::Waiting | State::Ending { id: None } => out.push(Out::Over { key }),
                State::Ending { id: Some(_) } => {}
            }
        }
    }

    /// Checks if the lease has run out by the client's own count.
    pub fn on_lease_timer(&mut self, now: Moment, out: &mut Vec<Out>) {
        self.over_armed = false;
        let Some(lease) = &mut self.lease else { return };
        if lease.lapsed {
            return;
        }
        if lease.valid_until > now {
            self.arm_lease_timer(out);
            return;
        }
        lease.lapsed = true;
        if !self.manner.stubborn || self.dead {
            self.forget_lease(HoldEnd::Expired, out);
            self.open_lease(now, out);
            return;
        }
        self.end_txn_holds(out);
        self.txns.values_mut().for_each(|txn| txn.shaken = true);
        for (&key, request) in &mut self.requests {
            request.shaken = true;
            if let State::Held { id, .. } = request.state {
                request.state = State::Ending { id: Some(id) };
                out.push(Out::Ends { key, why: HoldEnd::Expired });
            }
        }
        if self.is_ready() {
            self.resend(now, out);
        }
    }

    fn arm_lease_timer(&mut self, out: &mut Vec<Out>) {
        if let Some(lease) = self.lease.as_ref().filter(|_| !self.over_armed) {
            out.push(Out::Timer { at: lease.valid_until, timer: Timer::LeaseOver });
            self.over_armed = true;
        }
    }

    fn renewed(&mut self, sent: Moment, ttl: Duration, out: &mut Vec<Out>) {
        if let Some(lease) = &mut self.lease {
            lease.valid_until = lease.valid_until.max(sent + usable(ttl));
            lease.lapsed = false;
            self.arm_lease_timer(out);
        }
    }

    pub fn keep_alive(&mut self, now: Moment, out: &mut Vec<Out>) {
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.attached) {
            let call = Call::KeepAlive { lease: lease.id, proof: Proof::Attached };
            self.call(Pending::KeepAlive { sent: now }, call, out);
        }
    }
}
