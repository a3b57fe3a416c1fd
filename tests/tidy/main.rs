//! The rules of the repository, as far as a test can check them: imports between rooms, what pure rooms may
//! not use, how densely they assert, unfinished work; and, in tests, benches and examples as well, the length
//! of files and functions, and the form of comments.

mod assertions;
#[path = "../fixture/files.rs"]
mod files;
mod imports;
mod purity;
mod rooms;
mod sizes;
mod style;

use std::fs;
use std::path::{Path, PathBuf};

use files::{files, root};

/// A source file.
struct Source {
    path: PathBuf,
    /// The folder or file below the sources of its package, or within one of the [`HALLS`]; with the package
    /// before it, except the server.
    room: String,
    /// The path of the module in its package.
    module: Vec<String>,
    text: String,
    is_test: bool,
}

/// The rooms without IO, clock, threads or randomness.
const PURE: [&str; 9] =
    ["base", "crdt", "causal_log", "lock_state", "leases", "store_state", "membership", "replica", "sim"];
/// Pure, too: the rooms of the other packages that do no IO.
const PURE_OUTSIDE: [&str; 18] = [
    "geolock_api::encoding",
    "geolock_api::keys",
    "geolock_api::names",
    "geolock_api::time",
    "geolock_api::value",
    "geolock_client::session",
    "geolock_client::lease_clock",
    "geolock_client::tag",
    "geolock_recipes::barrier_state",
    "geolock_recipes::hash",
    "geolock_recipes::held_state",
    "geolock_recipes::once_state",
    "geolock_recipes::latch_state",
    "geolock_recipes::limits",
    "geolock_recipes::periodic_state",
    "geolock_recipes::reentrant_state",
    "geolock_recipes::selector_state",
    "geolock_recipes::sequencer_state",
];
/// Folders that only hold other rooms.
const HALLS: [&str; 4] = ["cli", "runtime", "server", "testkit"];

/// The sources of the packages, each with the name by which other packages import it.
const PACKAGES: [(&str, &str); 4] = [
    ("src", ""),
    ("api/src", "geolock_api::"),
    ("client/src", "geolock_client::"),
    ("recipes/src", "geolock_recipes::"),
];

/// Returns the sources of the libraries and the binary, including their tests.
fn sources() -> Vec<Source> {
    let of = |(folder, package): (&str, &str)| {
        let mut sources = below(folder);
        sources.iter_mut().for_each(|source| source.room.insert_str(0, package));
        sources
    };
    PACKAGES.into_iter().flat_map(of).collect()
}

/// Returns all sources of the repository.
fn everything() -> impl Iterator<Item = Source> {
    ["src", "api", "client", "recipes", "tests", "benches"].into_iter().flat_map(below)
}

fn below(folder: &str) -> Vec<Source> {
    let (root, paths) = (root().join(folder), files(folder, &["rs"]));
    let least = if folder == "src" { 50 } else { 10 };
    assert!(paths.len() >= least, "the sources are where they should be");
    paths.into_iter().map(|path| read(&root, path)).collect()
}

fn read(root: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).expect("a source file is readable");
    let relative = path.strip_prefix(root).expect("it was found below the root");
    let name = |part: std::path::Component<'_>| {
        part.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let mut module: Vec<String> = relative.components().map(name).collect();
    let room = room_of(&module);
    module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    let is_test = relative.components().any(|part| {
        matches!(
            part.as_os_str().to_str(),
            Some("tests" | "tests.rs" | "mutations.rs" | "stories.rs" | "fakes.rs")
        )
    });
    Source { path, room, module, text, is_test }
}

/// Returns the room of a module of the server.
fn room_of<S: AsRef<str>>(module: &[S]) -> String {
    let first = module.first().expect("a module has a name").as_ref();
    match module.get(1).map(AsRef::as_ref) {
        Some(second) if HALLS.contains(&first) && second != "mod" => format!("{first}::{second}"),
        _ => first.to_owned(),
    }
}

impl Source {
    /// Returns the text before the tests at its end.
    fn code(&self) -> &str {
        match self.text.find("#[cfg(test)]\nmod tests {") {
            Some(tests) => &self.text[..tests],
            None => &self.text,
        }
    }

    /// Returns the code without the lines that are comments.
    fn without_comments(&self) -> String {
        self.code()
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .fold(String::new(), |code, line| code + line + "\n")
    }

    /// Returns the lines of code that match, with their numbers, without comments.
    fn lines_with<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        self.code()
            .lines()
            .enumerate()
            .filter(move |(_, line)| !line.trim_start().starts_with("//") && line.contains(pattern))
            .map(|(number, line)| (number + 1, line))
    }
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
