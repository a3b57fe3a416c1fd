//! `--home` of the commands that name locks.
//!
//! Guarantee: docs/guarantees.md#homed-locks.

use std::process::Stdio;

use crate::fixture::said::run;
use crate::fixture::{Output, Running, servers};

#[test]
fn a_home_is_part_of_the_name_in_every_command() {
    let cluster = servers(1).listening();
    let mut command = cluster.command(0, ["lock", "--home", "0", "x", "--", "sh", "-c", "echo in; cat"]);
    let mut holder = Running::start(command.stdin(Stdio::piped()), Output::Stdout);
    holder.line("in");
    let said = |args: &[&str]| run(&mut cluster.command(0, args));

    assert_eq!(said(&["lock", "--try", "x", "--", "true"]).code, 0, "another lock");
    assert_eq!(said(&["lock", "--try", "--home", "dc0", "x", "--", "true"]).code, 75);
    let locks = said(&["locks"]).stdout;
    assert!(locks.contains("HOME  NAME") && locks.contains("dc0   x"), "{locks}");
    assert!(said(&["locks", "--json"]).stdout.contains("\"home\":0"));
    assert!(said(&["describe", "--home", "0", "x"]).stdout.contains("home         dc0"));
    let described = said(&["describe", "--home", "0", "--json", "x"]).stdout;
    assert!(described.contains("\"home\":0") && described.contains("exclusive"), "{described}");
    assert!(!said(&["describe", "--json", "x"]).stdout.contains("home"));

    for args in [&["lock", "--home", "1", "x", "--", "true"][..], &["describe", "--home", "oslo", "x"]] {
        assert_eq!(said(args).code, 64, "{args:?}");
    }
    let mut txn = cluster.command(0, ["kv", "txn", "--lock", "x", "--home", "0", "--try", "--"]);
    assert_eq!(run(txn.stdin(Stdio::null())).code, 75, "it is held");

    let why = ["--force", "--reason", "ticket 4711"];
    let plain = said(&[&["release", "x"], &why[..]].concat());
    assert!(plain.stdout.contains("Nobody holds x:"), "{}", plain.stdout);
    let taken = said(&[&["release", "x", "--home", "0"], &why[..]].concat());
    assert!(taken.stdout.contains("x (home dc0) (exclusive"), "{}", taken.stdout);
    assert_eq!(holder.wait(), 74);
    assert!(said(&["audit"]).stdout.contains("took x (home dc0) (exclusive"));
}
