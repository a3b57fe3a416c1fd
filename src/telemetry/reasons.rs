//! The reasons why a server does not serve yet, as `/readyz` and `geolock status` say them.

use std::time::Duration;

use geolock_api::time::brief;

/// A clock that differs less from most others is no reason.
const NOTEWORTHY_MS: i64 = 1_000;

/// Returns the reason of a server that is read-only. `unheard`: the members that are not reachable, by their
/// names. `leases_ms`: for how long leases may live that it does not know.
pub fn read_only(unheard: &[String], leases_ms: u64) -> String {
    if !unheard.is_empty() {
        return format!(
            "not every member has said yet how much it has of this datacenter's log: start those that are missing ({})",
            unheard.join(", ")
        );
    }
    match leases_ms {
        0 => "all members are heard: it fetches the entries of its own log that others have".into(),
        _ => format!(
            "all members are heard: its data directory was lost or restored, and it waits until the longest lease that it \
             may not know has ended (limits.max_lease_ttl), {} more",
            brief(Duration::from_millis(leases_ms))
        ),
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
        let said = read_only(&["dc1 (fra)".into(), "dc2".into()], 9_000);
        assert!(said.ends_with("start those that are missing (dc1 (fra), dc2)"), "{said}");
        let said = read_only(&[], 9_000);
        assert!(said.contains("longest lease") && said.ends_with("9.0 s more"), "{said}");
        let said = read_only(&[], 0);
        assert!(said.ends_with("that others have"), "{said}");
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
