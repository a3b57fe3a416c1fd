//! The `geolock` command as a user sees it: processes, exit codes, output.
//!
//! Guarantee: docs/guarantees.md#not-promised.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::said::{run, said};
use crate::fixture::{Cluster, Output, Running, free_ports, geolock, servers, until};
use rustix::process::Signal;

/// Runs `sh -c SCRIPT` under a lock. Its first line says that it holds the lock.
pub(super) fn holding(cluster: &Cluster, flags: &[&str], script: &str) -> Running {
    let mut command = cluster.command(0, ["lock"]);
    command.args(flags).args(["x", "--", "sh", "-c"]).arg(format!("echo in; {script}")).stdin(Stdio::piped());
    let mut running = Running::start(&mut command, Output::Stdout);
    running.line("in");
    running
}

/// Waits until that many requests wait for the lock.
fn until_waited_for(cluster: &Cluster, waiters: usize) {
    let waiting = format!("\"waiting\":{waiters}");
    until(&waiting, || {
        let said = run(&mut cluster.command(0, ["describe", "--json", "x"]));
        said.stdout.contains(&waiting).then_some(())
    });
}

#[test]
fn wrong_usage_is_64_and_help_is_0() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let too_long = "n".repeat(1025);
    for args in [
        &["lock"][..],
        &["lock", "x"],
        &["lock", "--", "true"],
        &["lock", "--wait", "soon", "x", "--", "true"],
        &["lock", "--wait", "1s", "--try", "x", "--", "true"],
        &["lock", "", "--", "true"],
        &["lock", &too_long, "--", "true"],
        &["lock", "--connect", "nowhere", "x", "--", "true"],
        &["lock", "--connect", "fd77::10:7400", "x", "--", "true"],
        &["lock", "--tls", "/nowhere", "x", "--", "true"],
        &["describe"],
        &["top", "--interval", "1ms"],
        &["dev", "--dcs", "0"],
        &["dev", "--wan", "mars"],
        &["dev", "--dcs", "4", "--wan", "world"],
        &["dev", "--base-port", "65530"],
        &["unlock"],
        &["witness", "--limits-max-held", "7", "--join", "127.0.0.1:7401"],
    ] {
        let said = run(geolock(home.path()).args(args));
        assert_eq!(said.code, 64, "{args:?}: {}", said.stderr);
        assert!(!said.stderr.is_empty() && said.stdout.is_empty(), "{args:?}");
    }
    let mut command = geolock(home.path());
    let said = run(command.env("GEOLOCK_CONNECT", "a:1").env("GEOLOCK_TLS", "x").arg("lock"));
    let usage = "Usage: geolock lock [OPTIONS] <NAME>... -- <CMD>...";
    assert!(said.code == 64 && said.stderr.contains(usage), "{said:?}");
    for args in [&["--help"][..], &["--version"], &["lock", "--help"], &["dev", "-h"], &["server", "--help"]]
    {
        let said = run(geolock(home.path()).args(args));
        assert_eq!(said.code, 0, "{args:?}");
        assert!(said.stdout.contains("geolock"), "{args:?}: {}", said.stdout);
    }
}

#[test]
fn a_misspelt_variable_is_named_with_the_option_that_is_meant() {
    let home = tempfile::tempdir().expect("a temporary folder");
    for (args, name, meant) in [
        (&["token", "new", "x"][..], "GEOLOCK_CONECT", "GEOLOCK_CONNECT"),
        (&["server"], "GEOLOCK_DATADIR", "GEOLOCK_DATA_DIR"),
        (&["witness", "--check-config"], "GEOLOCK_DATADIR", "GEOLOCK_DATA_DIR"),
    ] {
        let said = run(geolock(home.path()).env(name, "x").env("GEOLOCK_OF_MINE", "x").args(args));
        let wanted =
            format!("the environment variable {name} is no option and has no effect: is {meant} meant?");
        assert!(said.stderr.contains(&wanted), "{args:?}: {said:?}");
        assert!(!said.stderr.contains("GEOLOCK_OF_MINE"), "{args:?}: {said:?}");
    }
}

#[test]
fn nobody_there_is_69_and_says_what_to_do() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let said = run(geolock(home.path()).args(["lock", "x", "--", "true"]));
    assert_eq!(said.code, 69);
    assert!(said.stderr.contains("geolock dev") && said.stderr.contains("--connect"), "{}", said.stderr);

    let mut cluster = servers(1).listening();
    cluster.kill(0);
    for args in [&["lock", "x", "--", "true"][..], &["status"], &["locks"], &["describe", "x"], &["top"]] {
        let said = run(&mut cluster.command(0, args));
        assert_eq!(said.code, 69, "{args:?}: {}", said.stderr);
        assert!(said.stderr.contains(&cluster.endpoint(0)), "{args:?}: {}", said.stderr);
    }
}

