//! Amendments of requests that wait for enough of many locks.
//!
//! The server numbers the lists of a request, and a grant names the list whose candidates it has chosen. One
//! amendment is under way at a time, and one that was not answered is sent again on the next stream, so the
//! server knows the list before it or the list with it: both are kept.

use bytes::Bytes;

use super::refusals::is_judged_first;
use super::{Output, Session, Stage, Why};
use crate::error::AmendError;
use crate::tag::Tag;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, Candidate, Enough, Reason};

/// An amendment that the server may know.
#[derive(Debug)]
pub(super) struct Amendment {
    add: Vec<Candidate>,
    drop: Vec<Candidate>,
    /// The list with it.
    enough: Enough,
    /// How many times it was sent.
    sent: u32,
}

impl Session {
    /// Changes the candidates of a waiting request. `Ok`: an [`Output::Amended`] will report the outcome, or
    /// the request ends before.
    pub(crate) fn amend(
        &mut self,
        number: u64,
        add: Vec<Candidate>,
        drop: Vec<Candidate>,
    ) -> Result<(), AmendError> {
        let request = self.requests.get_mut(&number).ok_or(AmendError::NotWaiting)?;
        let waits = matches!(request.stage, Stage::Queued | Stage::Asked);
        let Some(enough) = request.enough.as_ref().filter(|_| waits && request.amendment.is_none()) else {
            return Err(AmendError::NotWaiting);
        };
        let enough = amended(enough, &add, &drop);
        request.amendment = Some(Amendment { add, drop, enough, sent: 0 });
        if request.stage == Stage::Asked && self.is_ready() {
            self.send_amendment(number);
        }
        Ok(())
    }

    pub(super) fn send_amendment(&mut self, number: u64) {
        let lease = self.lease_id();
        let Some(request) = self.requests.get_mut(&number) else { return };
        let Some(amendment) = &mut request.amendment else { return };
        amendment.sent = amendment.sent.saturating_add(1);
        let amend = proto::AmendRequest {
            lease,
            secret: Bytes::new(),
            idempotency_key: request.key,
            revision: amendment.enough.revision,
            add: amendment.add.clone(),
            drop: amendment.drop.clone(),
        };
        let call = Call::Amend(amend);
        match self.not_understood(&call) {
            Some(refusal) => self.on_amend_refused(number, refusal),
            None => self.send(Tag::Amend(number), call),
        }
    }

    pub(super) fn on_amended(&mut self, number: u64) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        if let Some(amendment) = request.amendment.take() {
            request.enough = Some(amendment.enough);
            self.outputs.push(Output::Amended { number, outcome: Ok(()) });
        }
    }

    pub(super) fn on_amend_refused(&mut self, number: u64, error: proto::Error) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let Some(amendment) = &request.amendment else { return };
        let outcome = match error.reason() {
            // The server did not look it up: it is sent again on the next stream.
            Reason::Unauthenticated | Reason::Unavailable => return self.leave(Why::NotAttached),
            // An earlier copy may have been taken, so the grant may be one of the amended list.
            Reason::NotWaiting => Err(AmendError::NotWaiting),
            reason => {
                let may_be_taken = is_judged_first(reason) || reason == Reason::ResourceExhausted;
                if amendment.sent <= 1 || !may_be_taken {
                    request.amendment = None;
                }
                Err(AmendError::Refused(reason, error.message))
            }
        };
        self.outputs.push(Output::Amended { number, outcome });
    }
}

impl super::Request {
    /// Returns the list with that number; `None` if the server cannot know it.
    pub(super) fn list(&self, revision: u64) -> Option<&Enough> {
        let amended = self.amendment.as_ref().map(|amendment| &amendment.enough);
        self.enough.iter().chain(amended).find(|enough| enough.revision == revision)
    }
}

/// Returns the list as the server makes it: without `drop`, and with `add` at its end.
fn amended(enough: &Enough, add: &[Candidate], drop: &[Candidate]) -> Enough {
    let id = |candidate: &Candidate| (candidate.name.clone(), candidate.home);
    let drop: std::collections::BTreeSet<_> = drop.iter().map(id).collect();
    let kept = enough.candidates.iter().filter(|candidate| !drop.contains(&id(candidate)));
    Enough {
        amount: enough.amount,
        most: enough.most,
        candidates: kept.chain(add).cloned().collect(),
        revision: enough.revision + 1,
    }
}
