//! The policy of evictions is changed while a datacenter is down, and then it is evicted. It does not know
//! the policy under which that was possible, and grants nothing, in whatever surroundings it is started.
//!
//! An order is the policy that dc2 knows, then each policy that the others set while it is down. Tested are
//! all orders of one and two changes: each policy can be set after each other one, and to set the same again
//! changes nothing. `auto` with other times is a policy of its own, since it has to be entered anew. The last
//! policy decides how dc2 can be evicted: under `operator` by an operator; under `auto` by time if dc2 has
//! entered it, which only the order without a change permits, and by an operator otherwise; under `wait` not
//! at all. More changes add no case: what happens depends on the policy that dc2 knows, on the last one, and
//! on an epoch between them, which only `auto` begins.
//!
//! In each order dc2 is started cut off from both others; beside both while they are stopped, and then run
//! on; and beside both.
//!
//! Guarantees: docs/guarantees.md#mutual-exclusion.

use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::evicting::evict;
use crate::fixture::calls::acquire;
use crate::fixture::said::{Said, run, said};
use crate::fixture::wan::{QUICK, Wan};
use crate::fixture::{Cluster, lock, within};
use crate::growth::all_settled;
use crate::leaving::token;
use geolock::client::AcquireRequest;
use serde_json::Value;
use tokio::time::sleep;

/// A policy, as the command line has it.
type Policy = &'static [&'static str];

const WAIT: Policy = &["--evict", "wait"];
const OPERATOR: Policy = &["--evict", "operator"];
const AUTO: Policy =
    &["--evict", "auto", "--fence-after", "3s", "--evict-after", "15s", "--max-lease-ttl", "10s"];
/// `auto` with other times.
const LATER: Policy =
    &["--evict", "auto", "--fence-after", "3s", "--evict-after", "16s", "--max-lease-ttl", "10s"];
const ALL: [Policy; 3] = [WAIT, OPERATOR, AUTO];

/// Leases are short enough for `auto` from the start. Many servers share the processors.
const LIMITS: &str = "[limits]\nmax_lease_ttl = \"10 s\"\nmax_queue_delay = \"1 min\"\n";
/// Pause between two looks at something that nobody reports.
const LOOK: Duration = Duration::from_millis(200);
/// Orders of a test at the same time: most of an order is waiting.
const AT_A_TIME: usize = 3;

/// A datacenter has this lock, and holds it, while dc2 is down.
const ELSEWHERE: &str = "used elsewhere";
/// The parts of this lock are in dc2 when it goes down.
const THERE: &str = "used there";

fn policy(cluster: &Cluster, at: u8, args: &[&str]) -> Said {
    run(&mut cluster.command(at, [&["member", "policy"], args].concat()))
}

/// Looks until there is a result. The processors are free for the servers in between.
async fn seen(what: &str, mut look: impl FnMut() -> bool) {
    eprintln!("awaited: {what}");
    within(async {
        while !look() {
            sleep(LOOK).await;
        }
    })
    .await;
}

async fn set(cluster: &Cluster, at: u8, to: Policy) {
    seen("the decision", || policy(cluster, at, to).code == 0).await;
}

/// Waits until the list of members is as wanted.
async fn listed(cluster: &Cluster, dc: u8, wanted: impl Fn(&Value) -> bool) {
    seen("the list of members", || {
        let said = run(&mut cluster.command(dc, ["member", "list", "--json"]));
        serde_json::from_str(&said.stdout).is_ok_and(|list| wanted(&list))
    })
    .await;
}

/// Waits until dc2 knows the policy, and all have entered it.
async fn entered(cluster: &Cluster, to: Policy) {
    let name = format!("\"evict\":\"{}\"", to[1]);
    seen("the policy", || policy(cluster, 2, &["--json"]).stdout.contains(&name)).await;
    listed(cluster, 2, |list| all_settled(list, 3)).await;
}

/// Evicts dc2, as the last policy permits it. Returns false if that is `wait`.
async fn evicted(wan: &mut Wan, order: &[Policy]) -> bool {
    for other in 0..2 {
        wan.await_link(other, 2, false);
    }
    let cluster = &wan.cluster;
    let last = order.last().expect("the first policy is the one that dc2 knows")[1];
    if last == "wait" {
        let replace = ["member", "replace", "2", "--confirm-dead", "--clients-are-dead"];
        let evict = [&["member", "evict"], &replace[2..]].concat();
        for command in [&evict[..], &replace] {
            seen("a refusal for the policy, once no member hears dc2", || {
                let said = run(&mut cluster.command(1, command));
                assert_ne!(said.code, 0, "{order:?}: {said:?}");
                said.stderr.contains("`geolock member policy --evict operator`")
            })
            .await;
        }
        return false;
    }
    if order != [AUTO] {
        if last == "auto" {
            let late = "Evict = auto does not apply yet to dc2";
            seen("that time does not evict dc2", || policy(cluster, 1, &[]).stdout.contains(late)).await;
        }
        seen("the eviction, once no member hears dc2", || evict(cluster, 1, "2").code == 0).await;
    }
    listed(cluster, 0, |list| all_settled(list, 2)).await;
    true
}

