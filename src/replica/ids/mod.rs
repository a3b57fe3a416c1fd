//! Identifiers that this datacenter hands out once: clock readings, request numbers and fencing tokens
//! (`docs/algorithm/grants.md#22-reservation`).

pub(super) mod id_reservation;
pub(super) mod tokens;
pub(super) mod wall_clock;

use super::config::CLOCK_RESERVATION;
use super::outputs::Outputs;
use super::record::Record;
use crate::base::bugs::Bug;
use crate::base::capacity::DiskSpace;
use crate::base::hybrid_clock::HybridClock;
use crate::base::time::{Instant, Now, Timestamp};
use crate::replica::ids::id_reservation::{
    NUMBERS_PER_MILLI, NUMBERS_PER_RESERVATION, Reservation, Reservations,
};
use crate::replica::ids::tokens::Lead;
use geolock_api::names::{MAX_NUMBER, Position};

/// The sources of stamps, numbers and tokens.
pub(super) struct Ids {
    pub clock: HybridClock,
    pub reservations: Reservations,
    /// The next request number to hand out.
    pub next_n: u64,
    /// How far fencing tokens are ahead of the clock.
    pub lead: Lead,
    /// The highest bits of fencing tokens, once members were evicted.
    pub fence: Option<u16>,
    pub renew_reservation_at: Instant,
    /// False in a start, until the clock is found right.
    pub may_stamp: bool,
}

impl Ids {
    pub fn new(now: Now) -> Ids {
        Ids {
            clock: HybridClock::new(now, Timestamp::ZERO),
            reservations: Reservations::default(),
            next_n: 1,
            lead: Lead::default(),
            fence: None,
            renew_reservation_at: now.mono,
            may_stamp: true,
        }
    }

    /// Returns a new clock reading. If it exceeds the reservation, a record that reserves more is written
    /// first.
    pub fn stamp(&mut self, out: &mut Outputs) -> Timestamp {
        assert!(self.may_stamp, "nothing is stamped right after a restart");
        let stamp = self.clock.tick();
        if stamp > self.reservations.recorded().clock {
            self.record_reservation(out);
        }
        let reserved = self.reservations.recorded().clock;
        debug_assert!(stamp <= reserved, "{stamp} is used, readings up to {reserved} are reserved");
        stamp
    }

    /// Returns a new request number.
    pub fn next_number(&mut self, out: &mut Outputs) -> u64 {
        let n = self.next_n;
        self.advance_number_past(out, n);
        let reserved = self.reservations.recorded().n;
        debug_assert!(n < reserved, "{n} is used, numbers below {reserved} are reserved");
        n
    }

    /// Records that all numbers up to `n` have been used.
    pub fn advance_number_past(&mut self, out: &mut Outputs, n: u64) {
        self.next_n = self.next_n.max(n + 1);
        if self.next_n > self.reservations.recorded().n {
            self.record_reservation(out);
        }
    }

    /// Moves the next number above all numbers that may have been used. The disk may be an old copy, or an
    /// empty one in the place of a used one, and no other member knows which numbers this datacenter has used
    /// (`docs/algorithm/log.md#17-numbers`).
    pub fn skip_used_numbers(&mut self, out: &mut Outputs) {
        self.advance_number_past_millis(out, self.clock.physical_millis());
    }

    /// Moves the next number above all numbers that can have been used before the clock reached `millis`.
    pub fn advance_number_past_millis(&mut self, out: &mut Outputs, millis: u64) {
        // At most half of all numbers, however far ahead a wall clock is.
        let millis = millis.min(MAX_NUMBER / 2 / NUMBERS_PER_MILLI);
        self.advance_number_past(out, millis * NUMBERS_PER_MILLI);
    }

    /// Writes a record that reserves clock readings for the next half second, and request numbers
    /// (`docs/algorithm/grants.md#22-reservation`).
    pub fn record_reservation(&mut self, out: &mut Outputs) {
        // Right after a restart the bound of the clock stays. If every restart raised it, a server that
        // restarts again and again would run away from real time.
        let clock = match self.may_stamp {
            true => self.clock.bound(CLOCK_RESERVATION),
            false => self.reservations.recorded().clock,
        };
        let reserved = Reservation { clock, n: self.next_n + NUMBERS_PER_RESERVATION };
        let before = self.reservations.recorded();
        assert!(reserved.n >= before.n, "numbers below {} are reserved already", before.n);
        let grows = reserved.clock >= before.clock || out.bugs.has(Bug::TokensReused);
        assert!(grows, "readings up to {} are reserved already", before.clock);
        let position = out.persist(Record::IdReservation { clock: reserved.clock, n: reserved.n });
        self.reservations.record(position, reserved);
        if out.bugs.has(Bug::SendBeforeDurable) {
            self.reservations.note_durable(position);
        }
    }

    /// Asserts that all that is handed out is reserved, given the last record of the journal.
    pub fn check(&self, last: Position) {
        let (reserved, n) = (self.reservations.recorded().n, self.next_n);
        assert!(n <= reserved, "number {n} is next, those below {reserved} are reserved");
        let awaited = self.reservations.next_position();
        assert!(awaited <= last, "a reservation waits for {awaited:?}, {last:?} was the last record");
        assert!(self.lead.position <= last, "the token lead was recorded up to {last:?}");
    }

    /// Renews the reservation ahead of time, so that no grant waits for the disk because of it.
    pub fn renew_reservation(&mut self, out: &mut Outputs, now: Now, room: DiskSpace) {
        self.renew_reservation_at = now.mono + CLOCK_RESERVATION / 2;
        let soon = self.clock.bound(CLOCK_RESERVATION / 2);
        let writes = self.may_stamp && room != DiskSpace::Full;
        if writes && soon > self.reservations.recorded().clock {
            self.record_reservation(out);
        }
    }
}
