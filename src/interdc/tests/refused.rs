//! Peers that are not the ones they must be.

use std::net::UdpSocket;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::world::{Raw, World, close_reason, dc};
use crate::base::wire::NEXT_VERSION;
use crate::interdc::{Interdc, InterdcConfig, InterdcError, hello};
use crate::pki::{Role, Validity};

/// Starts datacenter 0 properly and datacenter 1 with `changed`, and returns the error of each about the
/// other.
async fn quarrel(world: &World, changed: InterdcConfig, wanted: &str) -> [String; 2] {
    let (right, wrong) = (world.start(0), world.start_with(changed));
    let said = [right.peer_error(wanted).await, wrong.peer_error(wanted).await];
    assert!(!right.stats().up && !wrong.stats().up);
    said
}

#[tokio::test]
async fn another_generation_is_refused_and_both_say_so() {
    let world = World::new();
    let right = world.start_with(InterdcConfig { peers: Vec::new(), ..world.config(0) });
    right.interdc.links().add_peer(dc(1), &world.address(1).to_string(), 0);
    let wrong = world.start_with(InterdcConfig { generation: 7, ..world.config(1) });
    for node in [&right, &wrong] {
        node.peer_error("it is server 7 with this id, known here is server 0").await;
        assert!(!node.stats().up);
    }
}

#[tokio::test]
async fn no_common_version_is_refused_and_both_say_so() {
    let world = World::new();
    let config = InterdcConfig { versions: NEXT_VERSION..=NEXT_VERSION + 1, ..world.config(1) };
    let (ours, theirs) =
        (format!("1 to {}", NEXT_VERSION - 1), format!("{NEXT_VERSION} to {}", NEXT_VERSION + 1));
    for said in quarrel(&world, config, "protocol versions").await {
        assert!(said.contains(&ours) && said.contains(&theirs), "{said}");
    }
}

#[tokio::test]
async fn the_highest_common_version_is_spoken() {
    let world = World::new();
    let mut low = world.start_with(InterdcConfig { versions: 1..=4, ..world.config(0) });
    let mut high = world.start_with(InterdcConfig { versions: 3..=9, ..world.config(1) });
    for node in [&mut low, &mut high] {
        let up = node.event().await;
        assert!(matches!(up, crate::interdc::LinkEvent::Up { version: 4, .. }), "{up:?}");
    }
}

#[tokio::test]
async fn a_release_and_the_one_before_it_work_together() {
    let world = World::new();
    // An upgrade: one after the other speaks the next version, too. The links use the common version.
    for (old, new) in [(1..=1, 1..=2), (1..=2, 1..=2), (1..=2, 2..=3)] {
        let common = *old.end();
        let mut first = world.start_with(InterdcConfig { versions: old, ..world.config(0) });
        let mut second = world.start_with(InterdcConfig { versions: new, ..world.config(1) });
        for node in [&mut first, &mut second] {
            let up = node.event().await;
            assert!(
                matches!(up, crate::interdc::LinkEvent::Up { version, .. } if version == common),
                "{up:?} where {common} is common"
            );
        }
    }
}

#[tokio::test]
async fn a_datacenter_that_is_no_peer_is_refused() {
    let world = World::new();
    let right = world.start(0);
    let stranger = world.raw(1, &world.credentials(Role::Dc(dc(5))));
    let connection = stranger.connect(&world, 0).await;
    let reason = close_reason(&connection).await;
    assert!(reason.contains("dc5 is no member"), "{reason}");
    right.refusal("dc5 is no member").await;
}

#[tokio::test]
async fn another_datacenter_at_the_peers_address_is_refused() {
    let world = World::new();
    let right = world.start(0);
    let stranger = world.raw(1, &world.credentials(Role::Dc(dc(5))));
    let refused = async { stranger.endpoint.accept().await.unwrap().await.map(|_| ()) };
    let (error, refused) = tokio::join!(right.peer_error("must be datacenter dc1"), refused);
    assert!(refused.is_err());
    assert!(error.contains("geolock://test/dc/5"), "{error}");
}

#[tokio::test]
async fn a_clients_certificate_is_refused() {
    let world = World::new();
    let right = world.start(0);
    let mut credentials = world.credentials(Role::Dc(dc(1)));
    credentials.replace_pair_unchecked(&world.issue(Role::Client("ci".into()), Validity::days(1)));
    let stranger = world.raw(1, &credentials);
    // It may appear connected at first: the certificate is checked last.
    let connection = stranger.connect(&world, 0).await;
    let reason = close_reason(&connection).await;
    assert!(reason.contains("geolock://test/client/ci"), "{reason}");
    right.refusal("geolock://test/client/ci").await;
}

