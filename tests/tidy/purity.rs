//! Things that pure rooms may not use, and things that no room may have.

use crate::{PURE, PURE_OUTSIDE, report, sources};

#[test]
fn pure_rooms_touch_no_clock_no_io_no_randomness() {
    let forbidden = [
        "tokio::",
        "std::fs",
        "std::net",
        "std::thread",
        "std::io",
        "Instant::now",
        "SystemTime",
        "quinn::",
        "tonic::",
        "rand::",
        "std::env",
        "println!",
        "std::collections::HashMap",
        "std::collections::HashSet",
    ];
    let mut faults = Vec::new();
    let is_pure = |room: &str| PURE.contains(&room) || PURE_OUTSIDE.contains(&room);
    let sources = sources();
    let missing: Vec<_> =
        PURE_OUTSIDE.iter().filter(|room| sources.iter().all(|it| it.room != **room)).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
    for source in sources.iter().filter(|source| is_pure(&source.room) && !source.is_test) {
        for pattern in forbidden {
            for (number, line) in source.lines_with(pattern) {
                faults.push(format!(
                    "{}:{number}: {pattern} in a pure room: {}",
                    source.path.display(),
                    line.trim()
                ));
            }
        }
    }
    report(&faults);
}

#[test]
fn nothing_is_left_open_and_nothing_panics_without_a_reason() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test) {
        for pattern in [
            "todo!",
            "unimplemented!",
            "TODO",
            "FIXME",
            "XXX",
            "dbg!(",
            ".unwrap()",
            "use super::*",
            "Box<dyn Error",
        ] {
            for (number, line) in source.lines_with(pattern) {
                faults.push(format!("{}:{number}: {}", source.path.display(), line.trim()));
            }
        }
    }
    report(&faults);
}
