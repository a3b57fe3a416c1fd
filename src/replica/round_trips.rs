//! How long a message to each peer and back takes, measured with heartbeats: a peer says which heartbeat of ours it heard
//! last, and how long ago.
//!
//! What counts is the shortest of the last ones (as in BBR, Cardwell et al. 2016): a pause of either end, or a queue, is no
//! distance; and a path that became longer is believed after a few heartbeats.

use std::collections::VecDeque;
use std::time::Duration;

use crate::names::{DcId, MAX_DCS};
use crate::time::{Instant, Timestamp};

/// Samples of which the shortest counts.
const WINDOW: usize = 8;
/// Heartbeats of ours whose echoes are waited for, at most.
const MOST_SENT: usize = 1_024;

/// See the module.
pub(super) struct RoundTrips {
    rows: [Row; MAX_DCS],
}

#[derive(Clone, Default)]
struct Row {
    /// Clock and time of the last ones.
    sent: VecDeque<(Timestamp, Instant)>,
    samples: VecDeque<Duration>,
    /// Clock and time of the last one of the peer that came from itself.
    heard: Option<(Timestamp, Instant)>,
}

impl RoundTrips {
    pub fn new() -> RoundTrips {
        RoundTrips { rows: std::array::from_fn(|_| Row::default()) }
    }

    /// Its echo is waited for until a peer that says nothing for so long would be gone: `timeout`.
    pub fn note_sent(&mut self, peer: DcId, clock: Timestamp, now: Instant, timeout: Duration) {
        let sent = &mut self.rows[peer.index()].sent;
        while sent.pop_front_if(|(_, at)| *at + timeout < now).is_some() {}
        push(sent, (clock, now), MOST_SENT);
    }

    /// A heartbeat of `peer` came from itself.
    pub fn note_heard(&mut self, peer: DcId, clock: Timestamp, now: Instant) {
        self.rows[peer.index()].heard = Some((clock, now));
    }

    /// What to tell `peer` of that: its clock, and how many milliseconds ago.
    pub fn echo(&self, peer: DcId, now: Instant) -> Option<(Timestamp, u32)> {
        let (clock, at) = self.rows[peer.index()].heard?;
        Some((clock, u32::try_from(now.saturating_since(at).as_millis()).unwrap_or(u32::MAX)))
    }

    /// `peer` heard the heartbeat with that clock `ago` before it said so. Answers the round trip to it, if this is a sample:
    /// what reached it through others, or was measured before, is none.
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
        (0..3_000).for_each(|n| trips.note_sent(PEER, Timestamp::from_millis(n), at(n), ms(9_999)));
        assert_eq!(trips.rows[1].sent.len(), MOST_SENT);
    }
}
