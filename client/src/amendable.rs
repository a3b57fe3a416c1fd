//! An acquire whose candidates change while it waits.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::error::{AcquireError, AmendError};
use super::guard::LockGuard;
use super::handle::{Client, Waiting};
use super::request::{AcquireRequest, candidate, check_candidates};
use super::session::Grant;
use geolock_api::names::LockName;

/// A request for [enough](super::AcquireRequest::enough) of many locks, made by
/// [`Client::acquire_amendable`](super::Client::acquire_amendable). Dropping it cancels the request; if it
/// has been granted meanwhile, its locks are released.
#[must_use = "the request is cancelled when this is dropped"]
pub struct AmendableAcquire {
    waiting: Waiting,
    number: u64,
    /// `None`: the request is granted, or over.
    outcome: Option<oneshot::Receiver<Result<Grant, AcquireError>>>,
    /// The answer to an amendment whose future was dropped.
    unanswered: Option<oneshot::Receiver<Result<(), AmendError>>>,
}

impl Client {
    /// Begins to acquire [enough](AcquireRequest::enough) of many locks, with candidates that can be changed
    /// while the request waits.
    pub fn acquire_amendable(&self, request: AcquireRequest) -> Result<AmendableAcquire, AcquireError> {
        request.check()?;
        let (number, outcome) = self.handle.shared.acquire(request)?;
        let waiting = Waiting::new(&self.handle, number);
        Ok(AmendableAcquire { waiting, number, outcome: Some(outcome), unanswered: None })
    }
}

impl AmendableAcquire {
    /// Waits for the grant. May be dropped and called again. After it has returned there is nothing to wait
    /// for: [`AcquireError::Closed`].
    pub async fn granted(&mut self) -> Result<LockGuard, AcquireError> {
        let outcome = self.outcome.as_mut().ok_or(AcquireError::Closed)?;
        let outcome = outcome.await.unwrap_or(Err(AcquireError::Closed));
        self.outcome = None;
        self.waiting.end();
        Ok(LockGuard::new(Arc::clone(&self.waiting.handle), self.number, outcome?))
    }

    /// Changes the candidates: those in `drop` are removed, those in `add` come behind the rest, each with
    /// its weight. The request keeps its place in all queues. Names in `drop` that are no candidates are
    /// ignored.
    ///
    /// Waits for the server's answer. Dropping the future does not take the amendment back. After an error
    /// the request waits for the candidates of before; with [`AmendError::NotWaiting`] it does not wait any
    /// more, and [`AmendableAcquire::granted`] tells how it ended.
    pub async fn amend(&mut self, add: &[(LockName, u64)], drop: &[LockName]) -> Result<(), AmendError> {
        if let Some(unanswered) = &mut self.unanswered {
            // Its caller did not want the answer.
            let _ = unanswered.await;
            self.unanswered = None;
        }
        let add: Vec<_> = add.iter().map(|(name, weight)| candidate(name, *weight)).collect();
        let drop: Vec<_> = drop.iter().map(|name| candidate(name, 1)).collect();
        check_candidates(&add).and_then(|()| check_candidates(&drop))?;
        if self.outcome.is_none() {
            return Err(AmendError::NotWaiting);
        }
        let answer = self.waiting.handle.shared.amend(self.number, add, drop)?;
        let answer = self.unanswered.insert(answer).await;
        self.unanswered = None;
        answer.unwrap_or(Err(AmendError::NotWaiting))
    }
}

impl std::fmt::Debug for AmendableAcquire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AmendableAcquire").field("number", &self.number).finish_non_exhaustive()
    }
}
