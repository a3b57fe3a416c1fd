//! `geolock bench` as a user runs it: on its own playground, and against running servers.

use std::path::Path;
use std::process::{Command, Output};

use crate::fixture::{Output as Stream, Running, geolock, servers};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const SHORT: [&str; 8] = ["--seconds", "1", "--warm-up", "0.1", "--keys", "20", "--clients", "3"];

fn bench(home: &Path, args: &[&[&str]]) -> Output {
    let mut command: Command = geolock(home);
    command.arg("bench").args(args.concat());
    command.output().expect("the binary is there")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_workload_runs_and_every_acquisition_is_right() {
    let home = TempDir::new().expect("a temporary folder");
    for workload in ["home", "hot", "mixed", "batch", "readers", "follow-the-sun", "txn", "first"] {
        let (json, html) = (home.path().join("report.json"), home.path().join("report.html"));
        let args = [
            "--workload",
            workload,
            "--active",
            "0.1",
            // Locks leave at once, so that every datacenter has a turn.
            "--hold",
            ":0s:0s:0s",
            "--json",
            json.to_str().unwrap(),
            "--html",
            html.to_str().unwrap(),
        ];
        let output = bench(home.path(), &[&SHORT, &args]);
        assert!(output.status.success(), "{workload}: {}", said(&output));
        let report: Value =
            serde_json::from_slice(&std::fs::read(&json).expect("it was written")).expect("it is JSON");
        let system = &report["systems"][0];
        assert_eq!(system["violations"], 0, "{report}");
        assert_eq!(report["test"]["workload"], workload);
        let dcs = system["dcs"].as_array().expect("a list");
        assert_eq!(dcs.len(), 3);
        for dc in dcs {
            assert!(dc["tally"]["acquisitions"].as_u64() > Some(0), "{workload}: {dc}");
            assert_eq!(
                (&dc["tally"]["failed"], &dc["tally"]["lost"]),
                (&0.into(), &0.into()),
                "{workload}: {dc}"
            );
        }
        assert!(said(&output).contains("no two holders that conflict"), "{}", said(&output));
        let page = std::fs::read_to_string(&html).expect("it was written");
        assert!(page.contains("</html>") && page.contains(workload));
        if workload == "hot" {
            let turns = system["hot"]["turns"].as_array().expect("a list");
            assert!(
                (0..3).all(|dc| turns.iter().any(|turn| turn[0] == dc)),
                "every datacenter had a turn: {turns:?}"
            );
            assert!(page.contains("Who held the lock when"));
        }
    }
    let left = std::fs::read_dir(home.path().join("geolock")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "its playgrounds are gone");
}

#[test]
fn a_run_that_is_stopped_leaves_no_playground() {
    let home = TempDir::new().expect("a temporary folder");
    let mut command = geolock(home.path());
    let mut bench = Running::start(command.args(["bench", "--seconds", "600"]), Stream::Stderr);
    bench.line("measuring");
    bench.signal(Signal::TERM);
    bench.line("there is no report");
    assert_eq!(bench.wait(), 128 + Signal::TERM.as_raw());
    let left = std::fs::read_dir(home.path().join("geolock")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "its playground is gone");
}

#[test]
fn hold_policies_are_put_side_by_side() {
    let home = TempDir::new().expect("a temporary folder");
    let (json, html) = (home.path().join("report.json"), home.path().join("report.html"));
    let policies = ["--workload", "hot", "--policies", "fair,adaptive:2:100 ms,0 s:0 s:0 s"];
    let files = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let output = bench(home.path(), &[&SHORT, &policies, &files]);
    assert!(output.status.success(), "{}", said(&output));
    let report: Value =
        serde_json::from_slice(&std::fs::read(&json).expect("it was written")).expect("it is JSON");
    let systems = report["systems"].as_array().expect("a list");
    let dcs = |system: &Value| system["dcs"].as_array().map_or(0, Vec::len);
    let found: Vec<_> =
        systems.iter().map(|system| (system["name"].as_str().unwrap(), dcs(system))).collect();
    let wanted = [
        ("one datacenter alone", 1),
        ("fair", 3),
        ("adaptive:2:100 ms", 3),
        ("0 s:0 s:0 s", 3),
        ("alone once more", 1),
    ];
    assert_eq!(found, wanted);
    assert!(systems.iter().all(|system| system["total"]["acquisitions"].as_u64() > Some(0)), "{report}");
    let page = std::fs::read_to_string(&html).expect("it was written");
    assert!(page.contains("against how long one waits") && page.contains("adaptive:2:100 ms"));
}

#[test]
fn servers_that_run_can_be_tested_too() {
    let cluster = servers(2).listening();
    let home = TempDir::new().expect("a temporary folder");
    let places = format!("{},{}", cluster.endpoint(0), cluster.endpoint(1));
    let tls = cluster.tls();
    let output = bench(
        home.path(),
        &[
            &SHORT,
            &["--connect", &places, "--tls", tls.to_str().unwrap(), "--rate", "50", "--connections", "2"],
        ],
    );
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("servers that run"), "{}", said(&output));
    assert!(said(&output).contains("clients on 2 connections a datacenter"), "{}", said(&output));
    // The same by the environment, as other commands read it.
    let mut command = geolock(home.path());
    command.arg("bench").args(SHORT).args(["--connect", &places, "--rate", "50"]);
    let output = command.env("GEOLOCK_TLS", &tls).output().expect("the binary is there");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("servers that run"), "{}", said(&output));
}

#[test]
fn mistakes_are_explained_before_anything_starts() {
    let home = TempDir::new().expect("a temporary folder");
    for (args, wanted) in [
        (&["--workload", "warm"][..], "follow-the-sun"),
        (&["--clients", "0"], "number of clients"),
        (&["--clients", "2", "--connections", "3"], "number of connections has to be from 1 to 2"),
        (&["--workload", "batch", "--batch", "30", "--keys", "20"], "30 locks"),
        (&["--connect", "127.0.0.1:1", "--wan", "eu"], "cannot be used with"),
        (&["--wan", "mars"], "neither a preset"),
        (&["--json", "/nowhere/report.json"], "cannot be written"),
        (&["--loss", "100"], "--loss"),
        (&["--seconds", "0"], "seconds"),
        (&["--policies", "quick"], "a rule is PREFIX:POLICY"),
        (&["--policies", "fair", "--hold", ":fixed"], "cannot be used with"),
    ] {
        let output = bench(home.path(), &[args]);
        assert!(!output.status.success() && said(&output).contains(wanted), "{args:?}: {}", said(&output));
    }
}
