//! `geolock once` as a user sees it: processes, exit codes, output.
//!
//! Guarantee: docs/guarantees.md#run-once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::fixture::said::{Said, run, said};
use crate::fixture::{Cluster, Output, Running, servers, until};
use rustix::process::Signal;

/// A file to which commands append lines.
fn file(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("lines")
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// `geolock once FLAGS x -- sh -c SCRIPT`; the script finds the file in `$FILE`.
fn once(cluster: &Cluster, dc: u8, flags: &[&str], script: &str) -> Command {
    let mut command = cluster.command(dc, ["once"]);
    command.args(flags).args(["x", "--", "sh", "-c", script]).env("FILE", file(cluster)).stdin(Stdio::null());
    command
}

fn spawned(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary is there")
}

/// Waits until the file has so many lines.
fn until_lines(file: &Path, count: usize) {
    until(&format!("{count} lines"), || (lines(file).len() >= count).then_some(()));
}

/// Returns the tokens that the commands have written, a line each.
fn tokens(cluster: &Cluster) -> Vec<u64> {
    lines(&file(cluster)).iter().map(|line| line.parse().expect("a token is a number")).collect()
}

#[test]
fn of_forty_processes_in_three_datacenters_one_runs_the_command() {
    let cluster = servers(3).quick().listening();
    let all: Vec<Child> = (0..40)
        .map(|number| spawned(once(&cluster, number % 3, &["--tell"], "echo $GEOLOCK_TOKEN >> $FILE")))
        .collect();
    let told: Vec<Said> = all.into_iter().map(said).collect();
    let others = told.iter().filter(|told| told.code == 10).count();
    let odd: Vec<&Said> = told.iter().filter(|told| ![0, 10].contains(&told.code)).collect();
    assert_eq!((lines(&file(&cluster)).len(), others, odd.len()), (1, 39, 0), "{odd:?}");

    let again = run(&mut once(&cluster, 1, &["--json"], "echo again >> $FILE"));
    assert_eq!((again.code, lines(&file(&cluster)).len()), (0, 1));
    let token = &lines(&file(&cluster))[0];
    assert!(again.stdout.contains("\"outcome\":\"done_by_other\""), "{}", again.stdout);
    let status = run(&mut cluster.command(2, ["once", "--status", "x"]));
    assert!(status.stdout.starts_with(&format!("x: run {token} done at ")), "{}", status.stdout);
    let status = run(&mut cluster.command(2, ["once", "--status", "--json", "y"]));
    assert_eq!(status.stdout.trim(), r#"{"live":false,"name":"y","pause":false,"record":null}"#);
}

#[test]
fn a_command_that_fails_is_tried_again_and_its_failure_is_told() {
    let cluster = servers(1).listening();
    let script = "echo $GEOLOCK_TOKEN >> $FILE; test $(wc -l < $FILE) -gt 1 || exit 3";
    let told = run(&mut once(&cluster, 0, &["--tell"], script));
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stderr.contains("the command failed (it exited with 3)"), "{}", told.stderr);
    let tokens = tokens(&cluster);
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn a_check_decides_if_the_command_is_needed() {
    let cluster = servers(1).listening();
    let said = |check: &str, flags: &[&str]| {
        let flags = [&["--needed", check], flags].concat();
        run(&mut once(&cluster, 0, &flags, "echo done >> $FILE"))
    };
    assert_eq!(said("exit 1", &["--tell"]).code, 11);
    assert_eq!(said("exit 1", &[]).code, 0);
    let error = said("exit 5", &[]);
    assert_eq!(error.code, 1, "{}", error.stderr);
    assert!(error.stderr.contains("`--needed exit 5` exited with 5"), "{}", error.stderr);
    assert_eq!(lines(&file(&cluster)).len(), 0);
    let needed = "test ! -e $FILE";
    assert_eq!(said(needed, &["--tell"]).code, 0);
    assert_eq!(said(needed, &["--tell"]).code, 11);
    assert_eq!(lines(&file(&cluster)), ["done"]);
}

#[test]
fn who_waits_takes_over_from_a_runner_that_was_killed() {
    let cluster = servers(3).quick().listening();
    let script = "echo $GEOLOCK_TOKEN >> $FILE; echo in; cat";
    let mut runner = once(&cluster, 0, &["--ttl", "2s"], script);
    let mut runner = Running::start(runner.stdin(Stdio::piped()), Output::Stdout);
    runner.line("in");
    let other = spawned(once(&cluster, 1, &["--tell"], "echo $GEOLOCK_TOKEN >> $FILE"));
    runner.signal(Signal::KILL);
    let told = said(other);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let tokens = tokens(&cluster);
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn a_runner_whose_lock_was_taken_away_ends_its_command_with_74() {
    let cluster = servers(1).listening();
    let runner = spawned(once(&cluster, 0, &[], "echo in >> $FILE; sleep 600"));
    until_lines(&file(&cluster), 1);
    let force = ["release", "geolock.once/x", "--force", "--reason", "it hangs"];
    assert_eq!(run(&mut cluster.command(0, force)).code, 0);
    let told = said(runner);
    assert_eq!(told.code, 74, "{}", told.stderr);
    assert!(
        told.stderr.contains("the lock is lost") && told.stderr.contains("may run again"),
        "{}",
        told.stderr
    );
}

#[test]
fn who_gives_up_says_who_runs_it() {
    let cluster = servers(1).listening();
    let mut runner = once(&cluster, 0, &["--label", "ann"], "echo in; cat");
    let mut runner = Running::start(runner.stdin(Stdio::piped()), Output::Stdout);
    runner.line("in");
    let told = run(&mut once(&cluster, 0, &["--give-up-after", "1s"], "exit 9"));
    assert_eq!(told.code, 75, "{}", told.stderr);
    assert!(told.stderr.contains("of ann has started"), "{}", told.stderr);
    drop(runner.stdin());
    assert_eq!(runner.wait(), 0);
}

/// Other machines may have it: they are told that it failed here.
#[test]
fn a_command_that_cannot_be_started_is_not_tried_again_here() {
    let cluster = servers(1).listening();
    let file = cluster.dir().join("no-program");
    fs::write(&file, "").expect("it can be written");
    let file = file.to_str().expect("it is text");
    for (program, code) in [("/no/such/program", 127), (file, 126)] {
        let told = run(&mut cluster.command(0, ["once", program, "--", program]));
        assert_eq!(told.code, code, "{}", told.stderr);
        assert!(told.stderr.contains(&format!("cannot run {program}")), "{}", told.stderr);
        assert!(!told.stderr.contains("next attempt"), "{}", told.stderr);
        let status = run(&mut cluster.command(0, ["once", "--status", program]));
        assert!(status.stdout.contains(&format!("cannot run {program}")), "{}", status.stdout);
    }
}

#[test]
fn a_forgotten_job_is_run_again_but_not_while_it_runs() {
    let cluster = servers(1).listening();
    let mut runner = once(&cluster, 0, &[], "echo in; cat");
    let mut runner = Running::start(runner.stdin(Stdio::piped()), Output::Stdout);
    runner.line("in");
    let forget = || cluster.command(0, ["once", "--forget", "--wait", "1s", "x"]);
    assert_eq!(run(&mut forget()).code, 75, "it runs");
    drop(runner.stdin());
    assert_eq!(runner.wait(), 0);
    let again = || run(&mut once(&cluster, 0, &["--tell"], "true")).code;
    assert_eq!(again(), 10, "it is done");
    let told = run(&mut forget());
    assert_eq!(told.code, 0, "{}", told.stderr);
    let status = run(&mut cluster.command(0, ["once", "--status", "x"]));
    assert_eq!(status.stdout.trim(), "x: no run is known");
    assert_eq!(again(), 0, "it runs again");
}

/// Nobody reads it at a terminal.
#[test]
fn a_command_that_waits_for_a_datacenter_that_is_down_says_so() {
    let mut cluster = servers(2).quick().listening();
    assert_eq!(run(&mut once(&cluster, 1, &["--staleness", "600s"], "true")).code, 0);
    cluster.kill(1);
    let check = ["--needed", "true"];
    let mut waiting = Running::start(&mut once(&cluster, 0, &check, "true"), Output::Stderr);
    let said = waiting.line("needs dc1");
    assert!(said.contains("out of reach"), "{said}");
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.wait(), 128 + 15);
}

#[test]
fn a_signal_ends_the_command_and_then_geolock() {
    let cluster = servers(1).listening();
    let mut runner = once(&cluster, 0, &[], "echo begun >&2; exec sleep 600");
    let mut runner = Running::start(runner.stdin(Stdio::null()), Output::Stderr);
    runner.line("begun");
    runner.signal(Signal::TERM);
    assert_eq!(runner.wait(), 128 + 15);
    let rest: Vec<String> = runner.rest();
    assert!(rest.iter().all(|line| !line.contains("next attempt")), "{rest:?}");
    let status = run(&mut cluster.command(0, ["once", "--status", "x"]));
    assert!(status.stdout.contains("was killed by signal 15"), "{}", status.stdout);
}

#[test]
fn a_run_that_takes_too_long_is_ended_and_has_failed() {
    let cluster = servers(1).listening();
    let script = "echo $GEOLOCK_RUN_UNTIL >> $FILE; test $(wc -l < $FILE) -gt 1 || exec sleep 600";
    let told = run(&mut once(&cluster, 0, &["--max-runtime", "1s"], script));
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stderr.contains("it took longer than 1s"), "{}", told.stderr);
    assert!(lines(&file(&cluster)).iter().all(|until| until.parse::<u64>().is_ok()));
}

#[test]
fn wrong_usage_is_64() {
    let cluster = servers(1).listening();
    let too_long = "n".repeat(1_020);
    for args in [
        &["once", "x"][..],
        &["once", "--", "true"],
        &["once", &too_long, "--", "true"],
        &["once", "--wait", "10ms", "x", "--", "true"],
        &["once", "--max-retries", "1", "x", "--", "true"],
        &["once", "--watermark", "1s", "x", "--", "true"],
        &["once", "--staleness", "400s", "x", "--", "true"],
        &["once", "--status", "x", "--", "true"],
    ] {
        let told = run(&mut cluster.command(0, args));
        assert_eq!(told.code, 64, "{args:?}: {}", told.stderr);
    }
}
