//! Force release, as operators and victims see it: processes, exit codes, output.
//!
//! Guarantees: docs/guarantees.md#commits, docs/guarantees.md#not-promised.

use std::io::{Write as _, copy};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, Output, Running, servers, until};

/// A path from clients to a server that can be cut: then nothing that the server sends arrives.
struct Way {
    address: SocketAddr,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    is_cut: bool,
    streams: Vec<TcpStream>,
}

impl Way {
    fn to(server: String) -> Way {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let gate = Arc::<(Mutex<Gate>, Condvar)>::default();
        let way = Way { address, gate: Arc::clone(&gate) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let open = gate.0.lock().expect("nothing panics while it holds this");
                let mut open = gate.1.wait_while(open, |gate| gate.is_cut).expect("likewise");
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let again = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
                    open.streams.push(again(from));
                    let (mut from, mut to) = (again(from), again(to));
                    thread::spawn(move || copy(&mut from, &mut to).and(to.shutdown(Shutdown::Both)));
                }
            }
        });
        way
    }

    fn cut(&self) {
        let mut gate = self.gate.0.lock().expect("nothing panics while it holds this");
        gate.is_cut = true;
        // Fails for connections that have ended already.
        gate.streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    fn heal(&self) {
        self.gate.0.lock().expect("nothing panics while it holds this").is_cut = false;
        self.gate.1.notify_all();
    }
}

/// Holds locks until it is ended. Messages of `geolock` itself go to its standard error, which is read.
fn holder(cluster: &Cluster, dc: u8, flags: &[&str], locks: &[&str]) -> Running {
    holder_at(cluster, &cluster.endpoint(dc), flags, locks)
}

/// The same, over another path to the server.
fn holder_at(cluster: &Cluster, endpoint: &str, flags: &[&str], locks: &[&str]) -> Running {
    let mut command = cluster.command(0, ["lock", "--label", "the night shift", "--ttl", "30s"]);
    command.env("GEOLOCK_CONNECT", endpoint).args(flags).args(locks);
    command.args(["--", "sh", "-c", "echo in >&2; exec cat"]);
    // Whatever happens to geolock, its command ends with this test.
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut running = Running::start(&mut command, Output::Stderr);
    running.line("in");
    running
}

fn release(cluster: &Cluster, dc: u8, lock: &str, more: &[&str]) -> Said {
    let mut command: Command =
        cluster.command(dc, ["release", lock, "--force", "--reason", "it hangs, ticket 4711"]);
    run(command.args(more))
}

/// Returns the audit of dc0 without the decisions about the members.
fn audited(cluster: &Cluster, flags: &[&str]) -> String {
    let said = run(cluster.command(0, ["audit"]).args(flags));
    assert_eq!(said.code, 0, "{said:?}");
    said.stdout.lines().filter(|line| !line.contains("decision")).collect::<Vec<_>>().join("\n")
}

fn json(said: &Said) -> serde_json::Value {
    serde_json::from_str(said.stdout.trim()).expect("one object")
}

#[test]
fn the_victim_ends_with_74_and_says_who_took_it_and_why() {
    let mut cluster = servers(1).listening();
    let mut victim = holder(&cluster, 0, &[], &["x", "y"]);
    let described = json(&run(&mut cluster.command(0, ["describe", "--json", "x"])));
    let token = described["holders"][0]["token"].as_str().expect("a string: it is above 2^53").to_owned();

    let said = release(&cluster, 0, "x", &[]);
    let expected =
        format!("released: x (exclusive, token {token}) from the night shift, with 1 other lock\n");
    assert_eq!((said.code, &*said.stdout), (0, &*expected), "{}", said.stderr);
    let line = victim.line("the locks are lost");
    assert!(line.contains("taken away by client playground: it hangs, ticket 4711"), "{line}");
    assert_eq!(victim.wait(), 74);
    let line = cluster.server(0).line("lock taken from its holder");
    for text in ["WARN", "client playground", "it hangs, ticket 4711", "the night shift"] {
        assert!(line.contains(text), "{text} is missing in {line}");
    }

    let next =
        run(&mut cluster.command(0, ["lock", "--try", "x", "y", "--", "sh", "-c", "echo $GEOLOCK_TOKEN"]));
    let number = |token: &str| token.trim().parse::<u64>().expect("a token");
    assert!(number(&next.stdout) > number(&token));
    let nobody = release(&cluster, 0, "x", &[]);
    assert_eq!((nobody.code, &*nobody.stdout), (0, "Nobody holds x: nothing was changed.\n"));

    let audit = audited(&cluster, &[]);
    assert_eq!(audit.lines().count(), 1, "{audit}");
    let tail = format!(
        "UTC  client playground took x (exclusive, token {token}) from the night shift, with 1 other lock: it hangs, ticket 4711"
    );
    assert!(audit.ends_with(&tail), "{audit}");
    let audit: serde_json::Value = serde_json::from_str(&audited(&cluster, &["--json"])).expect("one object");
    assert_eq!(
        (&audit["name"], &audit["token"], &audit["locks"]),
        (&"x".into(), &token.as_str().into(), &2.into())
    );
}

