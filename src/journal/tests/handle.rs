//! The threads: group commit, failure, checkpoints beside the log. Every wait is for an event.

use std::io::ErrorKind;
use std::sync::mpsc::Receiver;

use super::super::disk::Disk;
use super::super::handle::{Journal, JournalEvent};
use super::crash_disk::{CrashDisk, Forgets};
use super::{Held, append, record, records};

fn start(disk: &CrashDisk) -> (Journal, Held, Receiver<JournalEvent>) {
    super::start(disk, 1 << 16, 1 << 10)
}

fn durable(event: JournalEvent) -> u64 {
    match event {
        JournalEvent::Durable(position) => position,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_next_batch_gathers_while_one_is_written() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk);
    disk.hold_syncs();
    append(&mut journal, 1..=1);
    disk.wait_for_held_sync();
    append(&mut journal, 2..=300);
    assert!(events.try_recv().is_err(), "nothing is durable before its sync");
    let backlog = (1..=300).map(|position| 4 + record(position).len() as u64).sum::<u64>();
    let figures = journal.figures();
    assert_eq!((figures.backlog_bytes, figures.since_checkpoint), (backlog, backlog));
    disk.release_syncs();
    let told: Vec<u64> = [events.recv(), events.recv()].map(|event| durable(event.expect("alive"))).into();
    assert_eq!(told, [1, 300]);
    let figures = journal.figures();
    assert_eq!((figures.batches, figures.backlog_bytes), (2, 0));
    journal.close().expect("nothing failed");
    assert!(events.recv().is_err(), "the sink is gone with the thread");
    assert_eq!(start(&disk).1.records, records(1..=300));
}

#[test]
fn closing_writes_what_is_queued() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk);
    append(&mut journal, 1..=1000);
    journal.close().expect("nothing failed");
    assert_eq!(events.iter().map(durable).last(), Some(1000));
    assert_eq!(start(&disk).1.records, records(1..=1000));
}

#[test]
fn records_of_the_largest_size_are_split_into_batches() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk);
    disk.hold_syncs();
    append(&mut journal, 1..=1);
    disk.wait_for_held_sync();
    let largest = vec![7; crate::base::wire::MAX_FRAME];
    (2..=4).for_each(|position| journal.append(position, &largest));
    disk.release_syncs();
    journal.close().expect("nothing failed");
    assert_eq!(events.iter().map(durable).collect::<Vec<_>>(), [1, 3, 4]);
    let recovered = start(&disk).1.records;
    assert_eq!(recovered.len(), 4);
    assert!(recovered[1..].iter().all(|(_, record)| *record == largest));
}

#[test]
fn a_failed_sync_is_told_once_and_not_tried_again() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk);
    append(&mut journal, 1..=1);
    assert_eq!(durable(events.recv().expect("alive")), 1);
    disk.fail_syncs(ErrorKind::Other);
    append(&mut journal, 2..=9);
    assert!(matches!(events.recv(), Ok(JournalEvent::Failed(_))));
    drop(journal);
    assert!(events.recv().is_err());
}

#[test]
fn checkpoints_are_made_beside_the_log_and_free_it() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk);
    let mut position = 0;
    for round in 1..=4_u64 {
        let last = position + 2_000;
        append(&mut journal, position + 1..=last);
        journal.checkpoint(last, round.to_le_bytes().to_vec());
        assert_eq!(journal.figures().since_checkpoint, 0);
        append(&mut journal, last + 1..=last + 5);
        position = last + 5;
        let freed = events.iter().find_map(|event| match event {
            JournalEvent::CheckpointDone { position, bytes_freed } => Some((position, bytes_freed)),
            JournalEvent::Durable(_) => None,
            other @ (JournalEvent::CheckpointSkipped | JournalEvent::DiskSpace(_)) => panic!("{other:?}"),
            JournalEvent::Failed(error) => panic!("{error}"),
        });
        let (at, freed) = freed.expect("alive");
        assert_eq!(at, last);
        assert!(freed > 40_000, "{freed} bytes");
    }
    journal.close().expect("nothing failed");
    assert_eq!(disk.names().expect("lists").iter().filter(|name| name.ends_with(".checkpoint")).count(), 1);
    let (journal, recovered, _events) = start(&disk);
    assert_eq!(recovered.checkpoint, Some((position - 5, 4_u64.to_le_bytes().to_vec())));
    assert_eq!(recovered.records, records(position - 4..=position));
    assert!(journal.figures().since_checkpoint > 0);
}

#[test]
fn a_checkpoint_that_cannot_be_written_stops_the_journal() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk);
    append(&mut journal, 1..=1);
    assert_eq!(durable(events.recv().expect("alive")), 1);
    disk.fail_writes(Some(ErrorKind::ReadOnlyFilesystem));
    journal.checkpoint(1, vec![0; 10_000]);
    assert!(matches!(events.recv(), Ok(JournalEvent::Failed(_))));
    assert!(journal.close().is_err());
    disk.fail_writes(None);
    assert_eq!(start(&disk).1, Held { records: records(1..=1), ..Held::default() });
}
