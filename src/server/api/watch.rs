//! The service `geolock.v1.Locks`: watches.
//!
//! Each watch has a session of its own, which bounds the events that wait for its client, and which closes
//! when gRPC drops the stream. The watch acknowledges to the datacenter how much its client has read of
//! holders, and only then the datacenter sends more. gRPC polls for the next response when its client has
//! space for it, which counts as read. A watch makes no further calls, so changed rules are checked before
//! the next response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio_stream::Stream;
use tonic::Status;

use super::authorize;
use super::convert::session;
use super::convert::watch::WatchMessage;
use super::error::BorderError;
use super::shares::Share;
use crate::access::Authorizer;
use crate::lock_server::{LockServerHandle, Output, Session, Stopped};
use crate::replica::call::watch::Watch;
use crate::replica::call::{Call, Reply};
use crate::replica::{Notice, SAY_TAKEN_AT};

/// Tag of the first call of the session.
const WATCH: u64 = 1;
/// Tag of the others.
const TAKEN: u64 = 2;

/// A watch of a client, between gRPC and the datacenter.
pub(super) struct Watching<T> {
    session: Session,
    authorizer: Authorizer,
    /// The watch, to be checked again when the rules have changed.
    watch: Watch,
    /// The first response, until it is sent.
    begun: Option<T>,
    /// Approximate bytes that the client has read and that are not yet acknowledged to the datacenter.
    taken: usize,
    is_over: bool,
}

impl<T: WatchMessage> Watching<T> {
    /// Begins a watch. A refusal is the status of the call.
    pub(super) async fn begin(
        server: &LockServerHandle,
        (mut authorizer, share): (Authorizer, Arc<Share>),
        watch: Watch,
    ) -> Result<Watching<T>, Status> {
        let call = Call::Watch(watch.clone());
        authorize::call(&mut authorizer, &call).map_err(BorderError::from)?;
        let place = share.session()?;
        let opened = server.open_session_within(&share.mailbox, Arc::clone(&share.bytes)).await;
        let mut session = opened.map_err(BorderError::from)?;
        session.keep(place);
        session.call(WATCH, call).await.map_err(BorderError::from)?;
        loop {
            match session.next().await.map_err(BorderError::from)? {
                Output::Reply { reply: Reply::Watching { from }, .. } => {
                    let begun = Some(T::created(&from));
                    return Ok(Watching { session, authorizer, watch, begun, taken: 0, is_over: false });
                }
                Output::Reply { reply, .. } => return Err(session::no_answer(&reply)),
                Output::Notice(_) | Output::Draining { .. } => {}
            }
        }
    }

    /// Refuses further responses if changed rules do not allow the watch.
    fn judge_again(&mut self) -> Result<(), BorderError> {
        if self.authorizer.is_outdated() {
            self.authorizer.renew()?;
            authorize::watch(&self.authorizer, &self.watch)?;
        }
        Ok(())
    }

    /// Acknowledges to the datacenter the bytes that were read, once they are enough for a message.
    fn poll_say_taken(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        ready!(self.session.poll_ready(cx))?;
        if self.taken >= SAY_TAKEN_AT {
            let weight = std::mem::take(&mut self.taken);
            self.session.start_call(TAKEN, Call::WatchTaken { watch: WATCH, weight })?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, BorderError>> {
        // While the mailbox is full no more events are taken; it has space soon.
        ready!(self.poll_say_taken(cx)).map_err(BorderError::from)?;
        self.session.poll_next(cx).map_err(BorderError::from)
    }
}

impl<T: WatchMessage + Unpin> Stream for Watching<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(begun) = this.begun.take() {
            return Poll::Ready(Some(Ok(begun)));
        }
        loop {
            let output = ready!(this.poll_output(cx));
            match output.and_then(|output| this.judge_again().map(|()| output)) {
                Ok(Output::Notice(Notice::WatchEnded { why, .. })) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Err(BorderError::Watch(why).into())));
                }
                Ok(Output::Notice(notice)) => {
                    if let Notice::Lock(news) = &notice
                        && news.event.is_best_effort()
                    {
                        this.taken += news.event.weight();
                    }
                    if let Some(news) = T::event(notice) {
                        return Poll::Ready(Some(Ok(news)));
                    }
                }
                // A draining server sends events to its watches until it has stopped; other outputs concern
                // leases.
                Ok(Output::Draining { .. } | Output::Reply { .. }) => {}
                Err(end) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Err(end.into())));
                }
            }
        }
    }
}
