//! Locks that are held.

use std::future::Future;
use std::mem;
use std::sync::Arc;

use super::error::{ClientError, LostReason};
use super::handle::Handle;
use super::hub::Watch;
use super::session::Grant;
use crate::names::{FencingToken, RequestId};
use crate::proto::Snapshot;

/// Locks that are held, until this is released or dropped, or the lease is lost.
///
/// A guard does not stop anybody: what the locks protect has to refuse tokens below the highest it has seen, or
/// its holder has to stop when [`LockGuard::lost`] resolves.
#[must_use = "the locks are released when the guard is dropped"]
pub struct LockGuard {
    handle: Arc<Handle>,
    number: u64,
    grant: Grant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Released,
}

impl LockGuard {
    pub(super) fn new(handle: Arc<Handle>, number: u64, grant: Grant) -> LockGuard {
        LockGuard { handle, number, grant, state: State::Held }
    }

    /// Above the token of every earlier grant that conflicts with this one, in any datacenter.
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    pub fn request(&self) -> RequestId {
        self.grant.request
    }

    /// What this grant has seen: all that was committed under its locks so far.
    pub fn snapshot(&self) -> &Snapshot {
        &self.grant.snapshot
    }

    /// Resolves when the locks are not held any more, before somebody else can hold them: at the latest
    /// [`lease_margin`](super::lease_margin) before the lease can end at the server. Once the guard is released or
    /// dropped it resolves with [`LostReason::Released`].
    ///
    /// That holds as long as this process runs: one that is stopped, or a machine that sleeps, notices when it
    /// goes on. And with [`OnDisconnect::Release`](super::OnDisconnect::Release) the server gives the locks to others as
    /// soon as it takes the connection for broken, which this side may notice later. Only what checks tokens is
    /// safe from that.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let watch = self.handle.hub.watch(self.number);
        async {
            match watch {
                Watch::Over(reason) => reason,
                Watch::Waiting(reason) => reason.await.unwrap_or(LostReason::Released),
            }
        }
    }

    /// As [`LockGuard::lost`], at this moment: `None` while the locks are held.
    pub fn is_lost(&self) -> Option<LostReason> {
        self.handle.hub.lost(self.number)
    }

    /// Releases the locks and waits until the server has done it. Giving up the wait does not give up the
    /// release. [`ClientError::LeaseLost`] says that they had been lost before.
    pub async fn release(mut self) -> Result<(), ClientError> {
        self.state = State::Released;
        match self.handle.hub.release(self.number) {
            Ok(outcome) => outcome.await.unwrap_or(Err(ClientError::Closed)),
            Err(outcome) => outcome,
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if mem::replace(&mut self.state, State::Released) == State::Held {
            self.handle.hub.drop_guard(self.number);
        }
    }
}

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockGuard").field("grant", &self.grant).finish_non_exhaustive()
    }
}
