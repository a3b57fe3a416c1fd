//! A disk that fills up: it is reported early, nothing is lost, and the journal continues when there is room.

use std::io::ErrorKind;
use std::sync::mpsc::Receiver;

use super::super::checkpoint;
use super::super::disk::Disk;
use super::super::error::JournalError;
use super::super::handle::{Journal, JournalEvent};
use super::crash_disk::{CrashDisk, Forgets};
use super::{Held, append, io_kind, records};
use crate::base::capacity::DiskSpace;

/// Starts with segments of 4 KiB.
fn start(disk: &CrashDisk, reserve: u64) -> (Journal, Held, Receiver<JournalEvent>) {
    super::start(disk, 1 << 12, reserve)
}

/// Waits until `position` is durable. Returns the disk space events before that.
fn until_durable(events: &Receiver<JournalEvent>, position: u64) -> Vec<DiskSpace> {
    let mut rooms = Vec::new();
    loop {
        match events.recv().expect("alive") {
            JournalEvent::Durable(durable) if durable >= position => return rooms,
            JournalEvent::Durable(_) | JournalEvent::CheckpointDone { .. } => {}
            JournalEvent::DiskSpace(room) => rooms.push(room),
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until that disk space is reported and all records up to `position` are durable, in either order.
fn until(events: &Receiver<JournalEvent>, position: u64, wanted: DiskSpace) {
    let (mut durable, mut room) = (0, None);
    while durable < position || room != Some(wanted) {
        match events.recv().expect("alive") {
            JournalEvent::Durable(told) => durable = told,
            JournalEvent::DiskSpace(told) => room = Some(told),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(durable, position);
}

fn until_disk_space(events: &Receiver<JournalEvent>, disk_space: DiskSpace) -> u64 {
    let mut durable = 0;
    loop {
        match events.recv().expect("alive") {
            JournalEvent::Durable(position) => durable = position,
            JournalEvent::DiskSpace(told) if told == disk_space => return durable,
            other => panic!("{other:?}"),
        }
    }
}

/// Appends one record after the other until the disk is full. Returns the durable position.
fn fill(journal: &mut Journal, events: &Receiver<JournalEvent>) -> u64 {
    for position in 1.. {
        append(journal, position..=position);
        match events.recv().expect("alive") {
            JournalEvent::Durable(durable) => assert_eq!(durable, position),
            JournalEvent::DiskSpace(DiskSpace::Full) => return position - 1,
            other => panic!("{other:?}"),
        }
    }
    unreachable!("the disk is small")
}

#[test]
fn what_finds_no_room_is_written_when_there_is_some() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 0);
    disk.set_capacity(Some(20_000));
    let durable = fill(&mut journal, &events);
    assert!(durable > 300, "{durable}");
    append(&mut journal, durable + 2..=durable + 10);
    let figures = journal.figures();
    assert_eq!(
        (figures.waiting_for_disk_space, figures.disk_space, figures.durable),
        (true, DiskSpace::Full, durable)
    );
    let (_, recovered, _events) = start(&disk.fork(), 0);
    assert_eq!(recovered.records, records(1..=durable), "a crash now loses nothing that was told");
    disk.set_capacity(None);
    until(&events, durable + 10, DiskSpace::Enough);
    assert!(!journal.figures().waiting_for_disk_space);
    journal.close().expect("nothing failed");
    assert_eq!(start(&disk, 0).1.records, records(1..=durable + 10));
}

#[test]
fn what_is_left_of_a_write_without_room_is_cut_off() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 0);
    append(&mut journal, 1..=1);
    assert_eq!(until_durable(&events, 1), []);
    let before = disk.used();
    disk.set_capacity(Some(before + 5));
    append(&mut journal, 2..=2);
    assert!(matches!(events.recv(), Ok(JournalEvent::DiskSpace(DiskSpace::Full))));
    assert_eq!(disk.used(), before);
    disk.set_capacity(None);
    until(&events, 2, DiskSpace::Enough);
}

#[test]
fn it_says_so_before_the_disk_is_full_and_writes_what_comes() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 8_000);
    disk.set_capacity(Some(100_000));
    append(&mut journal, 1..=200);
    assert_eq!(until_durable(&events, 200), []);
    disk.set_capacity(Some(disk.used() + 7_000));
    append(&mut journal, 201..=202);
    until(&events, 202, DiskSpace::Low);
    append(&mut journal, 203..=207);
    assert_eq!(until_durable(&events, 207), [], "there is a reserve");
    disk.set_capacity(Some(disk.used() + 3_500));
    append(&mut journal, 208..=209);
    until(&events, 209, DiskSpace::Full);
    assert!(journal.figures().free_bytes.is_some_and(|free| free < 4_000));
    append(&mut journal, 210..=210);
    assert_eq!(until_durable(&events, 210), [], "half of it is left");
    disk.set_capacity(Some(100_000));
    assert_eq!(until_disk_space(&events, DiskSpace::Enough), 0);
}

#[test]
fn a_quota_that_the_disk_does_not_tell_of_is_like_a_full_disk() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 100);
    disk.fail_writes(Some(ErrorKind::QuotaExceeded));
    append(&mut journal, 1..=9);
    assert_eq!(until_disk_space(&events, DiskSpace::Full), 0);
    disk.fail_writes(None);
    until(&events, 9, DiskSpace::Enough);
}

