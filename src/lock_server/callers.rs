//! Who waits for an answer: sessions with their outboxes, and unary calls.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::outbox::{Feed, Full, Outbox, Output};
use crate::replica::call::{CallId, Reply, SessionId};

/// The session of all unary calls; their tags are the actor's.
pub(super) const UNARY: SessionId = SessionId(0);
/// The session of the actor's own calls.
pub(super) const OWN: SessionId = SessionId(1);
/// The first session of a client.
pub(super) const FIRST_CLIENT: u64 = 2;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Callers {
    sessions: FxHashMap<SessionId, Feed>,
    /// Outboxes filled since the last [`Callers::wake`].
    filled: Vec<Arc<Outbox>>,
    /// Sessions that were cut off: the machine has to hear of it.
    cut_off: Vec<SessionId>,
    unary: FxHashMap<u64, oneshot::Sender<Reply>>,
    last_tag: u64,
    /// When so many unary calls wait, look for those whose callers are gone.
    sweep_at: usize,
}

/// Fewer waiting unary calls than this are not worth a sweep.
const MIN_SWEEP: usize = 1024;

impl Callers {
    pub(super) fn open(&mut self, session: SessionId, feed: Feed) {
        self.sessions.insert(session, feed);
    }

    /// Whether it was open.
    pub(super) fn close(&mut self, session: SessionId) -> bool {
        self.sessions.remove(&session).is_some()
    }

    pub(super) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Remembers a unary call until it is answered.
    ///
    /// Some never are (an acquire retried under its key), so those whose callers are gone are swept out whenever
    /// their number has doubled: no more are kept than twice those that wait, at a constant cost for each.
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
            // The caller may be gone: then nobody wants to know.
            caller.send(reply).ok();
        }
    }

    /// Tells a session, which may be gone.
    pub(super) fn tell(&mut self, session: SessionId, output: Output) {
        let Some(outbox) = self.sessions.get(&session).map(Feed::outbox) else { return };
        match outbox.push(output) {
            Ok(true) => self.filled.push(Arc::clone(outbox)),
            Ok(false) => {}
            Err(Full) => {
                outbox.wake();
                self.cut_off.push(session);
            }
        }
    }

    /// Tells every session.
    pub(super) fn tell_all(&mut self, output: impl Fn() -> Output) {
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.tell(session, output()));
    }

    /// Wakes everybody who was told something.
    pub(super) fn wake(&mut self) {
        self.filled.drain(..).for_each(|outbox| outbox.wake());
    }

    /// A session that was cut off and is closed now.
    pub(super) fn next_cut_off(&mut self) -> Option<SessionId> {
        let session = self.cut_off.pop()?;
        self.close(session);
        Some(session)
    }

    /// Nothing follows for anybody.
    pub(super) fn end_all(&mut self) {
        self.unary.clear();
        self.sessions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_server::ByteCount;

    #[test]
    fn unary_calls_whose_callers_are_gone_do_not_pile_up() {
        let mut callers = Callers::default();
        let (waiting, mut answer) = oneshot::channel();
        let first = callers.add_unary(waiting);
        for _ in 0..100_000 {
            callers.add_unary(oneshot::channel().0);
        }
        assert!(callers.unary.len() <= MIN_SWEEP, "{} are remembered", callers.unary.len());
        callers.answer_unary(first.tag, Reply::Released);
        assert_eq!(answer.try_recv(), Ok(Reply::Released));
    }

    #[test]
    fn a_session_that_is_cut_off_is_reported_once() {
        let mut callers = Callers::default();
        callers.open(SessionId(7), Feed::new(&Arc::new(Outbox::new(0, Arc::new(ByteCount::new(0))))));
        for tag in 0..3 {
            callers.tell(SessionId(7), Output::Reply { tag, reply: Reply::Released });
        }
        assert_eq!(callers.next_cut_off(), Some(SessionId(7)));
        assert_eq!(callers.next_cut_off(), None);
        assert!(!callers.is_open(SessionId(7)));
    }
}
