//! Which datacenters live, as seen from here, by any path.
//!
//! A heartbeat carries the clock of its maker and the clocks of the heartbeats that its maker heard of others.
//! A datacenter is heard of anew when a higher clock of its own is seen: so news of it cannot go round in
//! circles and keep it alive. One that was unreachable counts again only once what it (or whoever told of it)
//! had durably at that time is applied here: before that, its requests and parts are not what they seem.

use std::time::Duration;

use super::serving::{NotServing, is_same};
use crate::crdt::VersionVector;
use crate::names::{DcId, DcSet, MAX_DCS};
use crate::time::{Instant, Timestamp};

/// See the module.
pub(super) struct Reach {
    peers: DcSet,
    timeout: Duration,
    rows: [Row; MAX_DCS],
    /// Something was heard that may change who is reachable.
    news: bool,
    /// When the next peer becomes unreachable if nothing is heard of it.
    deadline: Option<Instant>,
    /// Peers that can be reached and began to serve, or ceased to.
    serving_changed: DcSet,
}

#[derive(Clone, Default)]
struct Row {
    /// The clock of the latest heartbeat, and when that was here.
    heard: Option<(Timestamp, Instant)>,
    reachable: bool,
    /// It is heard of again, and counts once this is applied.
    rejoins_at: Option<VersionVector>,
    /// What it said with that heartbeat.
    not_serving: Option<NotServing>,
    /// What was said of that when it was last reachable.
    reported: Option<NotServing>,
}

/// News of a peer.
pub(super) struct News<'a> {
    /// On its heartbeat.
    pub clock: Timestamp,
    /// When that was here, or where it was heard.
    pub at: Instant,
    /// What the one who tells had.
    pub durable: &'a VersionVector,
    /// The peer itself tells.
    pub is_its_own: bool,
    pub not_serving: Option<NotServing>,
}

impl Reach {
    pub fn new(peers: DcSet, timeout: Duration) -> Reach {
        Reach {
            peers,
            timeout,
            rows: std::array::from_fn(|_| Row::default()),
            news: false,
            deadline: None,
            serving_changed: DcSet::EMPTY,
        }
    }

    pub fn is_reachable(&self, peer: DcId) -> bool {
        self.rows[peer.index()].reachable
    }

    /// Whether anything was heard of it since the start.
    pub fn was_heard(&self, peer: DcId) -> bool {
        self.rows[peer.index()].heard.is_some()
    }

    /// Whether some peer is heard of again, and what it had then is not applied here yet.
    pub fn is_catching_up(&self) -> bool {
        self.peers.iter().any(|peer| self.rows[peer.index()].rejoins_at.is_some())
    }

