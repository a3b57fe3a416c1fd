//! Frames that find their way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use geolock_api::names::{DcId, DcSet};
use proptest::prelude::{any, proptest};

use super::super::frame::{Frame, FrameError, FrameKind, MAX_HOPS};
use super::super::route::{Routes, Step};
use super::dc;
use crate::control::{ControlLinks, ControlTransport, MAX_PAYLOAD, Relay, Unreachable};

fn set(ids: &[u8]) -> DcSet {
    let mut all = DcSet::EMPTY;
    ids.iter().for_each(|id| all.insert(dc(*id)));
    all
}

fn frame(from: u8, to: u8, hops: u8, kind: FrameKind) -> Frame {
    Frame { id: 7, from: dc(from), to: dc(to), hops, kind }
}

const REQUEST: FrameKind = FrameKind::Request(Bytes::from_static(b"r"));

#[test]
fn a_frame_takes_the_link_or_goes_round_the_others() {
    let mut routes = Routes::new(dc(0));
    assert_eq!(routes.first_hop(dc(3), set(&[1, 2, 3])), Some(dc(3)));
    let linked = set(&[1, 2]);
    assert_eq!(routes.first_hop(dc(3), linked), Some(dc(1)));
    assert_eq!(routes.first_hop(dc(3), linked), Some(dc(1)), "it stays while it works");
    routes.failed(dc(3), dc(1), linked);
    assert_eq!(routes.first_hop(dc(3), linked), Some(dc(2)));
    // Word that a way failed that was left before changes nothing.
    routes.failed(dc(3), dc(1), linked);
    assert_eq!(routes.first_hop(dc(3), linked), Some(dc(2)));
    routes.failed(dc(3), dc(2), linked);
    assert_eq!(routes.first_hop(dc(3), linked), Some(dc(1)));
    assert_eq!(routes.first_hop(dc(3), set(&[2])), Some(dc(2)), "a link that is gone is no way");
    assert_eq!(routes.first_hop(dc(3), DcSet::EMPTY), None);
}

#[test]
fn a_frame_is_passed_on_once_and_only_to_its_addressee() {
    let routes = Routes::new(dc(1));
    let linked = set(&[0, 2]);
    let passed = Step::Send(dc(2), frame(0, 2, 0, REQUEST));
    assert_eq!(routes.arrived(frame(0, 2, 1, REQUEST), dc(0), linked), passed);
    assert_eq!(
        routes.arrived(frame(0, 1, 1, REQUEST), dc(0), linked),
        Step::Deliver(frame(0, 1, 1, REQUEST))
    );
    let no_route = |to: u8| Step::Send(dc(0), frame(to, 0, MAX_HOPS, FrameKind::NoRoute));
    assert_eq!(routes.arrived(frame(0, 2, 0, REQUEST), dc(0), linked), no_route(2));
    assert_eq!(routes.arrived(frame(0, 5, 1, REQUEST), dc(0), linked), no_route(5));
    assert_eq!(routes.arrived(frame(0, 5, 1, FrameKind::Busy), dc(0), linked), Step::Drop);
    assert_eq!(routes.arrived(frame(1, 5, 1, REQUEST), dc(0), linked), Step::Drop, "it was its own");
}

#[test]
fn frames_that_break_the_limits_are_errors() {
    let decode = |frame: Frame| Frame::decode(&frame.encode());
    assert_eq!(decode(frame(1, 1, 0, REQUEST)), Err(FrameError::ToItself(dc(1))));
    assert_eq!(decode(frame(1, 2, 9, REQUEST)), Err(FrameError::Hops(9)));
    let large = FrameKind::Request(vec![0; MAX_PAYLOAD + 65].into());
    assert!(matches!(decode(frame(1, 2, 0, large)), Err(FrameError::TooLarge(_))));
    let full = frame(1, 2, 0, FrameKind::Request(vec![0; MAX_PAYLOAD].into()));
    assert_eq!(decode(full.clone()), Ok(full));
    assert!(matches!(Frame::decode(b""), Err(FrameError::Malformed(_))));
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(frame) = Frame::decode(&bytes) {
            let _ = Routes::new(dc(1)).arrived(frame, dc(0), set(&[0, 2]));
        }
    }
}

/// Links in memory; each member answers a request with itself and the request.
struct Mesh {
    links: Mutex<Vec<(u8, u8)>>,
    relays: Mutex<BTreeMap<DcId, Arc<Relay<End>>>>,
}

struct End {
    me: DcId,
    mesh: Weak<Mesh>,
}

