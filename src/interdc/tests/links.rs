//! Two datacenters that work properly.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::timeout;

use super::world::{Node, PATIENCE, Way, World, dc};
use crate::base::wire::MAX_FRAME;
use crate::interdc::transport::STREAM_WINDOW;
use crate::interdc::{
    DownReason, Interdc, InterdcConfig, Lane, LastAddresses, LinkEvent, QueueBound, SendError, Wan,
};
use crate::pki::{CA_FILE, Credentials, Role, Validity};

#[tokio::test]
async fn either_side_may_start_first() {
    for first in [0, 1] {
        let world = World::new();
        let config = world.config(first);
        let mut early =
            world.start_with(InterdcConfig { peer_timeout: Duration::from_millis(500), ..config });
        early.peer_error("").await;
        let mut late = world.start(1 - first);
        assert_eq!(early.up().await.peer(), dc(1 - first));
        assert_eq!(late.up().await.peer(), dc(first));
        late.interdc.shutdown().await;
        early.interdc.shutdown().await;
    }
}

#[tokio::test]
async fn only_one_side_can_be_reached() {
    for reachable in [0, 1] {
        let world = World::new();
        let mut config = world.config(reachable);
        config.peers[0].1 = "127.0.0.1:1".into();
        let mut passive = world.start_with(config);
        let mut active = world.start(1 - reachable);
        passive.up().await;
        active.up().await;
    }
}

/// A firewall or NAT between them has an entry for the port of one side that leads nowhere.
#[tokio::test]
async fn a_port_that_nothing_answers_is_exchanged() {
    let world = World::new();
    let way = Way::to(world.address(1), world.address(0)).await;
    let config = |id, peer: SocketAddr| {
        let mut config = world.config(id);
        config.peers[0].1 = peer.to_string();
        InterdcConfig { peer_timeout: Duration::from_millis(500), ..config }
    };
    let nowhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut passive = world.start_with(config(1, nowhere.local_addr().unwrap()));
    let mut active = world.start_with(config(0, way.address));
    let link = active.up().await;
    passive.up().await;
    let message = Bytes::from_static(b"from another port");
    active.interdc.send(link, Lane::Urgent, message.clone()).unwrap();
    assert_eq!(passive.message().await.1, message);
    active.interdc.shutdown().await;
    assert_eq!(passive.down().await, DownReason::Finished);
    passive.interdc.shutdown().await;
}

/// No name server answers for `.invalid` (RFC 6761).
#[tokio::test]
async fn an_address_of_an_earlier_run_is_used_while_its_name_is_gone() {
    let world = World::new();
    let gone = format!("gone.invalid:{}", world.address(1).port());
    let mut config = world.config(0);
    config.peers[0].1 = gone.clone();
    config.addresses = LastAddresses::new([(gone, world.address(1))].into());
    let mut other = world.config(1);
    other.peers[0].1 = "127.0.0.1:1".into();
    let (mut active, mut passive) = (world.start_with(config), world.start_with(other));
    active.up().await;
    passive.up().await;
}

#[tokio::test]
async fn simultaneous_dials_end_in_one_link_that_stays() {
    for _ in 0..20 {
        let world = World::new();
        let (mut low, mut high) = (world.start(0), world.start(1));
        let (to_high, to_low) = (low.up().await, high.up().await);
        // All other attempts have ended by the time many round trips have passed on the link.
        for turn in 0..30_u32 {
            low.interdc.send(to_high, Lane::Urgent, Bytes::copy_from_slice(&turn.to_be_bytes())).unwrap();
            assert_eq!(high.message().await.1.as_ref(), turn.to_be_bytes());
            high.interdc.send(to_low, Lane::Urgent, Bytes::copy_from_slice(&turn.to_be_bytes())).unwrap();
            assert_eq!(low.message().await.1.as_ref(), turn.to_be_bytes());
        }
        assert_eq!((low.stats().reconnects, high.stats().reconnects), (0, 0));
        assert!(low.stats().up && high.stats().up);
        // A double dial is normal and counts as no error.
        for node in [&low, &high] {
            let (all, peer) = (node.interdc.stats(), node.stats());
            assert_eq!((all.refused, all.last_refusal, peer.last_error), (0, None, None));
        }
    }
}

