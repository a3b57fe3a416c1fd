//! Assertions are dense in the replica and the pure rooms below it.

use crate::{report, sources};

/// The rooms whose assertions have a floor.
const ROOMS: [&str; 8] =
    ["base", "crdt", "causal_log", "lock_state", "leases", "store_state", "membership", "replica"];
/// Most lines of code to an assertion, in all of these rooms together and in each.
const LINES_IN_ALL: usize = 60;
const LINES_IN_A_ROOM: usize = 100;

/// Returns the number of lines of code of a room without its tests, and of its assertions.
fn count(room: &str) -> (usize, usize) {
    let (mut lines, mut assertions) = (0, 0);
    for source in sources().iter().filter(|source| source.room == room && !source.is_test) {
        let code = source.without_comments();
        lines += code.lines().filter(|line| !line.trim().is_empty()).count();
        // `holds` asserts an invariant of the members, also in a config that a peer sent.
        let opens = ["assert!(", "assert_eq!(", "assert_ne!(", "holds("];
        assertions += opens.iter().map(|open| code.matches(open).count()).sum::<usize>();
    }
    (lines, assertions)
}

#[test]
fn pure_rooms_assert_their_invariants() {
    let mut faults = Vec::new();
    let (mut lines, mut assertions) = (0, 0);
    for room in ROOMS {
        let (lines_here, assertions_here) = count(room);
        (lines, assertions) = (lines + lines_here, assertions + assertions_here);
        if lines_here > LINES_IN_A_ROOM * assertions_here {
            faults.push(format!("{room}: {assertions_here} assertions in {lines_here} lines"));
        }
    }
    if lines > LINES_IN_ALL * assertions {
        faults.push(format!("all rooms: {assertions} assertions in {lines} lines"));
    }
    report(&faults);
}
