//! Watches of keys: every committed change of them.

use std::time::Duration;

use bytes::Bytes;
use tonic::{Response, Status, Streaming};

use super::super::changes;
use super::super::connection::Api;
use super::super::error::ClientError;
use super::super::read_client::ReadClient;
use super::follow::{Following, Next, ServerEvent, Subject};
use geolock_api::keys::Key;
use geolock_api::names::DcId;
use geolock_api::proto::watch_response::Event;
use geolock_api::proto::{self, Snapshot, WatchPrefix, WatchResponse, change};
use geolock_api::value::Update;
use geolock_api::value::messages;

/// The keys to watch, and the position from which to start. At most 100 keys and prefixes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchRequest {
    keys: Keys,
    from: Option<Snapshot>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Keys {
    prefixes: Vec<WatchPrefix>,
    keys: Vec<proto::Key>,
}

impl WatchRequest {
    /// Watches the keys of a bucket (1 to 255 bytes) whose names begin with `prefix` (up to 1 024 bytes;
    /// empty for all), from now on.
    pub fn new(bucket: impl AsRef<[u8]>, prefix: impl AsRef<[u8]>) -> WatchRequest {
        WatchRequest::default().and(bucket, prefix)
    }

    /// Watches one key, from now on.
    pub fn of(key: &Key) -> WatchRequest {
        WatchRequest::default().and_key(key)
    }

    /// Adds the keys of a bucket whose names begin with `prefix`.
    #[must_use]
    pub fn and(mut self, bucket: impl AsRef<[u8]>, prefix: impl AsRef<[u8]>) -> WatchRequest {
        let bytes = Bytes::copy_from_slice;
        self.keys
            .prefixes
            .push(WatchPrefix { bucket: bytes(bucket.as_ref()), prefix: bytes(prefix.as_ref()) });
        self
    }

    /// Adds a key.
    #[must_use]
    pub fn and_key(mut self, key: &Key) -> WatchRequest {
        self.keys.keys.push(changes::key(key));
        self
    }

    /// Starts with all commits that are not in this snapshot: that of a read, or [`Watch::position`] of an
    /// earlier watch, in any datacenter.
    #[must_use]
    pub fn from_snapshot(mut self, snapshot: &Snapshot) -> WatchRequest {
        self.from = Some(snapshot.clone());
        self
    }
}

/// A commit that changed watched keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The datacenter of the commit.
    pub dc: DcId,
    /// The sequence number of the commit in the log of that datacenter.
    pub seq: u64,
    /// Its changes to watched keys, in the order in which they were made.
    pub changes: Vec<Change>,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The changed key.
    pub key: Key,
    /// The content of the change.
    pub action: Action,
}

/// The content of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The value was changed by this operation.
    Update(Update),
    /// The key was removed with all its content.
    Removed,
    /// The key was set to expire that long after the commit, or later if an earlier change set it so.
    Expires(Duration),
    /// The key was removed with all its content because it expired or its value was written as done.
    Expired,
    /// A change that the server knows and this client does not: read the key.
    Unknown,
}

/// A result of [`Watch::next_event`], which also reports progress without events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A commit changed keys that are watched.
    Changed(Changed),
    /// Nothing else that is watched has changed up to the [position](Watch::position). Reported from time to
    /// time while other keys change.
    Progress,
}

/// A watch of keys: returns each commit that changed any of them once, when it is durable in the datacenter,
/// after everything that it depends on. Started by [`ReadClient::watch`].
#[derive(Debug)]
pub struct Watch(Following<Keys>);

impl ReadClient {
    /// Starts a watch of keys. Every commit after this has returned is reported, unless
    /// [`WatchRequest::from_snapshot`] excludes it.
    ///
    /// Tries every endpoint once. For [`ClientError::WatchTooOld`] see there.
    pub async fn watch(&self, request: WatchRequest) -> Result<Watch, ClientError> {
        Following::begin(self, request.keys, request.from).await.map(Watch)
    }
}

impl Watch {
    /// Returns the next commit. Cancel-safe: dropping the future loses no event.
    ///
    /// While no server answers it waits and reconnects. An error is the server's refusal to continue, such
    /// as [`ClientError::WatchTooOld`]; the next call asks the server again.
    pub async fn next(&mut self) -> Result<Changed, ClientError> {
        loop {
            if let WatchEvent::Changed(changed) = self.next_event().await? {
                return Ok(changed);
            }
        }
    }

    /// As [`Watch::next`], and also reports when the position moved without a watched commit. For callers
    /// that store the position.
    pub async fn next_event(&mut self) -> Result<WatchEvent, ClientError> {
        Ok(match self.0.next().await? {
            Next::Event(changed) => WatchEvent::Changed(changed),
            Next::Progress => WatchEvent::Progress,
        })
    }

    /// Returns the snapshot up to which all events were returned. To resume from there with another watch,
    /// pass it to [`WatchRequest::from_snapshot`].
    pub fn position(&self) -> &Snapshot {
        self.0.position()
    }
}

impl Subject for Keys {
    type Response = WatchResponse;
    type Event = Changed;

    async fn call(
        &self,
        mut client: Api,
        from: Option<Snapshot>,
    ) -> Result<Response<Streaming<WatchResponse>>, Status> {
        let Keys { prefixes, keys } = self.clone();
        client.watch(proto::WatchRequest { prefixes, keys, from_snapshot: from }).await
    }

    fn read(response: WatchResponse) -> ServerEvent<Changed> {
        match response.event {
            Some(Event::Created(created)) => ServerEvent::Created(created.snapshot.unwrap_or_default()),
            Some(Event::Progress(progress)) => ServerEvent::Progress(progress.snapshot.unwrap_or_default()),
            Some(Event::Changed(changed)) => read(changed).unwrap_or(ServerEvent::Unknown),
            None => ServerEvent::Unknown,
        }
    }
}

/// Skips changes that this client cannot represent.
fn read(proto::WatchChanged { dc, seq, changes }: proto::WatchChanged) -> Option<ServerEvent<Changed>> {
    let dc = u8::try_from(dc).ok().and_then(DcId::new)?;
    let changes = changes.into_iter().filter_map(change_of).collect();
    Some(ServerEvent::Entry(dc, seq, Changed { dc, seq, changes }))
}

fn change_of(message: proto::Change) -> Option<Change> {
    let key = message.key?;
    let key = Key::new(&key.bucket, &key.name).ok()?;
    let action = match message.action {
        Some(change::Action::Update(update)) => {
            messages::parse(update).map_or(Action::Unknown, Action::Update)
        }
        Some(change::Action::Remove(_)) => Action::Removed,
        Some(change::Action::ExpireMs(millis)) => {
            Action::Expires(Duration::from_millis(millis.unsigned_abs()))
        }
        Some(change::Action::Expired(_)) => Action::Expired,
        None => Action::Unknown,
    };
    Some(Change { key, action })
}
