//! The service `geolock.v1.Locks`: its stream.
//!
//! One value handles both directions. The carrier, gRPC or a native connection, polls it for answers, and
//! the poll also reads the client's calls. So one wake-up moves many messages both ways, a client that does
//! not read its answers is not read from either, and no task can outlive its stream. Available answers go
//! first; calls are read when there are none.
//!
//! Renewals are the exception: a client on a slow line that still reads a large answer must not lose its
//! lease. So a carrier that can send a renewal's answer between others continues to read meanwhile
//! ([`ClientStream::poll_renewal`]), and other calls are held back, up to a bound. The same applies while a
//! call of the client waits for space in the mailbox.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use prost::Message as _;
use rustc_hash::FxHashMap;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::authorize;
use super::convert::session::{self, Asked};
use super::convert::{self, ProofBy, lease, lock, txn};
use super::error::BorderError;
use super::reclaim::Gathered;
use super::server_info::ServerInfo;
use super::shares::{Place, Received};
use crate::access::Authorizer;
use crate::lock_server::{Output, Session};
use crate::replica::call::Call;
use geolock_api::names::LeaseId;
use geolock_api::proto::client_message::Call as Asking;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage, ServerMessage};

/// Most calls taken in one poll, so that a client that never pauses does not starve others.
const BATCH: usize = 128;

/// Approximate bound on the bytes of calls that are held back while the client reads its answers. One more
/// call may have any length.
const HELD_BACK: usize = 64 << 10;
/// Approximate memory of a call beside its bytes.
const CALL: usize = 256;

/// A session of a client, between its carrier and the datacenter.
pub(super) struct ClientStream {
    stage: Stage,
    session: Session,
    authorizer: Authorizer,
    info: Arc<ServerInfo>,
    /// Answers made here, without the datacenter. At most one batch.
    at_hand: VecDeque<ServerMessage>,
    /// Facts about calls that their answers need, by tag.
    asked: FxHashMap<u64, Asked>,
    gathered: Gathered,
    /// Calls that the datacenter has not answered.
    unanswered: u64,
    held_back: HeldBack,
    received: Received,
}

/// Messages that came while only renewals were wanted, to be processed first.
#[derive(Default)]
struct HeldBack {
    came: VecDeque<Result<Option<ClientMessage>, BorderError>>,
    bytes: usize,
    /// Some of them came since calls were taken last.
    is_new: bool,
    /// No message follows them.
    is_last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    Open,
    /// The client has sent its last call; it still gets its answers.
    HalfClosed,
    /// The client broke the protocol, or the server has to stop; nothing follows.
    Over,
}

/// The action for a message.
enum Next {
    Forward(Call),
    Answer(Answer),
}

impl ClientStream {
    /// `place` is returned when all calls of the session have been handled.
    pub(super) fn new(
        mut session: Session,
        (authorizer, place, received): (Authorizer, Place, Received),
        info: Arc<ServerInfo>,
        gathered: Gathered,
    ) -> ClientStream {
        session.keep(place);
        ClientStream {
            stage: Stage::Greeting,
            session,
            authorizer,
            info,
            at_hand: VecDeque::new(),
            asked: FxHashMap::default(),
            gathered,
            unanswered: 0,
            held_back: HeldBack::default(),
            received,
        }
    }

