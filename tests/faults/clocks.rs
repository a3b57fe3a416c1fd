//! Wall clocks that jump by hours or run twice as fast, and monotonic clocks that run 1 % fast or slow: the
//! order of requests may suffer, no lease does.
//!
//! Guarantees: docs/guarantees.md#mutual-exclusion, docs/guarantees.md#not-promised.

use std::time::Duration;

use geolock::client::{AcquireError, AcquireRequest, Batch, LockGuard, TxnRequest, Update, Wait};
use geolock_api::proto::{NotServing, Phase};

use crate::fixture::calls::acquire;
use crate::fixture::lists::{HOLD, Lists};
use crate::fixture::trouble::{Dice, some_progress};
use crate::fixture::{key, lock, servers, within};

/// The clocks of each datacenter in turn: hours ahead, hours behind, and twice as fast.
const CLOCKS: [&str; 3] = [
    "ahead_ms = 7200000\nmono_drift_ppm = 10000",
    "ahead_ms = -10800000\nmono_drift_ppm = -10000",
    "drift_ppm = 1000000\nmono_drift_ppm = 10000",
];
/// Attempted appends, before and after.
const MIN_TRIED: u64 = 200;

fn nothing_is_lost(kept: &[LockGuard]) {
    let lost = kept.iter().find_map(LockGuard::is_lost);
    assert!(lost.is_none(), "a lock was lost: {lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_kept_and_lists_go_on_whatever_the_wall_clocks_say() {
    let mut dice = Dice::from_environment();
    let (mut wan, clients) = servers(3).quick().with(HOLD).with_fault_scripts().await;
    let mut kept = Vec::new();
    for (dc, client) in (0..).zip(&clients) {
        let name = lock(&format!("kept/{dc}"));
        kept.push(client.acquire(AcquireRequest::exclusive(name)).await.expect("it is free"));
    }
    let lists = Lists::begin(&clients, &mut dice);
    let mut progress = lists.load().progress();
    for (dc, clock) in (0..).zip(CLOCKS) {
        println!("dc{dc}: {clock}, at {}", *progress.borrow());
        wan.cluster.befall(dc, &format!("[clock]\n{clock}\n"));
        let line = wan.cluster.server(dc).line("the wall clock jumped");
        assert_eq!(line.contains("ahead_ms=-"), clock.contains("ahead_ms = -"), "{line}");
        some_progress(&mut dice, &mut progress).await;
        nothing_is_lost(&kept);
    }
    for dc in 0..3 {
        wan.cluster.befall(dc, "");
        some_progress(&mut dice, &mut progress).await;
    }
    while *progress.borrow() < MIN_TRIED {
        some_progress(&mut dice, &mut progress).await;
    }
    nothing_is_lost(&kept);
    for guard in kept {
        guard.release().await.expect("it was held all the time");
    }
    let figures = lists.end(&clients).await;
    println!("{figures:?}");
    assert!(figures.least > 0 && figures.appends > 60 && figures.hand_offs > 15, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_with_a_clock_hours_ahead_waits_until_it_is_right() {
    let (mut wan, clients) = servers(3).quick().with_fault_scripts().await;
    let request = || AcquireRequest::exclusive(lock("own"));
    acquire(&clients[2], request()).await.release().await.expect("it was held");
    wan.cluster.kill(2);
    wan.cluster.write_faults(2, "[clock]\nahead_ms = 7200000\n");
    wan.cluster.restart(2);
    let contradicted = async {
        loop {
            let status = clients[2].status().await.expect("the server answers");
            if status.clock_skew {
                assert_eq!(status.phase(), Phase::Starting);
                return;
            }
        }
    };
    within(contradicted).await;
    // The others show by how much, and are not affected.
    let status = clients[0].status().await.expect("the server answers");
    let peer = status.peers.iter().find(|peer| peer.dc == 2).expect("it is a member");
    assert!(peer.clock_ahead_ms > 3_600_000, "{peer:?}");
    acquire(&clients[0], AcquireRequest::shared(lock("other"))).await.release().await.expect("it was held");
    // Each call of a new client ends when it says, and names the clock. One of before waits for its reclaim.
    clients[2].acquire(request().wait(Wait::Try)).await.expect_err("nothing is granted in this phase");
    let new = wan.cluster.client(2).await;
    let tried = new.acquire(request().wait(Wait::Try)).await.expect_err("nothing is granted in this phase");
    let AcquireError::Refused(_, why) = &tried else { panic!("{tried:?}") };
    assert!(why.contains("clock that is too far ahead"), "{why}");
    let waited = new.acquire(request().wait(Wait::AtMost(Duration::from_secs(1)))).await;
    let Err(AcquireError::TimedOut { locks, .. }) = &waited else { panic!("{waited:?}") };
    assert_eq!(locks[0].not_serving[0].reason(), NotServing::ClockSkew, "{locks:?}");
    let batch = Batch::new().update(&key("n"), Update::counter(1));
    let added = new.transact(TxnRequest::new(), batch).await.expect_err("nothing is committed in this phase");
    assert!(added.to_string().contains("clock that is too far ahead"), "{added}");

    wan.cluster.befall(2, "");
    within(acquire(&clients[2], request())).await.release().await.expect("it was held");
    assert!(!clients[2].status().await.expect("the server answers").clock_skew);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_an_hour_behind_stops_no_other_and_serves_when_its_clock_is_right() {
    let (mut wan, clients) = servers(3).quick().with_fault_scripts().await;
    let request = |name| AcquireRequest::exclusive(lock(name));
    acquire(&clients[0], request("moves")).await.release().await.expect("it was held");
    acquire(&clients[2], request("own")).await.release().await.expect("it was held");
    wan.cluster.kill(2);
    wan.cluster.write_faults(2, "[clock]\nahead_ms = -3600000\n");
    wan.cluster.restart(2);
    within(async {
        loop {
            let status = clients[2].status().await.expect("the server answers");
            if status.clock_behind_ms > 0 && status.phase() == Phase::Serving {
                assert!((3_500_000..3_700_000).contains(&status.clock_behind_ms), "{status:?}");
                return;
            }
        }
    })
    .await;
    within(async {
        let says_why = |status: geolock::client::Status| {
            let peer = status.peers.into_iter().find(|peer| peer.dc == 2).expect("it is a member");
            peer.not_serving() == NotServing::ClockBehind
        };
        while !says_why(clients[0].status().await.expect("the server answers")) {}
        while !says_why(clients[1].status().await.expect("the server answers")) {}
    })
    .await;
    let waits = tokio::spawn({
        let client = clients[2].clone();
        async move { client.acquire(AcquireRequest::exclusive(lock("moves"))).await }
    });
    // The others move the lock between them, and the server itself uses what it has.
    for client in [0, 1, 0, 1] {
        let moves = within(acquire(&clients[client], request("moves"))).await;
        moves.release().await.expect("it was held");
    }
    within(acquire(&clients[2], request("own"))).await.release().await.expect("it was held");
    assert!(!waits.is_finished(), "no part of it can arrive");

    wan.cluster.befall(2, "");
    let guard = within(waits).await.expect("no panic").expect("its parts arrive");
    guard.release().await.expect("it was held");
    let line = wan.cluster.server(2).line("the wall clock was set forward");
    assert!(line.contains("by_ms="), "{line}");
    within(async { while clients[2].status().await.expect("the server answers").clock_behind_ms > 0 {} })
        .await;
}
