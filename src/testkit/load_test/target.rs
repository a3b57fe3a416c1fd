//! The interface of a system under test: anything with locks.

use std::time::Duration;

use super::workload::{Ask, Locks};

/// One datacenter of a system under test.
pub(super) trait Target: Send + Sync + 'static {
    /// The held locks.
    type Held: Send;

    /// Waits until all locks of a request are held.
    fn acquire(&self, ask: &Ask, locks: &Locks) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Returns the fencing token: greater than that of every earlier conflicting holder.
    fn token(&self, held: &Self::Held) -> u64;

    /// Does the work of the request under its locks, and returns when it is done.
    fn work(&self, held: &mut Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Releases the locks, and returns when the server has confirmed that.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The reason why an acquisition failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("refused, to be tried again in {}", crate::base::time::brief(*.0))]
    Refused(Duration),
    #[error("the locks were lost: {0}")]
    Lost(String),
    /// The outcome is unknown.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Other(String),
}
