//! Imports between rooms: downwards only.

use std::fs;

use crate::files::root;
use crate::{HALLS, Source, report, sources};

/// The rooms that each room of the server may import. Any room may import `base`, itself, and the rooms of
/// `geolock_api` but `native`, which does IO.
const IMPORTS: [(&str, &[&str]); 28] = [
    ("lib", &["geolock_client"]),
    ("main", &[]),
    ("base", &[]),
    ("crdt", &[]),
    ("causal_log", &["crdt"]),
    ("lock_state", &["crdt", "causal_log"]),
    ("leases", &["lock_state"]),
    ("store_state", &["crdt", "causal_log"]),
    ("membership", &["crdt"]),
    ("replica", &["crdt", "causal_log", "lock_state", "leases", "store_state", "membership"]),
    ("sim", &["crdt", "causal_log", "lock_state", "leases", "store_state", "membership", "replica"]),
    ("runtime::fine_timer", &[]),
    ("runtime::open_files", &[]),
    ("runtime::tasks", &[]),
    // The settings of TLS name the protocols.
    ("pki", &["geolock_api::native"]),
    ("access", &["pki"]),
    ("journal", &["testkit::faults"]),
    ("interdc", &["pki", "runtime::fine_timer"]),
    ("control", &["runtime::tasks"]),
    // Its metrics are those of the machine and of the disk.
    ("telemetry", &["access", "crdt", "journal", "replica"]),
    (
        "lock_server",
        &["access", "causal_log", "interdc", "journal", "replica", "telemetry", "testkit::faults"],
    ),
    (
        "server::api",
        &[
            "access",
            "causal_log",
            "crdt",
            "geolock_api::native",
            "journal",
            "lock_server",
            "pki",
            "replica",
            "store_state",
            "telemetry",
        ],
    ),
    // The options of each room.
    (
        "server::config",
        &["access", "journal", "lock_server", "lock_state", "replica", "server::api", "telemetry"],
    ),
    ("server::reload", &["access", "pki", "runtime::tasks", "server::config", "telemetry"]),
    (
        "server::node",
        &[
            "interdc",
            "lock_server",
            "pki",
            "runtime::tasks",
            "server::api",
            "server::config",
            "server::reload",
            "telemetry",
        ],
    ),
    ("testkit::faults", &["telemetry"]),
    // Uses only what any program can use.
    ("testkit::load_test", &["geolock_client", "runtime::fine_timer", "runtime::tasks"]),
    // Every decoder of the server.
    (
        "testkit::fuzz",
        &[
            "access",
            "causal_log",
            "crdt",
            "geolock_api::native",
            "interdc",
            "journal",
            "leases",
            "replica",
            "server::api",
            "server::config",
            "store_state",
        ],
    ),
];
/// The commands that use more than [`COMMANDS`], with that.
const COMMANDS_WITH_MORE: [(&str, &[&str]); 9] = [
    ("ca", &["pki"]),
    ("token", &["access"]),
    ("sim", &["sim"]),
    ("print", &["telemetry"]),
    ("service_manager", &["lock_server"]),
    ("bench", &["lock_server", "server::node", "testkit::load_test"]),
    ("server", &["journal", "runtime::open_files", "server::node", "server::reload", "telemetry"]),
    ("server_faults", &["interdc", "testkit::faults"]),
    (
        "dev",
        &[
            "interdc",
            "lock_server",
            "pki",
            "replica",
            "runtime::open_files",
            "runtime::tasks",
            "server::node",
            "telemetry",
        ],
    ),
];
/// The rooms that every command may import: the client, and how options are written.
const COMMANDS: [&str; 2] = ["geolock_client", "server::config"];

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
