//! The state of a site, as its journal says: entries that were applied, states that were taken, promises.

use std::rc::Rc;

use geolock_api::names::{DcId, DcSet};

use crate::bugs::Bug;
use crate::decisions::{Change, Config, Number, ServerId};
use crate::parts::{Fault, Move, Parts};
use crate::slots::{BySlot, Generation, LOCKS, SLOTS, Seq, Vector, slots};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// All at once.
    Transfer(Vec<Move>),
    /// From here on the entries of this log are of this epoch.
    Enter(Number),
    Split {
        part: DcId,
        except: Vec<usize>,
    },
    /// Nothing goes along here for this joiner any more.
    Done {
        part: DcId,
    },
    /// The last entry of this log. Whatever its maker owns goes home.
    Leave,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub slot: DcId,
    pub seq: Seq,
    pub epoch: Number,
    /// The entries that its maker had applied.
    pub deps: Vector,
    pub ops: Vec<Op>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    pub attempt: Number,
    /// Nothing more is taken of these.
    pub frozen: DcSet,
    pub have: Vector,
}

/// A record of the journal.
#[derive(Clone, Debug)]
pub enum Record {
    /// The list of decisions is known up to here.
    Learn(Number),
    Entry(Rc<Entry>),
    /// The merge of a state that another site gave with the one that was here.
    Install(Box<State>),
    Promise(Promise),
}

/// All rules that a state depends on beside its own journal.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// By number: the state of the control group after each decision.
    pub configs: &'a [Config],
    pub bug: Option<Bug>,
}

#[derive(Clone, Debug)]
pub struct State {
    pub me: DcId,
    pub server: ServerId,
    /// The list of decisions is known up to here.
    pub known: Number,
    /// The generation as which this site has a log; none before it took a state.
    pub generation: Option<Generation>,
    pub applied: Vector,
    /// Entries up to here came within a state, so this site cannot pass them on one by one.
    pub base: Vector,
    pub entered: Number,
    /// The last epoch that the own log says was entered.
    pub said: Number,
    /// The last epoch that each member is known, from its log, to have entered.
    pub seen: BySlot<Number>,
    /// The last generation of each slot whose `Leave` was applied.
    pub left: BySlot<Generation>,
    /// The members that said `Done` for each joiner.
    pub done: BySlot<DcSet>,
    pub parts: Parts,
    pub promise: Option<Promise>,
}

/// Everything on which sites that applied the same entries agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    entered: Number,
    members: DcSet,
    chains: BySlot<Option<(DcId, bool)>>,
    owners: [[Option<(DcId, u32)>; SLOTS]; LOCKS],
}

impl State {
    /// Returns the state of an empty directory.
    pub fn empty(me: DcId, server: ServerId, founders: DcSet) -> State {
        State {
            me,
            server,
            known: 0,
            generation: None,
            applied: Vector::default(),
            base: Vector::default(),
            entered: 0,
            said: 0,
            seen: BySlot::default(),
            left: BySlot::default(),
            done: BySlot::default(),
            parts: Parts::new(founders),
            promise: None,
        }
    }

    pub fn members(&self) -> DcSet {
        self.parts.table.members()
    }

    /// Returns true if a generation is over here: its end was entered, or its `Leave` applied.
    pub fn is_over(&self, rules: Rules<'_>, slot: DcId, generation: Generation) -> bool {
        rules.configs[self.entered].is_over(slot, generation) || self.left[slot] >= generation
    }

    /// Returns true if this site left or ended, as its own log says.
    pub fn has_left(&self) -> bool {
        self.generation.is_some_and(|generation| self.left[self.me] >= generation)
    }

    /// Returns the number of the next entry of a slot that could be applied.
    pub fn next_of(&self, rules: Rules<'_>, slot: DcId) -> Seq {
        let own = if slot == self.me { self.generation } else { None };
        let generation = own.unwrap_or(rules.configs[self.entered].slots[slot].generation);
        self.applied[slot].next(generation.max(self.applied[slot].generation()))
    }

    /// Returns true if all of the members that are not over here have entered an epoch, as their logs say.
    pub fn all_entered(&self, rules: Rules<'_>, members: DcSet, config: &Config, epoch: Number) -> bool {
        let is_over = |slot: DcId| self.is_over(rules, slot, config.slots[slot].generation);
        members.iter().all(|slot| self.seen[slot] >= epoch || is_over(slot))
    }

    pub fn apply(&mut self, rules: Rules<'_>, record: &Record) -> Result<(), Fault> {
        match record {
            Record::Learn(number) => self.known = self.known.max(*number),
            Record::Entry(entry) => self.apply_entry(rules, entry)?,
            Record::Install(state) => *self = State::clone(state),
            Record::Promise(promise) => self.promise = Some(*promise),
        }
        Ok(())
    }

