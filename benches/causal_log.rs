//! The cost of an entry of the causal log for two datacenters, from the commit of a client at one until the
//! other has applied it and the first has its acknowledgement; alone, and while 100 000 and 1 000 000 entries
//! are kept for a third one that is away. Then the speed at which that one catches up when it is back.
//!
//! One thread, the core alone. The baseline, in the same run and in alternating rounds, is the minimum work
//! of a log in two places: a value of the same kind is created, appended to two queues, and added up in two
//! hash maps.
//!
//! `cargo bench --bench causal_log`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod replicas;
mod rounds;

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use geolock::replica::{Event, LocalConfig};
use replicas::Replicas;
use rounds::median;

const KEPT: [u64; 3] = [0, 100_000, 1_000_000];
/// Entries of a round, and how many are in transit at a time, as with group commit.
const ENTRIES: u64 = 20_000;
const BATCH: u64 = 64;
const ROUNDS: usize = 7;
/// Keys that commits change in turn.
const KEYS: u64 = 1_000;
/// The member that is away.
const AWAY: usize = 2;

fn main() {
    println!("{:>12} {:>12} {:>16} {:>8}", "kept", "us an entry", "two queues us", "ratio");
    // The log may grow without limit: no member is given up.
    let local = LocalConfig { max_log: 16 << 30, ..LocalConfig::default() };
    let mut three = without_the_third(&local);
    let mut queues = Queues::default();
    for kept in KEPT {
        while three.all[0].inspect().counts().log_entries < kept {
            commit(&mut three, ENTRIES.min(kept));
        }
        let (mut entries, mut baseline) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            entries.push(micros_each(|| commit(&mut three, ENTRIES)));
            baseline.push(micros_each(|| queues.add(ENTRIES)));
            queues.forget();
            // A log that keeps nothing truncates everything.
            if kept == 0 {
                three = without_the_third(&local);
            }
        }
        let (entries, baseline) = (median(entries), median(baseline));
        println!("{kept:>12} {entries:>12.2} {baseline:>16.2} {:>8.1}", entries / baseline);
    }
    catch_up(three);
}

/// Returns three new datacenters, one of which is away.
fn without_the_third(local: &LocalConfig) -> Replicas {
    let mut three = Replicas::new(3, local);
    [(0, 1), (0, AWAY), (1, AWAY)].into_iter().for_each(|(a, b)| three.link(a, b));
    three.open_lease();
    three.rest();
    three.cut_off(AWAY);
    three
}

/// Commits that many entries with one change each, until both have them.
fn commit(three: &mut Replicas, entries: u64) {
    for first in (0..entries).step_by(BATCH as usize) {
        for n in first..(first + BATCH).min(entries) {
            three.commit([n % KEYS].into_iter());
        }
        three.deliver(|_| {});
    }
    let [made, applied] =
        [three.all[0].inspect().counts().entries_made, three.all[1].inspect().counts().entries_applied];
    assert_eq!(made, applied, "both have all");
}

/// Links the member that was away, and waits until it has caught up.
fn catch_up(mut three: Replicas) {
    let kept = three.all[0].inspect().counts().log_entries;
    let start = Instant::now();
    three.link(0, AWAY);
    let took = start.elapsed();
    assert_eq!(three.all[AWAY].inspect().counts().entries_applied, kept, "it has all");
    println!(
        "{kept} entries sent to one that was away: {took:.2?}, {:.0}/s",
        kept as f64 / took.as_secs_f64()
    );
    three.rest();
    three.handle(0, Event::Tick);
    assert_eq!(three.all[0].inspect().counts().log_entries, 0, "nothing is kept any more");
}

fn micros_each(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6 / ENTRIES as f64
}

/// The baseline.
#[derive(Default)]
struct Queues {
    queues: [VecDeque<Arc<(String, u64)>>; 2],
    sums: [HashMap<String, u64>; 2],
}

impl Queues {
    fn add(&mut self, entries: u64) {
        for n in 0..entries {
            let entry = Arc::new((format!("account/{}", n % KEYS), 1));
            for (queue, sums) in self.queues.iter_mut().zip(&mut self.sums) {
                queue.push_back(Arc::clone(&entry));
                match sums.get_mut(&entry.0) {
                    Some(sum) => *sum += entry.1,
                    None => drop(sums.insert(entry.0.clone(), entry.1)),
                }
            }
        }
        black_box(&self.sums);
    }

    fn forget(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
    }
}