    /// Whether [`Reach::update`] has to look, whatever the time.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.news
    }

    /// Peers that cannot be reached.
    pub fn unreachable(&self) -> DcSet {
        self.peers.iter().filter(|peer| !self.is_reachable(*peer)).collect()
    }

    /// Peers that hand nothing over: they cannot be reached, or are there and do not serve.
    pub fn away(&self) -> DcSet {
        let is_away = |peer: &DcId| {
            let row = &self.rows[peer.index()];
            !row.reachable || row.not_serving.is_some()
        };
        self.peers.iter().filter(is_away).collect()
    }

    /// Why a peer that is there does not serve.
    pub fn not_serving(&self, peer: DcId, now: Instant) -> Option<NotServing> {
        let row = &self.rows[peer.index()];
        let (_, at) = row.heard?;
        // One that has stopped for good says so, and never rejoins.
        let is_told =
            row.reachable || (row.not_serving == Some(NotServing::Forked) && at + self.timeout > now);
        row.not_serving.filter(|_| is_told).map(|why| why.aged(now.saturating_since(at)))
    }

    /// What to tell others: who of those heard of does not serve.
    pub fn told_not_serving(&self, now: Instant) -> impl Iterator<Item = (DcId, NotServing)> {
        self.peers.iter().filter_map(move |peer| {
            let row = &self.rows[peer.index()];
            let age = now.saturating_since(row.heard?.1);
            (age <= self.timeout).then_some((peer, row.not_serving?.aged(age)))
        })
    }

    /// Peers that began to serve since this was asked last, or ceased to, as far as they can be reached.
    pub fn take_serving_changed(&mut self) -> DcSet {
        std::mem::replace(&mut self.serving_changed, DcSet::EMPTY)
    }

    pub fn note_heard(&mut self, peer: DcId, news: &News<'_>) {
        let row = &mut self.rows[peer.index()];
        if row.heard.is_some_and(|(latest, _)| news.clock <= latest) {
            return;
        }
        row.heard = Some((news.clock, row.heard.map_or(news.at, |(_, before)| before.max(news.at))));
        self.news = true;
        row.not_serving = news.not_serving;
        match &mut row.rejoins_at {
            // It may have lost what it told, and that is nowhere any more.
            Some(vector) if news.is_its_own => *vector = vector.meet(news.durable),
            None if !row.reachable => row.rejoins_at = Some(news.durable.clone()),
            _ => {}
        }
        self.deadline = self.earliest();
    }

    /// What to tell others: whom this datacenter heard of, and how long ago.
    pub fn heard(&self, now: Instant) -> Vec<(DcId, Timestamp, u32)> {
        let row = |peer: DcId| {
            let (clock, at) = self.rows[peer.index()].heard?;
            let age = now.saturating_since(at);
            (age <= self.timeout).then_some((peer, clock, age.as_millis() as u32))
        };
        self.peers.iter().filter_map(row).collect()
    }

    /// Draws the conclusions, if there may be any; answers whose reachability changed.
    #[inline]
    pub fn update(&mut self, now: Instant, applied: &VersionVector) -> Option<DcSet> {
        let is_over = self.deadline.is_some_and(|at| at <= now);
        (self.news || is_over).then(|| self.look(now, applied))
    }

    fn look(&mut self, now: Instant, applied: &VersionVector) -> DcSet {
        let mut changed = DcSet::EMPTY;
        for peer in self.peers.iter() {
            let row = &mut self.rows[peer.index()];
            let alive = row.heard.is_some_and(|(_, at)| at + self.timeout > now);
            let before = row.reachable;
            if !alive {
                row.reachable = false;
                row.rejoins_at = None;
            } else if row.rejoins_at.as_ref().is_some_and(|vector| applied.covers(vector)) {
                row.reachable = true;
                row.rejoins_at = None;
            }
            if row.reachable != before {
                changed.insert(peer);
            }
            if row.reachable && !is_same(row.not_serving, row.reported) {
                row.reported = row.not_serving;
                self.serving_changed.insert(peer);
            }
        }
        self.news = self.is_catching_up();
        self.deadline = self.earliest();
        changed
    }

    /// When the next peer becomes unreachable if nothing is heard of it.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn earliest(&self) -> Option<Instant> {
        let rows = self.peers.iter().map(|peer| &self.rows[peer.index()]);
        rows.filter(|row| row.reachable || row.rejoins_at.is_some())
            .filter_map(|row| row.heard.map(|(_, at)| at + self.timeout))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_lost_what_it_told_does_not_stay_unreachable() {
        let [me, peer, other] = [0, 1, 2].map(|id| DcId::new(id).expect("a small id"));
        let mut reach = Reach::new([peer, other].into_iter().collect(), Duration::from_secs(3));
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let has = |seq| VersionVector::from_iter([(me, 3), (peer, seq)]);
        let mut hears = |second, durable: VersionVector, is_its_own| {
            let clock = Timestamp::from_millis(second * 1_000);
            let news = News { clock, at: at(second), durable: &durable, is_its_own, not_serving: None };
            reach.note_heard(peer, &news);
            reach.update(at(second), &has(5));
            reach.is_reachable(peer)
        };
        assert!(!hears(1, has(10), true), "what it had is not here");
        assert!(!hears(2, has(4), false), "another tells, which lacks what the peer has");
        assert!(hears(3, has(5), true), "it lost its last entries");
    }

    #[test]
    fn a_peer_that_comes_back_and_does_not_serve_is_reported_once_it_can_be_reached() {
        let dc = |id| DcId::new(id).expect("a small id");
        let vector = |seq| VersionVector::from_iter([(dc(1), seq)]);
        let mut reach = Reach::new(DcSet::only(dc(1)), Duration::from_secs(3));
        let heard = |reach: &mut Reach, at: u64, not_serving, applied| {
            let now = Instant::ZERO + Duration::from_secs(at);
            let (clock, durable) = (Timestamp::from_millis(at), vector(7));
            let news = News { clock, at: now, durable: &durable, is_its_own: true, not_serving };
            reach.note_heard(dc(1), &news);
            let _changed = reach.update(now, &vector(applied));
            (reach.is_reachable(dc(1)), reach.take_serving_changed())
        };
        let (grace, dc1) = (Some(NotServing::Grace { for_ms: 9_000 }), DcSet::only(dc(1)));
        assert_eq!(heard(&mut reach, 1, grace, 6), (false, DcSet::EMPTY), "nothing is known of it yet");
        assert_eq!(heard(&mut reach, 2, grace, 7), (true, dc1));
        assert_eq!(heard(&mut reach, 3, grace, 7), (true, DcSet::EMPTY));
        assert_eq!(heard(&mut reach, 4, None, 7), (true, dc1));
    }
}
