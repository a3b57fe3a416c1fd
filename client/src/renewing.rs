//! Renewals over gRPC: each is a call of its own, outside the session's stream.
//!
//! On the stream a renewal would wait behind everything queued before it, and its answer behind all earlier
//! answers: on a slow line a large value takes longer than a lease lives. HTTP/2 sends its streams in turns,
//! at most a window of each, so a separate call waits for little.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::{Response, Status};

use super::connection::Api;
use super::error::error_of;
use super::shared::Renewals;
use super::tag::Tag;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{KeepAliveResponse, ServerMessage};

type Answered = Result<Response<KeepAliveResponse>, Status>;

/// Makes these calls, one at a time.
pub(super) struct Renewing {
    api: Api,
    renewals: Renewals,
    under_way: Option<Pin<Box<dyn Future<Output = Answered> + Send>>>,
}

impl Renewing {
    pub(super) fn new(api: Api, renewals: Renewals) -> Renewing {
        Renewing { api, renewals, under_way: None }
    }

    /// Sends the renewal that is due. Returns its answer, in the form in which it would have come on the
    /// stream, or nothing if the call failed. A call fails with its connection; the session then finds that
    /// the renewal is overdue.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Option<ServerMessage> {
        if let Some(request) = self.renewals.take() {
            let mut api = self.api.clone();
            self.under_way = Some(Box::pin(async move { api.keep_alive(request).await }));
        }
        let Poll::Ready(answered) = self.under_way.as_mut()?.as_mut().poll(cx) else { return None };
        self.under_way = None;
        let answer = match answered {
            Ok(kept) => Answer::KeptAlive(kept.into_inner()),
            Err(status) => Answer::Error(error_of(&status)?),
        };
        Some(ServerMessage { tag: Tag::KeepAlive.to_wire(), answer: Some(answer) })
    }
}
