//! Pure: no socket, no task, no clock. Everything that the client decides: what to send, what an answer means,
//! what is held, what is lost, when to try elsewhere.
//!
//! The shell hands in what happened (a caller wants something, a message came, time passed, the stream broke),
//! with the time, and takes out messages ([`Session::take_messages`]) and [`Output`]s.
//!
//! **What is known of a request** is its [`Stage`], and a broken stream never changes it: it only means that some
//! calls have to be made again. So the one place that sends after a reconnect ([`Session::go_on`]) looks at stages
//! alone: what waits is acquired again under its key (the server knows it, and its place in the queue, by that
//! key), what is given up is released or cancelled again. Unknown is not no: as long as the lease lives, the
//! question is asked again until there is an answer.
//!
//! **Keys** have to rise along the requests that are new to the server. They are given in the order in which
//! requests are made, sent in that order, and sent again in that order, so the server knows a prefix of them.
//! Only a restarted server, which has forgotten what waited and may be told by a reclaim of higher keys, needs
//! fresh keys for what waits.
//!
//! **A reclaim whose answer was lost** leaves its locks in doubt: a lock is kept if and only if acquiring it once
//! more, under its key and without waiting, is answered with the grant that it had.
//!
//! **A call that is made again may be refused for what it is** although the first one was done: the server judges by
//! the rules of the moment, before it looks at the key. So what was asked for before is then given back, not forgotten.

mod answers;
mod calls;
mod lease;
mod link;
mod reclaim;
mod refusals;
mod steps;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error::{AcquireError, ClientError, LostReason};
use super::lease_clock::LeaseClock;
use super::request::Wait;
use super::tag::Tag;
use super::txn_error::CommitError;
use crate::names::{FencingToken, RequestId};
use crate::proto::client_message::Call;
use crate::proto::{ClientMessage, KeepAliveRequest, LockMode, OnDisconnect, Reason, Snapshot, StepResponse};
use crate::time::Instant;

pub(super) use calls::Releasing;
use transactions::Txn;

/// What a session needs to know beforehand.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub ttl: Duration,
    pub on_disconnect: OnDisconnect,
    pub name: String,
    pub connect_timeout: Duration,
    /// How many endpoints there are.
    pub endpoints: usize,
}

/// What the shell has to do.
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
    /// A held request is not held any more.
    Lost {
        number: u64,
        reason: LostReason,
    },
    /// A step of a transaction is over: its begin, under the number of the transaction, or a further one.
    Stepped {
        number: u64,
        outcome: Result<StepResponse, CommitError>,
    },
    LeaseOpened,
    /// There is no lease to be had.
    LeaseRefused(Reason, String),
    /// Leave this stream, connect elsewhere.
    Reconnect(Why),
}

/// Why another stream is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// No answer for that long.
    Silent(Duration),
    Draining,
    /// The server does not take this stream for the one that our lease is attached to.
    NotAttached,
    /// The lease ended here while the server said nothing.
    Expired,
}

/// What a request got.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grant {
    pub request: RequestId,
    pub token: FencingToken,
    pub snapshot: Snapshot,
}

/// See the top of this file.
pub(super) struct Session {
    settings: Settings,
    link: Link,
    /// The datacenter that answers on this stream, as people know it; empty before it has said so.
    answers: Arc<str>,
    lease: Lease,
    /// A lease is to be opened as soon as there is a stream.
    lease_wanted: bool,
    /// By the number that the caller knows. Each belongs to a future or a guard, or to a call that is on its way,
    /// so there are no more than callers made.
    requests: BTreeMap<u64, Request>,
    /// By number, too. Each belongs to a handle or a future, or to a call that is on its way.
    txns: BTreeMap<u64, Txn>,
    /// When nobody asks any longer what became of commits whose leases are lost.
    orphans: BTreeSet<(Instant, u64)>,
    /// The highest number and key given.
    last_number: u64,
    /// When timed acquires end for want of a server. Kept only while none is there.
    overdue: BTreeSet<(Instant, u64)>,
    /// At most three messages per request, and a few about the lease.
    outgoing: VecDeque<ClientMessage>,
    /// Goes before all of them: behind them it could come too late.
    renewal: Option<ClientMessage>,
    /// When the server was seen to be there last.
    moved: Instant,
    outputs: Vec<Output>,
    /// How many streams in a row turned out to be drained.
    drained: usize,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Up,
    /// The shell was told to leave it.
    Leaving,
}

enum Lease {
    None,
    Opening { sent: Instant },
    Open(OpenLease),
}

struct OpenLease {
    id: u64,
    /// The datacenter that gave it, as people know it.
    of: Arc<str>,
    secret: Bytes,
    clock: LeaseClock,
    standing: Standing,
}

