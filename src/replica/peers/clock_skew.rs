//! The clocks of the peers beside ours (`docs/algorithm/grants.md#23-clock-skew`).
//!
//! Entries that are stamped too far ahead of a clock are held back there. So a datacenter that is ahead of
//! most others makes no entries: they would be held back by most. One that is behind most others holds back
//! the entries of most, so no part may be sent to it; what it makes itself, the others apply. Each of the two
//! says so, and the others park what needs it. Between two datacenters nobody knows which clock is wrong. One
//! that says so of itself is believed, and the other one does not count it; but one whose wall clock has
//! jumped believes no other one to be wrong.
//!
//! A clock that is behind may be set forward at once, because a higher reading repeats none. This is done
//! only as far as the own wall clock and most members go, so that no single wrong clock drags another one.

use super::links::LinkHandler;
use crate::base::bugs::Bug;
use crate::base::time::{Now, Timestamp};
use crate::causal_log::Log;
use crate::lock_state::Locks;
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::Report;
use crate::replica::ids::Ids;
use crate::replica::ids::wall_clock::millis_of;
use crate::replica::lifecycle::{Lifecycle, NotServing};
use crate::replica::members::Members;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use geolock_api::names::DcId;

/// The clock of a peer that was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) enum ClockSource {
    /// The hybrid clock, which it stamps with.
    Heartbeat,
    /// The bare wall clock: the peer has just started, and stamps nothing.
    WallClock,
}

/// Compares the clock with those of the peers, and follows which members are away.
pub(in crate::replica) struct Clocks<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) ids: &'a mut Ids,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a mut Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) peers: &'a mut Peers,
}

