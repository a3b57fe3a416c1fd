//! `[[hold]]`: hold policies by prefix of lock names (`docs/algorithm/ownership.md#26-hold-policies`).

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::assemble::HOUR;
use super::error::ConfigError;
use super::options::Options;
use super::sources::{Given, Quoted, Sources, parse_within};
use crate::lock_state::{HoldPolicy, HoldRule, IDLE_RETURN_AFTER, MAX_REQUEST_DELAY, MAX_TURN};
use geolock_api::names::MAX_LOCK_NAME;

const DAY: Duration = Duration::from_secs(24 * 3600);
const MAX_RULES: usize = 1000;
const POLICIES: &str = "fair, throughput, latency, adaptive or fixed";

/// One rule as written. `examples/geolock.toml` documents its options.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct HoldEntry {
    pub prefix: String,
    pub policy: Option<String>,
    pub turn: Option<u32>,
    pub min_keep: Option<String>,
    pub max_keep: Option<String>,
    pub request_delay: Option<String>,
    pub idle_return_after: Option<String>,
}

impl FromStr for HoldEntry {
    type Err = &'static str;

    /// Parses from the right, so that a prefix may contain colons.
    fn from_str(text: &str) -> Result<HoldEntry, &'static str> {
        const FORMS: &str = "a rule is PREFIX:POLICY, PREFIX:adaptive:TURN:MAX_KEEP or PREFIX:MIN_KEEP:MAX_KEEP:REQUEST_DELAY";
        let (prefix, last) = text.rsplit_once(':').ok_or(FORMS)?;
        if named(last).is_some() {
            let policy = Some(last.to_owned());
            return Ok(HoldEntry { prefix: prefix.into(), policy, ..HoldEntry::default() });
        }
        let (prefix, second) = prefix.rsplit_once(':').ok_or(FORMS)?;
        let (prefix, first) = prefix.rsplit_once(':').ok_or(FORMS)?;
        let entry = HoldEntry { prefix: prefix.into(), ..HoldEntry::default() };
        if first == "adaptive" {
            let turn = second.parse().map_err(|_| "TURN is a whole number: how many hand-overs long")?;
            let (policy, max_keep) = (Some(first.to_owned()), Some(last.to_owned()));
            return Ok(HoldEntry { policy, turn: Some(turn), max_keep, ..entry });
        }
        let (min_keep, max_keep) = (Some(first.to_owned()), Some(second.to_owned()));
        Ok(HoldEntry { min_keep, max_keep, request_delay: Some(last.to_owned()), ..entry })
    }
}

/// Returns the policy of that name, before the options of the rule are applied.
fn named(name: &str) -> Option<HoldPolicy> {
    match name {
        "fair" | "adaptive" => Some(HoldPolicy::FAIR),
        "throughput" => Some(HoldPolicy::THROUGHPUT),
        "latency" => Some(HoldPolicy::LATENCY),
        "fixed" => Some(HoldPolicy::FIXED),
        _ => None,
    }
}

/// Returns the given rules, and the default rule unless one of them applies to all names.
pub(super) fn hold(from: &Sources<'_>) -> Result<Vec<HoldRule>, ConfigError> {
    let given = from.list("hold", |o: &Options| &o.hold);
    if given.value.len() > MAX_RULES {
        return Err(given.refuse(format!("{} rules", given.value.len()), format!("at most {MAX_RULES}")));
    }
    let mut prefixes = BTreeSet::new();
    let mut rules = Vec::new();
    for option in given.value {
        if !prefixes.insert(&option.prefix) {
            return Err(given.refuse(Quoted(&option.prefix), "two rules have this prefix"));
        }
        rules.push(hold_rule(&given, option)?);
    }
    if !rules.iter().any(|rule| rule.prefix.is_empty()) {
        rules.push(HoldRule::default());
    }
    Ok(rules)
}

