//! A client's requests for enough of many locks, and their amendments. The client sends the next amendment
//! only when the one before is answered, and sends an unanswered one again on each new session.

use std::sync::Arc;

use crate::causal_log::Wants;
use crate::replica::call::{Amend, AnyOf, Call, IdempotencyKey, Proof, Refusal, SessionId};
use crate::sim::client::{Client, Out, Pending, State};
use crate::sim::failure::FailureKind;
use geolock_api::names::{LockName, Mode};

/// The lists of candidates of a request, as the server may know them.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Lists {
    /// The list that the server has acknowledged, with the number of its last amendment.
    of: Arc<AnyOf>,
    revision: u64,
    /// The amendment that was not answered yet.
    next: Option<Amended>,
    /// The session on which it was sent, once.
    sent_on: Option<SessionId>,
}

#[derive(Clone, Debug)]
pub(in crate::sim) struct Amended {
    pub add: Vec<(LockName, u64)>,
    pub drop: Vec<LockName>,
    /// The list with it; `None`: the server must refuse it.
    pub of: Option<Arc<AnyOf>>,
}

impl Lists {
    pub fn new(of: Arc<AnyOf>) -> Lists {
        Lists { of, revision: 0, next: None, sent_on: None }
    }

    /// Returns the list that the server has acknowledged, and its number.
    pub fn known(&self) -> (&Arc<AnyOf>, u64) {
        (&self.of, self.revision)
    }

    /// Returns the list with that number, if the server may know it.
    pub fn of(&self, revision: u64) -> Option<&Arc<AnyOf>> {
        let next = self.next.as_ref().and_then(|next| next.of.as_ref());
        match revision.checked_sub(self.revision)? {
            0 => Some(&self.of),
            1 => next,
            _ => None,
        }
    }
}

impl Client {
    /// Amends a request that waits for enough locks, unless another amendment of it is under way.
    pub fn amend(&mut self, key: IdempotencyKey, amended: Amended, out: &mut Vec<Out>) {
        let Some(request) = self.requests.get_mut(&key).filter(|request| request.state == State::Waiting)
        else {
            return;
        };
        let Some(lists) = request.lists.as_mut().filter(|lists| lists.next.is_none()) else { return };
        let added = amended.add.iter().map(|(name, _)| (name.clone(), Mode::Exclusive));
        let all = request.order.wants.locks().iter().cloned().chain(added).collect();
        request.order.wants = Wants::all(all).expect("some short names");
        (lists.next, lists.sent_on) = (Some(amended), None);
        self.send_amendment(key, out);
    }

    pub(super) fn send_amendment(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let session = self.session();
        let (Some(lease), Some(request)) = (&self.lease, self.requests.get_mut(&key)) else { return };
        let (true, State::Waiting, Some(lists)) = (lease.attached, request.state, &mut request.lists) else {
            return;
        };
        let Some(Amended { add, drop, .. }) = lists.next.clone() else { return };
        // Of two copies the second answer would count for the next amendment.
        if session.is_none() || std::mem::replace(&mut lists.sent_on, session) == session {
            return;
        }
        let (lease, proof, revision) = (lease.id, Proof::Attached, lists.revision + 1);
        let amend = Amend { lease, proof, key, revision, add, drop };
        self.call(Pending::Amend(key), Call::Amend(Box::new(amend)), out);
    }

    pub(super) fn on_amended(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let Some(lists) = self.requests.get_mut(&key).and_then(|request| request.lists.as_mut()) else {
            return;
        };
        match lists.next.take().map(|amended| amended.of) {
            Some(Some(of)) => (lists.of, lists.revision) = (of, lists.revision + 1),
            Some(None) => {
                let what = format!("client {} amended request {key} in vain", self.number);
                out.push(Out::Fails { kind: FailureKind::Contract, what });
            }
            None => {}
        }
    }

    /// Handles a refusal: the server waits for the list of before, or for none. Returns false if it must not
    /// refuse so.
    pub(super) fn on_amendment_refused(&mut self, key: IdempotencyKey, refusal: &Refusal) -> bool {
        let is_early = self.requests.get(&key).is_some_and(|request| self.may_be_too_early(request));
        let Some(request) = self.requests.get_mut(&key).filter(|request| request.state == State::Waiting)
        else {
            return true;
        };
        let Some(lists) = &mut request.lists else { return false };
        let is_in_vain = lists.next.as_ref().is_some_and(|amended| amended.of.is_none());
        match refusal {
            // The grant is on its way, and may be one of the amended list.
            Refusal::NotWaiting(_) => return true,
            Refusal::Candidates(_) if is_in_vain => {}
            Refusal::NotYet { .. } if is_early => {}
            Refusal::UnknownHome { .. } if self.homes_may_end => {}
            Refusal::ResourceExhausted { .. } if self.may_be_refused => {}
            _ => return false,
        }
        lists.next = None;
        true
    }
}
