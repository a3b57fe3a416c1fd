//! A restart with a wall clock that is ahead of most others: nothing is stamped until it is right
//! (`docs/algorithm/grants.md#24-a-restart-with-a-wrong-clock`).
//!
//! One stamp would be enough to do harm: readings continue above everything that is on disk or was sent to
//! others. A server that was started with a clock an hour ahead would make no entries for an hour after the
//! clock was mended. So a restarted server sends nothing that is stamped before it has heard a peer, or has
//! waited for one, and as long as its clock is ahead of most peers that it heard. Meanwhile it sends its
//! peers the bare reading of its wall clock, and their status shows the difference. A contradiction outlives
//! the links to the peers that made it, until a peer is heard again or the clock is set right: a link that
//! breaks makes no clock right.

use crate::base::hybrid_clock::HybridClock;
use crate::base::time::Timestamp;
use crate::replica::Replica;
use crate::replica::effect::Report;
use crate::replica::lend::lend;
use crate::replica::lifecycle::{Judgement, heads_to_tell};
use crate::replica::message::Message;
use crate::replica::peers::clock_skew::{ClockSource, Clocks};
use geolock_api::names::DcId;

/// Returns the physical part of a clock, in milliseconds since the Unix epoch.
pub(in crate::replica) fn millis_of(clock: &HybridClock) -> i64 {
    i64::try_from(clock.physical_millis()).unwrap_or(i64::MAX)
}

impl Clocks<'_> {
    /// Judges the clock after a restart. If it is right, stamping may begin.
    pub(in crate::replica) fn judge_clock(&mut self) -> Judgement {
        let contradicted = self.is_contradicted();
        if contradicted && self.now.wall.0 < self.ids.clock.physical_millis() {
            // No reading was used, so the wall clock may have been set right meanwhile. The peers judge it
            // before it counts.
            self.ids.clock.set(self.now);
            self.lifecycle.run.set_clock(self.ids.clock.physical_millis());
        }
        if contradicted != self.lifecycle.state.is_contradicted() {
            self.out.report(Report::ClockContradicted { ahead_ms: contradicted.then(|| self.least_ahead()) });
        }
        let judgement = match contradicted {
            true => Judgement::Contradicted,
            false if self.waits_for_a_word() => Judgement::Unconfirmed,
            false => Judgement::Right,
        };
        self.lifecycle.on_clock_judged(judgement, self.now.mono + self.config.agreed.heartbeat);
        self.ids.may_stamp = !self.lifecycle.state.is_starting();
        if judgement == Judgement::Contradicted {
            self.log.peers().linked().iter().for_each(|peer| self.tell_wall_clock(peer));
        }
        judgement
    }

    /// Returns true if the clock is ahead of most heard peers by more than the limit. Then it would make no
    /// entries right after the start ([`Clocks::note_skew`]), until time has caught up with it.
    fn is_contradicted(&self) -> bool {
        self.contradicting().count() * 2 > self.heard_clocks().count()
    }

    /// Returns by how many milliseconds our clock is ahead of each peer for which this exceeds the limit.
    fn contradicting(&self) -> impl Iterator<Item = i64> {
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        self.heard_clocks().map(|ahead| -ahead).filter(move |ahead| *ahead > limit)
    }

    fn least_ahead(&self) -> i64 {
        self.contradicting().min().unwrap_or(0)
    }

    /// Returns by how many milliseconds the clocks of peers are ahead of ours: of the peers that are heard,
    /// or else of those that were.
    fn heard_clocks(&self) -> impl Iterator<Item = i64> {
        let is_heard = |peer: &DcId| {
            self.log.peer(*peer).is_linked() && self.peers.links.clock_ahead_ms(*peer).is_some()
        };
        let nobody = !self.members.peers().iter().any(|peer| is_heard(&peer));
        let ahead = |peer: DcId| {
            let (millis, at) = self.peers.links.wall_clock(peer)?;
            let passed = self.now.mono.saturating_since(at).as_millis() as i64;
            Some(millis.saturating_add(passed) - millis_of(&self.ids.clock))
        };
        self.members.peers().iter().filter(move |peer| nobody || is_heard(peer)).filter_map(ahead)
    }

    /// Returns true if a peer should be heard first: the clock has advanced since before the restart by more
    /// than the skew limit.
    fn waits_for_a_word(&self) -> bool {
        let latest = self.ids.reservations.recorded().clock.plus(self.config.agreed.max_clock_skew);
        let is_later = self.ids.clock.physical_millis() > latest.millis();
        is_later && self.lifecycle.own_log.is_asking() && self.heard_clocks().count() == 0
    }

    /// While nothing is stamped, the peers get this in place of heartbeats.
    pub(in crate::replica) fn tell_wall_clock(&mut self, peer: DcId) {
        // A peer of version 1 does not know this message.
        if self.lifecycle.state.is_starting() && self.lifecycle.versions.are_chained() {
            let (durable, heads) = ((**self.log.durable()).clone(), heads_to_tell(self.config, self.log));
            self.out.send(self.log, peer, Message::WallClock { millis: self.now.wall.0, durable, heads });
        }
    }

    /// A restarted peer sent its wall clock, which our clock does not take over.
    pub(in crate::replica) fn on_wall_clock(&mut self, peer: DcId, millis: u64) {
        let ahead_ms = i64::try_from(millis)
            .unwrap_or(i64::MAX)
            .saturating_sub_unsigned(self.ids.clock.physical_millis());
        self.note_ahead(peer, ahead_ms, ClockSource::WallClock);
        // It may stamp by that clock, and lose its disk, before a heartbeat of it arrives. If it is too far
        // ahead, it is contradicted here, and that clock must not put tokens ahead.
        let ours = Timestamp::from_millis(self.ids.clock.physical_millis()).max(self.ids.clock.latest());
        if millis <= ours.plus(self.config.agreed.max_clock_skew).millis() {
            self.peers.links.note_reading(peer, Timestamp::from_millis(millis), 0, self.now.mono);
        }
        self.step_forward();
    }
}

impl Replica {
    pub(in crate::replica) fn begin_stamping(&mut self) {
        // A client that reclaims may name a reading of just before the crash.
        self.ids.renew_reservation(&mut self.out, self.now, self.lifecycle.stalls.disk());
        lend!(Clocks, self).note_skew();
        lend!(Peering, self).on_heartbeat_due();
        lend!(ClientCalls, self).run_deferred();
    }
}
