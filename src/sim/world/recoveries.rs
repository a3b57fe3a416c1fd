//! A majority of the members is lost at once, and an operator lets the others go on by force.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::membership::{Command, Config};
use crate::replica::Event;
use crate::sim::world::losses::clients_are_over;
use crate::sim::world::members::ASK_AGAIN;
use crate::sim::world::{Action, Driver, World};
use geolock_api::names::{DcId, DcSet};

impl World {
    /// Plans when a majority is lost.
    pub(super) fn plan_disaster(&mut self, seed: u64) {
        if self.plan.recovers {
            let mut rng = Rng::new(seed, 42);
            let at = self.now + rng.duration(self.plan.trouble / 8, self.plan.trouble / 2);
            self.queue.push(at, Action::Disaster { lost: usize::from(self.plan.losses) });
        }
    }

    /// So many members are lost for good, with their disks. Mostly the survivors were cut off from each other
    /// before, so each has entries that the others lack.
    pub(super) fn on_disaster(&mut self, lost: usize) {
        if self.control.isolated.is_empty() && self.chance.members.percent(70) {
            return self.cut_survivors_off(lost);
        }
        let mut members: Vec<DcId> = self.members().iter().collect();
        let mut gone = DcSet::EMPTY;
        for _ in 0..lost {
            let place = self.chance.members.below(members.len() as u64) as usize;
            gone.insert(members.swap_remove(place));
        }
        self.control.is_lost = true;
        for dc in gone.iter() {
            self.crash(dc);
            self.trace.line(self.now, dc, || "is lost for good, with a majority".to_owned());
            self.nodes[dc.index()].is_gone = true;
            self.control.lost.insert(dc);
            self.control.lost_at.insert(dc, self.now);
            self.drop_clients_of(dc);
        }
        for dc in self.members().iter() {
            for _ in 0..2 {
                self.spawn_client(dc, Driver::Random);
            }
        }
        let clients = clients_are_over(self.plan.load.ttl.1);
        let after = clients + self.chance.members.duration(Duration::ZERO, Duration::from_secs(2));
        self.queue.push(self.now + after, Action::Recover { lost: gone });
    }

    /// Cuts pairs of members off from each other, in both directions or one, mostly until the survivors are
    /// asked to go on.
    fn cut_survivors_off(&mut self, lost: usize) {
        let members: Vec<DcId> = self.members().iter().collect();
        for from in &members {
            for to in members.iter().filter(|to| *to != from) {
                if self.chance.members.percent(50) {
                    let most = self.plan.load.ttl.1;
                    let lasts = self.chance.members.duration(Duration::from_millis(500), 4 * most);
                    self.cut_for(*from, *to, lasts);
                    self.control.isolated.insert(*from);
                }
            }
        }
        self.control.isolated.insert(members[0]);
        let after = self.chance.members.duration(Duration::from_millis(100), Duration::from_millis(900));
        self.queue.push(self.now + after, Action::Disaster { lost });
    }

    /// An operator asks survivors, not always the same one, until the recovery is decided.
    pub(super) fn on_recover(&mut self, lost: DcSet) {
        if !self.control.is_lost {
            return;
        }
        self.control.without_clients = self.control.without_clients.union(lost);
        let survivors = self.members();
        let running: Vec<DcId> = survivors.iter().filter(|dc| self.is_running(*dc)).collect();
        if !running.is_empty() {
            let at =
                if self.chance.members.percent(70) { 0 } else { self.chance.members.index(running.len()) };
            let plan = self.control.config.recovery_plan(survivors, lost);
            self.step(running[at], Event::Recover { plan });
        }
        self.queue.push(self.now + ASK_AGAIN / 2, Action::Recover { lost });
    }

    /// Begins a new control group with the decision of the survivors, once one of them has it on disk.
    pub(super) fn follow_recovery(&mut self) {
        if !self.control.is_lost {
            return;
        }
        let decisions = self.members().iter().find_map(|dc| {
            let replica = self.node(dc).inspect()?;
            let (compacted, decisions) = replica.decisions();
            let compacted = &self.control.decisions[..compacted.index().0 as usize];
            replica.recovered().map(|_| [compacted, decisions].concat())
        });
        let Some(decisions) = decisions else { return };
        let mut config = Config::default();
        let mut cuts = Vec::new();
        for proposal in &decisions {
            let applied = config.apply(config.index().next(), proposal);
            if let (Command::Recover(_), Ok(applied)) = (&proposal.command, applied) {
                cuts = applied.cuts;
            }
        }
        self.trace.line(self.now, "control", || format!("recovered: {:?}", decisions.last()));
        (self.control.decisions, self.control.config, self.control.is_lost) = (decisions, config, false);
        cuts.into_iter().for_each(|cut| self.on_evicted(cut));
        let index = self.control.config.index();
        self.members().iter().for_each(|dc| self.learn_soon(dc, index));
    }
}
