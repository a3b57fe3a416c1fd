//! Three servers that speak an earlier version of the protocol between datacenters are restarted with the
//! newest one by one, under load: what needs the newest version is refused until the last one speaks it, and
//! works then.
//!
//! Guarantee: docs/guarantees.md#homed-locks.

use std::time::Duration;

use crate::fixture::calls::acquire;
use crate::fixture::growth::{AUTO, all_settled, joined, listed, refused};
use crate::fixture::history::serving_at;
use crate::fixture::lists::{HOLD, Lists};
use crate::fixture::said::run;
use crate::fixture::trouble::Dice;
use crate::fixture::{Cluster, until, within};
use geolock::client::{AcquireError, AcquireRequest, Client, DcId, LockName, Reason, Wait};
use rustix::process::Signal;

const MEMBERS: [u8; 3] = [0, 1, 2];
const NEW: u8 = 3;
const LATER: u8 = 4;
/// The least that each datacenter appends after each restart.
const SHARE: u64 = 3;

/// Starts the founders with this fault script, and returns a client of each.
async fn founded(cluster: &mut Cluster, script: &str) -> Vec<Client> {
    for dc in MEMBERS {
        cluster.write_founders(dc, 3, &[AUTO, HOLD].concat());
        cluster.write_faults(dc, script);
        cluster.launch(dc);
    }
    let mut clients = Vec::new();
    for dc in MEMBERS {
        cluster.server(dc).line("listening");
        clients.push(serving_at(cluster, dc).await);
    }
    clients
}

/// Restarts a server with this fault script.
fn upgrade(cluster: &mut Cluster, dc: u8, script: &str) {
    cluster.server(dc).signal(Signal::TERM);
    assert_eq!(cluster.server(dc).wait(), 0, "it stops");
    cluster.write_faults(dc, script);
    cluster.restart(dc);
}

fn homed(home: u8) -> AcquireRequest {
    let home = DcId::new(home).expect("a small id");
    AcquireRequest::exclusive(LockName::homed(home, b"x").expect("a short name"))
}

/// Returns true if a homed lock is refused because some member may not understand it.
async fn is_too_early(client: &Client, home: u8) -> bool {
    let briefly = homed(home).wait(Wait::AtMost(Duration::from_millis(200)));
    matches!(within(client.acquire(briefly)).await, Err(AcquireError::Refused(Reason::NotYet, _)))
}

/// No change of the members is made, and the reason is said.
fn refuses_changes(cluster: &Cluster, at: u8) {
    for change in [&["remove", "2"][..], &["add", "city3"], &["policy", "--evict", "wait"]] {
        // A server that was just started has not begun with the control group yet.
        let said = until("an answer of the control group", || {
            let said = run(&mut cluster.command(at, [&["member"], change].concat()));
            (!said.stderr.contains("takes no part in the control group")).then_some(said)
        });
        assert!(said.code != 0 && said.stderr.contains("no list of decisions"), "{change:?}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_the_newest_version_waits_for_the_last_server_that_is_upgraded() {
    let mut dice = Dice::from_environment();
    let mut cluster = Cluster::prepare(4);
    cluster.write_joiner(NEW, cluster.quic_address(0), "city3", HOLD);
    let clients = founded(&mut cluster, "speak = 2\n").await;
    let lists = Lists::begin(&clients, &mut dice);
    let load = lists.load();
    for dc in MEMBERS {
        load.works_in(&MEMBERS, SHARE).await;
        for at in MEMBERS {
            assert!(is_too_early(&clients[usize::from(at)], at).await, "before the upgrade of dc{dc}");
            refuses_changes(&cluster, at);
        }
        upgrade(&mut cluster, dc, "");
    }
    load.works_in(&MEMBERS, SHARE).await;

    for (dc, client) in (0..).zip(&clients) {
        while is_too_early(client, dc).await {}
        acquire(client, homed(dc)).await.release().await.expect("it was held");
        listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
    }
    drop(joined(&mut cluster, NEW).await);
    for dc in 0..=NEW {
        listed(&cluster, dc, "four settled members", |list| all_settled(list, 4));
    }
    load.works_in(&MEMBERS, SHARE).await;
    let figures = lists.end(&clients).await;
    println!("{figures:?}");
    assert!(figures.least > 0 && figures.unknown == 0, "{figures:?}");
}

/// No change of the members or of the homes of prefixes is made, and the reason is said.
fn waits_for_upgrade(cluster: &Cluster, at: u8) {
    for change in [&["home", "x/", "1"][..], &["remove", "2"]] {
        let said = run(&mut cluster.command(at, [&["member"], change].concat()));
        assert!(said.code != 0 && said.stderr.contains("finish the upgrade first"), "{change:?}: {said:?}");
    }
}

/// Servers of this release are restarted one by one as the next one, which speaks one version more. One of
/// them is lost meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_do_not_change_while_versions_differ_but_one_that_is_lost_is_evicted() {
    const NEXT: &str = "speak = 8\n";
    let mut dice = Dice::from_environment();
    let mut cluster = Cluster::prepare(5);
    for dc in [NEW, LATER] {
        cluster.write_joiner(dc, cluster.quic_address(0), &format!("city{dc}"), HOLD);
        cluster.write_faults(dc, "");
    }
    let mut clients = founded(&mut cluster, "").await;
    let lists = Lists::begin(&clients, &mut dice);
    let load = lists.load();
    clients.push(joined(&mut cluster, NEW).await);
    listed(&cluster, 0, "four settled members", |list| all_settled(list, 4));

    for dc in [0, 1] {
        upgrade(&mut cluster, dc, NEXT);
        load.works_in(&MEMBERS, SHARE).await;
        // Every datacenter has taken a lock from the one that was upgraded, so it has heard of its version.
        MEMBERS.into_iter().for_each(|at| waits_for_upgrade(&cluster, at));
    }
    // Nobody can upgrade one that is lost.
    cluster.kill(NEW);
    drop(clients.pop());
    let evict = ["member", "evict", "3", "--confirm-dead", "--clients-are-dead"];
    until("it is evicted", || (run(&mut cluster.command(2, evict)).code == 0).then_some(()));
    waits_for_upgrade(&cluster, 2);

    upgrade(&mut cluster, 2, NEXT);
    let decided = || run(&mut cluster.command(0, ["audit"])).stdout.contains("version 8 is used");
    until("all use the next version", || decided().then_some(()));

    // A server of before is told why it cannot join, and joins as the next one.
    let early = refused(&cluster, LATER, &[]);
    assert!(early.code != 0 && early.stderr.contains("the cluster uses 8: upgrade it"), "{early:?}");
    cluster.write_faults(LATER, NEXT);
    drop(joined(&mut cluster, LATER).await);
    for dc in [0, 1, 2, LATER] {
        listed(&cluster, dc, "four settled members", |list| all_settled(list, 4));
    }
    load.works_in(&MEMBERS, SHARE).await;
    let figures = lists.end(&clients).await;
    println!("{figures:?}");
    assert!(figures.least > 0 && figures.unknown == 0, "{figures:?}");
}
