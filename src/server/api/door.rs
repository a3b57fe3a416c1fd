//! The layer in front of the gRPC services: authenticates callers and enforces their shares.
//!
//! A call takes a slot of its client until its answer has been accepted. A large request is counted in bytes
//! until it is answered, a large answer until it has been accepted. HTTP/2 lets a client delay answers with
//! a window of one byte for as long as it likes; the delayed bytes, except one slice, are counted here and
//! bounded by the client's share. A connection that accepts next to nothing of its answers is closed
//! (`connection.rs`).

use std::convert::Infallible;
use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use super::authorize;
use super::connection::{Peer, Untaken};
use super::error::BorderError;
use super::locks::LocksService;
use super::shares::{Place, Received, Share};
use crate::lock_server::ByteCount;

/// Only the bytes of a request beyond this size are counted; an answer is counted if it is larger.
const SMALL: usize = 16 << 10;
/// Bytes of an answer that are passed to HTTP/2 at a time. It accepts them all as soon as the client has a
/// window of one byte.
const SLICE: usize = 16 << 10;
/// The call that needs no authentication: one answer of a few bytes.
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// Time limit of such a call of a few bytes, since its caller is not authenticated.
const CHECK_TIME: Duration = Duration::from_secs(1);
/// Calls whose requests or answers are streams: sessions bound the answers that wait.
const STREAMS: [&str; 4] = ["Session", "Watch", "WatchLocks", "List"];
/// Calls that change nothing and whose answers may be large: refused while their client does not accept the
/// answers that it has.
const READS: [&str; 8] =
    ["Read", "ListKeys", "ListLocks", "DescribeLock", "TopLocks", "Status", "Audit", "ListMembers"];

type Answer = Result<http::Response<Body>, Infallible>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A service behind authentication and shares.
#[derive(Clone)]
pub(super) struct Door<S> {
    pub inner: S,
    pub service: Arc<LocksService>,
}

/// The resources of an admitted call.
struct Pass {
    place: Place,
    share: Arc<Share>,
    untaken: Arc<Untaken>,
    is_stream: bool,
    is_read: bool,
}

impl<S: NamedService> NamedService for Door<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Door<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Answering {
        if request.uri().path() == HEALTH_CHECK {
            return self.check(request);
        }
        let pass = match self.let_in(&mut request) {
            Ok(pass) => pass,
            Err(error) => return Box::pin(future::ready(Ok(Status::from(error).into_http()))),
        };
        let counted = Arc::new(Counted::new(&pass.share.requests));
        let request = if pass.is_stream {
            let received = Received::new(Arc::clone(&pass.share));
            request.map(|body| counted_stream(body, received))
        } else {
            let counted = Arc::clone(&counted);
            request.map(|body| counted_request(body, counted))
        };
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = answering.await?;
            drop(counted);
            Ok(pass.hold(answer))
        })
    }
}

impl<S> Door<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    /// Answers a health check, without authentication: few at a time on a connection, and with a short time
    /// limit.
    fn check(&mut self, request: http::Request<Body>) -> Answering {
        let place =
            request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.checks).try_acquire_owned());
        let Some(Ok(place)) = place else {
            let status = Status::resource_exhausted("this connection has too many health checks under way");
            return Box::pin(future::ready(Ok(status.into_http())));
        };
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = timeout(CHECK_TIME, answering).await;
            drop(place);
            answer.unwrap_or_else(|_| {
                Ok(Status::deadline_exceeded("the request of a health check was not there in time")
                    .into_http())
            })
        })
    }
}

impl<S> Door<S> {
    /// Authenticates the caller before any of the call itself is read: the server keeps nothing of
    /// unauthenticated clients.
    fn let_in(&self, request: &mut http::Request<Body>) -> Result<Pass, BorderError> {
        let peer: &Peer = request.extensions().get().ok_or(BorderError::NoPeer)?;
        let authorization = request.headers().get("authorization").map(http::HeaderValue::as_bytes);
        let access = &self.service.access;
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let admitted = access.admit(peer.address, peer.client.as_ref(), authorization);
        let authorizer = admitted.inspect_err(|refused| {
            if let Some(call) = authorize::of_operator(method) {
                access.note_unknown_operator(call, refused, peer.address);
            }
        })?;
        let share = self.service.shares.of(&authorizer);
        let (is_stream, is_read) = (STREAMS.contains(&method), READS.contains(&method));
        if is_read || method == "Transact" {
            share.room_for_answers()?;
        }
        let untaken = Arc::clone(&peer.untaken);
        let pass = Pass { place: share.call()?, share, untaken, is_stream, is_read };
        request.extensions_mut().insert(authorizer);
        Ok(pass)
    }
}

