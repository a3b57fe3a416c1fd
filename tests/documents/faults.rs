//! Each fault of docs/faults.md names tests, seeds or deliberate bugs that are there, and each deliberate
//! bug is asked for and caught.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{between, files, has_test, root};

const FAULTS: &str = "docs/faults.md";
/// Most words that say a fault.
const WORDS: usize = 20;

/// Returns the rows of all tables: a fault, and the tests that hold it.
fn rows(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_row = |line: &&str| line.starts_with("| ") && *line != "| fault | test |";
    text.lines().filter(is_row).map(|line| {
        let cells = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
        cells
            .and_then(|cells| cells.rsplit_once(" | "))
            .unwrap_or_else(|| panic!("no row of two cells: {line}"))
    })
}

/// Returns the tests that a cell names, each with its module or file. `a::{b, c}` names two, and `a::b, ::c`
/// two of one module.
fn cited(cell: &str) -> Vec<(String, String)> {
    let (mut braced, mut text) = (false, String::new());
    for c in cell.chars().filter(|c| *c != '`') {
        braced = (braced || c == '{') && c != '}';
        text.push(if braced && c == ' ' { '\u{a0}' } else { c });
    }
    let (mut found, mut module) = (Vec::new(), String::new());
    for word in text.split([' ', ';', '(', ')']) {
        let word = word.trim_end_matches([',', ':', '.']);
        let Some((before, names)) = word.rsplit_once("::") else { continue };
        if !matches!(before, "" | "..") {
            module = before.to_owned();
        }
        let names = names.trim_matches(['{', '}']).split(',').map(|name| name.trim_matches('\u{a0}'));
        found.extend(names.map(|name| (module.clone(), name.to_owned())));
    }
    found
}

/// Returns the file of a module, and the modules within the file.
fn file_of(module: &str) -> Option<(PathBuf, Vec<&str>)> {
    if let Some((file, inner)) = module.split_once(".rs") {
        return Some((root().join(format!("{file}.rs")), inner.split("::").skip(1).collect()));
    }
    let mut parts: Vec<&str> = module.split("::").collect();
    let folder = match parts[0] {
        "geolock_client" => "client/src",
        "geolock_api" => "api/src",
        "geolock_recipes" => "recipes/src",
        _ => "src",
    };
    if folder != "src" {
        parts.remove(0);
    }
    (1..=parts.len()).rev().find_map(|end| {
        let path = root().join(folder).join(parts[..end].join("/"));
        let files = [path.with_extension("rs"), path.join("mod.rs")];
        let file = files.into_iter().find(|file| file.exists())?;
        Some((file, parts[end..].to_vec()))
    })
}

/// Returns true if there is such a test, or such a module of tests.
fn is_there(module: &str, name: &str) -> bool {
    let is_module = |path: &str| file_of(path).is_some_and(|(_, inner)| inner.is_empty());
    if name == "*" || is_module(&format!("{module}::{name}")) {
        return is_module(module) || name != "*";
    }
    let Some((file, inner)) = file_of(module) else { return false };
    let source = fs::read_to_string(&file).unwrap_or_default();
    let hunt = format!("\n    {name}: ");
    let is_inner = inner.iter().all(|inner| source.contains(&format!("mod {inner} {{")));
    let is_module = name == "tests" && source.contains("mod tests {");
    is_inner
        && (is_module
            || has_test(&source, name)
            || file.ends_with("sim/mutations.rs") && source.contains(&hunt))
}

/// Returns the source at a path below the root.
fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources that a name of docs/faults.md can stand for, beside tests.
struct Names {
    /// Deliberate bugs, and verdicts and faults of the simulator.
    variants: BTreeSet<String>,
    profiles: String,
    sweep: String,
    seeds: String,
}

