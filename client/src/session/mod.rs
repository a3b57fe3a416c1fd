//! Pure: no socket, no task, no clock. Every decision of the client: which messages to send, the meaning of
//! each answer, which locks are held or lost, when to try another endpoint.
//!
//! The shell passes in events (a call of a caller, a message, time, a broken stream) with the time, and takes
//! out messages ([`Session::take_messages`]) and [`Output`]s.
//!
//! **The state of a request** is its [`Stage`]. A broken stream never changes it; it only means that some
//! calls have to be made again. So the one place that sends after a reconnect ([`Session::resume`]) reads
//! only stages: a waiting request is acquired again under its idempotency key (by which the server finds it
//! and its place in the queue), a request given up is released or cancelled again. Unknown is not no: as long
//! as the lease lives, the client repeats the call until there is an answer.
//!
//! **Idempotency keys** must increase along the requests that are new to the server
//! (`docs/algorithm/grants.md#16-idempotency-keys`). They are assigned in the order in which requests are
//! made, sent in that order, and repeated in that order, so the server knows a prefix of them. After a
//! restart the server no longer knows the waiting requests, and a reclaim may show it higher keys; only then
//! waiting requests get fresh keys.
//!
//! **A reclaim whose answer was lost** leaves its locks in doubt: a lock is kept if and only if acquiring it
//! once more, under its key and without waiting, is answered with the grant that it had.
//!
//! **A repeated call may be refused although the first one succeeded**: the server checks the present access
//! rules before it looks up the key. So a request that was sent before is then cancelled or released, not
//! dropped.

mod amendments;
mod answers;
mod calls;
mod downgrades;
mod lease;
mod link;
mod reclaim;
mod refusals;
mod steps;
#[cfg(test)]
mod tests;
mod transactions;
mod understood;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error::{AcquireError, AmendError, ClientError, LostReason};
use super::lease_clock::LeaseClock;
use super::request::Wait;
use super::tag::Tag;
use super::txn_error::CommitError;
use geolock_api::names::{FencingToken, LockName, RequestId};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{
    ClientMessage, Enough, KeepAliveRequest, LockMode, OnDisconnect, Reason, Snapshot, StepResponse,
};
use geolock_api::time::{DEFAULT_LEASE_TTL, Instant};

use amendments::Amendment;
pub(super) use calls::Releasing;
use downgrades::Downgrade;
pub(super) use downgrades::Downgrading;
use transactions::Txn;

/// The settings of a session.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// `None`: the server's default.
    pub ttl: Option<Duration>,
    pub on_disconnect: OnDisconnect,
    pub name: String,
    pub connect_timeout: Duration,
    /// Number of endpoints.
    pub endpoints: usize,
}

/// An action for the shell.
#[derive(Debug)]
pub(super) enum Output {
    /// The caller's acquire is over.
    Acquired {
        number: u64,
        outcome: Result<Grant, AcquireError>,
    },
    /// The caller's release is over.
    Released {
        number: u64,
        outcome: Result<(), ClientError>,
    },
    /// The caller's downgrade is over.
    Downgraded {
        number: u64,
        outcome: Result<(), ClientError>,
    },
    /// The caller's amendment is over.
    Amended {
        number: u64,
        outcome: Result<(), AmendError>,
    },
    /// A held request is lost.
    Lost {
        number: u64,
        reason: LostReason,
    },
    /// A step of a transaction is over: its begin, under the number of the transaction, or a further step.
    Stepped {
        number: u64,
        outcome: Result<StepResponse, CommitError>,
    },
    LeaseOpened,
    /// The server refuses to open a lease.
    LeaseRefused(Reason, String),
    /// Leave this stream and connect to another endpoint.
    Reconnect(Why),
}

/// The reason to leave a stream for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// No answer for that long.
    Silent(Duration),
    Draining,
    /// The server does not consider the lease attached to this stream.
    NotAttached,
    /// The lease ended here without a message of the server.
    Expired,
}

/// The content of a grant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grant {
    pub request: RequestId,
    pub token: FencingToken,
    pub snapshot: Snapshot,
    /// Of a request for enough locks: the places of the candidates that it holds.
    pub chosen: Vec<u32>,
    /// Their names.
    pub chosen_locks: Vec<LockName>,
}

