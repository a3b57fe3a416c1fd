//! The lane of the control group, peers that become known later, and servers that ask to join.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::world::{World, dc};
use crate::interdc::{
    ControlFrame, DownReason, InterdcConfig, JoinCallError, Lane, LinkEvent, MAX_JOIN_REQUEST, SendError,
    ask_to_join,
};
use crate::pki::Role;
use geolock_api::names::DcSet;

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn control_frames_pass_by_the_events() {
    let world = World::new();
    let (taken, mut frames) = mpsc::channel(4);
    let mut low = world.start(0);
    let mut high = world.start_with(InterdcConfig { control: Some(taken), ..world.config(1) });
    let (to_high, to_low) = (low.up().await, high.up().await);
    assert_eq!(*high.interdc.links().control_peers().borrow(), DcSet::only(dc(0)));
    assert!(low.interdc.links().send_control(dc(1), Bytes::from_static(b"vote")));
    assert_eq!(frames.recv().await, Some(ControlFrame { peer: dc(0), bytes: Bytes::from_static(b"vote") }));
    // Messages of other lanes are events, whoever takes the frames.
    low.interdc.send(to_high, Lane::Bulk, Bytes::from_static(b"entry")).unwrap();
    assert_eq!(high.message().await, (Lane::Bulk, Bytes::from_static(b"entry")));
    // Frames that were sent are no events either, where they are taken.
    high.interdc.send(to_low, Lane::Control, Bytes::from_static(b"granted")).unwrap();
    assert_eq!(low.message().await, (Lane::Control, Bytes::from_static(b"granted")));
    high.interdc.send(to_low, Lane::Urgent, Bytes::from_static(b"beat")).unwrap();
    assert!(matches!(high.event().await, LinkEvent::Flushed { lane: Lane::Urgent, .. }));
}

#[tokio::test]
async fn a_peer_of_an_earlier_version_is_never_sent_a_control_frame() {
    let world = World::new();
    let mut old = world.start_with(InterdcConfig { versions: 1..=3, ..world.config(0) });
    let mut new = world.start(1);
    let (to_new, to_old) = (old.up().await, new.up().await);
    let frame = Bytes::from_static(b"vote");
    let refused = Err(SendError::NoLane { lane: Lane::Control });
    assert_eq!(new.interdc.send(to_old, Lane::Control, frame.clone()), refused);
    assert!(!new.interdc.links().send_control(dc(0), frame));
    assert!(new.interdc.links().control_peers().borrow().is_empty());
    old.interdc.send(to_new, Lane::Bulk, Bytes::from_static(b"entry")).unwrap();
    assert_eq!(new.message().await.0, Lane::Bulk, "the link works all the same");
}

#[tokio::test]
async fn a_peer_that_becomes_known_is_linked() {
    let world = World::new();
    let mut low = world.start_with(InterdcConfig { peers: Vec::new(), ..world.config(0) });
    let mut high = world.start(1);
    low.refusal("is no member").await;
    low.interdc.links().add_peer(dc(0), "itself:1", 0);
    low.interdc.links().add_peer(dc(1), &world.address(1).to_string(), 0);
    low.interdc.links().add_peer(dc(1), "twice:1", 0);
    low.up().await;
    high.up().await;
    assert_eq!(low.interdc.stats().peers.len(), 1);
}

#[tokio::test]
async fn the_next_server_with_an_id_replaces_the_one_before() {
    let world = World::new();
    let (mut low, mut first) = (world.start(0), world.start(1));
    let before = low.up().await;
    first.up().await;
    // It has not heard of the other one, and goes on dialling.
    low.interdc.links().add_peer(dc(1), &world.address(1).to_string(), 1);
    assert!(matches!(low.down().await, DownReason::ClosedHere(_)));
    first.peer_error("it is server 0 with this id").await;
    first.interdc.shutdown().await;
    let mut second = world.start_with(InterdcConfig { generation: 1, ..world.config(1) });
    let after = low.up().await;
    second.up().await;
    assert_ne!(before, after);
    low.interdc.links().add_peer(dc(1), &world.address(1).to_string(), 1);
    assert_eq!(low.interdc.stats().peers.len(), 1);
}

