//! The watches of a selector: marks, news and needs, and the holders of its datacenter.

use std::sync::Weak;

use geolock_client::{
    Action, Change as KeyChange, ClientError, DcId, LockEvent, LockName, LockWatchRequest, Mode, Op, Update,
    WatchRequest,
};
use tokio::time::sleep;

use super::keys::{BUCKET, Keys, Place};
use super::shared::Shared;
use super::store::key_text;
use super::{TokenId, TokenSource};
use crate::retry::PAUSE;
use crate::selector_state::{Change, Mark, Need, decode_news};

/// Follows the keys of the space until the selector is dropped.
pub(super) async fn keys<S: TokenSource>(shared: Weak<Shared<S>>) {
    loop {
        let Some(begun) = begin_keys(&shared).await else { return };
        let Ok(mut watch) = begun else {
            sleep(PAUSE).await;
            continue;
        };
        loop {
            let changed = watch.next().await;
            let Some(shared) = shared.upgrade() else { return };
            match changed {
                Ok(changed) => on_changed(&shared, &changed.changes),
                // It cannot go on: begins again.
                Err(ClientError::WatchTooOld(_)) => break,
                Err(_) => {
                    drop(shared);
                    sleep(PAUSE).await;
                    break;
                }
            }
        }
    }
}

async fn begin_keys<S: TokenSource>(
    shared: &Weak<Shared<S>>,
) -> Option<Result<geolock_client::Watch, ClientError>> {
    let (reader, keys) = {
        let shared = shared.upgrade()?;
        (shared.store.client.read_client(), shared.store.keys.clone())
    };
    let request = keys.followed().iter().fold(WatchRequest::default(), |all, it| all.and(BUCKET, it));
    let begun = match reader {
        Ok(reader) => reader.watch(request).await,
        Err(error) => Err(error),
    };
    if begun.is_ok() {
        // Holds that were heard of before may have ended in between.
        shared.upgrade()?.change(|state, _| state.space.forget_keys());
    }
    Some(begun)
}

fn on_changed<S: TokenSource>(shared: &Shared<S>, changes: &[KeyChange]) {
    let mut unreadable = Vec::new();
    let read: Vec<Change> = changes
        .iter()
        .filter_map(|change| match read(&shared.store.keys, change) {
            Read::Change(read) => Some(read),
            Read::Nothing => None,
            Read::Unreadable(read) => {
                unreadable.push(key_text(&change.key));
                read
            }
        })
        .collect();
    shared.change(|state, now| {
        read.into_iter().for_each(|change| state.space.on_change(now, change));
        unreadable.into_iter().for_each(|key| state.note_unreadable(key));
    });
}

enum Read {
    Change(Change),
    Nothing,
    Unreadable(Option<Change>),
}

fn read(keys: &Keys, change: &KeyChange) -> Read {
    let Some(place) = keys.place_of(&change.key) else { return Read::Nothing };
    let bytes = match &change.action {
        Action::Update(Update { op: Op::LwwRegister(bytes), .. }) => Some(bytes),
        Action::Removed | Action::Expired => None,
        Action::Expires(_) => return Read::Nothing,
        _ => return Read::Unreadable(unreadable(place)),
    };
    let read = match (place.clone(), bytes) {
        (Place::Mark(id), Some(bytes)) => Mark::decode(bytes).map(|mark| Change::Marked(id, mark)),
        (Place::Mark(id), None) => Ok(Change::Unmarked(id)),
        (Place::News(pool), Some(bytes)) => decode_news(bytes).map(|tokens| Change::New(pool, tokens)),
        (Place::News(_), None) => return Read::Nothing,
        (Place::Need(pool, tx), Some(bytes)) => {
            Need::decode(bytes).map(|need| Change::Needed(pool, tx, need))
        }
        (Place::Need(pool, tx), None) => Ok(Change::NoNeed(pool, tx)),
    };
    match read {
        Ok(change) => Read::Change(change),
        Err(_) => Read::Unreadable(unreadable(place)),
    }
}

fn unreadable(place: Place) -> Option<Change> {
    match place {
        Place::Mark(id) => Some(Change::Unreadable(id)),
        Place::News(_) | Place::Need(..) => None,
    }
}

/// Follows the locks of the space until the selector is dropped.
pub(super) async fn locks<S: TokenSource>(shared: Weak<Shared<S>>) {
    loop {
        let Some(begun) = begin_locks(&shared).await else { return };
        let Ok(mut watch) = begun else {
            sleep(PAUSE).await;
            continue;
        };
        loop {
            let event = watch.next().await;
            let Some(shared) = shared.upgrade() else { return };
            match event {
                Ok(event) => on_event(&shared, event),
                Err(ClientError::WatchTooOld(_)) => break,
                Err(_) => {
                    drop(shared);
                    sleep(PAUSE).await;
                    break;
                }
            }
        }
    }
}

async fn begin_locks<S: TokenSource>(
    shared: &Weak<Shared<S>>,
) -> Option<Result<geolock_client::LockWatch, ClientError>> {
    let (reader, prefix) = {
        let shared = shared.upgrade()?;
        (shared.store.client.read_client(), shared.store.keys.locks().to_owned())
    };
    let begun = async {
        let reader = reader?;
        let watch = reader.watch_locks(LockWatchRequest::prefix(prefix)).await?;
        Ok((watch, reader.status().await?.dc))
    };
    Some(match begun.await {
        Ok((watch, dc)) => {
            let me = u8::try_from(dc).ok().and_then(DcId::new);
            shared.upgrade()?.change(|state, _| state.space.on_home(me));
            Ok(watch)
        }
        Err(error) => Err(error),
    })
}

fn on_event<S: TokenSource>(shared: &Shared<S>, event: LockEvent) {
    let keys = &shared.store.keys;
    let tokens = |locks: Vec<(LockName, Mode)>| -> Vec<TokenId> {
        locks.iter().filter_map(|(lock, _)| keys.token_of(lock)).collect()
    };
    match event {
        LockEvent::Granted(held) => {
            let ids = tokens(held.locks);
            shared.change(|state, _| state.space.on_granted(held.request, &held.label, ids));
        }
        LockEvent::Released(held) => {
            let ids = tokens(held.locks);
            shared.change(|state, _| state.space.on_released(held.request, ids));
        }
        LockEvent::Moved(moved) => shared.change(|state, _| {
            for moved in moved.moves {
                if let Some(id) = keys.token_of(&moved.lock) {
                    state.space.on_moved(&id, moved.lock.home(), moved.to);
                }
            }
        }),
        LockEvent::HoldersReset => shared.change(|state, _| state.space.forget_holders()),
        _ => {}
    }
}
