//! Reachability: which datacenters live, as seen from here, heard directly or through others
//! (`docs/algorithm/ownership.md#23-parking`).
//!
//! A heartbeat carries the clock of its sender and, for each other member, the clock of the latest heartbeat
//! that the sender knows. A member is heard anew only when a higher clock of its own is seen, so reports of
//! it cannot go round in circles and keep it alive. A member that was unreachable counts again only once the
//! entries that it (or the member that reported it) had durably are applied here: before that, its requests
//! and parts are not as they seem.

use std::time::Duration;

use crate::base::time::{Instant, Timestamp};
use crate::crdt::VersionVector;
use crate::replica::lifecycle::{NotServing, is_same};
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// The reachability of all peers.
pub(in crate::replica) struct Reachability {
    peers: DcSet,
    timeout: Duration,
    rows: Box<[Row]>,
    /// A report came that may change the set of reachable peers.
    news: bool,
    /// The time at which the next peer becomes unreachable if nothing is heard of it.
    deadline: Option<Instant>,
    /// Reachable peers that began or ceased to serve.
    serving_changed: DcSet,
}

#[derive(Clone, Default)]
struct Row {
    /// The clock of the latest heartbeat, and the local time to which it belongs.
    heard: Option<(Timestamp, Instant)>,
    reachable: bool,
    /// The clock of the newest heartbeat that anybody has heard, however long ago: not before that in
    /// `heard`.
    newest: Option<Timestamp>,
    /// It was unreachable and is heard again; it counts once this vector is applied here.
    rejoins_at: Option<VersionVector>,
    /// From the latest heartbeat.
    not_serving: Option<NotServing>,
    /// The last `not_serving` while it was reachable, as reported.
    reported: Option<NotServing>,
}

/// A report of a peer.
pub(in crate::replica) struct PeerReport<'a> {
    /// The clock in the peer's heartbeat.
    pub clock: Timestamp,
    /// When that heartbeat was received, here or by the member that reports it.
    pub at: Instant,
    /// The durable vector of the sender of the report.
    pub durable: &'a VersionVector,
    /// The peer itself sent it.
    pub is_its_own: bool,
    pub not_serving: Option<NotServing>,
}

impl Reachability {
    pub fn new(peers: DcSet, timeout: Duration) -> Reachability {
        Reachability {
            peers,
            timeout,
            rows: (0..MAX_DCS).map(|_| Row::default()).collect(),
            news: false,
            deadline: None,
            serving_changed: DcSet::EMPTY,
        }
    }

    pub fn peers(&self) -> DcSet {
        self.peers
    }

    pub fn set_peers(&mut self, peers: DcSet) {
        // Another server may have had its slot.
        peers.difference(self.peers).iter().for_each(|peer| self.rows[peer.index()] = Row::default());
        self.peers = peers;
    }

    pub fn is_reachable(&self, peer: DcId) -> bool {
        self.rows[peer.index()].reachable
    }

    /// Returns true if anything was heard of the peer since the start.
    pub fn was_heard(&self, peer: DcId) -> bool {
        self.rows[peer.index()].heard.is_some()
    }

    /// Returns the clock of the latest heartbeat of a peer that was a sign of life.
    pub fn last_clock(&self, peer: DcId) -> Option<Timestamp> {
        self.rows[peer.index()].heard.map(|(clock, _)| clock)
    }

    /// Returns the clock of the newest heartbeat of a peer that anybody has heard, however long ago.
    pub fn newest_clock(&self, peer: DcId) -> Option<Timestamp> {
        self.rows[peer.index()].newest
    }

    /// Somebody has heard this heartbeat of a peer, too long ago to count as a sign of life.
    pub fn note_earlier(&mut self, peer: DcId, clock: Timestamp) {
        let row = &mut self.rows[peer.index()];
        row.newest = row.newest.max(Some(clock));
    }

    /// Returns when the latest heartbeat of a peer was heard, here or by the member that reported it.
    pub fn last_heard(&self, peer: DcId) -> Option<Instant> {
        self.rows[peer.index()].heard.map(|(_, at)| at)
    }

    /// Returns true if some peer is heard again and the entries that it had are not all applied here yet.
    pub fn is_catching_up(&self) -> bool {
        self.peers.iter().any(|peer| self.rows[peer.index()].rejoins_at.is_some())
    }

