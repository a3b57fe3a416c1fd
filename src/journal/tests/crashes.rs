//! Thousands of runs of a journal that end at any call to the disk. Invariant: no record that was reported
//! durable is lost, and the recovered records are a prefix of the appended ones.

use super::super::checkpoint::Checkpoint;
use super::super::error::JournalError;
use super::super::queue::Batch;
use super::super::writer::{Tried, Writer, segment_name};
use super::crash_disk::{CrashDisk, Forgets, Rng};
use super::{Opened, identity, open};

/// Counts of events over many runs: a test in which nothing happens fails.
#[derive(Default, Debug)]
struct Tally {
    power_cuts: u64,
    deaths_while_opening: u64,
    unacknowledged_kept: u64,
    unacknowledged_lost: u64,
    checkpoints_recovered: u64,
    freed: u64,
    /// Batches and checkpoints for which there was no room.
    without_room: u64,
    /// Starts for which there was no room.
    starts_without_room: u64,
}

/// The records given to a journal, and those that it reported durable.
struct Model {
    /// The `i`-th record has position `i + 1`.
    appended: Vec<Vec<u8>>,
    durable: u64,
    rng: Rng,
}

#[derive(Debug, PartialEq, Eq)]
enum Broken {
    /// Lost, wrong, or too many.
    Records,
    Checkpoint,
    /// It does not open.
    Refused(String),
}

impl Model {
    fn checkpoint_body(&self, position: u64) -> Vec<u8> {
        self.appended[..position as usize].iter().fold(position.to_le_bytes().to_vec(), |mut body, record| {
            body.extend(crc32c::crc32c(record).to_le_bytes());
            body
        })
    }

    fn check(&mut self, recovery: &Opened, tally: &mut Tally) -> Result<(), Broken> {
        let mut next = 1;
        if let Some(checkpoint) = &recovery.checkpoint {
            let known = checkpoint.position <= self.appended.len() as u64;
            if !known || checkpoint.body != self.checkpoint_body(checkpoint.position) {
                return Err(Broken::Checkpoint);
            }
            tally.checkpoints_recovered += 1;
            next = checkpoint.position + 1;
        }
        for (position, record) in &recovery.records {
            if *position != next
                || self.appended.get(next as usize - 1).is_none_or(|appended| appended != record)
            {
                return Err(Broken::Records);
            }
            next += 1;
        }
        if next <= self.durable || next != recovery.writer.next {
            return Err(Broken::Records);
        }
        tally.unacknowledged_kept += next - 1 - self.durable;
        tally.unacknowledged_lost += self.appended.len() as u64 - (next - 1);
        self.appended.truncate(next as usize - 1);
        self.durable = next - 1;
        Ok(())
    }

    fn write(&mut self, writer: &mut Writer<CrashDisk>, tally: &mut Tally) -> Result<(), JournalError> {
        let mut batch = Batch::new(Vec::new(), writer.next);
        for _ in 0..=self.rng.below(4) {
            let (len, fill) = (self.rng.below(120) as usize, self.rng.next() as u8);
            let record = vec![fill; len];
            batch.push(&record);
            self.appended.push(record);
        }
        self.shrink(&writer.disk);
        while writer.write(&mut batch)? == Tried::NoRoom {
            tally.without_room += 1;
            let name = segment_name(writer.current.header.first);
            assert_eq!(writer.disk.content(&name).len() as u64, writer.current.len, "no tail is left");
            writer.disk.set_capacity(None);
        }
        self.durable = batch.last;
        Ok(())
    }

    /// Limits the room at random.
    fn shrink(&mut self, disk: &CrashDisk) {
        if self.rng.one_in(8) {
            disk.set_capacity(Some(disk.used() + self.rng.below(300) as usize));
        }
    }

    /// Writes a checkpoint as the two threads do, with batches in between.
    fn checkpoint(&mut self, writer: &mut Writer<CrashDisk>, tally: &mut Tally) -> Result<(), JournalError> {
        let position = self.durable;
        let checkpoint = Checkpoint { position, body: self.checkpoint_body(position) };
        writer.rotate_for_checkpoint()?;
        if self.rng.one_in(2) {
            self.write(writer, tally)?;
        }
        self.shrink(&writer.disk);
        if checkpoint.write(&writer.disk, identity())? == Tried::NoRoom {
            tally.without_room += 1;
            return Ok(());
        }
        if self.rng.one_in(2) {
            self.write(writer, tally)?;
        }
        tally.freed += writer.truncate(position)?;
        Ok(())
    }

    /// Runs until the process dies or has done enough.
    fn live(&mut self, mut writer: Writer<CrashDisk>, tally: &mut Tally) -> Result<(), JournalError> {
        for _ in 0..self.rng.below(30) {
            if self.rng.one_in(6) {
                self.checkpoint(&mut writer, tally)?;
            } else {
                self.write(&mut writer, tally)?;
            }
        }
        Ok(())
    }
}

fn run(seed: u64, forgets: Forgets, tally: &mut Tally) -> Result<(), Broken> {
    let disk = CrashDisk::new(forgets);
    let mut model = Model { appended: Vec::new(), durable: 0, rng: Rng(seed) };
    for _ in 0..8 {
        let calls = 1 + model.rng.below(90);
        disk.die_after(Some(calls));
        model.shrink(&disk);
        match open(&disk) {
            Ok(recovery) => {
                model.check(&recovery, tally)?;
                let ended = model.live(recovery.writer, tally);
                assert!(ended.is_ok() || disk.dead(), "{ended:?}");
            }
            Err(_) if disk.dead() => tally.deaths_while_opening += 1,
            Err(JournalError::NoRoom { .. }) => tally.starts_without_room += 1,
            Err(error) => return Err(Broken::Refused(error.to_string())),
        }
        disk.set_capacity(None);
        if !model.rng.one_in(4) {
            disk.crash(&mut model.rng);
            tally.power_cuts += 1;
        }
    }
    disk.die_after(None);
    let recovery = open(&disk).map_err(|error| Broken::Refused(error.to_string()))?;
    model.check(&recovery, tally)
}

#[test]
fn nothing_durable_is_lost_and_a_prefix_is_recovered() {
    let mut tally = Tally::default();
    for seed in 0..2_500 {
        assert_eq!(run(seed, Forgets::Nothing, &mut tally), Ok(()), "seed {seed}");
    }
    println!("{tally:?}");
    assert!(tally.power_cuts > 10_000 && tally.deaths_while_opening > 500, "{tally:?}");
    assert!(tally.unacknowledged_kept > 500 && tally.unacknowledged_lost > 500, "{tally:?}");
    assert!(tally.checkpoints_recovered > 1_000 && tally.freed > 100_000, "{tally:?}");
    assert!(tally.without_room > 5_000 && tally.starts_without_room > 50, "{tally:?}");
}

/// The checker finds a program that omits syncs of its directory, or of its files.
#[test]
fn a_missing_sync_is_found() {
    for forgets in [Forgets::SyncDir, Forgets::SyncFile] {
        let found = (0..100).filter(|seed| run(*seed, forgets, &mut Tally::default()).is_err()).count();
        assert!(found > 50, "{forgets:?}: found in {found} of 100 runs");
    }
}
