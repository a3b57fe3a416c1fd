//! The crates that a program with the client alone compiles: not those of the server, and not many.

use std::collections::BTreeMap;
use std::process::Command;

/// The most crates of which the program consists, with the client and the API.
const MOST_LINKED: usize = 80;
/// The most crates that are compiled for it: also those that generate the messages from the .proto.
const MOST_COMPILED: usize = 115;
/// Crates of the server. A program that needs one of them names it itself.
const OF_SERVER: [&str; 19] = [
    "anstream",
    "axum",
    "bincode",
    "clap",
    "crc32c",
    "crdts",
    "geolock",
    "hdrhistogram",
    "mimalloc",
    "openraft",
    "prometheus-client",
    "quinn",
    "rcgen",
    "redb",
    "serde",
    "serde_json",
    "tonic-health",
    "tracing-subscriber",
    "x509-parser",
];

/// Returns the crates of the client's tree, each version with its features, along these edges of the tree.
fn tree(edges: &str) -> BTreeMap<String, String> {
    let format = ["--format", "{p}|{f}", "--prefix", "none", "--no-dedupe"];
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--package", "geolock-client", "--edges", edges]).args(format);
    let output =
        tree.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs the tests, so it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are text");
    let row = |line: &str| {
        let (package, features) = line.split_once('|').expect("the format has a bar");
        // Behind name and version there may be a path.
        (package.split(' ').take(2).collect::<Vec<_>>().join(" "), features.to_owned())
    };
    text.lines().filter(|line| !line.is_empty()).map(row).collect()
}

fn name(package: &str) -> &str {
    package.split(' ').next().unwrap_or_default()
}

#[test]
fn a_program_with_the_client_compiles_nothing_of_the_server() {
    let compiled = tree("normal,build");
    assert!(compiled.keys().any(|package| name(package) == "tonic"), "the tree is found");
    let of_server: Vec<_> = compiled.keys().filter(|package| OF_SERVER.contains(&name(package))).collect();
    assert!(of_server.is_empty(), "the client compiles {of_server:?}");
    for (package, features) in &compiled {
        let serves = features.split(',').any(|feature| feature == "server");
        assert!(!serves, "the client compiles the server's part of {package}");
    }
}

#[test]
fn a_program_with_the_client_is_compiled_from_few_crates() {
    let (linked, compiled) = (tree("normal"), tree("normal,build"));
    println!("{} crates, {} with those that run at build time", linked.len(), compiled.len());
    assert!(linked.len() <= MOST_LINKED, "{} crates: {linked:?}", linked.len());
    assert!(compiled.len() <= MOST_COMPILED, "{} crates: {compiled:?}", compiled.len());
}
