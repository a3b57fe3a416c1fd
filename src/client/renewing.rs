//! Renewals over gRPC: each is a call of its own, beside the stream.
//!
//! On the stream a renewal would wait for all that was put on it before, and its answer for all answers before it: on a slow
//! line a large value takes longer than a lease lives. HTTP/2 sends what its streams have in turns, at most a window of each,
//! so a call beside the stream waits for little.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::{Response, Status};

use super::connection::Api;
use super::error::error_of;
use super::hub::Renewals;
use super::tag::Tag;
use crate::proto::server_message::Answer;
use crate::proto::{KeepAliveResponse, ServerMessage};

type Answered = Result<Response<KeepAliveResponse>, Status>;

/// See the top of this file. There is one renewal at a time.
pub(super) struct Renewing {
    api: Api,
    renewals: Renewals,
    under_way: Option<Pin<Box<dyn Future<Output = Answered> + Send>>>,
}

impl Renewing {
    pub(super) fn new(api: Api, renewals: Renewals) -> Renewing {
        Renewing { api, renewals, under_way: None }
    }

    /// Sends the renewal that is due. The answer to it, as it would have come on the stream; none if the call failed, as it does
    /// with its connection: then the session finds that it is overdue.
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
