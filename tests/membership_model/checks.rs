//! Invariants, checked whenever a site applies a record, and after every decision.

use geolock_api::names::DcId;

use crate::decisions::{Change, Command, Proposal};
use crate::parts::Move;
use crate::slots::{LOCKS, slots};
use crate::world::{Hold, World};

/// The kind of a broken invariant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// An entry breaks a rule at a site that applies it.
    Fault,
    /// A member applied an entry beyond a cut, or entered an end without its cut.
    Cut,
    /// Two members believe that they own a part.
    TwoOwners,
    /// Two sites that applied the same entries disagree.
    Disagree,
    /// A part is given to a joiner that does not live yet.
    HeldUp,
    /// A holder lost a part that its grant stands on.
    HolderLosesPart,
    /// Two hold a lock in conflict.
    Conflict,
    /// A number was used for two entries.
    NumberTwice,
    /// An entry that counts, of a member that left properly or is there, is not everywhere.
    Lost,
    /// Faults are over, and something never ends.
    Stuck,
}

/// A broken invariant.
#[derive(Clone, Debug)]
pub struct Broken {
    pub kind: Kind,
    pub text: String,
}

impl Broken {
    pub fn new(kind: Kind, text: String) -> Broken {
        Broken { kind, text }
    }
}

impl World {
    /// Checks all that a record at one site could have broken.
    pub fn check(&mut self, site: DcId) -> Result<(), Broken> {
        self.check_agreement(site)?;
        if !self.is_current(site) {
            return Ok(());
        }
        self.check_cuts(site)?;
        for lock in 0..LOCKS {
            self.check_owner(site, lock)?;
            self.check_holder(site, lock)?;
        }
        Ok(())
    }

    /// Sites that applied the same entries have the same owners.
    fn check_agreement(&mut self, site: DcId) -> Result<(), Broken> {
        let it = self.site(site);
        // Numbers of own entries that are not durable may be used again after a crash.
        if it.now.generation.is_none() || it.now.applied[site] != it.durable.applied[site] {
            return Ok(());
        }
        let (vector, summary) = (it.now.applied, it.now.summary());
        let known = self.seen_vectors.entry(vector).or_insert_with(|| summary.clone());
        if *known == summary {
            return Ok(());
        }
        Err(Broken::new(Kind::Disagree, format!("{site}: {summary:?}\nothers: {known:?}")))
    }

    fn check_cuts(&self, site: DcId) -> Result<(), Broken> {
        let state = self.now(site);
        for ((slot, generation), cut) in &self.latest().cuts {
            let applied = state.applied[*slot];
            let is_entered = self.configs[state.entered].is_over(*slot, *generation);
            let is_later = applied.generation() > *generation;
            let has_more = applied.generation() == *generation && applied > *cut;
            if has_more || is_entered && !is_later && applied != *cut {
                let text = format!("{site} has {applied} of {slot}, whose cut is {cut}");
                return Err(Broken::new(Kind::Cut, text));
            }
        }
        Ok(())
    }

    /// No other member believes that it owns a part that this site believes to own.
    fn check_owner(&self, site: DcId, lock: usize) -> Result<(), Broken> {
        let latest = self.latest();
        let mine = self.now(site).parts.parts_of(lock, site).intersection(latest.members());
        for other in slots().filter(|other| *other != site && self.is_current(*other)) {
            let theirs = self.now(other).parts.parts_of(lock, other);
            for part in mine.intersection(theirs).iter() {
                let generation = |at: DcId| self.configs[self.now(at).entered].slots[part].generation;
                let meant = latest.slots[part].generation;
                let has_left = self.now(site).has_left() || self.now(other).has_left();
                if generation(site) == meant && generation(other) == meant && !has_left {
                    let text = format!("part {part} of lock {lock}: {site} and {other}");
                    return Err(Broken::new(Kind::TwoOwners, text));
                }
            }
        }
        Ok(())
    }