    /// Takes calls until there are no more, the mailbox is full, or others must have their turn.
    fn poll_calls(&mut self, cx: &mut Context<'_>, calls: &mut impl Calls) -> Poll<Result<(), BorderError>> {
        let taken = self.poll_batch(cx, calls);
        self.held_back.is_new = false;
        taken
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>, calls: &mut impl Calls) -> Poll<Result<(), BorderError>> {
        for _ in 0..BATCH {
            let Poll::Ready(ready) = self.session.poll_ready(cx) else {
                self.hear_renewals(cx, calls);
                return Poll::Pending;
            };
            ready?;
            if !matches!(self.stage, Stage::Greeting | Stage::Open) {
                return Poll::Ready(Ok(()));
            }
            let came = match self.held_back.take() {
                Some(came) => came,
                None => ready!(calls.poll_call(cx)),
            };
            let greets = self.stage == Stage::Greeting;
            match came? {
                Some(message) => self.on_message(message)?,
                None => self.stage = Stage::HalfClosed,
            }
            if greets {
                // The welcome is sent before the following calls are passed on, because these may be answered
                // at once.
                return Poll::Ready(Ok(()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Handles a message. Errors of the call are answered; a returned error ends the stream.
    fn on_message(&mut self, message: ClientMessage) -> Result<(), BorderError> {
        let ClientMessage { tag, call } = message;
        if tag == 0 {
            return Err(BorderError::Malformed("`tag`: tags are above 0"));
        }
        let call = match (call, self.stage) {
            (Some(Asking::Hello(hello)), Stage::Greeting) => return self.on_hello(tag, &hello),
            (Some(Asking::Hello(_)), _) | (_, Stage::Greeting) => {
                return Err(BorderError::HelloExpected);
            }
            (call, _) => call,
        };
        // The facts remembered for it would be used for the answer to this one.
        if self.asked.contains_key(&tag) {
            return Err(BorderError::Malformed("`tag`: a call with it still waits for its answer"));
        }
        match self.parse(tag, call).and_then(|next| self.authorize(tag, next)) {
            Ok(Next::Forward(call)) => {
                self.session.start_call(tag, call)?;
                self.unanswered += 1;
            }
            Ok(Next::Answer(answer)) => self.answer_at_hand(tag, answer),
            Err(error) => self.answer_at_hand(tag, Answer::Error(error.to_error())),
        }
        Ok(())
    }

    fn on_hello(&mut self, tag: u64, hello: &proto::Hello) -> Result<(), BorderError> {
        let revision = session::hello(hello)?;
        tracing::debug!(session = self.session.id().0, client = hello.client, revision, "hello");
        self.stage = Stage::Open;
        self.answer_at_hand(tag, session::welcome(&self.info, revision));
        Ok(())
    }

    fn authorize(&mut self, tag: u64, mut next: Next) -> Result<Next, BorderError> {
        if let Next::Forward(Call::Reclaim { held, .. }) = &mut next {
            let denied = authorize::reclaim(&mut self.authorizer, held)?;
            if !denied.is_empty() {
                self.asked.insert(tag, Asked::Reclaim(denied));
            }
        }
        if let Next::Forward(call) = &next {
            authorize::call(&mut self.authorizer, call).inspect_err(|_| drop(self.asked.remove(&tag)))?;
        }
        Ok(next)
    }

    fn parse(&mut self, tag: u64, call: Option<Asking>) -> Result<Next, BorderError> {
        const BY: ProofBy = ProofBy::SecretOrStream;
        let call = match call {
            Some(Asking::Acquire(message)) => lock::acquire(message, BY)?,
            Some(Asking::Release(message)) => lock::release(&message, BY)?,
            Some(Asking::Downgrade(message)) => lock::downgrade(&message, BY)?,
            Some(Asking::Amend(message)) => lock::amend(&message, BY)?,
            Some(Asking::KeepAlive(message)) => lease::keep_alive(&message, BY)?,
            Some(Asking::Cancel(message)) => {
                let call = lock::cancel(&message, BY)?;
                self.asked.insert(tag, Asked::Cancel);
                call
            }
            Some(Asking::OpenLease(message)) => {
                let (call, secret) = lease::open_lease(&message, BY)?;
                self.asked.insert(tag, Asked::OpenLease(secret));
                call
            }
            Some(Asking::AttachLease(message)) => lease::attach_lease(&message)?,
            Some(Asking::CloseLease(message)) => lease::close_lease(&message, BY)?,
            Some(Asking::Reclaim(message)) => match self.gather(&message)? {
                Some(call) => call,
                None => return Ok(Next::Answer(Answer::Reclaimed(proto::ReclaimResponse::default()))),
            },
            Some(Asking::Begin(message)) => txn::begin(message, BY)?,
            Some(Asking::Step(message)) => txn::next_step(message, BY)?,
            Some(Asking::Read(message)) => {
                let call = txn::read(message)?;
                self.asked.insert(tag, Asked::Read);
                call
            }
            Some(Asking::Hello(_)) => return Err(BorderError::HelloExpected),
            None => return Err(BorderError::Malformed("`call`: it is missing, or unknown to this server")),
        };
        Ok(Next::Forward(call))
    }

    /// Collects a piece of a reclaim from a client that is authenticated at this moment. The rules are
    /// checked for the whole reclaim after its last piece.
    fn gather(&mut self, message: &proto::ReclaimRequest) -> Result<Option<Call>, BorderError> {
        let known = self.authorizer.renew().map_err(BorderError::from);
        let piece = known.and_then(|()| lock::reclaim(message, ProofBy::SecretOrStream));
        match piece {
            Ok(piece) => self.gathered.add(piece),
            Err(error) => {
                self.gathered.refused(LeaseId::from_raw(message.lease), message.more);
                Err(error)
            }
        }
    }

    fn answer_at_hand(&mut self, tag: u64, answer: Answer) {
        self.at_hand.push_back(ServerMessage { tag, answer: Some(answer) });
    }

    fn on_output(&mut self, output: Output) -> Result<ServerMessage, Status> {
        match output {
            Output::Reply { tag, reply } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                let asked = if self.asked.is_empty() { None } else { self.asked.remove(&tag) };
                let answer = session::answer(&self.info, reply, asked)?;
                Ok(ServerMessage { tag, answer: Some(answer) })
            }
            Output::Notice(notice) => Ok(session::notice(notice)),
            Output::Draining { timeout } => {
                let draining = proto::Draining { drain_timeout_ms: convert::millis(timeout) };
                Ok(ServerMessage { tag: 0, answer: Some(Answer::Draining(draining)) })
            }
        }
    }

    /// Returns the next answer; `None` when all are sent. After an error nothing follows.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        calls: &mut impl Calls,
    ) -> Poll<Option<Result<ServerMessage, Status>>> {
        loop {
            if self.stage == Stage::Over {
                return Poll::Ready(None);
            }
            if let Some(output) = self.session.next_taken() {
                return Poll::Ready(Some(self.on_output(output)));
            }
            if let Some(message) = self.at_hand.pop_front() {
                return Poll::Ready(Some(Ok(message)));
            }
            if let Poll::Ready(Err(error)) = self.poll_calls(cx, calls) {
                return self.fail(error);
            }
            match self.session.poll_next(cx) {
                Poll::Ready(Ok(output)) => return Poll::Ready(Some(self.on_output(output))),
                Poll::Ready(Err(end)) => return self.fail(end.into()),
                Poll::Pending if !self.at_hand.is_empty() => {}
                Poll::Pending if self.stage == Stage::HalfClosed && self.unanswered == 0 => {
                    return Poll::Ready(None);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Returns the next answer to a renewal, while there is no space for others. All other messages are held
    /// back.
    pub(super) fn poll_renewal(
        &mut self,
        cx: &mut Context<'_>,
        calls: &mut impl Calls,
    ) -> Poll<Result<ServerMessage, Status>> {
        // A call that waits takes the space that becomes free. If the server has stopped, the poll for other
        // answers reports that.
        if !matches!(self.session.poll_ready(cx), Poll::Ready(Err(_))) {
            self.hear_renewals(cx, calls);
        }
        self.session.poll_renewed(cx).map(|output| self.on_output(output))
    }

    /// Takes renewals, and holds all other messages back, up to the bound and while there is space for
    /// refusals.
    fn hear_renewals(&mut self, cx: &mut Context<'_>, calls: &mut impl Calls) {
        let mut heard = 0;
        while self.stage == Stage::Open && self.held_back.has_room() && self.at_hand.len() < BATCH {
            if heard == BATCH {
                cx.waker().wake_by_ref();
                break;
            }
            let Poll::Ready(Ok(())) = self.session.poll_room_beside(cx) else { break };
            let Poll::Ready(came) = calls.poll_call(cx) else { break };
            match came {
                Ok(Some(message)) if is_renewal(&message) => {
                    heard += 1;
                    if let Err(error) = self.on_message(message) {
                        self.held_back.put(Err(error));
                    }
                }
                came => self.held_back.put(came),
            }
        }
    }

    /// Notes the number of bytes received of an incomplete message, beside those held back. Returns an error
    /// if its client has too many.
    pub(super) fn note_received(&mut self, bytes: usize) -> Result<(), BorderError> {
        self.received.set(bytes + self.held_back.bytes)
    }

    /// Returns true if messages were held back since answers were last polled. Older ones wait for something
    /// else.
    pub(super) fn holds_back(&self) -> bool {
        self.held_back.is_new
    }

    /// Returns true if the client has sent its last call, and may still wait for answers.
    pub(super) fn has_heard_all(&self) -> bool {
        self.stage == Stage::HalfClosed
    }

    /// Ends the stream with an error, after the answers in `at_hand`.
    fn fail(&mut self, error: BorderError) -> Poll<Option<Result<ServerMessage, Status>>> {
        self.stage = Stage::Over;
        Poll::Ready(Some(Err(error.into())))
    }
}

/// Returns true for a renewal, and for the attaching of a lease that comes before it. Both overtake the calls
/// of their own session, so they are processed while all others wait.
fn is_renewal(message: &ClientMessage) -> bool {
    matches!(message.call, Some(Asking::KeepAlive(_) | Asking::AttachLease(_)))
}

impl HeldBack {
    fn has_room(&self) -> bool {
        !self.is_last && self.bytes < HELD_BACK
    }

    fn put(&mut self, came: Result<Option<ClientMessage>, BorderError>) {
        match &came {
            Ok(Some(message)) => self.bytes += CALL + message.encoded_len(),
            Ok(None) | Err(_) => self.is_last = true,
        }
        self.came.push_back(came);
        self.is_new = true;
    }

    /// Takes the first message. When the last one is taken, there is space again.
    fn take(&mut self) -> Option<Result<Option<ClientMessage>, BorderError>> {
        let came = self.came.pop_front()?;
        if self.came.is_empty() {
            self.bytes = 0;
        }
        Some(came)
    }
}

/// The calls of a client, one after the other; `None` after the last.
pub(super) trait Calls {
    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ClientMessage>, BorderError>>;
}

impl Calls for Streaming<ClientMessage> {
    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ClientMessage>, BorderError>> {
        Pin::new(self).poll_next(cx).map(|next| next.transpose().map_err(BorderError::Transport))
    }
}

/// A stream over gRPC.
pub(super) struct GrpcStream {
    pub stream: ClientStream,
    pub calls: Streaming<ClientMessage>,
}

impl Stream for GrpcStream {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let GrpcStream { stream, calls } = self.get_mut();
        stream.poll_answer(cx, calls)
    }
}
