//! The lease: opening, renewal, loss.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::transactions::TxnStage;
use super::{Lease, Link, OpenLease, Output, Session, Stage, Standing};
use crate::error::{AcquireError, ClientError, LostReason, of_refusal};
use crate::lease_clock::LeaseClock;
use crate::request::millis;
use crate::tag::Tag;
use crate::txn_error::TxnError;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, ClientMessage, Reason};
use geolock_api::time::Instant;

impl Session {
    pub(super) fn open_if_wanted(&mut self, now: Instant) {
        if self.lease_wanted && self.link == Link::Up && matches!(self.lease, Lease::None) {
            let open = proto::OpenLeaseRequest {
                ttl_ms: self.settings.ttl.map_or(0, millis),
                on_disconnect: self.settings.on_disconnect.into(),
            };
            self.send(Tag::OpenLease, Call::OpenLease(open));
            self.lease = Lease::Opening { sent: now };
            self.lease_wanted = false;
        }
    }

    pub(super) fn on_lease_opened(&mut self, now: Instant, opened: proto::OpenLeaseResponse) {
        let Lease::Opening { sent } = self.lease else { return };
        let ttl = Duration::from_millis(opened.ttl_ms);
        self.last_ttl = ttl;
        self.lease = Lease::Open(OpenLease {
            id: opened.lease,
            of: Arc::clone(&self.answers),
            secret: opened.secret,
            clock: LeaseClock::opened(ttl, sent),
            standing: Standing::Good,
        });
        self.outputs.push(Output::LeaseOpened);
        self.resume(now);
    }

    pub(super) fn on_lease_refused(&mut self, error: proto::Error) {
        if !matches!(self.lease, Lease::Opening { .. }) {
            return;
        }
        self.lease = Lease::None;
        if error.reason() == Reason::Draining && self.move_on() {
            self.lease_wanted = true;
            return;
        }
        for number in self.by_key(|stage| *stage == Stage::Queued) {
            self.refuse(number, of_refusal(error.clone()));
        }
        for number in self.txns_that(|stage| *stage == TxnStage::Queued) {
            self.end_txn(number, || TxnError::NotBegun(of_refusal(error.clone())).into());
        }
        self.outputs.push(Output::LeaseRefused(error.reason(), error.message));
    }

    pub(super) fn renew(&mut self, now: Instant) {
        if let Lease::Open(lease) = &mut self.lease {
            lease.clock.sending(now);
            let keep_alive = proto::KeepAliveRequest { lease: lease.id, secret: Bytes::new() };
            if self.link == Link::Up {
                let call = Some(Call::KeepAlive(keep_alive));
                self.renewal = Some(ClientMessage { tag: Tag::KeepAlive.to_wire(), call });
            }
        }
    }

    /// Everything that was held or requested under the lease is gone. Requests that the server has never
    /// received move to the next lease.
    pub(super) fn lose_lease(&mut self, now: Instant, reason: &LostReason) {
        self.lease = Lease::None;
        self.end_all(reason);
        self.end_transactions(now, reason);
        self.lease_wanted |= self.requests.values().any(|request| request.stage == Stage::Queued)
            || self.txns.values().any(|txn| txn.stage == TxnStage::Queued);
        self.open_if_wanted(now);
    }

    /// Ends every request that the server may know.
    pub(super) fn end_all(&mut self, reason: &LostReason) {
        let numbers: Vec<u64> = self.requests.keys().copied().collect();
        for number in numbers {
            let Some(request) = self.requests.get_mut(&number) else { continue };
            match request.stage {
                Stage::Queued | Stage::Lost(_) => {}
                Stage::Asked => {
                    let error = match reason {
                        LostReason::Closed => AcquireError::Closed,
                        reason => AcquireError::LeaseLost(reason.clone()),
                    };
                    self.refuse(number, error);
                }
                Stage::Held(_) | Stage::InDoubt(_) => {
                    request.stage = Stage::Lost(reason.clone());
                    self.end_downgrades_of(number, reason);
                    self.outputs.push(Output::Lost { number, reason: reason.clone() });
                }
                // The release was wanted, and the end of the lease released the locks.
                Stage::Releasing => self.finish(number, Ok(())),
                Stage::Cancelling => self.forget(number),
            }
        }
    }

    /// Ends a release or a cancellation.
    pub(super) fn finish(&mut self, number: u64, outcome: Result<(), ClientError>) {
        self.forget(number);
        self.outputs.push(Output::Released { number, outcome });
    }
}
