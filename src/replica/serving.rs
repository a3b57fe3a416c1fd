//! A datacenter that is there and does not serve: it grants nothing, or hands nothing over.
//!
//! It says so with its heartbeats, of which one that has just started sends none. Others park what needs it, as for one that is
//! dead, and send it no parts: it could not use them.
//! Like parking this is each datacenter's own view and affects only speed.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Replica;
use super::call::Phase;
use super::effect::Report;
use crate::names::{DcId, DcSet};
use crate::room::Room;

/// Why a datacenter does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NotServing {
    /// It has just started.
    Starting,
    /// It does not know all of its own log.
    ReadOnly,
    /// After a restart it waits for clients to say what they hold: for so many milliseconds more, as far as is known.
    Grace { for_ms: u32 },
    /// Its clock is too far ahead of most others.
    ClockSkew,
    /// Its disk takes nothing more.
    DiskFull,
    /// Its log and that of another datacenter are two histories.
    Forked,
    /// Its log is full of entries that most others lack.
    LogFull,
}

impl NotServing {
    /// The same, told so long ago.
    pub(super) fn aged(self, age: Duration) -> NotServing {
        match self {
            NotServing::Grace { for_ms } => {
                let age = u32::try_from(age.as_millis()).unwrap_or(u32::MAX);
                NotServing::Grace { for_ms: for_ms.saturating_sub(age) }
            }
            other => other,
        }
    }
}

/// For how long it goes on is no other reason.
pub(super) fn is_same(a: Option<NotServing>, b: Option<NotServing>) -> bool {
    a.map(|why| std::mem::discriminant(&why)) == b.map(|why| std::mem::discriminant(&why))
}

impl fmt::Display for NotServing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotServing::Starting => f.write_str("starts"),
            NotServing::ReadOnly => f.write_str("is read-only"),
            NotServing::Grace { for_ms } => {
                write!(f, "is in grace for {} s more", for_ms.div_ceil(1_000))
            }
            NotServing::ClockSkew => f.write_str("has a clock that is too far ahead"),
            NotServing::DiskFull => f.write_str("has a full disk"),
            NotServing::Forked => f.write_str("is forked"),
            NotServing::LogFull => f.write_str("has a full log: too few others can be reached"),
        }
    }
}

impl Replica {
    /// Why this datacenter does not serve, if so.
    pub(super) fn not_serving(&self) -> Option<NotServing> {
        match self.current_phase() {
            Phase::Starting => Some(NotServing::Starting),
            Phase::ReadOnly => Some(NotServing::ReadOnly),
            Phase::Forked { .. } => Some(NotServing::Forked),
            Phase::Grace { .. } => {
                let ends = self.leases.last_grace().unwrap_or(self.now.mono);
                let left = ends.saturating_since(self.lease_time());
                Some(NotServing::Grace { for_ms: u32::try_from(left.as_millis()).unwrap_or(u32::MAX) })
            }
            Phase::Serving if self.life.clock_skew => Some(NotServing::ClockSkew),
            Phase::Serving if self.life.room == Room::Full => Some(NotServing::DiskFull),
            Phase::Serving if self.life.log_full => Some(NotServing::LogFull),
            Phase::Serving => None,
        }
    }

    /// Others are told at once that this datacenter serves again, or does not.
    pub(super) fn tell_serving(&mut self) {
        let now = self.not_serving();
        if !is_same(now, self.life.not_serving) {
            self.life.not_serving = now;
            self.tell_links();
        }
    }

    /// Those of `all` that are there and do not serve; also this one.
    pub(super) fn not_serving_of(&self, all: DcSet) -> Vec<(DcId, NotServing)> {
        let here = self.not_serving().map(|why| (self.config.dc, why));
        let peers = all.intersection(self.peers()).iter();
        let there = peers.filter_map(|peer| Some((peer, self.reach.not_serving(peer, self.now.mono)?)));
        here.into_iter().chain(there).collect()
    }

    /// What an operator is told of a peer that is there.
    pub(super) fn report_serving(&mut self, changed: DcSet) {
        for peer in changed.iter() {
            let why = self.reach.not_serving(peer, self.now.mono);
            self.report(Report::PeerServes { peer, why });
        }
    }
}
