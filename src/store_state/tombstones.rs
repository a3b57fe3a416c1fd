//! Tombstones and lifetimes of a key: the ends that late operations may still be concurrent with, and how
//! long the key lives.
//!
//! A key ends when a client removes it, or when it expires: its time is over, or its value is done. Both
//! remove the present value and later changes of a transaction that had not seen the end
//! (`docs/algorithm/log.md#32-ends-of-keys`). They differ in their effect on a key that was created again
//! after *another*, concurrent end:
//!
//! - A removal is a client's wish, and takes the new key away, too: no update survives that had not seen the
//!   removal.
//! - An expiry is housekeeping, which several datacenters may do for each other while they cannot talk. So it
//!   only ends the key that it was about. Every operation has a *generation*: the number of ends, one after
//!   the other, that it comes after. Only the highest generation of a key counts, and two expiries that saw
//!   the same ends make the same generation. So a key that was made anew after one of them stays when the
//!   other arrives.
//!
//! Both rules depend only on what operations have seen, so the result is the same in every causal order in
//! which a replica applies them. Ends that every further commit has seen (causal stability: Baquero, Almeida,
//! Shoker, *Making operation-based CRDTs operation-based*, 2014) are compacted, and most keys have none at
//! all.

use std::cmp::max;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::base::time::{TimeToLive, Timestamp};
use crate::causal_log::Action;
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Dot};

/// Tombstones and lifetimes of a key; empty for most keys.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Tombstones(Option<Box<Kept>>);

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
struct Kept {
    /// The generation that every further operation has at least.
    base: u64,
    /// Ordered by commit, so by datacenter.
    ends: SmallVec<[End; 1]>,
    /// Removals by clients, ordered by commit, except those that another removal has seen.
    removals: SmallVec<[Dot; 1]>,
    /// Ordered by datacenter, at most one each.
    lifetimes: SmallVec<[Lifetime; 1]>,
}

/// An end of the key, and the least generation of an operation that has seen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct End {
    dot: Dot,
    generation: u64,
    /// The highest generation of this end and the earlier ones of the same datacenter.
    #[serde(skip)]
    highest: u64,
}

/// The least time that one datacenter wants the key to live. The clocks decide which of two lifetimes counts,
/// and so which datacenter writes the end. They do not decide when: each datacenter counts the time from when
/// it applied the wish (`docs/algorithm/log.md#33-expiry`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Lifetime {
    /// The commit with this wish.
    pub dot: Dot,
    /// The stamp of that commit.
    pub stamp: Timestamp,
    pub ttl: TimeToLive,
}

impl Lifetime {
    /// Returns the end by its maker's clock, in milliseconds since the Unix epoch.
    pub fn ends_at(&self) -> u64 {
        self.stamp.millis() + self.ttl.millis()
    }

    fn rank(&self) -> (u64, Dot) {
        (self.ends_at(), self.dot)
    }
}

/// The effect of a change on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The change is applied.
    In,
    /// The change has no effect, because it belongs to a key that has ended.
    Out,
    /// The change ends the key.
    Ends,
}

impl Tombstones {
    /// Applies a change to the tombstones and lifetimes. The caller applies the returned effect to the value.
    pub fn apply(&mut self, action: &Action, at: &At<'_>) -> Fate {
        if let (None, Action::Update(_)) = (&self.0, action) {
            return Fate::In;
        }
        let kept = self.0.get_or_insert_default();
        let generation = kept.generation_of(at);
        let fate = match action {
            Action::Update(_) | Action::Expire(_) if !kept.lets_in(generation, at) => Fate::Out,
            Action::Update(_) => Fate::In,
            Action::Expire(ttl) => {
                kept.live(Lifetime { dot: at.dot, stamp: at.stamp, ttl: *ttl });
                Fate::In
            }
            Action::Remove => {
                kept.remove(at);
                kept.end(at.dot, generation + 1);
                Fate::Ends
            }
            Action::Expired if kept.end(at.dot, generation + 1) => Fate::Ends,
            Action::Expired => Fate::Out,
        };
        if fate == Fate::Ends {
            kept.lifetimes.clear();
        }
        self.forget_if_empty();
        fate
    }

    /// Returns true if an update belongs to the present key, and not to one that has ended.
    pub fn lets_in(&self, at: &At<'_>) -> bool {
        self.0.as_ref().is_none_or(|kept| kept.lets_in(kept.generation_of(at), at))
    }

    /// Drops everything that only commits could need that have not seen `stable`: there will be none any
    /// more.
    pub fn compact(&mut self, stable: &VersionVector) {
        if let Some(kept) = &mut self.0 {
            kept.compact(stable);
            self.forget_if_empty();
        }
    }

