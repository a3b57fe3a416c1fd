//! The rules of the repository, as far as a test can check them: imports between rooms, what pure rooms may
//! not use, unfinished work; and, in tests, benches and examples as well, the length of files and functions,
//! and the form of comments.

#[path = "fixture/files.rs"]
mod files;
#[path = "fixture/imports.rs"]
mod imports;

use std::fs;
use std::path::{Path, PathBuf};

use files::{files, root};
use imports::{COMMANDS, COMMANDS_WITH_MORE, IMPORTS};

/// A source file.
struct Source {
    path: PathBuf,
    /// The folder or file below the sources of its package, or within one of the [`HALLS`]; with the package
    /// before it, except the server.
    room: String,
    text: String,
    is_test: bool,
}

/// The rooms without IO, clock, threads or randomness.
const PURE: [&str; 9] =
    ["base", "crdt", "causal_log", "lock_state", "leases", "store_state", "membership", "replica", "sim"];
/// Pure, too: the rooms of the other packages that do no IO.
const PURE_OUTSIDE: [&str; 8] = [
    "geolock_api::encoding",
    "geolock_api::keys",
    "geolock_api::names",
    "geolock_api::time",
    "geolock_api::value",
    "geolock_client::session",
    "geolock_client::lease_clock",
    "geolock_client::tag",
];
/// Folders that only hold other rooms.
const HALLS: [&str; 4] = ["cli", "runtime", "server", "testkit"];
/// Longest file, in lines.
const MAX_FILE: usize = 500;
/// Longest function, in lines.
const MAX_FUNCTION: usize = 70;
/// Widest comment line, in columns: as wide as rustfmt makes code.
const MAX_WIDTH: usize = 110;
/// A sentence that begins with one of these hides its subject.
const RIDDLES: [&str; 6] = ["What", "Whether", "Who", "Whoever", "Whom", "Whose"];

/// The sources of the packages, each with the name by which other packages import it.
const PACKAGES: [(&str, &str); 3] =
    [("src", ""), ("api/src", "geolock_api::"), ("client/src", "geolock_client::")];

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
    ["src", "api", "client", "tests", "benches"].into_iter().flat_map(below)
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
    let mut parts = relative.components().map(name);
    let first = parts.next().expect("a file has a name");
    let room = match parts.next() {
        Some(second) if HALLS.contains(&first.as_str()) && second != "mod" => format!("{first}::{second}"),
        _ => first,
    };
    let is_test = relative.components().any(|part| {
        matches!(
            part.as_os_str().to_str(),
            Some("tests" | "tests.rs" | "mutations.rs" | "stories.rs" | "fakes.rs")
        )
    });
    Source { path, room, text, is_test }
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

/// Returns what a source of the server may import beside `base`, or nothing if its room has no rule.
fn importable(source: &Source) -> Option<Vec<&'static str>> {
    let find = |rules: &[(&str, &'static [&'static str])], name: &str| {
        rules.iter().find(|(room, _)| *room == name).map(|(_, own)| *own)
    };
    if source.room != "cli" && HALLS.contains(&source.room.as_str()) {
        return Some(Vec::new());
    }
    let command = source.room.strip_prefix("cli::").or_else(|| (source.room == "cli").then_some(""));
    match command {
        Some(command) => {
            Some([&COMMANDS[..], find(&COMMANDS_WITH_MORE, command).unwrap_or_default()].concat())
        }
        None => find(&IMPORTS, &source.room).map(<[_]>::to_vec),
    }
}

#[test]
fn rooms_import_downwards_only() {
    let mut faults = Vec::new();
    let mut imports = 0;
    for source in sources().iter().filter(|source| !source.is_test && !source.room.starts_with("geolock_")) {
        let Some(allowed) = importable(source) else {
            faults.push(format!("{}: the room {} has no rule", source.path.display(), source.room));
            continue;
        };
        for target in targets(&source.without_comments()) {
            imports += 1;
            let hall = |room: &str| room.split("::").next().unwrap_or_default() == "cli";
            let is_own = target == source.room || hall(&target) && hall(&source.room);
            if !is_own && target != "base" && !allowed.contains(&target.as_str()) {
                faults.push(format!("{}: {} may not import {target}", source.path.display(), source.room));
            }
        }
    }
    assert!(imports > 1000, "imports are found");
    report(&faults);
}

#[test]
fn an_import_is_seen_however_it_is_written() {
    let seen = |code: &str| targets(code).join(" ");
    assert_eq!(seen("use crate::replica::call::Call;"), "replica");
    assert_eq!(
        seen("use crate::{replica, server::{api, config::Config}, sim::{self, run}};"),
        "replica server::api server::config sim sim"
    );
    assert_eq!(
        seen("let it = crate::server::node::Node; geolock_client::Client"),
        "server::node geolock_client"
    );
    assert_eq!(seen("use geolock_api::{names::DcId, native};"), "geolock_api::native");
}

