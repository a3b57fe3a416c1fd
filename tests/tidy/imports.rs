//! Imports between rooms: downwards only.

use std::fs;

use crate::files::root;
use crate::rooms::IMPORTS;
use crate::{HALLS, Source, report, room_of, sources};

/// The commands that use more than [`COMMANDS`], with that.
const COMMANDS_WITH_MORE: [(&str, &[&str]); 15] = [
    ("ca", &["pki"]),
    ("token", &["access"]),
    ("sim", &["sim"]),
    // It reads the log in a data directory.
    ("journal", &["causal_log", "server::orphans"]),
    ("once", &["geolock_recipes"]),
    ("every", &["geolock_recipes"]),
    ("elect", &["geolock_recipes"]),
    ("print", &["telemetry"]),
    ("status", &["telemetry"]),
    ("service_manager", &["lock_server"]),
    ("bench", &["lock_server", "server::node", "testkit::load_test"]),
    ("server", &["runtime::memory", "runtime::open_files", "server::node", "server::reload", "telemetry"]),
    ("server_faults", &["interdc", "testkit::faults"]),
    ("witness", &["server::node", "server::reload", "telemetry"]),
    (
        "dev",
        &[
            "interdc",
            "lock_server",
            "membership",
            "pki",
            "replica",
            "runtime::memory",
            "runtime::open_files",
            "runtime::tasks",
            "server::members",
            "server::node",
            "telemetry",
        ],
    ),
];
/// The rooms that every command may import: the client, and how options are written.
const COMMANDS: [&str; 2] = ["geolock_client", "server::config"];

/// Returns what a source of the server may import beside `base`, or nothing if its room has no rule.
fn importable_in_server(source: &Source) -> Option<Vec<&'static str>> {
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

