//! Messages of the server.

use super::{Ending, Grant, Held, Lease, Lifecycle, Output, Session, Stage};
use crate::error::{AcquireError, LostReason};
use crate::tag::Tag;
use geolock_api::names::{DcId, FencingToken, LockName, RequestId};
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason, ServerMessage};
use geolock_api::time::Instant;

impl Session {
    /// Processes a message. One that does not fit its call is ignored: the server may be newer, or the call
    /// cancelled.
    pub(crate) fn on_message(&mut self, now: Instant, message: ServerMessage) {
        let ServerMessage { tag, answer: Some(answer) } = message else { return };
        match (Tag::from_wire(tag), answer) {
            (Some(Tag::Hello), Answer::Welcome(welcome)) => {
                (self.answers, self.understands) = (shown(&welcome), welcome.understands);
            }
            (None, notice) if tag == 0 => self.on_notice(now, notice),
            (Some(Tag::Acquire(number)), Answer::Acquired(granted)) => self.on_granted(number, granted),
            (
                Some(Tag::Release(number) | Tag::Cancel(number)),
                Answer::Released(_) | Answer::Cancelled(_),
            ) => {
                self.on_given_back(number);
            }
            (Some(Tag::Amend(number)), Answer::Amended(_)) => self.on_amended(number),
            (Some(Tag::Downgrade(number)), Answer::Downgraded(_)) => self.on_downgraded(number),
            (Some(Tag::Begin(number)), Answer::Stepped(answer)) => self.on_begun(number, answer),
            (Some(Tag::Step(number)), Answer::Stepped(answer)) => self.on_stepped(number, answer),
            (Some(Tag::Abort(number)), Answer::Stepped(_)) => drop(self.forget_txn(number)),
            (Some(Tag::Outcome(number)), Answer::Stepped(answer)) => self.on_outcome(number, answer),
            (Some(Tag::KeepAlive), Answer::KeptAlive(kept)) => self.on_kept_alive(&kept),
            (Some(Tag::OpenLease), Answer::LeaseOpened(opened)) => self.on_lease_opened(now, opened),
            (Some(Tag::AttachLease), Answer::LeaseAttached(attached)) => self.on_attached(now, &attached),
            (Some(Tag::Reclaim(piece)), Answer::Reclaimed(answer)) => self.on_reclaimed(now, piece, &answer),
            (Some(Tag::CloseLease), Answer::LeaseClosed(_)) => {
                self.lifecycle = Lifecycle::Closed(Ending::Confirmed)
            }
            (Some(tag), Answer::Error(error)) => self.on_refused(now, tag, error),
            _ => {}
        }
    }

    fn on_notice(&mut self, now: Instant, notice: Answer) {
        match notice {
            Answer::LeaseEnded(ended) if ended.lease == self.lease_id() => {
                self.lose_lease(now, &LostReason::LeaseEnded);
            }
            Answer::LockLost(lost) if lost.lease == self.lease_id() => {
                let reason = lost.force_released.map_or(LostReason::NotReclaimed, |forced| {
                    LostReason::ForceReleased {
                        operator: forced.operator.into(),
                        reason: forced.reason.into(),
                    }
                });
                let lost = lost.request.and_then(request_id);
                let is_it = |stage: &Stage| match stage {
                    Stage::Held(held) | Stage::InDoubt(held) => Some(held.request) == lost,
                    _ => false,
                };
                for number in self.by_key(is_it) {
                    self.lose(number, reason.clone());
                }
            }
            Answer::Draining(_) => {
                self.move_on();
            }
            _ => {}
        }
    }

    fn on_kept_alive(&mut self, kept: &proto::KeepAliveResponse) {
        if let Lease::Open(lease) = &mut self.lease {
            lease.clock.answered(std::time::Duration::from_millis(kept.ttl_ms));
        }
    }

    fn on_granted(&mut self, number: u64, granted: proto::AcquireResponse) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let chosen = match &request.enough {
            Some(_) => request
                .list(granted.revision)
                .and_then(|enough| chosen_locks(enough, &granted.chosen))
                .filter(|chosen| !chosen.is_empty()),
            None => Some(Vec::new()),
        };
        let id = granted.request.and_then(request_id).filter(|_| chosen.is_some());
        let token = FencingToken(granted.token);
        match (&request.stage, id) {
            (Stage::Asked, Some(id)) => {
                self.drained = 0;
                request.stage = Stage::Held(Held { request: id, token });
                request.amendment = None;
                let mut chosen_locks = Vec::new();
                if request.enough.take().is_some() {
                    request.locks = chosen.unwrap_or_default();
                    // Each was made from a name.
                    let names = request.locks.iter().map(|lock| LockName::from_fields(&lock.name, lock.home));
                    chosen_locks = names.filter_map(Result::ok).collect();
                }
                let snapshot = granted.snapshot.unwrap_or_default();
                let grant = Grant { request: id, token, snapshot, chosen: granted.chosen, chosen_locks };
                self.outputs.push(Output::Acquired { number, outcome: Ok(grant) });
            }
            (Stage::Asked, None) => {
                self.abandon(number);
                let message =
                    "the server's grant names no datacenter, or no candidates, that can exist".to_owned();
                let outcome = Err(AcquireError::Refused(Reason::Malformed, message));
                self.outputs.push(Output::Acquired { number, outcome });
            }
            (Stage::InDoubt(held), id) if id == Some(held.request) => request.stage = Stage::Held(*held),
            // The locks were lost and had become free, so this is a new grant that no caller knows of or
            // wants.
            (Stage::InDoubt(_), _) => self.lose_and_cancel(number),
            // A release or a cancellation was sent after it, or the request is held and was sent twice.
            (Stage::Queued | Stage::Held(_) | Stage::Releasing | Stage::Cancelling | Stage::Lost(_), _) => {}
        }
    }

    fn on_given_back(&mut self, number: u64) {
        match self.requests.get(&number).map(|request| &request.stage) {
            Some(Stage::Releasing) => self.finish(number, Ok(())),
            Some(Stage::Cancelling) => self.forget(number),
            _ => {}
        }
    }
}

/// Returns the name of a datacenter for people: `dc1 (virginia)`, or `dc1` without a name.
fn shown(welcome: &proto::Welcome) -> std::sync::Arc<str> {
    let id = format!("dc{}", welcome.dc);
    match welcome.dc_name.as_str() {
        "" => id.into(),
        name if name == id => id.into(),
        name => format!("{id} ({name})").into(),
    }
}

/// Returns `None` if no datacenter can have that number.
fn request_id(id: proto::RequestId) -> Option<RequestId> {
    let dc = u8::try_from(id.dc).ok().and_then(DcId::new)?;
    Some(RequestId { dc, n: id.n })
}

/// Returns the locks that a request for enough locks got; `None` if there are no such candidates.
fn chosen_locks(enough: &proto::Enough, chosen: &[u32]) -> Option<Vec<proto::LockMode>> {
    let lock = |place: &u32| {
        let proto::Candidate { name, home, .. } = enough.candidates.get(*place as usize)?;
        Some(proto::LockMode { name: name.clone(), mode: proto::Mode::Exclusive.into(), home: *home })
    };
    chosen.iter().map(lock).collect()
}