#[tokio::test]
async fn an_expired_certificate_is_refused_in_both_directions() {
    let world = World::new();
    let until = SystemTime::now() - Duration::from_secs(60);
    let expired = Validity { from: until - Duration::from_secs(60), until };
    let mut tls = world.credentials(Role::Dc(dc(1)));
    tls.replace_pair_unchecked(&world.issue(Role::Dc(dc(1)), expired));
    let config = InterdcConfig { tls: watch::channel(tls).1, ..world.config(1) };
    let (right, wrong) = (world.start(0), world.start_with(config));
    right.peer_error("expired").await;
    right.refusal("expired").await;
    wrong.peer_error("expired").await;
}

#[tokio::test]
async fn another_cluster_in_the_hello_is_refused() {
    let world = World::new();
    let right = world.start(0);
    let peer = world.raw(1, &world.credentials(Role::Dc(dc(1))));
    let reason = greeted(&peer.connect(&world, 0).await, HELLO_OF_ANOTHER_CLUSTER).await;
    assert!(reason.contains("its cluster is 0000000000000007"), "{reason}");
    right.peer_error("its cluster is").await;
}

#[tokio::test]
async fn a_hello_of_another_datacenter_than_the_certificates_is_refused() {
    let world = World::new();
    let right = world.start(0);
    let peer = world.raw(1, &world.credentials(Role::Dc(dc(1))));
    let cluster = geolock_api::names::ClusterId::of("test").get().to_le_bytes();
    let mut body = b"gloc\x01\x01\xfd".to_vec();
    body.extend_from_slice(&cluster);
    body.extend_from_slice(&[2, 0, 5, 0, 0]);
    let reason = greeted(&peer.connect(&world, 0).await, &body).await;
    assert!(reason.contains("it says it is dc2, its certificate says dc1"), "{reason}");
    right.peer_error("it says it is dc2").await;
}

#[tokio::test]
async fn garbage_instead_of_a_hello_is_refused_and_the_server_lives_on() {
    let world = World::new();
    let mut right = world.start(0);
    let peer = world.raw(1, &world.credentials(Role::Dc(dc(1))));
    let cases: [(&[u8], &str); 5] = [
        (&[9, 0, 0], "format 9"),
        (&[1, 0xff, 0xff], "65535 bytes"),
        (&[1, 0, 3, 1, 2, 3], "hello"),
        (b"GET / HTTP/1.1\r\n\r\n", "format 71"),
        (&[1, 0], "ends too soon"),
    ];
    for (bytes, wanted) in cases {
        let connection = peer.connect(&world, 0).await;
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
        let reason = close_reason(&connection).await;
        assert!(reason.contains(wanted), "{wanted}: {reason}");
        right.peer_error(wanted).await;
    }
    drop(peer);
    let mut real = world.start(1);
    right.up().await;
    real.up().await;
}

#[tokio::test]
async fn a_peer_that_never_says_hello_is_given_up() {
    let world = World::new();
    let right =
        world.start_with(InterdcConfig { peer_timeout: Duration::from_millis(500), ..world.config(0) });
    let peer = world.raw(1, &world.credentials(Role::Dc(dc(1))));
    let silent = peer.connect(&world, 0).await;
    let reason = close_reason(&silent).await;
    assert!(reason.contains("no hello in time") || reason.contains("timed out"), "{reason}");
    right.refusal("no hello in time").await;
}

#[tokio::test]
async fn a_peer_that_never_answers_the_hello_is_given_up_and_dialled_again() {
    let world = World::new();
    let peer = world.raw(1, &world.credentials(Role::Dc(dc(1))));
    let right =
        world.start_with(InterdcConfig { peer_timeout: Duration::from_millis(300), ..world.config(0) });
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(peer.endpoint.accept().await.unwrap().await.unwrap());
    }
    right.peer_error("no answer in time").await;
    assert!(!right.stats().up);
}

