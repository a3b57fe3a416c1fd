//! Policies, options and the version.

use super::{Effect, begin_epoch, no_attempt};

use crate::membership::config::Config;
use crate::membership::ids::Index;
use crate::membership::policy::{AgreedOptions, EvictPolicy, Policy};
use crate::membership::refused::Refused;

/// `auto`, and other times under `auto`, begin an epoch: no member is evicted by silence before it has
/// entered it, so each evicted member knows that it has to stop granting. Silence that was counted under the
/// former policy does not count any more.
pub(super) fn set_policy(config: &mut Config, index: Index, policy: &Policy) -> Result<Effect, Refused> {
    policy.validate()?;
    if *policy == config.policy {
        return Err(Refused::NoChange { what: "the policy" });
    }
    no_attempt(config)?;
    let joins = Policy { join: policy.join, rejoin: policy.rejoin, ..config.policy };
    let others = *policy != joins;
    config.policy = *policy;
    if !others {
        return Ok(Effect::Changed);
    }
    config.marks.values_mut().for_each(|mark| mark.silent = false);
    if policy.evict != EvictPolicy::Auto {
        return Ok(Effect::Changed);
    }
    begin_epoch(config, index, config.voters().clone());
    config.numbers.policy_epoch = config.numbers.epoch;
    Ok(Effect::Epoch)
}

pub(super) fn set_options(config: &mut Config, options: &AgreedOptions) -> Result<Effect, Refused> {
    options.validate()?;
    if *options == config.options {
        return Err(Refused::NoChange { what: "each of these options" });
    }
    config.options = *options;
    Ok(Effect::Changed)
}

pub(super) fn set_version(config: &mut Config, version: u16) -> Result<Effect, Refused> {
    if version <= config.version {
        return Err(Refused::VersionNotAbove { asked: version, now: config.version });
    }
    config.version = version;
    Ok(Effect::Changed)
}
