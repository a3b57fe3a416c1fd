//! What this datacenter hands out and never twice: clock readings, request numbers and fencing tokens
//! (`docs/algorithm.md#102-reservation`).

use super::id_reservation::Reservations;
use super::tokens::Lead;
use crate::base::hybrid_clock::HybridClock;
use crate::base::time::{Instant, Now, Timestamp};

/// The sources of stamps, numbers and tokens.
pub(super) struct Ids {
    pub clock: HybridClock,
    pub reservations: Reservations,
    /// The next request number to hand out.
    pub next_n: u64,
    /// How far fencing tokens are ahead of the clock.
    pub lead: Lead,
    pub renew_reservation_at: Instant,
}

impl Ids {
    pub fn new(now: Now) -> Ids {
        Ids {
            clock: HybridClock::new(now, Timestamp::ZERO),
            reservations: Reservations::default(),
            next_n: 1,
            lead: Lead::default(),
            renew_reservation_at: now.mono,
        }
    }
}
