//! A server that joins, its sponsor, the other member and the one that gives it its state are killed before
//! and after each of their steps: the join ends when the killed one is started again, and nobody loses a lock
//! or a key. While a server that is not settled is gone, the others use locks that nobody has used before.
//!
//! Guarantee: docs/guarantees.md#order-and-availability.

use std::time::Duration;

use crate::fixture::calls::{acquire, put, read};
use crate::fixture::growth::{AUTO, all_settled, joined, listed};
use crate::fixture::history::serving_at;
use crate::fixture::said::run;
use crate::fixture::{Cluster, lock, until, within};
use geolock::client::{AcquireError, AcquireRequest, Client, LockGuard, Snapshot, Wait};
use geolock_api::names::FencingToken;
use rustix::process::Signal;

/// The members. The joining one asks its sponsor.
const OTHER: u8 = 0;
const SPONSOR: u8 = 1;
const JOINER: u8 = 2;
/// The state takes several pieces.
const VALUES: u8 = 8;
const VALUE_BYTES: usize = 100_000;

/// Two members, with a lock held in each and a key, before a third one joins.
struct Members {
    cluster: Cluster,
    clients: [Client; 2],
    held: [LockGuard; 2],
    written: Snapshot,
    last: FencingToken,
    /// Number of locks that were used for the first time.
    fresh: usize,
}

fn held_in(dc: u8) -> AcquireRequest {
    AcquireRequest::exclusive(lock(&format!("held/{dc}")))
}

async fn members() -> Members {
    let mut cluster = Cluster::prepare(3);
    cluster.write_founders(OTHER, 1, AUTO);
    cluster.write_joiner(SPONSOR, cluster.quic_address(OTHER), "city1", "");
    cluster.write_joiner(JOINER, cluster.quic_address(SPONSOR), "city2", "");
    (0..3).for_each(|dc| cluster.write_faults(dc, ""));
    cluster.restart(OTHER);
    let first = serving_at(&cluster, OTHER).await;
    let second = joined(&mut cluster, SPONSOR).await;
    listed(&cluster, SPONSOR, "two settled members", |list| all_settled(list, 2));
    for n in 0..VALUES {
        put(&first, &format!("large{n}"), vec![n; VALUE_BYTES]).await;
    }
    let written = put(&first, "city", "Oslo").await;
    let held = [acquire(&first, held_in(OTHER)).await, acquire(&second, held_in(SPONSOR)).await];
    let last = held[1].token();
    Members { cluster, clients: [first, second], held, written, last, fresh: 0 }
}

impl Members {
    /// The joining server starts; the first of these that takes the step is killed, and started again.
    async fn dies_and_returns(&mut self, victims: &[u8], (when, step): (&str, &str)) {
        let dead = self.dies(victims, (when, step));
        // The decision that it is settled may be a moment ahead of it: it is a member then, as all others.
        if dead == JOINER && step != "settle" {
            self.use_fresh_locks().await;
        }
        self.cluster.write_faults(dead, "");
        self.cluster.launch(dead);
    }

    /// The joining server starts; the first of these that takes the step is killed, and returned.
    fn dies(&mut self, victims: &[u8], (when, step): (&str, &str)) -> u8 {
        println!("one of {victims:?} dies {when} {step}");
        let script = format!("kill = {{ when = \"{when}\", step = \"{step}\" }}\n");
        for victim in victims {
            match *victim {
                JOINER => self.cluster.write_faults(JOINER, &script),
                member => self.cluster.befall(member, &script),
            }
        }
        self.cluster.launch(JOINER);
        let dead = match victims {
            [only] => *only,
            several => {
                until("one that has died", || several.iter().copied().find(|dc| !self.cluster.is_alive(*dc)))
            }
        };
        for victim in victims.iter().filter(|victim| **victim != dead) {
            self.cluster.befall(*victim, "");
        }
        self.cluster.server(dead).line("the fault script ends this process");
        assert_eq!(self.cluster.server(dead).wait(), -Signal::KILL.as_raw());
        dead
    }

