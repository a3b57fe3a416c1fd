//! Tests of the actor itself, with a fake machine, journal and links.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use super::fakes::{Rig, Seen, Syncs, dc, name};
use super::handle::OpenError;
use super::{End, LinkInput, LockServerOptions, Output, Session, Stage, StopError, Stopped};
use crate::base::capacity::{DiskSpace, Load};
use crate::base::wire;
use crate::causal_log::Wants;
use crate::crdt::VersionVector;
use crate::journal::{JournalError, JournalEvent};
use crate::replica::Urgency;
use crate::replica::call::{Acquire, Call, LockRequest, OnDisconnect, Proof, Refusal, Reply, Target, Wait};
use crate::replica::{Event, Message, Position};
use geolock_api::names::{LeaseId, Mode, Secret};

mod failures;
mod waiting;

fn acquire(lock: &str) -> Call {
    Call::Acquire(Acquire {
        lease: LeaseId::new(dc(0), 1),
        proof: Proof::Attached,
        key: Some(1),
        request: LockRequest {
            wants: Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock"),
            wait: Wait::Forever,
            label: "test".into(),
        },
    })
}

fn release() -> Call {
    Call::Release { lease: LeaseId::new(dc(0), 1), proof: Proof::Attached, target: Target::Key(1) }
}

fn open_lease() -> Call {
    Call::OpenLease {
        secret: Secret::new([7; 16]),
        ttl: Some(Duration::from_secs(10)),
        on_disconnect: OnDisconnect::Keep,
    }
}

async fn reply(session: &mut Session) -> (u64, Reply) {
    match session.next().await {
        Ok(Output::Reply { tag, reply }) => (tag, reply),
        other => panic!("a reply was expected, this is {other:?}"),
    }
}

fn started(syncs: Syncs) -> Rig {
    Rig::start(LockServerOptions::default(), syncs)
}

#[tokio::test]
async fn calls_of_a_session_are_answered_with_their_tags() {
    let rig = started(Syncs::AtOnce);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    for tag in 1..=1000 {
        session.call(tag, acquire("a")).await.expect("the server runs");
    }
    for tag in 1..=1000 {
        let (answered, answer) = reply(&mut session).await;
        assert_eq!(answered, tag);
        assert!(matches!(answer, Reply::Granted(grant) if grant.token.0 == tag));
    }
}

#[tokio::test]
async fn an_answer_that_depends_on_the_disk_waits_for_it_and_no_other_does() {
    let rig = started(Syncs::WhenTold);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    session.call(1, open_lease()).await.expect("the server runs");
    session.call(2, acquire("a")).await.expect("the server runs");
    assert_eq!(reply(&mut session).await.0, 2);
    rig.sync();
    assert_eq!(reply(&mut session).await.0, 1);
}

#[tokio::test]
async fn unary_calls_are_answered() {
    let rig = started(Syncs::AtOnce);
    let answer = rig.server.handle().call(open_lease()).await;
    assert!(matches!(answer, Ok(Reply::LeaseOpened { .. })));
}

