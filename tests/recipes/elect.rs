//! `geolock elect` as a user sees it: processes, exit codes, output.
//!
//! Guarantee: docs/guarantees.md#leader-election.

use std::process::{Command, Stdio};

use crate::fixture::said::{Said, run, said};
use crate::fixture::{Cluster, Output, Running, servers};
use rustix::process::Signal;

/// `geolock elect FLAGS x VALUE -- sh -c SCRIPT`.
fn elect(cluster: &Cluster, dc: u8, flags: &[&str], value: &str, script: &str) -> Command {
    let mut command = cluster.command(dc, ["elect"]);
    command.args(flags).args(["x", value, "--", "sh", "-c", script]).stdin(Stdio::piped());
    command
}

fn observer(cluster: &Cluster, dc: u8) -> Running {
    Running::start(&mut cluster.command(dc, ["elect", "--observe", "--json", "x"]), Output::Stdout)
}

/// Returns the token that a leader's command prints.
fn token(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|token| token.parse().ok()).expect("the line ends with a token")
}

#[test]
fn a_leader_that_is_killed_has_a_successor_and_observers_see_it() {
    let cluster = servers(3).patient().quick().listening();
    let script = "echo leads $GEOLOCK_TOKEN; read -r line";
    let short = ["--ttl", "3s", "--label"];
    let mut observer = observer(&cluster, 2);
    observer.line(r#"{"leader":null}"#);
    let mut first = Running::start(
        &mut elect(&cluster, 0, &[&short[..], &["ann"]].concat(), "a:1", script),
        Output::Stdout,
    );
    let led = token(&first.line("leads"));
    observer.line(&format!(r#"{{"leader":{{"token":"{led}","value":"a:1","who":"ann"}}}}"#));
    let mut second = Running::start(
        &mut elect(&cluster, 1, &[&short[..], &["bob"]].concat(), "b:2", script),
        Output::Stdout,
    );
    first.signal(Signal::KILL);
    let leads = token(&second.line("leads"));
    assert!(leads > led);
    observer.line(&format!(r#"{{"leader":{{"token":"{leads}","value":"b:2","who":"bob"}}}}"#));
    assert!(!observer.seen.iter().any(|line| line.contains("ann")), "{:?}", observer.seen);
    second.signal(Signal::KILL);
    observer.line(r#"{"leader":null}"#);
}

#[test]
fn the_command_decides_the_exit_code_and_its_end_is_that_of_the_lead() {
    let cluster = servers(1).patient().listening();
    assert_eq!(run(&mut elect(&cluster, 0, &[], "v", "exit 7")).code, 7);
    let mut leader = Running::start(
        &mut elect(&cluster, 0, &["--label", "ann"], "v w", "echo leads; read -r line"),
        Output::Stdout,
    );
    leader.line("leads");
    let mut observed = Running::start(&mut cluster.command(0, ["elect", "--observe", "x"]), Output::Stdout);
    let line = observed.line("leads");
    assert!(line.starts_with("ann leads: v w (token "), "{line}");
    let told: Said = run(&mut elect(&cluster, 0, &["--wait", "100ms"], "w", "exit 9"));
    assert_eq!(told.code, 75, "{}", told.stderr);
    assert!(told.stderr.contains("ann"), "it says who leads: {}", told.stderr);
    let once = run(&mut cluster.command(0, ["elect", "--observe", "--once", "--json", "x"]));
    assert_eq!((once.code, once.stdout.lines().count()), (0, 1), "{}", once.stderr);
    assert!(once.stdout.contains(r#""value":"v w","who":"ann""#), "{}", once.stdout);
    drop(leader.stdin());
    assert_eq!(leader.wait(), 1, "read has come to the end of its input");
    observed.line("nobody leads");
    observed.signal(Signal::TERM);
    assert_eq!(observed.wait(), 0);
    assert_eq!(run(&mut cluster.command(0, ["elect", "x", "v", "--", "/no/such/command"])).code, 127);
}

#[test]
fn a_leader_whose_lock_was_taken_away_ends_its_command_with_74() {
    let cluster = servers(1).patient().listening();
    let mut command = elect(&cluster, 0, &[], "v", "echo leads >&2; exec sleep 600");
    let leader = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary is there");
    let mut observer = observer(&cluster, 0);
    observer.line(r#""value":"v""#);
    let force = ["release", "geolock.elect/x", "--force", "--reason", "it hangs"];
    assert_eq!(run(&mut cluster.command(0, force)).code, 0);
    let told = said(leader);
    assert_eq!(told.code, 74, "{}", told.stderr);
    assert!(told.stderr.contains("it hangs"), "{}", told.stderr);
}

#[test]
fn wrong_usage_is_64() {
    let cluster = servers(1).patient().listening();
    let (name, value) = ("n".repeat(1_011), "v".repeat(65_537));
    for args in [
        &["elect", "x"][..],
        &["elect", "x", "v"],
        &["elect", "x", "--", "true"],
        &["elect", "--json", "x", "v", "--", "true"],
        &["elect", "--once", "x", "v", "--", "true"],
        &["elect", "--observe", "x", "v"],
        &["elect", "--observe", "--wait", "1s", "x"],
        &["elect", "--observe", "x", "--", "true"],
        &["elect", "", "v", "--", "true"],
        &["elect", &name, "v", "--", "true"],
        &["elect", "x", &value, "--", "true"],
    ] {
        let told = run(&mut cluster.command(0, args));
        assert_eq!(told.code, 64, "{args:?}: {}", told.stderr);
    }
}
