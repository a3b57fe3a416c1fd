//! Wall clocks that jump by hours or run twice as fast, and monotonic clocks that run 1 % fast or slow: the
//! order of requests may suffer, no lease does.
//!
//! Guarantees: docs/guarantees.md#mutual-exclusion, docs/guarantees.md#not-promised.

use geolock::client::{AcquireRequest, LockGuard};

use crate::fixture::lists::{HOLD, Lists};
use crate::fixture::lock;
use crate::fixture::servers;
use crate::fixture::trouble::{Dice, some_progress};

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
