//! `--home` of the commands that name locks.
//!
//! Guarantee: docs/guarantees.md#homed-locks.

use std::process::Stdio;

use crate::fixture::said::run;
use crate::fixture::{Output, Running, servers, until};

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
    let by_name = ["lock", "--try", "--home", "city0", "x", "--", "true"];
    assert_eq!(said(&by_name).code, 75, "the same lock, with the name of its home");
    assert!(said(&["describe", "--home", "city0", "x"]).stdout.contains("home         dc0"));
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

#[test]
fn datacenters_are_named_by_id_or_by_name_in_every_command() {
    let cluster = servers(1).listening();
    let said = |args: &[&str]| run(&mut cluster.command(0, args));
    for args in [
        &["lock", "--home", "city0", "x", "--", "true"][..],
        &["once", "--home", "city0", "x", "--", "true"],
        &["every", "--home", "city0", "1h", "x", "--", "true"],
        &["elect", "--home", "city0", "x", "v", "--", "true"],
        &["kv", "txn", "--home", "city0", "--lock", "x", "--commit-at-end", "--"],
    ] {
        let done = said(args);
        assert_eq!(done.code, 0, "{args:?}: {done:?}");
    }
    // The list of decisions begins a moment after the start.
    until("a home", || (said(&["member", "home", "jobs/", "city0"]).code == 0).then_some(()));
    let set = said(&["member", "home"]);
    assert!(set.stdout.contains("jobs/   dc0   city0"), "{set:?}");
    for args in [
        &["lock", "--home", "city9", "x", "--", "true"][..],
        &["describe", "--home", "city9", "x"],
        &["release", "--home", "city9", "x", "--force", "--reason", "r"],
        &["once", "--home", "city9", "x", "--", "true"],
        &["member", "home", "jobs/", "city9"],
        &["member", "remove", "city9"],
        &["member", "evict", "city9", "--confirm-dead"],
        &["member", "replace", "city9", "--confirm-dead"],
        &["member", "recover", "--survivors", "city0", "--confirm-lost", "city9"],
        &["member", "add", "new", "--sponsor", "city9"],
    ] {
        let refused = said(args);
        assert_eq!(refused.code, 64, "{args:?}: {refused:?}");
        let why = "no datacenter is called \"city9\"; there are city0 (dc0)";
        assert!(refused.stderr.contains(why), "{args:?}: {refused:?}");
    }
}

/// None of them has heard yet that all others understand such locks.
#[test]
fn a_lock_with_a_home_is_had_in_the_first_moment_of_a_cluster() {
    for _ in 0..3 {
        let mut cluster = servers(3).prepared();
        (0..3).for_each(|dc| cluster.launch(dc));
        (0..3).for_each(|dc| drop(cluster.server(dc).line("listening")));
        for dc in 0..3 {
            let said = run(&mut cluster.command(dc, ["lock", "--home", "1", "x", "--", "true"]));
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
}
