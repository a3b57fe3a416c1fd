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
    /// The version of the last link to each: the highest that it and this member speak.
    versions: BTreeMap<DcId, u16>,
    rows: BTreeMap<DcId, Row>,
}

struct Row {
    heard_at: Instant,
    /// The members that it hears, and when it heard them last.
    hears: BTreeMap<DcId, Instant>,
}

impl Witnesses {
    /// Returns the witnesses with a link, also those that were removed and may not know that.
    #[inline]
    pub fn linked(&self) -> DcSet {
        self.linked
    }

    /// Returns the witnesses with a link that were not removed.
    pub fn voting(&self, config: &Config) -> DcSet {
        self.linked.difference(config.witnesses().past_dcs())
    }

    pub fn link_up(&mut self, witness: DcId, version: u16) {
        self.linked.insert(witness);
        self.versions.insert(witness, version);
    }

    /// Returns the version of the last link to a witness, if there was one in this run.
    pub fn version(&self, witness: DcId) -> Option<u16> {
        self.versions.get(&witness).copied()
    }

    /// Returns true if this was a link to a witness.
    pub fn link_down(&mut self, witness: DcId) -> bool {
        let was_linked = self.linked.contains(witness);
        self.linked.remove(witness);
        was_linked
    }

    /// A witness tells which members it hears, and how long ago it heard them. Only these are members; a
    /// message may name any datacenter, any number of times.
    pub fn note_hears(
        &mut self,
        witness: DcId,
        hears: impl Iterator<Item = (DcId, Duration)>,
        members: DcSet,
        now: Instant,
    ) {
        let row = self.rows.entry(witness).or_insert_with(|| Row { heard_at: now, hears: BTreeMap::new() });
        row.heard_at = now;
        row.hears.clear();
        for (dc, age) in hears.filter(|(dc, _)| members.contains(*dc)) {
            let latest = row.hears.entry(dc).or_insert(now - age);
            *latest = (now - age).max(*latest);
        }
        debug_assert!(row.hears.len() <= members.len(), "at most one row for each of {members:?}");
    }

    /// Only these are witnesses.
    pub fn retain(&mut self, config: &Config) {
        self.rows.retain(|dc, _| config.witnesses().at(*dc).is_some());
    }

    /// Returns the witnesses that were heard within this time.
    pub fn alive(&self, now: Instant, within: Duration) -> DcSet {
        self.rows.iter().filter(|(_, row)| row.heard_at + within >= now).map(|(dc, _)| *dc).collect()
    }

    /// Returns when a witness was heard last, in this run.
    pub fn last_heard(&self, witness: DcId) -> Option<Instant> {
        self.rows.get(&witness).map(|row| row.heard_at)
    }

    /// Returns how long ago each witness heard each member that it hears: witness, member and time.
    pub fn heard(&self, now: Instant) -> impl Iterator<Item = (DcId, DcId, Duration)> {
        let of = move |(witness, row): (&DcId, &Row)| {
            let witness = *witness;
            let ago = move |(dc, at): (&DcId, &Instant)| (witness, *dc, now.saturating_since(*at));
            row.hears.iter().map(ago).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of)
    }

    /// Returns the members that some witness heard within this time.
    pub fn hear(&self, now: Instant, within: Duration) -> DcSet {
        self.heard(now).filter(|(.., ago)| *ago <= within).map(|(_, dc, _)| dc).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    #[test]
    fn what_a_witness_hears_is_bounded_by_the_members() {
        let (members, now) = ([dc(0), dc(1)].into_iter().collect(), Instant::ZERO + Duration::from_secs(9));
        let mut witnesses = Witnesses::default();
        let ago = Duration::from_millis;
        let told = (0..64).cycle().zip(100..).take(5_000).map(|(id, ms)| (dc(id), ago(ms)));
        witnesses.note_hears(dc(9), told, members, now);
        let heard =
            |witnesses: &Witnesses| witnesses.heard(now).map(|(_, dc, ago)| (dc, ago)).collect::<Vec<_>>();
        assert_eq!(heard(&witnesses), [(dc(0), ago(100)), (dc(1), ago(101))], "when it heard them last");
        witnesses.note_hears(dc(9), [(dc(1), ago(7))].into_iter(), members, now);
        assert_eq!(heard(&witnesses), [(dc(1), ago(7))]);
    }
}