/// The rooms that each room of the API and of the client may import, beside the rooms of [`WORDS`] in the
/// client. Nothing of the server has a name there.
const IMPORTS_OUTSIDE: [(&str, &[&str]); 62] = [
    ("geolock_api::encoding", &["geolock_api::keys", "geolock_api::names"]),
    ("geolock_api::lib", &[]),
    ("geolock_api::keys", &[]),
    ("geolock_api::names", &[]),
    ("geolock_api::time", &[]),
    ("geolock_api::proto", &[]),
    ("geolock_api::native", &["geolock_api::proto"]),
    ("geolock_api::value", &["geolock_api::names", "geolock_api::proto"]),
    // A program's words, without IO.
    ("geolock_client::lib", &[]),
    ("geolock_client::error", &[]),
    ("geolock_client::changes", &[]),
    ("geolock_client::clock", &[]),
    ("geolock_client::token", &["geolock_client::error"]),
    ("geolock_client::tag", &[]),
    ("geolock_client::lease_clock", &[]),
    ("geolock_client::request", &["geolock_client::error"]),
    ("geolock_client::values", &[]),
    ("geolock_client::txn_error", &["geolock_client::error", "geolock_client::values"]),
    (
        "geolock_client::txn_request",
        &[
            "geolock_client::changes",
            "geolock_client::error",
            "geolock_client::request",
            "geolock_client::txn_error",
        ],
    ),
    // The decisions.
    (
        "geolock_client::session",
        &[
            "geolock_client::error",
            "geolock_client::lease_clock",
            "geolock_client::request",
            "geolock_client::tag",
            "geolock_client::txn_error",
            "geolock_client::txn_request",
        ],
    ),
    // Connections.
    ("geolock_client::config", &["geolock_client::error", "geolock_client::token"]),
    (
        "geolock_client::native",
        &[
            "geolock_api::native",
            "geolock_client::address",
            "geolock_client::clock",
            "geolock_client::config",
            "geolock_client::connection",
            "geolock_client::error",
            "geolock_client::shared",
            "geolock_client::token",
        ],
    ),
    ("geolock_client::address", &[]),
    ("geolock_client::seen", &["geolock_client::address", "geolock_client::clock"]),
    (
        "geolock_client::renewing",
        &[
            "geolock_client::connection",
            "geolock_client::error",
            "geolock_client::shared",
            "geolock_client::tag",
        ],
    ),
    (
        "geolock_client::connection",
        &[
            "geolock_client::address",
            "geolock_client::config",
            "geolock_client::error",
            "geolock_client::native",
            "geolock_client::renewing",
            "geolock_client::seen",
            "geolock_client::shared",
            "geolock_client::token",
        ],
    ),
    (
        "geolock_client::shared",
        &[
            "geolock_client::clock",
            "geolock_client::error",
            "geolock_client::request",
            "geolock_client::session",
            "geolock_client::txn_error",
            "geolock_client::txn_request",
        ],
    ),
    (
        "geolock_client::driver",
        &[
            "geolock_client::clock",
            "geolock_client::connection",
            "geolock_client::error",
            "geolock_client::session",
            "geolock_client::shared",
        ],
    ),
    // Handles of programs.
    (
        "geolock_client::handle",
        &[
            "geolock_client::config",
            "geolock_client::connection",
            "geolock_client::driver",
            "geolock_client::error",
            "geolock_client::guard",
            "geolock_client::request",
            "geolock_client::session",
            "geolock_client::shared",
        ],
    ),
    (
        "geolock_client::amendable",
        &[
            "geolock_client::error",
            "geolock_client::guard",
            "geolock_client::handle",
            "geolock_client::request",
            "geolock_client::session",
        ],
    ),
    (
        "geolock_client::guard",
        &[
            "geolock_client::error",
            "geolock_client::handle",
            "geolock_client::session",
            "geolock_client::shared",
        ],
    ),
    (
        "geolock_client::read_client",
        &[
            "geolock_client::changes",
            "geolock_client::config",
            "geolock_client::connection",
            "geolock_client::error",
            "geolock_client::handle",
            "geolock_client::txn_request",
            "geolock_client::values",
        ],
    ),
    (
        "geolock_client::admin_client",
        &["geolock_client::config", "geolock_client::error", "geolock_client::read_client"],
    ),
    (
        "geolock_client::transaction",
        &[
            "geolock_client::error",
            "geolock_client::guard",
            "geolock_client::handle",
            "geolock_client::read_client",
            "geolock_client::txn_error",
            "geolock_client::txn_request",
            "geolock_client::values",
        ],
    ),
    (
        "geolock_client::with_lock",
        &[
            "geolock_client::error",
            "geolock_client::guard",
            "geolock_client::handle",
            "geolock_client::request",
        ],
    ),
    (
        "geolock_client::watch",
        &[
            "geolock_client::changes",
            "geolock_client::connection",
            "geolock_client::driver",
            "geolock_client::error",
            "geolock_client::read_client",
        ],
    ),
    // On the client alone.
    (
        "geolock_recipes::lib",
        &[
            "geolock_recipes::barrier",
            "geolock_recipes::election",
            "geolock_recipes::held",
            "geolock_recipes::held_state",
            "geolock_recipes::latch",
            "geolock_recipes::limits",
            "geolock_recipes::once",
            "geolock_recipes::once_state",
            "geolock_recipes::periodic",
            "geolock_recipes::reentrant",
            "geolock_recipes::rwlock",
            "geolock_recipes::selector",
            "geolock_recipes::semaphore",
            "geolock_recipes::sequencer",
            "geolock_recipes::valued",
        ],
    ),
    ("geolock_recipes::held_state", &["geolock_client"]),
    ("geolock_recipes::held", &["geolock_client", "geolock_recipes::held_state", "geolock_recipes::retry"]),
    (
        "geolock_recipes::election",
        &["geolock_client", "geolock_recipes::held", "geolock_recipes::held_state"],
    ),
    ("geolock_recipes::valued", &["geolock_client", "geolock_recipes::held", "geolock_recipes::held_state"]),
    ("geolock_recipes::reentrant_state", &["geolock_client"]),
    ("geolock_recipes::rwlock", &["geolock_client"]),
    ("geolock_recipes::semaphore", &["geolock_client"]),
    ("geolock_recipes::reentrant", &["geolock_client", "geolock_recipes::reentrant_state"]),
    ("geolock_recipes::latch_state", &[]),
    (
        "geolock_recipes::latch",
        &[
            "geolock_client",
            "geolock_recipes::latch_state",
            "geolock_recipes::limits",
            "geolock_recipes::retry",
        ],
    ),
    ("geolock_recipes::barrier_state", &[]),
    (
        "geolock_recipes::barrier",
        &[
            "geolock_client",
            "geolock_recipes::barrier_state",
            "geolock_recipes::limits",
            "geolock_recipes::retry",
        ],
    ),
    ("geolock_recipes::periodic_state", &["geolock_client"]),
    (
        "geolock_recipes::periodic",
        &[
            "geolock_client",
            "geolock_recipes::limits",
            "geolock_recipes::once",
            "geolock_recipes::once_state",
            "geolock_recipes::periodic_state",
        ],
    ),
    ("geolock_recipes::once_state", &["geolock_client", "geolock_recipes::limits"]),
    (
        "geolock_recipes::once",
        &[
            "geolock_client",
            "geolock_recipes::once_state",
            "geolock_recipes::random",
            "geolock_recipes::retry",
        ],
    ),
    ("geolock_recipes::selector_state", &["geolock_client", "geolock_recipes::limits"]),
    (
        "geolock_recipes::selector",
        &[
            "geolock_client",
            "geolock_recipes::hash",
            "geolock_recipes::once_state",
            "geolock_recipes::random",
            "geolock_recipes::retry",
            "geolock_recipes::selector_state",
        ],
    ),
    ("geolock_recipes::sequencer_state", &["geolock_recipes::hash", "geolock_recipes::limits"]),
    (
        "geolock_recipes::sequencer",
        &[
            "geolock_client",
            "geolock_recipes::once",
            "geolock_recipes::once_state",
            "geolock_recipes::random",
            "geolock_recipes::retry",
            "geolock_recipes::sequencer_state",
        ],
    ),
    ("geolock_recipes::retry", &["geolock_client", "geolock_recipes::once_state"]),
    ("geolock_recipes::random", &[]),
    ("geolock_recipes::dice", &[]),
    ("geolock_recipes::hash", &[]),
    ("geolock_recipes::limits", &[]),
];
/// The rooms of the API without IO: the words of clients and servers.
const WORDS: [&str; 5] = ["keys", "names", "proto", "time", "value"];

