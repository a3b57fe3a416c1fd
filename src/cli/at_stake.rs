//! The consequences if a datacenter died now, in words and for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::print::number;
use crate::base::time::brief;
use geolock_api::proto::AtStake;

/// Returns the number of waiting requests. `is_least`: there may be more.
pub(super) fn waiting(at_stake: &AtStake, is_least: bool) -> String {
    format!("{}{}", at_stake.waiting, if is_least { "+" } else { "" })
}

/// Returns how long ago it was heard, if that is known.
pub(super) fn heard(at_stake: &AtStake) -> Option<String> {
    Some(brief(Duration::from_millis(at_stake.heard_ms?)))
}

/// Returns the consequences while a datacenter is down, and the price of its eviction: a sentence each.
pub(super) fn about_lost(name: &str, at_stake: &AtStake, is_least: bool) -> String {
    let silence = match heard(at_stake) {
        Some(ago) => format!("was last heard {ago} ago"),
        None => "was not heard since this server started".into(),
    };
    let locks = count(at_stake.away_locks, "lock has", "locks have");
    let waits = if at_stake.waiting == 1 && !is_least { "request waits" } else { "requests wait" };
    let missing = match at_stake.missing_entries {
        0 => String::new(),
        entries => format!("; {} of it are known, and missing here", count(entries, "entry", "entries")),
    };
    format!(
        "{name} {silence}: {locks} parts there, and {} {waits} for it. An eviction frees them, and loses the work that {name} \
         has acknowledged since then and sent to no other datacenter{missing}.",
        waiting(at_stake, is_least)
    )
}

fn count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub(super) fn json(at_stake: Option<&AtStake>) -> Value {
    at_stake.map_or(Value::Null, |it| {
        json!({
            "away_locks": number(it.away_locks),
            "waiting": number(it.waiting),
            "heard_ms": it.heard_ms,
            "missing_entries": number(it.missing_entries),
            "leases": it.leases,
            "held": it.held,
            "only_here": it.only_here,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_an_eviction_is_told() {
        let mut lost = AtStake {
            away_locks: 412,
            waiting: 3,
            heard_ms: Some(12_500),
            missing_entries: 2,
            ..AtStake::default()
        };
        let said = "dc2 was last heard 12.5 s ago: 412 locks have parts there, and 3 requests wait for it. An eviction frees \
                    them, and loses the work that dc2 has acknowledged since then and sent to no other datacenter; 2 \
                    entries of it are known, and missing here.";
        assert_eq!(about_lost("dc2", &lost, false), said);
        (lost.away_locks, lost.waiting, lost.heard_ms, lost.missing_entries) = (1, 1, None, 0);
        let said = about_lost("dc2", &lost, true);
        assert!(said.starts_with(
            "dc2 was not heard since this server started: 1 lock has parts there, and 1+ requests wait"
        ));
        assert!(said.ends_with("sent to no other datacenter."), "{said}");
        assert_eq!(json(Some(&lost))["away_locks"], 1);
        assert_eq!(json(None), Value::Null);
    }
}
