//! Clients that wait for an answer: sessions with their outboxes, and unary calls.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::outbox::{Feed, Full, Outbox, Output};
use crate::replica::call::{CallId, Reply, SessionId};

/// The session id of all unary calls; the server chooses their tags.
pub(super) const UNARY: SessionId = SessionId(0);
/// The session id of the server's own calls.
pub(super) const OWN: SessionId = SessionId(1);
/// The id of the first session of a client.
pub(super) const FIRST_CLIENT: u64 = 2;

/// Open sessions and unary calls without an answer.
#[derive(Default)]
pub(super) struct Sessions {
    feeds: FxHashMap<SessionId, Feed>,
    /// Outboxes filled since the last [`Sessions::wake`].
    filled: Vec<Arc<Outbox>>,
    /// Sessions closed by the server; the machine has not heard of that yet.
    cut_off: Vec<SessionId>,
    unary: FxHashMap<u64, oneshot::Sender<Reply>>,
    last_tag: u64,
    /// When this many unary calls wait, those with a dropped receiver are removed.
    sweep_at: usize,
}

/// With fewer waiting unary calls than this, a sweep is not worth its cost.
const MIN_SWEEP: usize = 1024;

impl Sessions {
    pub(super) fn open(&mut self, session: SessionId, feed: Feed) {
        self.feeds.insert(session, feed);
    }

    /// Returns true if it was open.
    pub(super) fn close(&mut self, session: SessionId) -> bool {
        self.feeds.remove(&session).is_some()
    }

    pub(super) fn is_open(&self, session: SessionId) -> bool {
        self.feeds.contains_key(&session)
    }

    /// Stores a unary call until it is answered.
    ///
    /// Some calls are never answered (an acquire retried under its idempotency key). So calls with a dropped
    /// receiver are removed whenever the number of calls has doubled: at most twice as many are kept as wait,
    /// at a constant amortized cost.
    pub(super) fn add_unary(&mut self, reply: oneshot::Sender<Reply>) -> CallId {
        if self.unary.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.unary.retain(|_, reply| !reply.is_closed());
            self.sweep_at = 2 * self.unary.len();
        }
        self.last_tag += 1;
        self.unary.insert(self.last_tag, reply);
        CallId { session: UNARY, tag: self.last_tag }
    }

    pub(super) fn answer_unary(&mut self, tag: u64, reply: Reply) {
        if let Some(caller) = self.unary.remove(&tag) {
            // The receiver may be dropped: then the answer is not needed.
            caller.send(reply).ok();
        }
    }

    /// Queues an output for a session, if it is still open.
    pub(super) fn tell(&mut self, session: SessionId, output: Output) {
        let Some(outbox) = self.feeds.get(&session).map(Feed::outbox) else { return };
        match outbox.push(output) {
            Ok(true) => self.filled.push(Arc::clone(outbox)),
            Ok(false) => {}
            Err(Full) => {
                outbox.wake();
                self.cut_off.push(session);
            }
        }
    }

    /// Queues an output for every session.
    pub(super) fn tell_all(&mut self, output: impl Fn() -> Output) {
        let sessions: Vec<SessionId> = self.feeds.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.tell(session, output()));
    }

    /// Wakes the readers of all outboxes that were filled.
    pub(super) fn wake(&mut self) {
        self.filled.drain(..).for_each(|outbox| outbox.wake());
    }

    /// Closes and returns a session that the server cut off.
    pub(super) fn next_cut_off(&mut self) -> Option<SessionId> {
        let session = self.cut_off.pop()?;
        self.close(session);
        Some(session)
    }

    /// Ends all sessions and unary calls; no more output follows.
    pub(super) fn end_all(&mut self) {
        self.unary.clear();
        self.feeds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_server::ByteCount;

    #[test]
    fn unary_calls_whose_callers_are_gone_do_not_pile_up() {
        let mut sessions = Sessions::default();
        let (waiting, mut answer) = oneshot::channel();
        let first = sessions.add_unary(waiting);
        for _ in 0..100_000 {
            sessions.add_unary(oneshot::channel().0);
        }
        assert!(sessions.unary.len() <= MIN_SWEEP, "{} are remembered", sessions.unary.len());
        sessions.answer_unary(first.tag, Reply::Released);
        assert_eq!(answer.try_recv(), Ok(Reply::Released));
    }

    #[test]
    fn a_session_that_is_cut_off_is_reported_once() {
        let mut sessions = Sessions::default();
        sessions.open(SessionId(7), Feed::new(&Arc::new(Outbox::new(0, Arc::new(ByteCount::new(0))))));
        for tag in 0..3 {
            sessions.tell(SessionId(7), Output::Reply { tag, reply: Reply::Released });
        }
        assert_eq!(sessions.next_cut_off(), Some(SessionId(7)));
        assert_eq!(sessions.next_cut_off(), None);
        assert!(!sessions.is_open(SessionId(7)));
    }
}
