//! Requests and answers as frames on links: the [`ControlTransport`] of production.
//!
//! A call is a frame with a number; its answer has the same number. An answer goes back on the link that the
//! request came on, so members in between keep nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use geolock_api::names::{DcId, DcSet};
use tokio::sync::oneshot;

use super::frame::{Frame, FrameError, FrameKind, MAX_PAYLOAD};
use super::route::{Routes, Step};
use super::transport::{Calling, ControlTransport, Unreachable};

/// Calls that wait for their answers.
const MAX_CALLS: usize = 256;

/// The links to other datacenters.
pub trait ControlLinks: Send + Sync + 'static {
    /// Returns the datacenters with a link that takes control frames.
    fn linked(&self) -> DcSet;

    /// Queues a frame on a link. Never blocks. Returns false if there is no such link, or no room.
    fn send(&self, to: DcId, frame: Bytes) -> bool;

    /// Returns the time to a datacenter and back, if there is a link to it.
    fn round_trip(&self, to: DcId) -> Option<Duration>;
}

/// Carries calls on links.
pub struct Relay<L> {
    me: DcId,
    links: L,
    state: Mutex<State>,
}

struct State {
    routes: Routes,
    next_id: u64,
    calls: BTreeMap<u64, Call>,
}

/// A call that waits for its answer.
struct Call {
    to: DcId,
    via: DcId,
    answer: oneshot::Sender<Result<Bytes, Unreachable>>,
}

/// Forgets a call that its caller gave up.
struct Forget<'a, L: ControlLinks> {
    relay: &'a Relay<L>,
    id: u64,
}

impl<L: ControlLinks> Drop for Forget<'_, L> {
    fn drop(&mut self) {
        self.relay.state().calls.remove(&self.id);
    }
}

/// A request for this member, to be answered with [`Relay::answer`].
#[derive(Debug)]
pub struct Incoming {
    /// The datacenter that asks.
    pub from: DcId,
    pub request: Bytes,
    by: DcId,
    frame: Frame,
}

impl<L: ControlLinks> Relay<L> {
    /// Carries calls of `me`. Numbers of calls begin at `first_id`: a random one keeps late answers to the
    /// process before this one from being taken for answers to this one.
    pub fn new(me: DcId, links: L, first_id: u64) -> Arc<Relay<L>> {
        let state = State { routes: Routes::new(me), next_id: first_id, calls: BTreeMap::new() };
        Arc::new(Relay { me, links, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the calls")
    }

    /// Takes a frame that came on the link to `by`. Returns a request, if it is one for this member. An error
    /// means that the peer breaks the protocol.
    pub fn received(&self, by: DcId, bytes: &[u8]) -> Result<Option<Incoming>, FrameError> {
        let frame = Frame::decode(bytes)?;
        let linked = self.links.linked();
        let step = self.state().routes.arrived(frame, by, linked);
        let frame = match step {
            Step::Deliver(frame) => frame,
            Step::Send(to, frame) => {
                // Without room it is lost, like any frame on a link that ends.
                self.links.send(to, frame.encode());
                return Ok(None);
            }
            Step::Drop => return Ok(None),
        };
        let outcome = match &frame.kind {
            FrameKind::Request(request) => {
                return Ok(Some(Incoming { from: frame.from, request: request.clone(), by, frame }));
            }
            FrameKind::Answer(answer) => Ok(answer.clone()),
            FrameKind::NoRoute => Err(Unreachable::NoRoute(frame.from)),
            FrameKind::Busy => Err(Unreachable::Busy),
        };
        self.ended(frame.id, frame.from, outcome, linked);
        Ok(None)
    }

    /// Sends the answer to a request: at most [`MAX_PAYLOAD`] bytes.
    pub fn answer(&self, incoming: &Incoming, answer: Bytes) {
        assert!(answer.len() <= MAX_PAYLOAD, "a longer answer would cost the link");
        self.links.send(incoming.by, incoming.frame.answered(FrameKind::Answer(answer)).encode());
    }

    /// Refuses a request that there is no room for.
    pub fn refuse(&self, incoming: &Incoming) {
        self.links.send(incoming.by, incoming.frame.answered(FrameKind::Busy).encode());
    }

    /// Ends the calls that were sent on a link that is down.
    pub fn link_down(&self, peer: DcId) {
        let linked = self.links.linked();
        let lost: Vec<_> = {
            let state = self.state();
            state.calls.iter().filter(|(_, call)| call.via == peer).map(|(id, call)| (*id, call.to)).collect()
        };
        for (id, to) in lost {
            self.ended(id, to, Err(Unreachable::LinkLost(to)), linked);
        }
    }

    fn ended(&self, id: u64, by: DcId, outcome: Result<Bytes, Unreachable>, linked: DcSet) {
        let mut state = self.state();
        // An answer of another member than the asked one is ignored.
        if state.calls.get(&id).is_none_or(|call| call.to != by) {
            return;
        }
        let Some(call) = state.calls.remove(&id) else { return };
        if matches!(outcome, Err(Unreachable::NoRoute(_) | Unreachable::LinkLost(_))) {
            state.routes.failed(call.to, call.via, linked);
        }
        // The caller may have given up.
        let _ = call.answer.send(outcome);
    }

    async fn request(&self, to: DcId, request: Bytes) -> Result<Bytes, Unreachable> {
        let (answer, answered) = oneshot::channel();
        let linked = self.links.linked();
        let (frame, via) = {
            let mut state = self.state();
            if state.calls.len() >= MAX_CALLS {
                return Err(Unreachable::Busy);
            }
            let frame = Frame::request(state.next_id, self.me, to, request)?;
            let via = state.routes.first_hop(to, linked).ok_or(Unreachable::NoRoute(to))?;
            state.next_id = state.next_id.wrapping_add(1);
            state.calls.insert(frame.id, Call { to, via, answer });
            (frame, via)
        };
        let _forget = Forget { relay: self, id: frame.id };
        if !self.links.send(via, frame.encode()) {
            self.ended(frame.id, to, Err(Unreachable::LinkLost(to)), linked);
        }
        answered.await.unwrap_or(Err(Unreachable::ShuttingDown))
    }
}

impl<L: ControlLinks> ControlTransport for Relay<L> {
    fn call(&self, to: DcId, request: Bytes) -> Calling<'_> {
        Box::pin(self.request(to, request))
    }

    fn round_trip(&self, to: DcId) -> Option<Duration> {
        self.links.round_trip(to)
    }
}
