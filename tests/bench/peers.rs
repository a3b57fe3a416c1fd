//! geolock beside etcd, where etcd is installed.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use crate::fixture::{Output, Running, free_ports, geolock};
use serde_json::Value;
use tempfile::TempDir;

/// Starts three etcd servers on loopback, or returns `None` if etcd is not installed.
fn etcd(dir: &Path) -> Option<(Vec<Running>, String)> {
    let base = free_ports(3);
    let (client, peer) = (|n: u16| base + 10 * n, |n: u16| base + 10 * n + 1);
    let cluster: Vec<String> = (0..3).map(|n| format!("n{n}=http://127.0.0.1:{}", peer(n))).collect();
    let mut servers = Vec::new();
    for n in 0..3 {
        let (ours, theirs) =
            (format!("http://127.0.0.1:{}", client(n)), format!("http://127.0.0.1:{}", peer(n)));
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("n{n}"), "--data-dir"])
            .arg(dir.join(format!("n{n}")))
            .args(["--listen-client-urls", &ours, "--advertise-client-urls", &ours])
            .args(["--listen-peer-urls", &theirs, "--initial-advertise-peer-urls", &theirs])
            .args(["--initial-cluster", &cluster.join(",")]);
        servers.push(Running::start_if_there(&mut command, Output::Stderr)?);
    }
    for server in &mut servers {
        server.line("ready to serve client requests");
    }
    Some((servers, (0..3).map(|n| format!("127.0.0.1:{}", client(n))).collect::<Vec<_>>().join(",")))
}

#[test]
fn etcd_does_the_same_beside_us() {
    let home = TempDir::new().expect("a temporary folder");
    let Some((_servers, endpoints)) = etcd(home.path()) else {
        // Bypasses the capture of tests, so that the message is visible in the log of CI.
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no etcd here to compare with");
        return;
    };
    let (json, peer) = (home.path().join("report.json"), format!("etcd={endpoints}"));
    let bench = |args: &[&str]| {
        let mut command = geolock(home.path());
        command.args([
            "bench",
            "--seconds",
            "1",
            "--warm-up",
            "0.1",
            "--clients",
            "2",
            "--keys",
            "5",
            "--peer",
            &peer,
        ]);
        command.args(args).output().expect("the binary is there")
    };
    for (workload, batch) in [("home", "2"), ("hot", "1"), ("batch", "2")] {
        let output = bench(&[
            "--workload",
            workload,
            "--hold",
            ":0s:0s:0s",
            "--batch",
            batch,
            "--json",
            json.to_str().unwrap(),
        ]);
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{workload}: {said}");
        let report: Value =
            serde_json::from_slice(&std::fs::read(&json).expect("it was written")).expect("it is JSON");
        let systems = report["systems"].as_array().expect("a list");
        let names: Vec<_> = systems.iter().map(|system| system["name"].as_str()).collect();
        assert_eq!(names, [Some("geolock"), Some("etcd")]);
        for system in systems {
            assert_eq!(system["violations"], 0, "{system}");
            assert!(system["total"]["acquisitions"].as_u64() > Some(0), "{system}");
            assert_eq!(system["total"]["failed"], 0, "{system}");
        }
    }
    for (args, wanted) in [
        (&["--workload", "readers"][..], "etcd has no shared locks"),
        (&["--dcs", "2"], "3 servers of etcd for 2 datacenters"),
        (&["--wan", "eu"], "delays geolock alone"),
    ] {
        let output = bench(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{args:?}: {said}");
    }
}
