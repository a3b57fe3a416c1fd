//! Refusals of the server.

use super::transactions::TxnStage;
use super::{Ending, Lease, Lifecycle, Output, Request, Session, Stage, Standing, Why};
use crate::error::{AcquireError, ClientError, LostReason, of_refusal};
use crate::request::Wait;
use crate::tag::Tag;
use geolock_api::proto::{self, Reason};
use geolock_api::time::Instant;

impl Session {
    pub(super) fn on_refused(&mut self, now: Instant, tag: Tag, error: proto::Error) {
        match tag {
            Tag::OpenLease => self.on_lease_refused(error),
            Tag::CloseLease => self.lifecycle = Lifecycle::Closed(Ending::Confirmed),
            // The stream ends with it.
            Tag::Hello => {}
            Tag::AttachLease => self.on_attach_refused(now, &error),
            Tag::KeepAlive | Tag::Reclaim(_) if ends_lease(error.reason()) => self.on_no_lease(now),
            Tag::KeepAlive => self.leave(Why::NotAttached),
            // The server did not examine the reclaim, and still expects it: sent once more, after a pause.
            Tag::Reclaim(_)
                if matches!(error.reason(), Reason::Unavailable | Reason::ResourceExhausted)
                    && error.retry_after_ms > 0 =>
            {
                self.leave(Why::NotAttached);
            }
            Tag::Reclaim(piece) => self.on_reclaim_refused(now, piece),
            // A call under a lease that is lost, and is known to be.
            Tag::Outcome(_) => self.on_txn_refused(now, tag, error),
            Tag::Begin(number) | Tag::Step(number) | Tag::Abort(number) => {
                match (error.reason(), self.txns.get(&number).map(|txn| &txn.stage)) {
                    (_, None | Some(TxnStage::Queued | TxnStage::Orphan | TxnStage::Lost(_))) => {}
                    (reason, _) if ends_lease(reason) => self.on_no_lease(now),
                    (Reason::NotAttached, _) => self.leave(Why::NotAttached),
                    _ => self.on_txn_refused(now, tag, error),
                }
            }
            Tag::Amend(number) => match error.reason() {
                reason if ends_lease(reason) => self.on_no_lease(now),
                Reason::NotAttached => self.leave(Why::NotAttached),
                _ => self.on_amend_refused(number, error),
            },
            Tag::Downgrade(number) => match error.reason() {
                _ if !self.downgrades.contains_key(&number) => {}
                reason if ends_lease(reason) => self.on_no_lease(now),
                Reason::NotAttached => self.leave(Why::NotAttached),
                _ => self.on_downgrade_refused(number, error),
            },
            Tag::Acquire(number) | Tag::Release(number) | Tag::Cancel(number) => {
                // A call under a lease that was given up before needs no further action.
                let Some(request) = self.requests.get(&number) else { return };
                match (error.reason(), &request.stage) {
                    (_, Stage::Lost(_)) => {}
                    (reason, _) if ends_lease(reason) => self.on_no_lease(now),
                    (Reason::NotAttached, _) => self.leave(Why::NotAttached),
                    _ if matches!(tag, Tag::Acquire(_)) => self.on_acquire_refused(now, number, error),
                    _ => self.on_giving_back_refused(number, error),
                }
            }
        }
    }

    fn on_attach_refused(&mut self, now: Instant, error: &proto::Error) {
        let attaching = matches!(&self.lease, Lease::Open(lease) if lease.standing == Standing::Attaching);
        match error.reason() {
            _ if !attaching => {}
            // The server did not examine the lease.
            Reason::Unavailable | Reason::ResourceExhausted => self.leave(Why::NotAttached),
            _ => self.on_no_lease(now),
        }
    }

    /// The server does not have the lease. Calls under an earlier lease are refused in the same way, but
    /// these refusals come before the answer to the opening of the next lease.
    fn on_no_lease(&mut self, now: Instant) {
        if let Lease::Open(lease) = &self.lease
            && lease.standing != Standing::Detached
        {
            let reason = match (&lease.of, &self.answers) {
                (lease, answers) if !lease.is_empty() && !answers.is_empty() && lease != answers => {
                    LostReason::OtherDatacenter { lease: lease.clone(), answers: answers.clone() }
                }
                _ => LostReason::LeaseEnded,
            };
            self.lose_lease(now, &reason);
        }
    }

