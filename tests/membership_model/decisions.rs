//! The list of decisions of the control group: totally ordered, each checked against the state that all
//! before it make. A majority and a leader are not modelled: any proposal may be decided, late, twice or not.

use std::collections::BTreeMap;

use geolock_api::names::{DcId, DcSet};

use crate::bugs::Bug;
use crate::slots::{BySlot, Generation, Seq, Vector, slots};

/// Number of a decision; the config of that number is the state after it. The number of a decision that
/// changes the members is an epoch.
pub type Number = usize;
/// Identifies a data directory.
pub type ServerId = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The slot was never given out.
    Free,
    /// Admitted. Its part may still go with that of the sponsor.
    Joining,
    Member,
    Leaving,
    /// The generation is over.
    Over,
}

/// A slot, as the control group knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    pub generation: Generation,
    pub phase: Phase,
    pub server: ServerId,
    /// Epoch of the admission, and the sponsor; of founders 0 and the slot itself.
    pub admitted: Number,
    pub sponsor: DcId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Admit {
        slot: DcId,
        server: ServerId,
        sponsor: DcId,
    },
    /// These members are to end. The cuts of those in `again` are made anew: they ended last, and not all
    /// have entered that.
    Begin {
        ending: DcSet,
        again: DcSet,
    },
    /// A member promised to take nothing more of them, and has this.
    Have {
        attempt: Number,
        slot: DcId,
        generation: Generation,
        vector: Vector,
    },
    Abort {
        attempt: Number,
    },
    End {
        attempt: Number,
    },
    Settled {
        slot: DcId,
        generation: Generation,
    },
    Leaving {
        slot: DcId,
        generation: Generation,
    },
    Left {
        slot: DcId,
        generation: Generation,
        cut: Seq,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    pub command: Command,
    /// The epoch that it was checked against.
    pub checked: Number,
}

/// An attempt to end members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub number: Number,
    pub ending: DcSet,
    /// Members that ended before; their cuts are made anew.
    pub again: DcSet,
    pub reports: BySlot<Option<Vector>>,
}

impl Attempt {
    /// Returns the members of whom nothing more is taken.
    pub fn frozen(&self) -> DcSet {
        self.ending.union(self.again)
    }
}

/// A change of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Admit(DcId),
    /// These ended at their cuts; true if they were evicted.
    End(DcSet, bool),
}

/// The state after a decision.
#[derive(Clone, Debug)]
pub struct Config {
    pub number: Number,
    /// Number of the last decision that changed the members, and of the one before that.
    pub epoch: Number,
    pub last_epoch: Number,
    /// The change, if this decision is one.
    pub change: Option<Change>,
    pub slots: BySlot<Slot>,
    pub attempt: Option<Attempt>,
    /// The members whose end not all may have entered: ends since the last admission.
    pub ended_last: DcSet,
    /// The last entry that counts, of each generation that is over.
    pub cuts: BTreeMap<(DcId, Generation), Seq>,
}

impl Config {
    pub fn initial(founders: DcSet, servers: BySlot<ServerId>) -> Config {
        let slot = |slot: DcId| {
            let (generation, phase) =
                if founders.contains(slot) { (1, Phase::Member) } else { (0, Phase::Free) };
            Slot { generation, phase, server: servers[slot], admitted: 0, sponsor: slot }
        };
        Config {
            number: 0,
            epoch: 0,
            last_epoch: 0,
            change: None,
            slots: BySlot(std::array::from_fn(|index| slot(crate::slots::slot(index)))),
            attempt: None,
            ended_last: DcSet::EMPTY,
            cuts: BTreeMap::new(),
        }
    }

    fn in_phase(&self, is: impl Fn(Phase) -> bool) -> DcSet {
        slots().filter(|slot| is(self.slots[*slot].phase)).collect()
    }

    pub fn members(&self) -> DcSet {
        self.in_phase(|phase| !matches!(phase, Phase::Free | Phase::Over))
    }

    /// Returns the members that stay.
    pub fn staying(&self) -> DcSet {
        self.in_phase(|phase| matches!(phase, Phase::Joining | Phase::Member))
    }

    pub fn unsettled(&self) -> DcSet {
        self.in_phase(|phase| phase == Phase::Joining)
    }

    /// Returns the unsettled joiners that one of the members sponsors.
    pub fn unsettled_of(&self, sponsors: DcSet) -> DcSet {
        self.unsettled().iter().filter(|joiner| sponsors.contains(self.slots[*joiner].sponsor)).collect()
    }

    pub fn is_member(&self, slot: DcId, generation: Generation) -> bool {
        self.slots[slot].generation == generation && self.members().contains(slot)
    }

    /// Returns true if a generation of a slot has ended.
    pub fn is_over(&self, slot: DcId, generation: Generation) -> bool {
        let known = &self.slots[slot];
        known.generation > generation || known.generation == generation && known.phase == Phase::Over
    }

    /// Returns true if an entry lies beyond the cut of its generation.
    pub fn is_beyond_cut(&self, slot: DcId, seq: Seq) -> bool {
        self.cuts.get(&(slot, seq.generation())).is_some_and(|cut| seq > *cut)
    }

    /// Returns the members that must have reported before the attempt can end.
    pub fn reporters(&self, ending: DcSet) -> DcSet {
        self.members().difference(ending)
    }

