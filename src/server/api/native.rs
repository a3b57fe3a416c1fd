//! Native connections: each carries one session and is one task. At each wake-up it reads, calls and writes
//! as much as it can.
//!
//! A client is bounded as over gRPC. Its first frame has to come in the time of a handshake. A client that
//! stops reading is no longer read from, and is disconnected when nothing moves. An idle client is pinged. A
//! failed session ends with the status that gRPC would report.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::server::TlsStream;
use tonic::Status;

use super::connection::{Connection, Peer};
use super::error::BorderError;
use super::locks::LocksService;
use super::options::{ApiOptions, MAX_MESSAGE};
use super::serve::reached;
use super::stream::{Calls, ClientStream};
use crate::base::time::brief;
use crate::lock_server::Stage;
use geolock_api::native::{
    self, End, FrameError, FrameSocket, Kind, MAX_START, NATIVE_PROTOCOL, Progress, Start,
};
use geolock_api::proto::{ClientMessage, ERROR_METADATA};

type Socket = FrameSocket<TlsStream<tokio::net::TcpStream>>;

/// Serves connections until the lock server has stopped and all of them have ended.
pub(super) async fn serve(
    mut connections: mpsc::Receiver<Connection>,
    service: Arc<LocksService>,
    stage: watch::Receiver<Stage>,
    options: ApiOptions,
) {
    let mut running = JoinSet::new();
    let stopped = reached(stage, Stage::Stopped);
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            Some(connection) = connections.recv() => {
                running.spawn(attend(connection, Arc::clone(&service), options.clone()));
            }
            Some(ended) = running.join_next() => ended_well(ended),
            () = &mut stopped => break,
        }
    }
    while let Some(ended) = running.join_next().await {
        ended_well(ended);
    }
}

fn ended_well(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

/// Serves one connection, from its first frame to its last.
async fn attend(connection: Connection, service: Arc<LocksService>, options: ApiOptions) {
    let Connection { tls, peer, _places, .. } = connection;
    let knows_pieces = tls.get_ref().1.alpn_protocol() == Some(NATIVE_PROTOCOL);
    // Until the client is authenticated, only short frames are accepted.
    let mut socket = FrameSocket::new(tls, MAX_START);
    if knows_pieces {
        socket.cut_messages();
    }
    let status = match enter(&mut socket, &peer, &service, options.handshake_timeout).await {
        Ok(stream) => {
            socket.allow(MAX_MESSAGE);
            let native =
                NativeStream { socket: &mut socket, stream, silence: Silence::new(options.keep_alive) };
            match native.await {
                Ok(status) => status,
                Err(gone) => {
                    tracing::debug!(peer = %peer.address, %gone, "a native connection is gone");
                    return;
                }
            }
        }
        Err(error) => error.into(),
    };
    socket.put(Kind::End, &end(&status));
    // A client that does not read any more need not get it.
    let _ = timeout(options.goodbye, socket.finish()).await;
}

/// Authenticates the client, whose first frame must come within that time.
async fn enter(
    socket: &mut Socket,
    peer: &Peer,
    service: &LocksService,
    time: Duration,
) -> Result<ClientStream, BorderError> {
    let frame = timeout(time, socket.frame()).await;
    let frame =
        frame.map_err(|_| BorderError::Malformed("no first frame came in the time of a handshake"))??;
    if frame.kind != Kind::Start {
        return Err(FrameError::Unexpected(frame.kind).into());
    }
    let Start { authorization } = native::decode(frame.body)?;
    let shown = Some(&authorization[..]).filter(|shown| !shown.is_empty());
    let authorizer = service.access.admit(peer.address, peer.client.as_ref(), shown)?;
    service.open_stream(authorizer).await
}

fn end(status: &Status) -> End {
    let error = status.metadata().get_bin(ERROR_METADATA).and_then(|error| error.to_bytes().ok());
    End { code: status.code().into(), message: status.message().to_owned(), error: error.unwrap_or_default() }
}

impl Calls for Socket {
    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ClientMessage>, BorderError>> {
        let frame = ready!(self.poll_frame(cx))?;
        Poll::Ready(match frame.kind {
            Kind::Message => Ok(Some(native::decode(frame.body)?)),
            Kind::End => Ok(None),
            kind => Err(FrameError::Unexpected(kind).into()),
        })
    }
}

/// Most answers that one connection gets before others have their turn.
const TURN: usize = 512;

/// A session on a connection. Resolves to the status with which it ends; to an error if the client is gone.
struct NativeStream<'a> {
    socket: &'a mut Socket,
    stream: ClientStream,
    silence: Silence,
}

