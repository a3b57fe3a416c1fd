//! Limits on the bytes that calls take while they wait in the mailbox: per session, per client, and in all.
//!
//! Each session owns its first [`FREE`] bytes: they are charged with one addition, and a session with no more
//! than that waiting never waits for others. Bytes beyond that are taken from the limit of the session, then
//! from that of its client, and then from the common budget. A call that does not fit parks its session:
//! until it fits, only renewals of that session are handled, and the client's own flow control does the rest.
//!
//! Of each client only one call at a time waits for the common budget, so released bytes go to all clients in
//! turn.
//!
//! The calls that one client makes outside sessions share the limit of one session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::replica::call::ClientId;

/// Bytes that each session may always have in the mailbox: more than a batch of small calls.
pub(super) const FREE: usize = 32 << 10;
/// Bytes beyond that are counted in pieces of this size.
const PIECE: usize = 256;

/// A number of bytes for calls, counted in pieces.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    pieces: Arc<Semaphore>,
    most: u32,
}

/// The limits of one client: for all its sessions, and for its calls outside them.
#[derive(Clone, Debug)]
pub struct ClientAllowance {
    id: ClientId,
    session: usize,
    client: Budget,
    all: Budget,
    /// Held by the call that waits for the common budget.
    turn: Arc<Semaphore>,
}

/// A flag in [`Allowance::used`]: a call waits for bytes of [`FREE`].
const WAITED_FOR: usize = 1 << (usize::BITS - 1);

/// The limit of one session, or of the calls of one client outside sessions.
#[derive(Debug)]
pub struct Allowance {
    /// Bytes of [`FREE`] in use, and the flag [`WAITED_FOR`].
    used: AtomicUsize,
    given_back: Notify,
    own: Budget,
    of: ClientAllowance,
}

/// Bytes in use. Dropping it releases them.
#[derive(Debug)]
pub(super) struct Charge {
    of: Arc<Allowance>,
    bytes: usize,
    /// The bytes are part of [`FREE`].
    is_free: bool,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        let most = u32::try_from(bytes / PIECE).unwrap_or(u32::MAX).clamp(1, Semaphore::MAX_PERMITS as u32);
        Budget { pieces: Arc::new(Semaphore::new(most as usize)), most }
    }

    /// Returns about how many bytes are in use.
    pub(super) fn used(&self) -> usize {
        (self.most as usize).saturating_sub(self.pieces.available_permits()) * PIECE
    }

    /// A call larger than the whole budget fits when nothing else is in use.
    fn pieces_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX).min(self.most)
    }

    fn try_take(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        self.pieces.try_acquire_many(self.pieces_of(bytes)).ok()
    }

    async fn take(&self, bytes: usize) -> SemaphorePermit<'_> {
        self.pieces.acquire_many(self.pieces_of(bytes)).await.expect("this semaphore is never closed")
    }

    fn give_back(&self, bytes: usize) {
        self.pieces.add_permits(self.pieces_of(bytes) as usize);
    }
}

impl ClientAllowance {
    /// `client` bytes out of `all`, and `session` bytes for each session.
    pub(super) fn new(id: ClientId, (session, client): (usize, usize), all: &Budget) -> ClientAllowance {
        let turn = Arc::new(Semaphore::new(1));
        ClientAllowance { id, session, client: Budget::new(client), all: all.clone(), turn }
    }

    /// Returns the allowance for one more session of this client, or for all its calls outside sessions.
    pub fn allowance(&self) -> Arc<Allowance> {
        let (used, given_back) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Allowance { used, given_back, own: Budget::new(self.session), of: self.clone() })
    }
}

impl Allowance {
    /// Returns the client whose calls these bytes are for.
    pub(super) fn client(&self) -> ClientId {
        self.of.id
    }

