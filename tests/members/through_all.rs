//! Every change of the members in one run, from a lone founder on, while clients in all datacenters hold
//! locks, transfer money and append to lists: nothing is lost or doubled, and no two hold one lock.
//!
//! All commits are durable at a majority: what was acknowledged is never beyond the cut of a datacenter
//! that is lost, so the check is exact.
//!
//! Guarantee: docs/guarantees.md#order-and-availability.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::bank::{Bank, CHECKPOINTS};
use crate::fixture::calls::acquire;
use crate::fixture::holders::Holders;
use crate::fixture::lists::{HOLD, Lists};
use crate::fixture::said::run;
use crate::fixture::trouble::Dice;
use crate::fixture::{Cluster, lock, until, within};
use crate::growth::{AUTO, all_settled, listed};
use geolock::client::{AcquireRequest, Client, ClientConfig, Durability};

/// In each datacenter, of each load.
const CREW: u8 = 1;
/// The least that each load achieves in each datacenter after each change.
const SHARE: u64 = 3;
/// Leases of clients, so that an operator's word does not wait long.
const LEASES: &str = "[limits]\nmax_lease_ttl = \"6 s\"\nmax_queue_delay = \"1 min\"\n";
const TTL_SECS: u64 = 6;
const TIMES: [&str; 6] = ["--fence-after", "3s", "--evict-after", "11s", "--max-lease-ttl", "6s"];

/// The servers, a client of each, and the loads that they use.
struct Run {
    cluster: Cluster,
    dice: Dice,
    clients: Vec<Client>,
    bank: Bank,
    lists: Lists,
    holders: Holders,
}

/// Returns the tables of all servers.
fn tables() -> String {
    [LEASES, CHECKPOINTS, HOLD].concat()
}

fn client_config(cluster: &Cluster, dc: u8) -> ClientConfig {
    let mut config = cluster.client_config(dc);
    config.ttl = Some(Duration::from_secs(TTL_SECS));
    config
}

impl Run {
    /// Starts the founder, and the loads there.
    async fn founded(mut dice: Dice) -> Run {
        let mut cluster = Cluster::prepare(3);
        cluster.write_founders(0, 1, &[AUTO, &tables()].concat());
        cluster.write_joiner(1, cluster.quic_address(0), "city1", &tables());
        cluster.write_joiner(2, cluster.quic_address(1), "city2", &tables());
        cluster.restart(0);
        let client = Client::connect(client_config(&cluster, 0)).await.expect("it listens");
        let clients = vec![client];
        let bank = Bank::open(&clients, Durability::Majority).await;
        let (lists, holders) = (Lists::new(Durability::Majority), Holders::new());
        let mut run =
            Run { cluster, dice: Dice::new(dice.roll(usize::MAX) as u64), clients, bank, lists, holders };
        run.staff(0);
        run.works_in(&[0]).await;
        run
    }

    fn staff(&mut self, dc: u8) {
        let client = &self.clients[usize::from(dc)];
        self.bank.staff(dc, CREW, client, &mut self.dice);
        self.lists.staff(dc, CREW, client, &mut self.dice);
        self.holders.staff(dc, CREW, client, &mut self.dice);
    }

    /// Waits until each load works in these datacenters.
    async fn works_in(&self, dcs: &[u8]) {
        let lists = self.lists.load();
        self.bank.load().works_in(dcs, SHARE).await;
        lists.works_in(dcs, SHARE).await;
        self.holders.load().works_in(dcs, SHARE).await;
    }

    /// Waits until these are all members, settled, and the loads work in each of them.
    async fn settled(&self, what: &str, dcs: &[u8]) {
        for dc in dcs {
            listed(&self.cluster, *dc, what, |list| all_settled(list, dcs.len()));
        }
        self.works_in(dcs).await;
        println!("{what}");
    }

    fn member(&self, at: u8, args: &[&str]) {
        let said = run(&mut self.cluster.command(at, [&["member"], args].concat()));
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
    }

    /// Evicts a datacenter that is dead, as an operator does who does not vouch for its clients.
    fn evict(&self, at: u8, lost: &str) {
        until("no member hears it any more, and it is evicted", || {
            let said = run(&mut self.cluster.command(at, ["member", "evict", lost, "--confirm-dead"]));
            (said.code == 0).then_some(())
        });
    }

    /// Kills a datacenter while one of its clients holds a lock, and with commits that only it has.
    async fn kill_holder(&mut self, dc: u8, name: &str) {
        let client = self.clients[usize::from(dc)].clone();
        self.holders.keep(dc, &client, name).await;
        let others = (0..3).filter(|other| *other != dc);
        others.clone().for_each(|other| self.cluster.server(other).stop());
        let is_alone =
            async { while client.status().await.expect("it is up").counts["waiting_for_majority"] == 0 {} };
        within(is_alone).await;
        self.cluster.kill(dc);
        others.for_each(|other| self.cluster.server(other).signal(Signal::CONT));
    }

