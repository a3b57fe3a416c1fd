//! The Python examples against real servers, where there is a Python that has gRPC: `python3`, or the one
//! that `GEOLOCK_TEST_PYTHON` names. Elsewhere these tests say so and pass.
//!
//! Guarantee: docs/guarantees.md#not-promised.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::said::run;
use crate::fixture::{Cluster, Output, Running, servers, until};

/// Returns the command for a file of the examples, if there is a suitable Python.
fn python(file: &str) -> Option<Command> {
    let python = std::env::var_os("GEOLOCK_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let mut can = Command::new(&python);
    can.args(["-c", "import grpc, grpc_tools"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !can.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: {} has no grpcio and grpcio-tools", python.display());
        return None;
    }
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/python").join(file));
    // Keeps the examples' folder unchanged.
    command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    Some(command)
}

/// Returns the command for one of the examples, if there is a suitable Python.
fn example(cluster: &Cluster, name: &str) -> Option<Command> {
    let mut command = python(name)?;
    command.arg("--connect").arg(cluster.endpoint(0)).arg("--tls").arg(cluster.tls());
    Some(command)
}

/// Starts `lock.py`, which holds the lock for longer than this test takes. Returns when it holds the lock.
fn holder(cluster: &Cluster, ttl: &str, hold: &str) -> Option<Running> {
    let mut command = example(cluster, "lock.py")?;
    command.args(["--ttl", ttl, "--hold", hold, "x"]);
    let mut holder = Running::start(command.stderr(Stdio::piped()), Output::Stdout);
    holder.line("holding x with fencing token");
    Some(holder)
}

#[test]
fn a_lock_is_taken_held_and_released() {
    let cluster = servers(1).listening();
    let Some(mut command) = example(&cluster, "lock.py") else { return };
    let said = run(command.args(["--hold", "0", "x"]));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stdout.contains("fencing token") && said.stdout.ends_with("released\n"), "{}", said.stdout);
    let there = run(&mut cluster.command(0, ["lock", "--try", "x", "--", "true"]));
    assert_eq!(there.code, 0, "it is free: {}", there.stderr);
    // It ends when this test does, which closes its input.
    let mut other = cluster.command(0, ["lock", "y", "--", "cat"]);
    let _other = Running::start(other.stdin(Stdio::piped()), Output::Stdout);
    until("a holder", || {
        let said = run(&mut cluster.command(0, ["describe", "y"]));
        said.stdout.contains("exclusive").then_some(())
    });
    let late = run(example(&cluster, "lock.py").expect("it was there").args(["--wait", "0.1", "y"]));
    assert_eq!(late.code, 75, "{}", late.stderr);
    let lost = run(example(&cluster, "lock.py").expect("it was there").args(["--tls", "nowhere", "y"]));
    assert_eq!(lost.code, 64, "{}", lost.stderr);
    assert!(lost.stderr.starts_with("no certificates of a client in nowhere: "), "{}", lost.stderr);
}

#[test]
fn a_lock_that_is_taken_away_ends_its_holder_with_74() {
    let cluster = servers(1).listening();
    let Some(mut holder) = holder(&cluster, "4", "600") else { return };
    let taken = run(&mut cluster.command(0, ["release", "x", "--force", "--reason", "ticket 4711"]));
    assert_eq!(taken.code, 0, "{}", taken.stderr);
    assert_eq!(holder.wait(), 74);
    assert_eq!(holder.rest(), [""; 0], "it was not released");
}

#[test]
fn a_lock_whose_server_is_gone_is_lost_in_time() {
    let mut cluster = servers(1).listening();
    let Some(mut holder) = holder(&cluster, "4", "600") else { return };
    cluster.kill(0);
    assert_eq!(holder.wait(), 74);
}

#[test]
fn who_waits_for_a_server_that_is_gone_has_lost_nothing() {
    let mut cluster = servers(1).listening();
    let Some(mut waiting) = example(&cluster, "lock.py") else { return };
    let mut holder = cluster.command(0, ["lock", "x", "--", "sh", "-c", "echo in; cat"]);
    let mut holder = Running::start(holder.stdin(Stdio::piped()), Output::Stdout);
    holder.line("in");
    let mut waiting = Running::start(waiting.args(["--ttl", "2", "--wait", "60", "x"]), Output::Stderr);
    until("a queue", || {
        let said = run(&mut cluster.command(0, ["describe", "--json", "x"]));
        said.stdout.contains("\"waiting\":1").then_some(())
    });
    cluster.kill(0);
    assert_eq!(waiting.wait(), 69);
    assert!(!waiting.rest().iter().any(|line| line.contains("stop working")));
    drop(holder.stdin());
}

#[test]
fn the_model_client_keeps_its_rules_in_any_order_of_events() {
    let Some(mut tests) = python("test_client.py") else { return };
    let said = run(&mut tests);
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn a_lock_is_held_over_a_restart_of_its_server() {
    let mut cluster = servers(1).listening();
    let Some(mut holder) = holder(&cluster, "15", "20") else { return };
    cluster.kill(0);
    cluster.restart(0);
    // It makes no conflicting grant before it has heard from the holder.
    let tried = run(&mut cluster.command(0, ["lock", "--try", "x", "--", "true"]));
    assert_eq!(tried.code, 75, "{}", tried.stderr);
    assert_eq!(holder.line("released"), "released");
    assert_eq!(holder.wait(), 0);
}

#[test]
fn an_amount_is_moved_between_accounts() {
    let cluster = servers(1).listening();
    let Some(mut command) = example(&cluster, "transfer.py") else { return };
    let said = run(command.args(["alice", "bob", "10"]));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stdout.starts_with("alice has -10, bob has 10"), "{}", said.stdout);
    let said = run(example(&cluster, "transfer.py").expect("it was there").args(["alice", "bob", "100"]));
    assert!(said.stdout.contains("too little"), "{} {}", said.stdout, said.stderr);
    let there = run(&mut cluster.command(0, ["kv", "get", "--bucket", "accounts", "alice", "bob"]));
    assert_eq!(there.stdout, "alice\t-10\nbob\t10\n");
}
