//! `geolock kv` as a user sees it: processes, exit codes, output.
//!
//! Guarantee: docs/guarantees.md#keys-that-end.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use crate::fixture::said::{Said, run, said};
use crate::fixture::{Cluster, Output, Running, geolock, servers, until};
use rustix::process::Signal;

/// Starts servers that commit: a new datacenter does not before it has heard from every other one.
fn start(dcs: u8) -> Cluster {
    let cluster = servers(dcs).listening();
    for dc in 0..dcs {
        until("a serving server", || {
            let said = run(&mut cluster.command(dc, ["status", "--json"]));
            said.stdout.contains(r#""phase":"serving""#).then_some(())
        });
    }
    cluster
}

fn kv(cluster: &Cluster, dc: u8, args: &[&str]) -> Said {
    run(cluster.command(dc, ["kv"]).args(args))
}

/// Returns the output of a command that succeeds.
fn prints(cluster: &Cluster, dc: u8, args: &[&str]) -> String {
    let said = kv(cluster, dc, args);
    assert_eq!(said.code, 0, "{args:?}: {}", said.stderr);
    said.stdout
}

/// Runs `geolock kv txn` with that input.
fn txn(cluster: &Cluster, flags: &[&str], input: &str) -> Said {
    let mut command = cluster.command(0, ["kv", "txn"]);
    command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary is there");
    // It may end before it has read everything.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    said(child)
}

#[test]
fn values_of_all_kinds_are_written_shown_and_removed() {
    let cluster = start(1);
    assert_eq!(prints(&cluster, 0, &["put", "city", "Oslo by night"]), "");
    assert_eq!(prints(&cluster, 0, &["get", "city"]), "Oslo by night\n");
    assert_eq!(prints(&cluster, 0, &["incr", "n"]), "1\n");
    assert_eq!(prints(&cluster, 0, &["incr", "n", "-5"]), "-4\n");
    assert_eq!(prints(&cluster, 0, &["add", "tags", "b", "a"]), "");
    assert_eq!(prints(&cluster, 0, &["get", "tags"]), "a\nb\n");
    assert_eq!(prints(&cluster, 0, &["remove", "tags", "b"]), "");
    assert_eq!(
        prints(&cluster, 0, &["get", "city", "n", "tags", "none"]),
        "city\tOslo by night\nn\t-4\ntags\t{a}\nnone\t(nothing)\n"
    );
    assert_eq!(prints(&cluster, 0, &["remove", "city"]), "");
    let gone = kv(&cluster, 0, &["get", "city"]);
    assert_eq!(
        (gone.code, gone.stdout.as_str(), gone.stderr.as_str()),
        (1, "", "geolock: city has no value\n")
    );
    assert_eq!(prints(&cluster, 0, &["get", "n", "--bucket", "other", "n"]), "n\t(nothing)\nn\t(nothing)\n");
}

#[test]
fn keys_are_listed_by_prefix_and_bucket() {
    let cluster = start(1);
    assert_eq!(prints(&cluster, 0, &["list"]), "");
    for key in ["a/1", "a/2", "b/1"] {
        prints(&cluster, 0, &["put", key, "x"]);
    }
    prints(&cluster, 0, &["put", "--bucket", "other", "a/3", "x"]);
    prints(&cluster, 0, &["remove", "a/2"]);
    let listed = |args: &[&str]| {
        let mut names: Vec<String> = prints(&cluster, 0, args).lines().map(String::from).collect();
        names.sort();
        names
    };
    assert_eq!(listed(&["list"]), ["a/1", "b/1"]);
    assert_eq!(listed(&["list", "a/"]), ["a/1"]);
    assert_eq!(listed(&["list", "--bucket", "other", "--json"]), [r#"{"key":"a/3"}"#]);
    // More than one page.
    let many: String = (0..2_500).map(|n| format!("put many/{n} x\n")).collect();
    let made = txn(&cluster, &[], &format!("{many}commit\n"));
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(listed(&["list", "many/"]).len(), 2_500);
    let refused = kv(&cluster, 0, &["list", "--bucket", ""]);
    assert_eq!(refused.code, 64, "{}", refused.stderr);
}

#[test]
fn json_has_bytes_exactly() {
    let cluster = start(1);
    let odd = OsStr::from_bytes(b"\xff\x00"[..1].as_ref());
    let written = run(cluster.command(0, ["kv", "put", "--json"]).arg(odd).arg(odd));
    assert_eq!(written.code, 0, "{}", written.stderr);
    let commit: serde_json::Value = serde_json::from_str(&written.stdout).expect("it is JSON");
    let commit = commit["commit"].as_str().expect("it is a word");
    let read = run(cluster.command(0, ["kv", "get", "--json", "none"]).arg(odd));
    let expected = serde_json::json!({
        "snapshot": commit,
        "values": [
            { "bucket": "default", "key": "none", "type": null, "value": null },
            { "bucket": "default", "key_base64": "/w==", "type": "last-writer-wins register",
              "value": { "base64": "/w==" } },
        ],
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&read.stdout).expect("it is JSON"), expected);
}

#[test]
fn a_snapshot_passed_on_is_waited_for_in_another_datacenter() {
    let cluster = start(2);
    for turn in 1..=5 {
        let after = prints(&cluster, 0, &["put", "--snapshot", "turn", &turn.to_string()]);
        let seen = prints(&cluster, 1, &["get", "--at-least", after.trim(), "turn"]);
        assert_eq!(seen, format!("{turn}\n"));
    }
    let future = kv(&cluster, 1, &["get", "--at-least", "0,1000000", "turn"]);
    assert_eq!(future.code, 64, "{}", future.stderr);
    // Once there are decisions about members, one that has joined may not be known there yet: it waits.
    let nobody = kv(&cluster, 1, &["incr", "--at-least", "0,0,5", "n"]);
    assert!([64, 75].contains(&nobody.code), "{}", nobody.stderr);
}

#[test]
fn what_cannot_be_is_said_and_changes_nothing() {
    let cluster = start(1);
    prints(&cluster, 0, &["put", "r", "v"]);
    let wrong = kv(&cluster, 0, &["incr", "r"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (1, ""));
    assert!(wrong.stderr.contains("default/r") && wrong.stderr.contains("counter"), "{}", wrong.stderr);
    let home = tempfile::tempdir().expect("a temporary folder");
    for args in [
        &["kv"][..],
        &["kv", "get"],
        &["kv", "get", ""],
        &["kv", "put", "k"],
        &["kv", "incr", "k", "much"],
        &["kv", "put", "k", "v", "--expire", "soon"],
        &["kv", "expire", "k"],
        &["kv", "expire", "k", "-5s"],
        &["kv", "get", "--bucket", "", "k"],
        &["kv", "get", "--at-least", "yesterday", "k"],
        &["kv", "txn", "--try", "--wait", "1s"],
        &["kv", "txn", "--lock", ""],
        &["kv", "txn", "--", "get"],
    ] {
        let said = run(geolock(home.path()).args(args));
        assert_eq!(said.code, 64, "{args:?}: {}", said.stderr);
        assert!(!said.stderr.is_empty() && said.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn keys_expire_before_the_eyes_of_other_datacenters() {
    let cluster = start(2);
    let after = prints(&cluster, 0, &["put", "--snapshot", "for-ever", "v"]);
    let mut watch = cluster.command(1, ["kv", "watch", "--from", after.trim()]);
    let mut watch = Running::start(&mut watch, Output::Stdout);
    prints(&cluster, 0, &["put", "session", "ann", "--expire", "200ms"]);
    assert_eq!(watch.line("put"), "put session = ann");
    assert_eq!(watch.line("expire"), "expire session in 200ms");
    assert_eq!(watch.line("expired"), "expired session");
    let gone = kv(&cluster, 1, &["get", "session"]);
    assert_eq!((gone.code, gone.stdout.as_str()), (1, ""));
    // In a transaction, and for a key that exists already.
    let done = txn(&cluster, &[], "incr n\nexpire n 100ms\nget n\ncommit\n");
    assert_eq!((done.code, done.stdout.as_str()), (0, "1\n1\n"), "{}", done.stderr);
    assert_eq!(watch.line("expired"), "expired n");
    prints(&cluster, 1, &["expire", "for-ever", "1ms"]);
    assert_eq!(watch.line("expired"), "expired for-ever");
    watch.signal(Signal::TERM);
    assert_eq!(watch.wait(), 0);

    let at_once = kv(&cluster, 0, &["put", "k", "v", "--expire", "0s"]);
    assert_eq!((at_once.code, at_once.stdout.as_str()), (64, ""));
    assert!(
        at_once.stderr.contains("default/k") && at_once.stderr.contains("EXPIRY_OUT_OF_RANGE"),
        "{}",
        at_once.stderr
    );
    let nothing = kv(&cluster, 0, &["get", "k"]);
    assert_eq!((nothing.code, &*nothing.stdout), (1, ""), "nothing was written");
    assert_eq!(nothing.stderr, "geolock: k has no value\n");
}

#[test]
fn a_transaction_is_read_line_by_line_and_happens_as_a_whole() {
    let cluster = start(1);
    let input = "# a transfer\nincr alice -10\nincr bob 10\nput note two words\nadd who alice\n\nget who\nget note\ncommit\n";
    let done = txn(&cluster, &["--lock", "accounts", "--shared", "prices", "--"], input);
    assert_eq!((done.code, done.stdout.as_str()), (0, "-10\n10\n{alice}\ntwo words\n"), "{}", done.stderr);
    assert_eq!(prints(&cluster, 0, &["get", "alice", "bob"]), "alice\t-10\nbob\t10\n");

    let aborted = txn(&cluster, &["--lock", "accounts"], "incr alice 1\nabort\nincr alice 100\n");
    assert_eq!((aborted.code, aborted.stdout.as_str()), (0, "-9\n"), "{}", aborted.stderr);
    let wrong = txn(&cluster, &["--lock", "accounts"], "incr alice 1\nincr note\n");
    assert_eq!((wrong.code, wrong.stdout.as_str()), (1, "-9\n"));
    assert!(wrong.stderr.contains("line 2"), "{}", wrong.stderr);
    let unknown = txn(&cluster, &[], "incr alice 1\ndecr alice\n");
    assert_eq!(unknown.code, 64);
    assert!(unknown.stderr.contains("decr alice"), "{}", unknown.stderr);
    assert_eq!(prints(&cluster, 0, &["get", "alice"]), "-10\n", "none of it happened");

    let json = txn(&cluster, &["--json"], "incr alice 10\nremove who\nremove note\nget who\ncommit\n");
    let lines: Vec<serde_json::Value> =
        json.stdout.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    assert_eq!((lines.len(), &lines[0]["value"], &lines[1]["value"]), (3, &0.into(), &().into()));
    let commit = lines[2]["commit"].as_str().expect("it committed");
    assert_eq!(
        prints(&cluster, 0, &["get", "--at-least", commit, "alice", "bob"]),
        "alice\t(nothing)\nbob\t10\n"
    );
}

/// The process that writes the lines may die between any two of them.
#[test]
fn a_transaction_commits_only_when_it_is_told_to() {
    let cluster = start(1);
    let cut = txn(&cluster, &[], "incr alice -10\n");
    assert_eq!((cut.code, cut.stdout.as_str()), (74, "-10\n"));
    assert!(
        cut.stderr.contains("nothing of it happened") && cut.stderr.contains("`commit`"),
        "{}",
        cut.stderr
    );
    assert_eq!(txn(&cluster, &[], "").code, 74);
    let within = txn(&cluster, &["--commit-at-end"], "incr alice -10\nincr bob 1");
    assert_eq!((within.code, within.stdout.as_str()), (74, "-10\n1\n"));
    assert!(within.stderr.contains("within line 2"), "{}", within.stderr);
    assert_eq!(prints(&cluster, 0, &["get", "alice", "bob"]), "alice\t(nothing)\nbob\t(nothing)\n");
    let whole = txn(&cluster, &["--commit-at-end"], "incr alice -10\nincr bob 10\n");
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    let told = txn(&cluster, &[], "incr alice 1\ncommit\nincr alice 100\n");
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert_eq!(prints(&cluster, 0, &["get", "alice", "bob"]), "alice\t-9\nbob\t10\n");
}

#[test]
fn what_others_wrote_does_nothing_to_a_terminal() {
    let cluster = start(1);
    prints(&cluster, 0, &["put", "city", "Os\x1b[2Jlo\u{202e}"]);
    prints(&cluster, 0, &["add", "tags", "a\nb"]);
    assert_eq!(prints(&cluster, 0, &["get", "city"]), "Os\\u{1b}[2Jlo\\u{202e}\n");
    assert_eq!(prints(&cluster, 0, &["get", "tags"]), "a\\nb\n");
    prints(&cluster, 0, &["incr", "large", "1152921504606846977"]);
    let json = prints(&cluster, 0, &["get", "--json", "city", "large"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["values"][0]["value"], "Os\x1b[2Jlo\u{202e}");
    assert_eq!(json["values"][1]["value"], "1152921504606846977");
}

#[test]
fn connection_options_go_anywhere() {
    let cluster = start(1);
    prints(&cluster, 0, &["put", "city", "Oslo"]);
    let (address, tls) = (cluster.endpoint(0), cluster.tls());
    let home = tempfile::tempdir().expect("a temporary folder");
    let said = |args: &[&str]| {
        let said = run(geolock(home.path()).args(args).arg("--tls").arg(&tls));
        assert_eq!(said.code, 0, "{args:?}: {}", said.stderr);
        said.stdout
    };
    assert_eq!(said(&["kv", "--connect", &address, "get", "city"]), "Oslo\n");
    assert_eq!(said(&["kv", "get", "--connect", &address, "city"]), "Oslo\n");
    assert_eq!(said(&["kv", "get", "city", "--connect", &address]), "Oslo\n");
    let mut lock = geolock(home.path());
    lock.args(["lock", "demo", "--connect", &address, "--tls"]).arg(&tls).args(["--", "echo", "hello"]);
    let lock = run(&mut lock);
    assert_eq!((lock.code, lock.stdout.as_str()), (0, "hello\n"), "{}", lock.stderr);
}

#[test]
fn a_transaction_commits_though_nobody_reads_what_it_shows_on_the_way() {
    let cluster = start(1);
    let mut command = cluster.command(0, ["kv", "txn"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary is there");
    // As `| head -1` has done after the first line.
    drop(child.stdout.take().expect("it is piped"));
    let input = child.stdin.take().expect("it is piped").write_all(b"incr a 1\nincr b 2\nput c x\ncommit\n");
    assert!(input.is_ok() && said(child).code == 0);
    assert_eq!(prints(&cluster, 0, &["get", "a", "b", "c"]), "a\t1\nb\t2\nc\tx\n");
}

#[test]
fn a_transaction_has_its_locks_until_it_ends() {
    let cluster = start(1);
    let holding = || {
        let mut command = cluster.command(0, ["kv", "txn", "--lock", "x"]);
        let mut running = Running::start(command.stdin(Stdio::piped()), Output::Stdout);
        let mut input = running.stdin();
        writeln!(input, "incr n").expect("it reads");
        running.line("1");
        (running, input)
    };
    let (mut first, input) = holding();
    let tried = txn(&cluster, &["--lock", "x", "--try"], "get n\n");
    assert_eq!(tried.code, 75, "{}", tried.stderr);
    let timed = txn(&cluster, &["--shared", "x", "--wait", "50ms"], "get n\n");
    assert_eq!(timed.code, 75, "{}", timed.stderr);
    assert_eq!(kv(&cluster, 0, &["get", "n"]).code, 1, "nobody else sees what it did");
    first.signal(Signal::TERM);
    assert_eq!(first.wait(), 128 + 15);
    drop(input);
    // Killed: it is aborted when its lease ends, at the latest.
    let (mut second, _input) = holding();
    second.signal(Signal::KILL);
    second.wait();
    let third = txn(&cluster, &["--lock", "x", "--commit-at-end"], "incr n\n");
    assert_eq!((third.code, third.stdout.as_str()), (0, "1\n"), "{}", third.stderr);
}

#[test]
fn status_counts_keys_and_transactions() {
    let cluster = start(1);
    prints(&cluster, 0, &["incr", "n"]);
    let status = run(&mut cluster.command(0, ["status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("it is JSON");
    assert_eq!((&status["counts"]["keys"], &status["counts"]["commits_total"]), (&1.into(), &1.into()));
    assert_eq!(status["counts"]["transactions"], 0);
}

#[test]
fn a_watch_shows_what_other_commands_change() {
    let cluster = servers(1).listening();
    let after = prints(&cluster, 0, &["put", "--snapshot", "city", "before"]);
    let watch = ["kv", "watch", "--snapshot", "--from", after.trim(), "city", "tags"];
    let mut watch = Running::start(&mut cluster.command(0, watch), Output::Stdout);
    prints(&cluster, 0, &["put", "other", "not followed"]);
    prints(&cluster, 0, &["put", "city hall", "not followed"]);
    prints(&cluster, 0, &["put", "city", "Oslo by night"]);
    assert_eq!(watch.line("city"), "put city = Oslo by night");
    prints(&cluster, 0, &["add", "tags", "x"]);
    assert_eq!(watch.line("tags"), "add tags \"x\"");
    let last = prints(&cluster, 0, &["remove", "--snapshot", "city"]);
    assert_eq!(watch.line("city"), "removed city");
    watch.signal(Signal::INT);
    assert_eq!((watch.rest(), watch.wait()), (vec![last.trim().to_owned()], 0));
    assert!(watch.seen.is_empty(), "nothing else was shown: {:?}", watch.seen);

    let mut watch = cluster.command(0, ["kv", "watch", "--json", "--from", after.trim()]);
    let mut watch = Running::start(&mut watch, Output::Stdout);
    let first: serde_json::Value = serde_json::from_str(&watch.line("other")).expect("it is JSON");
    assert_eq!((&first["change"], &first["value"]), (&"put".into(), &"not followed".into()));
    watch.signal(Signal::TERM);
    assert_eq!(watch.wait(), 0);
    let watch = ["kv", "watch", "--prefix", "cit", "--from", after.trim(), "none"];
    let mut watch = Running::start(&mut cluster.command(0, watch), Output::Stdout);
    assert_eq!(watch.line("hall"), "put city hall = not followed");
    watch.signal(Signal::TERM);
    assert_eq!((watch.wait(), watch.seen.len()), (0, 0));
    let refused = kv(&cluster, 0, &["watch", "--from", "1000000"]);
    assert_eq!(refused.code, 64, "{}", refused.stderr);
}
