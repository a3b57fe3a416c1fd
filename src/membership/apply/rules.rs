//! Rules of prefixes.

use super::Effect;
use crate::membership::config::Config;
use crate::membership::refused::Refused;
use crate::membership::rules::{MAX_RULES, Prefix, PrefixRule};

impl Config {
    pub(super) fn set_rule(&mut self, prefix: &Prefix, rule: &PrefixRule) -> Result<Effect, Refused> {
        if *rule == PrefixRule::default() {
            return Err(Refused::EmptyRule { prefix: prefix.clone() });
        }
        if let Some(home) = rule.home.filter(|home| self.member(*home).is_none()) {
            return Err(Refused::HomeNotMember { prefix: prefix.clone(), home });
        }
        if let Some(other) = self.rules.overlapping(prefix) {
            return Err(Refused::RuleOverlaps { prefix: prefix.clone(), other: other.clone() });
        }
        match self.rules.get(prefix) {
            Some(now) if now == rule => return Err(Refused::NoChange { what: "the rule" }),
            None if self.rules.len() >= MAX_RULES => return Err(Refused::TooManyRules),
            _ => self.rules.set(prefix.clone(), *rule),
        }
        Ok(Effect::Changed)
    }

    pub(super) fn remove_rule(&mut self, prefix: &Prefix) -> Result<Effect, Refused> {
        match self.rules.remove(prefix) {
            Some(_) => Ok(Effect::Changed),
            None => Err(Refused::NoRule { prefix: prefix.clone() }),
        }
    }
}
