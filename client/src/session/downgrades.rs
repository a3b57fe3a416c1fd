//! Downgrades: an exclusive hold of a lock becomes a shared one.
//!
//! The client counts the lock as shared from the call on, and so does every later reclaim: the server may
//! have handled the downgrade, and granted the lock to others, whether or not its answer arrives. A repeated
//! downgrade succeeds, so one that was not answered is sent again on the next stream.

use bytes::Bytes;

use super::{Output, Session, Stage, Why};
use crate::error::{ClientError, LostReason};
use crate::tag::Tag;
use geolock_api::names::LockName;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, Mode, Reason, downgrade_request};

/// The result of a call to downgrade.
#[derive(Debug)]
pub(crate) enum Downgrading {
    /// An [`Output::Downgraded`] with this number will report the outcome.
    OnItsWay(u64),
    Over(Result<(), ClientError>),
}

/// A downgrade that is not answered yet.
#[derive(Debug)]
pub(super) struct Downgrade {
    /// The number of the request.
    request: u64,
    lock: LockName,
}

impl Session {
    /// Makes an exclusive hold of a lock of a request a shared one.
    pub(crate) fn downgrade(&mut self, request: u64, lock: &LockName) -> Downgrading {
        let held = self.requests.get_mut(&request);
        let lost = match held.as_ref().map(|request| &request.stage) {
            Some(Stage::Held(_) | Stage::InDoubt(_)) => None,
            Some(Stage::Lost(reason)) => Some(reason.clone()),
            _ => Some(LostReason::Released),
        };
        let (Some(held), None) = (held, &lost) else {
            return Downgrading::Over(Err(lost.unwrap_or(LostReason::Released).into()));
        };
        let is_it = |of: &&mut proto::LockMode| of.name == lock.as_bytes() && of.home == lock.home_field();
        let mut named = held.locks.iter_mut().filter(is_it).peekable();
        if named.peek().is_none() {
            let message = format!("{lock} is none of the locks of this guard");
            return Downgrading::Over(Err(ClientError::Refused(Reason::NotOfRequest, message)));
        }
        let mut was_exclusive = false;
        for of in named {
            was_exclusive |= of.mode() == Mode::Exclusive;
            of.set_mode(Mode::Shared);
        }
        if !was_exclusive {
            return Downgrading::Over(Ok(()));
        }
        let number = self.number();
        self.downgrades.insert(number, Downgrade { request, lock: lock.clone() });
        if self.is_ready() {
            self.send_downgrade(number);
        }
        Downgrading::OnItsWay(number)
    }

    fn send_downgrade(&mut self, number: u64) {
        let Some(Downgrade { request, lock }) = self.downgrades.get(&number) else { return };
        let Some(request) = self.requests.get(request) else { return };
        let downgrade = proto::DowngradeRequest {
            lease: self.lease_id(),
            secret: Bytes::new(),
            target: Some(downgrade_request::Target::IdempotencyKey(request.key)),
            name: Bytes::copy_from_slice(lock.as_bytes()),
            home: lock.home_field(),
        };
        self.send(Tag::Downgrade(number), Call::Downgrade(downgrade));
    }

    /// Calls can be made again: repeats the downgrades that were not answered.
    pub(super) fn resume_downgrades(&mut self) {
        let numbers: Vec<u64> = self.downgrades.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.send_downgrade(number));
    }

    /// A request does not hold its locks any more.
    pub(super) fn end_downgrades_of(&mut self, request: u64, reason: &LostReason) {
        let ended = self.downgrades.extract_if(.., |_, downgrade| downgrade.request == request);
        let outcome = |(number, _)| Output::Downgraded { number, outcome: Err(reason.clone().into()) };
        self.outputs.extend(ended.map(outcome));
    }

    pub(super) fn on_downgraded(&mut self, number: u64) {
        if self.downgrades.remove(&number).is_some() {
            self.outputs.push(Output::Downgraded { number, outcome: Ok(()) });
        }
    }

    pub(super) fn on_downgrade_refused(&mut self, number: u64, error: proto::Error) {
        match error.reason() {
            // The server did not look it up: it is sent again on the next stream.
            Reason::Unauthenticated | Reason::Unavailable | Reason::ResourceExhausted => {
                self.leave(Why::NotAttached);
            }
            reason if self.downgrades.remove(&number).is_some() => {
                let outcome = Err(ClientError::Refused(reason, error.message));
                self.outputs.push(Output::Downgraded { number, outcome });
            }
            _ => {}
        }
    }
}