/// Returns the rooms that code of the server names, but not the rooms of `geolock_api` without IO.
fn targets(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for root in ["crate::", "geolock_api::"] {
        for (at, _) in code.match_indices(root) {
            paths(&code[at + root.len()..], &mut |path| {
                let words: Vec<&str> = path.split("::").collect();
                match (root, &words[..]) {
                    ("crate::", [hall, room, ..]) if HALLS.contains(hall) => {
                        found.push(format!("{hall}::{room}"))
                    }
                    ("crate::", [room, ..]) => found.push((*room).to_owned()),
                    (_, ["native", ..]) => found.push("geolock_api::native".to_owned()),
                    _ => {}
                }
            });
        }
    }
    found.extend(code.contains("geolock_client").then(|| "geolock_client".to_owned()));
    found
}

/// Calls `each` with every path of a use tree, up to the third name.
fn paths(tree: &str, each: &mut impl FnMut(&str)) {
    fn walk(before: &str, tree: &mut &str, each: &mut impl FnMut(&str)) {
        let end = tree.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(tree.len());
        let path = format!("{before}{}", &tree[..end]);
        *tree = &tree[end..];
        match tree.strip_prefix('{').filter(|_| path.is_empty() || path.ends_with("::")) {
            None => each(path.trim_end_matches("::self")),
            Some(inner) => {
                *tree = inner.trim_start();
                while !tree.starts_with('}') && !tree.is_empty() {
                    walk(&path, tree, each);
                    let next = tree.find([',', '}']).unwrap_or(tree.len());
                    *tree = tree[next..].trim_start_matches(',').trim_start();
                }
                *tree = tree.strip_prefix('}').unwrap_or_default();
            }
        }
    }
    walk("", &mut &tree[..], each);
}

#[test]
fn the_client_and_the_api_know_nothing_of_the_server() {
    let dependencies = |package: &str| {
        let manifest =
            fs::read_to_string(root().join(package).join("Cargo.toml")).expect("a package has one");
        let names = manifest.lines().filter(|line| line.starts_with("geolock"));
        names.map(|line| line.split(['.', ' ']).next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(dependencies("api"), [""; 0]);
    assert_eq!(dependencies("client"), ["geolock-api"]);
}

#[test]
fn files_and_functions_stay_small() {
    let mut faults = Vec::new();
    for Source { path, text, .. } in everything() {
        let lines = text.lines().count();
        if lines > MAX_FILE {
            faults.push(format!("{}: {lines} lines, at most {MAX_FILE}", path.display()));
        }
        faults.extend(long_functions(&text).map(|name| format!("{}: {name}", path.display())));
    }
    report(&faults);
}

/// Returns the functions above the limit: rustfmt closes a function at the indentation at which it opens it.
fn long_functions(code: &str) -> impl Iterator<Item = String> {
    let mut open: Option<(usize, usize, String)> = None;
    let mut long = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        let starts = [
            "fn ",
            "pub fn ",
            "pub(super) fn ",
            "pub(crate) fn ",
            "async fn ",
            "pub async fn ",
            "pub(super) async fn ",
        ];
        if starts.iter().any(|start| text.starts_with(start)) && open.is_none() {
            open = Some((number, indent, text.to_string()));
        } else if let Some((start, at, name)) = &open
            && indent == *at
            && text == "}"
        {
            if number - start > MAX_FUNCTION {
                long.push(format!("{} lines, at most {MAX_FUNCTION}: {name}", number - start));
            }
            open = None;
        } else if open
            .as_ref()
            .is_some_and(|(_, at, _)| indent == *at && (text.ends_with(';') || text.ends_with("}")))
        {
            open = None;
        }
    }
    long.into_iter()
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
fn every_file_says_what_it_is_for() {
    let missing: Vec<String> = everything()
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| format!("{}: no module documentation at its top", source.path.display()))
        .collect();
    report(&missing);
}

#[test]
fn comments_fit_beside_code_and_name_their_subject() {
    let mut faults = Vec::new();
    for source in everything() {
        for (number, line) in source.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let text = comment.trim_start_matches(['/', '!']).trim_start();
            let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if line.chars().count() > MAX_WIDTH {
                faults.push(format!("{}:{}: wider than {MAX_WIDTH}", source.path.display(), number + 1));
            }
            if RIDDLES.contains(&first) {
                faults.push(format!("{}:{}: begins with {first}", source.path.display(), number + 1));
            }
        }
    }
    report(&faults);
}