    /// Returns true if [`Reachability::update`] has work, whatever the time.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.news
    }

    /// Returns the unreachable peers.
    pub fn unreachable(&self) -> DcSet {
        self.peers.iter().filter(|peer| !self.is_reachable(*peer)).collect()
    }

    /// Returns the peers that are away: unreachable, or reachable and not serving.
    pub fn away(&self) -> DcSet {
        let is_away = |peer: &DcId| {
            let row = &self.rows[peer.index()];
            !row.reachable || row.not_serving.is_some()
        };
        self.peers.iter().filter(is_away).collect()
    }

    /// Returns the reason why a reachable peer does not serve.
    pub fn not_serving(&self, peer: DcId, now: Instant) -> Option<NotServing> {
        let row = &self.rows[peer.index()];
        let (_, at) = row.heard?;
        // A forked member announces it, and never becomes reachable again.
        let is_told =
            row.reachable || (row.not_serving == Some(NotServing::Forked) && at + self.timeout > now);
        row.not_serving.filter(|_| is_told).map(|why| why.aged(now.saturating_since(at)))
    }

    /// Returns the reason in the latest heartbeat of a peer, reachable or not.
    pub fn last_told(&self, peer: DcId) -> Option<NotServing> {
        self.rows[peer.index()].not_serving
    }

    /// Returns the heard peers that do not serve, for a heartbeat.
    pub fn told_not_serving(&self, now: Instant) -> impl Iterator<Item = (DcId, NotServing)> {
        self.peers.iter().filter_map(move |peer| {
            let row = &self.rows[peer.index()];
            let age = now.saturating_since(row.heard?.1);
            (age <= self.timeout).then_some((peer, row.not_serving?.aged(age)))
        })
    }

    /// Returns and clears the reachable peers that began or ceased to serve.
    pub fn take_serving_changed(&mut self) -> DcSet {
        std::mem::replace(&mut self.serving_changed, DcSet::EMPTY)
    }

    pub fn note_heard(&mut self, peer: DcId, report: &PeerReport<'_>) {
        self.note_earlier(peer, report.clock);
        let row = &mut self.rows[peer.index()];
        if row.heard.is_some_and(|(latest, _)| report.clock <= latest) {
            return;
        }
        row.heard = Some((report.clock, row.heard.map_or(report.at, |(_, before)| before.max(report.at))));
        self.news = true;
        row.not_serving = report.not_serving;
        match &mut row.rejoins_at {
            // It may have lost entries that it announced and that exist nowhere any more.
            Some(vector) if report.is_its_own => *vector = vector.meet(report.durable),
            None if !row.reachable => row.rejoins_at = Some(report.durable.clone()),
            _ => {}
        }
        self.deadline = self.earliest();
    }

    /// Returns the heard peers with their clocks and ages in milliseconds.
    pub fn heard(&self, now: Instant) -> Vec<(DcId, Timestamp, u32)> {
        let row = |(peer, clock, age): (DcId, Timestamp, Duration)| (peer, clock, age.as_millis() as u32);
        self.recent(now).map(row).collect()
    }

    /// The same for a heartbeat, with those that were heard earlier: an operator who evicts one has to know
    /// its last heartbeat, whoever heard it.
    pub fn told(&self, now: Instant) -> Vec<(DcId, Timestamp, u32)> {
        let mut told = self.heard(now);
        let recent: DcSet = told.iter().map(|(peer, ..)| *peer).collect();
        let earlier = self.peers.difference(recent);
        told.extend(earlier.iter().filter_map(|peer| Some((peer, self.newest_clock(peer)?, u32::MAX))));
        told
    }

    /// Returns the peers that live: they were heard, by whatever way. One that catches up lives, although it
    /// is not reachable yet.
    pub fn alive(&self, now: Instant) -> DcSet {
        self.recent(now).map(|(peer, ..)| peer).collect()
    }

    fn recent(&self, now: Instant) -> impl Iterator<Item = (DcId, Timestamp, Duration)> {
        self.peers.iter().filter_map(move |peer| {
            let (clock, at) = self.rows[peer.index()].heard?;
            let age = now.saturating_since(at);
            (age <= self.timeout).then_some((peer, clock, age))
        })
    }

    /// Returns false if an update would change nothing.
    #[inline]
    pub fn may_change(&self, now: Instant) -> bool {
        self.news || self.deadline.is_some_and(|at| at <= now)
    }

    /// Updates reachability. Returns the peers whose reachability changed.
    pub fn update(&mut self, now: Instant, applied: &VersionVector) -> DcSet {
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
        let deadline = self.deadline;
        assert!(deadline.is_none_or(|at| at > now), "who was silent until {deadline:?} is gone at {now:?}");
        changed
    }

    /// Returns the time at which the next peer becomes unreachable if nothing is heard of it.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Asserts what each row says of its peer.
    pub fn check(&self) {
        for peer in self.peers.iter() {
            let row = &self.rows[peer.index()];
            let is_heard = row.heard.is_some();
            assert!(is_heard || !row.reachable, "{peer} is reachable and was never heard");
            assert!(is_heard || row.rejoins_at.is_none(), "{peer} catches up and was never heard");
            assert!(!row.reachable || row.rejoins_at.is_none(), "{peer} is reachable and catches up");
        }
        let (next, earliest) = (self.deadline.unwrap_or(Instant::FAR_FUTURE), self.earliest());
        assert!(earliest.is_none_or(|at| at >= next), "a peer is gone at {earliest:?}, before {next:?}");
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
        let mut reachability = Reachability::new([peer, other].into_iter().collect(), Duration::from_secs(3));
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let has = |seq| VersionVector::from_iter([(me, 3), (peer, seq)]);
        let mut hears = |second, durable: VersionVector, is_its_own| {
            let clock = Timestamp::from_millis(second * 1_000);
            let report =
                PeerReport { clock, at: at(second), durable: &durable, is_its_own, not_serving: None };
            reachability.note_heard(peer, &report);
            reachability.update(at(second), &has(5));
            reachability.is_reachable(peer)
        };
        assert!(!hears(1, has(10), true), "what it had is not here");
        assert!(!hears(2, has(4), false), "another tells, which lacks what the peer has");
        assert!(hears(3, has(5), true), "it lost its last entries");
    }

    /// An eviction is refused while its victim lives.
    #[test]
    fn a_peer_that_catches_up_lives_although_it_is_not_reachable() {
        let dc1 = DcId::new(1).expect("a small id");
        let mut reachability = Reachability::new(DcSet::only(dc1), Duration::from_secs(3));
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let durable = VersionVector::from_iter([(dc1, 7)]);
        let (clock, not_serving) = (Timestamp::from_millis(1), None);
        let report = PeerReport { clock, at: at(1), durable: &durable, is_its_own: true, not_serving };
        reachability.note_heard(dc1, &report);
        let _changed = reachability.update(at(1), &VersionVector::default());
        assert!(!reachability.is_reachable(dc1));
        assert_eq!(reachability.alive(at(4)), DcSet::only(dc1));
        assert_eq!(reachability.alive(at(5)), DcSet::EMPTY);
    }

    #[test]
    fn a_peer_that_comes_back_and_does_not_serve_is_reported_once_it_can_be_reached() {
        let dc = |id| DcId::new(id).expect("a small id");
        let vector = |seq| VersionVector::from_iter([(dc(1), seq)]);
        let mut reachability = Reachability::new(DcSet::only(dc(1)), Duration::from_secs(3));
        let heard = |reachability: &mut Reachability, at: u64, not_serving, applied| {
            let now = Instant::ZERO + Duration::from_secs(at);
            let (clock, durable) = (Timestamp::from_millis(at), vector(7));
            let report = PeerReport { clock, at: now, durable: &durable, is_its_own: true, not_serving };
            reachability.note_heard(dc(1), &report);
            let _changed = reachability.update(now, &vector(applied));
            (reachability.is_reachable(dc(1)), reachability.take_serving_changed())
        };
        let (grace, dc1) = (Some(NotServing::Grace { for_ms: 9_000 }), DcSet::only(dc(1)));
        assert_eq!(
            heard(&mut reachability, 1, grace, 6),
            (false, DcSet::EMPTY),
            "nothing is known of it yet"
        );
        assert_eq!(heard(&mut reachability, 2, grace, 7), (true, dc1));
        assert_eq!(heard(&mut reachability, 3, grace, 7), (true, DcSet::EMPTY));
        assert_eq!(heard(&mut reachability, 4, None, 7), (true, dc1));
    }
}