    fn forget_if_empty(&mut self) {
        self.0.take_if(|kept| **kept == Kept::default());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if an end of the key is known.
    #[cfg(test)]
    pub fn has_ends(&self) -> bool {
        self.0.as_ref().is_some_and(|kept| !kept.ends.is_empty() || !kept.removals.is_empty())
    }

    /// Returns the lifetimes that the datacenters want, at most one each.
    pub fn lifetimes(&self) -> &[Lifetime] {
        self.0.as_ref().map_or(&[], |kept| &kept.lifetimes)
    }

    /// Returns the lifetime that counts; its datacenter writes the end.
    pub fn standing(&self) -> Option<&Lifetime> {
        self.lifetimes().iter().max_by_key(|lifetime| lifetime.rank())
    }
}

impl Kept {
    /// Returns the generation of an operation: the number of ends, one after the other, that it comes after.
    fn generation_of(&self, at: &At<'_>) -> u64 {
        let seen = self.generation_where(|ends| ends.partition_point(|end| end.dot.is_in(at.seen)));
        let own = self.ends.binary_search_by_key(&at.dot, |end| end.dot);
        own.map_or(seen, |own| max(seen, self.ends[own].generation))
    }

    /// Returns the highest generation among the first ends of each datacenter; `seen` returns how many ends
    /// count of those given. It takes few steps, however often the key ended while some datacenter was away.
    fn generation_where(&self, seen: impl Fn(&[End]) -> usize) -> u64 {
        let (mut generation, mut rest) = (self.base, &self.ends[..]);
        while let Some(first) = rest.first() {
            let (dc_ends, others) = rest.split_at(rest.partition_point(|end| end.dot.dc == first.dot.dc));
            if let Some(last) = dc_ends[..seen(dc_ends)].last() {
                generation = max(generation, last.highest);
            }
            rest = others;
        }
        generation
    }

    /// Returns the highest generation.
    fn newest(&self) -> u64 {
        self.generation_where(<[End]>::len)
    }

    /// Returns true if an operation of that generation belongs to the present key.
    fn lets_in(&self, generation: u64, at: &At<'_>) -> bool {
        generation == self.newest() && self.removals.iter().all(|dot| at.has_seen(*dot))
    }

    /// Adds an end. Returns true if it begins a new generation.
    fn end(&mut self, dot: Dot, generation: u64) -> bool {
        let is_new = generation > self.newest();
        let place = self.ends.partition_point(|end| end.dot < dot);
        let before =
            self.ends[..place].last().filter(|end| end.dot.dc == dot.dc).map_or(0, |end| end.highest);
        let end = End { dot, generation, highest: max(generation, before) };
        match self.ends.get_mut(place) {
            // It comes after the one before it in its commit, so its generation is higher.
            Some(same) if same.dot == dot => *same = end,
            _ => self.ends.insert(place, end),
        }
        debug_assert!(self.ends.is_sorted_by(|a, b| a.dot < b.dot), "ends are in order, each once");
        debug_assert!(end.highest >= end.generation, "the highest generation includes the own");
        is_new
    }

    fn remove(&mut self, at: &At<'_>) {
        self.removals.retain(|dot| !at.has_seen(*dot));
        let place = self.removals.partition_point(|dot| *dot < at.dot);
        self.removals.insert(place, at.dot);
        debug_assert!(self.removals.is_sorted_by(|a, b| a < b), "removals are in order, each once");
    }

    /// Adds a wish. One that ends earlier than the datacenter's present wish changes nothing.
    fn live(&mut self, new: Lifetime) {
        match self.lifetimes.binary_search_by_key(&new.dot.dc, |lifetime| lifetime.dot.dc) {
            Ok(place) if new.rank() > self.lifetimes[place].rank() => self.lifetimes[place] = new,
            Ok(_) => {}
            Err(place) => self.lifetimes.insert(place, new),
        }
        debug_assert!(
            self.lifetimes.is_sorted_by(|a, b| a.dot.dc < b.dot.dc),
            "one lifetime of each datacenter"
        );
    }

    fn compact(&mut self, stable: &VersionVector) {
        self.base = self.generation_where(|ends| ends.partition_point(|end| end.dot.is_in(stable)));
        self.ends.retain(|end| end.generation > self.base);
        self.removals.retain(|dot| !dot.is_in(stable));
        debug_assert!(self.base <= self.newest(), "the newest generation counts");
        if self.ends.is_empty() {
            // All further operations have the same generation, so any number will do.
            self.base = 0;
        }
    }
}

/// The encoding on disk and on the wire.
#[derive(Deserialize)]
struct Raw {
    base: u64,
    ends: SmallVec<[End; 1]>,
    removals: SmallVec<[Dot; 1]>,
    lifetimes: SmallVec<[Lifetime; 1]>,
}

impl TryFrom<Raw> for Kept {
    type Error = &'static str;

    fn try_from(raw: Raw) -> Result<Kept, &'static str> {
        let Raw { base, mut ends, removals, lifetimes } = raw;
        let is_generation = |end: &End| base < end.generation && end.generation < u64::MAX / 2;
        if !ends.is_sorted_by(|a, b| a.dot < b.dot) || !ends.iter().all(is_generation) || base > u64::MAX / 2
        {
            return Err("the ends of a key are not in order");
        }
        if !removals.is_sorted_by(|a, b| a < b) || !lifetimes.is_sorted_by(|a, b| a.dot.dc < b.dot.dc) {
            return Err("the removals or lifetimes of a key are not in order");
        }
        let mut before: Option<End> = None;
        for end in &mut ends {
            let highest =
                before.filter(|before| before.dot.dc == end.dot.dc).map_or(0, |before| before.highest);
            end.highest = max(end.generation, highest);
            before = Some(*end);
        }
        Ok(Kept { base, ends, removals, lifetimes })
    }
}