#[tokio::test]
async fn a_server_that_is_no_member_asks_to_join() {
    let world = World::new();
    let (joins, mut calls) = mpsc::channel(1);
    let config = InterdcConfig { peers: Vec::new(), joins: Some(joins), ..world.config(0) };
    let member = world.start_with(config);
    let (tls, address) = (world.credentials(Role::Dc(dc(1))), world.address(0).to_string());
    let answering = async {
        let call = calls.recv().await.expect("it is asked");
        assert_eq!((call.from, &call.request[..]), (dc(1), &b"may I?"[..]));
        call.answer.send(Bytes::from_static(b"yes")).expect("it waits");
    };
    // If it fails, the test ends: nobody waits for a call that does not come.
    let asking = async { ask_to_join(&tls, &address, b"may I?", LIMIT).await.expect("it is answered") };
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(answer, Bytes::from_static(b"yes"));

    // Nobody answers any more.
    drop(calls);
    let error = ask_to_join(&tls, &address, b"may I?", LIMIT).await.expect_err("nobody answers");
    assert!(matches!(&error, JoinCallError::Refused { reason, .. } if reason.contains("repeat")), "{error}");
    let long = vec![0; MAX_JOIN_REQUEST + 1];
    let error = ask_to_join(&tls, &address, &long, LIMIT).await.expect_err("it is too long");
    assert!(error.to_string().contains("the limit is"), "{error}");
    drop(member);
}

#[tokio::test]
async fn where_nobody_can_join_a_stranger_is_refused_in_words() {
    let (world, others) = (World::new(), World::new());
    let member = world.start_with(InterdcConfig { peers: Vec::new(), ..world.config(0) });
    let address = world.address(0).to_string();
    let tls = world.credentials(Role::Dc(dc(1)));
    let error = ask_to_join(&tls, &address, b"may I?", LIMIT).await.expect_err("nobody answers");
    assert!(error.to_string().contains("is no member"), "{error}");
    let error = ask_to_join(&others.credentials(Role::Dc(dc(1))), &address, b"may I?", LIMIT).await;
    let error = error.expect_err("another authority").to_string();
    assert!(error.contains("ca.pem") && error.contains("UnknownIssuer"), "{error}");
    drop(member);
}

/// Decisions may be known here by which a server was lost, and not yet those by which the next one with its
/// id is a member.
#[tokio::test]
async fn only_the_server_that_was_lost_is_told_so() {
    let world = World::new();
    let (joins, _calls) = mpsc::channel(1);
    let mut member = world.start_with(InterdcConfig { joins: Some(joins), ..world.config(0) });
    let mut first = world.start(1);
    member.up().await;
    first.up().await;
    let links = member.interdc.links();
    links.lose_peer(dc(1), 0);
    assert!(matches!(member.down().await, DownReason::ClosedHere(_)));
    let mut lost_to = first.interdc.links().lost_to();
    let by = lost_to.wait_for(Option::is_some).await.expect("it dials").expect("it is told");
    assert_eq!(by, dc(0));
    first.interdc.shutdown().await;

    let mut second = world.start_with(InterdcConfig { generation: 1, ..world.config(1) });
    second.peer_error("is no member of the cluster here").await;
    assert_eq!(*second.interdc.links().lost_to().borrow(), None);
    links.add_peer(dc(1), &world.address(1).to_string(), 1);
    member.up().await;
    second.up().await;
    // A repetition of the older decisions ends no link of the later server.
    links.lose_peer(dc(1), 0);
    links.remove_peer(dc(1), 0, "it has left the cluster");
    assert_eq!(member.interdc.stats().peers.len(), 1);
    assert!(member.stats().up && second.stats().up);
}
