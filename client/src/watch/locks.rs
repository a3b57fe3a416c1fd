//! Watches of locks: their moves, and their holders in one datacenter.

use bytes::Bytes;
use tonic::{Response, Status, Streaming};

use super::super::connection::Api;
use super::super::error::ClientError;
use super::super::read_client::ReadClient;
use super::follow::{Following, Next, ServerEvent, Subject};
use geolock_api::names::{DcId, FencingToken, LockName, Mode, RequestId};
use geolock_api::proto::watch_locks_response::Event;
use geolock_api::proto::{self, Feature, Snapshot, WatchLocksRequest, WatchLocksResponse};

/// The locks to watch, and the position from which to start. At most 100 names and prefixes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockWatchRequest {
    locks: Locks,
    from: Option<Snapshot>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Locks {
    names: Vec<Bytes>,
    homed: Vec<proto::HomedName>,
    prefixes: Vec<Bytes>,
}

impl LockWatchRequest {
    /// Watches one lock.
    pub fn of(name: &LockName) -> LockWatchRequest {
        LockWatchRequest::default().and(name)
    }

    /// Watches the locks whose names begin with `prefix` (up to 1 024 bytes; empty for all), with any home or
    /// none.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> LockWatchRequest {
        LockWatchRequest::default().and_prefix(prefix)
    }

    /// Adds a lock.
    #[must_use]
    pub fn and(mut self, name: &LockName) -> LockWatchRequest {
        let bytes = Bytes::copy_from_slice(name.as_bytes());
        match name.home_field() {
            Some(home) => self.locks.homed.push(proto::HomedName { name: bytes, home }),
            None => self.locks.names.push(bytes),
        }
        self
    }

    /// Adds the locks whose names begin with `prefix`.
    #[must_use]
    pub fn and_prefix(mut self, prefix: impl AsRef<[u8]>) -> LockWatchRequest {
        self.locks.prefixes.push(Bytes::copy_from_slice(prefix.as_ref()));
        self
    }

    /// Starts with all moves that are not in this snapshot: [`LockWatch::position`] of an earlier watch, in
    /// any datacenter. Without it: from now on.
    #[must_use]
    pub fn from_snapshot(mut self, snapshot: &Snapshot) -> LockWatchRequest {
        self.from = Some(snapshot.clone());
        self
    }
}

/// An event of watched locks.
///
/// Every move is reported once, in causal order, in all circumstances. Holders are reported for the
/// datacenter to which the watch is connected, as long as this client reads fast enough: keep holders by
/// request and lock, discard all at [`LockEvent::HoldersReset`], and consider them complete from
/// [`LockEvent::HoldersSynced`] on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// A move, from the log.
    Moved(Moved),
    /// All holders reported before are void: the watch has connected, or the client read too slowly.
    HoldersReset,
    /// All holders since [`LockEvent::HoldersReset`] have been reported.
    HoldersSynced,
    /// These locks are held; possibly reported twice before [`LockEvent::HoldersSynced`].
    Granted(Holding),
    /// These locks are no longer held; possibly never reported as held before [`LockEvent::HoldersSynced`].
    Released(Holding),
    /// The position moved without an event.
    Progress,
}

/// Parts of locks that moved in one entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The datacenter that owned them before.
    pub dc: DcId,
    /// The sequence number of the entry in the log of that datacenter.
    pub seq: u64,
    /// Only of watched locks.
    pub moves: Vec<LockMove>,
}

/// Parts of one lock that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockMove {
    /// The lock.
    pub lock: LockName,
    /// The homes of the parts.
    pub parts: Vec<DcId>,
    /// The datacenter that owns them now.
    pub to: DcId,
}

/// The holder of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The request that holds them.
    pub request: RequestId,
    /// Its fencing token.
    pub token: FencingToken,
    /// The label that its client set.
    pub label: String,
    /// Only its watched locks.
    pub locks: Vec<(LockName, Mode)>,
}

/// A watch of locks. Started by [`ReadClient::watch_locks`].
#[derive(Debug)]
pub struct LockWatch(Following<Locks>);