#[test]
fn a_lock_lost_to_an_endpoint_of_another_datacenter_names_both() {
    let mut cluster = servers(2).listening();
    let mut command = cluster.command(0, ["lock", "x", "--", "sh", "-c", "echo in; exec sleep 60"]);
    command.env("GEOLOCK_CONNECT", format!("{},{}", cluster.endpoint(0), cluster.endpoint(1)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary is there");
    let mut held = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    BufReader::new(stdout).read_line(&mut held).expect("it is text");
    cluster.kill(0);
    let said = said(child);
    assert_eq!(said.code, 74, "{}", said.stderr);
    let why = "the lease is one of dc0 (city0), and what answers now is dc1 (city1)";
    assert!(said.stderr.contains(why), "{}", said.stderr);
}

#[test]
fn the_command_decides_the_exit_code_and_finds_its_token() {
    let cluster = servers(1).listening();
    let lock = |command: &[&str]| run(cluster.command(0, ["lock", "x", "y", "--"]).args(command));
    assert_eq!(lock(&["sh", "-c", "exit 7"]).code, 7);
    assert_eq!(lock(&["sh", "-c", "kill -KILL $$"]).code, 128 + 9);
    let missing = lock(&["no-such-command"]);
    assert_eq!(missing.code, 127);
    assert!(missing.stderr.starts_with("geolock: cannot run no-such-command"), "{}", missing.stderr);
    assert_eq!(lock(&["/"]).code, 126);
    let tokens = [(); 2].map(|()| {
        let said = lock(&["sh", "-c", "echo $GEOLOCK_TOKEN"]);
        assert_eq!(said.code, 0);
        said.stdout.trim().parse::<u64>().expect("a token is a number")
    });
    assert!(tokens[0] > 0 && tokens[1] > tokens[0], "{tokens:?}");
}

#[test]
fn two_commands_take_turns() {
    let cluster = servers(1).listening();
    let log = cluster.dir().join("log");
    let mut first = holding(&cluster, &[], &format!("cat; echo first >> '{}'", log.display()));
    let second = format!("echo second >> '{}'", log.display());
    let mut second =
        Running::start(&mut cluster.command(0, ["lock", "x", "--", "sh", "-c", &second]), Output::Stdout);
    until_waited_for(&cluster, 1);
    drop(first.stdin());
    assert_eq!((first.wait(), second.wait()), (0, 0));
    assert_eq!(std::fs::read_to_string(&log).expect("both wrote"), "first\nsecond\n");
}

#[test]
fn shared_holders_meet() {
    let cluster = servers(1).listening();
    let holders = [(); 2].map(|()| holding(&cluster, &["--shared"], "cat"));
    assert_eq!(run(&mut cluster.command(0, ["lock", "--try", "x", "--", "true"])).code, 75);
    drop(holders);
}

#[test]
fn who_waits_can_see_for_whom_and_where_in_the_queue() {
    let cluster = servers(1).listening();
    let _holder = holding(&cluster, &["--label", "the night shift"], "cat");
    let mut first = cluster.command(0, ["lock", "x", "--", "true"]);
    let mut first = Running::start(&mut first, Output::Stderr);
    until_waited_for(&cluster, 1);
    let mut second = cluster.command(0, ["lock", "--verbose", "--label", "me", "x", "--", "true"]);
    let mut second = Running::start(&mut second, Output::Stderr);
    // Its place may be unknown at the first check.
    let line = second.line("; place 2 of 2 in the queue");
    assert!(line.contains("waiting for x: held by the night shift in dc0 (city0)"), "{line}");
    // In a log a line is worth its place only after some seconds, and when there is another reason.
    let line = first.line("waiting for x");
    assert!(line.contains("held by the night shift in dc0 (city0)"), "{line}");
    for waiting in [&mut first, &mut second] {
        waiting.signal(Signal::TERM);
        assert_eq!(waiting.wait(), 128 + 15);
    }
    assert_eq!(first.rest(), [""; 0], "of times and places nothing is said, unless it is asked for");
}

#[test]
fn a_trace_whose_reader_has_seen_enough_ends_quietly() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut command = geolock(home.path());
    command.args(["sim", "--seeds", "0..1", "--seconds", "5", "--trace"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary is there");
    // As `| head -1` does.
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut first).expect("it is text");
    assert!(!first.is_empty());
    let said = said(child);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}

#[test]
fn not_acquired_is_75_and_says_who_was_in_the_way() {
    let cluster = servers(1).listening();
    let _holder = holding(&cluster, &["--label", "the night shift"], "cat");
    let tried = run(&mut cluster.command(0, ["lock", "--try", "x", "--", "echo", "ran"]));
    assert_eq!((tried.code, &*tried.stdout), (75, ""));
    let waited = run(&mut cluster.command(0, ["lock", "--wait", "50ms", "x", "--", "echo", "ran"]));
    assert_eq!((waited.code, &*waited.stdout), (75, ""));
    for text in ["not granted in time", "lock x", "the night shift", "exclusive", "dc0 (city0)", "token"] {
        assert!(waited.stderr.contains(text), "{text} is missing in {}", waited.stderr);
    }
    let described = run(&mut cluster.command(0, ["describe", "x"]));
    assert_eq!(described.code, 0);
    assert!(described.stdout.contains("the night shift"), "{}", described.stdout);
    let status = run(&mut cluster.command(0, ["status"]));
    assert!(status.stdout.starts_with("dc0 (city0)  serving"), "{}", status.stdout);
    let status = run(&mut cluster.command(0, ["status", "--json"]));
    assert!(status.stdout.contains("\"phase\":\"serving\""), "{}", status.stdout);
}

#[test]
fn names_that_are_no_text_work_and_are_shown_safely() {
    let cluster = servers(1).listening();
    let name = OsStr::from_bytes(b"\xff\x1b[2J");
    let mut command = cluster.command(0, ["lock"]);
    command.arg(name).args(["--", "sh", "-c", "echo in; cat"]).stdin(Stdio::piped());
    let mut holder = Running::start(&mut command, Output::Stdout);
    holder.line("in");
    assert!(run(&mut cluster.command(0, ["locks"])).stdout.contains("\\xff\\x1b[2J"));
    let held = run(&mut cluster.command(0, ["locks", "--held"])).stdout;
    assert_eq!(held.lines().count(), 2, "one is held: {held}");
    let listed = run(&mut cluster.command(0, ["locks", "--json"])).stdout;
    assert!(listed.contains(r#""name_base64":"/xtbMko=""#), "{listed}");
    let described = run(cluster.command(0, ["describe", "--json"]).arg(name)).stdout;
    assert!(described.contains(r#""mode":"exclusive""#), "{described}");
    assert_eq!(run(&mut cluster.command(0, ["locks", "other"])).stdout.lines().count(), 1);
}

#[test]
fn nothing_of_the_command_is_left_behind() {
    let cluster = servers(1).listening();
    // The background process has the pipe, too, so the output ends when that process ends.
    let mut holder = holding(&cluster, &[], "sleep 1000 & trap '' TERM; sleep 1000 & exit 5");
    assert_eq!(holder.rest(), Vec::<String>::new());
    assert_eq!(holder.wait(), 5);
    assert_eq!(
        run(&mut cluster.command(0, ["lock", "--try", "x", "--", "true"])).code,
        0,
        "and the lock is free"
    );
}

#[test]
fn a_wait_that_is_interrupted_leaves_the_queue() {
    let cluster = servers(1).listening();
    let _holder = holding(&cluster, &[], "cat");
    let mut waiting =
        Running::start(&mut cluster.command(0, ["lock", "x", "--", "echo", "ran"]), Output::Stdout);
    until_waited_for(&cluster, 1);
    // SIGINT would be ignored if a shell runs these tests in the background.
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.wait(), 143);
    assert_eq!(waiting.rest(), Vec::<String>::new());
    until_waited_for(&cluster, 0);
}

#[test]
fn a_lost_lock_ends_the_command_and_is_74() {
    let mut cluster = servers(1).listening();
    // The command ignores SIGTERM, so it is killed with SIGKILL; its child has the pipe, too.
    let script = "trap 'echo told' TERM; echo ready; while :; do sleep 0.01; done";
    let mut holder = holding(&cluster, &["--ttl", "1s"], script);
    holder.line("ready");
    cluster.server(0).stop();
    holder.line("told");
    holder.rest();
    assert_eq!(holder.wait(), 74);
    cluster.server(0).signal(Signal::CONT);
}

#[test]
fn nobody_has_to_wait_for_a_release_that_is_not_confirmed() {
    let mut cluster = servers(1).with("[limits]\nmax_lease_ttl = \"1 h\"").listening();
    let script = "trap '' TERM; echo in >&2; cat";
    let mut command = cluster.command(0, ["lock", "--ttl", "1h", "x", "--", "sh", "-c", script]);
    let mut holder = Running::start(command.stdin(Stdio::piped()), Output::Stderr);
    holder.line("in");
    cluster.server(0).stop();
    drop(holder.stdin());
    // Signals that arrive while the command still runs are passed to the command.
    holder.line_after("did not confirm", |holder| holder.signal(Signal::TERM));
    assert_eq!(holder.wait(), 0, "that is how the command ended");
    cluster.server(0).signal(Signal::CONT);
}

#[test]
fn a_server_checks_its_configuration_and_drains() {
    let mut cluster = servers(1).listening();
    let home = cluster.dir().join("home");
    let check = |file: &Path| {
        let mut command = geolock(&home);
        run(command.args(["server", "--check-config", "--config"]).arg(file))
    };
    let good = check(&cluster.config_file(0));
    assert_eq!(good.code, 0, "{}", good.stderr);
    assert!(good.stdout.contains("datacenter 0 (city0) of cluster test"), "{}", good.stdout);
    let file = cluster.dir().join("bad.toml");
    std::fs::write(&file, "dc = 0\ncolour = 1\n").expect("the folder is writable");
    let bad = check(&file);
    assert_eq!(bad.code, 78);
    assert!(bad.stderr.contains("bad.toml") && bad.stderr.contains("colour"), "{}", bad.stderr);

    let mut holder = holding(&cluster, &[], "cat");
    cluster.server(0).signal(Signal::TERM);
    cluster.server(0).line("draining");
    assert_eq!(run(&mut cluster.command(0, ["lock", "y", "--", "true"])).code, 69, "no new locks");
    for args in [&["status"][..], &["locks"], &["describe", "x"]] {
        assert_eq!(run(&mut cluster.command(0, args)).code, 0, "but it can be looked at: {args:?}");
    }
    drop(holder.stdin());
    assert_eq!(holder.wait(), 0, "but releases");
    assert_eq!(cluster.server(0).wait(), 0);
}

#[test]
fn a_second_signal_ends_a_draining_server_at_once() {
    let mut cluster = servers(1).listening();
    let mut holder = holding(&cluster, &[], "cat");
    cluster.server(0).signal(Signal::TERM);
    cluster.server(0).line("draining");
    cluster.server(0).signal(Signal::TERM);
    cluster.server(0).line("asked again to stop");
    // A complete drain exits with 0.
    assert_eq!(cluster.server(0).wait(), 128 + 15);
    cluster.restart(0);
    assert_eq!(run(&mut cluster.command(0, ["lock", "--try", "x", "--", "true"])).code, 75, "it is held");
    drop(holder.stdin());
    assert_eq!(holder.wait(), 0, "its holder came back");
}

/// Runs `geolock dev` on its own ports.
fn dev(home: &Path, base: u16, args: &[&str]) -> Command {
    let mut command = geolock(home);
    command.args(["dev", "--base-port", &base.to_string()]).args(args);
    command
}

#[test]
fn a_playground_runs_ends_and_can_be_used_again() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let base = free_ports(3);
    for _ in 0..2 {
        let mut playground = Running::start(&mut dev(home.path(), base, &["--wan", "eu"]), Output::Stdout);
        playground.line("ready");
        let welcome = playground.seen.join("\n");
        for text in ["dc2", "dc0-dc1 10 ms", "geolock lock", "geolock describe", "Ctrl-C"] {
            assert!(welcome.contains(text), "{text} is missing in {welcome}");
        }
        let mut command = geolock(home.path());
        let endpoint = format!("127.0.0.1:{}", base + 20);
        let said = run(command.args(["lock", "--connect", &endpoint, "x", "--", "echo", "ran"]));
        assert_eq!((said.code, &*said.stdout), (0, "ran\n"), "{}", said.stderr);
        let mut here = geolock(home.path());
        let said = run(here.args(["lock", "x", "--", "echo", "ran"]));
        assert_eq!((said.code, &*said.stdout), (0, "ran\n"), "the folder knows the port: {said:?}");
        let another = run(&mut dev(home.path(), free_ports(3), &[]));
        assert_eq!(another.code, 1);
        assert!(another.stderr.contains("another playground runs in"), "{}", another.stderr);
        playground.signal(Signal::INT);
        playground.line("stopped");
        assert_eq!(playground.wait(), 0);
    }
    let other_shape = run(&mut dev(home.path(), base, &["--dcs", "2"]));
    assert_eq!(other_shape.code, 1);
    assert!(other_shape.stderr.contains("--fresh"), "{}", other_shape.stderr);
    let fresh = run(&mut dev(home.path(), base, &["--dcs", "2", "--fresh", "--seconds", "0"]));
    assert_eq!(fresh.code, 0, "{}", fresh.stderr);
    assert!(fresh.stdout.ends_with("stopped\n"), "{}", fresh.stdout);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let base = free_ports(2);
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 10)).expect("it was free");
    let said = run(&mut dev(home.path(), base, &["--dcs", "2", "--fresh"]));
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains(&(base + 10).to_string()), "{}", said.stderr);
    assert!(said.stderr.contains("--base-port"), "{}", said.stderr);
}

#[test]
fn shells_get_completions_and_people_the_version() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let said = |args: &[&str]| {
        let output = geolock(home.path()).args(args).output().expect("it starts");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("it is text")
    };
    for shell in ["bash", "zsh", "fish"] {
        let text = said(&["completions", shell]);
        assert!(text.contains("describe") && text.contains("check-config"), "{shell}: {text}");
    }
    let (version, number) = (said(&["--version"]), concat!("geolock ", env!("CARGO_PKG_VERSION")));
    match option_env!("GEOLOCK_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => assert_eq!(version, format!("{number} ({commit})\n")),
        None if cfg!(debug_assertions) => assert_eq!(version, format!("{number}\n"), "it does not look"),
        None => assert!(version.starts_with(number), "{version}"),
    }
}