impl ControlLinks for End {
    fn linked(&self) -> DcSet {
        let mut linked = DcSet::EMPTY;
        let Some(mesh) = self.mesh.upgrade() else { return linked };
        for (a, b) in mesh.links.lock().unwrap().iter() {
            match self.me.get() {
                me if me == *a => linked.insert(dc(*b)),
                me if me == *b => linked.insert(dc(*a)),
                _ => {}
            }
        }
        linked
    }

    fn round_trip(&self, to: DcId) -> Option<Duration> {
        self.linked().contains(to).then_some(Duration::from_millis(1))
    }

    fn send(&self, to: DcId, frame: Bytes) -> bool {
        let mesh = self.mesh.upgrade().filter(|_| self.linked().contains(to));
        let Some(mesh) = mesh else { return false };
        let (me, relay) = (self.me, mesh.relays.lock().unwrap()[&to].clone());
        tokio::spawn(async move {
            let incoming = relay.received(me, &frame).expect("a good frame");
            if let Some(incoming) = incoming {
                match &incoming.request[..] {
                    b"busy" => relay.refuse(&incoming),
                    b"silent" => {}
                    request => relay.answer(&incoming, [&[to.get()], request].concat().into()),
                }
            }
        });
        true
    }
}

fn mesh(members: u8, links: &[(u8, u8)]) -> Arc<Mesh> {
    let mesh = Arc::new(Mesh { links: Mutex::new(links.to_vec()), relays: Mutex::default() });
    for id in (0..members).map(dc) {
        let relay = Relay::new(id, End { me: id, mesh: Arc::downgrade(&mesh) }, 1 << 40);
        mesh.relays.lock().unwrap().insert(id, relay);
    }
    mesh
}

impl Mesh {
    async fn call(&self, from: u8, to: u8, request: &'static [u8]) -> Result<Bytes, Unreachable> {
        let relay = self.relays.lock().unwrap()[&dc(from)].clone();
        relay.call(dc(to), Bytes::from_static(request)).await
    }
}

#[tokio::test]
async fn members_without_a_link_talk_by_way_of_a_third() {
    let mesh = mesh(4, &[(0, 1), (0, 2), (2, 3)]);
    assert_eq!(mesh.call(0, 1, b"x").await, Ok(Bytes::from_static(b"\x01x")));
    // 1 has no link to 3: the first try fails, the next goes by 2.
    assert_eq!(mesh.call(0, 3, b"x").await, Err(Unreachable::NoRoute(dc(3))));
    assert_eq!(mesh.call(0, 3, b"x").await, Ok(Bytes::from_static(b"\x03x")));
    assert_eq!(mesh.call(1, 2, b"y").await, Ok(Bytes::from_static(b"\x02y")));
    assert_eq!(mesh.call(1, 3, b"y").await, Err(Unreachable::NoRoute(dc(3))), "two in between are too many");
    assert_eq!(mesh.call(0, 3, b"busy").await, Err(Unreachable::Busy));
}

#[tokio::test]
async fn a_call_ends_with_its_link() {
    let mesh = mesh(2, &[(0, 1)]);
    let waiting = tokio::spawn({
        let mesh = mesh.clone();
        async move { mesh.call(0, 1, b"silent").await }
    });
    // The call is under way once this one, made after it, is answered.
    tokio::task::yield_now().await;
    assert_eq!(mesh.call(0, 1, b"x").await, Ok(Bytes::from_static(b"\x01x")));
    mesh.links.lock().unwrap().clear();
    let relay = mesh.relays.lock().unwrap()[&dc(0)].clone();
    relay.link_down(dc(1));
    assert_eq!(waiting.await.expect("no panic"), Err(Unreachable::LinkLost(dc(1))));
    assert_eq!(mesh.call(0, 1, b"x").await, Err(Unreachable::NoRoute(dc(1))));
    let large = relay.call(dc(1), vec![0; MAX_PAYLOAD + 1].into()).await;
    assert!(matches!(large, Err(Unreachable::TooLarge { .. })));
}

#[tokio::test]
async fn calls_that_wait_are_limited_and_forgotten_with_their_callers() {
    let mesh = mesh(2, &[(0, 1)]);
    let relay = mesh.relays.lock().unwrap()[&dc(0)].clone();
    let mut waiting: Vec<_> = (0..256).map(|_| relay.call(dc(1), Bytes::from_static(b"silent"))).collect();
    for call in &mut waiting {
        assert!(futures_poll(call).await, "it waits");
    }
    assert_eq!(mesh.call(0, 1, b"x").await, Err(Unreachable::Busy));
    drop(waiting);
    assert_eq!(mesh.call(0, 1, b"x").await, Ok(Bytes::from_static(b"\x01x")));
}

/// Polls a call once. Returns true if it waits.
async fn futures_poll(call: &mut crate::control::Calling<'_>) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending())).await
}
