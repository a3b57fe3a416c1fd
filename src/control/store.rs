//! The file of the vote and the log.
//!
//! Every write is one transaction of `redb`, synced before it returns; only the position up to which entries
//! are committed is written without a sync, because the group knows it anyway. So what was answered is on
//! disk, and a crash leaves the state after one of the writes.

use std::fs::{DirBuilder, File};
use std::ops::RangeBounds;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::member::{MemberId, ServerId};
use super::wire::{WireEntry, WireLogId, WireSnapshot, WireVote};
use crate::base::wire;

/// Maximum size of an encoded fold. It bounds the memory that a snapshot takes at its receiver. On the way it
/// is cut into pieces.
pub const MAX_STATE: usize = 1 << 20;

const FILE: &str = "control.redb";
/// A file that is not complete yet.
const NEXT: &str = "control.redb.next";
/// The whole file is smaller in practice.
const CACHE: usize = 1 << 20;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
const IDENTITY: &str = "identity";
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";
const SNAPSHOT: &str = "snapshot";

/// The first value of a file.
#[derive(Serialize, Deserialize)]
struct Identity {
    member: MemberId,
    server: ServerId,
}

/// The vote, the log, and a snapshot of one member.
pub(super) struct Store {
    database: Database,
    server: ServerId,
}

