//! Stories about the memory that the lock names of one client may take, over all its leases.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, SECRET, name};
use super::store_cluster::step;
use crate::base::rng::Rng;
use crate::causal_log::Wants;
use crate::leases::{ClientId, Proof};
use crate::replica::LocalConfig;
use crate::replica::call::store::Then;
use crate::replica::call::{Acquire, Call, Grant, Limit, LockRequest, Reclaim, Refusal, Reply, Wait};
use geolock_api::names::{LeaseId, Mode};

const ONE: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);
/// Room for two names of 100 bytes, and a part of a third one.
const MOST: usize = 400;

fn long(letter: char) -> String {
    letter.to_string().repeat(100)
}

fn cluster() -> Cluster {
    Cluster::with_options(1, LocalConfig { max_names_per_client: MOST, ..LocalConfig::default() })
}

impl Cluster {
    /// Opens a lease of a client, whose calls follow.
    fn lease_of(&mut self, client: ClientId) -> LeaseId {
        self.client = client;
        self.open_lease(0, Duration::from_secs(60));
        self.lease(0)
    }

    /// Acquires a lock under this lease, by its secret as a call without a stream does.
    fn takes(&mut self, lease: LeaseId, lock: &str) -> u64 {
        let wants = Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock");
        let (proof, label) = (Proof::Secret(SECRET), Arc::from("a story"));
        self.call(
            0,
            Call::Acquire(Acquire {
                lease,
                proof,
                key: None,
                request: LockRequest { wants, wait: Wait::Forever, label },
            }),
        )
    }

    fn is_full(&self, tag: u64) -> bool {
        match self.reply(0, tag) {
            Some(Reply::Refused(Refusal::ResourceExhausted { limit: Limit::NamesPerClient, .. })) => true,
            Some(Reply::Granted(_)) | None => false,
            other => panic!("call {tag} is answered with {other:?}"),
        }
    }

    fn takes_back(&mut self, lease: LeaseId, held: &[(&str, Grant)]) -> Reply {
        let reclaim = |(lock, grant): &(&str, Grant)| {
            let wants = Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock");
            let (request, token, label) = (grant.request, grant.token, Arc::from("a story"));
            Reclaim { request, key: None, wants, token, label }
        };
        let held = held.iter().map(reclaim).collect();
        let tag = self.call(0, Call::Reclaim { lease, proof: Proof::Secret(SECRET), held });
        self.reply(0, tag).expect("it is judged at once")
    }
}

/// The attack was: one client opens many leases, each with the most names that a lease may have.
#[test]
fn further_leases_give_a_client_no_further_memory() {
    let mut c = cluster();
    let leases: Vec<LeaseId> = (0..4).map(|_| c.lease_of(ONE)).collect();
    let taken: Vec<u64> =
        leases.iter().zip('a'..).map(|(lease, letter)| c.takes(*lease, &long(letter))).collect();
    assert_eq!(taken.iter().map(|tag| c.is_full(*tag)).collect::<Vec<_>>(), [false, false, false, true]);
    // Those that wait count as well, and so do those of transactions.
    c.open_lease(0, Duration::from_secs(60));
    let begun = c.begin(0, 1, Some("a"), step(vec![], &[], Then::Continue));
    assert!(c.is_full(begun));

    let others = c.lease_of(OTHER);
    let waits = c.takes(others, &long('a'));
    assert!(!c.is_full(waits) && !c.is_answered(0, waits), "another client is not affected");
    let close = c.call(0, Call::CloseLease { lease: leases[0], proof: Proof::Secret(SECRET) });
    c.sync(0);
    assert_eq!(c.reply(0, close), Some(Reply::LeaseClosed));
    c.granted(0, waits);
    let again = c.takes(leases[3], &long('d'));
    assert!(!c.is_full(again), "what has ended gives its memory back");
}