    fn on_acquire_refused(&mut self, now: Instant, number: u64, error: proto::Error) {
        let Some(stage) = self.requests.get(&number).map(|request| request.stage.clone()) else { return };
        match (stage, error.reason()) {
            (Stage::InDoubt(_), reason) if is_judged_first(reason) => self.lose_and_cancel(number),
            (Stage::InDoubt(_), _) => self.lose(number, LostReason::NotReclaimed),
            (Stage::Asked, reason) if is_judged_first(reason) => self.turn_down(number, error),
            (Stage::Asked, Reason::IdempotencyKeyFinished) => self.on_key_finished(now, number),
            // The request is sent again to the next endpoint.
            (Stage::Asked, Reason::Draining) if self.move_on() => {}
            (Stage::Asked, _) => self.refuse(number, of_refusal(error)),
            // A release or a cancellation is in flight and will be answered too.
            (Stage::Queued | Stage::Held(_) | Stage::Releasing | Stage::Cancelling | Stage::Lost(_), _) => {}
        }
    }

    /// The server refused without looking up the request: it may have granted it when it was sent first.
    fn turn_down(&mut self, number: u64, error: proto::Error) {
        match self.requests.get_mut(&number) {
            Some(request) if request.asked > 1 => request.stage = Stage::Cancelling,
            _ => return self.refuse(number, of_refusal(error)),
        }
        self.send_cancel(number);
        self.outputs.push(Output::Acquired { number, outcome: Err(of_refusal(error)) });
    }

    /// Reports a held request as lost, and cancels its key, since no caller wants anything that the server
    /// may still hold under it.
    pub(super) fn lose_and_cancel(&mut self, number: u64) {
        let Some(Request { key, .. }) = self.requests.get(&number) else { return };
        let unwanted = Request {
            key: *key,
            locks: Vec::new(),
            enough: None,
            amendment: None,
            label: String::new(),
            wait: Wait::Try,
            deadline: None,
            stage: Stage::Cancelling,
            asked: 0,
        };
        self.lose(number, LostReason::NotReclaimed);
        let number = self.number();
        self.requests.insert(number, unwanted);
        self.send_cancel(number);
    }

    /// The request is over, and its answer was lost with a stream. The client neither released nor cancelled
    /// it, so it was not granted: it was refused or timed out.
    fn on_key_finished(&mut self, now: Instant, number: u64) {
        let key = self.number();
        let Some(request) = self.requests.get_mut(&number) else { return };
        match (request.wait, request.deadline) {
            (Wait::Try, _) => self.refuse(number, AcquireError::NotFree),
            (_, Some(deadline)) if deadline <= now => {
                self.refuse(number, AcquireError::TimedOut { locks: Vec::new(), free: None });
            }
            // There is time left, so the reason of the refusal was temporary.
            _ => {
                (request.key, request.asked) = (key, 0);
                self.ask(now, number);
            }
        }
    }

    fn on_giving_back_refused(&mut self, number: u64, error: proto::Error) {
        match (self.requests.get(&number).map(|request| &request.stage), error.reason()) {
            // The server did not look it up: the call is repeated on the next stream, if the lease lives for
            // so long.
            (Some(Stage::Releasing | Stage::Cancelling), Reason::Unauthenticated) => {
                self.leave(Why::NotAttached);
            }
            // A restarted server no longer knows it, so the locks are free.
            (Some(Stage::Releasing), Reason::NotHeld | Reason::IdempotencyKeyFinished) => {
                self.finish(number, Ok(()))
            }
            (Some(Stage::Releasing), reason) => {
                self.finish(number, Err(ClientError::Refused(reason, error.message)));
            }
            (Some(Stage::Cancelling), _) => self.forget(number),
            _ => {}
        }
    }
}

/// Returns true for refusals that the server gives before it looks up the call. Such a refusal of a repeated
/// call does not show the outcome of the first one.
pub(super) fn is_judged_first(reason: Reason) -> bool {
    matches!(reason, Reason::PermissionDenied | Reason::Unauthenticated | Reason::NotYet)
}

fn ends_lease(reason: Reason) -> bool {
    use Reason::{ForeignLease, LeaseEnded, UnknownLease, WrongSecret};
    matches!(reason, UnknownLease | ForeignLease | LeaseEnded | WrongSecret)
}
