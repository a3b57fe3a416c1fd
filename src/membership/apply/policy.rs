//! Policies, options and the version.

use super::Effect;
use crate::membership::config::Config;
use crate::membership::ids::Index;
use crate::membership::policy::{AgreedOptions, EvictPolicy, Policy};
use crate::membership::refused::Refused;

impl Config {
    /// `auto`, and other times under `auto`, begin an epoch: nobody is evicted by silence before it has
    /// entered it, so nobody is who does not know that it has to stop granting by itself. Silence that was
    /// counted under the former policy does not count any more.
    pub(super) fn set_policy(&mut self, index: Index, policy: &Policy) -> Result<Effect, Refused> {
        policy.validate()?;
        if *policy == self.policy {
            return Err(Refused::NoChange { what: "the policy" });
        }
        self.no_attempt()?;
        let joins = Policy { join: policy.join, rejoin: policy.rejoin, ..self.policy };
        let others = *policy != joins;
        self.policy = *policy;
        if !others {
            return Ok(Effect::Changed);
        }
        self.marks.values_mut().for_each(|mark| mark.silent = false);
        if policy.evict != EvictPolicy::Auto {
            return Ok(Effect::Changed);
        }
        self.begin_epoch(index, self.voters().clone());
        self.policy_epoch = self.epoch;
        Ok(Effect::Epoch)
    }

    pub(super) fn set_options(&mut self, options: &AgreedOptions) -> Result<Effect, Refused> {
        options.validate()?;
        if *options == self.options {
            return Err(Refused::NoChange { what: "each of these options" });
        }
        self.options = *options;
        Ok(Effect::Changed)
    }

    pub(super) fn set_version(&mut self, version: u16) -> Result<Effect, Refused> {
        if version <= self.version {
            return Err(Refused::VersionNotAbove { asked: version, now: self.version });
        }
        self.version = version;
        Ok(Effect::Changed)
    }
}
