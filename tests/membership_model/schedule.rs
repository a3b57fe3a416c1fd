//! A run: faults and changes at random; then no fault any more, and everything must come to its end.

use geolock_api::names::{DcId, DcSet};

use crate::bugs::Bug;
use crate::checks::{Broken, Kind};
use crate::decisions::{Command, Phase};
use crate::slots::{BySlot, LOCKS, SLOTS, slot, slots};
use crate::world::{Counts, Hold, World};

/// Number of operations with faults.
const TROUBLE: usize = 2_000;
/// Number of rounds in which a world without faults must come to its end.
const HEALING: usize = 400;

/// How often things happen, in percent of chances; drawn for each run.
struct Mix {
    crashes: usize,
    links: usize,
    operator: usize,
    evictions: usize,
    states: usize,
    disks: usize,
    /// Entries that a site takes late, by slot: of these slots it takes one in ten that it could.
    slow: BySlot<DcSet>,
}

/// Runs a seed.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Counts, Broken> {
    attempt(seed, bug, false).1
}

/// Runs a seed, and returns the last lines of its trace.
pub fn trace(seed: u64, bug: Option<Bug>, most: usize) -> String {
    let (world, _) = attempt(seed, bug, true);
    let lines = world.trace.unwrap_or_default();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

fn attempt(seed: u64, bug: Option<Bug>, traced: bool) -> (World, Result<Counts, Broken>) {
    let founders = (seed % SLOTS as u64) as usize + 1;
    let mut world = World::new(seed, (0..founders).map(slot).collect(), bug);
    world.trace = traced.then(Vec::new);
    let mut slow = BySlot::<DcSet>::default();
    if world.rng.percent(50) {
        for _ in 0..=world.rng.below(2) {
            slow[world.any_slot()].insert(world.any_slot());
        }
    }
    let mut draw = |from: &[usize]| world.rng.pick(from).expect("a choice");
    let mix = Mix {
        slow,
        crashes: draw(&[0, 20, 50]),
        links: draw(&[0, 40, 100]),
        operator: draw(&[50, 100]),
        evictions: draw(&[10, 40, 70]),
        states: draw(&[0, 10, 40]),
        disks: draw(&[0, 0, 10, 25]),
    };
    let result = world.trouble(&mix).and_then(|()| world.heal()).map(|()| world.counts);
    (world, result)
}

impl World {
    fn any_slot(&mut self) -> DcId {
        slot(self.rng.below(SLOTS))
    }

    fn trouble(&mut self, mix: &Mix) -> Result<(), Broken> {
        for _ in 0..TROUBLE {
            let site = self.any_slot();
            let lock = self.rng.below(LOCKS);
            match self.rng.below(100) {
                0..36 => self.deliver(site, mix)?,
                36..45 => self.sync_if_up(site)?,
                45..63 => self.act(site)?,
                63..70 => self.learn(site)?,
                70..78 => self.decide_any(true)?,
                78..84 => self.give_parts(site, lock)?,
                84..88 => self.grant(site, lock)?,
                88..91 => self.release(site, lock),
                91..94 if self.rng.percent(mix.crashes) => self.crash_or_restart(site, mix)?,
                94..95 if self.rng.percent(mix.links) => self.change_link(site),
                95..98 if self.rng.percent(mix.operator) => self.operate(mix),
                98 if self.rng.percent(mix.states) => self.take_any_state(site)?,
                99 => {
                    self.site_mut(site).now.scan();
                    self.check(site)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn sync_if_up(&mut self, site: DcId) -> Result<(), Broken> {
        if self.site(site).up { self.sync(site) } else { Ok(()) }
    }

    /// A site receives an entry: from a site that has it, or from a message that was long on its way.
    fn deliver(&mut self, site: DcId, mix: &Mix) -> Result<(), Broken> {
        if !self.messages.is_empty() && self.rng.percent(40) {
            let index = self.rng.below(self.messages.len());
            let message = self.messages[index];
            if self.rng.percent(30) {
                self.messages.swap_remove(index);
            }
            let is_slow = mix.slow[message.to].contains(message.slot) && !self.rng.percent(10);
            return match self.takes(message.to, message.slot, message.seq) {
                Some(entry) if !is_slow => self.receive(message.to, entry),
                _ => Ok(()),
            };
        }
        let mut offers = self.offers(site);
        if !self.rng.percent(10) {
            offers.retain(|(slot, _)| !mix.slow[site].contains(*slot));
        }
        match self.rng.pick(&offers).and_then(|(slot, seq)| self.takes(site, slot, seq)) {
            Some(entry) => self.receive(site, entry),
            None => Ok(()),
        }
    }

    /// Returns the entries that a site could take from others now.
    fn offers(&self, site: DcId) -> Vec<(DcId, crate::slots::Seq)> {
        let state = self.now(site);
        if !self.site(site).up || state.generation.is_none() {
            return Vec::new();
        }
        let next = slots().filter(|slot| *slot != site).map(|slot| (slot, state.next_of(self.rules(), slot)));
        let is_offered = |(slot, seq): &(DcId, crate::slots::Seq)| {
            let gives =
                |giver: DcId| giver != site && self.is_linked(site, giver) && self.has(giver, *slot, *seq);
            slots().any(gives) && self.takes(site, *slot, *seq).is_some()
        };
        next.filter(is_offered).collect()
    }

    /// A site takes one of the steps that it can take.
    fn act(&mut self, site: DcId) -> Result<(), Broken> {
        let steps = self.steps(site);
        if let Some(step) = self.rng.pick(&steps) {
            return self.take(site, step);
        }
        if self.now(site).generation.is_none() { self.take_any_state(site) } else { Ok(()) }
    }

    fn take_any_state(&mut self, site: DcId) -> Result<(), Broken> {
        let givers: Vec<DcId> = slots().filter(|giver| self.can_take_state(site, *giver)).collect();
        match self.rng.pick(&givers) {
            Some(giver) => self.take_state(site, giver),
            None => Ok(()),
        }
    }

    /// A site learns some of the decisions that it does not know.
    fn learn(&mut self, site: DcId) -> Result<(), Broken> {
        let known = self.now(site).known;
        let more = self.configs.len() - 1 - known;
        if more == 0 || !self.site(site).up {
            return Ok(());
        }
        let number = known + 1 + self.rng.below(more);
        self.note(|| format!("{site} learns up to decision {number}"));
        self.journal(site, crate::state::Record::Learn(number))
    }

    /// A proposal is decided, perhaps not for the last time, or is lost.
    fn decide_any(&mut self, faults: bool) -> Result<(), Broken> {
        if self.proposals.is_empty() {
            return Ok(());
        }
        let index = self.rng.below(self.proposals.len());
        let proposal = self.proposals[index];
        if !faults || self.rng.percent(80) {
            self.proposals.swap_remove(index);
        }
        if faults && self.rng.percent(15) { Ok(()) } else { self.decide(&proposal) }
    }

    fn crash_or_restart(&mut self, site: DcId, mix: &Mix) -> Result<(), Broken> {
        if !self.site(site).up {
            self.restart(site);
            return Ok(());
        }
        if self.rng.percent(mix.disks) && self.is_current(site) && self.somebody_is_left(site) {
            self.lose_disk(site);
            return Ok(());
        }
        let tail = self.site(site).tail.len();
        let kept = self.rng.below(tail + 1);
        self.crash(site, kept)?;
        if self.rng.percent(60) {
            self.restart(site);
        }
        Ok(())
    }

    fn change_link(&mut self, site: DcId) {
        let isolates = self.rng.percent(40);
        let other = self.any_slot();
        let breaks = self.rng.percent(50);
        for peer in slots().filter(|peer| *peer != site && (isolates || *peer == other)).collect::<Vec<_>>() {
            for (a, b) in [(site, peer), (peer, site)] {
                if breaks { self.broken_links[a].insert(b) } else { self.broken_links[a].remove(b) }
            }
        }
    }

    fn is_cut_off(&self, site: DcId) -> bool {
        !slots().any(|other| other != site && self.is_linked(site, other))
    }

    /// Somebody asks for a change of members.
    fn operate(&mut self, mix: &Mix) {
        let able: Vec<DcId> =
            slots().filter(|by| self.can_append(*by) && !self.now(*by).has_left()).collect();
        let Some(by) = self.rng.pick(&able) else { return };
        let known = self.known(by).clone();
        if let Some(attempt) = &known.attempt {
            if self.rng.percent(15) {
                self.propose(by, Command::Abort { attempt: attempt.number });
            }
            return;
        }
        let target = self.any_slot();
        let outside: Vec<DcId> = slots().filter(|slot| !known.members().contains(*slot)).collect();
        if let Some(target) = self.rng.pick(&outside).filter(|_| self.rng.percent(60)) {
            self.propose_admit(by, target);
        } else if self.rng.percent(mix.evictions) {
            let lost = self.lost(&known);
            let gone =
                slots().filter(|slot| self.is_cut_off(*slot) || lost.contains(*slot)).collect::<Vec<_>>();
            let target = self.rng.pick(&gone).unwrap_or(target);
            let mut ending = DcSet::only(target);
            if self.rng.percent(25) {
                ending.insert(self.any_slot());
            }
            self.propose_begin(by, ending.intersection(known.members()));
        } else if known.slots[target].phase == Phase::Member && self.rng.percent(40) {
            self.propose(by, Command::Leaving { slot: target, generation: known.slots[target].generation });
        }
    }

    fn propose_admit(&mut self, by: DcId, target: DcId) {
        let known = self.known(by);
        let wants = self.site(target).up && self.now(target).generation.is_none();
        let sponsors: Vec<DcId> = slots().filter(|it| known.slots[*it].phase == Phase::Member).collect();
        let may = wants && known.attempt.is_none() && self.may_change(by, known.members());
        let server = self.now(target).server;
        if let Some(sponsor) = self.rng.pick(&sponsors).filter(|_| may) {
            self.propose(by, Command::Admit { slot: target, server, sponsor });
        }
    }

    fn propose_begin(&mut self, by: DcId, ending: DcSet) {
        let known = self.known(by);
        let joiners = known.unsettled_of(ending);
        let mut ending = if self.is(Bug::JoinerLeftBehind) { ending } else { ending.union(joiners) };
        // A joiner without a state waits for every member's `Enter`, perhaps for that of one that is to end.
        if !ending.is_empty() && !self.is(Bug::StatelessJoinerStays) {
            let seen = &self.site(by).durable.seen;
            let stateless = known.unsettled().iter().filter(|slot| seen[*slot] < known.slots[*slot].admitted);
            ending = ending.union(stateless.collect());
        }
        let remaining = known.members().difference(ending);
        let all_entered = self.may_change(by, remaining);
        let again = if all_entered { DcSet::EMPTY } else { known.ended_last };
        if remaining.contains(by) && known.attempt.is_none() && (all_entered || !again.is_empty()) {
            self.propose(by, Command::Begin { ending, again });
        }
    }

    /// No faults from here on: everything that was begun ends, and every server becomes a member.
    pub fn heal(&mut self) -> Result<(), Broken> {
        self.note(|| "no more faults".to_owned());
        self.messages.clear();
        for site in slots() {
            (0..LOCKS).for_each(|lock| self.release(site, lock));
            self.broken_links[site] = DcSet::EMPTY;
            if !self.site(site).up {
                self.restart(site);
            }
            self.sync(site)?;
        }
        for _ in 0..HEALING {
            if self.is_healed() {
                return self.check_end();
            }
            let site = self.any_slot();
            self.catch_up(site)?;
            self.manage(site);
            while !self.proposals.is_empty() {
                self.decide_any(false)?;
            }
        }
        Err(Broken::new(Kind::Stuck, format!("{:?}", self.latest())))
    }

    /// A site takes all steps and entries that it can.
    pub fn catch_up(&mut self, site: DcId) -> Result<(), Broken> {
        for _ in 0..200 {
            self.learn(site)?;
            self.sync(site)?;
            let steps = self.steps(site);
            let offers = self.offers(site);
            let entry = self.rng.pick(&offers).and_then(|(slot, seq)| self.takes(site, slot, seq));
            match (self.rng.pick(&steps), entry) {
                (_, Some(entry)) => self.receive(site, entry)?,
                (Some(step), None) => self.take(site, step)?,
                (None, None) => break,
            }
            if !self.proposals.is_empty() {
                break;
            }
        }
        self.sync(site)?;
        // A state is for those who cannot get there otherwise.
        let is_behind = self.now(site).generation.is_none()
            || slots().any(|other| self.is_current(other) && !self.may_get_all(site, other));
        if is_behind { self.take_any_state(site) } else { Ok(()) }
    }

    /// Returns false if another site has an entry, next for this one, only within a state.
    fn may_get_all(&self, site: DcId, other: DcId) -> bool {
        let (state, theirs) = (self.now(site), &self.site(other).durable);
        slots().all(|slot| {
            let next = state.next_of(self.rules(), slot);
            slot == site
                || state.applied[slot] >= theirs.applied[slot]
                || slots().any(|giver| giver != site && self.has(giver, slot, next))
        })
    }

    /// The operator of a world without faults: members that lost their disks are evicted, everybody is
    /// admitted.
    fn manage(&mut self, by: DcId) {
        let known = self.known(by).clone();
        let lost = self.lost(&known);
        if !self.can_append(by) || self.now(by).has_left() {
            return;
        }
        if let Some(attempt) = &known.attempt {
            let missing =
                known.reporters(attempt.ending).iter().filter(|slot| attempt.reports[*slot].is_none());
            if missing.into_iter().any(|slot| lost.contains(slot)) {
                self.propose(by, Command::Abort { attempt: attempt.number });
            }
        } else if !lost.is_empty() {
            self.propose_begin(by, lost);
        } else if let Some(target) = slots().find(|slot| !known.members().contains(*slot)) {
            self.propose_admit(by, target);
        }
    }

    fn is_healed(&self) -> bool {
        let latest = self.latest();
        let all = slots().all(|slot| latest.slots[slot].phase == Phase::Member);
        let is_there = |slot: DcId| {
            let state = self.now(slot);
            self.is_current(slot)
                && state.known == latest.number
                && state.entered == latest.epoch
                && state.said == latest.epoch
                && self.steps(slot).is_empty()
                && self.offers(slot).is_empty()
        };
        all && latest.attempt.is_none() && slots().all(is_there)
    }

    fn check_end(&mut self) -> Result<(), Broken> {
        let first = self.now(slot(0)).clone();
        for site in slots() {
            self.check(site)?;
            let state = self.now(site);
            if state.applied != first.applied || state.summary() != first.summary() {
                return Err(Broken::new(Kind::Lost, format!("{:?}, {:?}", state.applied, first.applied)));
            }
            for lock in 0..LOCKS {
                if self.site(site).holds[lock] != Hold::Free {
                    return Err(Broken::new(Kind::Stuck, format!("{site} holds lock {lock}")));
                }
                for part in slots() {
                    let owner = state.parts.owner(lock, part);
                    if self.now(owner).parts.owner(lock, part) != owner {
                        return Err(Broken::new(Kind::Stuck, format!("nobody owns part {part} of {lock}")));
                    }
                }
            }
        }
        Ok(())
    }
}