    /// A client of a datacenter gets the lock that one of a lost datacenter held.
    async fn takes_over(&mut self, dc: u8, name: &str) {
        self.holders.keep(dc, &self.clients[usize::from(dc)], name).await;
    }

    fn lose_data(&self, dc: u8) {
        fs::remove_dir_all(self.cluster.data_dir(dc)).expect("nobody uses it");
    }

    async fn two_join(&mut self) {
        for dc in 1..3 {
            self.cluster.restart(dc);
            let config = client_config(&self.cluster, dc);
            self.clients.push(Client::connect(config).await.expect("it listens"));
            self.staff(dc);
            let members: Vec<u8> = (0..=dc).collect();
            self.settled("it has joined", &members).await;
        }
    }

    async fn one_leaves_and_joins_again(&mut self) {
        self.member(0, &["remove", "2", "--wait"]);
        assert_eq!(self.cluster.server(2).wait(), 0, "it has left");
        self.settled("it has left", &[0, 1]).await;
        self.lose_data(2);
        self.cluster.restart(2);
        self.settled("it has joined again", &[0, 1, 2]).await;
    }

    async fn one_is_evicted_by_an_operator_and_returns(&mut self) {
        self.kill_holder(1, "kept/1").await;
        self.evict(0, "1");
        self.settled("it was evicted by an operator", &[0, 2]).await;
        self.takes_over(2, "kept/1").await;
        fs::rename(self.cluster.data_dir(1), self.cluster.dir().join("evicted")).expect("nobody uses it");
        self.member(2, &["add", "city1"]);
        self.cluster.restart(1);
        self.settled("it has returned with an empty disk", &[0, 1, 2]).await;
    }

    async fn one_is_evicted_by_time_and_returns_by_itself(&mut self) {
        self.member(0, &["policy", "--rejoin", "auto"]);
        self.member(0, &[&["policy", "--evict", "auto"], &TIMES[..]].concat());
        self.settled("the policy is auto", &[0, 1, 2]).await;
        self.kill_holder(2, "kept/2").await;
        self.settled("it was evicted by time", &[0, 1]).await;
        self.takes_over(0, "kept/2").await;
        self.cluster.launch(2);
        self.cluster.server(2).line("this datacenter was evicted: stopping, to join again");
        self.cluster.server(2).line("admitted: this server is a member");
        self.settled("it has returned by itself", &[0, 1, 2]).await;
    }

    /// The founder is lost with its disk; a server on another machine takes its place.
    async fn one_loses_its_disk_and_is_replaced(&mut self) {
        self.member(1, &["policy", "--evict", "operator"]);
        self.settled("the policy is operator", &[0, 1, 2]).await;
        self.kill_holder(0, "kept/0").await;
        self.lose_data(0);
        self.evict(1, "0");
        self.settled("it was evicted without its disk", &[1, 2]).await;
        self.takes_over(1, "kept/0").await;
        self.member(2, &["add", "city0"]);
        self.cluster.write_joiner(0, self.cluster.quic_address(1), "city0", &tables());
        self.cluster.restart(0);
        self.settled("it was replaced", &[0, 1, 2]).await;
    }

    /// Each server is stopped as by its service manager, and started again.
    async fn each_is_restarted(&mut self) {
        for dc in 0..3 {
            self.cluster.server(dc).signal(Signal::TERM);
            assert_eq!(self.cluster.server(dc).wait(), 0, "it stops");
            self.cluster.restart(dc);
            self.settled("it was restarted", &[0, 1, 2]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_changes_in_one_run_lose_nothing_and_nobody_holds_a_lock_twice() {
    let mut run = Run::founded(Dice::from_environment()).await;
    let through = acquire(&run.clients[0], AcquireRequest::exclusive(lock("through"))).await;
    run.two_join().await;
    run.one_leaves_and_joins_again().await;
    run.one_is_evicted_by_an_operator_and_returns().await;
    run.one_is_evicted_by_time_and_returns_by_itself().await;
    assert_eq!(through.is_lost(), None, "nobody lost a lock but clients of lost datacenters");
    through.release().await.expect("it was held");
    run.one_loses_its_disk_and_is_replaced().await;
    run.each_is_restarted().await;

    let Run { cluster: _cluster, clients, bank, lists, holders, dice: _ } = run;
    let holders = holders.end().await;
    let (bank, lists) = tokio::join!(bank.end(&clients), lists.end(&clients));
    println!("{bank:?}\n{lists:?}\n{holders:?}");
    assert!(holders.lost >= 3, "each lost datacenter had a holder: {holders:?}");
    assert!(holders.hand_offs > 20 && bank.hand_offs > 20 && lists.hand_offs > 20);
    assert!(lists.least > 0 && holders.shared > 0);
    assert!(bank.audits.iter().all(|audits| *audits > 10) && lists.reads.iter().all(|reads| *reads > 10));
    // One transaction of each crew may be under way when its server dies.
    assert!(bank.unknown + lists.unknown < 30, "outcomes are known: {bank:?} {lists:?}");
}