#[tokio::test]
async fn a_flood_of_strangers_does_not_keep_a_peer_out() {
    let world = World::new();
    // This side can only be reached: a link proves that it still accepts.
    let peers = vec![(dc(1), "127.0.0.1:1".into())];
    let mut right = world.start_with(InterdcConfig { peers, ..world.config(0) });
    // First packets of handshakes that are never continued.
    let stranger = world.raw(1, &world.credentials(Role::Dc(dc(1))));
    let first_packets = first_packets(&stranger, 40).await;
    drop(stranger);
    let flood = UdpSocket::bind("127.0.0.2:0").unwrap();
    for packet in &first_packets {
        flood.send_to(packet, right.interdc.local_address()).unwrap();
    }
    right.refusal("too many connections at once").await;

    let mut real = world.start(1);
    right.up().await;
    real.up().await;
}

/// Returns the first packets that `raw` sends for that many connections to an address that never answers.
async fn first_packets(raw: &Raw, count: usize) -> Vec<Vec<u8>> {
    let sink = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = sink.local_addr().unwrap();
    let _connecting: Vec<_> = (0..count).map(|_| raw.dial(address, 0)).collect();
    let mut packets = Vec::new();
    let mut packet = [0; 2_000];
    while packets.len() < count {
        let length = sink.recv(&mut packet).await.unwrap();
        packets.push(packet[..length].to_vec());
    }
    packets
}

#[tokio::test]
async fn an_endpoint_that_cannot_work_does_not_start() {
    let world = World::new();
    let start = |config: InterdcConfig| {
        let (sender, _events) = tokio::sync::mpsc::channel(1);
        Interdc::start(config, sender).err().expect("this must not start")
    };
    let config = || InterdcConfig { listen: "127.0.0.1:0".parse().unwrap(), ..world.config(0) };
    let taken = InterdcConfig { listen: world.address(0), ..world.config(0) };
    assert!(matches!(start(taken), InterdcError::Listen { .. }));
    let tls = watch::channel(world.credentials(Role::Dc(dc(1)))).1;
    let other = InterdcConfig { tls, ..config() };
    assert!(matches!(start(other), InterdcError::WrongCertificate { .. }));
    let other = InterdcConfig { cluster: "prod".into(), ..config() };
    assert!(matches!(start(other), InterdcError::WrongCertificate { .. }));
    let myself = InterdcConfig { peers: vec![(dc(0), "localhost:1".into())], ..config() };
    assert!(matches!(start(myself), InterdcError::BadPeer(_)));
    let (one, two) = (config().peers.swap_remove(0), config().peers.swap_remove(0));
    assert!(matches!(start(InterdcConfig { peers: vec![one, two], ..config() }), InterdcError::BadPeer(_)));
    let timeout = InterdcConfig { peer_timeout: Duration::ZERO, ..config() };
    assert!(matches!(start(timeout), InterdcError::BadPeerTimeout(_)));
    #[expect(clippy::reversed_empty_ranges, reason = "what this is about")]
    let versions = InterdcConfig { versions: 2..=1, ..config() };
    assert!(matches!(start(versions), InterdcError::NoVersion { .. }));
}

#[tokio::test]
async fn a_host_that_does_not_resolve_is_reported() {
    let world = World::new();
    let mut config = world.config(0);
    config.peers[0].1 = "no port here".into();
    let node = world.start_with(config);
    let error = node.peer_error("could not resolve").await;
    assert!(error.contains("no port here"), "{error}");
}

/// A hello of cluster 7, otherwise valid.
const HELLO_OF_ANOTHER_CLUSTER: &[u8] = &[b'g', b'l', b'o', b'c', 1, 1, 7, 1, 0, 5, 0, 0];

/// Sends this hello, and returns the reason with which the connection is closed.
async fn greeted(connection: &quinn::Connection, hello: &[u8]) -> String {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&[1, 0, hello.len() as u8]).await.unwrap();
    send.write_all(hello).await.unwrap();
    assert!(hello::read(&mut receive).await.is_err(), "no hello may come back");
    close_reason(connection).await
}

#[tokio::test]
async fn a_peer_that_answers_nothing_is_told_with_the_reasons_that_are_possible() {
    let world = World::new();
    let nowhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = InterdcConfig { peer_timeout: Duration::from_millis(300), ..world.config(0) };
    config.peers[0].1 = nowhere.local_addr().unwrap().to_string();
    let node = world.start_with(config);
    let said = node.peer_error("no connection").await;
    assert!(said.contains("no answer in time. It does not run, or no UDP packets of 1200 bytes"), "{said}");
}