fn hold_rule(given: &Given<&[HoldEntry]>, option: &HoldEntry) -> Result<HoldRule, ConfigError> {
    if option.prefix.len() > MAX_LOCK_NAME {
        let allowed = format!("a prefix has at most {MAX_LOCK_NAME} bytes");
        return Err(given.refuse(format!("{} bytes", option.prefix.len()), allowed));
    }
    let delays = Duration::ZERO..=MAX_REQUEST_DELAY;
    let request_delay = read(given, "hold.request_delay", &option.request_delay, Duration::ZERO, delays)?;
    let homes = Duration::from_secs(1)..=DAY * 365;
    let idle_return_after =
        read(given, "hold.idle_return_after", &option.idle_return_after, IDLE_RETURN_AFTER, homes)?;
    let prefix = option.prefix.clone().into_bytes();
    Ok(HoldRule { prefix, policy: policy(given, option)?, request_delay, idle_return_after })
}

/// A rule with times and without a policy is fixed; `turn` without a policy means adaptive.
fn policy(given: &Given<&[HoldEntry]>, option: &HoldEntry) -> Result<HoldPolicy, ConfigError> {
    let has_times = option.min_keep.is_some() || option.max_keep.is_some();
    let name = match &option.policy {
        Some(name) => name,
        None if has_times => "fixed",
        None if option.turn.is_some() => "adaptive",
        None => return Ok(HoldPolicy::default()),
    };
    let at = |key| Given { key, place: given.place.clone(), value: () };
    let policy = named(name).ok_or_else(|| at("hold.policy").refuse(Quoted(name), POLICIES))?;
    match policy {
        HoldPolicy::Fixed { min_keep, max_keep } => {
            if let Some(turn) = option.turn {
                return Err(at("hold.turn").refuse(turn, "the fixed policy has none"));
            }
            let min_keep = read(given, "hold.min_keep", &option.min_keep, min_keep, Duration::ZERO..=HOUR)?;
            // With a long `min_keep` the default would be out of bounds; then it grows with `min_keep`.
            let max_keep =
                read(given, "hold.max_keep", &option.max_keep, max_keep.max(min_keep), min_keep..=HOUR)?;
            Ok(HoldPolicy::Fixed { min_keep, max_keep })
        }
        HoldPolicy::Adaptive { turn, max_keep } => {
            if let Some(min_keep) = &option.min_keep {
                return Err(at("hold.min_keep").refuse(Quoted(min_keep), "only the fixed policy has it"));
            }
            let turn = option.turn.unwrap_or(turn);
            if turn > MAX_TURN {
                return Err(at("hold.turn").refuse(turn, format!("0 to {MAX_TURN}")));
            }
            if name != "adaptive" && (has_times || option.turn.is_some()) {
                let allowed = "says turn and max_keep itself: with those the policy is adaptive";
                return Err(at("hold.policy").refuse(Quoted(name), allowed));
            }
            let max_keep = read(given, "hold.max_keep", &option.max_keep, max_keep, Duration::ZERO..=HOUR)?;
            Ok(HoldPolicy::Adaptive { turn, max_keep })
        }
    }
}

/// Parses a duration of a rule. An error names the option within the rule.
fn read(
    given: &Given<&[HoldEntry]>,
    key: &'static str,
    text: &Option<String>,
    default: Duration,
    bounds: std::ops::RangeInclusive<Duration>,
) -> Result<Duration, ConfigError> {
    match text {
        None => Ok(default),
        Some(text) => parse_within(&Given { key, place: given.place.clone(), value: () }, text, bounds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_written_in_three_ways() {
        let entry = |text: &str| text.parse::<HoldEntry>();
        let fair = entry("a:b:fair").expect("a policy");
        assert_eq!((fair.prefix.as_str(), fair.policy.as_deref()), ("a:b", Some("fair")));
        let adaptive = entry(":adaptive:7:2 s").expect("adaptive");
        assert_eq!((adaptive.prefix.as_str(), adaptive.turn), ("", Some(7)));
        assert_eq!(adaptive.max_keep.as_deref(), Some("2 s"));
        let fixed = entry("x:0s:1s:0s").expect("fixed");
        assert_eq!((fixed.policy, fixed.min_keep.as_deref()), (None, Some("0s")));
        for wrong in ["", "a", "a:b", "a:1s:2s", ":adaptive:x:1s", "a:slow"] {
            assert!(entry(wrong).is_err(), "{wrong}");
        }
    }
}
