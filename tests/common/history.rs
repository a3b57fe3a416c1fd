//! Commits under locks, and a check that they are serializable.

use std::collections::{BTreeMap, BTreeSet};

use geolock::client::{AtLeast, Client, Key, Snapshot, Value};
use geolock::names::{FencingToken, LockName};
use geolock::proto::Phase;

use super::{Cluster, HANGS, within};

/// An acknowledged commit of a transaction with exclusive locks.
#[derive(Clone, Debug)]
pub struct Commit {
    pub dc: u8,
    pub token: FencingToken,
    /// The snapshot that the transaction read.
    pub saw: Snapshot,
    pub commit: Snapshot,
}

/// Commits by lock.
#[derive(Default)]
pub struct History {
    by_lock: BTreeMap<LockName, Vec<Commit>>,
}

impl History {
    pub fn note(&mut self, locks: impl IntoIterator<Item = LockName>, commit: &Commit) {
        for lock in locks {
            self.by_lock.entry(lock).or_default().push(commit.clone());
        }
    }

    /// Checks that of two commits under a lock, the one with the higher token has seen the other. Returns how
    /// often a lock was used in another datacenter than before.
    pub fn check(&mut self) -> u32 {
        let mut hand_offs = 0;
        for (lock, commits) in &mut self.by_lock {
            commits.sort_by_key(|commit| commit.token);
            for pair in commits.windows(2) {
                let [before, after] = pair else { unreachable!("windows of two") };
                assert!(before.token < after.token, "{lock}: one token twice: {before:?} {after:?}");
                assert!(covers(&after.saw, &before.commit), "{lock}: {after:?} has not seen {before:?}");
                hand_offs += u32::from(before.dc != after.dc);
            }
        }
        hand_offs
    }

    /// Returns a vector of all acknowledged commits.
    pub fn all(&self) -> Snapshot {
        merged(self.by_lock.values().flatten().map(|commit| &commit.commit))
    }
}

fn covers(snapshot: &Snapshot, other: &Snapshot) -> bool {
    let seq = |index| snapshot.seqs.get(index).copied().unwrap_or(0);
    other.seqs.iter().enumerate().all(|(index, other)| seq(index) >= *other)
}

/// Returns a vector that covers all of them.
pub fn merged<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Snapshot {
    let mut seqs: Vec<u64> = Vec::new();
    for snapshot in snapshots {
        seqs.resize(seqs.len().max(snapshot.seqs.len()), 0);
        seqs.iter_mut().zip(&snapshot.seqs).for_each(|(seq, other)| *seq = (*seq).max(*other));
    }
    Snapshot { seqs }
}

/// At least that snapshot, awaited for as long as a test may take.
pub fn patient(snapshot: &Snapshot) -> AtLeast {
    AtLeast { snapshot: snapshot.clone(), patience: HANGS }
}

/// Returns a client of a datacenter that is serving: a new one commits nothing before it has heard from every
/// other one.
pub async fn serving_at(cluster: &Cluster, dc: u8) -> Client {
    let client = cluster.client(dc).await;
    let serves = async { while client.status().await.expect("it is up").phase() != Phase::Serving {} };
    within(serves).await;
    client
}

/// Returns a client of each datacenter when all are serving.
pub async fn serving(cluster: &Cluster) -> Vec<Client> {
    let mut clients = Vec::new();
    for dc in 0..cluster.servers.len() as u8 {
        clients.push(serving_at(cluster, dc).await);
    }
    clients
}

/// Returns the values of these keys in all datacenters at one and the same snapshot, which covers `at_least`.
/// For use when no client writes any more.
pub async fn shown_by_all(clients: &[Client], keys: &[Key], at_least: &Snapshot) -> Vec<Value> {
    const ROUNDS: usize = 100;
    let mut at_least = at_least.clone();
    for _ in 0..ROUNDS {
        let mut views = Vec::new();
        for client in clients {
            views.push(client.read_many(keys, &patient(&at_least)).await.expect("it comes"));
        }
        let snapshots: BTreeSet<&[u64]> = views.iter().map(|view| &view.snapshot.seqs[..]).collect();
        if snapshots.len() == 1 {
            let first = views.pop().expect("there is a datacenter").values;
            assert!(views.iter().all(|view| view.values == first), "all show the same at {at_least:?}");
            return first;
        }
        at_least = merged(views.iter().map(|view| &view.snapshot));
    }
    panic!("somebody still writes after {ROUNDS} rounds");
}
