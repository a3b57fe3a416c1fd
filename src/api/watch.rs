//! The service `geolock.v1.Locks`: a watch.
//!
//! Each has a session of its own, which bounds what waits for its client, and which closes when gRPC drops the stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio_stream::Stream;
use tonic::Status;

use super::answer;
use super::error::BorderError;
use super::show_store;
use crate::crdt::VersionVector;
use crate::lock_server::{LockServerHandle, Output, Session};
use crate::proto::WatchResponse;
use crate::replica::Notice;
use crate::replica::call::{Call, Reply};
use crate::replica::store_call::Watch;

/// The one call of the session.
const TAG: u64 = 1;

/// See the top of this file.
pub(super) struct Watching {
    session: Session,
    /// Where it begins, until the client was told.
    begins: Option<VersionVector>,
    is_over: bool,
}

impl Watching {
    /// Begins a watch. A refusal is the status of the call.
    pub(super) async fn begin(server: &LockServerHandle, watch: Watch) -> Result<Watching, Status> {
        let mut session = server.open_session().await.map_err(BorderError::from)?;
        session.call(TAG, Call::Watch(watch)).await.map_err(BorderError::from)?;
        loop {
            match session.next().await.map_err(BorderError::from)? {
                Output::Reply { reply: Reply::Watching { from }, .. } => {
                    return Ok(Watching { session, begins: Some(from), is_over: false });
                }
                Output::Reply { reply, .. } => return Err(answer::no_answer(&reply)),
                Output::Notice(_) | Output::Draining { .. } => {}
            }
        }
    }
}

impl Stream for Watching {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(begins) = this.begins.take() {
            return Poll::Ready(Some(Ok(show_store::begun(&begins))));
        }
        loop {
            match ready!(this.session.poll_next(cx)) {
                Ok(Output::Notice(Notice::Changed(changed))) => {
                    return Poll::Ready(Some(Ok(show_store::changed(*changed))));
                }
                // A server that drains tells its watches the news until it has stopped; the rest is about leases.
                Ok(Output::Notice(_) | Output::Draining { .. } | Output::Reply { .. }) => {}
                Err(end) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Err(BorderError::from(end).into())));
                }
            }
        }
    }
}