    /// Each member gets a lock that nobody has used.
    async fn use_fresh_locks(&mut self) {
        for client in &self.clients {
            self.fresh += 1;
            let name = format!("fresh/{}", self.fresh);
            let guard = acquire(client, AcquireRequest::exclusive(lock(&name))).await;
            guard.release().await.expect("it was held");
        }
    }

    /// The join ends, and all is as it was. Then the new member leaves.
    async fn join_ends(&mut self) {
        for dc in 0..3 {
            listed(&self.cluster, dc, "three settled members", |list| all_settled(list, 3));
        }
        let joined = serving_at(&self.cluster, JOINER).await;
        assert_eq!(read(&joined, "city", &self.written).await.as_deref(), Some(&b"Oslo"[..]));
        for dc in [OTHER, SPONSOR] {
            let briefly = held_in(dc).wait(Wait::AtMost(Duration::from_millis(100)));
            let refused = within(joined.acquire(briefly)).await.err();
            assert!(matches!(refused, Some(AcquireError::TimedOut { .. })), "held/{dc}: {refused:?}");
        }
        for client in [&joined, &self.clients[0], &self.clients[1]] {
            let guard = acquire(client, AcquireRequest::exclusive(lock("used"))).await;
            assert!(guard.token() > self.last, "{:?} after {:?}", guard.token(), self.last);
            self.last = guard.token();
            guard.release().await.expect("it was held");
        }
        for held in &self.held {
            assert_eq!(held.is_lost(), None, "{held:?}");
        }
        drop(joined);
        let said = run(&mut self.cluster.command(OTHER, ["member", "remove", "2", "--wait"]));
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(self.cluster.server(JOINER).wait(), 0, "it has left");
        std::fs::remove_dir_all(self.cluster.data_dir(JOINER)).expect("nobody uses it");
    }
}

async fn walk(victims: &[u8], steps: &[&str]) {
    let mut members = members().await;
    for step in steps {
        for when in ["before", "after"] {
            members.dies_and_returns(victims, (when, step)).await;
            members.join_ends().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_joins_may_die_before_and_after_every_step_of_it() {
    walk(&[JOINER], &["admit", "take", "install", "enter", "settle"]).await;
}

/// A server that is not settled is not evicted by time alone, as it may only be slow: no lock waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_joins_and_is_lost_stops_no_lock_and_is_evicted_by_an_operator() {
    let mut members = members().await;
    let said = run(&mut members.cluster.command(OTHER, ["member", "policy", "--evict", "auto"]));
    assert_eq!(said.code, 0, "{said:?}");
    listed(&members.cluster, SPONSOR, "the policy is entered by all", |list| all_settled(list, 2));
    assert_eq!(members.dies(&[JOINER], ("after", "enter")), JOINER);
    members.use_fresh_locks().await;
    let evict = ["member", "evict", "2", "--confirm-dead", "--clients-are-dead"];
    let said = run(&mut members.cluster.command(OTHER, evict));
    assert_eq!(said.code, 0, "{said:?}");
    for dc in [OTHER, SPONSOR] {
        listed(&members.cluster, dc, "two settled members", |list| all_settled(list, 2));
    }
    members.use_fresh_locks().await;
    members.held.iter().for_each(|held| assert_eq!(held.is_lost(), None, "{held:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_sponsor_may_die_before_and_after_every_step_of_it() {
    walk(&[SPONSOR], &["admit", "enter", "split", "done", "settle"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_member_may_die_before_and_after_every_step_of_it() {
    walk(&[OTHER], &["admit", "enter", "done", "settle"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_member_that_gives_the_state_may_die_before_and_after_it_sends_some() {
    walk(&[OTHER, SPONSOR], &["give"]).await;
}
