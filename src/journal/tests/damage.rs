//! Torn writes at every length, flipped bits at every place, missing files.

use super::super::checkpoint::{self, Checkpoint};
use super::super::disk::Disk;
use super::super::error::JournalError;
use super::super::format::{FRAME_HEADER, SEGMENT_HEADER};
use super::super::queue::Batch;
use super::super::writer::{Tried, segment_name};
use super::crash_disk::{CrashDisk, Forgets};
use super::{identity, open, record, records, write};

const LAST_BATCH: u64 = 3;

/// Returns a disk with several segments of several batches, the position of the last record, and the name of
/// the newest segment. The last batch has [`LAST_BATCH`] records.
fn filled() -> (CrashDisk, u64, String) {
    let disk = CrashDisk::new(Forgets::Nothing);
    let mut writer = open(&disk).expect("a new directory").writer;
    while writer.size().segments < 4 || writer.current.len < 300 {
        write(&mut writer, 4).expect("a good disk");
    }
    write(&mut writer, LAST_BATCH).expect("a good disk");
    assert_eq!(writer.size().segments, 4);
    (disk, writer.next - 1, segment_name(writer.current.header.first))
}

fn last_batch_len(last: u64) -> usize {
    let body: usize = (last - LAST_BATCH + 1..=last).map(|position| 4 + record(position).len()).sum();
    FRAME_HEADER + body
}

#[test]
fn a_write_torn_at_any_length_costs_only_its_own_batch() {
    let (disk, last, newest) = filled();
    let content = disk.content(&newest);
    let start = content.len() - last_batch_len(last);
    assert!(start > SEGMENT_HEADER, "there is a batch before it");
    for end in start..content.len() {
        for tail in [0, 1, 1000] {
            let disk = disk.fork();
            let mut torn = content[..end].to_vec();
            torn.resize(end + tail, 0);
            disk.set_content(&newest, torn);
            let mut recovery = open(&disk).expect("a torn write is no damage");
            assert_eq!(recovery.records, records(1..=last - LAST_BATCH), "cut at {end}");
            write(&mut recovery.writer, 2).expect("a good disk");
            let again = open(&disk).expect("the torn tail was cut off");
            assert_eq!(again.records, records(1..=last - LAST_BATCH + 2));
        }
    }
}

