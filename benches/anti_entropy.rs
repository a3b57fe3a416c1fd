//! The cost of a round of anti-entropy for two datacenters, in the core alone: when both have the same
//! entries, and when one lacks an entry that was lost on the way. The baseline in the same run is a store of
//! 1 000 keys; with 1 000 000 the cost must be the same, because digests are updated commit by commit.
//!
//! `cargo bench --bench anti_entropy`. A round is all work of both until no more messages are sent:
//! microseconds, and bytes as sent on the link.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod replicas;
mod rounds;

use std::time::Duration;

use geolock::base::wire;
use geolock::replica::{Event, LocalConfig, Message};
use replicas::{Replicas, dc};
use rounds::median;

const ROUNDS: usize = 501;
/// Keys of one commit while the store is filled.
const BATCH: u64 = 100;
/// So short that the lease outlives all rounds.
const ANTI_ENTROPY: Duration = Duration::from_millis(100);

fn main() {
    println!("{:>10} {:>12} {:>9} {:>14} {:>9}", "keys", "equal us", "bytes", "one lacks us", "bytes");
    let mut baseline: Option<[f64; 2]> = None;
    for keys in [1_000, 1_000_000] {
        let mut pair = filled(keys);
        let equal = median((0..ROUNDS).map(|_| round(&mut pair, None)).collect());
        let lacking = |_| {
            let lost = lose_a_commit(&mut pair);
            round(&mut pair, Some(lost))
        };
        let lacking = median((0..ROUNDS).map(lacking).collect());
        println!("{keys:>10} {:>12.2} {:>9} {:>14.2} {:>9}", equal.0, equal.1, lacking.0, lacking.1);
        match baseline {
            None => baseline = Some([equal.0, lacking.0]),
            Some(few) => {
                println!("{:>10} {:>12.2} {:>9} {:>14.2}", "ratio", equal.0 / few[0], "", lacking.0 / few[1])
            }
        }
    }
}

/// Returns two datacenters that both have that many keys.
fn filled(keys: u64) -> Replicas {
    let mut pair =
        Replicas::new(2, &LocalConfig { anti_entropy_interval: ANTI_ENTROPY, ..LocalConfig::default() });
    pair.link(0, 1);
    pair.open_lease();
    for first in (0..keys).step_by(BATCH as usize) {
        pair.commit(first..first + BATCH);
        pair.deliver(|_| {});
    }
    pair.rest();
    assert!(pair.all.iter().all(|replica| replica.inspect().counts().keys == keys));
    assert_eq!(pair.all[0].inspect().counts().log_entries, 0);
    pair
}

/// Commits at the first datacenter, and drops the message with the commit.
fn lose_a_commit(pair: &mut Replicas) -> u64 {
    pair.commit(0..1);
    pair.sync();
    let lost = pair.said[1].pop_front();
    assert!(matches!(lost, Some((0, Message::Entries(_)))), "{lost:?}, {:?}", pair.last);
    pair.handle(0, Event::Flushed { peer: dc(1), messages: 1, batches: 1 });
    pair.all[0].inspect().counts().entries_made
}

/// Runs a round that the second datacenter begins, until no more messages are sent. Its time is that of both
/// replicas.
fn round(pair: &mut Replicas, lost: Option<u64>) -> (f64, usize) {
    pair.time += ANTI_ENTROPY;
    let mut bytes = 0;
    let start = std::time::Instant::now();
    pair.handle(1, Event::Tick);
    pair.deliver(|message| bytes += wire::encode("message", message).expect("it fits a frame").len());
    let micros = start.elapsed().as_secs_f64() * 1e6;
    if let Some(lost) = lost {
        assert_eq!(pair.all[1].inspect().counts().entries_applied, lost, "it has what was lost");
    }
    (micros, bytes)
}