/// Returns what a source may import, or nothing if its room has no rule.
fn importable(source: &Source) -> Option<Vec<&'static str>> {
    if source.room.starts_with("geolock_") {
        return IMPORTS_OUTSIDE.iter().find(|(room, _)| *room == source.room).map(|(_, own)| own.to_vec());
    }
    importable_in_server(source)
}

#[test]
fn rooms_import_downwards_only() {
    let mut faults = Vec::new();
    let mut imports = 0;
    let sources = sources();
    for source in sources.iter().filter(|source| !source.is_test) {
        let Some(allowed) = importable(source) else {
            faults.push(format!("{}: the room {} has no rule", source.path.display(), source.room));
            continue;
        };
        let is_api = source.room.starts_with("geolock_api::");
        let is_word = |target: &str| {
            !is_api && target.strip_prefix("geolock_api::").is_some_and(|room| WORDS.contains(&room))
        };
        for target in targets(source) {
            imports += 1;
            let hall = |room: &str| room.split("::").next().unwrap_or_default() == "cli";
            let is_own = target == source.room || hall(&target) && hall(&source.room);
            if !is_own && target != "base" && !is_word(&target) && !allowed.contains(&target.as_str()) {
                faults.push(format!("{}: {} may not import {target}", source.path.display(), source.room));
            }
        }
    }
    assert!(imports > 1000, "imports are found");
    report(&faults);
}

#[test]
fn every_rule_is_about_a_room() {
    let sources = sources();
    let named = IMPORTS.iter().chain(&IMPORTS_OUTSIDE).map(|(room, _)| (*room).to_owned());
    let commands = COMMANDS_WITH_MORE.iter().map(|(command, _)| format!("cli::{command}"));
    let gone = named.chain(commands).filter(|room| sources.iter().all(|source| source.room != *room));
    report(&gone.collect::<Vec<_>>());
}

#[test]
fn an_import_is_seen_however_it_is_written() {
    let seen_in = |package: &str, module: &[&str], code: &str| {
        let module: Vec<String> = module.iter().map(|&name| name.to_owned()).collect();
        targets_in(package, &module, code).join(" ")
    };
    let seen = |code: &str| seen_in("", &["server", "api", "stream"], code);
    assert_eq!(seen("use crate::replica::call::Call;"), "replica");
    assert_eq!(
        seen("use crate::{replica, server::{api, config::Config}, sim::{self, run}};"),
        "replica server::api server::config sim sim"
    );
    assert_eq!(
        seen("let it = crate::server::node::Node; geolock_client::Client"),
        "server::node geolock_client"
    );
    assert_eq!(seen("use geolock_api::{names::DcId, native};"), "geolock_api::names geolock_api::native");
    assert_eq!(
        seen("use super::error::Error; use super::super::node::{self, Node};"),
        "server::api server::node server::node"
    );
    assert_eq!(seen("use super::super::super::sim;"), "sim");
    let seen = |code: &str| seen_in("geolock_client::", &["session", "lease"], code);
    assert_eq!(
        seen("use crate::tag::Tag; use super::Session;"),
        "geolock_client::tag geolock_client::session"
    );
    assert_eq!(seen("use super::super::driver;"), "geolock_client::driver");
}

/// Returns the rooms that the code of a source names.
fn targets(source: &Source) -> Vec<String> {
    let package = source.room.split_inclusive("::").next().filter(|first| first.starts_with("geolock_"));
    targets_in(package.unwrap_or_default(), &source.module, &source.without_comments())
}

/// `package`: as it begins the names of its rooms.
fn targets_in(package: &str, module: &[String], code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        paths(&code[at + "crate::".len()..], &mut |path| {
            found.push(format!("{package}{}", room_of(&path.split("::").collect::<Vec<_>>())));
        });
    }
    for (at, _) in code.match_indices("super::").filter(|(at, _)| !code[..*at].ends_with("super::")) {
        let mut rest = &code[at..];
        let mut above = module;
        while let Some(next) = rest.strip_prefix("super::") {
            (rest, above) = (next, above.split_last().map_or(above, |(_, above)| above));
        }
        paths(rest, &mut |path| {
            let whole: Vec<_> = above.iter().map(String::as_str).chain(path.split("::")).collect();
            found.push(format!("{package}{}", room_of(&whole)));
        });
    }
    for (at, _) in code.match_indices("geolock_api::") {
        paths(&code[at + "geolock_api::".len()..], &mut |path| {
            found.push(format!("geolock_api::{}", path.split("::").next().unwrap_or_default()));
        });
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