#[tokio::test]
async fn simultaneous_dials_from_afar_end_in_one_link_that_stays() {
    // The delays in the two directions differ, so that each side in turn is far ahead of the other.
    for (there, back) in [(20, 20), (1, 30), (30, 1)] {
        let world = World::new();
        let far = |id: u8, one_way| {
            let wan = Wan::new(1);
            wan.set_delay(world.address(1 - id), Duration::from_millis(one_way));
            InterdcConfig { wan: Some(wan), ..world.config(id) }
        };
        let (mut low, mut high) = (world.start_with(far(0, there)), world.start_with(far(1, back)));
        let (to_high, to_low) = (low.up().await, high.up().await);
        for _ in 0..10 {
            low.interdc.send(to_high, Lane::Urgent, Bytes::from_static(b"ping")).unwrap();
            high.message().await;
            high.interdc.send(to_low, Lane::Urgent, Bytes::from_static(b"pong")).unwrap();
            low.message().await;
        }
        assert_eq!((low.stats().reconnects, high.stats().reconnects), (0, 0));
    }
}

#[tokio::test]
async fn ten_thousand_messages_arrive_in_order_on_every_lane() {
    const MESSAGES: u32 = 10_000;
    let world = World::new();
    let (mut low, mut high) = (world.start(0), world.start(1));
    let (to_high, to_low) = (low.up().await, high.up().await);
    for number in 0..MESSAGES {
        for lane in Lane::ALL {
            let mut message = number.to_be_bytes().to_vec();
            message.resize(size_of_message(number), lane.index() as u8);
            low.interdc.send(to_high, lane, message.clone().into()).unwrap();
            high.interdc.send(to_low, lane, message.into()).unwrap();
        }
    }
    tokio::join!(gets_all(&mut low, MESSAGES), gets_all(&mut high, MESSAGES));
}

#[tokio::test]
async fn urgent_messages_come_while_others_are_not_taken() {
    const MESSAGES: u32 = 10_000;
    let world = World::new();
    let (mut low, mut high) = (world.start(0), world.start(1));
    let (to_high, _) = (low.up().await, high.up().await);
    high.interdc.take_bulk(false);
    for number in 0..MESSAGES {
        let message = Bytes::copy_from_slice(&number.to_be_bytes());
        low.interdc.send(to_high, Lane::Bulk, message.clone()).unwrap();
        low.interdc.send(to_high, Lane::State, message.clone()).unwrap();
        low.interdc.send(to_high, Lane::Urgent, message).unwrap();
    }
    // The events of the sender are read, too: a link blocks until its `Flushed` events are read.
    let flushed = tokio::spawn(async move {
        let mut left = 0;
        while left < 3 * MESSAGES as usize {
            if let LinkEvent::Flushed { messages, .. } = low.event().await {
                left += messages;
            }
        }
        low
    });
    for number in 0..MESSAGES {
        assert_eq!(high.message().await, (Lane::Urgent, Bytes::copy_from_slice(&number.to_be_bytes())));
    }
    high.interdc.take_bulk(true);
    let mut next = [0_u32; Lane::COUNT];
    for _ in 0..2 * MESSAGES {
        let (lane, message) = high.message().await;
        assert!(lane != Lane::Urgent && message.as_ref() == next[lane.index()].to_be_bytes());
        next[lane.index()] += 1;
    }
    flushed.await.expect("all messages leave");
}

