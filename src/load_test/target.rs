//! What a load test runs against: anything with locks.

use std::time::Duration;

use super::workload::{Ask, Locks};

/// One datacenter of a system under test.
pub(super) trait Target: Send + Sync + 'static {
    /// What is held.
    type Held: Send;

    /// Waits until all locks of a request are held.
    fn acquire(&self, ask: &Ask, locks: &Locks) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Greater than that of every earlier holder that conflicts.
    fn token(&self, held: &Self::Held) -> u64;

    /// Does under the locks what the request is for; returns when that is over.
    fn work(&self, held: &mut Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Returns when the server has confirmed it.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Why an acquisition came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("refused, to be tried again in {}", crate::time::brief(*.0))]
    Refused(Duration),
    #[error("the locks were lost: {0}")]
    Lost(String),
    /// It may have happened or not.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Other(String),
}
