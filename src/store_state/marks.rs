//! What a key has beside its value: the ends that late operations may still be concurrent with, and how long it lives on.
//!
//! A key ends when a client removes it, or when it lapses: its time is over, or its value is done. Both take away what is
//! there, and what comes later from a transaction that had not seen the end; they differ in what they do to the key as it
//! was made anew by somebody who had seen *another* end of it, concurrent with this one:
//!
//! - A removal is somebody's wish, and takes that away, too: no update survives that had not seen the removal.
//! - A lapse is housekeeping, which several datacenters may do for each other while they cannot talk. So it only ends
//!   what it was about. Every operation has a *generation*: how many ends, one after the other, it comes after. Of a key
//!   only the highest generation counts, and two lapses that saw the same ends make the same one. So whoever made the key
//!   anew after one of them keeps it when the other arrives.
//!
//! Both rules look only at what operations have seen: in whatever causal order a replica applies them, the same is left.
//! What every further commit has seen (causal stability: Baquero, Almeida, Shoker, *Making operation-based CRDTs
//! operation-based*, 2014) is forgotten, and most keys have no marks at all.

use std::cmp::max;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::causal_log::Action;
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Dot};
use crate::time::{TimeToLive, Timestamp};

/// See the module.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Marks(Option<Box<Kept>>);

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
struct Kept {
    /// The generation that every further operation has at least.
    settled: u64,
    /// By commit, so by datacenter.
    ends: SmallVec<[End; 1]>,
    /// Removals by clients, by commit, but for those that another one has seen.
    removals: SmallVec<[Dot; 1]>,
    /// By datacenter, one each.
    lifetimes: SmallVec<[Lifetime; 1]>,
}

/// An end of the key, and the generation that whoever has seen it belongs to at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct End {
    dot: Dot,
    generation: u64,
    /// Of this one and those before it in its datacenter.
    #[serde(skip)]
    highest: u64,
}

/// How long one datacenter wants the key to live, at least. Which of two stands depends on clocks, and with that who sees
/// to the end; when that is does not: each datacenter counts for itself from when it applied the wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Lifetime {
    /// The commit that wants it.
    pub dot: Dot,
    /// Of that commit.
    pub stamp: Timestamp,
    pub ttl: TimeToLive,
}

impl Lifetime {
    /// By its maker's clock, in milliseconds since the Unix epoch.
    pub fn ends_at(&self) -> u64 {
        self.stamp.millis() + self.ttl.millis()
    }

    fn rank(&self) -> (u64, Dot) {
        (self.ends_at(), self.dot)
    }
}

/// What a change may do to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// What it says.
    In,
    /// Nothing: it is of a key that has ended.
    Out,
    /// It ends the key.
    Ends,
}

impl Marks {
    /// Applies what a change does to the marks; the value has to follow.
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
            Action::Lapse if kept.end(at.dot, generation + 1) => Fate::Ends,
            Action::Lapse => Fate::Out,
        };
        if fate == Fate::Ends {
            kept.lifetimes.clear();
        }
        self.forget_if_empty();
        fate
    }

    /// Whether an update would be one of the key as it is now, and not of one that has ended.
    pub fn lets_in(&self, at: &At<'_>) -> bool {
        self.0.as_ref().is_none_or(|kept| kept.lets_in(kept.generation_of(at), at))
    }

    /// Forgets what only commits that have not seen `stable` could need: there will be none any more.
    pub fn settle(&mut self, stable: &VersionVector) {
        if let Some(kept) = &mut self.0 {
            kept.settle(stable);
            self.forget_if_empty();
        }
    }

    fn forget_if_empty(&mut self) {
        self.0.take_if(|kept| **kept == Kept::default());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the key is known to have ended.
    #[cfg(test)]
    pub fn has_ends(&self) -> bool {
        self.0.as_ref().is_some_and(|kept| !kept.ends.is_empty() || !kept.removals.is_empty())
    }

    /// How long it is to live, as each datacenter wants it that does.
    pub fn lifetimes(&self) -> &[Lifetime] {
        self.0.as_ref().map_or(&[], |kept| &kept.lifetimes)
    }

    /// The lifetime whose datacenter sees to the end.
    pub fn standing(&self) -> Option<&Lifetime> {
        self.lifetimes().iter().max_by_key(|lifetime| lifetime.rank())
    }
}

impl Kept {
    /// How many ends, one after the other, an operation comes after.
    fn generation_of(&self, at: &At<'_>) -> u64 {
        let seen = self.generation_where(|ends| ends.partition_point(|end| end.dot.is_in(at.seen)));
        let own = self.ends.binary_search_by_key(&at.dot, |end| end.dot);
        own.map_or(seen, |own| max(seen, self.ends[own].generation))
    }

    /// The highest among the first ends of each datacenter, as many as `seen` says of all that it has. However often a
    /// key ended while some datacenter was away, this takes few steps.
    fn generation_where(&self, seen: impl Fn(&[End]) -> usize) -> u64 {
        let (mut generation, mut rest) = (self.settled, &self.ends[..]);
        while let Some(first) = rest.first() {
            let (dc_ends, others) = rest.split_at(rest.partition_point(|end| end.dot.dc == first.dot.dc));
            if let Some(last) = dc_ends[..seen(dc_ends)].last() {
                generation = max(generation, last.highest);
            }
            rest = others;
        }
        generation
    }

    /// The highest that there is.
    fn newest(&self) -> u64 {
        self.generation_where(<[End]>::len)
    }

    /// Whether an operation of that generation is one on the key as it is now.
    fn lets_in(&self, generation: u64, at: &At<'_>) -> bool {
        generation == self.newest() && self.removals.iter().all(|dot| at.has_seen(*dot))
    }

    /// Notes an end; whether it leads to a new generation.
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
        is_new
    }

    fn remove(&mut self, at: &At<'_>) {
        self.removals.retain(|dot| !at.has_seen(*dot));
        let place = self.removals.partition_point(|dot| *dot < at.dot);
        self.removals.insert(place, at.dot);
    }

    /// Sooner than was asked before changes nothing.
    fn live(&mut self, new: Lifetime) {
        match self.lifetimes.binary_search_by_key(&new.dot.dc, |lifetime| lifetime.dot.dc) {
            Ok(place) if new.rank() > self.lifetimes[place].rank() => self.lifetimes[place] = new,
            Ok(_) => {}
            Err(place) => self.lifetimes.insert(place, new),
        }
    }

    fn settle(&mut self, stable: &VersionVector) {
        self.settled = self.generation_where(|ends| ends.partition_point(|end| end.dot.is_in(stable)));
        self.ends.retain(|end| end.generation > self.settled);
        self.removals.retain(|dot| !dot.is_in(stable));
        if self.ends.is_empty() {
            // All that comes has the same: any number will do.
            self.settled = 0;
        }
    }
}

/// As it was written, by a disk or a peer.
#[derive(Deserialize)]
struct Raw {
    settled: u64,
    ends: SmallVec<[End; 1]>,
    removals: SmallVec<[Dot; 1]>,
    lifetimes: SmallVec<[Lifetime; 1]>,
}

impl TryFrom<Raw> for Kept {
    type Error = &'static str;

    fn try_from(raw: Raw) -> Result<Kept, &'static str> {
        let Raw { settled, mut ends, removals, lifetimes } = raw;
        let is_generation = |end: &End| settled < end.generation && end.generation < u64::MAX / 2;
        if !ends.is_sorted_by(|a, b| a.dot < b.dot)
            || !ends.iter().all(is_generation)
            || settled > u64::MAX / 2
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
        Ok(Kept { settled, ends, removals, lifetimes })
    }
}
