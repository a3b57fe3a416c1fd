//! Clusters of four to seven datacenters lose several at once, also the leader of the control group in the
//! middle of an eviction.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use std::collections::BTreeMap;

use rustix::process::Signal;

use crate::evicting::evict;
use crate::fixture::calls::{acquire, put, read};
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, Output, Running, lock, until};
use crate::growth::{all_settled, listed};
use crate::leaving::token;
use crate::recovering::founded;
use geolock::client::{AcquireRequest, Client, LockGuard};

/// Those that are left of a cluster, each with a client that holds a lock.
struct Left {
    cluster: Cluster,
    rows: BTreeMap<u8, (Client, LockGuard)>,
    /// The last token of the lock that is used everywhere.
    token: u64,
}

impl Left {
    async fn of(dcs: u8) -> Left {
        let (cluster, clients) = founded(dcs).await;
        let mut rows = BTreeMap::new();
        for (dc, client) in (0..).zip(clients) {
            let held = acquire(&client, AcquireRequest::exclusive(lock(&format!("held by {dc}")))).await;
            rows.insert(dc, (client, held));
        }
        Left { cluster, rows, token: 0 }
    }

    fn dcs(&self) -> Vec<u8> {
        self.rows.keys().copied().collect()
    }

    fn client(&self, dc: u8) -> &Client {
        &self.rows[&dc].0
    }

    /// Returns the datacenter that leads the control group, and two others, lowest first.
    fn leader_and_two(&self) -> (u8, u8, u8) {
        let any = self.dcs()[0];
        let list = listed(&self.cluster, any, "somebody leads", |list| {
            list["leader"].as_u64().is_some_and(|leader| self.rows.contains_key(&(leader as u8)))
        });
        let leader = list["leader"].as_u64().expect("it was found") as u8;
        let others: Vec<u8> = self.dcs().into_iter().filter(|dc| *dc != leader).collect();
        (leader, others[0], others[1])
    }

    fn kill(&mut self, dc: u8) {
        self.cluster.kill(dc);
        self.rows.remove(&dc);
    }

    /// Waits until nobody hears one that was killed.
    fn is_silent(&self, lost: u8) {
        self.dcs().iter().for_each(|dc| self.is_silent_at(*dc, lost));
    }

    fn is_silent_at(&self, dc: u8, silent: u8) {
        listed(&self.cluster, dc, "one is not heard there", |list| {
            let rows = list["members"].as_array().expect("a list");
            rows.iter().any(|row| row["dc"] == silent && row["heard"] == false)
        });
    }

    fn evict(&self, at: u8, lost: &[u8]) -> Said {
        let ids: Vec<String> = lost.iter().map(u8::to_string).collect();
        let asked = ["member", "evict", "--confirm-dead", "--clients-are-dead"];
        run(&mut self.cluster.command(at, asked.into_iter().chain(ids.iter().map(String::as_str))))
    }

    /// An eviction of `lost` begins at `at`, and cannot end while `slow` is stopped; meanwhile `second` is
    /// killed. Then both are evicted.
    fn lose_another_meanwhile(&mut self, at: u8, lost: u8, second: u8, slow: u8) {
        self.cluster.server(slow).stop();
        let asked = ["member", "evict", "--confirm-dead", "--clients-are-dead", &lost.to_string()];
        let mut first = Running::start(&mut self.cluster.command(at, asked), Output::Stderr);
        let begins = format!("the eviction of dc{lost} begins");
        let has_begun = || {
            let audit = run(&mut self.cluster.command(at, ["audit"]));
            audit.stdout.lines().any(|line| line.contains(&begins) && !line.contains("without effect"))
        };
        until("it begins", || has_begun().then_some(()));
        self.kill(second);
        self.cluster.server(slow).signal(Signal::CONT);
        until("both are evicted", || (self.evict(at, &[lost, second]).code == 0).then_some(()));
        // It has tried again until the first one was no member.
        let _code = first.wait();
    }

    /// All that are left have the same list, lost no lock, and use the same locks and data.
    async fn goes_on(&mut self) {
        let dcs = self.dcs();
        for dc in &dcs {
            listed(&self.cluster, *dc, "all that are left are settled", |list| all_settled(list, dcs.len()));
        }
        for (dc, (_, held)) in &self.rows {
            assert_eq!(held.is_lost(), None, "dc{dc} lost its lock");
        }
        for dc in &dcs {
            let after = token(self.client(*dc), "used everywhere").await;
            assert!(after > self.token, "{after} after {} in dc{dc}", self.token);
            self.token = after;
            token(self.client(*dc), &format!("first used by {dc} of {}", dcs.len())).await;
        }
        let name = format!("by {}", dcs.len());
        let written = put(self.client(dcs[0]), &name, "all").await;
        let last = self.client(dcs[dcs.len() - 1]);
        assert_eq!(read(last, &name, &written).await.as_deref(), Some(&b"all"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_become_three_while_leaders_are_lost_in_the_middle_of_evictions() {
    let mut left = Left::of(7).await;
    left.goes_on().await;
    for _ in 0..2 {
        let (leader, at, slow) = left.leader_and_two();
        let lost = *left.dcs().iter().rev().find(|dc| **dc != leader).expect("there are others");
        assert!(lost != at && lost != slow, "there are five at least");
        left.kill(lost);
        left.is_silent(lost);
        left.lose_another_meanwhile(at, lost, leader, slow);
        left.goes_on().await;
    }
    // Of three, the leader alone: the other two elect one of them first.
    let (leader, at, _) = left.leader_and_two();
    left.kill(leader);
    until("it is evicted", || (left.evict(at, &[leader]).code == 0).then_some(()));
    left.goes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_are_lost_at_once_and_a_third_one_before_the_end_of_their_eviction() {
    let mut left = Left::of(5).await;
    left.goes_on().await;
    for dc in [3, 4] {
        left.kill(dc);
    }
    left.is_silent(3);
    left.is_silent(4);
    // Without dc2 there is no majority: it does not end, and no half of it has happened when dc2 is back.
    left.cluster.server(2).stop();
    let asked = ["member", "evict", "3", "4", "--confirm-dead", "--clients-are-dead"];
    let mut first = Running::start(&mut left.cluster.command(0, asked), Output::Stderr);
    left.is_silent_at(0, 2);
    left.cluster.server(2).signal(Signal::CONT);
    let _code = first.wait();
    until("both are evicted", || (left.evict(1, &[3, 4]).code == 0).then_some(()));
    left.goes_on().await;
    // Their servers are started again: they learn it, and stop.
    for dc in [3, 4] {
        left.cluster.launch(dc);
        left.cluster.server(dc).line("this datacenter was evicted: stopping");
        assert_eq!(left.cluster.server(dc).wait(), 0);
    }
    left.goes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_four_is_evicted_and_another_one_leaves() {
    let mut left = Left::of(4).await;
    left.kill(3);
    until("it is evicted", || (evict(&left.cluster, 0, "3").code == 0).then_some(()));
    left.goes_on().await;
    let (_, held) = left.rows.remove(&2).expect("it is there");
    held.release().await.expect("it was held");
    let said = run(&mut left.cluster.command(0, ["member", "remove", "2", "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    left.goes_on().await;
}