/// The reason why the client is gone.
#[derive(Debug, thiserror::Error)]
enum Gone {
    #[error("{0}")]
    Socket(#[from] std::io::Error),
    #[error("its client did not move for {}", brief(*.0))]
    Silent(Duration),
}

impl Future for NativeStream<'_> {
    type Output = Result<Status, Gone>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Status, Gone>> {
        let NativeStream { socket, stream, silence } = self.get_mut();
        socket.begin_turn();
        let mut left = TURN;
        loop {
            let mut is_idle = false;
            while !is_idle && left > 0 && socket.has_room() {
                match stream.poll_answer(cx, *socket) {
                    Poll::Ready(Some(Ok(message))) => {
                        socket.put(Kind::Message, &message);
                        left -= 1;
                    }
                    Poll::Ready(Some(Err(status))) => return Poll::Ready(Ok(status)),
                    Poll::Ready(None) => return Poll::Ready(Ok(Status::ok(""))),
                    Poll::Pending => is_idle = true,
                }
            }
            let mut written = socket.poll_write(cx)?;
            while written.is_pending()
                && !socket.has_room()
                && socket.has_room_for_first()
                && let Poll::Ready(renewed) = stream.poll_renewal(cx, *socket)
            {
                match renewed {
                    Ok(message) => socket.put_first(&message),
                    Err(status) => return Poll::Ready(Ok(status)),
                }
                written = socket.poll_write(cx)?;
            }
            if is_idle && stream.has_heard_all() {
                // Reads from the socket to find out if the client is still there; nothing else reads at this
                // point.
                if let Poll::Ready(frame) = socket.poll_frame(cx) {
                    let why = match frame {
                        Ok(frame) => FrameError::Unexpected(frame.kind).into(),
                        Err(error) => BorderError::from(error),
                    };
                    return Poll::Ready(Ok(why.into()));
                }
                // If the client has sent a ping, it is answered now.
                written = socket.poll_write(cx)?;
            }
            if written.is_pending() || is_idle && !stream.holds_back() {
                break;
            }
            if left == 0 {
                cx.waker().wake_by_ref();
                break;
            }
        }
        if let Err(error) = stream.note_received(socket.unfinished()) {
            return Poll::Ready(Ok(error.into()));
        }
        ready!(silence.poll(cx, socket))?;
        Poll::Pending
    }
}

/// Detects a dead client: something must move in each period, or in the period after a ping.
struct Silence {
    limit: Duration,
    alarm: Pin<Box<Sleep>>,
    seen: Progress,
    was_asked: bool,
}

impl Silence {
    fn new(limit: Duration) -> Silence {
        Silence { limit, alarm: Box::pin(sleep(limit)), seen: Progress::default(), was_asked: false }
    }

    /// Ready when the client is gone.
    fn poll(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<Result<(), Gone>> {
        while self.alarm.as_mut().poll(cx).is_ready() {
            let now = socket.progress();
            // A client that the server does not read from, because the server is full, has to prove nothing.
            let is_stuck = now.writes && now.written == self.seen.written;
            // While the client still reads its answers, it need not send anything.
            let is_silent = now.reads && !now.writes && now.read == self.seen.read;
            match (is_stuck || is_silent, self.was_asked) {
                (false, _) => self.was_asked = false,
                (true, true) => return Poll::Ready(Err(Gone::Silent(2 * self.limit))),
                (true, false) => {
                    self.was_asked = true;
                    if socket.has_room() {
                        socket.put(Kind::Ping, &());
                    }
                    // A ping that cannot be written now is written later.
                    let _ = socket.poll_write(cx)?;
                }
            }
            self.seen = socket.progress();
            self.alarm.as_mut().reset(Instant::now() + self.limit);
        }
        Poll::Pending
    }
}
