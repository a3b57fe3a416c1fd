//! Recovers a datacenter from its journal.
//!
//! Two threads work in parallel: one decodes records, the other replays them. Decoding is a third of the
//! work, and a restart would wait for all of it.

use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{mem, thread};

use bytes::Bytes;

use super::clock;
use super::start::StartError;
use crate::base::wire;
use crate::journal::JournalError;
use crate::replica::{Checkpoint, Position, Record, Replica, ReplicaConfig};

/// Records that are handed over at a time.
const BATCH: usize = 1_000;
/// Most batches that wait to be replayed: reading further ahead would not be faster.
const AHEAD: usize = 4;

type Batch = Vec<(Position, Record)>;

/// Returns the datacenter that a data directory amounts to, with the position of its last record.
pub fn recover(
    config: ReplicaConfig,
    checkpoint: Option<&[u8]>,
    records: impl IntoIterator<Item = Result<(Position, Bytes), JournalError>> + Send,
) -> Result<(Replica, Position), StartError> {
    let checkpoint = checkpoint.map(Checkpoint::decode).transpose().map_err(StartError::Checkpoint)?;
    let covered = checkpoint.as_ref().map_or(Position(0), |checkpoint| checkpoint.position);
    let (batches, read) = sync_channel(AHEAD);
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("records".into());
        let reader = reader.spawn_scoped(scope, || read_records(records, batches));
        let reader = reader.map_err(StartError::Thread)?;
        let recovered = Replica::recover(config, clock::now(), checkpoint, read.into_iter().flatten());
        let last = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
        // An error of replaying is earlier in the journal than an error of reading.
        Ok((recovered?, last?.unwrap_or(covered)))
    })
}

/// Reads until the end, or until the receiver is dropped. Returns the position of the last record.
fn read_records(
    records: impl IntoIterator<Item = Result<(Position, Bytes), JournalError>>,
    batches: SyncSender<Batch>,
) -> Result<Option<Position>, StartError> {
    let (mut last, mut batch) = (Ok(None), Batch::with_capacity(BATCH));
    for record in records {
        let (position, bytes) = match record {
            Ok(record) => record,
            Err(error) => {
                last = Err(error.into());
                break;
            }
        };
        match wire::decode::<Record>("journal record", &bytes) {
            Ok(record) => batch.push((position, record)),
            Err(source) => {
                last = Err(StartError::Record { position, source });
                break;
            }
        }
        last = Ok(Some(position));
        if batch.len() == BATCH && batches.send(mem::take(&mut batch)).is_err() {
            return last;
        }
    }
    // If the receiver is dropped, the replaying thread returns the error.
    let _ = batches.send(batch);
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::replica::{AgreedConfig, LocalConfig};
    use geolock_api::names::{ClusterId, DcId, DcSet};

    fn recovered(records: impl IntoIterator<Item = (u64, Bytes)>) -> Result<Position, StartError> {
        let dc = DcId::new(0).expect("0 is an id");
        let agreed = AgreedConfig::new(ClusterId::of("test"), DcSet::only(dc));
        let records: Vec<_> =
            records.into_iter().map(|(position, record)| Ok((Position(position), record))).collect();
        recover(ReplicaConfig::new(dc, agreed, LocalConfig::default()), None, records).map(|(_, last)| last)
    }

    fn record(n: u64) -> Bytes {
        let reservation = Record::IdReservation { clock: Timestamp::from_millis(n), n };
        wire::encode("record", &reservation).expect("it is small").into()
    }

    const SOME: u64 = 3 * BATCH as u64 + 7;

    #[test]
    fn everything_is_read() {
        assert_eq!(recovered([]).expect("nothing is there"), Position(0));
        assert_eq!(recovered((1..=SOME).map(|n| (n, record(n)))).expect("all of it is good"), Position(SOME));
    }

    #[test]
    fn the_first_record_that_is_no_good_is_named() {
        let unreadable = |n| (n, Bytes::from_static(&[0xff; 9]));
        let good = || (1..=SOME).map(|n| (n, record(n)));
        let error = recovered(good().chain([unreadable(SOME + 1), (SOME + 2, record(1))]));
        assert!(
            matches!(error, Err(StartError::Record { position: Position(n), .. }) if n == SOME + 1),
            "{error:?}"
        );
        // A record is missing before it, so it cannot be replayed.
        let error = recovered(good().chain([(SOME + 2, record(1)), unreadable(SOME + 3)]));
        let Err(StartError::Recovery(error)) = error else { panic!("{error:?}") };
        assert!(error.to_string().contains(&format!("should be record {}", SOME + 1)), "{error}");
        // The rest is not replayed.
        let error = recovered([(7, record(1))].into_iter().chain(good()));
        assert!(matches!(error, Err(StartError::Recovery(_))), "{error:?}");
    }

    #[test]
    fn a_journal_that_cannot_be_read_any_more_is_no_end_of_it() {
        let (dc, dir) = (DcId::new(0).expect("0 is an id"), std::path::PathBuf::new());
        let agreed = AgreedConfig::new(ClusterId::of("test"), DcSet::only(dc));
        let config = ReplicaConfig::new(dc, agreed, LocalConfig::default());
        let records = [Ok((Position(1), record(1))), Err(JournalError::Missing { dir, from: 2 })];
        let error = recover(config, None, records).map(|(_, last)| last);
        assert!(
            matches!(error, Err(StartError::Journal(JournalError::Missing { from: 2, .. }))),
            "{error:?}"
        );
    }
}