impl Clocks<'_> {
    /// Returns an upper bound of the age of a heartbeat, in milliseconds, if it echoes a heartbeat of this
    /// run: this process may have been stopped while the heartbeat waited.
    pub(in crate::replica) fn delay_ms(&self, heard: &[(DcId, Timestamp, u32)]) -> u64 {
        let echo = heard.iter().find(|(dc, ..)| *dc == self.config.dc);
        let of_this_run =
            echo.filter(|(_, clock, _)| clock.millis() >= self.lifecycle.run.clock_at_start_ms());
        of_this_run.map_or(0, |(_, clock, age_ms)| {
            self.ids.clock.physical_millis().saturating_sub(clock.millis() + u64::from(*age_ms))
        })
    }

    /// The clock of `peer` was `clock` at most `delay_ms` ago.
    pub(in crate::replica) fn note_clock(&mut self, peer: DcId, clock: Timestamp, delay_ms: u64) {
        let ahead_ms = clock.millis() as i64 - self.ids.clock.physical_millis() as i64;
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        if ahead_ms <= limit {
            self.ids.clock.observe(clock);
        }
        // The peer's clock advanced while the heartbeat was under way: the difference now is between the two
        // values.
        let ahead_ms =
            if ahead_ms < 0 { ahead_ms.saturating_add_unsigned(delay_ms).min(0) } else { ahead_ms };
        self.note_ahead(peer, ahead_ms, ClockSource::Heartbeat);
    }

    /// The clock of `peer` is `ahead_ms` milliseconds ahead of ours, or behind (negative).
    pub(in crate::replica) fn note_ahead(&mut self, peer: DcId, ahead_ms: i64, source: ClockSource) {
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        let row = &mut self.peers.links.rows[peer.index()];
        row.clock_ahead_ms = Some(ahead_ms);
        row.is_bare = source == ClockSource::WallClock;
        row.wall_clock = Some((millis_of(&self.ids.clock).saturating_add(ahead_ms), self.now.mono));
        let drifts = ahead_ms.saturating_abs() > limit / 2;
        if drifts && !row.drift_reported {
            self.out.report(Report::ClockDrifts { peer, ahead_ms });
        }
        self.peers.links.rows[peer.index()].drift_reported = drifts;
    }

    /// Updates the skew state: active while our clock, or the stamps that we gave before it was mended, are
    /// ahead of most linked peers by more than the limit (`docs/algorithm/grants.md#23-clock-skew`).
    pub(in crate::replica) fn note_skew(&mut self) {
        self.note_behind();
        if self.lifecycle.state.is_starting() {
            // Nothing is stamped before time has passed all readings of before the restart.
            return;
        }
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        // Within the limit our latest stamp may be that of another member, which our clock took over.
        let stamps_ahead = self.ids.clock.latest().millis() as i64 - self.ids.clock.physical_millis() as i64;
        let ours_ahead = if stamps_ahead > limit { stamps_ahead } else { 0 };
        // In a cluster of two, a server whose wall clock has jumped believes no other one to be wrong.
        let excused = NotServing::ClockBehind;
        let is_excused = self.members.entered.all().len() > 2 || !self.ids.clock.is_following_step();
        let clocks = self
            .members
            .peers()
            .iter()
            .filter_map(|peer| Some((peer, self.peers.links.clock_ahead_ms(peer)?)));
        let active =
            self.is_outvoted(clocks, is_excused.then_some(excused), |ahead| ahead - ours_ahead < -limit);
        if self.lifecycle.on_clock_skew(active) {
            self.out.report(Report::ClockSkew { active });
        }
    }

    /// Updates the state of a clock that is behind: active when, for a heartbeat, most linked peers have been
    /// ahead of our clock by more than the limit. In a start this is noted, too, so that no part arrives
    /// right after it.
    fn note_behind(&mut self) {
        let limit = self.config.agreed.max_clock_skew.as_millis() as i64;
        let clocks = || {
            self.members
                .peers()
                .iter()
                .filter_map(|peer| Some((peer, self.peers.links.stamps_ahead_ms(peer)?)))
        };
        let is_behind = self.is_outvoted(clocks(), Some(NotServing::ClockSkew), |ahead| ahead > limit)
            && !self.config.bugs.has(Bug::BehindNotNoticed);
        let linked = clocks().filter(|(peer, _)| self.log.peer(*peer).is_linked());
        let ahead = linked.map(|(_, ahead)| ahead).filter(|ahead| *ahead > limit);
        let least = ahead.min().filter(|_| is_behind).map(i64::unsigned_abs);
        let since = least.map(|_| *self.peers.links.behind_since.get_or_insert(self.now.mono));
        self.peers.links.behind_since = since;
        // Right after a link came up the peer may not have heard yet that it is ahead of most others.
        let lasts = since.is_some_and(|since| self.now.mono >= since + self.config.agreed.heartbeat);
        let by_ms = least.filter(|_| lasts);
        if self.lifecycle.on_clock_behind(by_ms) {
            self.out.report(Report::ClockBehind { by_ms });
            self.park_what_needs_others();
        }
    }

    /// Returns true if the differences to most linked peers are `off`, without the peers that say of
    /// themselves that their clock is wrong (`excused`); or those to most members, whatever they say.
    fn is_outvoted(
        &self,
        clocks: impl Iterator<Item = (DcId, i64)>,
        excused: Option<NotServing>,
        off: impl Fn(i64) -> bool,
    ) -> bool {
        let (mut all_off, mut counted, mut counted_off) = (0, 0, 0);
        for (peer, ahead_ms) in clocks.filter(|(peer, _)| self.log.peer(*peer).is_linked()) {
            let is_off = usize::from(off(ahead_ms));
            all_off += is_off;
            if excused.is_none() || self.peers.reachability.last_told(peer) != excused {
                (counted, counted_off) = (counted + 1, counted_off + is_off);
            }
        }
        counted_off * 2 > counted || all_off * 2 > self.members.entered.all().len()
    }

    /// Follows a forward step of the wall clock at once, as far as most members, this one included, are.
    pub(in crate::replica) fn step_forward(&mut self) {
        let linked = self.members.peers().iter().filter(|peer| self.log.peer(*peer).is_linked());
        // Also the wall clock of one that starts: of two members it may wait for ours to be right.
        let mut ahead: Vec<i64> = linked.filter_map(|peer| self.peers.links.clock_ahead_ms(peer)).collect();
        ahead.sort_unstable_by(|a, b| b.cmp(a));
        // With so many others this one is in the majority.
        let others = self.members.entered.all().len() / 2;
        let confirmed = others.checked_sub(1).and_then(|last| ahead.get(last)).copied().unwrap_or(0);
        let most_ms = u64::try_from(confirmed).unwrap_or(0);
        let by_ms = self.ids.clock.step_forward(self.now, most_ms);
        assert!(by_ms <= most_ms, "a step of {by_ms} ms, of which most members confirm {most_ms} ms");
        if by_ms > 0 {
            self.peers.links.note_clock_step(by_ms);
            self.out.report(Report::ClockSetForward { by_ms });
        }
    }
}

impl LinkHandler<'_> {
    /// Returns the reading that orders the heartbeats of a peer. Its clock may have been ahead and mended
    /// since; then its present state must count before time has caught up with its earlier readings.
    pub(in crate::replica) fn believed(&self, clock: Timestamp) -> Timestamp {
        let limit = self.config.agreed.max_clock_skew;
        clock.min(Timestamp::from_millis(self.ids.clock.physical_millis()).plus(limit))
    }
}
