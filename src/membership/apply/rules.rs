//! Rules of prefixes.

use super::Effect;

use crate::membership::config::Config;
use crate::membership::refused::Refused;
use crate::membership::rules::{MAX_RULES, Prefix, PrefixRule};

pub(super) fn set_rule(config: &mut Config, prefix: &Prefix, rule: &PrefixRule) -> Result<Effect, Refused> {
    if *rule == PrefixRule::default() {
        return Err(Refused::EmptyRule { prefix: prefix.clone() });
    }
    if let Some(home) = rule.home.filter(|home| config.slots().member(*home).is_none()) {
        return Err(Refused::HomeNotMember { prefix: prefix.clone(), home });
    }
    if let Some(other) = config.rules.overlapping(prefix) {
        return Err(Refused::RuleOverlaps { prefix: prefix.clone(), other: other.clone() });
    }
    match config.rules.get(prefix) {
        Some(now) if now == rule => return Err(Refused::NoChange { what: "the rule" }),
        None if config.rules.len() >= MAX_RULES => return Err(Refused::TooManyRules),
        _ => config.rules.set(prefix.clone(), *rule),
    }
    Ok(Effect::Changed)
}

pub(super) fn remove_rule(config: &mut Config, prefix: &Prefix) -> Result<Effect, Refused> {
    match config.rules.remove(prefix) {
        Some(_) => Ok(Effect::Changed),
        None => Err(Refused::NoRule { prefix: prefix.clone() }),
    }
}
