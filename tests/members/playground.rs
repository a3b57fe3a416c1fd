//! The datacenters of a playground (`geolock dev`) come and go while it runs.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::said::{Said, run};
use crate::fixture::{Output, Running, free_ports, geolock, until};
use crate::growth::all_settled;

/// A playground in a folder of its own.
struct Playground {
    home: TempDir,
    base: u16,
    process: Running,
}

fn dev(home: &Path, base: u16, args: &[&str]) -> Command {
    let mut command = geolock(home);
    command.args(["dev", "--base-port", &base.to_string()]).args(args);
    command
}

impl Playground {
    fn start(args: &[&str]) -> Playground {
        let (home, base) = (tempfile::tempdir().expect("a temporary folder"), free_ports(4));
        let process = Running::start(&mut dev(home.path(), base, args), Output::Stdout);
        let mut playground = Playground { home, base, process };
        playground.process.line("ready");
        playground
    }

    /// Ends it, and starts it again without options.
    fn restart(&mut self) {
        self.process.signal(Signal::INT);
        self.process.line("stopped");
        assert_eq!(self.process.wait(), 0);
        self.process = Running::start(&mut dev(self.home.path(), self.base, &[]), Output::Stdout);
        self.process.line("ready");
    }

    /// Runs a command of the playground.
    fn dev(&self, args: &[&str]) -> Said {
        run(geolock(self.home.path()).arg("dev").args(args))
    }

    /// Returns a client command that talks to that datacenter.
    fn command(&self, dc: u16, args: &[&str]) -> Command {
        let mut command = geolock(self.home.path());
        command.env("GEOLOCK_CONNECT", format!("127.0.0.1:{}", self.base + 10 * dc)).args(args);
        command
    }

    fn client(&self, dc: u16, args: &[&str]) -> Said {
        run(&mut self.command(dc, args))
    }

    /// Returns the members as a datacenter lists them, once so many are complete.
    fn members(&self, dc: u16, members: usize) -> Vec<Value> {
        until("so many members", || {
            let list: Value =
                serde_json::from_str(&self.client(dc, &["member", "list", "--json"]).stdout).ok()?;
            all_settled(&list, members).then(|| list["members"].as_array().expect("a list").clone())
        })
    }

    /// Takes and releases a lock in each of these datacenters.
    fn locks(&self, dcs: &[u16]) {
        for dc in dcs {
            let said = self.client(*dc, &["lock", "--wait", "60s", "demo", "--", "echo", "ran"]);
            assert_eq!((said.code, &*said.stdout), (0, "ran\n"), "dc{dc}: {said:?}");
        }
    }
}

fn done(said: &Said, text: &str) {
    assert!(said.code == 0 && said.stdout.contains(text), "{text}: {said:?}");
}

fn refused(said: &Said, text: &str) {
    assert!(said.code != 0 && said.stderr.contains(text), "{text}: {said:?}");
}

#[test]
fn a_playground_grows_from_one_and_shrinks_while_a_lock_is_held() {
    let mut playground = Playground::start(&["--dcs", "1", "--wan", "eu"]);
    let mut holder = playground.command(0, &["lock", "held", "--", "sh", "-c", "echo in; cat"]);
    let mut holder = Running::start(holder.stdin(std::process::Stdio::piped()), Output::Stdout);
    holder.line("in");
    for dc in ["dc1", "dc2"] {
        done(&playground.dev(&["add"]), &format!("{dc} has joined: clients 127.0.0.1:"));
        playground.process.line(&format!("{dc} has joined"));
    }
    playground.members(2, 3);
    playground.locks(&[0, 1, 2]);
    let tried = playground.client(2, &["lock", "--try", "held", "--", "true"]);
    assert_eq!(tried.code, 75, "{tried:?}");
    refused(&playground.dev(&["add"]), "says nothing about the distance of datacenters 0 and 3");

    done(&playground.client(0, &["member", "remove", "1", "--wait"]), "dc1 has left");
    playground.process.line("dc1 has left the cluster");
    playground.members(2, 2);
    playground.locks(&[0, 2]);
    // The next run has the same datacenters.
    drop(holder.stdin());
    assert_eq!(holder.wait(), 0, "the lock was held all the time");
    playground.restart();
    playground.locks(&[0, 2]);
    done(&playground.dev(&["add"]), "dc1 has joined");
    let members = playground.members(0, 3);
    assert_eq!((&members[0]["generation"], &members[1]["generation"]), (&0.into(), &1.into()));
    playground.locks(&[1]);
    // The founder leaves, too.
    done(&playground.client(1, &["member", "remove", "0", "--wait"]), "dc0 has left");
    playground.process.line("dc0 has left the cluster");
    playground.restart();
    playground.members(2, 2);
    playground.locks(&[1, 2]);
}

