//! Round-trip time to each peer, measured with heartbeats: a peer echoes the clock of the last heartbeat that
//! it heard, and its age.
//!
//! The minimum of the last samples counts (as in BBR, Cardwell et al. 2016): a pause of either end or a queue
//! does not change the distance, and a longer path is noticed after a few heartbeats.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::{Instant, Timestamp};
use geolock_api::names::{DcId, MAX_DCS};

/// Number of samples of which the minimum counts.
const WINDOW: usize = 8;
/// Most own heartbeats that wait for their echoes.
const MOST_SENT: usize = 1_024;

/// The round trips to all peers.
pub(in crate::replica) struct RoundTrips {
    rows: Box<[Row]>,
}

#[derive(Clone, Default)]
struct Row {
    /// Clock and time of our last heartbeats.
    sent: VecDeque<(Timestamp, Instant)>,
    samples: VecDeque<Duration>,
    /// Clock and time of the last heartbeat that came from the peer itself.
    heard: Option<(Timestamp, Instant)>,
}

impl RoundTrips {
    pub fn new() -> RoundTrips {
        RoundTrips { rows: (0..MAX_DCS).map(|_| Row::default()).collect() }
    }

    /// A heartbeat was sent. Its echo is awaited for `timeout`: a peer that is silent for longer is gone.
    pub fn note_sent(&mut self, peer: DcId, clock: Timestamp, now: Instant, timeout: Duration) {
        let sent = &mut self.rows[peer.index()].sent;
        while sent.pop_front_if(|(_, at)| *at + timeout < now).is_some() {}
        let is_later = sent.back().is_none_or(|(last, at)| *last < clock && *at <= now);
        debug_assert!(is_later, "heartbeats are numbered: {clock} at {now:?} follows {:?}", sent.back());
        push(sent, (clock, now), MOST_SENT);
    }

    /// A heartbeat of `peer` came from the peer itself.
    pub fn note_heard(&mut self, peer: DcId, clock: Timestamp, now: Instant) {
        self.rows[peer.index()].heard = Some((clock, now));
    }

    /// Returns the echo for `peer`: the clock of its last heartbeat, and its age in milliseconds.
    pub fn echo(&self, peer: DcId, now: Instant) -> Option<(Timestamp, u32)> {
        let (clock, at) = self.rows[peer.index()].heard?;
        Some((clock, u32::try_from(now.saturating_since(at).as_millis()).unwrap_or(u32::MAX)))
    }

    /// `peer` heard the heartbeat with this clock `ago` before it sent the echo. Returns the round trip, if
    /// this is a sample: a heartbeat that reached the peer through others, or was measured already, is none.
    pub fn note_echo(
        &mut self,
        peer: DcId,
        clock: Timestamp,
        ago: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let row = &mut self.rows[peer.index()];
        let place = row.sent.iter().position(|(sent, _)| *sent == clock)?;
        let (_, at) = row.sent[place];
        debug_assert!(at <= now, "heartbeat {clock} of {at:?} has its echo at {now:?}");
        row.sent.drain(..=place);
        push(&mut row.samples, now.saturating_since(at).saturating_sub(ago), WINDOW);
        row.samples.iter().min().copied()
    }
}

fn push<T>(ring: &mut VecDeque<T>, item: T, most: usize) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(item);
    debug_assert!(ring.len() <= most, "{} of at most {most} are remembered", ring.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: DcId = DcId::new(1).expect("1 is an id");

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_the_peer_kept_it_for_does_not_count() {
        let mut trips = RoundTrips::new();
        trips.note_sent(PEER, Timestamp::from_millis(1), at(0), ms(3_000));
        assert_eq!(trips.note_echo(PEER, Timestamp::from_millis(1), ms(300), at(380)), Some(ms(80)));
        assert_eq!(
            trips.note_echo(PEER, Timestamp::from_millis(1), ms(900), at(980)),
            None,
            "it is known already"
        );
        assert_eq!(
            trips.note_echo(PEER, Timestamp::from_millis(7), ms(0), at(990)),
            None,
            "it was sent to others"
        );
    }

    #[test]
    fn a_pause_is_no_distance_and_a_longer_way_is() {
        let mut trips = RoundTrips::new();
        let mut trip = |n: u64, took: u64| {
            trips.note_sent(PEER, Timestamp::from_millis(n), at(n * 1_000), ms(3_000));
            trips.note_echo(PEER, Timestamp::from_millis(n), ms(0), at(n * 1_000 + took))
        };
        assert_eq!(trip(1, 80), Some(ms(80)));
        assert_eq!(trip(2, 900), Some(ms(80)));
        (3..9).for_each(|n| assert_eq!(trip(n, 120), Some(ms(80))));
        (9..11).for_each(|n| assert_eq!(trip(n, 120), Some(ms(120))));
    }

    #[test]
    fn echoes_that_never_come_take_no_room() {
        let mut trips = RoundTrips::new();
        (0..100).for_each(|n| trips.note_sent(PEER, Timestamp::from_millis(n), at(n), ms(40)));
        assert_eq!(trips.rows[1].sent.len(), 41);
        (100..3_100).for_each(|n| trips.note_sent(PEER, Timestamp::from_millis(n), at(n), ms(9_999)));
        assert_eq!(trips.rows[1].sent.len(), MOST_SENT);
    }
}