impl Names {
    fn read() -> Names {
        let of = |path: &str, name| variants(&source(path), name).into_iter().map(str::to_owned).collect();
        let failure = "src/sim/failure.rs";
        let recipes = "recipes/src/sequencer_state/bugs.rs";
        let enums =
            [("src/base/bugs.rs", "Bug"), (recipes, "Bug"), (failure, "FailureKind"), (failure, "FaultKind")];
        Names {
            variants: enums.into_iter().flat_map(|(path, name)| -> Vec<String> { of(path, name) }).collect(),
            profiles: source("src/sim/plan/profile.rs"),
            sweep: source("scripts/sweep"),
            seeds: source("src/sim/seeds.rs").replace('_', ""),
        }
    }

    fn has_profile(&self, name: &str) -> bool {
        self.profiles.contains(&format!("(\"{name}\", Profile::"))
    }

    /// Returns true if `scripts/sweep` runs this seed of the profile, or `src/sim/seeds.rs` this seed.
    fn has_seed(&self, profile: &str, seed: &str) -> bool {
        let is_swept = |line: &str| {
            let mut words = line.split(' ');
            (words.next(), words.nth(1), words.next()) == (Some(profile), Some(seed), None)
        };
        let number: u64 = seed.parse().unwrap_or_else(|_| panic!("{seed} is no seed"));
        let is_within = |word: &str| {
            let ends = word.split_once("..").map(|(from, to)| (from.parse::<u64>(), to.parse::<u64>()));
            matches!(ends, Some((Ok(from), Ok(to))) if (from..to).contains(&number))
        };
        let profile: String = profile.split('-').map(|part| part[..1].to_uppercase() + &part[1..]).collect();
        let is_listed = |(at, _): (usize, &str)| {
            let (before, after) = (&self.seeds[..at], &self.seeds[at + seed.len()..]);
            before.ends_with(['[', ' ']) && [",", "]", ".."].iter().any(|end| after.starts_with(end))
        };
        let mut runs =
            self.seeds.split("allpass(").skip(1).filter(|run| run.contains(&format!("{profile},")));
        self.sweep.lines().any(is_swept)
            || self.seeds.match_indices(seed).any(is_listed)
            || runs.any(|run| run.split([' ', ')']).any(is_within))
    }

    /// Returns true if there is such a test, file, seed, profile, deliberate bug or verdict.
    fn has(&self, name: &str) -> bool {
        let is_file = name.ends_with(".rs") || name.ends_with(".py");
        match name.split_once(' ') {
            _ if name.contains("::") => {
                let cited = cited(name);
                !cited.is_empty() && cited.iter().all(|(module, name)| is_there(module, name))
            }
            Some(("profile", profile)) => self.has_profile(profile),
            Some((profile, seeds)) => {
                self.has_profile(profile) && seeds.split(' ').all(|seed| self.has_seed(profile, seed))
            }
            None if is_file => root().join(name).exists(),
            None => self.variants.contains(name),
        }
    }
}

#[test]
fn tests_that_hold_faults_are_there() {
    let (text, names) = (source(FAULTS), Names::read());
    let (mut faults, mut named) = (Vec::new(), 0);
    for (fault, tests) in rows(&text) {
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        named += tests.iter().map(|test| cited(test).len()).sum::<usize>();
        if tests.is_empty() || fault.split_whitespace().count() > WORDS {
            faults.push(format!("{fault}: it has no test, or more than {WORDS} words"));
        }
        faults.extend(tests.into_iter().filter(|test| !names.has(test)).map(str::to_owned));
    }
    let mutate = source("scripts/mutate");
    let mutants = between(&mutate, "\n    (\"", &['"']).map(|name| format!("`{name}`"));
    faults.extend(mutants.filter(|name| !rows(&text).any(|(fault, _)| fault.contains(name))));
    assert!(named > 350, "only {named} tests were found");
    assert!(faults.is_empty(), "{} are not there:\n{}", faults.len(), faults.join("\n"));
}