#[test]
fn a_checkpoint_without_room_leaves_everything_as_it_was() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 0);
    append(&mut journal, 1..=200);
    until_durable(&events, 200);
    let figures = journal.figures();
    disk.set_capacity(Some(disk.used() + 2_000));
    journal.checkpoint(200, vec![0; 10_000]);
    append(&mut journal, 201..=202);
    let (mut durable, mut is_skipped) = (200, false);
    while durable < 202 || !is_skipped {
        match events.recv().expect("alive") {
            JournalEvent::Durable(position) => durable = position,
            JournalEvent::CheckpointSkipped => is_skipped = true,
            other => panic!("{other:?}"),
        }
    }
    let names = disk.names().expect("lists");
    assert!(!names.iter().any(|name| name == checkpoint::TEMP), "{names:?}");
    assert!(journal.figures().since_checkpoint > figures.since_checkpoint, "a restart replays all of it");
    assert_eq!(start(&disk.fork(), 0).1, Held { records: records(1..=202), ..Held::default() });

    disk.set_capacity(None);
    journal.checkpoint(202, vec![0; 10_000]);
    let done = events.iter().find(|event| matches!(event, JournalEvent::CheckpointDone { .. }));
    assert!(
        matches!(done, Some(JournalEvent::CheckpointDone { position: 202, bytes_freed }) if bytes_freed > 4_000)
    );
    let figures = journal.figures();
    assert_eq!((figures.since_checkpoint, figures.checkpoints, figures.checkpoints_skipped), (0, 1, 1));
}

#[test]
fn a_disk_that_does_not_say_what_is_free_takes_checkpoints() {
    let disk = CrashDisk::new(Forgets::Nothing);
    disk.hide_free();
    let (mut journal, _, events) = start(&disk, 0);
    append(&mut journal, 1..=9);
    until_durable(&events, 9);
    journal.checkpoint(9, b"state".to_vec());
    let next = events.iter().find(|event| !matches!(event, JournalEvent::Durable(_)));
    assert!(matches!(next, Some(JournalEvent::CheckpointDone { position: 9, .. })), "{next:?}");
}

/// A checkpoint was in progress when the disk became full: the log continues with the room that it frees.
#[test]
fn a_checkpoint_makes_room_for_what_waits() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 0);
    append(&mut journal, 1..=300);
    until_durable(&events, 300);
    let mut last = 300;
    // No segment is to be begun, which needs a sync, before the checkpoint is written.
    while journal.figures().log.reclaimable == journal.figures().log.bytes {
        last += 1;
        append(&mut journal, last..=last);
        until_durable(&events, last);
    }
    disk.hold_syncs();
    journal.checkpoint(last, b"state".to_vec());
    let is_written = || {
        let names = disk.names().expect("lists");
        names.iter().any(|name| name == checkpoint::TEMP)
            && disk.content(checkpoint::TEMP).ends_with(b"state")
    };
    while !is_written() {
        std::thread::yield_now();
    }
    disk.set_capacity(Some(disk.used()));
    append(&mut journal, last + 1..=last + 1);
    disk.release_syncs();
    until_durable(&events, last + 1);
    assert_eq!(journal.figures().checkpoints, 1);
    drop(journal);
    let recovered = start(&disk, 0).1;
    assert_eq!(
        (recovered.checkpoint, recovered.records),
        (Some((last, b"state".to_vec())), records(last + 1..=last + 1))
    );
}

#[test]
fn closing_does_not_wait_for_room() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 0);
    disk.set_capacity(Some(2_000));
    let durable = fill(&mut journal, &events);
    assert!(matches!(journal.close(), Err(JournalError::Stopped)));
    let said = events.recv().expect("it says why");
    assert!(matches!(said, JournalEvent::Failed(JournalError::NoRoom { .. })), "{said:?}");
    assert!(events.recv().is_err(), "nothing follows");
    assert_eq!(start(&disk, 0).1.records, records(1..=durable));
}

/// A failed sync leaves unknown bytes on the disk, whatever the reason: there is no second attempt.
#[test]
fn a_sync_that_finds_no_room_stops_it() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 0);
    append(&mut journal, 1..=1);
    until_durable(&events, 1);
    disk.fail_syncs(ErrorKind::StorageFull);
    append(&mut journal, 2..=9);
    let Ok(JournalEvent::Failed(error)) = events.recv() else { panic!("it fails") };
    assert_eq!(io_kind(&error), Some(ErrorKind::StorageFull), "{error}");
    assert!(journal.close().is_err());
}

#[test]
fn a_write_that_fails_otherwise_stops_it() {
    let disk = CrashDisk::new(Forgets::Nothing);
    let (mut journal, _, events) = start(&disk, 0);
    disk.fail_writes(Some(ErrorKind::ReadOnlyFilesystem));
    append(&mut journal, 1..=1);
    let Ok(JournalEvent::Failed(error)) = events.recv() else { panic!("it fails") };
    assert!(error.to_string().contains("write crash-disk/00000000000000000001.log"), "{error}");
    disk.fail_writes(None);
    append(&mut journal, 2..=2);
    assert!(matches!(journal.close(), Err(JournalError::Stopped)));
    assert!(events.recv().is_err(), "told once");
}