    /// Takes bytes if they are available now.
    pub(super) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.try_take_free(bytes).or_else(|| {
            let (own, client) = (self.own.try_take(bytes)?, self.of.client.try_take(bytes)?);
            Some(self.bound([own, client, self.of.all.try_take(bytes)?], bytes))
        })
    }

    fn try_take_free(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let more = |used: usize| {
            let fits = (used & !WAITED_FOR).saturating_add(bytes) <= FREE;
            fits.then(|| used + bytes)
        };
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Charge { of: Arc::clone(self), bytes, is_free: true })
    }

    /// Waits for bytes: those of [`FREE`], or those of the common budget, whichever is available first.
    pub(super) async fn take(self: Arc<Self>, bytes: usize) -> Charge {
        tokio::select! {
            biased;
            free = self.take_free(bytes), if bytes <= FREE => free,
            bound = self.take_bound(bytes) => bound,
        }
    }

    async fn take_free(self: &Arc<Self>, bytes: usize) -> Charge {
        loop {
            // Created before the check, so that it receives every release from now on.
            let given_back = self.given_back.notified();
            self.used.fetch_or(WAITED_FOR, Ordering::SeqCst);
            if let Some(charge) = self.try_take_free(bytes) {
                return charge;
            }
            given_back.await;
        }
    }

    async fn take_bound(self: &Arc<Self>, bytes: usize) -> Charge {
        let own = self.own.take(bytes).await;
        let client = self.of.client.take(bytes).await;
        let _turn = self.of.turn.acquire().await.expect("this semaphore is never closed");
        let all = self.of.all.take(bytes).await;
        self.bound([own, client, all], bytes)
    }

    /// Turns permits into a charge, which releases them when it is dropped.
    fn bound(self: &Arc<Self>, taken: [SemaphorePermit<'_>; 3], bytes: usize) -> Charge {
        taken.into_iter().for_each(SemaphorePermit::forget);
        Charge { of: Arc::clone(self), bytes, is_free: false }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Charge { of, bytes, is_free } = self;
        if !*is_free {
            for budget in [&of.own, &of.of.client, &of.of.all] {
                budget.give_back(*bytes);
            }
            return;
        }
        let before = of.used.fetch_sub(*bytes, Ordering::SeqCst);
        if before & WAITED_FOR != 0 {
            of.used.fetch_and(!WAITED_FOR, Ordering::SeqCst);
            of.given_back.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_session_has_its_first_bytes_whatever_others_take() {
        let all = Budget::new(4 * FREE);
        let greedy = ClientAllowance::new(ClientId::UNKNOWN, (8 * FREE, 8 * FREE), &all).allowance();
        let modest = ClientAllowance::new(ClientId::UNKNOWN, (FREE, FREE), &all).allowance();
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
        let [greedy, modest] =
            [0; 2].map(|_| ClientAllowance::new(ClientId::UNKNOWN, (PIECE, PIECE), &all).allowance());
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
        let session = ClientAllowance::new(ClientId::UNKNOWN, (500, 700), &all).allowance();
        let large = session.try_take(10 * FREE);
        assert!(large.is_some() && session.try_take(10 * FREE).is_none());
        drop(large);
        assert!(session.try_take(10 * FREE).is_some());
    }
    #[test]
    fn a_client_leaves_room_to_others_however_many_sessions_it_has() {
        let all = Budget::new(8 * FREE);
        let greedy = ClientAllowance::new(ClientId::UNKNOWN, (2 * FREE, 4 * FREE), &all);
        let sessions: Vec<_> = (0..8).map(|_| greedy.allowance()).collect();
        let large = 2 * FREE;
        let taken: Vec<Charge> = sessions.iter().filter_map(|session| session.try_take(large)).collect();
        assert_eq!((taken.len(), all.used()), (2, 4 * FREE));
        assert!(
            ClientAllowance::new(ClientId::UNKNOWN, (2 * FREE, 4 * FREE), &all)
                .allowance()
                .try_take(large)
                .is_some()
        );
        drop(taken);
        assert!(sessions[7].try_take(large).is_some());
        assert_eq!(all.used(), 0);
    }

    #[test]
    fn bytes_that_come_back_go_round_among_clients() {
        let large = 2 * FREE;
        let all = Budget::new(large);
        let [greedy, modest] =
            [0; 2].map(|_| ClientAllowance::new(ClientId::UNKNOWN, (large, 8 * large), &all));
        let first = greedy.allowance().try_take(large);
        let mut cx = Context::from_waker(Waker::noop());
        let mut further: Vec<_> = (0..4).map(|_| Box::pin(greedy.allowance().take(large))).collect();
        assert!(further.iter_mut().all(|take| take.as_mut().poll(&mut cx).is_pending()));
        let mut other = Box::pin(modest.allowance().take(large));
        assert!(other.as_mut().poll(&mut cx).is_pending());
        drop(first);
        let Poll::Ready(second) = further[0].as_mut().poll(&mut cx) else { panic!("it is its turn") };
        assert!(further[1..].iter_mut().all(|take| take.as_mut().poll(&mut cx).is_pending()));
        drop(second);
        assert!(
            other.as_mut().poll(&mut cx).is_ready(),
            "before what waits longer, of a client that had its turn"
        );
    }
}