/// The decisions of one client, across its streams and leases.
pub(super) struct Session {
    settings: Settings,
    /// Time to live of the last lease; of one that may come, before there was one.
    last_ttl: Duration,
    link: Link,
    /// The datacenter that answers on this stream, by its name for people; empty until it has introduced
    /// itself.
    answers: Arc<str>,
    /// The [`Feature`](geolock_api::proto::Feature)s that it understands.
    understands: Vec<i32>,
    lease: Lease,
    /// A lease has to be opened as soon as there is a stream.
    lease_wanted: bool,
    /// By the number that the caller knows. Each belongs to a future or a guard, or to a call in flight, so
    /// their number is bounded by that of the callers' requests.
    requests: BTreeMap<u64, Request>,
    /// Downgrades that are not answered yet, by a number of their own.
    downgrades: BTreeMap<u64, Downgrade>,
    /// By number, too. Each belongs to a handle or a future, or to a call in flight.
    txns: BTreeMap<u64, Txn>,
    /// When the client stops asking for the outcomes of commits whose leases are lost.
    orphans: BTreeSet<(Instant, u64)>,
    /// The highest number, and key, assigned so far.
    last_number: u64,
    /// When timed acquires end because no server answers. Used only while there is no connection.
    overdue: BTreeSet<(Instant, u64)>,
    /// At most three messages per request, and a few about the lease.
    outgoing: VecDeque<ClientMessage>,
    /// Sent before all others: behind them it could arrive too late.
    renewal: Option<ClientMessage>,
    /// When the server last showed that it is alive.
    moved: Instant,
    outputs: Vec<Output>,
    /// The number of consecutive streams whose server was draining.
    drained: usize,
    lifecycle: Lifecycle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Up,
    /// Left on request of the session.
    Leaving,
}

enum Lease {
    None,
    Opening { sent: Instant },
    Open(OpenLease),
}

struct OpenLease {
    id: u64,
    /// The datacenter that issued it, by its name for people.
    of: Arc<str>,
    secret: Bytes,
    clock: LeaseClock,
    standing: Standing,
}

/// The state of the lease on the current stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Detached,
    Attaching,
    /// `left` answers to pieces of a reclaim are missing. The one to piece `last` is about all of them.
    Reclaiming {
        left: u64,
        last: u64,
    },
    /// Calls can be made.
    Good,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    Running,
    /// The lease is being closed; at the latest the session ends then.
    Closing(Instant),
    Closed(Ending),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The server has confirmed the end of the lease.
    Confirmed,
    /// The server may keep the lease until it expires.
    NotConfirmed,
}

#[derive(Debug)]
struct Request {
    key: u64,
    locks: Vec<LockMode>,
    /// It waits for enough of these; once it is granted, `locks` has those that it got.
    enough: Option<Enough>,
    /// The amendment that the server has not taken yet, as far as is known.
    amendment: Option<Amendment>,
    label: String,
    wait: Wait,
    /// The end of the caller's wait.
    deadline: Option<Instant>,
    stage: Stage,
    /// How many times the acquire was sent under this key.
    asked: u32,
}

/// The state of a request, as far as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The server does not know it.
    Queued,
    /// The server may know it, and may have granted it.
    Asked,
    Held(Held),
    /// Held, unless the server lost it in a restart.
    InDoubt(Held),
    /// Its holder has released it.
    Releasing,
    /// Its caller has given it up; it may be held or not.
    Cancelling,
    /// It was held and is lost. Kept until its guard is gone, to report the reason.
    Lost(LostReason),
}

/// The part of a grant that a reclaim contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    request: RequestId,
    token: FencingToken,
}

impl Session {
    pub(super) fn new(settings: Settings) -> Session {
        Session {
            last_ttl: settings.ttl.unwrap_or(DEFAULT_LEASE_TTL),
            settings,
            link: Link::Down,
            answers: Arc::default(),
            understands: Vec::new(),
            lease: Lease::None,
            lease_wanted: true,
            requests: BTreeMap::new(),
            downgrades: BTreeMap::new(),
            txns: BTreeMap::new(),
            orphans: BTreeSet::new(),
            last_number: 0,
            overdue: BTreeSet::new(),
            outgoing: VecDeque::new(),
            renewal: None,
            moved: Instant::ZERO,
            outputs: Vec::new(),
            drained: 0,
            lifecycle: Lifecycle::Running,
        }
    }

    /// Returns the time to live of the present lease, or of the last one.
    pub(super) fn ttl(&self) -> Duration {
        match &self.lease {
            Lease::Open(lease) => lease.clock.ttl(),
            Lease::None | Lease::Opening { .. } => self.last_ttl,
        }
    }

    /// Moves all messages to be sent, in order, to the end of `messages`. A renewal goes before them:
    /// [`Session::take_renewal`].
    pub(super) fn take_messages(&mut self, messages: &mut VecDeque<ClientMessage>) {
        if messages.is_empty() {
            std::mem::swap(messages, &mut self.outgoing);
        } else {
            messages.append(&mut self.outgoing);
        }
    }

