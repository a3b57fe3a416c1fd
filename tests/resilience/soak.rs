//! The load of [`Bank`] for any length of time, under random kills, cuts and pauses from outside: every
//! snapshot has the same total, no acknowledged transfer is lost, and no server's memory or disk grows.
//!
//! `GEOLOCK_SOAK_MINUTES=30 cargo test --profile sim --test resilience soak:: -- --ignored --nocapture`

use std::time::{Duration, Instant};

use crate::fixture::Cluster;
use crate::fixture::bank::{Bank, CHECKPOINTS};
use crate::fixture::servers;
use crate::fixture::trouble::{Dice, Tally, make_trouble_sparing};

const DCS: u8 = 3;
/// This server is cut off and paused, and never killed: a slow memory leak is visible only in a long-lived
/// process.
const SPARED: u8 = 2;
/// The permitted growth from the first to the last third of a run: a factor in percent, and MiB.
const FLAT: (u64, u64) = (125, 24);

/// The highest figures of a period, in MiB: the memory of the spared server, the disk of any server.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    memory: u64,
    disk: u64,
}

impl Peak {
    fn note(&mut self, cluster: &Cluster) {
        self.memory = self.memory.max(cluster.resident_bytes(SPARED) >> 20);
        for dc in 0..DCS {
            self.disk = self.disk.max(cluster.disk_bytes(dc) >> 20);
        }
    }

    fn is_flat_after(self, before: Peak) -> bool {
        let (percent, more) = FLAT;
        let bound = |before: u64| before * percent / 100 + more;
        self.memory <= bound(before.memory) && self.disk <= bound(before.disk)
    }
}

fn duration() -> Duration {
    let minutes =
        std::env::var("GEOLOCK_SOAK_MINUTES").map_or(30, |text| text.parse().expect("a number of minutes"));
    Duration::from_secs(60 * minutes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it runs for half an hour"]
async fn a_long_load_under_random_faults_breaks_nothing_and_memory_stays_flat() {
    let _alone = crate::alone().await;
    let mut dice = Dice::from_environment();
    let (mut wan, clients) = servers(DCS).quick().with(CHECKPOINTS).relayed().serving().await;
    let bank = Bank::begin(&clients, &mut dice).await;
    let process = wan.cluster.server(SPARED).id();
    let (begun, lasts) = (Instant::now(), duration());
    let (mut peaks, mut rounds, mut pauses, mut total) = ([Peak::default(); 3], 0, 0, Tally::default());
    while begun.elapsed() < lasts {
        let tally = make_trouble_sparing(Some(SPARED), &mut wan, &mut dice, bank.load()).await;
        total.kills += tally.kills;
        total.broken += tally.broken;
        wan.pause(dice.roll(DCS.into()) as u8);
        pauses += 1;
        let third = (begun.elapsed().as_millis() * 3 / lasts.as_millis()).min(2) as usize;
        peaks[third].note(&wan.cluster);
        rounds += 1;
        println!("round {rounds} after {:.0?}: {total:?}, MiB by third {peaks:?}", begun.elapsed());
    }
    let figures = bank.end(&clients).await;
    println!("{figures:?}, {total:?}, {pauses} pauses, {peaks:?}");
    assert!(figures.commits > 100 && figures.hand_offs > 20, "{figures:?}");
    assert!(figures.audits.iter().all(|audits| *audits > 20), "every auditor has looked: {figures:?}");
    assert!(figures.unknown < 10 * rounds, "outcomes are known: {figures:?}");
    assert_eq!(wan.cluster.server(SPARED).id(), process, "one process from the beginning to the end");
    // A run of a minute has no thirds to compare.
    let [first, _, last] = peaks;
    assert!(first.memory == 0 || last.is_flat_after(first), "memory or disk grows: {peaks:?}");
}
