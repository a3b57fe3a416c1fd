//! The reasons why a server does not serve yet, as `/readyz` and `geolock status` say them.

use std::time::Duration;

use geolock_api::time::brief;

/// A clock that differs less from most others is no reason.
const NOTEWORTHY_MS: i64 = 1_000;

/// Returns the reason of a server that is read-only. `unheard`: the members that are not reachable, by their
/// names.
pub fn read_only(unheard: &[String]) -> String {
    let first = match unheard {
        [] => {
            "all members are heard: it fetches the entries of its own log that others have, and after a lost or restored \
             data directory it waits until the longest lease that it may not know has ended (limits.max_lease_ttl)"
        }
        _ => "not every member has said yet how much it has of this datacenter's log",
    };
    match unheard {
        [] => first.into(),
        unheard => format!("{first}: start those that are missing ({})", unheard.join(", ")),
    }
}

/// Returns the reason of a server that is starting. `ahead_ms`: the clocks of the members that are reachable,
/// minus its own, in ms.
pub fn starting(ahead_ms: &[i64]) -> String {
    let mut sorted = ahead_ms.to_vec();
    sorted.sort_unstable();
    let is_ahead_of = sorted.iter().filter(|ahead| **ahead < -NOTEWORTHY_MS).count();
    match sorted.get(sorted.len() / 2) {
        Some(median) if 2 * is_ahead_of > sorted.len() => {
            let ahead = brief(Duration::from_millis(median.unsigned_abs()));
            format!(
                "its clock is {ahead} ahead of most members: correct it (NTP). It serves when most members confirm it"
            )
        }
        _ => {
            "waits until its clock is past its earlier stamps, and is confirmed by most members that it hears"
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_that_are_missing_are_named_and_none_if_all_are_heard() {
        let said = read_only(&["dc1 (fra)".into(), "dc2".into()]);
        assert!(said.ends_with("start those that are missing (dc1 (fra), dc2)"), "{said}");
        let said = read_only(&[]);
        assert!(said.contains("longest lease") && !said.contains("start those"), "{said}");
    }

    #[test]
    fn a_clock_that_is_ahead_of_most_is_the_reason() {
        let hour = -3_600_000;
        for wrong in [&[hour][..], &[hour, hour - 3, 5], &[hour, hour]] {
            assert!(starting(wrong).starts_with("its clock is 1 h 0 min ahead"), "{}", starting(wrong));
        }
        for right in [&[][..], &[0], &[hour, 0], &[hour, 3, 4], &[3_600_000]] {
            assert!(starting(right).starts_with("waits until its clock"), "{right:?}");
        }
    }
}
