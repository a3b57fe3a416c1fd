//! Stories about the status of a datacenter and of its peers, for operators.

use std::time::Duration;

use super::cluster::{Cluster, dc};
use super::store_cluster::{add, key, put, step};
use crate::base::capacity::DiskSpace;
use crate::causal_log::{Action, Change};
use crate::replica::Event;
use crate::replica::call::store::Then;
use crate::replica::call::{Counts, PeerStatus};

fn commit(c: &mut Cluster, id: u8, key: u64, change: Change) {
    c.begin(id, key, None, step(vec![change], &[], Then::Commit));
}

fn peer(c: &Cluster, id: u8, other: u8) -> PeerStatus {
    let peers = c.inspect(usize::from(id)).status().peers;
    peers.into_iter().find(|peer| peer.dc == dc(other)).expect("it is a peer")
}

fn lag(c: &Cluster, id: u8, other: u8) -> (u64, u64) {
    let PeerStatus { unacked_entries: lag, lag_ms, .. } = peer(c, id, other);
    (lag, lag_ms)
}

#[test]
fn a_peer_is_behind_since_the_oldest_entry_that_it_did_not_acknowledge() {
    let mut c = Cluster::new(2, 0, 0);
    c.pass(1_000);
    assert_eq!(lag(&c, 0, 1), (0, 0));
    c.cut(0, 1);
    commit(&mut c, 0, 1, add("n", 1));
    assert_eq!(lag(&c, 0, 1), (1, 0), "it is not on disk yet");
    c.pass(700);
    c.run();
    c.pass(2_000);
    commit(&mut c, 0, 2, add("n", 1));
    c.run();
    c.pass(500);
    let (entries, ms) = lag(&c, 0, 1);
    assert_eq!(entries, 2);
    assert!((2_500..=3_200).contains(&ms), "{ms}: since the first of them came to disk");
    c.link(0, 1);
    c.pass(600);
    assert_eq!((lag(&c, 0, 1), lag(&c, 1, 0)), ((0, 0), (0, 0)));
}

#[test]
fn nobody_is_behind_with_what_it_made_itself() {
    let mut c = Cluster::new(3, 0, 0);
    commit(&mut c, 1, 1, add("n", 1));
    c.sync(1);
    while c.deliver(1, 0) {}
    c.sync(0);
    assert_eq!(lag(&c, 0, 1), (0, 0), "it is the one who has it");
    assert_eq!(lag(&c, 0, 2).0, 1, "as far as it said");
}

#[test]
fn a_restart_counts_from_itself() {
    let mut c = Cluster::new(2, 0, 0);
    c.pass(1_000);
    c.cut(0, 1);
    commit(&mut c, 0, 1, add("n", 1));
    c.sync(0);
    c.pass(60_000);
    assert!(lag(&c, 0, 1).1 > 59_000);
    c.restart(0);
    c.pass(700);
    let (entries, ms) = lag(&c, 0, 1);
    assert!(entries > 0 && ms <= 700, "{entries} entries, {ms} ms");
}

#[test]
fn what_a_peer_has_and_we_lack_is_known_from_its_heartbeat() {
    let mut c = Cluster::new(2, 0, 0);
    c.room(0, DiskSpace::Full);
    for n in 1..=5 {
        commit(&mut c, 1, n, add("n", 1));
    }
    c.pass(600);
    assert_eq!((peer(&c, 0, 1).missing_entries, peer(&c, 1, 0).missing_entries), (5, 0));
    let (entries, ms) = lag(&c, 1, 0);
    assert!(entries == 5 && ms > 0, "{entries} entries, {ms} ms");
    c.room(0, DiskSpace::Enough);
    c.run();
    assert_eq!(peer(&c, 0, 1).missing_entries, 0);
}

