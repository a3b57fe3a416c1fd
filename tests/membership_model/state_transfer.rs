//! A site takes the state of another: a new member its first one, a member that lagged behind a later one.

use geolock_api::names::DcId;

use crate::bugs::Bug;
use crate::checks::{Broken, Kind};
use crate::slots::{covers, slots};
use crate::state::{Entry, Op, Record, State};
use crate::world::World;

impl World {
    /// Returns true if a site would take the state that another one has on its disk.
    pub fn can_take_state(&self, site: DcId, giver: DcId) -> bool {
        let (state, image) = (self.now(site), &self.site(giver).durable);
        if site == giver
            || !self.is_linked(site, giver)
            || image.generation.is_none()
            || !self.is_admitted(site)
        {
            return false;
        }
        let rules = self.rules();
        let generation = self.known(site).slots[site].generation;
        let is_ready = match state.generation {
            Some(generation) => !state.has_left() && !image.is_over(rules, site, generation),
            None => self.may_give_first(site, giver),
        };
        // One that left enters nothing any more, and may be the only one that has some entries, in a state.
        let is_of_leaver = image.has_left() && !self.is(Bug::NoStateOfLeaver);
        let lacks_nothing = covers(&image.applied, &state.base);
        is_ready
            && lacks_nothing
            && (image.entered >= state.entered || is_of_leaver)
            && !image.is_over(rules, site, generation)
            && !self.has_too_much(site, image)
    }

    /// A new member gets its state only from a site that has applied every member's `Enter` of the admission:
    /// others may have forgotten entries that only the giver and they themselves have.
    fn may_give_first(&self, site: DcId, giver: DcId) -> bool {
        let image = &self.site(giver).durable;
        let admitted = self.known(site).slots[site].admitted;
        let config = &self.configs[admitted];
        let others = config.members().iter().filter(|slot| *slot != site).collect();
        image.entered >= admitted && image.all_entered(self.rules(), others, config, admitted)
    }

    /// Returns true if a state has more of a member than a cut, or a promise, allows. The list of decisions
    /// comes with the state.
    fn has_too_much(&self, site: DcId, image: &State) -> bool {
        let state = self.now(site);
        let known = &self.configs[state.known.max(image.known)];
        let is_open = |number| known.attempt.as_ref().is_some_and(|attempt| attempt.number == number);
        let promise = state.promise.filter(|promise| is_open(promise.attempt));
        let too_much = |slot: DcId| {
            let promised = promise.is_some_and(|promise| {
                promise.frozen.contains(slot) && image.applied[slot] > promise.have[slot]
            });
            promised || known.is_beyond_cut(slot, image.applied[slot])
        };
        slots().any(too_much) && !self.is(Bug::StateBeyondCut)
    }

    /// A site takes a state, with its own entries and others that the state lacks on top.
    pub fn take_state(&mut self, site: DcId, giver: DcId) -> Result<(), Broken> {
        self.sync(site)?;
        let mine = self.site(site).durable.clone();
        let image = self.site(giver).durable.clone();
        let mut merged = State {
            me: site,
            server: mine.server,
            known: mine.known.max(image.known),
            generation: Some(self.known(site).slots[site].generation),
            base: mine.base,
            said: mine.said,
            promise: mine.promise,
            ..image
        };
        for slot in slots().filter(|slot| merged.applied[*slot] > mine.applied[*slot]).collect::<Vec<_>>() {
            merged.base[slot] = merged.applied[slot];
        }
        self.counts.states += 1;
        self.counts.merges += usize::from(mine.generation.is_some());
        self.apply_on_top(&mut merged, &mine)?;
        self.note(|| format!("{site} takes the state of {giver}: {:?} e{}", merged.applied, merged.entered));
        self.site_mut(site).took_state = true;
        self.journal(site, Record::Install(Box::new(merged)))
    }

    fn apply_on_top(&self, merged: &mut State, mine: &State) -> Result<(), Broken> {
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for slot in slots().filter(|slot| mine.applied[*slot] > merged.applied[*slot]).collect::<Vec<_>>()
            {
                let seq = merged.next_of(self.rules(), slot);
                let is_here = seq <= mine.applied[slot] && !self.configs[mine.known].is_beyond_cut(slot, seq);
                let entry = self.entries.get(&(slot, seq)).filter(|_| is_here);
                let is_entered = |it: &Entry| {
                    let enters = slot == mine.me && matches!(it.ops[..], [Op::Enter(_)]);
                    it.epoch <= merged.entered || enters
                };
                let fits = entry.filter(|it| covers(&merged.applied, &it.deps) && is_entered(it));
                let Some(entry) = fits else { continue };
                goes_on = true;
                if let Err(fault) = merged.apply(self.rules(), &Record::Entry(entry.clone())) {
                    return Err(Broken::new(Kind::Fault, format!("{fault:?} on top of a state")));
                }
            }
        }
        if covers(&merged.applied, &mine.applied) {
            return Ok(());
        }
        let text = format!("{} would forget entries: {:?}, {:?}", mine.me, mine.applied, merged.applied);
        Err(Broken::new(Kind::Lost, text))
    }
}
