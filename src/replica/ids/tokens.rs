//! Fencing tokens: readings of the hybrid clock plus a lead, which only grows and is nearly always 0
//! (`docs/algorithm/grants.md#25-token-lead`).
//!
//! A datacenter that loses its disk does not know which readings it has used. Its peers know the last one
//! that they heard from it, and for how long its last run may have gone on after that: until this run began,
//! by a clock that runs at most a tenth too fast and thereby gains at most half of the longest lease. If its
//! clock was right, time has passed all those readings when the leases of before are over. If its clock was
//! an hour ahead and is right now, its tokens would be smaller than those of before. To set the clock ahead
//! would be as wrong as before: it could make no entry for an hour, or all others would have to follow. So
//! only tokens go ahead, by a *lead*. The lead travels with entries and states, and a member that applies
//! them takes it over: along the grants of a lock both stamps and leads grow, in any datacenters. The order
//! of requests and entries does not depend on it.
//!
//! Readings that no living peer has heard, because all were restarted since, are not known.
//!
//! After an eviction, tokens begin with a *fence* that counts evictions: 10 bits, then 42 of milliseconds and
//! 12 of the counter. So each token of a grant that rests on an eviction is above all tokens that the evicted
//! datacenter gave out or will give out, whatever its clock. Tokens of before have 48 bits of milliseconds,
//! so they read as fence 6 or so, and the first fence is 17.

use crate::base::bugs::Bug;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::membership::FIRST_FENCE;
use crate::replica::ids::Ids;
use crate::replica::message::Heartbeat;
use crate::replica::outputs::Outputs;
use crate::replica::peers::clock_skew::Clocks;
use crate::replica::record::Record;
use geolock_api::names::{DcId, FencingToken, Position};

/// Ten years. A peer's claim that leads further is not believed.
const MAX_LEAD_MS: u64 = 10 * 366 * 24 * 3_600_000;
/// Bounds the time between the last reading and its arrival at a peer, with some reserve.
const MARGIN: Duration = Duration::from_secs(1);

/// The number of bits below the fence of a token.
const BELOW_FENCE: u32 = 54;
/// The number of bits of the counter of a reading that a token with a fence has no room for.
const DROPPED_BITS: u32 = 4;

const _: () = assert!(1 << (u64::BITS - BELOW_FENCE) > 2 * FIRST_FENCE, "a token has room for the fence");
const _: () = assert!(DROPPED_BITS < 16, "a reading in a token has milliseconds, and most of its counter");

/// The token lead.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::replica) struct Lead {
    pub millis: u64,
    /// Position of its record in the journal.
    pub position: Position,
    /// Readings that were used before the disk was lost are not above this.
    floor: Timestamp,
}

impl Ids {
    /// Returns a token above all others that are known here.
    pub fn token(&mut self, out: &mut Outputs) -> FencingToken {
        let stamp = self.stamp(out);
        let lead = Duration::from_millis(self.lead.millis);
        let Some(fence) = self.fence.filter(|_| !out.bugs.has(Bug::TokensUnfenced)) else {
            return FencingToken(stamp.plus(lead).raw());
        };
        assert!(fence > FIRST_FENCE, "fence {fence} is above the readings of before");
        let stamp = self.stamp_for_fence(stamp, out);
        let token = FencingToken(u64::from(fence) << BELOW_FENCE | stamp.plus(lead).raw() >> DROPPED_BITS);
        debug_assert!(self.stamp_of(token) <= stamp, "{token:?} waits for the reservation of {stamp}");
        token
    }

    /// Returns the reading that a token was made of, or an earlier one if the lead has grown since.
    pub fn stamp_of(&self, token: FencingToken) -> Timestamp {
        let raw = match token.0 >> BELOW_FENCE > u64::from(FIRST_FENCE) {
            true => (token.0 & ((1 << BELOW_FENCE) - 1)) << DROPPED_BITS,
            false => token.0,
        };
        Timestamp::from_raw(raw.saturating_sub(Timestamp::from_millis(self.lead.millis).raw()))
    }

    /// Returns the next reading of which a token loses nothing. Further readings are above it.
    fn stamp_for_fence(&mut self, stamp: Timestamp, out: &mut Outputs) -> Timestamp {
        let step = (1_u64 << DROPPED_BITS) - 1;
        let next = Timestamp::from_raw((stamp.raw() + step) & !step);
        self.clock.observe(next);
        if next > self.reservations.recorded().clock {
            self.record_reservation(out);
        }
        debug_assert!(next >= stamp, "a token is not below its reading");
        next
    }

    /// Takes over the lead of another datacenter, which the record at `position` contains.
    pub fn raise_lead(&mut self, millis: u64, position: Position) {
        if millis > self.lead.millis && millis <= MAX_LEAD_MS {
            (self.lead.millis, self.lead.position) = (millis, position);
        }
    }

    /// The directory is an old one, or a new one in the place of a lost one, and is about to be used: raises
    /// the lead so that its tokens are above those of before.
    pub fn pass_lost_tokens(&mut self, out: &mut Outputs) {
        if out.bugs.has(Bug::LostTokensNotPassed) {
            return;
        }
        let reading = self.clock.latest().max(Timestamp::from_millis(self.clock.physical_millis()));
        let next = reading.plus(Duration::from_millis(self.lead.millis));
        if self.lead.floor > next {
            let millis = self.lead.millis + (self.lead.floor.millis() - next.millis()) + 1;
            let millis = millis.min(MAX_LEAD_MS);
            let position = out.persist(Record::TokenLead { millis });
            self.raise_lead(millis, position);
            let (first, floor) = (reading.plus(Duration::from_millis(self.lead.millis)), self.lead.floor);
            let is_above = first > floor || self.lead.millis == MAX_LEAD_MS;
            debug_assert!(is_above, "tokens from {first} on are above those of before, up to {floor}");
        }
    }
}

impl Clocks<'_> {
    /// Notes the reading that a peer heard from this datacenter before this link, perhaps before its disk was
    /// lost.
    pub(in crate::replica) fn note_lost_readings(&mut self, yours: Option<(Timestamp, u64)>) {
        let Some((clock, age_ms)) = yours else { return };
        if age_ms > MAX_LEAD_MS || clock.millis() > self.ids.clock.physical_millis() + MAX_LEAD_MS {
            return;
        }
        // The last run went on after that until this one began, at most. The report took some time.
        let since = self.now.mono.saturating_since(self.lifecycle.run.began_at());
        let since = since.saturating_sub(self.config.agreed.peer_timeout);
        let age = Duration::from_millis(age_ms).saturating_sub(since);
        let ahead = (age / 10).min(self.config.local.max_lease_ttl / 2);
        self.ids.lead.floor = self.ids.lead.floor.max(clock.plus(age + ahead + MARGIN));
        if !self.lifecycle.own_log.has_joined() {
            // The same for numbers: no run has used more of them than its clock had milliseconds for. Not
            // further, or another start on an old disk would use the same numbers again.
            self.ids.advance_number_past_millis(self.out, clock.plus(age).millis());
        }
    }

    /// Notes how high the tokens of a peer may be.
    pub(in crate::replica) fn note_reading(&mut self, peer: DcId, heartbeat: &Heartbeat) {
        let lead_ms = if heartbeat.lead_ms > MAX_LEAD_MS { 0 } else { heartbeat.lead_ms };
        self.peers.links.note_reading(peer, heartbeat.clock, lead_ms, self.now.mono);
    }
}
