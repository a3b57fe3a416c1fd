//! Calls of the callers.

use std::time::Duration;

use bytes::Bytes;

use super::transactions::TxnStage;
use super::{Ending, Lease, Lifecycle, Link, Output, Request, Session, Stage, Standing};
use crate::error::{AcquireError, ClientError, LostReason};
use crate::request::{AcquireRequest, Wait};
use crate::tag::Tag;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, Reason, cancel_request, release_request};
use geolock_api::time::Instant;

/// The result of a call to release.
#[derive(Debug)]
pub(crate) enum Releasing {
    /// An [`Output::Released`] will report the outcome.
    OnItsWay,
    Over(Result<(), ClientError>),
}

impl Session {
    /// Requests locks. The returned number identifies the request; an [`Output::Acquired`] will report the
    /// outcome.
    pub(crate) fn acquire(&mut self, now: Instant, request: AcquireRequest) -> Result<u64, AcquireError> {
        if self.lifecycle != Lifecycle::Running {
            return Err(AcquireError::Closed);
        }
        let number = self.number();
        let AcquireRequest { locks, enough, wait, mut label } = request;
        if label.is_empty() {
            label.clone_from(&self.settings.name);
        }
        let deadline = match wait {
            Wait::Try => Some(now),
            Wait::AtMost(wait) => Some(now + wait),
            Wait::Forever => None,
        };
        let request = Request {
            key: number,
            locks,
            enough,
            amendment: None,
            label,
            wait,
            deadline,
            stage: Stage::Queued,
            asked: 0,
        };
        self.requests.insert(number, request);
        if self.is_ready() {
            self.ask(now, number);
        } else {
            self.watch_deadline(now, number);
            self.lease_wanted = true;
            self.open_if_wanted(now);
        }
        Ok(number)
    }

    /// Releases the locks of a request.
    pub(crate) fn release(&mut self, number: u64) -> Releasing {
        let Some(request) = self.requests.get_mut(&number) else { return Releasing::Over(Ok(())) };
        match &request.stage {
            Stage::Held(_) | Stage::InDoubt(_) => {
                request.stage = Stage::Releasing;
                self.end_downgrades_of(number, &LostReason::Released);
                if self.is_ready() {
                    self.send_release(number);
                }
                Releasing::OnItsWay
            }
            Stage::Lost(reason) => {
                let reason = reason.clone();
                self.requests.remove(&number);
                Releasing::Over(Err(ClientError::LeaseLost(reason)))
            }
            Stage::Queued | Stage::Asked | Stage::Releasing | Stage::Cancelling => Releasing::Over(Ok(())),
        }
    }

