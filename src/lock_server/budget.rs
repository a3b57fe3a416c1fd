//! How many bytes calls may take while they wait in the mailbox: of each session, and of all.
//!
//! The first [`FREE`] bytes of each session are its own: it is charged for them with one addition, and a client that
//! writes little never waits because others write much. Beyond, bytes are taken from what the session may have, and then
//! from what all may have together. A call that does not fit parks its session, which is not read until it fits: the
//! client's own flow control does the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What each session may have in the mailbox at least: more than a batch of small calls.
pub(super) const FREE: usize = 32 << 10;
/// Bytes beyond that are counted in pieces of this size.
const PIECE: usize = 256;

/// Bytes for calls, in pieces.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    pieces: Arc<Semaphore>,
    most: u32,
}

/// What one session may have in the mailbox. Calls outside sessions share one.
#[derive(Debug)]
pub(super) struct Allowance {
    free: usize,
    /// Bytes taken of `free`.
    used: AtomicUsize,
    own: Budget,
    all: Budget,
}

/// Bytes taken. Dropped, it gives them back.
#[derive(Debug)]
pub(super) enum Charge {
    Free { of: Arc<Allowance>, bytes: usize },
    Bound { _own: OwnedSemaphorePermit, _all: OwnedSemaphorePermit },
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        let most = u32::try_from(bytes / PIECE).unwrap_or(u32::MAX).clamp(1, Semaphore::MAX_PERMITS as u32);
        Budget { pieces: Arc::new(Semaphore::new(most as usize)), most }
    }

    /// How many bytes are taken, about.
    pub(super) fn used(&self) -> usize {
        (self.most as usize).saturating_sub(self.pieces.available_permits()) * PIECE
    }

    /// One call always fits when there is no other.
    fn pieces_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX).min(self.most)
    }

    fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.pieces).try_acquire_many_owned(self.pieces_of(bytes)).ok()
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let taken = Arc::clone(&self.pieces).acquire_many_owned(self.pieces_of(bytes)).await;
        taken.expect("this semaphore is never closed")
    }
}

impl Allowance {
    /// For a session, which may take `most` bytes of `all` besides its first [`FREE`].
    pub(super) fn of_session(most: usize, all: &Budget) -> Arc<Allowance> {
        Allowance::new(FREE, Budget::new(most), all)
    }

    /// For calls outside sessions: nothing is free, and half of it is left to sessions.
    pub(super) fn of_others(most: usize, all: &Budget) -> Arc<Allowance> {
        Allowance::new(0, Budget::new(most / 2), all)
    }

    fn new(free: usize, own: Budget, all: &Budget) -> Arc<Allowance> {
        Arc::new(Allowance { free, used: AtomicUsize::new(0), own, all: all.clone() })
    }

    /// So many bytes, if there are. Called by one at a time.
    pub(super) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        if self.used.load(Ordering::Relaxed) + bytes <= self.free {
            self.used.fetch_add(bytes, Ordering::Relaxed);
            return Some(Charge::Free { of: Arc::clone(self), bytes });
        }
        Some(Charge::Bound { _own: self.own.try_take(bytes)?, _all: self.all.try_take(bytes)? })
    }

    /// So many bytes, when there are.
    pub(super) async fn take(self: Arc<Self>, bytes: usize) -> Charge {
        let _own = self.own.take(bytes).await;
        Charge::Bound { _own, _all: self.all.take(bytes).await }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Charge::Free { of, bytes } = self {
            of.used.fetch_sub(*bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_its_first_bytes_whatever_others_take() {
        let all = Budget::new(4 * FREE);
        let (greedy, modest) = (Allowance::of_session(8 * FREE, &all), Allowance::of_session(FREE, &all));
        let taken: Vec<Charge> = std::iter::from_fn(|| greedy.try_take(FREE)).collect();
        assert_eq!((taken.len(), all.used()), (5, 4 * FREE), "its first, and what there is for all");
        let free = modest.try_take(FREE);
        assert!(free.is_some() && modest.try_take(1).is_none());
        drop(taken);
        assert_eq!(all.used(), 0);
        assert!(modest.try_take(1).is_some());
    }

    #[test]
    fn a_call_that_is_larger_than_everything_fits_alone() {
        let all = Budget::new(1_000);
        let session = Allowance::of_session(500, &all);
        let large = session.try_take(10 * FREE);
        assert!(large.is_some() && session.try_take(10 * FREE).is_none());
        drop(large);
        assert!(session.try_take(10 * FREE).is_some());
    }
}
