//! A client's session: calls go in without waiting for answers, answers come out in batches.
//!
//! Poll functions rather than futures: the API polls one stream and drives both directions from there. So a
//! client that does not read is not read from either, and a stream needs no task.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::mpsc::{OwnedPermit, Sender};

use super::budget::{Allowance, Charge};
use super::combiner::Combine;
use super::handle::{Input, Kept, Stopped};
use super::mailbox;
use super::outbox::{End, Outbox, Output};
use crate::replica::call::{Call, SessionId};

/// A client's session. Dropping it closes the session.
pub struct Session {
    id: SessionId,
    way_in: WayIn,
    /// Calls were put into the mailbox, and the combiner was not notified yet.
    has_put: bool,
    outbox: Arc<Outbox>,
    /// Outputs taken from the outbox and not yet returned.
    taken: VecDeque<Output>,
    /// A call that waits for bytes of its allowance. Renewals overtake it.
    parked: Option<Parked>,
    /// The input that goes into the mailbox next.
    next: Option<Next>,
    closing: Option<(OwnedPermit<Input>, Kept)>,
}

/// The way of calls into the server.
pub(super) struct WayIn {
    pub mailbox: Sender<Input>,
    /// Bytes that the session may have in the mailbox.
    pub allowance: Arc<Allowance>,
    pub combiner: Arc<dyn Combine>,
}

/// A place in the mailbox, or an error if the server has stopped.
type Reserved = Result<OwnedPermit<Input>, SendError<()>>;

/// A call that waits for bytes of its allowance.
struct Parked {
    tag: u64,
    call: Call,
    charge: Pin<Box<dyn Future<Output = Charge> + Send>>,
}

/// An input that waits for a place in the mailbox.
struct Next {
    input: Input,
    place: Pin<Box<dyn Future<Output = Reserved> + Send>>,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        way_in: WayIn,
        closing: OwnedPermit<Input>,
        outbox: Arc<Outbox>,
        kept: Kept,
    ) -> Session {
        let taken = VecDeque::new();
        let closing = Some((closing, kept));
        Session { id, way_in, has_put: false, outbox, taken, parked: None, next: None, closing }
    }

    /// Keeps `beside` until the session is closed and all its calls have been handled.
    pub fn keep(&mut self, beside: impl Send + Sync + 'static) {
        if let Some((_, kept)) = &mut self.closing {
            kept.beside = Some(Box::new(beside));
        }
    }

    /// Returns the id of this session, unique in this run of the server.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Ready when [`Session::start_call`] may be called.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        ready!(self.poll_room_beside(cx))?;
        let Some(parked) = &mut self.parked else { return Poll::Ready(Ok(())) };
        let charge = ready!(parked.charge.as_mut().poll(cx));
        if let Some(Parked { tag, call, .. }) = self.parked.take() {
            self.put(tag, call, Some(charge))?;
        }
        self.poll_room_beside(cx)
    }

    /// Ready when [`Session::start_call`] may be called with a renewal: a renewal need not wait for a parked
    /// call.
    pub fn poll_room_beside(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        let Some(next) = &mut self.next else { return Poll::Ready(Ok(())) };
        let place = ready!(next.place.as_mut().poll(cx)).map_err(|_| Stopped)?;
        if let Some(Next { input, .. }) = self.next.take() {
            place.send(input);
            self.has_put = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Submits a call, after [`Session::poll_ready`] (or [`Session::poll_room_beside`]) was ready. The call
    /// is handled when the next output is polled, so that calls that arrive together form one batch.
    ///
    /// # Panics
    /// If the session was not ready.
    pub fn start_call(&mut self, tag: u64, call: Call) -> Result<(), Stopped> {
        let Some(bytes) = mailbox::weight(&call) else {
            assert!(self.next.is_none(), "a renewal is started when there is room");
            return self.put(tag, call, None);
        };
        assert!(self.parked.is_none() && self.next.is_none(), "a call is started when the session is ready");
        match self.way_in.allowance.try_take(bytes) {
            Some(charge) => self.put(tag, call, Some(charge)),
            None => {
                let charge = Box::pin(Arc::clone(&self.way_in.allowance).take(bytes));
                self.parked = Some(Parked { tag, call, charge });
                Ok(())
            }
        }
    }

    fn put(&mut self, tag: u64, call: Call, charge: Option<Charge>) -> Result<(), Stopped> {
        let client = self.way_in.allowance.client();
        let input = Input::Call { session: self.id, tag, client, call, _charge: charge };
        match self.way_in.mailbox.try_send(input) {
            Ok(()) => {
                self.has_put = true;
                Ok(())
            }
            Err(TrySendError::Closed(_)) => Err(Stopped),
            Err(TrySendError::Full(input)) => {
                let place = Box::pin(self.way_in.mailbox.clone().reserve_owned());
                self.next = Some(Next { input, place });
                Ok(())
            }
        }
    }

    /// Notifies the combiner of the calls put into the mailbox.
    fn hand_over(&mut self) {
        if mem::take(&mut self.has_put) {
            // The caller polls for answers afterwards, so it needs no wake-up.
            self.outbox.forget_reader();
            self.way_in.combiner.notify_submitted();
        }
    }

    /// Returns an output that is already here.
    pub fn next_taken(&mut self) -> Option<Output> {
        self.taken.pop_front()
    }

    /// Waits for the next answer or notice.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, End>> {
        self.hand_over();
        loop {
            if let Some(output) = self.taken.pop_front() {
                return Poll::Ready(Ok(output));
            }
            ready!(self.outbox.poll_take(cx, &mut self.taken))?;
        }
    }

    /// Waits for the next acknowledged renewal, while the client does not read other answers.
    pub fn poll_renewed(&mut self, cx: &mut Context<'_>) -> Poll<Output> {
        self.hand_over();
        self.outbox.poll_renewed(cx)
    }

    /// As [`Session::poll_ready`] and [`Session::start_call`].
    pub async fn call(&mut self, tag: u64, call: Call) -> Result<(), Stopped> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.start_call(tag, call)?;
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.hand_over();
        Ok(())
    }

    /// As [`Session::poll_next`].
    pub async fn next(&mut self) -> Result<Output, End> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some((closing, kept)) = self.closing.take() {
            closing.send(Input::Close { session: self.id, _kept: kept });
            self.way_in.combiner.notify_submitted();
        }
    }
}
