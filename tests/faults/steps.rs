//! A server is killed before and after each of its steps, and its disk fails, under load: nothing that was
//! acknowledged is lost, and no lock has two holders.
//!
//! Guarantee: docs/guarantees.md#commits.

use std::sync::{Arc, Mutex};

use crate::fixture::lists::{HOLD, Lists};
use crate::fixture::trouble::{Dice, Load, some_progress};
use crate::fixture::wan::Wan;
use crate::fixture::{key, lock, servers, within};
use crate::script::load;
use bytes::Bytes;
use geolock::client::{AcquireRequest, Client, Update};
use geolock_api::names::FencingToken;
use rustix::process::Signal;
use tokio::task::{JoinHandle, JoinSet};

/// Those of a join: see `joins.rs`.
const OF_JOINS: [&str; 8] = ["admit", "enter", "give", "take", "install", "split", "done", "settle"];
/// Each before and after.
const STEPS: [&str; 12] = [
    "append",
    "sync",
    "send",
    "apply",
    "transfer",
    "commit",
    "lease",
    "grant",
    "release",
    "committed",
    "checkpoint",
    "truncate",
];
/// Small enough that checkpoints are made whenever a task fills the log.
const JOURNAL: &str = "[journal]\nsegment_bytes = \"1 MiB\"\ncheckpoint_bytes = \"1 MiB\"\n";
const FILLER_BYTES: usize = 200 << 10;

/// The list is complete: a script with another step is refused with the names of all.
#[test]
fn all_steps_are_walked() {
    let error = load("fail = { step = \"none\" }").expect_err("there is no such step").to_string();
    let (_, names) = error.split_once("expected one of ").expect("it says which there are");
    let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
    assert_eq!(names, [&STEPS[..], &OF_JOINS[..]].concat(), "{error}");
}

/// Acquires and releases one lock, and checks that tokens grow.
async fn use_lock(client: Client, last: Arc<Mutex<FencingToken>>, load: Arc<Load>) {
    let name = lock("plain");
    while !load.is_closed() {
        // Its server may be dead for a while.
        let Ok(guard) = client.acquire(AcquireRequest::exclusive(name.clone())).await else { continue };
        let before = std::mem::replace(&mut *last.lock().expect("nobody panics with it"), guard.token());
        assert!(guard.token() > before, "{:?} was granted after {before:?}", guard.token());
        // It may have been lost with its server by now.
        let _ = guard.release().await;
    }
}

/// Fills the log of its datacenter, until it is aborted.
async fn fill(client: Client) {
    let key = key("filler");
    loop {
        // Its server dies in the end.
        let _ = client.update(&key, Update::register(Bytes::from(vec![7; FILLER_BYTES]))).await;
    }
}

/// Kills that server at that step, and starts it again.
async fn die_at(wan: &mut Wan, client: &Client, dc: u8, (when, step): (&str, &str), time: usize) {
    println!("dc{dc} dies {when} {step}, the {time}. time");
    let script = format!("kill = {{ when = \"{when}\", step = \"{step}\", time = {time} }}\n");
    wan.cluster.befall(dc, &script);
    let cause = match step {
        "lease" => {
            let config = wan.cluster.client_config(dc);
            Some(tokio::spawn(async { drop(Client::connect(config).await) }))
        }
        "checkpoint" | "truncate" => Some(tokio::spawn(fill(client.clone()))),
        _ => None,
    };
    wan.cluster.server(dc).line("the fault script ends this process");
    cause.inspect(JoinHandle::abort);
    wan.reap(dc, -Signal::KILL.as_raw());
    wan.cluster.write_faults(dc, "");
    wan.restart(dc);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_die_before_and_after_every_step() {
    let mut dice = Dice::from_environment();
    let (mut wan, clients) = servers(3).quick().with(HOLD).with(JOURNAL).with_fault_scripts().await;
    let lists = Lists::begin(&clients, &mut dice);
    let (load, last, mut others) = (lists.load(), Arc::new(Mutex::new(FencingToken(0))), JoinSet::new());
    for client in &clients {
        others.spawn(use_lock(client.clone(), Arc::clone(&last), Arc::clone(&load)));
    }
    let mut progress = load.progress();
    for step in STEPS {
        for when in ["before", "after"] {
            let (dc, time) = (dice.roll(3) as u8, 1 + dice.roll(3));
            let is_rare = ["lease", "checkpoint", "truncate"].contains(&step);
            let client = &clients[usize::from(dc)];
            die_at(&mut wan, client, dc, (when, step), if is_rare { 1 } else { time }).await;
            some_progress(&mut dice, &mut progress).await;
        }
    }
    // A failed sync may have left anything on the disk: the process ends by itself, and logs the reason.
    wan.cluster.befall(1, "fail = { step = \"sync\", time = 3 }\n");
    let said = wan.cluster.server(1).line("Sync fails, as the fault script says");
    assert!(said.contains("cannot sync"), "{said}");
    wan.reap(1, 1);
    wan.cluster.write_faults(1, "");
    wan.restart(1);
    wan.await_whole();

    let figures = lists.end(&clients).await;
    within(others.join_all()).await;
    println!("{figures:?}");
    assert!(figures.least > 0 && figures.appends > 100 && figures.hand_offs > 25, "{figures:?}");
}
