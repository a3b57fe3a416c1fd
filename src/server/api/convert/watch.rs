//! Watches and their events.

use super::fields::{dcs, mode_message, name, request_id_message, snapshot, snapshot_message};
use super::txn::{change_message, store_key};
use crate::crdt::VersionVector;
use crate::replica::Notice;
use crate::replica::call::watch::{
    Changed, Holding, LockEvent, LockMove, LockNews, MAX_PATTERNS, Pattern, Subject, Watch, WatchRefusal,
};
use crate::server::api::error::BorderError;
use geolock_api::names::{LockName, Mode};
use geolock_api::proto::{self, watch_locks_response, watch_response};

pub(in crate::server::api) fn keys(message: proto::WatchRequest) -> Result<Watch, BorderError> {
    let proto::WatchRequest { prefixes, keys, from_snapshot } = message;
    check(prefixes.len() + keys.len())?;
    let prefixes = prefixes.iter().map(|of| Ok(Pattern::keys(&of.bucket, &of.prefix)?));
    let keys = keys.iter().map(|key| Ok(Pattern::key(&store_key(key)?)));
    let patterns = prefixes.chain(keys).collect::<Result<_, BorderError>>()?;
    Ok(Watch { subject: Subject::Keys, patterns, from: from_snapshot.map(snapshot).transpose()? })
}

pub(in crate::server::api) fn locks(message: proto::WatchLocksRequest) -> Result<Watch, BorderError> {
    let proto::WatchLocksRequest { names, prefixes, from_snapshot, homed } = message;
    check(names.len() + prefixes.len() + homed.len())?;
    let names = names.iter().map(|name| Ok(Pattern::lock(&LockName::new(name)?)));
    let prefixes = prefixes.iter().map(|prefix| Ok(Pattern::locks(prefix)?));
    let homed =
        homed.iter().map(|lock| Ok(Pattern::lock(&LockName::from_fields(&lock.name, Some(lock.home))?)));
    let patterns = names.chain(homed).chain(prefixes).collect::<Result<_, BorderError>>()?;
    Ok(Watch { subject: Subject::Locks, patterns, from: from_snapshot.map(snapshot).transpose()? })
}

/// Refuses a number of patterns that the datacenter would refuse too, before anything is allocated for them.
fn check(patterns: usize) -> Result<(), WatchRefusal> {
    if (1..=MAX_PATTERNS).contains(&patterns) { Ok(()) } else { Err(WatchRefusal::Patterns(patterns)) }
}

/// The responses of one kind of watch.
pub(in crate::server::api) trait WatchMessage: Sized {
    /// Returns the first response.
    fn created(from: &VersionVector) -> Self;
    /// Returns the response for an event, or `None` if the event is not for this kind of watch.
    fn event(notice: Notice) -> Option<Self>;
}

impl WatchMessage for proto::WatchResponse {
    fn created(from: &VersionVector) -> Self {
        proto::WatchResponse { event: Some(watch_response::Event::Created(created(from))) }
    }

    fn event(notice: Notice) -> Option<Self> {
        use watch_response::Event;
        let event = match notice {
            Notice::Changed(news) => Event::Changed(changed(*news)),
            Notice::Progress { vector, watch: _ } => Event::Progress(progress(&vector)),
            Notice::Lock(_)
            | Notice::LeaseEnded { .. }
            | Notice::LockLost { .. }
            | Notice::ForceReleased(_)
            | Notice::WatchEnded { .. } => return None,
        };
        Some(proto::WatchResponse { event: Some(event) })
    }
}

impl WatchMessage for proto::WatchLocksResponse {
    fn created(from: &VersionVector) -> Self {
        proto::WatchLocksResponse { event: Some(watch_locks_response::Event::Created(created(from))) }
    }

    fn event(notice: Notice) -> Option<Self> {
        let event = match notice {
            Notice::Lock(news) => lock_event(*news),
            Notice::Progress { vector, watch: _ } => watch_locks_response::Event::Progress(progress(&vector)),
            Notice::Changed(_)
            | Notice::LeaseEnded { .. }
            | Notice::LockLost { .. }
            | Notice::ForceReleased(_)
            | Notice::WatchEnded { .. } => return None,
        };
        Some(proto::WatchLocksResponse { event: Some(event) })
    }
}

fn created(from: &VersionVector) -> proto::WatchCreated {
    proto::WatchCreated { snapshot: Some(snapshot_message(from)) }
}

fn progress(vector: &VersionVector) -> proto::WatchProgress {
    proto::WatchProgress { snapshot: Some(snapshot_message(vector)) }
}

fn changed(Changed { dc, seq, changes, watch: _, at: _ }: Changed) -> proto::WatchChanged {
    let changes = changes.into_iter().map(change_message).collect();
    proto::WatchChanged { dc: dc.get().into(), seq, changes }
}

fn lock_event(LockNews { event, watch: _ }: LockNews) -> watch_locks_response::Event {
    use watch_locks_response::Event;
    match event {
        LockEvent::Moved { dc, seq, moves, at: _ } => Event::Moved(proto::LocksMoved {
            dc: dc.get().into(),
            seq,
            moves: moves.iter().map(lock_move).collect(),
        }),
        LockEvent::HoldersReset => Event::HoldersReset(proto::HoldersReset {}),
        LockEvent::HoldersSynced => Event::HoldersSynced(proto::HoldersSynced {}),
        LockEvent::Granted(holding) => Event::Granted(held(&holding)),
        LockEvent::Released(holding) => Event::Released(held(&holding)),
    }
}

fn lock_move(moved: &LockMove) -> proto::LockMove {
    proto::LockMove {
        name: name(&moved.lock),
        parts: dcs(moved.parts),
        to: moved.to.get().into(),
        home: moved.lock.home_field(),
    }
}

fn held(holding: &Holding) -> proto::LocksHeld {
    let lock = |(lock, how): &(LockName, Mode)| proto::LockMode {
        name: name(lock),
        mode: mode_message(*how).into(),
        home: lock.home_field(),
    };
    proto::LocksHeld {
        request: Some(request_id_message(holding.request)),
        token: holding.token.0,
        label: holding.label.to_string(),
        locks: holding.locks.iter().map(lock).collect(),
    }
}
