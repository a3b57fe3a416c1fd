//! The state machine: applies decided commands to the list. The list is in memory; its snapshots are in the
//! store, and a restart applies the log after the last one again.

use std::io;
use std::sync::Arc;

use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{EntryPayload, OptionalSend};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt};

use super::error::StoreError;
use super::fold::{Fold, SharedList};
use super::log_store::{damaged, write_to};
use super::store::{MAX_STATE, Store};
use super::types::{EncodedCommand, LogId, StoredMembers, Types};
use super::wire::{WireLogId, WireMembers, WirePayload, WireSnapshot, log_id};
use crate::base::wire;

pub(super) struct Machine<F: Fold> {
    pub store: Arc<Store>,
    pub list: Arc<SharedList<F>>,
    /// The number of the last decision. Readers end when it is dropped.
    pub decided: watch::Sender<u64>,
}

/// Saves a snapshot of the list as it was when this was made.
pub(super) struct SnapshotBuilder {
    store: Arc<Store>,
    snapshot: Result<WireSnapshot, StoreError>,
}

impl<F: Fold> Machine<F> {
    /// Returns a snapshot of the list as it is.
    fn snapshot(&self) -> Result<WireSnapshot, StoreError> {
        let list = self.list.lock();
        let state = wire::encode("state of the list", &list.state)?;
        let (size, limit) = (state.len(), MAX_STATE);
        if size > limit {
            return Err(StoreError::StateTooLarge { size, limit });
        }
        Ok(WireSnapshot {
            last: list.last.as_ref().map(Into::into),
            members_at: list.members.log_id().as_ref().map(Into::into),
            members: WireMembers::from(list.members.membership()),
            decided: list.decided,
            state: state.into(),
        })
    }
}

impl<F: Fold> RaftStateMachine<Types> for Machine<F> {
    type SnapshotData = WireSnapshot;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembers)> {
        let list = self.list.lock();
        Ok((list.last, list.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            let decided = {
                let mut list = self.list.lock();
                match entry.payload {
                    EntryPayload::Blank => {}
                    EntryPayload::Normal(EncodedCommand(bytes)) => {
                        // A member that skipped a decision would disagree with the others ever after.
                        let command = wire::decode("decision", &bytes).map_err(io::Error::other)?;
                        list.decide(command);
                    }
                    EntryPayload::Membership(members) => {
                        list.members = StoredMembers::new(Some(entry.log_id), members);
                    }
                }
                list.last = Some(entry.log_id);
                list.decided
            };
            self.decided.send_if_modified(|last| std::mem::replace(last, decided) != decided);
            if let Some(responder) = responder {
                responder.send(decided);
            }
        }
        Ok(())
    }

    /// A list of which no snapshot can be made goes on without one: its log grows. An error here would stop
    /// every member at the same entry, for good.
    async fn try_create_snapshot_builder(&mut self, _: bool) -> Option<SnapshotBuilder> {
        let builder = self.get_snapshot_builder().await;
        if let Err(error) = &builder.snapshot {
            tracing::error!(%error, "no snapshot of the list of decisions: its log is kept instead");
        }
        builder.snapshot.is_ok().then_some(builder)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder { store: self.store.clone(), snapshot: self.snapshot() }
    }

    async fn install_snapshot(
        &mut self,
        _: &SnapshotMetaOf<Types>,
        snapshot: WireSnapshot,
    ) -> io::Result<()> {
        let state = wire::decode("state of the list", &snapshot.state).map_err(io::Error::other)?;
        let (last, members) = (log_id(snapshot.last), snapshot.stored_members());
        let decided = snapshot.decided;
        let before = match snapshot.last {
            Some(last) => commands_up_to::<F>(&self.store, last, decided)?,
            None => Vec::new(),
        };
        write_to(&self.store, move |store| store.save_snapshot(&snapshot)).await?;
        {
            let mut list = self.list.lock();
            list.install(decided, state);
            list.remember(before);
            list.last = last.map_err(damaged)?;
            list.members = members.map_err(damaged)?;
        }
        self.decided.send_replace(decided);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, WireSnapshot>>> {
        self.store.snapshot().map_err(io::Error::other)?.map(snapshot_of).transpose()
    }
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = WireSnapshot;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, WireSnapshot>> {
        let snapshot = self.snapshot.as_ref().map_err(|error| io::Error::other(error.to_string()))?.clone();
        let saved = snapshot.clone();
        write_to(&self.store, move |store| store.save_snapshot(&saved)).await?;
        snapshot_of(snapshot)
    }
}

/// Returns the last decisions up to decision `decided`, which the entry `last` ends, as far as the log has
/// them. A log that has that entry has the same ones before it as every other log that has it.
fn commands_up_to<F: Fold>(store: &Store, last: WireLogId, decided: u64) -> io::Result<Vec<F::Command>> {
    let entries = store.entries(..=last.index).map_err(io::Error::other)?;
    if entries.last().is_none_or(|entry| entry.id != last) {
        return Ok(Vec::new());
    }
    let commands = entries.into_iter().filter_map(|entry| match entry.payload {
        WirePayload::Command(bytes) => Some(wire::decode("decision", &bytes).map_err(io::Error::other)),
        WirePayload::Blank | WirePayload::Members(_) => None,
    });
    let commands = commands.collect::<io::Result<Vec<_>>>()?;
    // Only a faulty leader counts fewer.
    Ok(if commands.len() as u64 <= decided { commands } else { Vec::new() })
}

/// Returns the snapshot with its description in openraft's form.
pub(super) fn snapshot_of(snapshot: WireSnapshot) -> io::Result<SnapshotOf<Types, WireSnapshot>> {
    let meta = SnapshotMetaOf::<Types> {
        last_log_id: log_id(snapshot.last).map_err(damaged)?,
        last_membership: snapshot.stored_members().map_err(damaged)?,
    };
    Ok(SnapshotOf::<Types, WireSnapshot> { meta, snapshot })
}
