//! What was committed under locks, and whether that can have happened one after the other.

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

    /// Of two commits under a lock, the one with the higher token has seen the other. Answers how often a lock was used
    /// in another datacenter than before.
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

    /// Everything that was acknowledged.
    pub fn all(&self) -> Snapshot {
        merged(self.by_lock.values().flatten().map(|commit| &commit.commit))
    }
}

fn covers(snapshot: &Snapshot, other: &Snapshot) -> bool {
    let seq = |index| snapshot.seqs.get(index).copied().unwrap_or(0);
    other.seqs.iter().enumerate().all(|(index, other)| seq(index) >= *other)
}

/// What covers them all.
pub fn merged<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Snapshot {
    let mut seqs: Vec<u64> = Vec::new();
    for snapshot in snapshots {
        seqs.resize(seqs.len().max(snapshot.seqs.len()), 0);
        seqs.iter_mut().zip(&snapshot.seqs).for_each(|(seq, other)| *seq = (*seq).max(*other));
    }
    Snapshot { seqs }
}

/// At least that, waited for as long as a test may.
pub fn patient(snapshot: &Snapshot) -> AtLeast {
    AtLeast { snapshot: snapshot.clone(), patience: HANGS }
}

/// A client of a datacenter, which serves: a new one commits nothing before it has heard from every other one.
pub async fn serving_at(cluster: &Cluster, dc: u8) -> Client {
    let client = cluster.client(dc).await;
    let serves = async { while client.status().await.expect("it is up").phase() != Phase::Serving {} };
    within(serves).await;
    client
}

/// A client of each datacenter, and all serve.
pub async fn serving(cluster: &Cluster) -> Vec<Client> {
    let mut clients = Vec::new();
    for dc in 0..cluster.servers.len() as u8 {
        clients.push(serving_at(cluster, dc).await);
    }
    clients
}

/// What all datacenters show of these keys at one and the same snapshot, which has at least that. For when nobody
/// writes any more.
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
