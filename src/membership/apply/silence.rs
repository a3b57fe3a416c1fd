//! Marks of silence.

use super::Effect;
use crate::membership::command::Mark;
use crate::membership::config::{Config, Silence};
use crate::membership::ids::{Epoch, Voter};
use crate::membership::policy::EvictPolicy;
use crate::membership::refused::Refused;
use geolock_api::names::DcSet;

impl Config {
    pub(super) fn silent(&mut self, mark: &Mark, policy: Epoch) -> Result<Effect, Refused> {
        if self.policy.evict != EvictPolicy::Auto {
            return Err(Refused::PolicyNotAuto { members: DcSet::only(mark.of) });
        }
        if policy != self.policy_epoch {
            return Err(Refused::OldPolicy { counted: policy, policy: self.policy_epoch });
        }
        if !self.voters().voters.contains(&mark.by) || mark.by.dc() == Some(mark.of) {
            return Err(Refused::NotVoter { voter: mark.by });
        }
        self.state(mark, true)
    }

    /// Also for one that does not vote any more: its marks count again when it has its vote again.
    pub(super) fn heard(&mut self, mark: &Mark) -> Result<Effect, Refused> {
        match mark.by {
            Voter::Member { dc, generation } => drop(self.current(dc, generation)?),
            Voter::Witness(id) if !self.witnesses.contains_key(&id) => return Err(Refused::NotWitness(id)),
            Voter::Witness(_) => {}
        }
        self.state(mark, false)
    }

    fn state(&mut self, mark: &Mark, silent: bool) -> Result<Effect, Refused> {
        let Mark { by, of, of_generation, number } = *mark;
        self.current(of, of_generation)?;
        if let Some(last) = self.silence(by, of).filter(|last| number <= last.number) {
            return Err(Refused::OldMark { of, number, last: last.number });
        }
        self.marks.insert((by, of), Silence { number, silent });
        Ok(Effect::Noted)
    }
}
