//! A client that is not authenticated yet uses little, and for a short time only.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tonic::codegen::Service;

use super::access::without;
use super::site::{Site, dial, shake_hands};

/// Far longer than any step of these tests: a test that hangs fails.
const LONG: Duration = Duration::from_secs(60);

/// A body that never ends.
struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_refused_before_anything_of_his_call_is_read() {
    let site = Site::new();
    let tokens = site.folder("tokens");
    std::fs::write(&tokens, "").expect("there is room");
    let running = site.start_configured(|config| config.access.tokens = Some(tokens)).await;
    let mut channel = dial(running.address, &without(&site)).await.expect("it may have a token");
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.expect("it is up");
    let request = hyper::Request::post("https://localhost/geolock.v1.Locks/Acquire")
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::new(Never))
        .expect("it is one");
    let answer = timeout(LONG, channel.call(request)).await.expect("in time").expect("an answer");
    assert_eq!(answer.headers()["grpc-status"], "16", "unauthenticated: {answer:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_after_its_handshake_does_not_keep_its_place() {
    let site = Site::new();
    let running =
        site.start_configured(|config| config.api.handshake_timeout = Duration::from_millis(500)).await;
    let mut tls = shake_hands(&site, running.address, b"h2").await;
    let mut said = Vec::new();
    // Reads the settings of the server, and then the end of the connection, with or without an alert.
    let _ = timeout(LONG, tls.read_to_end(&mut said)).await.expect("it is ended");
    running.stop().await;
}