/// Starts a command of a client of dc2.
fn asks(cluster: &Cluster, args: &[&str]) -> Child {
    let mut command = cluster.command(2, args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary is there")
}

fn is_refused(asked: Child, what: &[&str]) {
    let said = said(asked);
    assert_ne!(said.code, 0, "{what:?}: {said:?}");
}

/// It was not told: it grants neither what others hold nor what nobody has used, and writes nothing.
fn serves_nothing(cluster: &Cluster) {
    let calls = [
        ["lock", THERE, "--wait", "1s", "--", "true"].as_slice(),
        &["lock", ELSEWHERE, "--wait", "1s", "--", "true"],
        &["lock", "never used", "--shared", "--wait", "1s", "--", "true"],
        &["kv", "put", "k", "v"],
    ];
    calls
        .map(|args| (asks(cluster, args), args))
        .into_iter()
        .for_each(|(asked, args)| is_refused(asked, args));
}

/// It hears of its eviction, and ends.
fn is_told(wan: &mut Wan) {
    wan.cluster.server(2).line("this datacenter was evicted: stopping");
    wan.reap(2, 0);
}

/// dc2 was evicted, and its server is started again.
fn is_started_again(wan: &mut Wan) {
    for other in 0..2 {
        wan.cluster.server(other).stop();
    }
    wan.restart(2);
    serves_nothing(&wan.cluster);
    let waits = ["lock", THERE, "--wait", "3s", "--", "true"];
    let waiting = asks(&wan.cluster, &waits);
    for other in 0..2 {
        wan.cluster.server(other).signal(Signal::CONT);
    }
    is_told(wan);
    is_refused(waiting, &waits);
    wan.cluster.launch(2);
    is_told(wan);
}

fn serves(cluster: &mut Cluster, dc: u8) {
    cluster.server(dc).says("report: serving");
}

async fn run_in(order: &[Policy]) {
    let mut wan = Wan::start(3, &[QUICK, LIMITS].concat(), &[]);
    let mut clients = Vec::new();
    for dc in 0..3 {
        serves(&mut wan.cluster, dc);
        clients.push(wan.cluster.client(dc).await);
    }
    wan.await_whole();
    set(&wan.cluster, 0, order[0]).await;
    entered(&wan.cluster, order[0]).await;
    let before = token(&clients[2], THERE).await;
    let elsewhere = acquire(&clients[0], AcquireRequest::exclusive(lock(ELSEWHERE))).await;
    wan.kill(2);
    drop(clients.pop());
    for (changed, at) in order[1..].iter().zip(0..) {
        set(&wan.cluster, at, changed).await;
    }
    let is_over = evicted(&mut wan, order).await;
    let there = match is_over {
        true => Some(acquire(&clients[1], AcquireRequest::exclusive(lock(THERE))).await),
        false => None,
    };
    assert!(there.as_ref().is_none_or(|held| held.token().0 > before));

    for other in 0..2 {
        wan.cut(other, 2);
    }
    wan.restart(2);
    for other in 0..2 {
        wan.loses(other, 2).await;
    }
    serves_nothing(&wan.cluster);
    assert_eq!(elsewhere.is_lost(), None, "{order:?}");
    wan.kill(2);
    wan.heal_all();
    match there {
        Some(held) => {
            is_started_again(&mut wan);
            let before = held.token().0;
            drop(held);
            assert!(token(&clients[0], THERE).await > before);
        }
        None => {
            wan.restart(2);
            serves(&mut wan.cluster, 2);
            let client = wan.cluster.client(2).await;
            is_refused(asks(&wan.cluster, &["lock", ELSEWHERE, "--wait", "0s", "--", "true"]), &[ELSEWHERE]);
            assert!(token(&client, THERE).await > before);
        }
    }
}

/// Runs these orders, each with servers of its own, some at a time.
fn in_each(orders: Vec<Vec<Policy>>) {
    let left = Mutex::new(orders);
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let run_some = || {
        while let Some(order) = next() {
            let runtime = tokio::runtime::Runtime::new().expect("the system has threads");
            runtime.block_on(run_in(&order));
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(run_some);
        }
    });
}

/// Returns all orders of one and two changes that begin with this policy.
fn from(first: Policy) -> Vec<Vec<Policy>> {
    let after = |policy: Policy| ALL.into_iter().filter(move |next| *next != policy);
    let one = after(first).map(|next| vec![first, next]);
    let two = after(first).flat_map(|next| after(next).map(move |last| vec![first, next, last]));
    one.chain(two).collect()
}

#[test]
fn one_that_knows_wait_serves_nothing_whatever_was_set_before_its_eviction() {
    in_each(from(WAIT));
}

#[test]
fn one_that_knows_operator_serves_nothing_whatever_was_set_before_its_eviction() {
    in_each(from(OPERATOR));
}

#[test]
fn one_that_knows_auto_serves_nothing_whatever_was_set_before_its_eviction() {
    in_each([from(AUTO), vec![vec![AUTO, LATER], vec![AUTO]]].concat());
}

/// dc1 knows `wait`. While it is cut off the others set another policy.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_know_the_last_policy_does_not_say_that_an_earlier_one_is_set() {
    let mut wan = Wan::start(3, &[QUICK, LIMITS].concat(), &[]);
    wan.await_whole();
    set(&wan.cluster, 0, WAIT).await;
    let knows = |cluster: &Cluster, evict: &str| policy(cluster, 1, &["--json"]).stdout.contains(evict);
    seen("the policy at dc1", || knows(&wan.cluster, "\"evict\":\"wait\"")).await;
    for other in [0, 2] {
        wan.break_link(1, other);
    }
    set(&wan.cluster, 0, OPERATOR).await;
    for args in [WAIT, &["--rejoin", "auto"]] {
        let said = policy(&wan.cluster, 1, args);
        assert!(said.code != 0 && !said.stdout.contains("is set"), "{said:?}");
    }
    wan.heal_all();
    wan.await_whole();
    set(&wan.cluster, 1, &["--rejoin", "auto"]).await;
    assert!(knows(&wan.cluster, "\"evict\":\"operator\""), "what dc0 was told is set stays so");
}
