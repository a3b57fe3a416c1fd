//! The clocks of the peers beside ours (`docs/algorithm.md#103-clock-skew`).

use super::Replica;
use super::effect::Report;
use super::wall_clock::millis_of;
use crate::base::time::Timestamp;
use geolock_api::names::DcId;

impl Replica {
    /// Returns an upper bound of the age of a heartbeat, in milliseconds, if it echoes a heartbeat of this
    /// run: this process may have been stopped while the heartbeat waited.
    pub(super) fn delay_ms(&self, heard: &[(DcId, Timestamp, u32)]) -> u64 {
        let echo = heard.iter().find(|(dc, ..)| *dc == self.config.dc);
        let of_this_run = echo.filter(|(_, clock, _)| clock.millis() >= self.lifecycle.clock_at_start_ms());
        of_this_run.map_or(0, |(_, clock, age_ms)| {
            self.clock.physical_millis().saturating_sub(clock.millis() + u64::from(*age_ms))
        })
    }

    /// The clock of `peer` was `clock` at most `delay_ms` ago.
    pub(super) fn note_clock(&mut self, peer: DcId, clock: Timestamp, delay_ms: u64) {
        let ahead_ms = clock.millis() as i64 - self.clock.physical_millis() as i64;
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        if ahead_ms <= limit {
            self.clock.observe(clock);
        }
        // The peer's clock advanced while the heartbeat was under way: the difference now is between the two
        // values.
        let ahead_ms =
            if ahead_ms < 0 { ahead_ms.saturating_add_unsigned(delay_ms).min(0) } else { ahead_ms };
        self.note_ahead(peer, ahead_ms);
    }

    /// The clock of `peer` is `ahead_ms` milliseconds ahead of ours, or behind (negative).
    pub(super) fn note_ahead(&mut self, peer: DcId, ahead_ms: i64) {
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        let row = &mut self.links.rows[peer.index()];
        row.clock_ahead_ms = Some(ahead_ms);
        row.wall_clock = Some((millis_of(&self.clock).saturating_add(ahead_ms), self.now.mono));
        let drifts = ahead_ms.saturating_abs() > limit / 2;
        if drifts && !row.drift_reported {
            self.report(Report::ClockDrifts { peer, ahead_ms });
        }
        self.links.rows[peer.index()].drift_reported = drifts;
    }

    /// Returns the reading that orders the heartbeats of a peer. Its clock may have been ahead and mended
    /// since; then its present state must count before time has caught up with its earlier readings.
    pub(super) fn believed(&self, clock: Timestamp) -> Timestamp {
        let limit = self.config.agreed.max_clock_skew;
        clock.min(Timestamp::from_millis(self.clock.physical_millis()).plus(limit))
    }

    /// Updates the skew state: active while our clock, or the stamps that we gave before it was mended, are
    /// ahead of most linked peers by more than the limit (`docs/algorithm.md#103-clock-skew`).
    pub(super) fn note_skew(&mut self) {
        if self.lifecycle.is_starting() {
            // Nothing is stamped before time has passed all readings of before the restart.
            return;
        }
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        // Within the limit our latest stamp may be that of another member, which our clock took over.
        let stamps_ahead = self.clock.latest().millis() as i64 - self.clock.physical_millis() as i64;
        let ours_ahead = if stamps_ahead > limit { stamps_ahead } else { 0 };
        let linked = self.peers().iter().filter(|peer| self.log.is_linked(*peer));
        let heard: Vec<i64> = linked.filter_map(|peer| self.links.clock_ahead_ms(peer)).collect();
        let behind_us = heard.iter().filter(|ahead| **ahead - ours_ahead < -limit).count();
        let active = behind_us * 2 > heard.len();
        if self.lifecycle.on_clock_skew(active) {
            self.report(Report::ClockSkew { active });
        }
    }
}
