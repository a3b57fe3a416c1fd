//! Marks of silence.

use super::Effect;

use crate::membership::command::Mark;
use crate::membership::config::{Config, Silence};
use crate::membership::ids::{Epoch, Voter};
use crate::membership::policy::EvictPolicy;
use crate::membership::refused::Refused;
use geolock_api::names::DcSet;

pub(super) fn silent(config: &mut Config, mark: &Mark, policy: Epoch) -> Result<Effect, Refused> {
    if config.policy.evict != EvictPolicy::Auto {
        return Err(Refused::PolicyNotAuto { members: DcSet::only(mark.of) });
    }
    if policy != config.numbers.policy_epoch {
        return Err(Refused::OldPolicy { counted: policy, policy: config.numbers.policy_epoch });
    }
    if !config.voters().voters.contains(&mark.by) || mark.by.dc() == Some(mark.of) {
        return Err(Refused::NotVoter { voter: mark.by });
    }
    state(config, mark, true)
}

/// Also for one that does not vote any more: its marks count again when it has its vote again.
pub(super) fn heard(config: &mut Config, mark: &Mark) -> Result<Effect, Refused> {
    match mark.by {
        Voter::Member { dc, generation } => drop(config.slots().current(dc, generation)?),
        Voter::Witness(id) if !config.witnesses().contains(id) => {
            return Err(Refused::NotWitness(id));
        }
        Voter::Witness(_) => {}
    }
    state(config, mark, false)
}

fn state(config: &mut Config, mark: &Mark, silent: bool) -> Result<Effect, Refused> {
    let Mark { by, of, of_generation, number } = *mark;
    config.slots().current(of, of_generation)?;
    if let Some(last) = config.silence(by, of).filter(|last| number <= last.number) {
        return Err(Refused::OldMark { of, number, last: last.number });
    }
    config.marks.insert((by, of), Silence { number, silent });
    Ok(Effect::Noted)
}