#[test]
fn one_that_was_stopped_is_evicted_and_returns() {
    let mut playground = Playground::start(&[]);
    playground.members(0, 3);
    playground.locks(&[0, 1, 2]);
    refused(&playground.dev(&["add", "2"]), "dc2 runs already");
    refused(&playground.dev(&["start", "2"]), "dc2 runs already");
    refused(&playground.dev(&["stop", "7"]), "has no dc7");
    refused(&playground.dev(&["start", "7"]), "geolock dev add 7");
    assert_eq!(playground.dev(&["stop"]).code, 64, "which one?");
    assert_eq!(playground.dev(&["--fresh", "stop", "2"]).code, 64, "that is for a new one");
    let evict = &["member", "evict", "2", "--confirm-dead", "--clients-are-dead"];
    refused(&playground.client(0, evict), "hears dc2: it runs");

    done(&playground.dev(&["stop", "2"]), "dc2 is stopped");
    done(&playground.dev(&["stop", "2"]), "dc2 is stopped already");
    refused(&playground.dev(&["add", "2"]), "geolock dev start 2");
    done(&playground.dev(&["start", "2"]), "dc2 serves again");
    playground.locks(&[0, 2]);

    done(&playground.dev(&["stop", "2"]), "dc2 is stopped");
    let waits = playground.client(0, &["lock", "--wait", "100ms", "never used", "--", "true"]);
    assert_eq!(waits.code, 75, "{waits:?}");
    until("no member hears it any more, and it is evicted", || {
        (playground.client(0, evict).code == 0).then_some(())
    });
    playground.locks(&[0, 1]);
    refused(&playground.dev(&["start", "2"]), "geolock dev add 2");
    done(&playground.dev(&["add"]), "dc2 has joined");
    assert_eq!(playground.members(1, 3)[2]["generation"], 1);
    playground.locks(&[2, 1]);

    // Without a playground there is nothing to add to.
    playground.process.signal(Signal::INT);
    playground.process.line("stopped");
    assert_eq!(playground.process.wait(), 0);
    let said = playground.dev(&["add"]);
    assert_eq!(said.code, 69, "{said:?}");
    refused(&said, "no playground runs in");
}

#[test]
fn more_than_seven_datacenters_begin_with_seven_voters_and_a_list_of_members() {
    let (home, base) = (tempfile::tempdir().expect("a temporary folder"), free_ports(9));
    let mut command = dev(home.path(), base, &["--dcs", "9"]);
    command.stderr(std::process::Stdio::piped());
    let mut process = Running::start(&mut command, Output::Stdout);
    process.line("ready");
    let playground = Playground { home, base, process };
    until("nine members, of which seven vote", || {
        let said = playground.client(8, &["member", "list", "--json"]);
        let list: Value = serde_json::from_str(&said.stdout).ok()?;
        let members = list["members"].as_array()?;
        let is_complete = members.len() == 9 && members.iter().all(|member| member["phase"] == "member");
        let voters = members.iter().filter(|member| member["votes"] == true).count();
        (is_complete && voters == 7).then_some(())
    });
    playground.locks(&[0, 8]);
    let mut playground = playground;
    playground.process.signal(Signal::INT);
    playground.process.line("stopped");
    assert_eq!(playground.process.errors(), "", "and no server has an error to report");
    assert_eq!(playground.process.wait(), 0);
}