/// `scripts/evidence` reads the same rows.
#[test]
fn sweeps_and_commands_of_the_evidence_can_be_repeated() {
    let (text, names) = (source("docs/evidence.md"), Names::read());
    let section = |heading: &str| {
        let from = text.split_once(heading).unwrap_or_else(|| panic!("there is no section {heading}")).1;
        from.split("\n## ").next().expect("a text has a first part")
    };
    let sweeps = section("\n### Sweeps\n").lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut swept = 0;
    for row in sweeps {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let &[commit, profiles, seeds] = cells.as_slice() else {
            panic!("no commit, profiles, seeds: {row}")
        };
        assert!(commit.chars().all(|c| c.is_ascii_hexdigit()), "{row}");
        let ends = seeds.split_once("..").map(|(from, to)| (from.parse::<u64>(), to.parse::<u64>()));
        assert!(matches!(ends, Some((Ok(from), Ok(to))) if from < to), "{row}");
        for profile in profiles.split(", ") {
            assert!(names.has_profile(profile.trim_matches('`')), "there is no profile {profile}");
            swept += 1;
        }
    }
    let commands = section("\n## Commands\n").lines().filter(|line| line.starts_with("| `"));
    assert!(swept > 20 && commands.count() > 10, "{swept} sweeps");
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let cell = "a::tests::{b, c} (seen), d/e.rs::f, ::g; by hand: `x --y`";
    let found = cited(cell);
    let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&a[..], &b[..])).collect();
    assert_eq!(found, [("a::tests", "b"), ("a::tests", "c"), ("d/e.rs", "f"), ("d/e.rs", "g")]);
    assert!(is_there("access::log_limit::tests", "a_second_has_one_line"));
    assert!(is_there("sim::mutations", "e_no_grace") && is_there("replica::tests::work", "*"));
    assert!(!is_there("access::log_limit::tests", "a_second_has_two_lines"));
    assert!(!is_there("access::nothing::tests", "a_second_has_one_line"));
    let names = Names::read();
    let there =
        ["crashes 7249 9100301", "left-behind 404", "profile growth", "NoGrace", "tests/faults/main.rs"];
    assert!(there.iter().all(|name| names.has(name)), "{there:?}");
    let gone =
        ["crashes 7248", "left-behind 406", "profile shrinking", "NoGrandeur", "tests/faults/other.rs"];
    assert!(!gone.iter().any(|name| names.has(name)), "{gone:?}");
}

/// Returns the variants of an enum in a source.
fn variants<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(&format!("enum {name} {{")).expect("the source has this enum");
    let body = body.split("\n}").next().expect("a text has a first part");
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter_map(|line| line.strip_suffix(',')).collect()
}

/// Returns true if the source has this word.
fn has_word(source: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let ends = |before: &str, after: &str| !before.ends_with(is_part) && !after.starts_with(is_part);
    source.match_indices(word).any(|(at, _)| ends(&source[..at], &source[at + word.len()..]))
}

#[test]
fn each_deliberate_bug_is_asked_for_and_caught() {
    let read = |path: &Path| fs::read_to_string(path).expect("a source is readable");
    let bugs = read(&root().join("src/base/bugs.rs"));
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let hunts = read(&root().join("src/sim/mutations.rs"));
    let hunts = hunts.split_once("\nhunts! {").expect("the hunts are one macro call").1;
    let (mut stories, mut core) = (String::new(), String::new());
    for path in files("src", &["rs"]).into_iter().filter(|path| !path.ends_with("base/bugs.rs")) {
        if is_test(&path) {
            stories += &read(&path);
        } else if !path.ends_with("sim/mutations.rs") {
            core += &read(&path);
        }
    }
    let variants = variants(&bugs, "Bug");
    assert!(variants.len() > 40, "{variants:?}");
    for bug in variants {
        let named = format!("Bug::{bug}");
        assert!(has_word(&core, &named), "no code has the deliberate bug {bug}: delete it");
        let is_caught = has_word(hunts, bug) || has_word(&stories, &named);
        assert!(is_caught, "no hunt of src/sim/mutations.rs and no story is caught with the bug {bug}");
    }
}
