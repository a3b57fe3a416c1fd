//! Members that are reachable and do not serve: they grant nothing, or transfer nothing
//! (`docs/algorithm/ownership.md#23-parking`).
//!
//! A member announces that in its heartbeats; one that has just started sends only its wall clock. The others
//! park requests that need it, as if it were dead, and send it no parts, which it could not use. As parking,
//! this is the own view of each datacenter and affects speed only.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::replica::clients::describe::Describer;
use crate::replica::effect::Report;
use crate::replica::peers::clock_skew::Clocks;
use geolock_api::names::{DcId, DcSet};

/// The reason why a datacenter does not serve. Wire type; append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum NotServing {
    /// It has just started: it is linked, and announces only its wall clock.
    Starting,
    /// It does not know if it has all of its own log.
    ReadOnly,
    /// After a restart it waits for clients to reclaim: for this many milliseconds more, as far as it knows.
    Grace { for_ms: u32 },
    /// Its clock is too far ahead of most others.
    ClockSkew,
    /// Its disk is full.
    DiskFull,
    /// Its log and that of another datacenter are two histories.
    Forked,
    /// Its log is full of entries that most others lack.
    LogFull,
    /// Its clock is too far behind most others: it holds their entries back.
    ClockBehind,
    /// A majority of the voters does not acknowledge its heartbeats, and members are evicted by time.
    Unbacked,
}

impl NotServing {
    /// Returns the reason as of now, if it was announced `age` ago.
    pub(in crate::replica) fn aged(self, age: Duration) -> NotServing {
        match self {
            NotServing::Grace { for_ms } => {
                let age = u32::try_from(age.as_millis()).unwrap_or(u32::MAX);
                NotServing::Grace { for_ms: for_ms.saturating_sub(age) }
            }
            other => other,
        }
    }
}

/// Returns true if both are the same reason; the remaining time does not matter.
pub(in crate::replica) fn is_same(a: Option<NotServing>, b: Option<NotServing>) -> bool {
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
            NotServing::ClockBehind => f.write_str("has a clock that is too far behind"),
            NotServing::Unbacked => f.write_str("is not backed by a majority of the voters"),
        }
    }
}

impl Describer<'_> {
    /// Returns the members of `all` that are reachable and do not serve, and this one if it does not.
    pub(in crate::replica) fn not_serving_of(&self, all: DcSet) -> Vec<(DcId, NotServing)> {
        let here = self
            .lifecycle
            .not_serving(self.clients.grace_left(self.config, self.now))
            .map(|why| (self.config.dc, why));
        let peers = all.intersection(self.members.peers()).iter();
        let there =
            peers.filter_map(|peer| Some((peer, self.peers.not_serving(peer, self.log, self.now.mono)?)));
        here.into_iter().chain(there).collect()
    }
}

impl Clocks<'_> {
    /// Reports the changed state of reachable peers to the operator.
    pub(in crate::replica) fn report_serving(&mut self, changed: DcSet) {
        for peer in changed.iter() {
            let why = self.peers.reachability.not_serving(peer, self.now.mono);
            self.out.report(Report::PeerServes { peer, why });
        }
    }
}