    fn apply_entry(&mut self, rules: Rules<'_>, entry: &Entry) -> Result<(), Fault> {
        self.applied[entry.slot] = entry.seq;
        for op in &entry.ops {
            match op {
                Op::Transfer(moves) => self.transfer(rules, entry, moves)?,
                Op::Enter(epoch) => self.note_entered(rules, entry.slot, *epoch)?,
                Op::Split { part, .. } | Op::Done { part } if self.is_of_old(rules, entry, *part) => {}
                Op::Split { part, except } => self.parts.split(entry.slot, *part, except, rules.bug)?,
                Op::Done { part } => self.done[*part].insert(entry.slot),
                Op::Leave => {
                    self.left[entry.slot] = entry.seq.generation();
                    self.parts.table.remove(DcSet::only(entry.slot));
                }
            }
        }
        self.settle(rules)
    }

    /// Returns true if the member that an entry means is over here. Its slot may be in use again.
    fn is_of_old(&self, rules: Rules<'_>, entry: &Entry, slot: DcId) -> bool {
        let meant = rules.configs[entry.epoch].slots[slot].generation;
        self.is_over(rules, slot, meant) && rules.bug != Some(Bug::OldWordsCount)
    }

    fn transfer(&mut self, rules: Rules<'_>, entry: &Entry, moves: &[Move]) -> Result<(), Fault> {
        let then = &rules.configs[entry.epoch];
        let gone = then.members().iter();
        let gone = gone.filter(|slot| self.is_over(rules, *slot, then.slots[*slot].generation)).collect();
        if rules.bug == Some(Bug::StaysBehind) {
            self.parts.leave_behind(moves, then.members());
        }
        self.parts.transfer(entry.slot, moves, gone, rules.bug)
    }

    /// The `Enter` of a member. The own one changes the members here, unless a state brought the change.
    fn note_entered(&mut self, rules: Rules<'_>, slot: DcId, epoch: Number) -> Result<(), Fault> {
        if slot == self.me {
            self.said = epoch;
            let again = rules.bug == Some(Bug::EnterAppliedTwice);
            if epoch > self.entered || again {
                self.enter(rules, epoch)?;
            }
        }
        self.seen[slot] = self.seen[slot].max(epoch);
        Ok(())
    }

    fn enter(&mut self, rules: Rules<'_>, epoch: Number) -> Result<(), Fault> {
        let first = (self.entered + 1).min(epoch);
        self.entered = epoch;
        (first..=epoch).try_for_each(|number| self.change_members(rules, &rules.configs[number]))
    }

    fn change_members(&mut self, rules: Rules<'_>, config: &Config) -> Result<(), Fault> {
        match config.change {
            None => {}
            Some(Change::Admit(member)) => {
                self.seen[member] = 0;
                self.done[member] = DcSet::EMPTY;
                self.parts.admit(member, config.slots[member].sponsor, rules.bug);
            }
            Some(Change::End(over, _)) => {
                self.parts.table.remove(over);
                for member in self.members().iter() {
                    let sponsor = self.parts.table.sponsor(member);
                    if rules.bug == Some(Bug::EndWithoutDone) && over.contains(sponsor) {
                        self.parts.settle(member, rules.bug)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends going along for joiners of which all members of that time said `Done`.
    fn settle(&mut self, rules: Rules<'_>) -> Result<(), Fault> {
        for joiner in self.members().iter() {
            if self.parts.table.sponsor(joiner) != joiner && self.is_done(rules, joiner) {
                self.parts.settle(joiner, rules.bug)?;
            }
        }
        Ok(())
    }

    /// Returns true if all who were members when a joiner was admitted said `Done`, or are over. Members that
    /// came later knew the joiner from the start.
    fn is_done(&self, rules: Rules<'_>, joiner: DcId) -> bool {
        let admitted = rules.configs[self.entered].slots[joiner].admitted;
        let Some(before) = admitted.checked_sub(1).map(|number| &rules.configs[number]) else { return false };
        let is_done = |slot: DcId| {
            self.done[joiner].contains(slot) || self.is_over(rules, slot, before.slots[slot].generation)
        };
        if rules.bug == Some(Bug::EverybodyOwesDone) {
            let all = before.members().union(rules.configs[self.entered].members());
            return all.iter().all(|slot| slot == joiner || self.done[joiner].contains(slot));
        }
        before.members().iter().all(is_done)
    }

    /// Rewrites the registers of slots that are over. Derived, so it needs no record.
    pub fn scan(&mut self) {
        for slot in slots().filter(|slot| !self.members().contains(*slot)).collect::<Vec<_>>() {
            self.parts.scan(slot);
        }
    }

    pub fn summary(&self) -> Summary {
        let members = self.members();
        let table = &self.parts.table;
        let chain = |slot: DcId| members.contains(slot).then(|| (table.sponsor(slot), table.is_split(slot)));
        let part = |lock: usize, slot: DcId| {
            let known = members.contains(slot);
            known.then(|| (self.parts.owner(lock, slot), self.parts.version(lock, slot)))
        };
        let by_slot = |index: usize| crate::slots::slot(index);
        Summary {
            entered: self.entered,
            members,
            chains: BySlot(std::array::from_fn(|index| chain(by_slot(index)))),
            owners: std::array::from_fn(|lock| std::array::from_fn(|index| part(lock, by_slot(index)))),
        }
    }
}
