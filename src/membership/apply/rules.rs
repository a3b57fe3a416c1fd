//! Rules of prefixes.

use super::{Effect, begin_epoch, no_attempt};

use crate::membership::config::Config;
use crate::membership::ids::Index;
use crate::membership::refused::Refused;
use crate::membership::rules::{MAX_RULES, Prefix, PrefixRule};
use crate::membership::slot::Phase;
use geolock_api::names::DcId;

pub(super) fn set_rule(
    config: &mut Config,
    index: Index,
    prefix: &Prefix,
    rule: &PrefixRule,
) -> Result<Effect, Refused> {
    if *rule == PrefixRule::default() {
        return Err(Refused::EmptyRule { prefix: prefix.clone() });
    }
    rule.home.map_or(Ok(()), |home| can_be_home(config, prefix, home))?;
    if let Some(other) = config.rules.overlapping(prefix) {
        return Err(Refused::RuleOverlaps { prefix: prefix.clone(), other: other.clone() });
    }
    let now = config.rules.get(prefix).copied();
    if now == Some(*rule) {
        return Err(Refused::NoChange { what: "the rule" });
    }
    if now.is_none() && config.rules.len() >= MAX_RULES {
        return Err(Refused::TooManyRules);
    }
    let effect = change_home(config, index, now.and_then(|now| now.home), rule.home)?;
    config.rules.set(prefix.clone(), *rule);
    Ok(effect)
}

pub(super) fn remove_rule(config: &mut Config, index: Index, prefix: &Prefix) -> Result<Effect, Refused> {
    let Some(rule) = config.rules.get(prefix).copied() else {
        return Err(Refused::NoRule { prefix: prefix.clone() });
    };
    let effect = change_home(config, index, rule.home, None)?;
    config.rules.remove(prefix);
    Ok(effect)
}

fn can_be_home(config: &Config, prefix: &Prefix, home: DcId) -> Result<(), Refused> {
    match config.slots().member(home).map(|member| member.phase) {
        None => Err(Refused::HomeNotMember { prefix: prefix.clone(), home }),
        Some(Phase::Joining) => Err(Refused::MemberJoins { dc: home }),
        Some(Phase::Leaving) => Err(Refused::MemberLeaves { dc: home }),
        Some(Phase::Settled) => Ok(()),
    }
}

/// Another home begins an epoch: every member gives, in its own log, what it owns by the former one. Nobody
/// joins or leaves meanwhile.
fn change_home(
    config: &mut Config,
    index: Index,
    from: Option<DcId>,
    to: Option<DcId>,
) -> Result<Effect, Refused> {
    if from == to {
        return Ok(Effect::Changed);
    }
    no_attempt(config)?;
    let in_phase = |phase| config.slots().members().find(|(_, member)| member.phase == phase);
    if let Some((dc, _)) = in_phase(Phase::Joining) {
        return Err(Refused::MemberJoins { dc });
    }
    if let Some((dc, _)) = in_phase(Phase::Leaving) {
        return Err(Refused::MemberLeaves { dc });
    }
    begin_epoch(config, index, config.voters().clone());
    Ok(Effect::Epoch)
}