#[tokio::test]
async fn a_session_that_is_dropped_is_closed_after_its_calls() {
    let rig = started(Syncs::AtOnce);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    session.call(1, acquire("a")).await.expect("the server runs");
    drop(session);
    rig.settle(|seen| seen.events.len() >= 2).await;
    assert!(matches!(rig.seen().events[..], [Event::Client { .. }, Event::SessionClosed { .. }]));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_alone() {
    let rig = Rig::start(
        LockServerOptions { session_backlog: 4_000, ..LockServerOptions::default() },
        Syncs::AtOnce,
    );
    let handle = rig.server.handle();
    let mut slow = handle.open_session().await.expect("there is room");
    let mut other = handle.open_session().await.expect("there is room");
    for tag in 1..=1000 {
        slow.call(tag, acquire("a")).await.expect("the server runs");
    }
    other.call(1, acquire("a")).await.expect("the server runs");
    assert_eq!(reply(&mut other).await.0, 1);
    assert_eq!(slow.next().await, Err(End::SlowReader));
    let closed = |event: &&Event| matches!(event, Event::SessionClosed { .. });
    assert_eq!(rig.seen().events.iter().filter(closed).count(), 1);
    drop(slow);
    other.call(2, acquire("a")).await.expect("the server runs");
    assert_eq!(reply(&mut other).await.0, 2);
    assert_eq!(rig.seen().events.iter().filter(closed).count(), 1, "it is closed once");
}

#[tokio::test]
async fn sessions_are_limited_and_places_come_back() {
    let rig =
        Rig::start(LockServerOptions { max_sessions: 1, ..LockServerOptions::default() }, Syncs::AtOnce);
    let handle = rig.server.handle();
    let session = handle.open_session().await.expect("there is room for one");
    assert!(matches!(handle.open_session().await, Err(OpenError::TooMany(_))));
    drop(session);
    // The session keeps its place until it is closed.
    while handle.open_session().await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_drain_ends_when_nothing_is_held() {
    let rig = started(Syncs::AtOnce);
    let handle = rig.server.handle();
    let mut session = handle.open_session().await.expect("there is room");
    session.call(1, acquire("a")).await.expect("the server runs");
    assert!(matches!(reply(&mut session).await, (1, Reply::Granted(_))));
    handle.drain();
    assert!(matches!(session.next().await, Ok(Output::Draining { .. })));
    session.call(2, acquire("b")).await.expect("the server still runs");
    assert_eq!(reply(&mut session).await, (2, Reply::Refused(Refusal::Draining)));
    let mut late = handle.open_session().await.expect("sessions are still opened");
    assert!(matches!(late.next().await, Ok(Output::Draining { .. })));
    session.call(3, release()).await.expect("the server still runs");
    assert_eq!(reply(&mut session).await, (3, Reply::Released));
    assert_eq!(session.next().await, Err(End::Stopped));
    assert_eq!(late.next().await, Err(End::Stopped));
    let seen = rig.watch();
    assert!(rig.server.stopped().await.is_ok());
    assert_eq!(*handle.stage().borrow(), Stage::Stopped);
    let ended = |seen: &Seen| seen.store_closed && seen.links_shut_down;
    assert!(ended(&seen.lock().expect("nobody panicked")));
    assert_eq!(handle.call(Call::Status).await, Err(Stopped));
    assert!(matches!(handle.open_session().await, Err(OpenError::Stopped(_))));
}

#[tokio::test]
async fn a_drain_that_comes_before_the_actor_looks_is_not_lost() {
    for _ in 0..100 {
        let rig = started(Syncs::AtOnce);
        rig.server.handle().drain();
        rig.server.stopped().await.expect("nothing goes wrong");
    }
}

#[tokio::test]
async fn a_drain_ends_after_its_timeout_with_what_waits_for_the_disk() {
    let options = LockServerOptions { drain_timeout: Duration::ZERO, ..LockServerOptions::default() };
    let rig = Rig::start(options, Syncs::WhenTold);
    let handle = rig.server.handle();
    let mut session = handle.open_session().await.expect("there is room");
    session.call(1, acquire("a")).await.expect("the server runs");
    assert_eq!(reply(&mut session).await.0, 1);
    session.call(2, open_lease()).await.expect("the server runs");
    rig.settle(|seen| seen.events.len() >= 2).await;
    handle.drain();
    assert!(matches!(session.next().await, Ok(Output::Draining { .. })));
    rig.sync();
    assert!(matches!(reply(&mut session).await, (2, Reply::LeaseOpened { .. })));
    assert_eq!(session.next().await, Err(End::Stopped));
    assert!(rig.server.stopped().await.is_ok());
}

#[tokio::test]
async fn a_message_that_cannot_be_read_closes_its_link_and_no_other() {
    let rig = started(Syncs::AtOnce);
    let heartbeat = Message::HeldBack { durable: VersionVector::default() };
    let good = Bytes::from(wire::encode("message", &heartbeat).expect("it is small"));
    let received = |peer, message: &Bytes| LinkInput::Received { peer, message: message.clone() };
    for input in [
        LinkInput::Up { peer: dc(1), version: 2 },
        LinkInput::Up { peer: dc(2), version: 2 },
        received(dc(1), &Bytes::from_static(b"\xff\xff nonsense")),
        received(dc(1), &good),
        received(dc(2), &good),
        LinkInput::Down { peer: dc(1) },
        LinkInput::Up { peer: dc(1), version: 2 },
        received(dc(1), &good),
    ] {
        rig.links.send(input).await.expect("the server runs");
    }
    rig.settle(|seen| seen.events.len() >= 6).await;
    let seen = rig.seen();
    let received = |peer| Event::Received { peer, message: heartbeat.clone() };
    assert_eq!(
        seen.events,
        [
            Event::LinkUp { peer: dc(1), version: 2 },
            Event::LinkUp { peer: dc(2), version: 2 },
            received(dc(2)),
            Event::LinkDown { peer: dc(1) },
            Event::LinkUp { peer: dc(1), version: 2 },
            received(dc(1)),
        ]
    );
    assert_eq!(seen.closed_links.len(), 1);
    assert!(seen.closed_links[0].1.starts_with("message: "), "{:?}", seen.closed_links);
    assert_eq!(seen.sent, [1, 2, 1].map(|peer| (dc(peer), Urgency::Urgent)));
}

#[tokio::test]
async fn a_checkpoint_is_written_when_the_journal_has_grown_and_one_at_a_time() {
    let options = LockServerOptions { checkpoint_after: 1, ..LockServerOptions::default() };
    let rig = Rig::start(options, Syncs::AtOnce);
    let handle = rig.server.handle();
    handle.call(open_lease()).await.expect("the server runs");
    rig.settle(|seen| seen.checkpoints == [Position(1)]).await;
    handle.call(open_lease()).await.expect("the server runs");
    handle.call(open_lease()).await.expect("the server runs");
    assert_eq!(rig.seen().checkpoints, [Position(1)], "the first is not done");
    rig.journal.put(JournalEvent::CheckpointDone { position: 1, bytes_freed: 0 });
    rig.settle(|seen| seen.checkpoints == [Position(1), Position(3)]).await;
}

#[tokio::test]
async fn nothing_new_is_taken_while_the_disk_is_behind() {
    let options = LockServerOptions { max_journal_backlog: 0, ..LockServerOptions::default() };
    let rig = Rig::start(options, Syncs::WhenTold);
    let handle = rig.server.handle();
    let seen = rig.watch();
    let mut session = handle.open_session().await.expect("there is room");
    session.call(1, open_lease()).await.expect("the server runs");
    let taken = |tag| {
        let is_it = |event: &Event| matches!(event, Event::Client { call, .. } if call.tag == tag);
        seen.lock().expect("nobody panicked").events.iter().any(is_it)
    };
    while rig.backlog() == 0 {
        tokio::task::yield_now().await;
    }
    session.call(2, acquire("a")).await.expect("the mailbox has room");
    assert!(!taken(2), "the second call waits in the mailbox");
    rig.sync();
    let replies = [reply(&mut session).await.0, reply(&mut session).await.0];
    assert!(replies.contains(&1) && replies.contains(&2), "{replies:?}");
}

fn renew() -> Call {
    Call::KeepAlive { lease: LeaseId::new(dc(0), 1), proof: Proof::Attached }
}

/// An acquire of 100 KiB.
fn large_acquire() -> Call {
    let names = (0..100).map(|i| (name(&format!("{i:01000}")), Mode::Exclusive)).collect();
    let Call::Acquire(small) = acquire("a") else { unreachable!("it is one") };
    let request = LockRequest { wants: Wants::all(names).expect("names differ"), ..small.request };
    Call::Acquire(Acquire { request, ..small })
}

#[tokio::test]
async fn behind_a_slow_disk_others_renew_and_release_and_what_waits_is_bounded() {
    const MOST: usize = 1 << 20;
    let options = LockServerOptions {
        mailbox_bytes: MOST,
        session_mailbox: MOST / 2,
        max_queue_delay: Duration::from_secs(3_600),
        ..LockServerOptions::default()
    };
    let rig = Rig::start(options, Syncs::WhenTold);
    let handle = rig.server.handle();
    let mut bystander = handle.open_session().await.expect("there is room");
    bystander.call(1, open_lease()).await.expect("the server runs");
    bystander.call(2, acquire("a")).await.expect("the server runs");
    assert_eq!(reply(&mut bystander).await.0, 2);
    rig.fall_behind();
    rig.settle_without_calls(|seen| seen.takes_bulk == [false]).await;

    let mut writers = Vec::new();
    for _ in 0..4 {
        let mut writer = handle.open_session().await.expect("there is room");
        writers.push(tokio::spawn(async move {
            for tag in 1..=100 {
                writer.call(tag, large_acquire()).await.expect("the server runs");
            }
            for tag in 1..=100 {
                assert_eq!(reply(&mut writer).await.0, tag);
            }
        }));
    }
    for tag in 3..500 {
        bystander.call(tag, renew()).await.expect("the server runs");
        assert_eq!(reply(&mut bystander).await, (tag, Reply::Renewed { ttl: Duration::from_secs(10) }));
    }
    bystander.call(500, release()).await.expect("the server runs");
    assert_eq!(reply(&mut bystander).await.0, 500);
    let waiting = || handle.board().latest().map_or(0, |shown| shown.mailbox_bytes as usize);
    while waiting() < MOST * 3 / 4 {
        tokio::task::yield_now().await;
    }
    assert!(waiting() <= MOST, "{} bytes wait", waiting());
    rig.sync();
    for writer in writers {
        writer.await.expect("it got all its answers");
    }
    rig.settle(|seen| seen.takes_bulk == [false, true]).await;
    while waiting() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_renewal_passes_a_call_of_its_own_session_that_waits_for_room() {
    let options = LockServerOptions {
        session_mailbox: 512 << 10,
        max_queue_delay: Duration::from_secs(3_600),
        ..LockServerOptions::default()
    };
    let rig = Rig::start(options, Syncs::WhenTold);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    session.call(1, open_lease()).await.expect("the server runs");
    session.call(2, acquire("a")).await.expect("the server runs");
    assert_eq!(reply(&mut session).await.0, 2);
    rig.fall_behind();
    rig.settle_without_calls(|seen| seen.takes_bulk == [false]).await;
    let mut tag = 3;
    while poll_fn(|cx| Poll::Ready(session.poll_ready(cx).is_ready())).await {
        session.start_call(tag, large_acquire()).expect("the server runs");
        tag += 1;
    }
    poll_fn(|cx| session.poll_room_beside(cx)).await.expect("there is room");
    session.start_call(1_000, renew()).expect("the server runs");
    assert_eq!(reply(&mut session).await, (1_000, Reply::Renewed { ttl: Duration::from_secs(10) }));
    rig.sync();
}

#[tokio::test]
async fn the_machine_is_told_when_calls_wait_too_long_and_when_they_do_not_any_more() {
    let max_queue_delay = Duration::from_millis(1);
    let options =
        LockServerOptions { max_journal_backlog: 0, max_queue_delay, ..LockServerOptions::default() };
    let rig = Rig::start(options, Syncs::WhenTold);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    session.call(1, open_lease()).await.expect("the server runs");
    // The disk is behind, so the mailbox is not read.
    rig.settle_without_calls(|seen| seen.events.contains(&Event::Load { load: Load::TooMuch })).await;
    rig.sync();
    rig.settle_without_calls(|seen| seen.events.contains(&Event::Load { load: Load::Fits })).await;
    let loads = |seen: &Seen| seen.events.iter().filter(|event| matches!(event, Event::Load { .. })).count();
    assert_eq!(loads(&rig.seen()), 2, "it is told of changes");
    assert_eq!(reply(&mut session).await.0, 1);
}

/// The timers of the runtime would not wake the actor: the mailbox is never empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_is_shown_while_the_mailbox_is_never_empty() {
    let rig = started(Syncs::AtOnce);
    let handle = rig.server.handle();
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move { while handle.call(acquire("a")).await.is_ok() {} })
        })
        .collect();
    let shown = || handle.board().latest().map_or(0, |shown| shown.status.counts.grants);
    let mut seen = 0;
    for _ in 0..3 {
        while shown() <= seen {
            tokio::task::yield_now().await;
        }
        seen = shown();
    }
    callers.iter().for_each(|caller| caller.abort());
}

