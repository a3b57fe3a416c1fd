//! Tests of calls that wait while the disk is behind, and of the calls that do not wait for them.

use std::sync::Arc;

use tokio::time::timeout;

use super::*;
use crate::lock_server::ByteCount;
use crate::replica::call::ClientId;

/// Far longer than anything here takes: a test that hangs fails.
const LONG: Duration = Duration::from_secs(60);

async fn behind(options: LockServerOptions) -> Rig {
    let rig = Rig::start(
        LockServerOptions { max_queue_delay: Duration::from_secs(3_600), ..options },
        Syncs::WhenTold,
    );
    // One record waits for the disk.
    let handle = rig.server.handle();
    tokio::spawn(async move { handle.call(open_lease()).await });
    while rig.backlog() == 0 {
        tokio::task::yield_now().await;
    }
    rig.fall_behind();
    rig.settle_without_calls(|seen| seen.takes_bulk == [false]).await;
    rig
}

fn close() -> Call {
    Call::CloseLease { lease: LeaseId::new(dc(0), 1), proof: Proof::Attached }
}

#[tokio::test]
async fn a_session_has_its_place_until_its_calls_are_handled() {
    let rig = behind(LockServerOptions { max_sessions: 4, ..LockServerOptions::default() }).await;
    let handle = rig.server.handle();
    for _ in 0..4 {
        let mut session = handle.open_session().await.expect("there is room");
        session.call(1, open_lease()).await.expect("the server runs");
    }
    assert!(matches!(handle.open_session().await, Err(OpenError::TooMany(_))), "their calls wait");
    rig.sync();
    let opens = async {
        while handle.open_session().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, opens).await.expect("the calls are handled, and the sessions closed");
}

#[tokio::test]
async fn a_session_that_waits_for_room_renews() {
    let rig = behind(LockServerOptions { session_mailbox: 1, ..LockServerOptions::default() }).await;
    let mut session = rig.server.handle().open_session().await.expect("there is room");
    session.call(1, large_acquire()).await.expect("it fits alone");
    session.start_call(2, large_acquire()).expect("the server runs");
    let waits = poll_fn(|cx| Poll::Ready(session.poll_ready(cx).is_pending())).await;
    assert!(waits, "there is no room for a second one");
    poll_fn(|cx| session.poll_room_beside(cx)).await.expect("the server runs");
    session.start_call(3, renew()).expect("the server runs");
    let renewed = timeout(LONG, poll_fn(|cx| session.poll_renewed(cx))).await.expect("in time");
    assert!(matches!(renewed, Output::Reply { tag: 3, reply: Reply::Renewed { .. } }));
    rig.sync();
    poll_fn(|cx| session.poll_ready(cx)).await.expect("the server runs");
    assert_eq!([reply(&mut session).await.0, reply(&mut session).await.0], [1, 2]);
}

/// The same with unary calls: the writes of one client delay neither calls that are never written nor the
/// writes of others.
#[tokio::test]
async fn what_one_client_writes_keeps_no_other_call_waiting() {
    const MOST: usize = 256 << 10;
    let options = LockServerOptions { session_mailbox: MOST, ..LockServerOptions::default() };
    let rig = behind(options).await;
    let handle = rig.server.handle();
    let [greedy, modest] = [1, 2].map(|id| handle.client_allowance(ClientId(id)).allowance());
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let (handle, greedy) = (handle.clone(), greedy.clone());
            tokio::spawn(async move { handle.call_within(&greedy, large_acquire()).await })
        })
        .collect();
    let waiting = || handle.board().latest().map_or(0, |shown| shown.mailbox_bytes as usize);
    while waiting() < MOST / 2 {
        tokio::task::yield_now().await;
    }
    let kept = timeout(LONG, handle.call_within(&greedy, close())).await.expect("it does not wait");
    assert_eq!(kept, Ok(Reply::LeaseClosed));
    let writes = tokio::spawn({
        let (handle, modest) = (handle.clone(), modest.clone());
        async move { handle.call_within(&modest, large_acquire()).await }
    });
    let both = async {
        while waiting() < MOST / 2 + (100 << 10) {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, both).await.expect("another one's is let in");
    assert!(waiting() <= 2 * MOST, "{} bytes wait", waiting());
    rig.sync();
    for call in writers.into_iter().chain([writes]) {
        assert!(matches!(call.await.expect("no panic"), Ok(Reply::Granted(_))));
    }
}

/// One client with many sessions leaves room in the mailbox for another client.
#[tokio::test]
async fn what_one_client_writes_over_many_sessions_leaves_room_to_others() {
    const MOST: usize = 2 << 20;
    let options = LockServerOptions {
        mailbox_bytes: MOST,
        session_mailbox: MOST / 4,
        client_mailbox: MOST / 2,
        ..LockServerOptions::default()
    };
    let rig = behind(options).await;
    let handle = rig.server.handle();
    let [greedy, modest] = [1, 2].map(|id| handle.client_allowance(ClientId(id)));
    let answers = || Arc::new(ByteCount::new(usize::MAX));
    let mut writers = Vec::new();
    for _ in 0..8 {
        let mut writer = handle.open_session_within(&greedy, answers()).await.expect("there is room");
        writers.push(tokio::spawn(async move {
            for tag in 1..=8 {
                writer.call(tag, large_acquire()).await.expect("the server runs");
            }
            for tag in 1..=8 {
                assert_eq!(reply(&mut writer).await.0, tag);
            }
        }));
    }
    let waiting = || handle.board().latest().map_or(0, |shown| shown.mailbox_bytes as usize);
    while waiting() < MOST * 3 / 8 {
        tokio::task::yield_now().await;
    }
    let mut other = handle.open_session_within(&modest, answers()).await.expect("there is room");
    let is_in = timeout(LONG, other.call(1, large_acquire()));
    is_in.await.expect("it does not wait for those of the other client").expect("the server runs");
    assert!(waiting() <= MOST, "{} bytes wait", waiting());
    rig.sync();
    assert_eq!(reply(&mut other).await.0, 1);
    for writer in writers {
        writer.await.expect("it got all its answers");
    }
}
