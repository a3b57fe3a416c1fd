//! Fencing tokens: readings of the hybrid clock, plus a lead that only grows and is 0 unless a disk was lost whose clock was ahead.
//!
//! A datacenter that loses its disk does not know which readings it has handed out. Its peers know the last one that they
//! heard of it, and for how long it may have gone on after that: until this run began, by a clock that runs at most a tenth too
//! fast, and gets ahead by that no further than half of the longest lease. If its clock was right, time has passed all of
//! that when the leases of before are over. If its clock was an hour ahead and is right now, it has
//! not: tokens would be smaller than those of before. To start the clock above them would be as wrong as the clock was before: no
//! entry could be made for an hour, or everybody else would have to follow. So only tokens go ahead, by a *lead*. It
//! travels with entries and states, and whoever applies them takes it over: along the grants of a lock both stamps and leads
//! grow, in whatever datacenters. The order of requests and of entries knows nothing of it.
//!
//! What is not known: readings of one that no living peer has heard, because all were restarted since.

use std::time::Duration;

use super::Replica;
use super::message::Heartbeat;
use super::record::Record;
use crate::names::{DcId, FencingToken, Position};
use crate::time::Timestamp;

/// Ten years. Of what a peer says, nothing that leads beyond that is believed.
const MAX_LEAD_MS: u64 = 10 * 366 * 24 * 3_600_000;
/// What passed between the last reading and its arrival at a peer, and more.
const MARGIN: Duration = Duration::from_secs(1);

/// What tokens are ahead by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lead {
    pub millis: u64,
    /// Where the journal has it.
    pub position: Position,
    /// What was handed out before the disk was lost is not above this.
    floor: Timestamp,
}

impl Replica {
    /// A token above all others that are known here.
    pub(super) fn token(&mut self) -> FencingToken {
        let stamp = self.stamp();
        FencingToken(stamp.plus(Duration::from_millis(self.lead.millis)).raw())
    }

    /// The reading that a token was made of, or an earlier one if the lead has grown since.
    pub(crate) fn stamp_of(&self, token: FencingToken) -> Timestamp {
        Timestamp::from_raw(token.0.saturating_sub(Timestamp::from_millis(self.lead.millis).raw()))
    }

    /// Tokens of another datacenter were ahead by that much; the record at `position` says so.
    pub(super) fn raise_lead(&mut self, millis: u64, position: Position) {
        if millis > self.lead.millis && millis <= MAX_LEAD_MS {
            (self.lead.millis, self.lead.position) = (millis, position);
        }
    }

    /// What a peer heard of this datacenter before this link: perhaps before its disk was lost.
    pub(super) fn note_lost_readings(&mut self, yours: Option<(Timestamp, u64)>) {
        let Some((clock, age_ms)) = yours else { return };
        if age_ms > MAX_LEAD_MS || clock.millis() > self.clock.physical_millis() + MAX_LEAD_MS {
            return;
        }
        // The run that is over went on after that until this one began, at most; the word of it took a while.
        let since = self.now.mono.saturating_since(self.life.began_at);
        let since = since.saturating_sub(self.config.agreed.peer_timeout);
        let age = Duration::from_millis(age_ms).saturating_sub(since);
        let ahead = (age / 10).min(self.config.local.max_lease_ttl / 2);
        self.lead.floor = self.lead.floor.max(clock.plus(age + ahead + MARGIN));
        if !self.life.joined {
            // Numbers, too: no run has handed out more of them than its clock had milliseconds for. No further than that, or another
            // start on an old disk would begin with them again.
            self.pass_numbers_until(clock.plus(age).millis());
        }
    }

    /// The directory is an older one, or a new one in place of a lost one, and is about to be used: what it hands out has to be
    /// above what was.
    pub(super) fn pass_lost_tokens(&mut self) {
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::LostTokensNotPassed) {
            return;
        }
        let reading = self.clock.latest().max(Timestamp::from_millis(self.clock.physical_millis()));
        let next = reading.plus(Duration::from_millis(self.lead.millis));
        if self.life.doubted && self.lead.floor > next {
            let millis = self.lead.millis + (self.lead.floor.millis() - next.millis()) + 1;
            let millis = millis.min(MAX_LEAD_MS);
            let position = self.persist(Record::TokenLead { millis });
            self.raise_lead(millis, position);
        }
    }

    /// Remembers how far the tokens of a peer may be.
    pub(super) fn note_reading(&mut self, peer: DcId, heartbeat: &Heartbeat) {
        let lead_ms = if heartbeat.lead_ms > MAX_LEAD_MS { 0 } else { heartbeat.lead_ms };
        self.links.note_reading(peer, heartbeat.clock, lead_ms, self.now.mono);
    }
}
