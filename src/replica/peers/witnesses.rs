//! Witnesses, as a member hears them: voters without data.
//!
//! A witness is sent heartbeats and decisions, and no entries, so the log knows nothing of its link. It tells
//! which members it hears; that is no path for entries, so it counts only where somebody is to be evicted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::time::Instant;
use crate::membership::Config;
use geolock_api::names::{DcId, DcSet};

/// The witnesses that are heard.
#[derive(Default)]
pub(in crate::replica) struct Witnesses {
    linked: DcSet,
    rows: BTreeMap<DcId, Row>,
}

struct Row {
    heard_at: Instant,
    /// The members that it hears, and when it heard them.
    hears: Vec<(DcId, Instant)>,
}

impl Witnesses {
    /// Returns the witnesses with a link.
    #[inline]
    pub fn linked(&self) -> DcSet {
        self.linked
    }

    pub fn link_up(&mut self, witness: DcId) {
        self.linked.insert(witness);
    }

    /// Returns true if this was a link to a witness.
    pub fn link_down(&mut self, witness: DcId) -> bool {
        let was_linked = self.linked.contains(witness);
        self.linked.remove(witness);
        was_linked
    }

    /// A witness tells which members it hears, and how many milliseconds ago it heard them.
    pub fn note_hears(&mut self, witness: DcId, hears: &[(DcId, u32)], now: Instant) {
        let at = |age_ms: u32| now - Duration::from_millis(u64::from(age_ms));
        let hears = hears.iter().map(|(dc, age_ms)| (*dc, at(*age_ms))).collect();
        self.rows.insert(witness, Row { heard_at: now, hears });
    }

    /// Only these are witnesses.
    pub fn retain(&mut self, config: &Config) {
        self.rows.retain(|dc, _| config.witnesses().at(*dc).is_some());
    }

    /// Returns the witnesses that were heard within this time.
    pub fn alive(&self, now: Instant, within: Duration) -> DcSet {
        self.rows.iter().filter(|(_, row)| row.heard_at + within >= now).map(|(dc, _)| *dc).collect()
    }

    /// Returns how long ago each witness heard each member that it hears: witness, member and time.
    pub fn heard(&self, now: Instant) -> impl Iterator<Item = (DcId, DcId, Duration)> {
        let of = move |(witness, row): (&DcId, &Row)| {
            let witness = *witness;
            let ago = move |(dc, at): &(DcId, Instant)| (witness, *dc, now.saturating_since(*at));
            row.hears.iter().map(ago).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of)
    }

    /// Returns the members that some witness heard within this time.
    pub fn hear(&self, now: Instant, within: Duration) -> DcSet {
        self.heard(now).filter(|(.., ago)| *ago <= within).map(|(_, dc, _)| dc).collect()
    }
}
