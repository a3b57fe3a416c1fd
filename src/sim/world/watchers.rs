//! Watchers: they follow all keys or all locks, lose their streams, and resume from the vector that they
//! know, also elsewhere. They are next to their server: their messages take no time.

use std::time::Duration;

use crate::replica::call::watch::{Pattern, Subject, Watch, WatchRefusal};
use crate::replica::call::{Call, CallId, ClientId, Refusal, Reply, SessionId};
use crate::replica::{Event, Notice};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::Watched;
use crate::sim::world::nodes::OPERATOR;
use crate::sim::world::{Action, Phase, World};
use geolock_api::names::DcId;

/// The sessions of watchers have numbers above those of clients.
const FIRST_SESSION: u64 = 1 << 40;
/// Average interval at which a watcher looks after its watch.
const LOOKS_EVERY: Duration = Duration::from_millis(150);
/// Percentage of these times at which it loses its stream.
const LOSES_PERCENT: u64 = 15;
/// The tag of each watch.
const TAG: u64 = 1;

#[derive(Debug)]
pub(super) struct Watcher {
    watched: Watched,
    stream: Option<(DcId, SessionId)>,
    /// It begins with the present state, not with the vector that it knows.
    anew: bool,
}

impl World {
    pub(super) fn plan_watchers(&mut self) {
        for number in 0..self.plan.habits.watchers {
            let subject = if number % 2 == 0 { Subject::Locks } else { Subject::Keys };
            self.watchers.push(Watcher { watched: Watched::new(subject), stream: None, anew: true });
            self.queue.push(self.now + LOOKS_EVERY, Action::Watcher { number });
        }
    }

    fn watcher_of(&self, session: SessionId) -> Option<usize> {
        if session.0 < FIRST_SESSION {
            return None;
        }
        self.watchers.iter().position(|watcher| watcher.stream.is_some_and(|(_, of)| of == session))
    }

    /// A watcher acknowledges what it has read, or connects, or loses its stream.
    pub(super) fn on_watcher(&mut self, number: usize) {
        let pause = self.chance.others.around(LOOKS_EVERY);
        self.queue.push(self.now + pause, Action::Watcher { number });
        let loses = self.phase != Phase::Healing && self.chance.others.percent(LOSES_PERCENT);
        match self.watchers[number].stream {
            Some((dc, _)) if self.node(dc).is_paused() => {}
            Some((dc, session)) if loses => {
                self.watchers[number].stream = None;
                self.step(dc, Event::SessionClosed { session });
            }
            Some((dc, session)) => {
                let weight = std::mem::take(&mut self.watchers[number].watched.unread);
                if weight > 0 {
                    let call = CallId { session, tag: TAG + 1 };
                    let request = Call::WatchTaken { watch: TAG, weight };
                    self.step(dc, Event::Client { call, client: ClientId::UNKNOWN, request });
                }
            }
            None => self.connect_watcher(number),
        }
    }

    fn connect_watcher(&mut self, number: usize) {
        let dc = self.nodes[self.chance.others.index(self.nodes.len())].dc;
        if !self.is_running(dc) || self.node(dc).is_paused() {
            return;
        }
        let session = SessionId(FIRST_SESSION + self.next_watch);
        self.next_watch += 1;
        let watcher = &mut self.watchers[number];
        watcher.stream = Some((dc, session));
        let subject = watcher.watched.subject();
        let pattern = match subject {
            Subject::Keys => Pattern::keys(b"pairs", b"").expect("a short name"),
            Subject::Locks => Pattern::locks(b"").expect("a short name"),
        };
        let from = (!watcher.anew).then(|| watcher.watched.known().clone());
        let request = Call::Watch(Watch { subject, patterns: vec![pattern], from });
        self.step(
            dc,
            Event::Client { call: CallId { session, tag: TAG }, client: ClientId::UNKNOWN, request },
        );
    }

    /// Returns true if a reply is for a watcher.
    pub(super) fn is_told_watcher(&mut self, call: CallId, reply: &Reply) -> bool {
        let Some(number) = self.watcher_of(call.session) else {
            return call.session.0 >= FIRST_SESSION && call.session != OPERATOR;
        };
        let may_be_refused = self.plan.habits.overload_every.is_some();
        let watcher = &mut self.watchers[number];
        let judged = match reply {
            Reply::Watching { from } => watcher.watched.begin(from, std::mem::take(&mut watcher.anew)),
            Reply::WatchTaken => Ok(()),
            Reply::Refused(Refusal::Watch(WatchRefusal::TooOld { .. })) => {
                (watcher.stream, watcher.anew) = (None, true);
                Ok(())
            }
            Reply::Refused(Refusal::ResourceExhausted { .. }) if may_be_refused => {
                watcher.stream = None;
                Ok(())
            }
            other => {
                let what = format!("a watcher got {other:?}");
                return self.fail_and(FailureKind::Contract, what);
            }
        };
        self.blame(judged);
        true
    }

    fn fail_and(&mut self, kind: FailureKind, what: String) -> bool {
        self.fail(kind, what);
        true
    }

    /// Returns true if a notice is for a watcher.
    pub(super) fn is_news_for_watcher(&mut self, session: SessionId, notice: &Notice) -> bool {
        let Some(number) = self.watcher_of(session) else { return session.0 >= FIRST_SESSION };
        let Watcher { watched, stream, anew } = &mut self.watchers[number];
        let judged = match notice {
            Notice::Changed(changed) => watched.on_changed(&self.txns, changed),
            Notice::Lock(news) => watched.on_lock(&self.txns, &news.event),
            Notice::Progress { vector, .. } => watched.on_reached(&self.txns, vector),
            Notice::WatchEnded { .. } => {
                (*stream, *anew) = (None, true);
                Ok(())
            }
            other => return self.fail_and(FailureKind::Contract, format!("a watcher is told {other:?}")),
        };
        self.blame(judged);
        true
    }

    /// A server is gone, and with it the streams of its watchers.
    pub(super) fn drop_watchers_of(&mut self, dc: DcId) {
        for watcher in self.watchers.iter_mut().filter(|w| w.stream.is_some_and(|(at, _)| at == dc)) {
            watcher.stream = None;
        }
    }

    /// In the quiet: every watcher has received all events.
    pub(super) fn check_watchers(&mut self) {
        for number in 0..self.watchers.len() {
            self.tally.watched += self.watchers[number].watched.told;
            let Some((dc, _)) = self.watchers[number].stream else { continue };
            let Some(applied) = self.node(dc).inspect().map(|replica| replica.applied().clone()) else {
                continue;
            };
            let judged = self.watchers[number].watched.check_quiet(&self.txns, &applied);
            self.blame(judged);
        }
    }
}
