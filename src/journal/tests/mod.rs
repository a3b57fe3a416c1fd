//! Tests of the room: on a disk that crashes, and on the real one.
//!
//! `turmoil-fs` is not used: there a directory entry that was not synced never survives a crash (a real one
//! may, and this is how torn new segments occur), writes tear only in order, and a process cannot die between
//! two chosen calls. [`crash_disk`] keeps any subset of the changes that were not synced.

mod crash_disk;
mod crashes;
mod damage;
mod full_disk;
mod handle;
mod real_directory;

use std::io;
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;

use geolock_api::names::{ClusterId, DcId};

use super::checkpoint::Checkpoint;
use super::error::{Identity, JournalError};
use super::handle::{Journal, JournalEvent, Place, Recovered};
use super::queue::{Batch, record_bytes};
use super::records::Records;
use super::recovery::{Recovery, recover};
use super::writer::{Tried, Writer};
use crash_disk::CrashDisk;

fn identity() -> Identity {
    Identity { cluster: ClusterId::of("test"), dc: DcId::new(1).expect("small") }
}

/// Returns the record at `position`: different from every other, of varying length.
fn record(position: u64) -> Vec<u8> {
    let len = (position * 7 % 40) as usize;
    format!("record {position} ").into_bytes().into_iter().cycle().take(8 + len).collect()
}

fn records(positions: std::ops::RangeInclusive<u64>) -> Vec<(u64, Bytes)> {
    positions.map(|position| (position, record(position).into())).collect()
}

/// The content of a directory, read completely.
#[derive(Debug, PartialEq, Eq, Default)]
struct Held {
    checkpoint: Option<(u64, Vec<u8>)>,
    records: Vec<(u64, Bytes)>,
    restored: bool,
    resolved: bool,
}

impl From<Recovered> for Held {
    fn from(recovered: Recovered) -> Held {
        let Recovered { checkpoint, records, restored, resolved } = recovered;
        Held { checkpoint, records: read(records), restored, resolved }
    }
}

/// The result of recovery, read completely.
struct Opened {
    checkpoint: Option<Checkpoint>,
    records: Vec<(u64, Bytes)>,
    writer: Writer<CrashDisk>,
}

fn read(records: Records) -> Vec<(u64, Bytes)> {
    records.map(|record| record.expect("it was read before")).collect()
}

/// Starts a journal with its threads. Returns it with its events.
fn start(
    disk: &CrashDisk,
    segment_bytes: u64,
    min_free_bytes: u64,
) -> (Journal, Held, Receiver<JournalEvent>) {
    let (sender, events) = channel();
    let sink = move |event| sender.send(event).expect("the test listens");
    let place = Place { disk: disk.clone(), identity: identity(), segment_bytes, min_free_bytes };
    let (journal, recovered) = Journal::open_on(place, None, sink).expect("a good disk");
    (journal, recovered.into(), events)
}

fn append(journal: &mut Journal, positions: std::ops::RangeInclusive<u64>) {
    positions.for_each(|position| journal.append(position, &record(position)));
}

fn open(disk: &CrashDisk) -> Result<Opened, JournalError> {
    let Recovery { checkpoint, records, since_checkpoint, writer } = recover(disk, identity(), 800)?;
    let records = read(records);
    assert_eq!(since_checkpoint, records.iter().map(|(_, record)| record_bytes(record)).sum::<u64>());
    Ok(Opened { checkpoint, records, writer })
}

/// Writes the next `count` records as one batch.
fn write(writer: &mut Writer<CrashDisk>, count: u64) -> Result<(), JournalError> {
    let mut batch = Batch::new(Vec::new(), writer.next);
    (writer.next..writer.next + count).for_each(|position| batch.push(&record(position)));
    assert_eq!(writer.write(&mut batch)?, Tried::Done);
    Ok(())
}

fn io_kind(error: &JournalError) -> Option<io::ErrorKind> {
    match error {
        JournalError::Io { source, .. } => Some(source.kind()),
        _ => None,
    }
}