#[tokio::test]
async fn a_checkpoint_is_made_when_room_is_short_and_it_would_give_some_back() {
    let rig = started(Syncs::AtOnce);
    let handle = rig.server.handle();
    handle.call(open_lease()).await.expect("the server runs");
    rig.settle(|seen| !seen.events.is_empty()).await;
    assert_eq!(rig.seen().checkpoints, []);
    rig.disk_space(DiskSpace::Low);
    rig.settle(|seen| seen.checkpoints == [Position(1)]).await;
    rig.journal.put(JournalEvent::CheckpointSkipped);
    handle.call(open_lease()).await.expect("the server runs");
    handle.call(Call::Status).await.expect("the server runs");
    assert_eq!(rig.seen().checkpoints, [Position(1)], "there was no room for it a moment ago");
}

#[tokio::test]
async fn clients_are_served_on_while_the_disk_is_full() {
    let options = LockServerOptions { max_journal_backlog: 0, ..LockServerOptions::default() };
    let rig = Rig::start(options, Syncs::WhenTold);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    session.call(1, open_lease()).await.expect("the server runs");
    rig.settle_without_calls(|seen| !seen.events.is_empty()).await;
    rig.fill_disk();
    session.call(2, acquire("a")).await.expect("the server runs");
    assert_eq!(reply(&mut session).await.0, 2);
    rig.settle_without_calls(|seen| seen.events.contains(&Event::Disk { room: DiskSpace::Full })).await;
}

