//! Rules that give the locks below a prefix a home, another one, or none, while locks are in use.

use crate::base::rng::Rng;
use crate::membership::{Command, Phase, Prefix, PrefixRule};
use crate::replica::Event;
use crate::sim::world::members::ASK_AGAIN;
use crate::sim::world::{Action, Phase as RunPhase, World};
use geolock_api::names::DcId;

/// The prefixes that rules are about. Some rules are about a part of the names below another one: they are
/// refused while that one has a rule.
const PREFIXES: [&str; 4] = ["hot", "cold", "cold1", "hot0"];
/// How often an operator asks for a rule that is not decided.
const ATTEMPTS: u32 = 8;

impl World {
    /// Plans when rules are set, changed and removed. Which ones they are is decided when the time comes.
    pub(super) fn plan_rules(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, 43);
        for _ in 0..self.plan.rules {
            let at = self.now + rng.duration(self.plan.trouble / 20, self.plan.trouble / 10 * 9);
            let prefix = *rng.pick(&PREFIXES);
            self.queue.push(at, Action::SetHome { prefix, wanted: None, attempts: ATTEMPTS });
        }
    }

    /// An operator wants a rule: asks a member for it, and again until it is decided.
    pub(super) fn on_set_home(&mut self, prefix: &'static str, wanted: Option<Option<DcId>>, attempts: u32) {
        if self.phase == RunPhase::Healing || attempts == 0 {
            return;
        }
        let config = &self.control.config;
        let settled = config.slots().members().filter(|(_, member)| member.phase == Phase::Settled);
        let homes: Vec<DcId> = settled.map(|(dc, _)| dc).collect();
        let members: Vec<DcId> = self.members().iter().filter(|dc| self.serves(*dc)).collect();
        let name = Prefix::new(prefix.as_bytes()).expect("a short prefix");
        let now = config.rules().get(&name).and_then(|rule| rule.home);
        if attempts < ATTEMPTS && wanted == Some(now) {
            self.tally.rules += 1;
            return;
        }
        let others: Vec<Option<DcId>> =
            homes.into_iter().map(Some).chain([None]).filter(|home| *home != now).collect();
        if others.is_empty() {
            return;
        }
        let still = wanted.filter(|home| others.contains(home));
        let home = still.unwrap_or_else(|| *self.chance.members.pick(&others));
        let command = match home {
            Some(_) => Command::SetRule { prefix: name, rule: PrefixRule { home, operator_evicts: false } },
            None => Command::RemoveRule { prefix: name },
        };
        if !members.is_empty() {
            let asked = *self.chance.members.pick(&members);
            self.step(asked, Event::Propose { command: Box::new(command) });
        }
        self.queue.push(
            self.now + ASK_AGAIN,
            Action::SetHome { prefix, wanted: Some(home), attempts: attempts - 1 },
        );
    }
}
