//! What operators do to a datacenter's locks.

use bytes::Bytes;

use super::config::ClientConfig;
use super::error::ClientError;
use super::queries::Viewer;
use crate::names::{ForceReason, LockName};
use crate::proto::{AuditRequest, ForceReleaseRequest, ForceReleaseResponse, ForcedRelease};

/// Takes locks away from others, and sees who did. If the server has rules, they have to allow it.
#[derive(Clone, Debug)]
pub struct Operator(Viewer);

impl Operator {
    /// As [`Viewer::connect`].
    pub async fn connect(config: ClientConfig) -> Result<Operator, ClientError> {
        Viewer::connect(config).await.map(Operator)
    }

    /// For looking, over the same connection.
    pub fn viewer(&self) -> &Viewer {
        &self.0
    }

    /// Takes a lock from whoever holds it in this datacenter: from all that hold it shared, 1 000 at a time. Each of them
    /// loses all locks of the request by which it has this one, and is told who did it and why.
    ///
    /// That does not stop them: what the lock protects has to refuse tokens below the highest it has seen. The answer
    /// says who lost it, and where else it is held. After [`ClientError::Unreachable`] it may have been done or not;
    /// [`Operator::audit`] tells.
    pub async fn force_release(
        &self,
        lock: &LockName,
        reason: &ForceReason,
    ) -> Result<ForceReleaseResponse, ClientError> {
        let name = Bytes::copy_from_slice(lock.as_bytes());
        let request = ForceReleaseRequest { name, reason: reason.as_str().to_owned() };
        self.0.ask(async |mut locks| locks.force_release(request).await).await
    }

    /// The last 1 000 requests of this datacenter that lost their locks to operators, the latest last.
    pub async fn audit(&self) -> Result<Vec<ForcedRelease>, ClientError> {
        let answer = self.0.ask(async |mut locks| locks.audit(AuditRequest {}).await).await?;
        Ok(answer.forced)
    }
}
