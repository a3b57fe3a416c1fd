//! Frames of the control lane: a request or an answer on its way from one datacenter to another, possibly by
//! way of a third. Pure. A wire type: append only.

use bytes::Bytes;
use geolock_api::names::DcId;
use serde::{Deserialize, Serialize};

use super::transport::Unreachable;
use crate::base::wire;

/// Maximum size of a request or an answer, in bytes.
pub const MAX_PAYLOAD: usize = 64 << 10;
/// Maximum size of an encoded frame, in bytes.
const MAX_ENCODED: usize = MAX_PAYLOAD + 64;
/// The most members that pass a frame on, on its way.
pub(super) const MAX_HOPS: u8 = 1;

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// Number of the request, given by the side that asks; its answer has it too.
    pub id: u64,
    pub from: DcId,
    pub to: DcId,
    /// How many members may still pass it on.
    pub hops: u8,
    pub kind: FrameKind,
}

/// The content of a frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FrameKind {
    Request(Bytes),
    Answer(Bytes),
    /// The request did not arrive: the member that should have passed it on has no link to its addressee.
    NoRoute,
    /// The request was not handled: too many are.
    Busy,
}

/// Bytes that are no frame. The link that they came on is to be closed: its peer breaks the protocol.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a control frame of {0} bytes, the limit is {MAX_ENCODED}")]
    TooLarge(usize),
    #[error("{0}")]
    Malformed(String),
    #[error("a control frame that is from {0} and to it")]
    ToItself(DcId),
    #[error("a control frame may be passed on {0} times, the limit is {MAX_HOPS}")]
    Hops(u8),
}

impl Frame {
    /// Returns the frame of a new request.
    pub(super) fn request(id: u64, from: DcId, to: DcId, request: Bytes) -> Result<Frame, Unreachable> {
        let (size, limit) = (request.len(), MAX_PAYLOAD);
        if size > limit {
            return Err(Unreachable::TooLarge { size, limit });
        }
        Ok(Frame { id, from, to, hops: MAX_HOPS, kind: FrameKind::Request(request) })
    }

    /// Returns the frame that goes back to the sender of this one.
    pub(super) fn answered(&self, kind: FrameKind) -> Frame {
        Frame { id: self.id, from: self.to, to: self.from, hops: MAX_HOPS, kind }
    }

    /// Returns the bytes of the frame.
    pub fn encode(&self) -> Bytes {
        wire::encode("control frame", self).expect("its payload is limited").into()
    }

    /// Reads a frame.
    pub fn decode(bytes: &[u8]) -> Result<Frame, FrameError> {
        if bytes.len() > MAX_ENCODED {
            return Err(FrameError::TooLarge(bytes.len()));
        }
        let frame: Frame =
            wire::decode("control frame", bytes).map_err(|error| FrameError::Malformed(error.to_string()))?;
        if frame.from == frame.to {
            return Err(FrameError::ToItself(frame.from));
        }
        if frame.hops > MAX_HOPS {
            return Err(FrameError::Hops(frame.hops));
        }
        Ok(frame)
    }
}