impl Pass {
    /// Counts an answer until it has been accepted. An answer to a read is refused instead if it exceeds the
    /// share.
    fn hold(self, response: http::Response<Body>) -> http::Response<Body> {
        let (head, mut body) = response.into_parts();
        let counted = Counted::new(&self.share.bytes);
        let mut first = None;
        if !self.is_stream {
            // The answer is available, or an error; otherwise its reader polls again.
            if let Poll::Ready(frame) =
                Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()))
            {
                let bytes =
                    frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
                if bytes > SMALL && !counted.add(bytes) && self.is_read {
                    let error = self.share.refused(BorderError::TooManyBytes(self.share.bytes.most()));
                    return Status::from(error).into_http();
                }
                first = Some(frame);
            }
        }
        let held = self.untaken.hold(counted.bytes.load(Ordering::Relaxed));
        let rest = Bytes::new();
        http::Response::from_parts(
            head,
            Body::new(Held { body, first, rest, _counted: counted, _held: held, _place: self.place }),
        )
    }
}

/// Bytes counted for a client.
struct Counted {
    of: Arc<ByteCount>,
    bytes: AtomicUsize,
}

impl Counted {
    fn new(of: &Arc<ByteCount>) -> Counted {
        Counted { of: Arc::clone(of), bytes: AtomicUsize::new(0) }
    }

    /// Adds bytes. Returns true if they are within the bound; they are counted in any case.
    fn add(&self, bytes: usize) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.of.add(bytes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.of.sub(*self.bytes.get_mut());
    }
}

/// A request that is being received; `look` examines each part of it, and may refuse it.
struct Incoming<F> {
    body: Body,
    look: F,
}

impl<F: FnMut(&[u8]) -> Result<(), BorderError> + Unpin> hyper::body::Body for Incoming<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(error) = (this.look)(data)
        {
            return Poll::Ready(Some(Err(error.into())));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts the bytes beyond [`SMALL`] of a request with one answer. The call keeps the count until it is
/// answered.
fn counted_request(body: Body, counted: Arc<Counted>) -> Body {
    let mut seen = 0;
    let look = move |data: &[u8]| {
        let before = SMALL.max(seen);
        seen += data.len();
        let more = seen.saturating_sub(before);
        if more > 0 && !counted.add(more) {
            return Err(BorderError::TooManyBytes(counted.of.most()));
        }
        Ok(())
    };
    Body::new(Incoming { body, look })
}

/// Counts the bytes of the incomplete message of a stream of requests.
fn counted_stream(body: Body, mut received: Received) -> Body {
    let mut unfinished = Unfinished::default();
    Body::new(Incoming { body, look: move |data: &[u8]| received.set(unfinished.after(data)) })
}

/// Length of gRPC's message header: a flag for compression, and the length of the message.
const HEADER: usize = 5;

/// A message that has not arrived completely.
#[derive(Default)]
struct Unfinished {
    header: [u8; HEADER],
    /// Bytes of the header that have arrived.
    begun: usize,
    /// Bytes of the message that are missing.
    left: usize,
    /// Bytes of the message that have arrived.
    came: usize,
}

impl Unfinished {
    /// Advances over `data`. Returns how many bytes of an incomplete message are here then.
    fn after(&mut self, mut data: &[u8]) -> usize {
        while !data.is_empty() {
            if self.begun < HEADER {
                let (head, rest) = data.split_at(data.len().min(HEADER - self.begun));
                self.header[self.begun..self.begun + head.len()].copy_from_slice(head);
                self.begun += head.len();
                data = rest;
                let [_, length @ ..] = self.header;
                self.left = u32::from_be_bytes(length) as usize;
            } else {
                let part = data.len().min(self.left);
                (self.left, self.came, data) = (self.left - part, self.came + part, &data[part..]);
            }
            if self.begun == HEADER && self.left == 0 {
                (self.begun, self.came) = (0, 0);
            }
        }
        self.came
    }
}

/// An answer that has not been accepted completely.
struct Held {
    body: Body,
    /// The first frame of the answer, already polled.
    first: Option<Option<Result<Frame<Bytes>, Status>>>,
    /// The rest of a frame that was begun.
    rest: Bytes,
    _counted: Counted,
    _held: super::connection::HeldBytes,
    _place: Place,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let frame = match this.first.take() {
                Some(first) => first,
                None => ready!(Pin::new(&mut this.body).poll_frame(cx)),
            };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let slice = this.rest.split_to(this.rest.len().min(SLICE));
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    /// True also for an answer that was polled and is empty: then its status is in the headers, and gRPC
    /// expects nothing after them.
    fn is_end_stream(&self) -> bool {
        let nothing_first = matches!(self.first, None | Some(None));
        self.rest.is_empty() && nothing_first && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_an_unfinished_message_is_known_however_it_comes() {
        let mut stream =
            [&[0, 0, 0, 0, 3][..], b"abc", &[0, 0, 0, 0, 0], &[0, 0, 0, 1, 0], &[7; 200]].concat();
        assert_eq!(Unfinished::default().after(&stream), 200);
        let mut unfinished = Unfinished::default();
        let last = stream.chunks(1).map(|byte| unfinished.after(byte)).last();
        assert_eq!(last, Some(200));
        assert_eq!(unfinished.after(&[7; 56]), 0);
        stream.truncate(8);
        assert_eq!(unfinished.after(&stream), 0);
        assert_eq!(unfinished.after(&[0, 0, 0, 0, 9]), 0);
        assert_eq!(unfinished.after(b"abc"), 3);
    }
}
