//! Things that pure rooms may not use, and things that no room may have.

use crate::{PURE, PURE_OUTSIDE, Source, everything, report, sources};

/// The modules that wrap a hash table so that it cannot be iterated.
const WRAPPERS: [&str; 2] = ["base::keyed_map", "base::tables::index"];

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
        // Iteration in the order of hashes; `base::keyed_map` has none.
        "HashMap",
        "HashSet",
        "HashTable",
        "hashbrown",
    ];
    let mut faults = Vec::new();
    let is_pure = |room: &str| PURE.contains(&room) || PURE_OUTSIDE.contains(&room);
    let sources = sources();
    let missing: Vec<_> =
        PURE_OUTSIDE.iter().filter(|room| sources.iter().all(|it| it.room != **room)).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
    for source in sources.iter().filter(|source| is_pure(&source.room) && !source.is_test) {
        let wraps_one = WRAPPERS.contains(&source.module.join("::").as_str());
        for pattern in
            forbidden.into_iter().filter(|pattern| !(wraps_one && pattern.to_lowercase().contains("hash")))
        {
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

#[test]
fn public_items_of_pure_rooms_are_documented() {
    let sources = sources();
    let is_top = |source: &&Source, room: &str| source.room == room && source.module.len() < 2;
    let lacking = PURE.iter().chain(&["geolock_api::lib", "geolock_client::lib"]).filter(|room| {
        let top = sources.iter().find(|source| is_top(source, room)).expect("a room has a file at its top");
        !top.text.contains("\n#![deny(missing_docs)]\n")
    });
    report(&lacking.map(|room| format!("{room}: no `#![deny(missing_docs)]`")).collect::<Vec<_>>());
}

#[test]
fn a_lint_is_only_silenced_with_a_reason() {
    let mut faults = Vec::new();
    for source in everything() {
        for opening in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for (at, _) in source.text.match_indices(opening) {
                let line = source.text[..at].rsplit('\n').next().unwrap_or_default();
                let attribute = source.text[at..].split(")]").next().unwrap_or_default();
                if line.trim().is_empty() && !attribute.contains("reason = \"") {
                    faults.push(format!("{}: {attribute})]: why?", source.path.display()));
                }
            }
        }
    }
    report(&faults);
}