    /// Returns the state after one more decision, or `None` if the proposal is void.
    pub fn decide(&self, proposal: &Proposal, bug: Option<Bug>) -> Option<Config> {
        if proposal.checked != self.epoch && bug != Some(Bug::NoCompareAndSet) {
            return None;
        }
        let mut next = Config { number: self.number + 1, change: None, ..self.clone() };
        match proposal.command {
            Command::Admit { slot, server, sponsor } => next.admit(slot, server, sponsor, bug)?,
            Command::Begin { ending, again } => next.begin(ending, again, bug)?,
            Command::Have { attempt, slot, generation, vector } => {
                let is_member = next.is_member(slot, generation);
                let attempt = next.attempt.as_mut().filter(|it| it.number == attempt)?;
                let is_new = is_member && !attempt.ending.contains(slot) && attempt.reports[slot].is_none();
                is_new.then(|| attempt.reports[slot] = Some(vector))?;
            }
            Command::Abort { attempt } => {
                next.attempt.take().filter(|it| it.number == attempt)?;
            }
            Command::End { attempt } => next.end(attempt, bug)?,
            Command::Settled { slot, generation } => {
                let known = &mut next.slots[slot];
                let is_joining = known.generation == generation && known.phase == Phase::Joining;
                is_joining.then(|| known.phase = Phase::Member)?;
            }
            Command::Leaving { slot, generation } => next.leaving(slot, generation, bug)?,
            Command::Left { slot, generation, cut } => next.left(slot, generation, cut)?,
        }
        if next.change.is_some() {
            next.last_epoch = self.epoch;
            next.epoch = next.number;
        }
        Some(next)
    }

    /// A server is admitted once: one that was evicted may not know it, whatever it is told of its next
    /// admission.
    fn admit(&mut self, slot: DcId, server: ServerId, sponsor: DcId, bug: Option<Bug>) -> Option<()> {
        let last = &self.slots[slot];
        let is_vacant = match last.phase {
            Phase::Free => true,
            Phase::Over => last.server != server || bug == Some(Bug::ServerAdmittedTwice),
            _ => false,
        };
        if !is_vacant || self.slots[sponsor].phase != Phase::Member || self.attempt.is_some() {
            return None;
        }
        let generation = self.slots[slot].generation + 1;
        self.slots[slot] = Slot { generation, phase: Phase::Joining, server, admitted: self.number, sponsor };
        self.ended_last = DcSet::EMPTY;
        self.change = Some(Change::Admit(slot));
        Some(())
    }

    fn begin(&mut self, ending: DcSet, again: DcSet, bug: Option<Bug>) -> Option<()> {
        let members = self.members();
        let has_joiners = ending.is_superset(self.unsettled_of(ending)) || bug == Some(Bug::JoinerLeftBehind);
        let somebody_stays = !self.staying().difference(ending).is_empty() || bug == Some(Bug::NobodyStays);
        let may = !ending.is_empty()
            && members.is_superset(ending)
            && members != ending
            && has_joiners
            && somebody_stays
            && self.ended_last.is_superset(again)
            && self.attempt.is_none();
        let (number, reports) = (self.number, BySlot::default());
        may.then(|| self.attempt = Some(Attempt { number, ending, again, reports }))
    }

    fn end(&mut self, attempt: Number, bug: Option<Bug>) -> Option<()> {
        let attempt = self.attempt.take().filter(|it| it.number == attempt)?;
        let missing = self.reporters(attempt.ending).iter().filter(|slot| attempt.reports[*slot].is_none());
        let allowed = if bug == Some(Bug::CutFromMost) { 1 } else { 0 };
        if missing.count() > allowed {
            return None;
        }
        let renewed = if bug == Some(Bug::OldCutStays) { attempt.ending } else { attempt.frozen() };
        for slot in renewed.iter() {
            let reported = attempt.reports.0.iter().flatten().map(|vector| vector[slot]);
            let cut = reported.max().unwrap_or_default();
            self.cuts.insert((slot, self.slots[slot].generation), cut);
            self.slots[slot].phase = Phase::Over;
        }
        self.ended_last = attempt.frozen();
        self.change = Some(Change::End(attempt.ending, true));
        Some(())
    }

    fn leaving(&mut self, slot: DcId, generation: Generation, bug: Option<Bug>) -> Option<()> {
        let is_member = self.slots[slot].generation == generation && self.slots[slot].phase == Phase::Member;
        let ending = self.attempt.as_ref().map_or(DcSet::EMPTY, |attempt| attempt.ending);
        let stay = self.staying().difference(DcSet::only(slot)).difference(ending);
        let somebody_stays = !stay.is_empty() || bug == Some(Bug::NobodyStays);
        (is_member && somebody_stays).then(|| self.slots[slot].phase = Phase::Leaving)
    }

    fn left(&mut self, slot: DcId, generation: Generation, cut: Seq) -> Option<()> {
        let is_leaving =
            self.slots[slot].generation == generation && self.slots[slot].phase == Phase::Leaving;
        if !is_leaving || self.attempt.is_some() {
            return None;
        }
        self.slots[slot].phase = Phase::Over;
        self.cuts.insert((slot, generation), cut);
        self.ended_last = DcSet::only(slot);
        self.change = Some(Change::End(DcSet::only(slot), false));
        Some(())
    }
}
