//! Events of watches, as messages.

use bytes::Bytes;

use super::show::{dcs, mode, name, request, snapshot};
use crate::causal_log::{Action, Change};
use crate::crdt::VersionVector;
use crate::replica::Notice;
use crate::replica::watch_call::{Changed, Holding, LockEvent, LockMove, LockNews};
use geolock_api::names::{LockName, Mode};
use geolock_api::proto::{self, change, watch_locks_response, watch_response};
use geolock_api::value::messages;

/// The responses of one kind of watch.
pub(super) trait Told: Sized {
    /// Returns the first response.
    fn created(from: &VersionVector) -> Self;
    /// Returns the response for an event, or `None` if the event is not for this kind of watch.
    fn news(notice: Notice) -> Option<Self>;
}

impl Told for proto::WatchResponse {
    fn created(from: &VersionVector) -> Self {
        proto::WatchResponse { event: Some(watch_response::Event::Created(created(from))) }
    }

    fn news(notice: Notice) -> Option<Self> {
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

impl Told for proto::WatchLocksResponse {
    fn created(from: &VersionVector) -> Self {
        proto::WatchLocksResponse { event: Some(watch_locks_response::Event::Created(created(from))) }
    }

    fn news(notice: Notice) -> Option<Self> {
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
    proto::WatchCreated { snapshot: Some(snapshot(from)) }
}

fn progress(vector: &VersionVector) -> proto::WatchProgress {
    proto::WatchProgress { snapshot: Some(snapshot(vector)) }
}

fn changed(Changed { dc, seq, changes, watch: _, at: _ }: Changed) -> proto::WatchChanged {
    let changes = changes.into_iter().map(change).collect();
    proto::WatchChanged { dc: dc.get().into(), seq, changes }
}

fn change(Change { key, action }: Change) -> proto::Change {
    let action = match action {
        Action::Update(update) => change::Action::Update(messages::show(update)),
        Action::Remove => change::Action::Remove(proto::Remove {}),
        Action::Expire(ttl) => change::Action::ExpireMs(ttl.millis() as i64),
        Action::Expired => change::Action::Expired(proto::Expired {}),
    };
    let (bucket, name) = (Bytes::copy_from_slice(key.bucket()), Bytes::copy_from_slice(key.name()));
    proto::Change { key: Some(proto::Key { bucket, name }), action: Some(action) }
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
        mode: mode(*how).into(),
        home: lock.home_field(),
    };
    proto::LocksHeld {
        request: Some(request(holding.request)),
        token: holding.token.0,
        label: holding.label.to_string(),
        locks: holding.locks.iter().map(lock).collect(),
    }
}