/// What the stream and the lease have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Detached,
    Attaching,
    /// That many answers to pieces of a reclaim are missing.
    Reclaiming(u64),
    /// Calls can be made.
    Good,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// The lease is being closed, until then at most.
    Closing(Instant),
    Closed(Ending),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The server has nothing of it any more.
    Confirmed,
    /// The server may keep the lease until its time is over.
    NotConfirmed,
}

#[derive(Debug)]
struct Request {
    key: u64,
    locks: Vec<LockMode>,
    label: String,
    wait: Wait,
    /// When its caller does not want to wait any longer.
    deadline: Option<Instant>,
    stage: Stage,
    /// How often it was asked for under this key.
    asked: u32,
}

/// What is known of a request. See the top of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The server does not know it.
    Queued,
    /// The server may know it, and may have granted it.
    Asked,
    Held(Held),
    /// Held, unless the server lost it at its restart.
    InDoubt(Held),
    /// Given up by its holder.
    Releasing,
    /// Given up by its waiter; held or not, nobody wants it.
    Cancelling,
    /// It was held. Kept until its guard is gone, to tell it why.
    Lost(LostReason),
}

/// What a reclaim says of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    request: RequestId,
    token: FencingToken,
}

impl Session {
    pub(super) fn new(settings: Settings) -> Session {
        Session {
            settings,
            link: Link::Down,
            answers: Arc::default(),
            lease: Lease::None,
            lease_wanted: true,
            requests: BTreeMap::new(),
            txns: BTreeMap::new(),
            orphans: BTreeSet::new(),
            last_number: 0,
            overdue: BTreeSet::new(),
            outgoing: VecDeque::new(),
            renewal: None,
            moved: Instant::ZERO,
            outputs: Vec::new(),
            drained: 0,
            life: Life::Running,
        }
    }

    /// Moves all that is to be sent, in order, to the end of `messages`. A renewal goes before them: [`Session::take_renewal`].
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

    /// The same for a call of its own, outside the stream: it shows the secret of the lease.
    pub(super) fn take_renewal_apart(&mut self) -> Option<KeepAliveRequest> {
        self.renewal.take()?;
        let Lease::Open(lease) = &self.lease else { return None };
        Some(KeepAliveRequest { lease: lease.id, secret: lease.secret.clone() })
    }

    pub(super) fn has_renewal(&self) -> bool {
        self.renewal.is_some()
    }

    /// The server was there at that time: bytes came from it, or it took what had to wait. What is unanswered only takes its time.
    pub(super) fn moved(&mut self, at: Instant) {
        self.moved = self.moved.max(at);
    }

    /// Moves all that the shell has to do, in order, to the end of `outputs`.
    pub(super) fn take_outputs(&mut self, outputs: &mut Vec<Output>) {
        outputs.append(&mut self.outputs);
    }

    pub(super) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Once nothing more will happen.
    pub(super) fn ending(&self) -> Option<Ending> {
        match self.life {
            Life::Closed(ending) => Some(ending),
            Life::Running | Life::Closing(_) => None,
        }
    }

    /// Calls go out at once.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.lease, Lease::Open(lease) if lease.standing == Standing::Good)
    }

    /// When [`Session::on_time`] has something to do.
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
        let closing = match self.life {
            Life::Closing(until) => Some(until),
            Life::Running | Life::Closed(_) => None,
        };
        [lease, caller, orphan, closing].into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Time has passed. Has to be called before anything else that depends on time is handed in.
    pub(super) fn on_time(&mut self, now: Instant) {
        match &mut self.lease {
            Lease::Open(lease) if now >= lease.clock.expires() => {
                // This process may not have run for long.
                let is_over = now >= lease.clock.ended();
                self.leave(Why::Expired);
                self.lose_lease(now, if is_over { &LostReason::LeaseEnded } else { &LostReason::Expired });
            }
            Lease::Open(lease) if lease.standing != Standing::Detached => {
                if lease.clock.renewal_due().is_some_and(|due| due <= now) {
                    self.renew(now);
                } else if lease.clock.renewal_overdue(self.moved).is_some_and(|overdue| overdue <= now) {
                    self.leave(Why::Silent(self.settings.ttl / 4));
                }
            }
            Lease::Opening { sent } if now >= self.moved.max(*sent) + self.settings.connect_timeout => {
                self.leave(Why::Silent(self.settings.connect_timeout));
            }
            _ => {}
        }
        if let Life::Closing(until) = self.life
            && now >= until
        {
            self.life = Life::Closed(Ending::NotConfirmed);
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