#[tokio::test]
async fn a_server_on_a_full_disk_stops_when_told_and_says_why() {
    let rig = started(Syncs::WhenTold);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    session.call(1, open_lease()).await.expect("the server runs");
    rig.settle(|seen| !seen.events.is_empty()).await;
    rig.fill_disk();
    rig.server.handle().drain();
    let ended = rig.server.stopped().await;
    assert!(matches!(ended, Err(StopError::Journal(JournalError::NoRoom { .. }))), "{ended:?}");
    assert!(matches!(session.next().await, Ok(Output::Draining { .. })));
    assert_eq!(session.next().await, Err(End::Stopped), "and no answer to what is not durable");
}

#[tokio::test]
async fn a_full_mailbox_makes_sessions_wait_and_loses_nothing() {
    let options = LockServerOptions { mailbox: 2, max_sessions: 1, ..LockServerOptions::default() };
    let rig = Rig::start(options, Syncs::AtOnce);
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    for tag in 1..=10_000 {
        session.call(tag, acquire("a")).await.expect("the server runs");
    }
    for tag in 1..=10_000 {
        assert_eq!(reply(&mut session).await.0, tag);
    }
}

#[tokio::test]
async fn a_picture_is_shown_without_being_asked_for() {
    let rig = started(Syncs::AtOnce);
    let handle = rig.server.handle();
    while handle.board().latest().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(handle.board().latest().map(|shown| shown.status.dc), Some(dc(0)));
}

#[tokio::test]
async fn a_server_whose_handles_are_gone_drains() {
    let rig = started(Syncs::AtOnce);
    let seen = rig.watch();
    let mut stage = rig.server.handle().stage();
    drop(rig);
    stage.wait_for(|stage| *stage == Stage::Stopped).await.ok();
    assert!(seen.lock().expect("nobody panicked").events.contains(&Event::Drain));
}