#[test]
fn what_came_by_a_third_datacenter_is_no_lag() {
    let mut c = Cluster::new(3, 0, 0);
    c.cut(0, 1);
    for key in 1..=5 {
        commit(&mut c, 0, key, add("n", 1));
        c.pass(1_500);
    }
    assert_eq!(lag(&c, 0, 1), (0, 0), "dc2 passed it on and says so");
    assert_eq!(c.inspect(0).counts().log_entries, 0, "all have all");
    c.isolate(1);
    commit(&mut c, 0, 6, add("n", 1));
    c.pass(2_000);
    assert!(lag(&c, 0, 1).0 > 0 && lag(&c, 0, 1).1 >= 1_500);
    c.link_again(1);
    c.pass(1_000);
    assert_eq!(lag(&c, 0, 1), (0, 0));
}

#[test]
fn the_store_is_counted() {
    let mut c = Cluster::new(2, 0, 0);
    let counts = |c: &Cluster| c.inspect(0).counts();
    commit(&mut c, 0, 1, put("r", "hello"));
    commit(&mut c, 0, 2, put("r", "hello, world"));
    c.run();
    c.pass(1);
    let Counts { keys, value_bytes, .. } = counts(&c);
    assert!(keys == 1 && (12..30).contains(&value_bytes), "{value_bytes}");
    c.begin(0, 3, None, step(vec![], &["r"], Then::Continue));
    commit(&mut c, 1, 1, Change { key: key("r"), action: Action::Remove });
    c.run();
    let Counts { snapshots, transactions, uncompacted_changes, removals, .. } = counts(&c);
    assert_eq!((snapshots, transactions, uncompacted_changes, removals), (1, 1, 1, 1));
    c.next_step(0, 3, step(vec![], &[], Then::Abort));
    c.pass(20_000);
    let Counts {
        keys,
        value_bytes,
        snapshots,
        uncompacted_changes,
        tombstones_pending,
        digests_compared,
        ..
    } = counts(&c);
    assert_eq!((keys, value_bytes, snapshots, uncompacted_changes, tombstones_pending), (0, 0, 0, 0, 0));
    assert!(digests_compared > 0);
}

#[test]
fn after_a_start_nobody_is_called_far_behind_before_he_is_heard() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.pass(10_000);
    c.handle(0, Event::Checkpoint);
    let checkpoint = c.nodes[0].checkpoint.take().expect("few keys are one step");
    c.restart_from(0, checkpoint);
    let peers = c.inspect(0).status().peers;
    assert!(!peers.iter().any(|peer| peer.connected || peer.too_far_behind), "{peers:?}");
}

#[test]
fn what_stops_with_a_datacenter_is_known_elsewhere() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(1, "a");
    c.run();
    c.pass(1_000);
    let stakes =
        |c: &Cluster| [peer(c, 0, 1), peer(c, 2, 1), peer(c, 1, 2)].map(|peer| peer.at_stake.away_locks);
    assert_eq!(stakes(&c), [1, 1, 0]);
    let own = |c: &Cluster| c.inspect(1).status().members;
    assert_eq!((own(&c).own.away_locks, own(&c).only_here), (1, Some(0)));
    assert!(peer(&c, 0, 1).at_stake.heard_ms.is_some_and(|ms| ms < 1_000));

    c.isolate(1);
    commit(&mut c, 1, 1, add("n", 1));
    c.pass(10_000);
    assert_eq!(own(&c).only_here, Some(1), "it is lost if dc1 is");
    c.open_lease(0, Duration::from_secs(60));
    let request = c.lock(0, "a");
    c.run();
    let stake = peer(&c, 0, 1).at_stake;
    assert!(stake.heard_ms.is_some_and(|ms| (9_000..12_000).contains(&ms)), "{stake:?}");
    assert_eq!((stake.waiting, peer(&c, 2, 1).at_stake.waiting), (1, 0), "it is parked, and not published");
    c.link_again(1);
    c.pass(2_000);
    assert!(c.is_answered(0, request));
    assert_eq!((peer(&c, 0, 1).at_stake.waiting, own(&c).only_here), (0, Some(0)));
}
