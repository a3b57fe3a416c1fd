//! Orphans: commits that a lost datacenter acknowledged, and that no other datacenter has. They are the
//! commits of its own log after the entry at which the others have cut it.
//!
//! They are read from the data directory of the lost server, which stays as it is.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::entry_number::{base_of, entries_between};
use crate::base::time::Timestamp;
use crate::base::wire::{self, WireError};
use crate::causal_log::{Change, Commit, Entry, Op};
use crate::journal::{Contents, JournalError};
use crate::membership::Generation;
use crate::replica::{Checkpoint, Record};
use crate::server::members::{JoinedFileError, read_joined};
use geolock_api::names::{ClusterId, DcId, FencingToken, LeaseId};

/// A reason for which the orphans of a directory cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum OrphansError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Joined(#[from] JoinedFileError),
    #[error("the data directory is that of a witness, which makes no commits")]
    Witness,
    #[error("the checkpoint of the data directory cannot be read: {0}")]
    Checkpoint(WireError),
    #[error("a record of the data directory cannot be read: {0}")]
    Record(WireError),
}

/// The data directory of a server that is lost or was evicted.
#[derive(Debug)]
pub struct LostDirectory {
    contents: Contents,
    generation: Generation,
}

/// A commit of a client that is only in one data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Orphan {
    /// The number of its entry within the generation, from 1.
    pub number: u64,
    /// The time of the commit by the clock of its datacenter.
    pub at: Timestamp,
    /// The lease of the client.
    pub lease: LeaseId,
    /// The token of the locks under which it was made, if it was. Commits before all members spoke version 4
    /// do not say it.
    pub under: Option<FencingToken>,
    /// Its changes, in the order in which they were made.
    pub changes: Vec<Change>,
}

impl LostDirectory {
    /// Opens the directory, and checks that it is one.
    pub fn read(dir: &Path) -> Result<LostDirectory, OrphansError> {
        let contents = Contents::read(dir)?;
        let joined = read_joined(dir)?;
        if joined.as_ref().is_some_and(|joined| joined.is_witness) {
            return Err(OrphansError::Witness);
        }
        // A founder is the first server with its id.
        let generation = joined.map_or(Generation(0), |joined| joined.generation);
        Ok(LostDirectory { contents, generation })
    }

    /// Returns the cluster of the directory.
    pub fn cluster(&self) -> ClusterId {
        self.contents.identity.cluster
    }

    /// Returns the id of its datacenter, and the number of servers that had the id before.
    pub fn member(&self) -> (DcId, Generation) {
        (self.contents.identity.dc, self.generation)
    }

    /// Returns the commits of clients that are in this log after the entry with the number `last` in its
    /// generation, in the order of the log.
    pub fn orphans_after(self, last: u64) -> Result<Vec<Orphan>, OrphansError> {
        let LostDirectory { contents, generation } = self;
        let Contents { identity, checkpoint, records, .. } = contents;
        let log = Log { dc: identity.dc, base: generation.base(), last };
        let checkpoint = checkpoint.as_deref().map(Checkpoint::decode).transpose();
        let older = checkpoint.map_err(OrphansError::Checkpoint)?.map(|it| it.log).unwrap_or_default();
        let newer = records.map(|record| entry(&record?.1)).filter_map(Result::transpose);
        let all = older.into_iter().map(Ok).chain(newer);
        all.filter_map(|entry| entry.map(|entry| log.orphan(&entry)).transpose()).collect()
    }
}

/// Returns the entry that a record has, if it has one.
fn entry(record: &Bytes) -> Result<Option<Arc<Entry>>, OrphansError> {
    match wire::decode::<Record>("journal record", record).map_err(OrphansError::Record)? {
        Record::Entry(entry) | Record::EntryV1(entry) => Ok(Some(entry)),
        _ => Ok(None),
    }
}

/// A part of a log that nobody else has.
struct Log {
    dc: DcId,
    base: u64,
    last: u64,
}

impl Log {
    /// Returns the orphan of this entry, if it has one.
    fn orphan(&self, entry: &Entry) -> Option<Orphan> {
        let number = entries_between(self.base, entry.seq);
        if entry.dc != self.dc || base_of(entry.seq) != self.base || number <= self.last {
            return None;
        }
        let Commit { client, changes, .. } = entry.ops.iter().find_map(Op::as_commit)?;
        // Without a client it is the datacenter's own: the end of a key, or rights of counters that it gave.
        // The others have seen to both.
        let (lease, _) = (*client)?;
        Some(Orphan {
            number,
            at: entry.at,
            lease,
            under: entry.ops.iter().find_map(Op::as_under),
            changes: changes.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal_log::Action;
    use crate::crdt::VersionVector;
    use crate::journal::{Journal, JournalEvent, JournalOptions};
    use geolock_api::keys::Key;
    use geolock_api::value::Update;
    use std::sync::mpsc::channel;

    fn cluster() -> ClusterId {
        ClusterId::of("test")
    }

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn commit_entry(maker: DcId, seq: u64, has_client: bool, under: Option<FencingToken>) -> Arc<Entry> {
        let key = Key::new(b"b", format!("k{seq}").as_bytes()).expect("a short key");
        let commit = Op::Commit(Commit {
            seen: VersionVector::default(),
            client: has_client.then(|| (LeaseId::new(maker, 5), 1)),
            changes: vec![Change { key, action: Action::Update(Update::counter(1)) }],
        });
        let under = under.map(|token| Op::Under { token });
        Arc::new(Entry {
            cluster: cluster(),
            epoch: 0,
            dc: maker,
            seq,
            at: Timestamp::from_raw(seq),
            deps: VersionVector::default(),
            ops: [commit].into_iter().chain(under).collect(),
            prev: 0,
            lead_ms: 0,
        })
    }

    #[test]
    fn orphans_are_the_commits_of_clients_after_the_cut() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (sender, events) = channel();
        let options = JournalOptions::new(temp.path().to_owned(), cluster(), dc(2));
        let on_event = move |event| sender.send(event).expect("the test listens");
        let (mut journal, _) = Journal::open(options, on_event).expect("a new directory");
        let token = FencingToken(77);
        let records = [
            Record::Joined,
            Record::Entry(commit_entry(dc(2), 1, true, None)),
            Record::Entry(commit_entry(dc(2), 2, true, None)),
            Record::Entry(commit_entry(dc(1), 3, true, None)),
            Record::Entry(commit_entry(dc(2), 3, false, None)),
            Record::Entry(commit_entry(dc(2), 4, true, Some(token))),
            Record::EntryV1(commit_entry(dc(2), 5, true, None)),
            // Of the next server with this id, which cannot be in this directory.
            Record::Entry(commit_entry(dc(2), Generation(1).base() + 6, true, None)),
        ];
        for (position, record) in (1..).zip(&records) {
            journal.append(position, &wire::encode("record", record).expect("it is small"));
        }
        let last = records.len() as u64;
        assert!(events.iter().any(|event| matches!(event, JournalEvent::Durable(at) if at == last)));
        journal.close().expect("nothing failed");

        let lost = LostDirectory::read(temp.path()).expect("a good directory");
        assert_eq!((lost.cluster(), lost.member()), (cluster(), (dc(2), Generation(0))));
        let orphans = lost.orphans_after(1).expect("a good directory");
        let found: Vec<_> = orphans.iter().map(|orphan| (orphan.number, orphan.under)).collect();
        assert_eq!(found, [(2, None), (4, Some(token)), (5, None)]);
        let lost = LostDirectory::read(temp.path()).expect("a good directory");
        assert_eq!(lost.orphans_after(5).expect("a good directory"), []);
    }
}
