//! The store, as openraft wants it.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::{LogState, OptionalSend};

use super::error::{Refusal, StoreError};
use super::store::Store;
use super::types::{Entry, LogId, Types, Vote};
use super::wire::{WireEntry, log_id};

/// Entries that are read at once for a follower that is behind.
const READ_AHEAD: u64 = 64;

#[derive(Clone)]
pub(super) struct LogStore(pub(super) Arc<Store>);

impl LogStore {
    /// Writes on a thread that may wait for the disk.
    async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> io::Result<T> {
        write_to(&self.0, write).await
    }
}

/// Writes on a thread that may wait for the disk.
pub(super) async fn write_to<T: Send + 'static>(
    store: &Arc<Store>,
    write: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> io::Result<T> {
    let store = store.clone();
    let written = tokio::task::spawn_blocking(move || write(&store)).await;
    written.map_err(io::Error::other)?.map_err(io::Error::other)
}

/// The content of the store is its own: if it does not decode, it is damaged.
pub(super) fn damaged(_: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the control group's file holds an impossible value")
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let entries = self.0.entries(range).map_err(io::Error::other)?;
        entries.into_iter().map(|entry| entry.checked().map_err(damaged)).collect()
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        let vote = self.0.vote().map_err(io::Error::other)?;
        vote.map(|vote| vote.try_into().map_err(damaged)).transpose()
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.try_get_log_entries(start..end.min(start.saturating_add(READ_AHEAD))).await
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let purged = log_id(self.0.purged().map_err(io::Error::other)?).map_err(damaged)?;
        let last = log_id(self.0.last().map_err(io::Error::other)?).map_err(damaged)?;
        Ok(LogState { last_purged_log_id: purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let vote = vote.into();
        self.write(move |store| store.save_vote(vote)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let committed = committed.as_ref().map(Into::into);
        self.write(move |store| store.save_committed(committed)).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        log_id(self.0.committed().map_err(io::Error::other)?).map_err(damaged)
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<WireEntry> = entries.into_iter().map(|entry| (&entry).into()).collect();
        self.write(move |store| store.append(&entries)).await?;
        flushed.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let first = last.map_or(0, |last| last.index + 1);
        self.write(move |store| store.truncate(first)).await
    }

    async fn purge(&mut self, last: LogId) -> io::Result<()> {
        let last = (&last).into();
        self.write(move |store| store.purge(last)).await
    }
}
