//! One client's conversation with the actor: calls in without waiting for answers, answers out in batches.
//!
//! Poll functions rather than futures: the API's stream is polled, and drives both directions from there. So a
//! client that does not read is not read either, and no task is needed per stream.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::mpsc::{OwnedPermit, Sender};

use super::handle::{Input, Stopped};
use super::outbox::{End, Outbox, Output};
use crate::replica::call::{Call, SessionId};

/// See the top of this file. Dropping it closes the session.
pub struct Session {
    id: SessionId,
    mailbox: Sender<Input>,
    outbox: Arc<Outbox>,
    /// Taken out of the outbox, not yet out of here.
    taken: VecDeque<Output>,
    /// A call for which the mailbox had no room.
    parked: Option<Parked>,
    closing: Option<OwnedPermit<Input>>,
    _slot: OwnedSemaphorePermit,
}

/// A place in the mailbox, unless the server has stopped.
type Room = Result<OwnedPermit<Input>, SendError<()>>;

struct Parked {
    input: Input,
    room: Pin<Box<dyn Future<Output = Room> + Send>>,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        mailbox: Sender<Input>,
        closing: OwnedPermit<Input>,
        outbox: Arc<Outbox>,
        slot: OwnedSemaphorePermit,
    ) -> Session {
        let taken = VecDeque::new();
        Session { id, mailbox, outbox, taken, parked: None, closing: Some(closing), _slot: slot }
    }

    /// Unique in this run of the server.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whether [`Session::start_call`] may be called.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        if let Some(parked) = &mut self.parked {
            let room = ready!(parked.room.as_mut().poll(cx)).map_err(|_| Stopped)?;
            if let Some(parked) = self.parked.take() {
                room.send(parked.input);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Puts a call on its way, after [`Session::poll_ready`] said so.
    ///
    /// # Panics
    /// If it did not.
    pub fn start_call(&mut self, tag: u64, call: Call) -> Result<(), Stopped> {
        assert!(self.parked.is_none(), "a call is started when the session is ready");
        let input = Input::Call { session: self.id, tag, call };
        match self.mailbox.try_send(input) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Stopped),
            Err(TrySendError::Full(input)) => {
                let room = Box::pin(self.mailbox.clone().reserve_owned());
                self.parked = Some(Parked { input, room });
                Ok(())
            }
        }
    }

    /// An answer that is already here.
    pub fn next_taken(&mut self) -> Option<Output> {
        self.taken.pop_front()
    }

    /// The next answer or notice.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, End>> {
        loop {
            if let Some(output) = self.taken.pop_front() {
                return Poll::Ready(Ok(output));
            }
            ready!(self.outbox.poll_take(cx, &mut self.taken))?;
        }
    }

    /// As [`Session::poll_ready`] and [`Session::start_call`].
    pub async fn call(&mut self, tag: u64, call: Call) -> Result<(), Stopped> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.start_call(tag, call)?;
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// As [`Session::poll_next`].
    pub async fn next(&mut self) -> Result<Output, End> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(closing) = self.closing.take() {
            closing.send(Input::Close { session: self.id });
        }
    }
}
