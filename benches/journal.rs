//! The cost of group commit above that of the disk: records made durable per second through the journal,
//! beside a bare loop of one write and one `fdatasync` per batch on the same disk in the same run.
//!
//! `cargo bench --bench journal [-- DIRECTORY]`. The directory selects the disk; the default is the current
//! directory. Rounds alternate, so that a busy machine affects both alike; the median ratio counts.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod rounds;

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use geolock::journal::{Journal, JournalEvent, JournalOptions};
use geolock_api::names::{ClusterId, DcId};
use rounds::median;

/// About the size of an entry with one transfer.
const RECORD: [u8; 120] = [7; 120];
const ROUND: Duration = Duration::from_millis(400);
const ROUNDS: usize = 7;

fn main() -> io::Result<()> {
    // Cargo passes `--bench`; the first other argument is the directory.
    let base = env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let dir = base.unwrap_or_else(|| ".".into()).join(format!("journal-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    println!("records of {} bytes, medians of {ROUNDS} rounds of {ROUND:?}", RECORD.len());
    println!("{:>6} {:>12} {:>14} {:>14} {:>8}", "batch", "mean batch", "journal/s", "bare/s", "ratio");
    for (batch, in_flight) in [(1, 1), (256, 512)] {
        let mut rounds: Vec<[f64; 4]> = Vec::new();
        for round in 0..ROUNDS {
            let dir = dir.join(format!("{batch}-{round}"));
            let (ours, mean) = journal(&dir, in_flight);
            let bare = bare(&dir.join("bare"), batch)?;
            rounds.push([mean, ours, bare, ours / bare]);
        }
        let [mean, ours, bare, ratio] = [0, 1, 2, 3].map(|i| median(rounds.iter().map(|r| r[i]).collect()));
        println!("{batch:>6} {mean:>12.1} {ours:>14.0} {bare:>14.0} {ratio:>8.2}");
    }
    fs::remove_dir_all(&dir)
}

/// Returns records per second with `in_flight` of them not durable at any time, so that one half is written
/// while the other gathers; and the mean size of a batch.
fn journal(dir: &Path, in_flight: u64) -> (f64, f64) {
    let (sender, events) = channel();
    let dc = DcId::new(0).expect("0 is an id");
    let options = JournalOptions::new(dir.to_owned(), ClusterId::of("bench"), dc);
    let sink = move |event| sender.send(event).expect("the bench listens");
    let (mut journal, _) = Journal::open(options, sink).expect("a new directory");
    let (mut appended, mut durable) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < ROUND {
        while appended < durable + in_flight {
            appended += 1;
            journal.append(appended, &RECORD);
        }
        durable = next_durable(&events);
    }
    let rate = durable as f64 / start.elapsed().as_secs_f64();
    let mean = durable as f64 / journal.figures().batches as f64;
    journal.close().expect("nothing failed");
    (rate, mean)
}

fn next_durable(events: &Receiver<JournalEvent>) -> u64 {
    match events.recv().expect("the journal lives") {
        JournalEvent::Durable(position) => position,
        other => panic!("{other:?}"),
    }
}

fn bare(path: &Path, batch: u64) -> io::Result<f64> {
    let mut file = File::create_new(path)?;
    let bytes = RECORD.repeat(batch as usize);
    let mut records = 0;
    let start = Instant::now();
    while start.elapsed() < ROUND {
        file.write_all(&bytes)?;
        file.sync_data()?;
        records += batch;
    }
    Ok(records as f64 / start.elapsed().as_secs_f64())
}
