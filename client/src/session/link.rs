//! Streams change; the lease and the requests under it stay.

use std::sync::Arc;

use super::transactions::{Txn, TxnStage};
use super::{Ending, Lease, Lifecycle, Link, Session, Stage, Standing, Why};
use crate::error::LostReason;
use crate::tag::Tag;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, OnDisconnect};
use geolock_api::time::Instant;

/// The revision of the API that this client implements.
const REVISION: u32 = 1;

impl Session {
    /// A stream is open. Its first messages are ready to be sent.
    pub(crate) fn connected(&mut self, now: Instant) {
        self.link = Link::Up;
        (self.answers, self.understands) = (Arc::default(), Vec::new());
        let hello = proto::Hello { revision: REVISION, client: self.settings.name.clone() };
        self.send(Tag::Hello, Call::Hello(hello));
        if let Lease::Open(lease) = &mut self.lease {
            lease.standing = Standing::Attaching;
            lease.clock.sending(now);
            let attach = proto::AttachLeaseRequest { lease: lease.id, secret: lease.secret.clone() };
            self.send(Tag::AttachLease, Call::AttachLease(attach));
        }
        for number in self.txns_that(|stage| *stage == TxnStage::Orphan) {
            self.ask_orphan(number);
        }
        self.open_if_wanted(now);
    }

    /// The stream is gone. Messages not yet sent are dropped: [`Session::resume`] makes these calls again.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.link = Link::Down;
        self.outgoing.clear();
        self.renewal = None;
        if let Lifecycle::Closing(_) = self.lifecycle {
            self.lifecycle = Lifecycle::Closed(Ending::NotConfirmed);
        }
        match &mut self.lease {
            Lease::None => {}
            Lease::Opening { .. } => {
                self.lease = Lease::None;
                self.lease_wanted = true;
            }
            Lease::Open(lease) => {
                lease.clock.unsent();
                let before = std::mem::replace(&mut lease.standing, Standing::Detached);
                if self.settings.on_disconnect == OnDisconnect::Release {
                    self.lose_lease(now, &LostReason::Disconnected);
                } else if let Standing::Reclaiming { .. } = before {
                    self.doubt_held();
                }
            }
        }
        for number in self.by_key(|stage| matches!(stage, Stage::Queued | Stage::Asked)) {
            self.watch_deadline(now, number);
        }
        for number in self.txns_that(|stage| matches!(stage, TxnStage::Queued | TxnStage::Beginning)) {
            self.watch_deadline(now, number);
        }
    }

    pub(super) fn on_attached(&mut self, now: Instant, attached: &proto::AttachLeaseResponse) {
        let Lease::Open(lease) = &mut self.lease else { return };
        if lease.standing != Standing::Attaching {
            return;
        }
        lease.clock.answered(std::time::Duration::from_millis(attached.ttl_ms));
        if attached.reclaim {
            self.reclaim();
        } else {
            self.resume(now);
        }
    }

    /// Calls can be made: repeats those that were not answered, in the order of their idempotency keys.
    pub(super) fn resume(&mut self, now: Instant) {
        if let Lease::Open(lease) = &mut self.lease {
            lease.standing = Standing::Good;
        }
        self.overdue.clear();
        let waits_for_none = |txn: &&mut Txn| txn.new.locks.is_empty();
        self.txns.values_mut().filter(waits_for_none).for_each(|txn| txn.deadline = None);
        self.resume_downgrades();
        for number in self.unanswered() {
            match self.requests.get(&number).map(|request| &request.stage) {
                Some(Stage::Queued | Stage::Asked | Stage::InDoubt(_)) => self.ask(now, number),
                Some(Stage::Releasing) => self.send_release(number),
                Some(Stage::Cancelling) => self.send_cancel(number),
                Some(Stage::Held(_) | Stage::Lost(_)) => {}
                None => match self.txns.get(&number).map(|txn| &txn.stage) {
                    Some(TxnStage::Queued | TxnStage::Beginning) => self.ask_begin(now, number),
                    Some(TxnStage::Open) => self.ask_step(number),
                    Some(TxnStage::GivenUp) => self.send_abort(number),
                    Some(TxnStage::Orphan | TxnStage::Lost(_)) | None => {}
                },
            }
        }
    }

    /// Returns the numbers of all requests and transactions that may have something to send, in the order of
    /// their keys.
    fn unanswered(&self) -> Vec<u64> {
        let requests =
            self.requests.iter().filter(|(_, it)| !matches!(it.stage, Stage::Held(_) | Stage::Lost(_)));
        let requests = requests.map(|(number, request)| (request.key, *number));
        let txns = self.txns.iter().map(|(number, txn)| (txn.key, *number));
        let mut found: Vec<(u64, u64)> = requests.chain(txns).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect()
    }

    /// Returns the numbers of the requests in some stages, in the order of their keys.
    pub(super) fn by_key(&self, of: impl Fn(&Stage) -> bool) -> Vec<u64> {
        let found = self.requests.iter().filter(|(_, request)| of(&request.stage));
        let mut found: Vec<(u64, u64)> = found.map(|(number, request)| (request.key, *number)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect()
    }

    /// The server is shutting down. Returns true if there is another endpoint to try that was not draining
    /// too; then the session leaves the stream. A lease that would end with its stream stays where it is as
    /// long as possible.
    pub(super) fn move_on(&mut self) -> bool {
        if self.link == Link::Leaving {
            return true;
        }
        if self.settings.on_disconnect == OnDisconnect::Release && self.has_something_to_lose() {
            return false;
        }
        if self.drained + 1 >= self.settings.endpoints {
            return false;
        }
        self.drained += 1;
        self.leave(Why::Draining);
        true
    }

    fn has_something_to_lose(&self) -> bool {
        let held = |stage: &Stage| matches!(stage, Stage::Held(_) | Stage::InDoubt(_) | Stage::Releasing);
        self.requests.values().any(|request| held(&request.stage))
            || self.txns.values().any(|txn| txn.stage == TxnStage::Open)
    }
}
