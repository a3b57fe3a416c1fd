//! Random operations of owners and clients: parts move, clients hold locks.

use geolock_api::names::{DcId, DcSet};

use crate::bugs::Bug;
use crate::checks::Broken;
use crate::decisions::Phase;
use crate::parts::Move;
use crate::state::Op;
use crate::world::{Hold, World};

impl World {
    /// An owner gives parts of a lock to a member, or sends them home.
    pub fn give_parts(&mut self, site: DcId, lock: usize) -> Result<(), Broken> {
        let hold = self.site(site).holds[lock];
        if !self.can_append(site) || self.now(site).has_left() || hold == Hold::Exclusive {
            return Ok(());
        }
        let mut owned = self.now(site).parts.parts_of(lock, site);
        if hold == Hold::Shared {
            owned.remove(site);
        }
        let (state, known) = (self.now(site), self.known(site));
        // A request follows the `Enter` of its maker.
        let asks = |slot: &DcId| {
            let asked = &known.slots[*slot];
            *slot != site && asked.phase != Phase::Joining && state.seen[*slot] >= asked.admitted
        };
        let askers: Vec<DcId> = state.members().iter().filter(asks).collect();
        let to = self.rng.pick(&askers);
        let table = &self.now(site).parts.table;
        let has_home = |part: DcId| part != site && (table.sponsor(part) == part || table.is_split(part));
        let homes: DcSet = owned.iter().filter(|part| has_home(*part)).collect();
        let mut moves: Vec<Move> = Vec::new();
        let all = self.rng.percent(50);
        for part in owned.iter() {
            if all || self.rng.percent(60) {
                let home = self.rng.percent(30).then_some(part).filter(|home| homes.contains(*home));
                moves.extend(home.or(to).map(|to| self.next_move(site, lock, part, to)));
            }
        }
        self.name_what_goes_along(site, lock, &mut moves);
        if moves.is_empty() {
            return Ok(());
        }
        self.counts.transfers += 1;
        self.append(site, vec![Op::Transfer(moves)])
    }

    fn next_move(&self, site: DcId, lock: usize, part: DcId, to: DcId) -> Move {
        Move { lock, part, to, version: self.now(site).parts.version(lock, part) + 1 }
    }

    /// Adds the parts that would go along with others: with one of them, or home.
    fn name_what_goes_along(&mut self, site: DcId, lock: usize, moves: &mut Vec<Move>) {
        if self.is(Bug::NotNamed) {
            return;
        }
        let members = self.now(site).members();
        loop {
            let named: DcSet = moves.iter().map(|it| it.part).collect();
            let parts = &self.now(site).parts;
            let follows = |part: &DcId| {
                let sponsor = parts.table.sponsor(*part);
                sponsor != *part && named.contains(sponsor) && parts.goes_along(lock, *part)
            };
            let Some(part) = members.difference(named).iter().find(follows) else { return };
            let sponsor = self.now(site).parts.table.sponsor(part);
            let with = moves.iter().find(|it| it.part == sponsor).map_or(part, |it| it.to);
            // Before the split the joiner may not live: its part goes with the sponsor's, in so many words.
            let is_split = self.now(site).parts.table.is_split(part) || self.is(Bug::HomeBeforeSplit);
            let to = if is_split && self.rng.percent(50) { part } else { with };
            moves.insert(self.rng.below(moves.len() + 1), self.next_move(site, lock, part, to));
        }
    }

    /// A client asks for a lock, and holds it if the parts are here and nobody else is in the way. The answer
    /// waits until the parts are here durably.
    pub fn grant(&mut self, site: DcId, lock: usize) -> Result<(), Broken> {
        if !self.can_append(site) || self.now(site).has_left() {
            return Ok(());
        }
        self.sync(site)?;
        // A joiner grants nothing before it knows that it is settled.
        if self.known(site).slots[site].phase == Phase::Joining || !self.is_admitted(site) {
            return Ok(());
        }
        let state = self.now(site);
        let parts = state.parts.parts_of(lock, site);
        let has_all = parts.is_superset(state.members());
        let alone = self.rng.percent(70);
        let hold = match self.site(site).holds[lock] {
            Hold::Free if has_all && alone => Hold::Exclusive,
            Hold::Free | Hold::Shared if parts.contains(site) => Hold::Shared,
            _ => return Ok(()),
        };
        self.site_mut(site).holds[lock] = hold;
        self.counts.grants += 1;
        self.counts.grants_alone += usize::from(hold == Hold::Exclusive);
        self.note(|| format!("{site} grants lock {lock} {hold:?}"));
        self.check_grant(site, lock)
    }

    pub fn release(&mut self, site: DcId, lock: usize) {
        self.site_mut(site).holds[lock] = Hold::Free;
    }
}
