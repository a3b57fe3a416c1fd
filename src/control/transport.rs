//! The way from a member to another.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use geolock_api::names::DcId;

/// No answer will come. The request may have arrived all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreachable {
    #[error("there is no link to {0}, and no member with a link to it")]
    NoRoute(DcId),
    #[error("the link to {0} ended before the answer came")]
    LinkLost(DcId),
    #[error("too many requests are waiting for their answers; repeat later")]
    Busy,
    #[error("{size} bytes are more than a control frame takes ({limit})")]
    TooLarge { size: usize, limit: usize },
    #[error("this server is shutting down")]
    ShuttingDown,
}

/// A future of a call.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Result<Bytes, Unreachable>> + Send + 'a>>;

/// Carries requests to other members, and their answers back.
///
/// The caller limits the time of a call by dropping it. A request may arrive twice, late, or after its caller
/// has given up; a member's answer is of at most [`MAX_PAYLOAD`](super::MAX_PAYLOAD) bytes, like a request.
pub trait ControlTransport: Send + Sync + 'static {
    /// Passes `request` to [`ControlGroup::handle_request`](super::ControlGroup::handle_request) of `to` and
    /// returns its answer.
    fn call(&self, to: DcId, request: Bytes) -> Calling<'_>;

    /// Returns the time to `to` and back, as measured on a link that is up.
    fn round_trip(&self, to: DcId) -> Option<Duration>;
}
