//! Following keys: every committed change of them.

use std::time::Duration;

use bytes::Bytes;
use tonic::{Response, Status, Streaming};

use super::super::connection::Api;
use super::super::error::ClientError;
use super::super::operations;
use super::super::queries::Viewer;
use super::follow::{Following, Next, Said, Subject};
use crate::crdt::value::Update;
use crate::keys::Key;
use crate::names::DcId;
use crate::proto::watch_response::Event;
use crate::proto::{self, Snapshot, WatchPrefix, WatchResponse, change};
use crate::update_messages;

/// Which keys to follow, and from when on. At most 100 keys and prefixes.
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
    /// The keys of a bucket (1 to 255 bytes) whose names begin with `prefix` (up to 1 024 bytes; empty for all), from
    /// now on.
    pub fn new(bucket: impl AsRef<[u8]>, prefix: impl AsRef<[u8]>) -> WatchRequest {
        WatchRequest::default().and(bucket, prefix)
    }

    /// One key, from now on.
    pub fn of(key: &Key) -> WatchRequest {
        WatchRequest::default().and_key(key)
    }

    /// These keys too.
    #[must_use]
    pub fn and(mut self, bucket: impl AsRef<[u8]>, prefix: impl AsRef<[u8]>) -> WatchRequest {
        let bytes = Bytes::copy_from_slice;
        self.keys
            .prefixes
            .push(WatchPrefix { bucket: bytes(bucket.as_ref()), prefix: bytes(prefix.as_ref()) });
        self
    }

    /// This key too.
    #[must_use]
    pub fn and_key(mut self, key: &Key) -> WatchRequest {
        self.keys.keys.push(operations::key(key));
        self
    }

    /// Everything that is not in this snapshot: that of a read, or [`Watch::position`] of an earlier watch, in whatever
    /// datacenter.
    #[must_use]
    pub fn after(mut self, snapshot: &Snapshot) -> WatchRequest {
        self.from = Some(snapshot.clone());
        self
    }
}

/// A commit that changed keys which a watch follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Where it was made.
    pub dc: DcId,
    /// Its number in the log of that datacenter.
    pub seq: u64,
    /// Those of its changes that are followed, in the order in which they were made.
    pub changes: Vec<Change>,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub action: Action,
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    Update(Update),
    /// It went with all that it had.
    Removed,
    /// It is to live for that long from the commit on, or longer if that was asked before.
    Expires(Duration),
    /// It went with all that it had because its time was over or its value was done.
    Lapsed,
    /// Something that the server knows and this client does not: read the key.
    Unknown,
}

/// What a [`Watch`] has to tell who wants to know also that there was nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Changed(Changed),
    /// Nothing that it follows was changed up to its [position](Watch::position), but for what it told. Comes now and then
    /// while other keys change.
    Reached,
}

/// Follows keys: each commit that changed any of them is told once, when it is durable in the datacenter, after all that
/// it depends on. Begun by [`Viewer::watch`].
#[derive(Debug)]
pub struct Watch(Following<Keys>);

impl Viewer {
    /// Begins to follow keys. Whatever is committed after this has returned is told, if it was not left out by
    /// [`WatchRequest::after`].
    ///
    /// Tries every endpoint once. [`ClientError::WatchTooOld`]: see there.
    pub async fn watch(&self, request: WatchRequest) -> Result<Watch, ClientError> {
        Following::begin(self, request.keys, request.from).await.map(Watch)
    }
}

impl Watch {
    /// The next commit. May be given up and asked for again; nothing is lost by that.
    ///
    /// While no server answers it waits, and connects again. An error is the server's refusal to go on, such as
    /// [`ClientError::WatchTooOld`]; called again, it asks the server again.
    pub async fn next(&mut self) -> Result<Changed, ClientError> {
        loop {
            if let News::Changed(changed) = self.next_news().await? {
                return Ok(changed);
            }
        }
    }

    /// As [`Watch::next`], and tells also when the position moved without a commit that is followed: for who keeps it
    /// somewhere.
    pub async fn next_news(&mut self) -> Result<News, ClientError> {
        Ok(match self.0.next().await? {
            Next::News(changed) => News::Changed(changed),
            Next::Reached => News::Reached,
        })
    }

    /// What was told so far, and what there was nothing to tell of: to go on from there with another watch, pass it to
    /// [`WatchRequest::after`].
    pub fn position(&self) -> &Snapshot {
        self.0.position()
    }
}

impl Subject for Keys {
    type Response = WatchResponse;
    type News = Changed;

    async fn call(
        &self,
        mut client: Api,
        from: Option<Snapshot>,
    ) -> Result<Response<Streaming<WatchResponse>>, Status> {
        let Keys { prefixes, keys } = self.clone();
        client.watch(proto::WatchRequest { prefixes, keys, from }).await
    }

    fn read(response: WatchResponse) -> Said<Changed> {
        match response.event {
            Some(Event::Begun(begun)) => Said::Begun(begun.snapshot.unwrap_or_default()),
            Some(Event::Reached(reached)) => Said::Reached(reached.snapshot.unwrap_or_default()),
            Some(Event::Changed(changed)) => read(changed).unwrap_or(Said::Unknown),
            None => Said::Unknown,
        }
    }
}

/// What this client cannot name, it skips.
fn read(proto::WatchChanged { dc, seq, changes }: proto::WatchChanged) -> Option<Said<Changed>> {
    let dc = u8::try_from(dc).ok().and_then(DcId::new)?;
    let changes = changes.into_iter().filter_map(change_of).collect();
    Some(Said::Entry(dc, seq, Changed { dc, seq, changes }))
}

fn change_of(message: proto::Change) -> Option<Change> {
    let key = message.key?;
    let key = Key::new(&key.bucket, &key.name).ok()?;
    let action = match message.action {
        Some(change::Action::Update(update)) => {
            update_messages::parse(update).map_or(Action::Unknown, Action::Update)
        }
        Some(change::Action::Remove(_)) => Action::Removed,
        Some(change::Action::ExpireMs(millis)) => {
            Action::Expires(Duration::from_millis(millis.unsigned_abs()))
        }
        Some(change::Action::Lapse(_)) => Action::Lapsed,
        None => Action::Unknown,
    };
    Some(Change { key, action })
}
