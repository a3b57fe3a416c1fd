//! Id reservation: durable upper bounds of clock readings and request numbers
//! (`docs/algorithm/grants.md#22-reservation`).
//!
//! Neither is journaled one by one. A record reserves them in advance, so that a restart begins above
//! everything that was used before; readings are reserved at most
//! [`CLOCK_RESERVATION`] ahead.

use std::collections::VecDeque;

use crate::base::time::Timestamp;
use crate::replica::config::CLOCK_RESERVATION;
use geolock_api::names::Position;

/// Fewer numbers than this are used per millisecond, on average since the epoch.
pub(in crate::replica) const NUMBERS_PER_MILLI: u64 = 1 << 10;
/// Request numbers that one record reserves: 64 ms of them, so that even a server that restarts again and
/// again does not exceed [`NUMBERS_PER_MILLI`].
pub(in crate::replica) const NUMBERS_PER_RESERVATION: u64 = 1 << 16;

// A server that restarts again and again waits for that long each time.
const _: () = assert!(
    NUMBERS_PER_RESERVATION / NUMBERS_PER_MILLI <= CLOCK_RESERVATION.as_millis() as u64,
    "restarts use up fewer numbers than time allows"
);

/// A reservation: readings up to `clock` and numbers below `n` may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::replica) struct Reservation {
    pub clock: Timestamp,
    pub n: u64,
}

/// The durable reservation, and those that are being written.
#[derive(Debug, Default)]
pub(in crate::replica) struct Reservations {
    durable: Reservation,
    /// The reserved reading when this run began. A run that the disk does not know may have used higher ones.
    before: Timestamp,
    /// Recorded and not durable yet, in order.
    pending: VecDeque<(Position, Reservation)>,
}

impl Reservations {
    pub fn new(durable: Reservation) -> Reservations {
        Reservations { durable, before: durable.clock, pending: VecDeque::new() }
    }

    /// Returns the latest recorded reservation.
    pub fn recorded(&self) -> Reservation {
        self.pending.back().map_or(self.durable, |(_, reservation)| *reservation)
    }

    pub fn record(&mut self, position: Position, reservation: Reservation) {
        let before = self.pending.back().map_or(Position::default(), |(at, _)| *at);
        assert!(position > before, "the reservation at {position:?} follows that at {before:?}");
        self.pending.push_back((position, reservation));
    }

    pub fn note_durable(&mut self, position: Position) {
        while let Some((_, reservation)) = self.pending.pop_front_if(|(at, _)| *at <= position) {
            assert!(reservation.n >= self.durable.n, "number {} is reserved for good", self.durable.n);
            self.durable = reservation;
        }
    }

    /// Returns the durable clock reservation, if this run has made it.
    pub fn own_clock(&self) -> Option<Timestamp> {
        Some(self.durable.clock).filter(|clock| *clock > self.before)
    }

    /// Returns the position of the next reservation that will be durable; [`Position::default`] if none is
    /// pending.
    pub fn next_position(&self) -> Position {
        self.pending.front().map_or(Position::default(), |(position, _)| *position)
    }

    /// Returns the position of the reservation that covers these; [`Position::default`] if it is durable.
    pub fn position_of(&self, clock: Timestamp, n: u64) -> Position {
        let allows = |reservation: &Reservation| clock <= reservation.clock && n < reservation.n;
        if allows(&self.durable) {
            return Position::default();
        }
        let pending = self.pending.iter().find(|(_, reservation)| allows(reservation));
        pending.expect("nothing is handed out above what is recorded").0
    }
}
