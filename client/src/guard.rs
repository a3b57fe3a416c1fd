//! Guards: grants that a caller holds.

use std::future::Future;
use std::mem;
use std::sync::Arc;

use super::error::{ClientError, LostReason};
use super::handle::Handle;
use super::session::Grant;
use super::shared::Watch;
use geolock_api::names::{FencingToken, LockName, RequestId};
use geolock_api::proto::Snapshot;

/// A grant: its locks are held until the guard is released or dropped, or the lease is lost.
///
/// A guard does not stop its holder from working after the loss. Either the protected resource refuses
/// tokens below the highest it has seen, or the holder stops when [`LockGuard::lost`] resolves.
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

    /// Returns the fencing token. It is above the token of every earlier conflicting grant, in any
    /// datacenter.
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    /// Returns the id of the request.
    pub fn request(&self) -> RequestId {
        self.grant.request
    }

    /// Returns the candidates that a request for [enough](super::AcquireRequest::enough) locks got, by their
    /// places in the order in which they were named, from 0 on. Empty for other requests.
    pub fn chosen(&self) -> &[u32] {
        &self.grant.chosen
    }

    /// Returns the names of these candidates. After [amendments](super::AmendableAcquire::amend) these tell
    /// which it got: the places are those in the list as the server knew it.
    pub fn chosen_locks(&self) -> &[LockName] {
        &self.grant.chosen_locks
    }

    /// Returns the snapshot of the grant: it contains every commit made under these locks so far.
    pub fn snapshot(&self) -> &Snapshot {
        &self.grant.snapshot
    }

    /// Resolves when the locks are lost, before another client can hold them: at the latest
    /// [`lease_margin`](super::lease_margin) before the lease can end at the server. Once the guard is
    /// released or dropped it resolves with [`LostReason::Released`].
    ///
    /// This holds while the process runs. A process that was stopped, or a machine that slept, notices the
    /// loss when it runs again. With [`OnDisconnect::Release`](super::OnDisconnect::Release) the server
    /// frees the locks as soon as it considers the connection broken, and the client may notice that later.
    /// Only a resource that checks tokens is safe in these cases.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let watch = self.handle.shared.watch(self.number);
        async {
            match watch {
                Watch::Over(reason) => reason,
                Watch::Waiting(reason) => reason.await.unwrap_or(LostReason::Released),
            }
        }
    }

    /// Returns the reason of the loss if the locks are lost at this moment, `None` while they are held.
    /// Compare [`LockGuard::lost`].
    pub fn is_lost(&self) -> Option<LostReason> {
        self.handle.shared.lost(self.number)
    }

    /// Makes the exclusive hold of one lock a shared one, with the same token: no client holds the lock
    /// exclusively in between. Shared requests that wait for it may be granted then. Waits for the server's
    /// confirmation; dropping the future does not stop the downgrade, and the lock counts as shared from
    /// the call on. A lock that is held shared stays as it is. There is no way back: release the lock, and
    /// acquire it again.
    ///
    /// Returns [`ClientError::LeaseLost`] if the locks are lost, and [`ClientError::Refused`] with
    /// [`Reason::NotOfRequest`] if `lock` is none of this guard's.
    ///
    /// [`Reason::NotOfRequest`]: geolock_api::proto::Reason::NotOfRequest
    pub async fn downgrade(&self, lock: &LockName) -> Result<(), ClientError> {
        match self.handle.shared.downgrade(self.number, lock) {
            Ok(outcome) => outcome.await.unwrap_or(Err(ClientError::Closed)),
            Err(outcome) => outcome,
        }
    }

    /// Releases the locks and waits for the server's confirmation. Dropping the future does not stop the
    /// release. Returns [`ClientError::LeaseLost`] if the locks had been lost before.
    pub async fn release(mut self) -> Result<(), ClientError> {
        self.state = State::Released;
        match self.handle.shared.release(self.number) {
            Ok(outcome) => outcome.await.unwrap_or(Err(ClientError::Closed)),
            Err(outcome) => outcome,
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if mem::replace(&mut self.state, State::Released) == State::Held {
            self.handle.shared.drop_guard(self.number);
        }
    }
}

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockGuard").field("grant", &self.grant).finish_non_exhaustive()
    }
}