impl Store {
    /// Opens the file in `dir`, or makes it, as that of `me`.
    pub(super) fn open(dir: &Path, me: MemberId) -> Result<Store, StoreError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let path = dir.join(FILE);
        let database = builder().create(&path).map_err(|source| match source {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.clone() },
            source => StoreError::Open { path: path.clone(), source },
        })?;
        let store = Store::identified(database, me)?;
        File::open(dir)?.sync_all()?;
        Ok(store)
    }

    /// As [`Store::open`], on another disk.
    #[cfg(test)]
    pub(super) fn on(backend: impl redb::StorageBackend, me: MemberId) -> Result<Store, StoreError> {
        let path = FILE.into();
        let database = builder().create_with_backend(backend);
        Store::identified(database.map_err(|source| StoreError::Open { path, source })?, me)
    }

    fn identified(database: Database, me: MemberId) -> Result<Store, StoreError> {
        let new = Identity { member: me, server: ServerId::random()? };
        let mut store = Store { database, server: new.server };
        // A table exists from the first write on.
        store.write(Durability::Immediate, |write| {
            write.open_table(LOG)?;
            let mut values = write.open_table(VALUES)?;
            if values.get(IDENTITY)?.is_none() {
                values.insert(IDENTITY, wire::encode(IDENTITY, &new)?.as_slice())?;
            }
            Ok(())
        })?;
        let found: Identity = store.value(IDENTITY)?.unwrap_or(new);
        store.server = found.server;
        if found.member == me { Ok(store) } else { store.of_member(me) }
    }

    /// Puts a file in the place of the one in `dir`, at once: that of a member of a new group, which begins
    /// with this snapshot. The former one is kept as `former`.
    pub(super) fn replace(
        dir: &Path,
        (member, server): (MemberId, ServerId),
        (snapshot, vote): (&WireSnapshot, WireVote),
        former: &str,
    ) -> Result<(), StoreError> {
        let (path, next) = (dir.join(FILE), dir.join(NEXT));
        // An earlier attempt may have left a piece of it.
        if next.exists() {
            std::fs::remove_file(&next)?;
        }
        let database = builder().create(&next);
        let database = database.map_err(|source| StoreError::Open { path: next.clone(), source })?;
        let store = Store { database, server };
        store.write(Durability::Immediate, |write| {
            write.open_table(LOG)?;
            let identity = wire::encode(IDENTITY, &Identity { member, server })?;
            let purged = snapshot.last.map(|last| wire::encode(PURGED, &last)).transpose()?;
            let mut values = write.open_table(VALUES)?;
            values.insert(IDENTITY, identity.as_slice())?;
            values.insert(VOTE, wire::encode(VOTE, &vote)?.as_slice())?;
            values.insert(PURGED, purged.unwrap_or_default().as_slice())?;
            Ok(())
        })?;
        store.save_snapshot(snapshot)?;
        drop(store);
        if path.exists() {
            std::fs::copy(&path, dir.join(former))?;
        }
        std::fs::rename(&next, &path)?;
        File::open(dir)?.sync_all()?;
        Ok(())
    }

    /// The file of a server that has not taken part yet becomes that of another generation of its slot.
    pub(super) fn of_member(self, me: MemberId) -> Result<Store, StoreError> {
        let before: Option<Identity> = self.value(IDENTITY)?;
        let found = before.map_or(me, |identity| identity.member);
        let is_unused = self.vote()?.is_none() && self.last()?.is_none();
        if found.dc != me.dc || (found != me && !is_unused) {
            return Err(StoreError::WrongMember { found, expected: me });
        }
        self.save(Durability::Immediate, IDENTITY, &Identity { member: me, server: self.server })?;
        Ok(self)
    }

    /// Returns the name of this directory.
    pub(super) fn server(&self) -> ServerId {
        self.server
    }

    pub(super) fn vote(&self) -> Result<Option<WireVote>, StoreError> {
        self.value(VOTE)
    }

    pub(super) fn save_vote(&self, vote: WireVote) -> Result<(), StoreError> {
        self.save(Durability::Immediate, VOTE, &vote)
    }

    pub(super) fn committed(&self) -> Result<Option<WireLogId>, StoreError> {
        self.value::<Option<WireLogId>>(COMMITTED).map(Option::flatten)
    }

    pub(super) fn save_committed(&self, committed: Option<WireLogId>) -> Result<(), StoreError> {
        self.save(Durability::None, COMMITTED, &committed)
    }

    pub(super) fn snapshot(&self) -> Result<Option<WireSnapshot>, StoreError> {
        self.value(SNAPSHOT)
    }

    pub(super) fn save_snapshot(&self, snapshot: &WireSnapshot) -> Result<(), StoreError> {
        let (size, limit) = (snapshot.state.len(), MAX_STATE);
        if size > limit {
            return Err(StoreError::StateTooLarge { size, limit });
        }
        self.save(Durability::Immediate, SNAPSHOT, snapshot)
    }

    /// Returns the entry up to which the log was cut.
    pub(super) fn purged(&self) -> Result<Option<WireLogId>, StoreError> {
        self.value(PURGED)
    }

    /// Returns the last entry, cut or not.
    pub(super) fn last(&self) -> Result<Option<WireLogId>, StoreError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let log = read.open_table(LOG).map_err(redb::Error::from)?;
        match log.last().map_err(redb::Error::from)? {
            Some((_, bytes)) => Ok(Some(wire::decode::<WireEntry>("entry", bytes.value())?.id)),
            None => self.purged(),
        }
    }

    /// Returns the entries in this range that are there.
    pub(super) fn entries(&self, range: impl RangeBounds<u64>) -> Result<Vec<WireEntry>, StoreError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let log = read.open_table(LOG).map_err(redb::Error::from)?;
        let mut entries = Vec::new();
        let found = log.range::<u64>((range.start_bound().cloned(), range.end_bound().cloned()));
        for row in found.map_err(redb::Error::from)? {
            let (_, bytes) = row.map_err(redb::Error::from)?;
            entries.push(wire::decode("entry", bytes.value())?);
        }
        Ok(entries)
    }

    pub(super) fn append(&self, entries: &[WireEntry]) -> Result<(), StoreError> {
        self.write(Durability::Immediate, |write| {
            let mut log = write.open_table(LOG)?;
            for entry in entries {
                log.insert(entry.id.index, wire::encode("entry", entry)?.as_slice())?;
            }
            Ok(())
        })
    }

    /// Forgets the entries from `first` on.
    pub(super) fn truncate(&self, first: u64) -> Result<(), StoreError> {
        self.write(Durability::Immediate, |write| {
            write.open_table(LOG)?.retain_in(first.., |_, _| false)?;
            Ok(())
        })
    }

    /// Forgets the entries up to `last`, which a snapshot has.
    pub(super) fn purge(&self, last: WireLogId) -> Result<(), StoreError> {
        self.write(Durability::Immediate, |write| {
            write.open_table(LOG)?.retain_in(..=last.index, |_, _| false)?;
            let bytes = wire::encode(PURGED, &last)?;
            write.open_table(VALUES)?.insert(PURGED, bytes.as_slice())?;
            Ok(())
        })
    }

    fn value<T: DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>, StoreError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let values = read.open_table(VALUES).map_err(redb::Error::from)?;
        let bytes = values.get(name).map_err(redb::Error::from)?;
        Ok(bytes.map(|bytes| wire::decode(name, bytes.value())).transpose()?)
    }

    fn save(
        &self,
        durability: Durability,
        name: &'static str,
        value: &impl Serialize,
    ) -> Result<(), StoreError> {
        let bytes = wire::encode(name, value)?;
        self.write(durability, |write| {
            write.open_table(VALUES)?.insert(name, bytes.as_slice())?;
            Ok(())
        })
    }

    /// Makes one transaction: all of `change`, or nothing if it or the disk fails.
    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&WriteTransaction) -> Result<(), Change>,
    ) -> Result<(), StoreError> {
        let mut write = self.database.begin_write().map_err(redb::Error::from)?;
        write.set_durability(durability).map_err(redb::Error::from)?;
        change(&write).map_err(|Change(error)| error)?;
        write.commit().map_err(redb::Error::from)?;
        Ok(())
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// An error within a transaction. `redb` has one type for each kind of call, and one for all.
struct Change(StoreError);

impl From<redb::TableError> for Change {
    fn from(error: redb::TableError) -> Change {
        Change(StoreError::Database(error.into()))
    }
}

impl From<redb::StorageError> for Change {
    fn from(error: redb::StorageError) -> Change {
        Change(StoreError::Database(error.into()))
    }
}

impl From<wire::WireError> for Change {
    fn from(error: wire::WireError) -> Change {
        Change(error.into())
    }
}