    pub(super) fn has_messages(&self) -> bool {
        !self.outgoing.is_empty() || self.renewal.is_some()
    }

    pub(super) fn take_renewal(&mut self) -> Option<ClientMessage> {
        self.renewal.take()
    }

    /// As [`Session::take_renewal`], for a call of its own outside the stream: it carries the secret of the
    /// lease.
    pub(super) fn take_renewal_apart(&mut self) -> Option<KeepAliveRequest> {
        self.renewal.take()?;
        let Lease::Open(lease) = &self.lease else { return None };
        Some(KeepAliveRequest { lease: lease.id, secret: lease.secret.clone() })
    }

    pub(super) fn has_renewal(&self) -> bool {
        self.renewal.is_some()
    }

    /// Notes that the server was alive at that time: bytes came from it, or it accepted bytes that had to
    /// wait. Missing answers are then only slow.
    pub(super) fn moved(&mut self, at: Instant) {
        self.moved = self.moved.max(at);
    }

    /// Moves all actions for the shell, in order, to the end of `outputs`.
    pub(super) fn take_outputs(&mut self, outputs: &mut Vec<Output>) {
        outputs.append(&mut self.outputs);
    }

    pub(super) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Returns how the session ended, once nothing more will happen.
    pub(super) fn ending(&self) -> Option<Ending> {
        match self.lifecycle {
            Lifecycle::Closed(ending) => Some(ending),
            Lifecycle::Running | Lifecycle::Closing(_) => None,
        }
    }

    /// Returns true if calls are sent at once.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.lease, Lease::Open(lease) if lease.standing == Standing::Good)
    }

    /// Returns when [`Session::on_time`] has something to do.
    pub(super) fn next_deadline(&self) -> Instant {
        let lease = match &self.lease {
            Lease::None => None,
            Lease::Opening { sent } => Some(self.moved.max(*sent) + self.settings.connect_timeout),
            Lease::Open(lease) => {
                let renewal = match lease.standing {
                    Standing::Detached => None,
                    _ => lease.clock.renewal_due().or(lease.clock.renewal_overdue(self.moved)),
                };
                Some(renewal.map_or(lease.clock.expires(), |renewal| renewal.min(lease.clock.expires())))
            }
        };
        let caller = self.overdue.first().map(|(instant, _)| *instant);
        let orphan = self.orphans.first().map(|(instant, _)| *instant);
        let closing = match self.lifecycle {
            Lifecycle::Closing(until) => Some(until),
            Lifecycle::Running | Lifecycle::Closed(_) => None,
        };
        [lease, caller, orphan, closing].into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Advances the time. Must be called before anything else that depends on time.
    pub(super) fn on_time(&mut self, now: Instant) {
        match &mut self.lease {
            Lease::Open(lease) if now >= lease.clock.expires() => {
                // This process may have been stopped for a long time.
                let is_over = now >= lease.clock.ended();
                self.leave(Why::Expired);
                self.lose_lease(now, if is_over { &LostReason::LeaseEnded } else { &LostReason::Expired });
            }
            Lease::Open(lease) if lease.standing != Standing::Detached => {
                if lease.clock.renewal_due().is_some_and(|due| due <= now) {
                    self.renew(now);
                } else if lease.clock.renewal_overdue(self.moved).is_some_and(|overdue| overdue <= now) {
                    let overdue = lease.clock.ttl() / 4;
                    self.leave(Why::Silent(overdue));
                }
            }
            Lease::Opening { sent } if now >= self.moved.max(*sent) + self.settings.connect_timeout => {
                self.leave(Why::Silent(self.settings.connect_timeout));
            }
            _ => {}
        }
        if let Lifecycle::Closing(until) = self.lifecycle
            && now >= until
        {
            self.lifecycle = Lifecycle::Closed(Ending::NotConfirmed);
        }
        self.give_up_overdue(now);
        self.give_up_orphans(now);
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn send(&mut self, tag: Tag, call: Call) {
        if self.link == Link::Up {
            self.outgoing.push_back(ClientMessage { tag: tag.to_wire(), call: Some(call) });
        }
    }

    fn leave(&mut self, why: Why) {
        if self.link == Link::Up {
            self.link = Link::Leaving;
            self.outputs.push(Output::Reconnect(why));
        }
    }

    fn lease_id(&self) -> u64 {
        match &self.lease {
            Lease::Open(lease) => lease.id,
            Lease::None | Lease::Opening { .. } => 0,
        }
    }
}
