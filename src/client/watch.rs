//! Following keys: every committed change of them, also over broken connections.
//!
//! A watch keeps the vector of what it was told, so it can go on at any endpoint. Connecting again is a future of its
//! own, kept beside the watch: a caller that gives up waiting and asks again, however often, does not start it anew.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};

use super::connection::Dialled;
use super::driver::pause;
use super::error::{ClientError, LinkError, of_status};
use super::queries::Viewer;
use crate::crdt::value::Update;
use crate::keys::Key;
use crate::names::DcId;
use crate::proto::watch_response::Event;
use crate::proto::{self, Reason, Snapshot, WatchPrefix, WatchResponse, change};
use crate::update_messages;

/// Which keys to follow, and from when on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchRequest {
    prefixes: Vec<WatchPrefix>,
    from: Option<Snapshot>,
}

impl WatchRequest {
    /// The keys of a bucket (1 to 255 bytes) whose names begin with `prefix` (up to 1 024 bytes; empty for all), from
    /// now on.
    pub fn new(bucket: impl AsRef<[u8]>, prefix: impl AsRef<[u8]>) -> WatchRequest {
        WatchRequest::default().and(bucket, prefix)
    }

    /// These keys too; at most 100 prefixes.
    #[must_use]
    pub fn and(mut self, bucket: impl AsRef<[u8]>, prefix: impl AsRef<[u8]>) -> WatchRequest {
        let bytes = Bytes::copy_from_slice;
        self.prefixes.push(WatchPrefix { bucket: bytes(bucket.as_ref()), prefix: bytes(prefix.as_ref()) });
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

/// Follows keys: each commit that changed any of them is told once, when it is durable in the datacenter, after all that
/// it depends on. Begun by [`Viewer::watch`].
pub struct Watch {
    way: Way,
    /// What it was told, or knew before.
    position: Snapshot,
    link: Link,
}

/// How to come to a server.
#[derive(Clone)]
struct Way {
    /// At least one.
    endpoints: Arc<[Dialled]>,
    /// Which of them is next.
    turn: usize,
    prefixes: Vec<WatchPrefix>,
}

enum Link {
    Up(Box<Up>),
    Coming(Coming),
    /// Not tried since the last error that was told.
    Down,
}

struct Up {
    responses: Streaming<WatchResponse>,
    endpoint: String,
}

type Coming = Pin<Box<dyn Future<Output = Result<(Up, Snapshot), ClientError>> + Send>>;

impl Viewer {
    /// Begins to follow keys. Whatever is committed after this has returned is told, if it was not left out by
    /// [`WatchRequest::after`].
    ///
    /// Tries every endpoint once. [`ClientError::WatchTooOld`]: see there.
    pub async fn watch(&self, request: WatchRequest) -> Result<Watch, ClientError> {
        let WatchRequest { prefixes, from } = request;
        let turn = self.endpoints.iter().position(|dialled| dialled.name == self.endpoint).unwrap_or(0);
        let mut way = Way { endpoints: Arc::clone(&self.endpoints), turn, prefixes };
        let mut last = ClientError::Closed;
        for _ in 0..way.endpoints.len() {
            match way.attempt(from.clone()).await {
                Ok((up, position)) => return Ok(Watch { way, position, link: Link::Up(Box::new(up)) }),
                Err(error) if passes(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

impl Watch {
    /// The next commit. May be given up and asked for again; nothing is lost by that.
    ///
    /// While no server answers it waits, and connects again. An error is the server's refusal to go on, such as
    /// [`ClientError::WatchTooOld`]; called again, it asks the server again.
    pub async fn next(&mut self) -> Result<Changed, ClientError> {
        loop {
            match &mut self.link {
                Link::Down => {
                    self.link = Link::Coming(Box::pin(self.way.clone().come(self.position.clone())))
                }
                Link::Coming(coming) => match coming.await {
                    Ok((up, _)) => self.link = Link::Up(Box::new(up)),
                    Err(error) => {
                        self.link = Link::Down;
                        return Err(error);
                    }
                },
                Link::Up(up) => match up.next().await {
                    Ok(event) => {
                        if let Some(changed) = self.on_event(event) {
                            return Ok(changed);
                        }
                    }
                    Err(error) => {
                        self.link = Link::Down;
                        if !passes(&error) {
                            return Err(error);
                        }
                        tracing::debug!(%error, "a watch broke; it connects again");
                    }
                },
            }
        }
    }

    /// What was told so far: to go on from there with another watch, pass it to [`WatchRequest::after`].
    pub fn position(&self) -> &Snapshot {
        &self.position
    }

    /// What this client cannot name, it skips.
    fn on_event(&mut self, event: Event) -> Option<Changed> {
        let Event::Changed(proto::WatchChanged { dc, seq, changes }) = event else { return None };
        let dc = u8::try_from(dc).ok().and_then(DcId::new)?;
        let seqs = &mut self.position.seqs;
        if seqs.len() <= dc.index() {
            seqs.resize(dc.index() + 1, 0);
        }
        seqs[dc.index()] = seqs[dc.index()].max(seq);
        Some(Changed { dc, seq, changes: changes.into_iter().filter_map(change_of).collect() })
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Way {
    /// Tries endpoint after endpoint until one takes the watch, or refuses it for good.
    async fn come(mut self, from: Snapshot) -> Result<(Up, Snapshot), ClientError> {
        for failures in 1.. {
            sleep(pause(failures)).await;
            match self.attempt(Some(from.clone())).await {
                Err(error) if passes(&error) => tracing::debug!(%error, "no connection for a watch"),
                outcome => return outcome,
            }
        }
        Err(ClientError::Closed)
    }

    /// One endpoint: the stream, and where it begins.
    async fn attempt(&mut self, from: Option<Snapshot>) -> Result<(Up, Snapshot), ClientError> {
        let dialled = &self.endpoints[self.turn % self.endpoints.len()];
        self.turn += 1;
        let endpoint = dialled.name.clone();
        let request = proto::WatchRequest { prefixes: self.prefixes.clone(), from };
        let responses = dialled.watch(request).await.map_err(|error| link_error(&endpoint, error))?;
        let mut up = Up { responses, endpoint };
        match up.next().await? {
            Event::Begun(begun) => Ok((up, begun.snapshot.unwrap_or_default())),
            Event::Changed(_) => Err(unreachable(&up.endpoint, LinkError::Ended)),
        }
    }
}

impl Up {
    async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            match self.responses.message().await {
                Ok(Some(WatchResponse { event: Some(event) })) => return Ok(event),
                // Of a newer server.
                Ok(Some(WatchResponse { event: None })) => {}
                Ok(None) => return Err(unreachable(&self.endpoint, LinkError::Ended)),
                Err(status) => return Err(status_error(&self.endpoint, status)),
            }
        }
    }
}

fn unreachable(endpoint: &str, source: LinkError) -> ClientError {
    ClientError::Unreachable { endpoint: endpoint.to_owned(), source }
}

fn link_error(endpoint: &str, error: LinkError) -> ClientError {
    match error {
        LinkError::Stream(status) => status_error(endpoint, *status),
        source => unreachable(endpoint, source),
    }
}

fn status_error(endpoint: &str, status: Status) -> ClientError {
    match of_status(endpoint, status) {
        ClientError::Refused(Reason::WatchTooOld, message) => ClientError::WatchTooOld(message),
        error => error,
    }
}

/// Whether trying again may help.
fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { source: LinkError::Stream(status), .. } => {
            !matches!(status.code(), Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied)
        }
        ClientError::Unreachable { .. } => true,
        ClientError::Refused(reason, _) => matches!(
            reason,
            Reason::Unavailable | Reason::Draining | Reason::ResourceExhausted | Reason::SlowReader
        ),
        _ => false,
    }
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
