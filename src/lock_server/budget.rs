//! How many bytes calls may take while they wait in the mailbox: of each session, and of all.
//!
//! The first [`FREE`] bytes of each session are its own: it is charged for them with one addition, and as long as it has no
//! more than that waiting it never waits for others. Beyond, bytes are taken from what the session may have, and then from
//! what all may have together. A call that does not fit parks its session, of which only renewals are heard until it fits:
//! the client's own flow control does the rest.
//!
//! The calls that one client makes outside sessions have together what a session has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

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

/// In [`Allowance::used`]: somebody waits for bytes of [`FREE`].
const WAITED_FOR: usize = 1 << (usize::BITS - 1);

/// What may be in the mailbox of one session, or of one client outside sessions.
#[derive(Debug)]
pub struct Allowance {
    /// Bytes taken of [`FREE`], and [`WAITED_FOR`].
    used: AtomicUsize,
    given_back: Notify,
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
    /// `most` bytes of `all`, besides the first [`FREE`].
    pub(super) fn new(most: usize, all: &Budget) -> Arc<Allowance> {
        let (used, given_back) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Allowance { used, given_back, own: Budget::new(most), all: all.clone() })
    }

    /// So many bytes, if there are.
    pub(super) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.try_take_free(bytes).or_else(|| {
            Some(Charge::Bound { _own: self.own.try_take(bytes)?, _all: self.all.try_take(bytes)? })
        })
    }

    fn try_take_free(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let more = |used: usize| {
            let fits = (used & !WAITED_FOR).saturating_add(bytes) <= FREE;
            fits.then(|| used + bytes)
        };
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Charge::Free { of: Arc::clone(self), bytes })
    }

    /// So many bytes, when there are: of the first ones if they come back before there is room among all.
    pub(super) async fn take(self: Arc<Self>, bytes: usize) -> Charge {
        let bound = async {
            let _own = self.own.take(bytes).await;
            Charge::Bound { _own, _all: self.all.take(bytes).await }
        };
        tokio::select! {
            biased;
            free = self.take_free(bytes), if bytes <= FREE => free,
            bound = bound => bound,
        }
    }

    async fn take_free(self: &Arc<Self>, bytes: usize) -> Charge {
        loop {
            // Made before the look at what there is: it hears of all that is given back from now on.
            let given_back = self.given_back.notified();
            self.used.fetch_or(WAITED_FOR, Ordering::SeqCst);
            if let Some(charge) = self.try_take_free(bytes) {
                return charge;
            }
            given_back.await;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Charge::Free { of, bytes } = self {
            let before = of.used.fetch_sub(*bytes, Ordering::SeqCst);
            if before & WAITED_FOR != 0 {
                of.used.fetch_and(!WAITED_FOR, Ordering::SeqCst);
                of.given_back.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_session_has_its_first_bytes_whatever_others_take() {
        let all = Budget::new(4 * FREE);
        let (greedy, modest) = (Allowance::new(8 * FREE, &all), Allowance::new(FREE, &all));
        let taken: Vec<Charge> = std::iter::from_fn(|| greedy.try_take(FREE)).collect();
        assert_eq!((taken.len(), all.used()), (5, 4 * FREE), "its first, and what there is for all");
        let free = modest.try_take(FREE);
        assert!(free.is_some() && modest.try_take(1).is_none());
        drop(taken);
        assert_eq!(all.used(), 0);
        assert!(modest.try_take(1).is_some());
    }

    #[test]
    fn who_waits_goes_on_when_its_own_first_bytes_come_back() {
        let all = Budget::new(PIECE);
        let (greedy, modest) = (Allowance::new(PIECE, &all), Allowance::new(PIECE, &all));
        let taken = [greedy.try_take(FREE), greedy.try_take(PIECE)];
        assert!(taken.iter().all(Option::is_some));
        let first = modest.try_take(FREE - PIECE);
        let mut waits = pin!(Arc::clone(&modest).take(2 * PIECE));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(waits.as_mut().poll(&mut cx).is_ready());
        assert!(modest.try_take(FREE).is_some(), "and gives them back");
    }

    #[test]
    fn a_call_that_is_larger_than_everything_fits_alone() {
        let all = Budget::new(1_000);
        let session = Allowance::new(500, &all);
        let large = session.try_take(10 * FREE);
        assert!(large.is_some() && session.try_take(10 * FREE).is_none());
        drop(large);
        assert!(session.try_take(10 * FREE).is_some());
    }
}