/// Each flipped bit is refused, or costs at most the last batch, which cannot be distinguished from a torn
/// write.
#[test]
fn a_flipped_bit_anywhere_is_found_or_harmless() {
    let (disk, last, newest) = filled();
    let all = records(1..=last);
    let last_batch = disk.content(&newest).len() - last_batch_len(last);
    let mut refused = 0;
    for name in disk.names().expect("this disk lists") {
        let content = disk.content(&name);
        for bit in 0..content.len() * 8 {
            let disk = disk.fork();
            let mut flipped = content.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            disk.set_content(&name, flipped);
            match open(&disk) {
                Err(error) => {
                    assert_eq!(super::io_kind(&error), None, "{name}, bit {bit}: {error}");
                    refused += 1;
                }
                Ok(recovery) => {
                    let harmless = name == newest && bit / 8 >= last_batch;
                    assert!(harmless, "{name}, bit {bit} was not noticed");
                    assert_eq!(recovery.records, all[..all.len() - LAST_BATCH as usize]);
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused} refused");
}

#[test]
fn a_refusal_names_the_place_and_changes_nothing() {
    let (disk, _, newest) = filled();
    let mut content = disk.content(&newest);
    content[SEGMENT_HEADER + FRAME_HEADER + 1] ^= 1;
    disk.set_content(&newest, content.clone());
    let Err(error @ JournalError::Damaged { offset: 44, .. }) = open(&disk).map(|_| ()) else {
        panic!("damage before another batch is no torn write")
    };
    assert!(error.to_string().contains(&newest) && error.to_string().contains("backup"), "{error}");
    assert_eq!(disk.content(&newest), content);
}

/// Bytes journaled by clients can look like frames. They do not make a torn write look like damage.
#[test]
fn frames_within_a_record_are_not_taken_for_later_batches() {
    let (disk, _, newest) = filled();
    let mut recovery = open(&disk).expect("a good disk");
    recovery.writer.segment_bytes = 1 << 20;
    let mut batch = Batch::new(Vec::new(), recovery.writer.next);
    batch.push(&disk.content(&segment_name(1)));
    assert_eq!(recovery.writer.write(&mut batch).expect("a good disk"), Tried::Done);
    let mut content = disk.content(&newest);
    content.pop();
    disk.set_content(&newest, content);
    open(&disk).expect("a torn write is no damage");
}

#[test]
fn a_missing_segment_is_noticed() {
    let (disk, ..) = filled();
    let segments: Vec<String> =
        disk.names().expect("lists").into_iter().filter(|name| name.ends_with(".log")).collect();
    let (newest, others) = segments.split_last().expect("several");
    for name in others {
        let disk = disk.fork();
        disk.remove(name).expect("it is there");
        assert!(matches!(open(&disk), Err(JournalError::Missing { .. })), "without {name}");
    }
    // Only a note beside the log could tell that there was a newer segment; but the log never starts empty.
    others.iter().chain([newest]).for_each(|name| disk.remove(name).expect("it is there"));
    assert!(matches!(open(&disk), Err(JournalError::Missing { from: 1, .. })));
}

#[test]
fn a_segment_of_another_history_does_not_fit() {
    let (one, ..) = filled();
    let (other, ..) = filled();
    let second = one.names().expect("lists").into_iter().filter(|name| name.ends_with(".log")).nth(1);
    let second = second.expect("several segments");
    one.set_content(&second, other.content(&second));
    let Err(JournalError::Damaged { path, offset: 0, .. }) = open(&one) else { panic!("not noticed") };
    assert!(path.ends_with(&second));
}

#[test]
fn a_segment_torn_at_its_creation_is_made_again() {
    let (disk, last, _) = filled();
    let name = segment_name(last + 1);
    for len in 0..=SEGMENT_HEADER {
        let disk = disk.fork();
        disk.create(&name).expect("a new name");
        disk.set_content(&name, vec![0; len]);
        let mut recovery = open(&disk).expect("nothing was in it");
        assert_eq!(recovery.records, records(1..=last));
        write(&mut recovery.writer, 1).expect("a good disk");
        assert_eq!(open(&disk).expect("a good disk").records, records(1..=last + 1));
    }
}

#[test]
fn only_records_after_the_checkpoint_are_recovered() {
    let (disk, last, _) = filled();
    let checkpoint = Checkpoint { position: 20, body: b"twenty".to_vec() };
    assert_eq!(checkpoint.write(&disk, identity()).expect("a good disk"), Tried::Done);
    let mut recovery = open(&disk).expect("a good disk");
    assert_eq!(recovery.checkpoint.expect("it is there").body, b"twenty");
    assert_eq!(recovery.records, records(21..=last));
    assert!(!disk.names().expect("lists").contains(&segment_name(1)), "nothing in it is needed");
    assert_eq!(recovery.writer.truncate(20).expect("a good disk"), 0);
    assert_eq!(open(&disk).expect("a good disk").records, records(21..=last));
}

#[test]
fn a_damaged_checkpoint_matters_when_it_is_needed() {
    let (disk, last, _) = filled();
    let checkpoint = Checkpoint { position: 20, body: b"state".to_vec() };
    assert_eq!(checkpoint.write(&disk, identity()).expect("a good disk"), Tried::Done);
    let name = checkpoint::name_of(20);
    let content = disk.content(&name);
    for bit in 0..content.len() * 8 {
        let mut flipped = content.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let disk = disk.fork();
        disk.set_content(&name, flipped);
        match open(&disk) {
            Ok(recovery) => assert_eq!(recovery.records, records(1..=last), "bit {bit}"),
            Err(JournalError::UnknownVersion { .. }) => assert_eq!(bit / 8, 8),
            Err(error) => panic!("bit {bit}: {error}"),
        }
        disk.remove(&segment_name(1)).expect("it is there");
        assert!(open(&disk).is_err(), "bit {bit}");
    }
}

/// The last batch is damaged, but a checkpoint covers it: positions continue after the checkpoint.
#[test]
fn a_checkpoint_ahead_of_a_damaged_tail_stands() {
    let (disk, last, newest) = filled();
    let checkpoint = Checkpoint { position: last, body: b"state".to_vec() };
    assert_eq!(checkpoint.write(&disk, identity()).expect("a good disk"), Tried::Done);
    let mut content = disk.content(&newest);
    *content.last_mut().expect("not empty") ^= 1;
    disk.set_content(&newest, content);
    let mut recovery = open(&disk).expect("nothing is lost");
    assert_eq!((recovery.records.len(), recovery.writer.next), (0, last + 1));
    write(&mut recovery.writer, 2).expect("a good disk");
    assert_eq!(open(&disk).expect("a good disk").records, records(last + 1..=last + 2));
}
