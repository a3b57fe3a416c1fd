//! The load of [`Bank`] in two datacenters for any length of time, while a third one joins, leaves, is
//! killed, evicted, and returns: every snapshot has the same total, no acknowledged transfer is lost, and the
//! memory of a server that stays does not grow.
//!
//! `GEOLOCK_SOAK_MINUTES=30 cargo test --profile sim --test members soak:: -- --ignored --nocapture`

#![allow(clippy::disallowed_methods, reason = "a soak reads clocks")]

use std::time::{Duration, Instant};

use crate::evicting::evict;
use crate::fixture::bank::{Bank, CHECKPOINTS};
use crate::fixture::said::run;
use crate::fixture::trouble::{Dice, some_progress};
use crate::fixture::{Cluster, until};
use crate::growth::{AUTO, all_settled, listed, prepared_with};
use crate::leaving::grown;

/// The permitted growth from the first to the last third of a run: a factor in percent, and MiB.
const FLAT: (u64, u64) = (125, 24);

/// The third datacenter leaves, and its server is started again without its data.
fn leaves(cluster: &mut Cluster) {
    let said = run(&mut cluster.command(0, ["member", "remove", "2", "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(cluster.server(2).wait(), 0, "it has left");
    std::fs::remove_dir_all(cluster.data_dir(2)).expect("nobody uses it");
}

/// It dies and is evicted; its server is started again with its data.
fn is_lost(cluster: &mut Cluster) {
    cluster.kill(2);
    until("no member hears it any more, and it is evicted", || {
        (evict(cluster, 0, "2").code == 0).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it runs for half an hour"]
async fn a_long_load_while_a_datacenter_comes_and_goes_breaks_nothing() {
    let mut dice = Dice::from_environment();
    let minutes =
        std::env::var("GEOLOCK_SOAK_MINUTES").map_or(30, |text| text.parse().expect("a number of minutes"));
    let tables = format!("{AUTO}{CHECKPOINTS}");
    let (mut cluster, mut clients) = grown(prepared_with(&tables, CHECKPOINTS)).await;
    drop(clients.pop());
    let said = run(&mut cluster.command(0, ["member", "policy", "--rejoin", "auto"]));
    assert_eq!(said.code, 0, "{said:?}");
    let bank = Bank::begin(&clients, &mut dice).await;
    let (process, progress) = (cluster.server(0).id(), &mut bank.load().progress());
    let (begun, lasts) = (Instant::now(), Duration::from_secs(60 * minutes));
    let (mut peaks, mut left, mut lost, mut killed) = ([0; 3], 0, 0, 0);
    while begun.elapsed() < lasts {
        some_progress(&mut dice, progress).await;
        match dice.roll(3) {
            0 => {
                leaves(&mut cluster);
                left += 1;
            }
            1 => {
                is_lost(&mut cluster);
                lost += 1;
            }
            _ => {
                cluster.kill(1);
                some_progress(&mut dice, progress).await;
                cluster.restart(1);
                killed += 1;
                continue;
            }
        }
        some_progress(&mut dice, progress).await;
        cluster.restart(2);
        for dc in 0..3 {
            listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
        }
        let third = (begun.elapsed().as_millis() * 3 / lasts.as_millis()).min(2) as usize;
        peaks[third] = peaks[third].max(cluster.resident_bytes(0) >> 20);
        println!("after {:.0?}: {left} left, {lost} lost, {killed} killed, {peaks:?} MiB", begun.elapsed());
    }
    let figures = bank.end(&clients).await;
    println!("{figures:?}, {left} left, {lost} lost, {killed} killed, {peaks:?} MiB");
    assert!(figures.commits > 100 && figures.hand_offs > 20, "{figures:?}");
    assert!(figures.audits.iter().all(|audits| *audits > 20), "every auditor has looked: {figures:?}");
    assert_eq!(cluster.server(0).id(), process, "one process from the beginning to the end");
    // A run of a minute has no thirds to compare.
    let ([first, _, last], (percent, more)) = (peaks, FLAT);
    assert!(first == 0 || last <= first * percent / 100 + more, "memory grows: {peaks:?}");
}
