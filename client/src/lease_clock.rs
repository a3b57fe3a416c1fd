//! Pure. How long the client may count on its lease (`docs/algorithm/grants.md#14-leases`).
//!
//! The server counts a time to live from when it *receives* a renewal. The client counts it from before it
//! *sends* the renewal, and only once that was answered. So the client's lease always ends first, by at least
//! the time that the message travelled. A margin covers the rest: clocks that run at slightly different
//! rates, a timer that fires late, and the time that a holder needs to stop.
//!
//! ```text
//! client   send ------------------------------------ expires |margin| ------
//! server        hears ----------------------------------------------- ends
//! ```

use std::time::Duration;

use geolock_api::time::Instant;

/// Returns the margin before the end of a lease with that time to live: a tenth of it. From then on its locks
/// count as lost.
pub fn lease_margin(ttl: Duration) -> Duration {
    ttl / 10
}

/// The time of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseClock {
    ttl: Duration,
    /// When the last answered renewal was sent.
    renewed: Instant,
    /// When the renewal in flight was sent.
    sent: Option<Instant>,
}

impl LeaseClock {
    /// Creates the clock of a lease whose opening was sent at `sent` and is answered now.
    pub(super) fn opened(ttl: Duration, sent: Instant) -> LeaseClock {
        LeaseClock { ttl, renewed: sent, sent: None }
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Notes that a renewal is about to be sent.
    pub(super) fn sending(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    /// Notes that the renewal in flight was answered. An answer without a renewal in flight changes nothing.
    pub(super) fn answered(&mut self, ttl: Duration) {
        if let Some(sent) = self.sent.take() {
            self.ttl = ttl;
            self.renewed = self.renewed.max(sent);
        }
    }

    /// Notes that the renewal in flight will not be answered, because its stream is gone.
    pub(super) fn unsent(&mut self) {
        self.sent = None;
    }

    /// Returns the moment from which the locks count as lost.
    pub(super) fn expires(&self) -> Instant {
        self.renewed + (self.ttl - lease_margin(self.ttl))
    }

    /// Returns the moment from which the server has ended the lease for certain, independent of the network.
    pub(super) fn ended(&self) -> Instant {
        self.renewed + self.ttl
    }

    /// Returns when to send the next renewal; `None` while one is in flight.
    pub(super) fn renewal_due(&self) -> Option<Instant> {
        self.sent.is_none().then(|| self.renewed + self.ttl / 3)
    }

    /// Returns when the client should try another connection, because the renewal in flight was not answered:
    /// the server showed no sign of life since the renewal was sent, or since `moved` if that is later. A
    /// slow line alone is no reason to reconnect, since everything in flight would be sent again.
    pub(super) fn renewal_overdue(&self, moved: Instant) -> Option<Instant> {
        self.sent.map(|sent| sent.max(moved) + self.ttl / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn time_counts_from_before_the_send_and_only_when_answered() {
        let mut clock = LeaseClock::opened(TTL, at(100));
        assert_eq!(clock.expires(), at(109) - lease_margin(TTL));
        assert_eq!(clock.renewal_due(), Some(at(103)));
        clock.sending(at(103));
        assert_eq!((clock.expires(), clock.renewal_due()), (at(109) - lease_margin(TTL), None));
        clock.answered(TTL);
        assert_eq!(clock.expires(), at(112) - lease_margin(TTL), "whenever the answer came");
    }

    #[test]
    fn what_was_lost_with_its_stream_does_not_count() {
        let mut clock = LeaseClock::opened(TTL, at(100));
        clock.sending(at(103));
        clock.unsent();
        clock.answered(TTL);
        assert_eq!(clock.expires(), at(109) - lease_margin(TTL));
    }

    #[test]
    fn there_is_time_to_reconnect_between_an_unanswered_renewal_and_the_end() {
        let mut clock = LeaseClock::opened(TTL, at(100));
        clock.sending(clock.renewal_due().expect("none is on its way"));
        let overdue = clock.renewal_overdue(Instant::ZERO).expect("one is on its way");
        assert!(overdue + TTL / 4 < clock.expires());
    }
}