impl ReadClient {
    /// Starts a watch of locks. Every move after this has returned is reported, and the holders.
    ///
    /// Tries every endpoint once. For [`ClientError::WatchTooOld`] see there.
    pub async fn watch_locks(&self, request: LockWatchRequest) -> Result<LockWatch, ClientError> {
        if !request.locks.homed.is_empty() {
            self.require(Feature::Home).await?;
        }
        Following::begin(self, request.locks, request.from).await.map(LockWatch)
    }
}

impl LockWatch {
    /// Returns the next event. Cancel-safe: dropping the future loses no event.
    ///
    /// While no server answers it waits and reconnects. An error is the server's refusal to continue, such
    /// as [`ClientError::WatchTooOld`]; the next call asks the server again.
    pub async fn next(&mut self) -> Result<LockEvent, ClientError> {
        Ok(match self.0.next().await? {
            Next::Event(event) => event,
            Next::Progress => LockEvent::Progress,
        })
    }

    /// Returns the snapshot up to which all moves were reported. To resume from there with another watch,
    /// pass it to [`LockWatchRequest::from_snapshot`].
    pub fn position(&self) -> &Snapshot {
        self.0.position()
    }
}

impl Subject for Locks {
    type Response = WatchLocksResponse;
    type Event = LockEvent;

    async fn call(
        &self,
        mut client: Api,
        from: Option<Snapshot>,
    ) -> Result<Response<Streaming<WatchLocksResponse>>, Status> {
        let Locks { names, homed, prefixes } = self.clone();
        client.watch_locks(WatchLocksRequest { names, homed, prefixes, from_snapshot: from }).await
    }

    /// Skips events that this client cannot represent.
    fn read(response: WatchLocksResponse) -> ServerEvent<LockEvent> {
        let read = match response.event {
            Some(Event::Created(created)) => Some(ServerEvent::Created(created.snapshot.unwrap_or_default())),
            Some(Event::Progress(progress)) => {
                Some(ServerEvent::Progress(progress.snapshot.unwrap_or_default()))
            }
            Some(Event::Moved(message)) => {
                moved(message).map(|moved| ServerEvent::Entry(moved.dc, moved.seq, LockEvent::Moved(moved)))
            }
            Some(Event::HoldersReset(_)) => Some(ServerEvent::Passing(LockEvent::HoldersReset)),
            Some(Event::HoldersSynced(_)) => Some(ServerEvent::Passing(LockEvent::HoldersSynced)),
            Some(Event::Granted(held)) => {
                holding(held).map(|it| ServerEvent::Passing(LockEvent::Granted(it)))
            }
            Some(Event::Released(held)) => {
                holding(held).map(|it| ServerEvent::Passing(LockEvent::Released(it)))
            }
            None => None,
        };
        read.unwrap_or(ServerEvent::Unknown)
    }
}

fn moved(proto::LocksMoved { dc, seq, moves }: proto::LocksMoved) -> Option<Moved> {
    let one = |moved: proto::LockMove| {
        let parts = moved.parts.into_iter().filter_map(datacenter).collect();
        let lock = LockName::from_fields(&moved.name, moved.home).ok()?;
        Some(LockMove { lock, parts, to: datacenter(moved.to)? })
    };
    Some(Moved { dc: datacenter(dc)?, seq, moves: moves.into_iter().filter_map(one).collect() })
}

fn holding(held: proto::LocksHeld) -> Option<Holding> {
    let request = held.request?;
    let lock = |lock: proto::LockMode| {
        let mode = match lock.mode() {
            proto::Mode::Shared => Mode::Shared,
            proto::Mode::Exclusive => Mode::Exclusive,
            proto::Mode::Unspecified => return None,
        };
        Some((LockName::from_fields(&lock.name, lock.home).ok()?, mode))
    };
    Some(Holding {
        request: RequestId { dc: datacenter(request.dc)?, n: request.n },
        token: FencingToken(held.token),
        label: held.label,
        locks: held.locks.into_iter().filter_map(lock).collect(),
    })
}

fn datacenter(id: u32) -> Option<DcId> {
    u8::try_from(id).ok().and_then(DcId::new)
}