#[test]
fn a_victim_that_heard_of_nothing_gets_nothing_back_from_a_server_that_crashed() {
    let mut cluster = servers(1).listening();
    let way = Way::to(cluster.endpoint(0));
    let mut victim = holder_at(&cluster, &way.address.to_string(), &[], &["x"]);
    let other = holder(&cluster, 0, &[], &["z"]);
    way.cut();
    assert_eq!(release(&cluster, 0, "x", &[]).code, 0);
    cluster.kill(0);
    cluster.restart(0);
    way.heal();
    let line = victim.line("the locks are lost");
    assert!(line.contains("client playground: it hangs, ticket 4711"), "{line}");
    assert_eq!(victim.wait(), 74);
    assert_eq!(run(&mut cluster.command(0, ["lock", "--wait", "50s", "x", "--", "true"])).code, 0);
    let held = run(&mut cluster.command(0, ["lock", "--try", "z", "--", "true"]));
    assert_eq!(held.code, 75, "who was left alone has its lock still");
    assert_eq!(audited(&cluster, &[]).lines().count(), 1, "it is remembered");
    drop(other);
}

#[test]
fn all_who_share_it_here_lose_it_and_those_elsewhere_are_named() {
    let cluster = servers(2).listening();
    let mut here = [(); 2].map(|()| holder(&cluster, 0, &["--shared"], &["x"]));
    let mut there = holder(&cluster, 1, &["--shared"], &["x"]);
    let said = release(&cluster, 0, "x", &["--json"]);
    assert_eq!(said.code, 1);
    assert_eq!(json(&said)["released"].as_array().map(Vec::len), Some(2), "{}", said.stdout);
    assert!(here.iter_mut().all(|holder| holder.wait() == 74));
    // On a busy machine the other datacenter may not answer in time; then the operator asks again.
    let definite = |dc| {
        until("an answer of the other datacenter", || {
            let said = release(&cluster, dc, "x", &[]);
            (!said.stderr.contains("did not say in time")).then_some(said)
        })
    };
    let said = definite(0);
    assert_eq!((said.code, &*said.stdout), (1, ""), "nobody here, but there");
    assert!(said.stderr.contains("dc1 (city1)") && said.stderr.contains("--connect"), "{}", said.stderr);
    let said = definite(1);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(there.wait(), 74);
}

#[test]
fn a_transaction_that_lost_its_lock_commits_nothing() {
    let cluster = servers(1).listening();
    let mut command = cluster.command(0, ["kv", "txn", "--lock", "x", "--"]);
    let mut txn = Running::start(command.stdin(Stdio::piped()), Output::Stderr);
    let mut stdin = txn.stdin();
    writeln!(stdin, "put k v").expect("it reads");
    until("a holder", || (!release(&cluster, 0, "x", &[]).stdout.starts_with("Nobody")).then_some(()));
    // It may have heard of it by now, and have ended.
    writeln!(stdin, "commit").ok();
    let line = txn.line("it hangs, ticket 4711");
    assert!(line.contains("client playground"), "{line}");
    assert_eq!(txn.wait(), 74);
    assert_eq!(run(&mut cluster.command(0, ["kv", "get", "k"])).stdout.trim(), "");
}

#[test]
fn wrong_usage_is_64_and_takes_nothing() {
    let cluster = servers(1).listening();
    let _holder = holder(&cluster, 0, &[], &["x"]);
    for args in [
        &["release", "x", "--reason", "why"][..],
        &["release", "x", "--force"],
        &["release", "x", "--force", "--reason", " "],
        &["release", "x", "--force", "--reason", "two\nlines"],
        &["release", "", "--force", "--reason", "why"],
    ] {
        let said = run(&mut cluster.command(0, args));
        assert_eq!((said.code, said.stderr.is_empty()), (64, false), "{args:?}: {}", said.stderr);
    }
    assert_eq!(audited(&cluster, &[]), "No lock was ever taken away here.");
    assert_eq!(run(&mut cluster.command(0, ["lock", "--try", "x", "--", "true"])).code, 75);
}