    /// Cancels or releases a request that has no caller any more, whatever its state.
    pub(crate) fn abandon(&mut self, number: u64) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        match request.stage {
            Stage::Queued => self.forget(number),
            Stage::Asked => {
                request.stage = Stage::Cancelling;
                if self.is_ready() {
                    self.send_cancel(number);
                }
            }
            Stage::Held(_) | Stage::InDoubt(_) | Stage::Lost(_) => {
                // No caller needs the outcome.
                let _ = self.release(number);
            }
            Stage::Releasing | Stage::Cancelling => {}
        }
    }

    /// Returns why a request is not held, if it is not.
    pub(crate) fn lost(&self, now: Instant, number: u64) -> Option<LostReason> {
        match self.requests.get(&number).map(|request| &request.stage) {
            Some(Stage::Held(_) | Stage::InDoubt(_)) => match &self.lease {
                Lease::Open(lease) if now < lease.clock.expires() => None,
                _ => Some(LostReason::Expired),
            },
            Some(Stage::Lost(reason)) => Some(reason.clone()),
            _ => Some(LostReason::Released),
        }
    }

    /// Releases everything, closes the lease, and ends once the server has confirmed that.
    pub(crate) fn close(&mut self, now: Instant) {
        if self.lifecycle != Lifecycle::Running {
            return;
        }
        self.lifecycle = match &self.lease {
            Lease::None => Lifecycle::Closed(Ending::Confirmed),
            Lease::Open(lease) if lease.standing != Standing::Detached && self.link == Link::Up => {
                let close = proto::CloseLeaseRequest { lease: lease.id, secret: lease.secret.clone() };
                self.send(Tag::CloseLease, Call::CloseLease(close));
                Lifecycle::Closing(now + self.settings.connect_timeout)
            }
            Lease::Opening { .. } | Lease::Open(_) => Lifecycle::Closed(Ending::NotConfirmed),
        };
        self.end_all(&LostReason::Closed);
        self.end_transactions(now, &LostReason::Closed);
        for number in self.by_key(|stage| *stage == Stage::Queued) {
            self.refuse(number, AcquireError::Closed);
        }
        self.lease_wanted = false;
        self.lease = Lease::None;
    }

    /// Sends the acquire of a request, or repeats it.
    pub(super) fn ask(&mut self, now: Instant, number: u64) {
        let lease = self.lease_id();
        let Some(request) = self.requests.get_mut(&number) else { return };
        let wait = match request.stage {
            Stage::InDoubt(_) => Wait::Try,
            _ => {
                request.stage = Stage::Asked;
                request.asked = request.asked.saturating_add(1);
                request.wait
            }
        };
        let left = request.deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_since(now));
        let acquire = proto::AcquireRequest {
            lease,
            secret: Bytes::new(),
            locks: request.locks.clone(),
            wait: Some(wait.to_proto(left)),
            idempotency_key: request.key,
            label: request.label.clone(),
            enough: request.enough.clone(),
        };
        let (tag, call) = (Tag::Acquire(number), Call::Acquire(acquire));
        if let Some(refusal) = self.not_understood(&call) {
            return self.on_refused(now, tag, refusal);
        }
        self.send(tag, call);
        self.send_amendment(number);
    }

    pub(super) fn send_release(&mut self, number: u64) {
        let Some(request) = self.requests.get(&number) else { return };
        let release = proto::ReleaseRequest {
            lease: self.lease_id(),
            secret: Bytes::new(),
            target: Some(release_request::Target::IdempotencyKey(request.key)),
        };
        self.send(Tag::Release(number), Call::Release(release));
    }

    pub(super) fn send_cancel(&mut self, number: u64) {
        let Some(request) = self.requests.get(&number) else { return };
        let cancel = proto::CancelRequest {
            lease: self.lease_id(),
            secret: Bytes::new(),
            target: Some(cancel_request::Target::IdempotencyKey(request.key)),
        };
        self.send(Tag::Cancel(number), Call::Cancel(cancel));
    }

    /// From now on a timed acquire ends some time after its deadline if no server answers, and a begin
    /// without locks that no server knows as soon as a commit without an answer would.
    pub(super) fn watch_deadline(&mut self, now: Instant, number: u64) {
        let request = self.requests.get(&number).and_then(|request| request.deadline);
        let last = now + self.last_ttl;
        let txn = self.txns.get_mut(&number).and_then(|txn| match txn.new.locks.is_empty() {
            true if txn.stage != TxnStage::Queued => None,
            true => Some(*txn.deadline.get_or_insert(last)),
            false => txn.deadline,
        });
        if let Some(deadline) = request.or(txn) {
            self.overdue.insert((deadline + self.settings.connect_timeout, number));
        }
    }

    pub(super) fn give_up_overdue(&mut self, now: Instant) {
        while let Some((instant, number)) = self.overdue.first().copied()
            && instant <= now
        {
            self.overdue.remove(&(instant, number));
            self.end_wait(number, &|| AcquireError::Unreachable);
        }
    }

    /// No server accepts this client any more: callers that wait for a server get an error. Held locks are
    /// lost when the lease expires.
    pub(crate) fn turned_away(&mut self, reason: Reason, message: &str) {
        let acquires =
            self.requests.iter().filter(|(_, it)| matches!(it.stage, Stage::Queued | Stage::Asked));
        let mut waiting: Vec<u64> = acquires.map(|(number, _)| *number).collect();
        waiting.extend(self.txns_that(|stage| matches!(stage, TxnStage::Queued | TxnStage::Beginning)));
        for number in waiting {
            self.end_wait(number, &|| AcquireError::Refused(reason, message.to_owned()));
        }
    }

    /// Ends an acquire, or a begin, because no server answers.
    fn end_wait(&mut self, number: u64, error: &dyn Fn() -> AcquireError) {
        match self.requests.get_mut(&number) {
            Some(request) if request.stage == Stage::Queued => self.refuse(number, error()),
            Some(request) if request.stage == Stage::Asked => {
                request.stage = Stage::Cancelling;
                self.outputs.push(Output::Acquired { number, outcome: Err(error()) });
            }
            Some(_) => {}
            None => self.end_wait_of_begin(number, error),
        }
    }

    /// Ends an acquire without a grant.
    pub(super) fn refuse(&mut self, number: u64, error: AcquireError) {
        self.forget(number);
        self.outputs.push(Output::Acquired { number, outcome: Err(error) });
    }

    pub(super) fn forget(&mut self, number: u64) {
        let request = self.requests.remove(&number);
        if let Some(deadline) = request.and_then(|request| request.deadline)
            && !self.overdue.is_empty()
        {
            self.overdue.remove(&(deadline + self.settings.connect_timeout, number));
        }
    }
}
