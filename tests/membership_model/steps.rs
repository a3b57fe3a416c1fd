//! The protocol: the steps that a site takes by itself when their conditions hold.

use geolock_api::names::{DcId, DcSet};

use crate::bugs::Bug;
use crate::checks::Broken;
use crate::decisions::{Attempt, Change, Command, Number, Phase};
use crate::parts::Move;
use crate::slots::{LOCKS, slots};
use crate::state::{Op, Promise, Record};
use crate::world::{Hold, World};

/// A step that a site can take now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The site knows that its generation is over.
    Stop,
    Enter(Number),
    /// Says in the own log that the epoch was entered which a state brought.
    Announce,
    Split(DcId),
    Done(DcId),
    Settled(DcId),
    Promise,
    Report,
    End(Number),
    Leave,
    Left(DcId),
    /// [`Bug::ExitsEarly`].
    Exit,
}

impl World {
    /// Returns the steps that a site can take.
    pub fn steps(&self, site: DcId) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.site(site).up {
            return steps;
        }
        let (state, known) = (self.now(site), self.known(site));
        let ended_before = known.slots[site].server == state.server && known.slots[site].phase == Phase::Over;
        if state.generation.is_some_and(|generation| known.is_over(site, generation)) || ended_before {
            return vec![Step::Stop];
        }
        if let Some(attempt) = &known.attempt
            && self.is_admitted(site)
        {
            steps.extend(self.attempt_steps(site, attempt));
        }
        if state.generation.is_none() {
            return steps;
        }
        steps.extend(self.enterable(site).map(Step::Enter));
        if state.has_left() {
            steps.extend(self.may_exit_early(site).then_some(Step::Exit));
            return steps;
        }
        if state.said < state.entered {
            let repeats = !self.is(Bug::EnterNotRepeated) || self.site(site).took_state;
            steps.extend(repeats.then_some(Step::Announce));
            return steps;
        }
        for part in state.members().iter().filter(|part| *part != site) {
            steps.extend(self.can_split(site, part).then_some(Step::Split(part)));
            steps.extend(self.can_say_done(site, part).then_some(Step::Done(part)));
        }
        steps.extend(slots().filter(|slot| self.can_propose_left(site, *slot)).map(Step::Left));
        steps.extend(slots().filter(|joiner| self.can_settle(site, *joiner)).map(Step::Settled));
        steps.extend(self.can_leave(site).then_some(Step::Leave));
        steps
    }

    pub fn take(&mut self, site: DcId, step: Step) -> Result<(), Broken> {
        self.note(|| format!("{site}: {step:?}"));
        match step {
            Step::Stop | Step::Exit => self.wipe(site),
            Step::Enter(epoch) => self.append(site, vec![Op::Enter(epoch)])?,
            Step::Announce => self.append(site, vec![Op::Enter(self.now(site).entered)])?,
            Step::Split(part) => self.split(site, part)?,
            Step::Done(part) => self.say_done(site, part)?,
            Step::Settled(joiner) => {
                let generation = self.known(site).slots[joiner].generation;
                self.propose(site, Command::Settled { slot: joiner, generation });
            }
            Step::Promise => {
                let attempt = self.known(site).attempt.as_ref().expect("an attempt under way");
                let have = self.now(site).applied;
                let frozen = if self.is(Bug::OldCutNotFrozen) { attempt.ending } else { attempt.frozen() };
                let promise = Promise { attempt: attempt.number, frozen, have };
                self.journal(site, Record::Promise(promise))?;
            }
            Step::Report => {
                let promise = self.now(site).promise.expect("it promised");
                let generation = self.known(site).slots[site].generation;
                let (attempt, vector) = (promise.attempt, promise.have);
                self.propose(site, Command::Have { attempt, slot: site, generation, vector });
            }
            Step::End(attempt) => self.propose(site, Command::End { attempt }),
            Step::Leave => self.append(site, vec![Op::Leave])?,
            Step::Left(slot) => {
                let generation = self.known(site).slots[slot].generation;
                let cut = self.site(site).durable.applied[slot];
                self.propose(site, Command::Left { slot, generation, cut });
            }
        }
        Ok(())
    }

    /// Returns true if this server was admitted, as far as it knows, and did not end.
    pub fn is_admitted(&self, site: DcId) -> bool {
        let slot = &self.known(site).slots[site];
        let is_it = slot.server == self.now(site).server || self.is(Bug::AdmissionBySlot);
        is_it && !matches!(slot.phase, Phase::Free | Phase::Over)
    }

    /// Returns true if a site may append entries of its own.
    pub fn can_append(&self, site: DcId) -> bool {
        let state = self.now(site);
        let is_over = |generation| {
            self.known(site).is_over(site, generation) || state.is_over(self.rules(), site, generation)
        };
        self.site(site).up
            && state.generation.is_some_and(|generation| !is_over(generation))
            && state.said >= state.entered
    }

    fn attempt_steps(&self, site: DcId, attempt: &Attempt) -> Option<Step> {
        if !attempt.ending.contains(site) {
            let promised = |promise: Option<Promise>| promise.is_some_and(|it| it.attempt == attempt.number);
            let it = self.site(site);
            if !promised(it.now.promise) {
                return Some(Step::Promise);
            }
            let is_durable = promised(it.durable.promise) || self.is(Bug::PromiseForgotten);
            if is_durable && attempt.reports[site].is_none() {
                return Some(Step::Report);
            }
        }
        let missing = self.known(site).reporters(attempt.ending).iter();
        let missing = missing.filter(|slot| attempt.reports[*slot].is_none()).count();
        let is_complete = missing <= usize::from(self.is(Bug::CutFromMost));
        is_complete.then_some(Step::End(attempt.number))
    }

    /// Returns the epoch that a site can enter now. An attempt may have begun over an end that not all could
    /// enter; then a site enters both ends at once.
    fn enterable(&self, site: DcId) -> Option<Number> {
        let state = self.now(site);
        if state.has_left() && !self.is(Bug::EntersAfterLeave) {
            return None;
        }
        let changes =
            || (state.entered + 1..=state.known).filter(|number| self.configs[*number].change.is_some());
        let first = changes().next()?;
        if let Some(Change::Admit(_)) = self.configs[first].change {
            return Some(first);
        }
        let is_end = |number: &Number| matches!(self.configs[*number].change, Some(Change::End(..)));
        changes().take_while(is_end).find(|epoch| self.can_enter_ends(site, *epoch))
    }

    /// Returns true if a site can enter all ends up to an epoch.
    fn can_enter_ends(&self, site: DcId, epoch: Number) -> bool {
        let (state, config) = (self.now(site), &self.configs[epoch]);
        let over = self.configs[state.entered].members().difference(config.members());
        let has_cut = |slot: DcId| {
            let generation = config.slots[slot].generation;
            config.cuts.get(&(slot, generation)).is_some_and(|cut| state.applied[slot] == *cut)
        };
        let has_cuts = over.iter().all(has_cut) || self.is(Bug::EntersWithoutTheCut);
        let settled = config.members().difference(config.unsettled()).intersection(state.members());
        let none_goes_along = settled.iter().all(|part| state.parts.table.sponsor(part) == part);
        let others_did = state.all_entered(self.rules(), config.members(), config, state.entered);
        config.members().contains(site)
            && has_cuts
            && (none_goes_along || self.is(Bug::EndWithoutDone))
            && (others_did || self.is(Bug::EntersBeforeOthersDid))
    }

    /// Returns true if the sponsor sees the joiner live.
    fn can_split(&self, site: DcId, part: DcId) -> bool {
        let state = self.now(site);
        let admitted = self.configs[state.entered].slots[part].admitted;
        let table = &state.parts.table;
        table.sponsor(part) == site && !table.is_split(part) && state.seen[part] >= admitted
    }

    fn split(&mut self, site: DcId, part: DcId) -> Result<(), Broken> {
        let mut except = Vec::new();
        for lock in 0..LOCKS {
            let used = self.site(site).holds[lock] == Hold::Exclusive && !self.is(Bug::NoExceptions)
                || self.rng.percent(25);
            let parts = &self.now(site).parts;
            let is_here = parts.goes_along(lock, part) && parts.owner(lock, part) == site;
            if used && (is_here || self.is(Bug::ExceptWhatIsAway)) {
                except.push(lock);
            }
        }
        self.append(site, vec![Op::Split { part, except }])
    }

    fn can_say_done(&self, site: DcId, part: DcId) -> bool {
        let state = self.now(site);
        let admitted = self.configs[state.entered].slots[part].admitted;
        if admitted == 0 || state.done[part].contains(site) || !state.parts.table.is_split(part) {
            return false;
        }
        let (before, after) = (&self.configs[admitted - 1], &self.configs[admitted]);
        let own = state.generation.expect("a site with a log");
        let owes = before.is_member(site, own) || self.is(Bug::EverybodyOwesDone);
        owes && state.all_entered(self.rules(), after.members(), after, admitted)
    }

    /// Names all parts that go along here: idle ones go home, those of locks that are held are written out.
    fn say_done(&mut self, site: DcId, part: DcId) -> Result<(), Broken> {
        let it = self.site(site);
        let parts = &it.now.parts;
        let named =
            (0..LOCKS).filter(|lock| parts.goes_along(*lock, part) && parts.owner(*lock, part) == site);
        let moves: Vec<Move> = named
            .map(|lock| {
                let to = if it.holds[lock] == Hold::Exclusive { site } else { part };
                Move { lock, part, to, version: 1 }
            })
            .collect();
        let transfer = (!moves.is_empty()).then_some(Op::Transfer(moves));
        self.append(site, transfer.into_iter().chain([Op::Done { part }]).collect())
    }

    /// Returns true if a site may propose that a joiner is settled: it itself, once it has all `Done`
    /// durably.
    fn can_settle(&self, site: DcId, joiner: DcId) -> bool {
        let known = &self.known(site).slots[joiner];
        if known.phase != Phase::Joining {
            return false;
        }
        let it = self.site(site);
        if self.is(Bug::SettledBySponsor) {
            let is_done = |state: &crate::state::State| {
                state.members().contains(joiner) && state.parts.table.sponsor(joiner) == joiner
            };
            return known.sponsor == site && is_done(&it.durable);
        }
        let has_log = it.durable.generation == Some(known.generation);
        site == joiner && has_log && it.durable.parts.table.sponsor(site) == site
    }

    fn can_leave(&self, site: DcId) -> bool {
        let (state, known) = (self.now(site), self.known(site));
        let table = &state.parts.table;
        let is_idle = self.site(site).holds.iter().all(|hold| *hold == Hold::Free);
        let sponsors_none = state.members().iter().all(|part| part == site || table.sponsor(part) != site)
            && known.unsettled_of(DcSet::only(site)).is_empty();
        let all_entered = state.entered == known.epoch
            && state.all_entered(self.rules(), state.members(), known, known.epoch);
        known.slots[site].phase == Phase::Leaving
            && is_idle
            && (sponsors_none || self.is(Bug::EndWithoutDone))
            && (all_entered || self.is(Bug::LeavesUnseen))
    }

    fn all_have_left_entry(&self, slot: DcId) -> bool {
        let leave = self.site(slot).durable.applied[slot];
        self.known(slot).members().iter().all(|other| self.site(other).durable.applied[slot] >= leave)
    }

    fn may_exit_early(&self, site: DcId) -> bool {
        self.is(Bug::ExitsEarly) && self.site(site).durable.has_left() && self.all_have_left_entry(site)
    }

    /// Returns true if a site sees that all changes so far were entered by all who remain.
    pub fn may_change(&self, site: DcId, remaining: DcSet) -> bool {
        let (state, known) = (&self.site(site).durable, self.known(site));
        let all =
            state.entered == known.epoch && state.all_entered(self.rules(), remaining, known, known.epoch);
        all || self.is(Bug::SeveralChangesAtOnce)
    }

    /// Returns true if a site sees that a leaving member is not needed any more.
    fn can_propose_left(&self, site: DcId, slot: DcId) -> bool {
        let (state, known) = (&self.site(site).durable, self.known(site));
        let leaving = &known.slots[slot];
        if leaving.phase != Phase::Leaving || state.left[slot] < leaving.generation {
            return false;
        }
        let others = known.members().difference(DcSet::only(slot));
        let cut = state.applied[slot];
        let all_have_it = others.iter().all(|other| self.site(other).durable.applied[slot] >= cut);
        all_have_it && self.may_change(site, others)
    }
}
