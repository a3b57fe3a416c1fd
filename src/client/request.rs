//! What a caller wants to acquire.

use std::time::Duration;

use bytes::Bytes;

use crate::names::{LockName, Mode};
use crate::proto::{self, LockMode, acquire_request};

/// Locks that are wanted all at once, or not at all.
///
/// Waits for ever unless told otherwise. Requests conflict with each other like anybody's, also within one
/// client: there is no re-entrancy and no upgrade. Holding one request while waiting for another can deadlock;
/// wanting several locks in one request cannot.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    pub(super) locks: Vec<LockMode>,
    pub(super) wait: Wait,
    pub(super) label: String,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: answered from what this datacenter has, without asking others.
    Try,
    /// The datacenter counts.
    AtMost(Duration),
    /// As long as the lease lives.
    Forever,
}

impl AcquireRequest {
    /// Wants `name` alone.
    pub fn exclusive(name: LockName) -> AcquireRequest {
        AcquireRequest::one(name, Mode::Exclusive)
    }

    /// Wants `name` together with any others that want it shared.
    pub fn shared(name: LockName) -> AcquireRequest {
        AcquireRequest::one(name, Mode::Shared)
    }

    fn one(name: LockName, mode: Mode) -> AcquireRequest {
        AcquireRequest { locks: vec![lock_mode(&name, mode)], wait: Wait::Forever, label: String::new() }
    }

    /// Wants `name` too. The same lock twice means the stronger mode; at most 10 000 locks.
    #[must_use]
    pub fn and(mut self, name: LockName, mode: Mode) -> AcquireRequest {
        self.locks.push(lock_mode(&name, mode));
        self
    }

    #[must_use]
    pub fn wait(mut self, wait: Wait) -> AcquireRequest {
        self.wait = wait;
        self
    }

    /// Says who wants this, for people that ask who holds a lock. At most 256 bytes. Without one, the name of the
    /// client is shown.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> AcquireRequest {
        self.label = text.into();
        self
    }
}

impl Wait {
    /// As it goes to the server, when `left` of an [`AtMost`](Wait::AtMost) is left.
    pub(super) fn to_proto(self, left: Duration) -> acquire_request::Wait {
        match self {
            Wait::Try => acquire_request::Wait::TryOnce(proto::TryOnce {}),
            Wait::AtMost(_) => acquire_request::Wait::WaitMs(millis(left)),
            Wait::Forever => acquire_request::Wait::WaitForever(proto::WaitForever {}),
        }
    }
}

/// Rounded up, so that a wait is never shorter than was asked for.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn lock_mode(name: &LockName, mode: Mode) -> LockMode {
    let mode = match mode {
        Mode::Shared => proto::Mode::Shared,
        Mode::Exclusive => proto::Mode::Exclusive,
    };
    LockMode { name: Bytes::copy_from_slice(name.as_bytes()), mode: mode.into() }
}