/// Another client that knows the secret may use a lease, but its names stay its first client's: or two
/// clients could open and attach in turn, and have any number of names.
#[test]
fn attaching_a_lease_of_another_client_moves_no_names() {
    let mut c = cluster();
    let lease = c.lease_of(ONE);
    for letter in ['a', 'b', 'c'] {
        let tag = c.takes(lease, &long(letter));
        c.granted(0, tag);
    }
    c.client = OTHER;
    c.call(0, Call::AttachLease { lease, secret: SECRET });
    let (more, own) = (c.takes(lease, "d"), c.lease_of(OTHER));
    assert!(c.is_full(more));
    let tag = c.takes(own, "d");
    c.granted(0, tag);
}

/// A server does not know after a restart whose a lease was. Whatever was held is kept, also beyond a limit
/// that has been lowered meanwhile, and counts.
#[test]
fn what_is_reclaimed_is_kept_and_counts() {
    let mut c = Cluster::with_options(1, LocalConfig::default());
    let leases: Vec<LeaseId> = (0..3).map(|_| c.lease_of(ONE)).collect();
    let names: Vec<String> = ('a'..).take(6).map(long).collect();
    let mut held = [(); 3].map(|()| Vec::new());
    for (n, lock) in names.iter().enumerate() {
        let tag = c.takes(leases[n / 2], lock);
        held[n / 2].push((&**lock, c.granted(0, tag)));
    }
    c.local.max_names_per_client = MOST;
    c.restart(0);
    c.pass(1_000);
    // One of its leases is attached, the others come back without a stream.
    c.call(0, Call::AttachLease { lease: leases[0], secret: SECRET });
    for (lease, held) in leases.iter().zip(&held) {
        let kept = held.iter().map(|(_, grant)| grant.request).collect();
        assert_eq!(c.takes_back(*lease, held), Reply::Reclaimed { kept, lost: vec![] });
    }
    // The lease that nobody came back for is over, and so is the grace period.
    c.pass(12_000);
    let tag = c.takes(leases[1], "x");
    assert!(c.is_full(tag), "six names are more than the limit");
    let other = c.lease_of(OTHER);
    let tag = c.takes(other, "x");
    c.granted(0, tag);
    for (lease, is_full) in [(leases[2], true), (leases[0], false)] {
        c.call(0, Call::CloseLease { lease, proof: Proof::Secret(SECRET) });
        c.sync(0);
        let tag = c.takes(leases[1], "y");
        assert_eq!((c.is_full(tag), c.is_answered(0, tag)), (is_full, true));
    }
}

/// Every step checks that the sums are those of all leases.
#[test]
fn sums_are_right_whatever_happens_and_nothing_is_kept_of_who_has_no_lease() {
    for seed in 0..20 {
        let (mut c, mut rng) = (cluster(), Rng::new(seed, 0));
        let mut leases = vec![c.lease(0)];
        for _ in 0..120 {
            let lease = *rng.pick(&leases);
            c.client = *rng.pick(&[ONE, OTHER]);
            match rng.below(12) {
                0 | 1 => leases.push(c.lease_of(c.client)),
                2 => drop(c.call(0, Call::AttachLease { lease, secret: SECRET })),
                3 => drop(c.call(0, Call::CloseLease { lease, proof: Proof::Secret(SECRET) })),
                4 => drop(c.call(0, Call::Reclaim { lease, proof: Proof::Secret(SECRET), held: vec![] })),
                5 => {
                    c.restart(0);
                    c.pass(rng.below(3_000));
                }
                6 => c.pass(rng.below(20_000)),
                _ => {
                    let letter = *rng.pick(&['a', 'b', 'c', 'd', 'e', 'f']);
                    c.takes(lease, &long(letter));
                }
            }
            c.sync(0);
        }
        c.pass(200_000);
        c.nodes[0].replica.check();
        assert_eq!(c.nodes[0].replica.clients.leases.len(), 0, "seed {seed}");
    }
}
