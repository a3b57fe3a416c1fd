//! A peer with a valid certificate and a valid hello that breaks the rules afterwards.

use quinn::{Connection, SendStream};
use tokio::time::{Duration, timeout};

use super::world::{Node, World, close_reason, dc};
use crate::base::wire::MAX_FRAME;
use crate::interdc::frame::FORMAT;
use crate::interdc::shared::nonce;
use crate::interdc::{DownReason, FrameError, LinkEvent, hello};
use crate::pki::Role;
use geolock_api::names::ClusterId;

/// Datacenter 0, and a raw datacenter 1 with a link to it.
struct Broken {
    world: World,
    right: Node,
    connection: Connection,
    // Kept open as long as the test runs.
    _hello: (SendStream, quinn::RecvStream),
}

impl Broken {
    async fn meet() -> Broken {
        let world = World::new();
        let mut right = world.start(0);
        let raw = world.raw(1, &world.credentials(Role::Dc(dc(1))));
        let connection = raw.connect(&world, 0).await;
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let mut body = b"gloc\x01\x01\xfd".to_vec();
        body.extend_from_slice(&ClusterId::of("test").get().to_le_bytes());
        body.extend_from_slice(&[1, 0, (nonce() % 200) as u8, 0, 0]);
        send.write_all(&[FORMAT, 0, body.len() as u8]).await.unwrap();
        send.write_all(&body).await.unwrap();
        hello::read(&mut receive).await.unwrap();
        hello::write_confirmation(&mut send).await.unwrap();
        right.up().await;
        Broken { world, right, connection, _hello: (send, receive) }
    }

    async fn lane(&self, preamble: &[u8]) -> SendStream {
        let mut stream = self.connection.open_uni().await.unwrap();
        stream.write_all(preamble).await.unwrap();
        stream
    }

    /// All lanes, opened properly.
    async fn lanes(&self) -> [SendStream; 3] {
        [self.lane(&[FORMAT, 0]).await, self.lane(&[FORMAT, 1]).await, self.lane(&[FORMAT, 2]).await]
    }

    /// Asserts that the link goes down for this reason, that the raw peer receives the reason, and that a
    /// real peer can take its place.
    async fn closes_for(mut self, error: FrameError) {
        assert_eq!(self.right.down().await, DownReason::Frame(error));
        let told = close_reason(&self.connection).await;
        assert!(told.contains(&error.to_string()), "{told}");
        // Its endpoint was dropped in `meet`; its socket is free once its last connection is dropped.
        drop((self.connection, self._hello));
        let mut real = self.world.start(1);
        self.right.up().await;
        real.up().await;
    }
}

#[tokio::test]
async fn an_oversized_frame_closes_the_link() {
    let broken = Broken::meet().await;
    let [_urgent, mut bulk, _state] = broken.lanes().await;
    let too_large = MAX_FRAME as u32 + 1;
    bulk.write_all(&too_large.to_be_bytes()).await.unwrap();
    broken.closes_for(FrameError::TooLarge(too_large)).await;
}

#[tokio::test]
async fn a_truncated_frame_closes_the_link() {
    let broken = Broken::meet().await;
    let [mut urgent, _bulk, _state] = broken.lanes().await;
    urgent.write_all(&[0, 0, 0, 9, 1, 2, 3]).await.unwrap();
    urgent.finish().unwrap();
    broken.closes_for(FrameError::Truncated).await;
}

#[tokio::test]
async fn an_empty_frame_closes_the_link() {
    let broken = Broken::meet().await;
    let [mut urgent, _bulk, _state] = broken.lanes().await;
    urgent.write_all(&[0; 4]).await.unwrap();
    broken.closes_for(FrameError::Empty).await;
}

#[tokio::test]
async fn an_unknown_format_closes_the_link() {
    let broken = Broken::meet().await;
    let _lane = broken.lane(&[200, 0]).await;
    broken.closes_for(FrameError::Format { found: 200, known: FORMAT }).await;
}

#[tokio::test]
async fn an_unknown_or_doubled_lane_closes_the_link() {
    let broken = Broken::meet().await;
    let _lane = broken.lane(&[FORMAT, 3]).await;
    broken.closes_for(FrameError::Lane(3)).await;

    let broken = Broken::meet().await;
    let _lanes = [broken.lane(&[FORMAT, 1]).await, broken.lane(&[FORMAT, 1]).await];
    broken.closes_for(FrameError::Lane(1)).await;
}

#[tokio::test]
async fn one_lane_alone_is_no_link() {
    let mut broken = Broken::meet().await;
    let [mut urgent, _bulk, _state] = broken.lanes().await;
    urgent.finish().unwrap();
    assert_eq!(broken.right.down().await, DownReason::Finished);
}

#[tokio::test]
async fn more_streams_than_agreed_are_never_opened() {
    let broken = Broken::meet().await;
    let _lanes = broken.lanes().await;
    // The limit is set before a version is agreed, so it has room for the lane of later versions.
    let _control = broken.connection.open_uni().await.unwrap();
    let mut fifth = Box::pin(broken.connection.open_uni());
    let waited = timeout(Duration::from_millis(50), &mut fifth).await;
    assert!(waited.is_err(), "QUIC itself holds it back");
}

#[tokio::test]
async fn messages_that_come_before_the_break_are_delivered() {
    let mut broken = Broken::meet().await;
    let [mut urgent, _bulk, _state] = broken.lanes().await;
    urgent.write_all(&[0, 0, 0, 2, 7, 8, 0xff, 0, 0, 0]).await.unwrap();
    let event = broken.right.event().await;
    assert!(matches!(&event, LinkEvent::Received { bytes, .. } if bytes[..] == [7, 8]), "{event:?}");
    broken.closes_for(FrameError::TooLarge(0xff00_0000)).await;
}