#[test]
fn top_shows_a_hot_lock_with_its_holder_and_who_is_next() {
    let cluster = servers(2).listening();
    let top = |dc, args: &[&str]| {
        let said = run(cluster.command(dc, ["top", "--once", "--interval", "100ms"]).args(args));
        assert_eq!(said.code, 0, "{}", said.stderr);
        said.stdout
    };
    let object = |dc| serde_json::from_str::<serde_json::Value>(&top(dc, &["--json"])).expect("an object");
    assert!(top(0, &[]).contains("No lock is waited for"));

    let mut first = holding(&cluster, &["--label", "the night\x1b[2J shift"], "cat");
    let script = "echo in; cat";
    let mut command = cluster.command(1, ["lock", "--label", "the day shift", "x", "--", "sh", "-c", script]);
    let mut second = Running::start(command.stdin(Stdio::piped()), Output::Stdout);
    until_waited_for(&cluster, 1);
    let shown = top(0, &[]);
    assert!(shown.starts_with("dc0 (city0)  serving  up "), "{shown}");
    for text in ["1 held", "dc1 (city1)", "GRANTS", "LOCK", "the night\\u{1b}[2J shift", "excl"] {
        assert!(shown.contains(text), "{text} is missing in {shown}");
    }
    let hot = object(0);
    let lock = &hot["locks"][0];
    assert_eq!(
        (&lock["name"], &lock["waiting"], &lock["local_holders"]),
        (&"x".into(), &1.into(), &1.into())
    );
    assert_eq!(lock["first"]["request"].as_str().map(|id| &id[..3]), Some("dc1"));
    // A part of it arrived at the first request.
    assert_eq!(lock["hand_offs"], 1);
    assert_eq!(hot["durations"]["acquire_remote"].as_object().map(|took| took.len()), Some(2));
    assert!(top(0, &["y"]).contains("No lock is waited for"));

    drop(first.stdin());
    second.line("in");
    // Also from the previous datacenter: it asks the owner for the holders.
    for dc in [0, 1] {
        let lock = &object(dc)["locks"][0];
        assert_eq!(
            (&lock["holders"][0]["label"], &lock["holders"][0]["dc"]),
            (&"the day shift".into(), &1.into())
        );
        assert_eq!((&lock["hand_offs"], &lock["waiting"]), (&2.into(), &0.into()), "dc{dc}");
    }
    drop(second.stdin());
    assert_eq!((first.wait(), second.wait()), (0, 0));
}

#[test]
fn top_goes_on_when_the_server_comes_back() {
    let mut cluster = servers(1).listening();
    let mut top =
        Running::start(&mut cluster.command(0, ["top", "--json", "--interval", "100ms"]), Output::Stdout);
    let boot_id =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["boot_id"].clone();
    let before = boot_id(&top.line("\"dc\":0"));
    cluster.kill(0);
    top.line("unreachable");
    cluster.restart(0);
    assert_ne!(boot_id(&top.line("\"dc\":0")), before);
    top.signal(Signal::TERM);
    assert_eq!(top.wait(), 0);
}
