//! A small HTTP server for machines: `/metrics`, `/livez`, `/readyz`. It has no TLS, no secrets and no
//! effects; bind it where only the monitoring can reach it.
//!
//! It must not harm the server it reports on. It serves at most [`MAX_CONNECTIONS`] connections at a time,
//! with one request each, and ends each after [`CONNECTION_TIMEOUT`] in any case. One more ends the oldest: a
//! request is answered at once, so that is one that sends nothing, and does not delay a probe.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::classic::{self, classic};
use super::metrics::{self, Metrics};
use super::snapshot::Board;
use crate::access::LogLimit;

pub(super) const MAX_CONNECTIONS: usize = 64;
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REQUEST: usize = 16 << 10;
/// Time that requests in progress get at shutdown.
const GRACE: Duration = Duration::from_secs(1);
/// The pause after a failed accept, as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then answers the requests it has read. All its tasks have ended when it returns.
pub async fn serve(listener: TcpListener, board: Arc<Board>, shutdown: impl Future<Output = ()>) {
    let page = Arc::new(Pages { metrics: Metrics::new(Arc::clone(&board)), board });
    let mut connections = JoinSet::new();
    let failures = LogLimit::default();
    let mut shutdown = pin!(shutdown);
    let mut open = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => pass_on_panic(ended),
            accepted = accept(&listener, &failures) => {
                end_oldest(&mut open);
                open.push_back(connections.spawn(answer(accepted, Arc::clone(&page))));
            }
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(GRACE, async {
        while let Some(ended) = connections.join_next().await {
            pass_on_panic(ended);
        }
    });
    if drained.await.is_err() {
        connections.shutdown().await;
    }
}

/// Makes room for another connection.
fn end_oldest(open: &mut VecDeque<AbortHandle>) {
    open.retain(|connection| !connection.is_finished());
    while open.len() >= MAX_CONNECTIONS {
        open.pop_front().inspect(AbortHandle::abort);
    }
}

fn pass_on_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Returns the next connection. Cancel safe.
async fn accept(listener: &TcpListener, failures: &LogLimit) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if failures.allows(Instant::now()) {
                    tracing::warn!(%error, "cannot accept on the metrics port");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Serves one connection. Errors here are those of the other side: gone, slow, or not HTTP.
async fn answer(stream: TcpStream, pages: Arc<Pages>) {
    let service = service_fn(|request| {
        let response = pages.get(&request, Instant::now());
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_REQUEST)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "metrics connection"),
        Err(_) => tracing::debug!("metrics connection took too long"),
    }
}

struct Pages {
    metrics: Metrics,
    board: Arc<Board>,
}

impl Pages {
    fn get(&self, request: &Request<Incoming>, now: Instant) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(asks_for_open_metrics(request)),
            "/livez" => probe(self.board.alive(now)),
            "/readyz" => probe(self.board.ready()),
            _ => text(StatusCode::NOT_FOUND, "/metrics, /livez or /readyz\n"),
        }
    }

    fn metrics(&self, is_open: bool) -> Response<Full<Bytes>> {
        match self.metrics.render() {
            Ok(page) if is_open => with_type(StatusCode::OK, page, metrics::CONTENT_TYPE),
            Ok(page) => with_type(StatusCode::OK, classic(&page), classic::CONTENT_TYPE),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

/// Prometheus asks for OpenMetrics; other scrapers get the format that all can read.
fn asks_for_open_metrics(request: &Request<Incoming>) -> bool {
    let mut wanted = request.headers().get_all(ACCEPT).iter();
    wanted.any(|wanted| wanted.to_str().is_ok_and(|wanted| wanted.contains("application/openmetrics-text")))
}

fn probe(state: Result<(), String>) -> Response<Full<Bytes>> {
    match state {
        Ok(()) => text(StatusCode::OK, "ok\n"),
        Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response<Full<Bytes>> {
    with_type(status, body.into(), "text/plain; charset=utf-8")
}

fn with_type(status: StatusCode, body: String, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