    /// No part goes to a joiner that is not known to live: nobody could get it back.
    pub fn check_targets(&self, site: DcId, moves: &[Move]) -> Result<(), Broken> {
        let state = self.now(site);
        let admitted = |slot: DcId| self.configs[state.entered].slots[slot].admitted;
        let lives = |slot: DcId| slot == site || state.seen[slot] >= admitted(slot);
        match moves.iter().find(|part_move| !lives(part_move.to)) {
            Some(part_move) => Err(Broken::new(Kind::HeldUp, format!("{site}: {part_move:?}"))),
            None => Ok(()),
        }
    }

    /// A holder keeps the parts that its grant stands on.
    fn check_holder(&self, site: DcId, lock: usize) -> Result<(), Broken> {
        let (hold, state) = (self.site(site).holds[lock], self.now(site));
        let has_parts = match hold {
            Hold::Free => true,
            Hold::Shared => state.parts.owner(lock, site) == site,
            Hold::Exclusive => state.parts.parts_of(lock, site) == state.members(),
        };
        if has_parts {
            return Ok(());
        }
        Err(Broken::new(Kind::HolderLosesPart, format!("{site}, lock {lock}, {hold:?}")))
    }

    /// Called when a client of a site begins to hold a lock. Holders at an evicted member are excused: the
    /// operator said that there are none, or is to blame.
    pub fn check_grant(&mut self, site: DcId, lock: usize) -> Result<(), Broken> {
        let conflicts = |hold: Hold| match self.site(site).holds[lock] {
            Hold::Free => false,
            Hold::Shared => hold == Hold::Exclusive,
            Hold::Exclusive => hold != Hold::Free,
        };
        let others = slots().filter(|other| *other != site && conflicts(self.site(*other).holds[lock]));
        let others: Vec<DcId> = others.collect();
        for other in others {
            if self.is_current(site) && self.is_current(other) {
                let hold = self.site(site).holds[lock];
                let text =
                    format!("lock {lock}: {site} {hold:?}, {other} {:?}", self.site(other).holds[lock]);
                return Err(Broken::new(Kind::Conflict, text));
            }
            self.counts.conflicts_excused += 1;
        }
        Ok(())
    }

    pub fn check_decision(&mut self, proposal: &Proposal) -> Result<(), Broken> {
        let latest = self.latest().clone();
        let before = &self.configs[latest.number - 1].cuts;
        let lowered = before.iter().filter(|(slot, cut)| latest.cuts[*slot] < **cut).count();
        self.counts.lowered += lowered;
        match (proposal.command, latest.change) {
            (Command::Admit { .. }, Some(Change::Admit(slot))) => {
                self.counts.joins += 1;
                self.counts.returns += usize::from(latest.slots[slot].generation > 1);
            }
            (Command::Left { slot, cut, .. }, _) => {
                self.counts.leaves += 1;
                let appended = self.site(slot).durable.applied[slot];
                if self.site(slot).durable.generation == Some(cut.generation()) && appended != cut {
                    let text = format!("{slot} left at {cut} and wrote {appended}");
                    return Err(Broken::new(Kind::Lost, text));
                }
            }
            (Command::End { .. }, Some(Change::End(over, _))) => {
                self.counts.evictions += over.len();
                self.counts.evicted_two += usize::from(over.len() > 1);
                for slot in over.iter() {
                    let it = self.site(slot);
                    let lives = it.up && it.now.generation == Some(latest.slots[slot].generation);
                    let is_orphaned = lives && latest.is_beyond_cut(slot, it.durable.applied[slot]);
                    self.counts.evicted_living += usize::from(lives);
                    self.counts.orphans += usize::from(is_orphaned);
                }
            }
            (Command::Abort { .. }, _) => self.counts.aborts += 1,
            _ => {}
        }
        slots().filter(|slot| self.is_current(*slot)).try_for_each(|slot| self.check_cuts(slot))
    }
}
