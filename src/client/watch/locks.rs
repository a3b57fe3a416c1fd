//! Following locks: where they move, and who holds them here.

use bytes::Bytes;
use tonic::{Response, Status, Streaming};

use super::super::connection::Api;
use super::super::error::ClientError;
use super::super::queries::Viewer;
use super::follow::{Following, Next, Said, Subject};
use crate::names::{DcId, FencingToken, LockName, Mode, RequestId};
use crate::proto::watch_locks_response::Event;
use crate::proto::{self, Snapshot, WatchLocksRequest, WatchLocksResponse};

/// Which locks to follow, and from when on. At most 100 names and prefixes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockWatchRequest {
    locks: Locks,
    from: Option<Snapshot>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Locks {
    names: Vec<Bytes>,
    prefixes: Vec<Bytes>,
}

impl LockWatchRequest {
    /// One lock.
    pub fn of(name: &LockName) -> LockWatchRequest {
        LockWatchRequest::default().and(name)
    }

    /// The locks whose names begin with `prefix` (up to 1 024 bytes; empty for all).
    pub fn prefix(prefix: impl AsRef<[u8]>) -> LockWatchRequest {
        LockWatchRequest::default().and_prefix(prefix)
    }

    /// This lock too.
    #[must_use]
    pub fn and(mut self, name: &LockName) -> LockWatchRequest {
        self.locks.names.push(Bytes::copy_from_slice(name.as_bytes()));
        self
    }

    /// These locks too.
    #[must_use]
    pub fn and_prefix(mut self, prefix: impl AsRef<[u8]>) -> LockWatchRequest {
        self.locks.prefixes.push(Bytes::copy_from_slice(prefix.as_ref()));
        self
    }

    /// Every move that is not in this snapshot: [`LockWatch::position`] of an earlier watch, in whatever datacenter.
    /// Without it: from now on.
    #[must_use]
    pub fn after(mut self, snapshot: &Snapshot) -> LockWatchRequest {
        self.from = Some(snapshot.clone());
        self
    }
}

/// Something that happened to locks which a watch follows.
///
/// Moves are told once, in causal order, whatever happens. Who holds a lock is told of the datacenter that the watch is
/// connected to, as long as this client keeps up: keep holders by request and lock, forget all at
/// [`LockEvent::Anew`], and know that they are complete from [`LockEvent::Current`] on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// From the log.
    Moved(Moved),
    /// What was told of holders counts no more: the watch has connected, or it did not keep up.
    Anew,
    /// All who hold anything since [`LockEvent::Anew`] have been told.
    Current,
    /// These locks are held; told perhaps twice before [`LockEvent::Current`].
    Granted(Holding),
    /// They are not held any more; perhaps never told to be, before [`LockEvent::Current`].
    Released(Holding),
    /// The position moved, and there was nothing to tell.
    Reached,
}

/// Parts of locks that moved in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where they were.
    pub dc: DcId,
    /// The number of the move in the log of that datacenter.
    pub seq: u64,
    /// Of those locks that are followed.
    pub moves: Vec<LockMove>,
}

/// Parts of one lock that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockMove {
    pub lock: LockName,
    /// The datacenters that they are named after.
    pub parts: Vec<DcId>,
    /// The datacenter that has them now.
    pub to: DcId,
}

/// Who holds locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub request: RequestId,
    pub token: FencingToken,
    /// What its client said of itself.
    pub label: String,
    /// Those of its locks that are followed.
    pub locks: Vec<(LockName, Mode)>,
}

/// Follows locks. Begun by [`Viewer::watch_locks`].
#[derive(Debug)]
pub struct LockWatch(Following<Locks>);

impl Viewer {
    /// Begins to follow locks: every move after this has returned is told, and who holds them.
    ///
    /// Tries every endpoint once. [`ClientError::WatchTooOld`]: see there.
    pub async fn watch_locks(&self, request: LockWatchRequest) -> Result<LockWatch, ClientError> {
        Following::begin(self, request.locks, request.from).await.map(LockWatch)
    }
}

impl LockWatch {
    /// What happens next. May be given up and asked for again; nothing is lost by that.
    ///
    /// While no server answers it waits, and connects again. An error is the server's refusal to go on, such as
    /// [`ClientError::WatchTooOld`]; called again, it asks the server again.
    pub async fn next(&mut self) -> Result<LockEvent, ClientError> {
        Ok(match self.0.next().await? {
            Next::News(event) => event,
            Next::Reached => LockEvent::Reached,
        })
    }

    /// Up to where all moves were told: to go on from there with another watch, pass it to [`LockWatchRequest::after`].
    pub fn position(&self) -> &Snapshot {
        self.0.position()
    }
}

impl Subject for Locks {
    type Response = WatchLocksResponse;
    type News = LockEvent;

    async fn call(
        &self,
        mut client: Api,
        from: Option<Snapshot>,
    ) -> Result<Response<Streaming<WatchLocksResponse>>, Status> {
        let Locks { names, prefixes } = self.clone();
        client.watch_locks(WatchLocksRequest { names, prefixes, from }).await
    }

    /// What this client cannot name, it skips.
    fn read(response: WatchLocksResponse) -> Said<LockEvent> {
        let read = match response.event {
            Some(Event::Begun(begun)) => Some(Said::Begun(begun.snapshot.unwrap_or_default())),
            Some(Event::Reached(reached)) => Some(Said::Reached(reached.snapshot.unwrap_or_default())),
            Some(Event::Moved(message)) => {
                moved(message).map(|moved| Said::Entry(moved.dc, moved.seq, LockEvent::Moved(moved)))
            }
            Some(Event::Anew(_)) => Some(Said::Passing(LockEvent::Anew)),
            Some(Event::Current(_)) => Some(Said::Passing(LockEvent::Current)),
            Some(Event::Granted(held)) => holding(held).map(|it| Said::Passing(LockEvent::Granted(it))),
            Some(Event::Released(held)) => holding(held).map(|it| Said::Passing(LockEvent::Released(it))),
            None => None,
        };
        read.unwrap_or(Said::Unknown)
    }
}

fn moved(proto::LocksMoved { dc, seq, moves }: proto::LocksMoved) -> Option<Moved> {
    let one = |moved: proto::LockMove| {
        let parts = moved.parts.into_iter().filter_map(datacenter).collect();
        Some(LockMove { lock: LockName::new(&moved.name).ok()?, parts, to: datacenter(moved.to)? })
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
        Some((LockName::new(&lock.name).ok()?, mode))
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