/// Each of the other lanes blocks with as many bytes as its own window admits.
#[tokio::test]
async fn urgent_messages_come_while_both_others_are_full() {
    let world = World::new();
    let (mut low, mut high) = (world.start(0), world.start(1));
    let (to_high, _) = (low.up().await, high.up().await);
    high.interdc.take_bulk(false);
    let large = Bytes::from(vec![7; 1 << 20]);
    for lane in [Lane::Bulk, Lane::State] {
        for _ in 0..4 {
            low.interdc.send(to_high, lane, large.clone()).unwrap();
        }
    }
    // One message of each lane is read and not passed on; beyond that each lane has a window. A receiver
    // tells of more room only when it is an eighth of the window (quinn 0.11).
    let full = 2 * (large.len() as u64 + u64::from(STREAM_WINDOW) * 7 / 8);
    let filled = async {
        while low.stats().wire.bytes_sent < full {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, filled).await.unwrap_or_else(|_| panic!("{full} bytes, not {:?}", low.stats().wire));
    const MESSAGES: u32 = 200;
    for number in 0..MESSAGES {
        let mut message = number.to_be_bytes().to_vec();
        message.resize(16 << 10, 0);
        low.interdc.send(to_high, Lane::Urgent, message.into()).unwrap();
    }
    let reads = async {
        for _ in 0_u64.. {
            low.event().await;
        }
    };
    let comes = async {
        for number in 0..MESSAGES {
            let (lane, bytes) = high.message().await;
            assert_eq!((lane, &bytes[..4]), (Lane::Urgent, &number.to_be_bytes()[..]));
        }
    };
    tokio::select! {
        () = comes => {}
        () = reads => {}
    }
}

/// Most messages are copied together with others; some are sent as they are and take many packets.
fn size_of_message(number: u32) -> usize {
    if number.is_multiple_of(50) { 20_000 } else { 4 + number as usize % 200 }
}

/// Reads until all messages have arrived, in order, and all own ones have left.
async fn gets_all(node: &mut Node, messages: u32) {
    let (mut next, mut flushed) = ([0_u32; Lane::COUNT], [0_usize; Lane::COUNT]);
    while next != [messages; Lane::COUNT] || flushed != [messages as usize; Lane::COUNT] {
        match node.event().await {
            LinkEvent::Received { lane, bytes, .. } => {
                let expected = &mut next[lane.index()];
                assert_eq!(bytes[..4], expected.to_be_bytes());
                assert_eq!(bytes.len(), size_of_message(*expected));
                assert!(bytes[4..].iter().all(|byte| *byte == lane.index() as u8));
                *expected += 1;
            }
            LinkEvent::Flushed { lane, messages, .. } => flushed[lane.index()] += messages,
            other => panic!("{other:?}"),
        }
    }
    let stats = node.stats();
    for lane in [stats.urgent, stats.bulk, stats.state, stats.control] {
        assert_eq!((lane.messages_sent, lane.messages_received), (messages.into(), messages.into()));
        assert_eq!(lane.bytes_sent, lane.bytes_received);
    }
    assert!(stats.up && stats.rtt.is_some());
    // More bytes go over the wire than the messages have.
    let said = stats.urgent.bytes_sent + stats.bulk.bytes_sent + stats.state.bytes_sent;
    assert!(stats.wire.bytes_sent > said && stats.wire.bytes_received > said, "{stats:?}");
}

#[tokio::test]
async fn the_largest_message_passes_and_a_larger_one_resets_the_link() {
    let world = World::new();
    let (mut low, mut high) = (world.start(0), world.start(1));
    let mut to_high = low.up().await;
    high.up().await;
    low.interdc.send(to_high, Lane::Bulk, vec![7; MAX_FRAME].into()).unwrap();
    assert_eq!(high.message().await, (Lane::Bulk, Bytes::from(vec![7; MAX_FRAME])));
    for size in [0, MAX_FRAME + 1] {
        let refused = low.interdc.send(to_high, Lane::Bulk, vec![7; size].into());
        assert_eq!(refused, Err(SendError::Size(size)));
        assert_eq!(low.down().await, DownReason::MessageSize(size));
        to_high = low.up().await;
    }
}

#[tokio::test]
async fn a_peer_that_is_stopped_and_started_is_met_again() {
    for stays in [0, 1] {
        let world = World::new();
        let (mut stays, mut goes) = (world.start(stays), world.start(1 - stays));
        for round in 0..3 {
            let link = stays.up().await;
            let back = goes.up().await;
            goes.interdc.send(back, Lane::Bulk, Bytes::from_static(b"goodbye")).unwrap();
            let id = back.peer().get();
            goes.interdc.shutdown().await;
            assert_eq!(stays.message().await.1.as_ref(), b"goodbye", "what is queued still goes out");
            let reason = stays.down().await;
            assert!(matches!(reason, DownReason::Finished | DownReason::ClosedByPeer(_)), "{reason:?}");
            assert_eq!(stays.interdc.send(link, Lane::Bulk, Bytes::from_static(b"x")), Err(SendError::Gone));
            assert_eq!(stays.stats().reconnects, round);
            goes = world.start(1 - id);
        }
    }
}

#[tokio::test]
async fn a_peer_that_restarts_without_a_word_replaces_its_half_dead_link() {
    for stayer in [0, 1] {
        let world = World::new();
        let (wan, goes_to) = (Wan::new(1), world.address(stayer));
        let mut config = world.config(1 - stayer);
        config.wan = Some(wan.clone());
        // Neither side may detect the loss by its timeout during this test.
        config.peer_timeout = Duration::from_secs(3_600);
        let mut stays_config = world.config(stayer);
        stays_config.peer_timeout = Duration::from_secs(3_600);
        let (mut stays, mut goes) = (world.start_with(stays_config), world.start_with(config));
        stays.up().await;
        goes.up().await;
        wan.cut(goes_to);
        goes.interdc.shutdown().await;

        let mut again = world.start(1 - stayer);
        assert_eq!(stays.down().await, DownReason::Replaced);
        stays.up().await;
        again.up().await;
    }
}

#[tokio::test]
async fn a_silent_peer_is_gone_after_its_timeout_and_comes_back() {
    let world = World::new();
    let (wan, to_high) = (Wan::new(1), world.address(1));
    let mut config = world.config(0);
    config.wan = Some(wan.clone());
    config.peer_timeout = Duration::from_millis(300);
    let (mut low, mut high) = (world.start_with(config), world.start(1));
    low.up().await;
    high.up().await;
    wan.cut(to_high);
    assert_eq!(high.down().await, DownReason::TimedOut);
    assert_eq!(low.down().await, DownReason::TimedOut);
    wan.heal(to_high);
    low.up().await;
    high.up().await;
}

#[tokio::test]
async fn a_full_queue_resets_the_link() {
    let world = World::new();
    let (mut low, mut high) = (world.start_with(bounded(&world, 1_000)), world.start(1));
    let link = low.up().await;
    high.up().await;
    // The other side's events are not read: first they fill up, then QUIC's window, then the queue.
    let message = Bytes::from(vec![7; 1 << 20]);
    let full = loop {
        match low.interdc.send(link, Lane::Bulk, message.clone()) {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(full, SendError::Full { lane: Lane::Bulk });
    assert_eq!(low.down().await, DownReason::QueueFull { lane: Lane::Bulk });
    // The peer may never receive the reason here: it is sent in one datagram, and buffers on the path are
    // full.
    while !matches!(high.event().await, LinkEvent::Down { .. }) {}
    let link = low.up().await;
    high.up().await;
    low.interdc.send(link, Lane::Urgent, Bytes::from_static(b"again")).unwrap();
    assert_eq!(high.message().await.1.as_ref(), b"again");
}

#[tokio::test]
async fn the_peer_reads_that_a_queue_was_full() {
    let world = World::new();
    // Room for one message, so that next to nothing is in flight when the queue is full: the packet with the
    // reason must not wait for room on the path (see `link.rs`).
    let (mut low, mut high) = (world.start_with(bounded(&world, 1)), world.start(1));
    let link = low.up().await;
    high.up().await;
    let message = Bytes::from_static(b"one of many");
    let mut sends = std::iter::repeat_with(|| low.interdc.send(link, Lane::Bulk, message.clone()));
    assert_eq!(sends.find_map(Result::err), Some(SendError::Full { lane: Lane::Bulk }));
    assert_eq!(low.down().await, DownReason::QueueFull { lane: Lane::Bulk });
    // Some may have been sent before the queue was full.
    let reason = loop {
        match high.event().await {
            LinkEvent::Down { reason, .. } => break reason,
            LinkEvent::Received { bytes, .. } => assert_eq!(bytes, message),
            other => panic!("a message or down expected, not {other:?}"),
        }
    };
    assert!(matches!(&reason, DownReason::ClosedByPeer(why) if why.contains("queue")), "{reason}");
}

/// The lower datacenter, with room for that many messages on a lane.
fn bounded(world: &World, messages: usize) -> InterdcConfig {
    InterdcConfig { queue: QueueBound { messages, bytes: 8 << 20 }, ..world.config(0) }
}

#[tokio::test]
async fn a_link_closed_here_tells_the_peer_why_and_comes_back() {
    let world = World::new();
    let (mut low, mut high) = (world.start(0), world.start(1));
    let link = low.up().await;
    high.up().await;
    low.interdc.close(link, "entry dc1:7 has a gap before it");
    let reason = low.down().await;
    assert_eq!(reason, DownReason::ClosedHere("entry dc1:7 has a gap before it".into()));
    let reason = high.down().await;
    assert!(matches!(&reason, DownReason::ClosedByPeer(why) if why.contains("gap before it")), "{reason}");
    let next = low.up().await;
    high.up().await;
    assert_ne!(next, link);
    low.interdc.close(link, "too late");
    low.interdc.send(next, Lane::Urgent, Bytes::from_static(b"again")).unwrap();
    assert_eq!(high.message().await.1.as_ref(), b"again");
}

#[tokio::test]
async fn shutdown_ends_everything_even_if_nobody_reads() {
    let world = World::new();
    let (mut low, mut high) = (world.start(0), world.start(1));
    let link = low.up().await;
    high.up().await;
    for _ in 0..1_000 {
        low.interdc.send(link, Lane::Bulk, Bytes::from_static(b"unread")).unwrap();
    }
    high.interdc.shutdown().await;
    let links = low.interdc.links();
    low.interdc.shutdown().await;
    assert_eq!(links.send(link, Lane::Bulk, Bytes::from_static(b"x")), Err(SendError::Gone));
    let address = world.address(0);
    let config = world.config(0);
    drop(world);
    let (sender, _events) = tokio::sync::mpsc::channel(1);
    let again = Interdc::start(InterdcConfig { listen: address, ..config }, sender).unwrap();
    assert_eq!(again.local_address(), address);
    again.shutdown().await;
}

#[tokio::test]
async fn delayed_links_take_their_time_and_lossy_ones_lose_nothing() {
    let world = World::new();
    let wans = [0, 1].map(|id: u8| {
        let wan = Wan::new(id.into());
        wan.set_delay(world.address(1 - id), Duration::from_millis(10));
        wan
    });
    let [low, high] = wans.clone().map(Some);
    let mut low = world.start_with(InterdcConfig { wan: low, ..world.config(0) });
    let mut high = world.start_with(InterdcConfig { wan: high, ..world.config(1) });
    let link = low.up().await;
    high.up().await;
    // Losses begin here: a dial whose confirmation is lost may be replaced by another one, and messages sent
    // by then would be lost.
    for (id, wan) in (0..).zip(&wans) {
        wan.set_loss(world.address(1 - id), 0.05);
    }
    for number in 0..1_000_u32 {
        low.interdc.send(link, Lane::Bulk, Bytes::copy_from_slice(&number.to_be_bytes())).unwrap();
    }
    let arrive = async {
        for number in 0..1_000_u32 {
            assert_eq!(high.message().await.1.as_ref(), number.to_be_bytes());
        }
    };
    tokio::join!(arrive, low.flushed(1_000));
    assert!(low.stats().rtt.unwrap() >= Duration::from_millis(20));
}

#[tokio::test]
async fn renewed_credentials_end_no_link_and_count_for_the_next() {
    // The side that can be reached accepts, the other one dials: both have to use the new credentials.
    for reachable in [0, 1] {
        let (world, next) = (World::new(), World::new());
        let (renew, tls) = watch::channel(world.credentials(Role::Dc(dc(0))));
        let (mut ours, mut theirs) = (InterdcConfig { tls, ..world.config(0) }, world.config(1));
        let unreachable = if reachable == 0 { &mut ours } else { &mut theirs };
        unreachable.peers[0].1 = "127.0.0.1:1".into();
        let (mut here, mut there) = (world.start_with(ours), world.start_with(theirs.clone()));
        let link = here.up().await;
        there.up().await;

        // Issued by another authority, which the other side does not know; it trusts both.
        let folder = next.issue(Role::Dc(dc(0)), Validity::days(1));
        let known =
            std::fs::read_to_string(world.issue(Role::Dc(dc(0)), Validity::days(1)).join(CA_FILE)).unwrap();
        let both = known + &std::fs::read_to_string(folder.join(CA_FILE)).unwrap();
        std::fs::write(folder.join(CA_FILE), both).unwrap();
        renew.send_replace(Credentials::load(&folder).unwrap());
        here.interdc.send(link, Lane::Urgent, Bytes::from_static(b"still here")).unwrap();
        assert_eq!(there.message().await.1.as_ref(), b"still here");

        there.interdc.shutdown().await;
        here.down().await;
        // A peer that trusts the new authority only.
        let tls = watch::channel(next.credentials(Role::Dc(dc(1)))).1;
        let mut there = world.start_with(InterdcConfig { tls, ..theirs });
        here.up().await;
        there.up().await;
    }
}
