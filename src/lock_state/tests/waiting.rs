//! Numbers of what stops if a datacenter dies: locks of which it has parts of others, and requests that wait
//! for it.

use super::*;
use crate::lock_state::waiting::LOOKS;

fn away(f: &Fixture) -> [u64; 3] {
    [0, 1, 2].map(|id| f.locks.owners().away_in(dc(id)))
}

fn waiting(f: &Fixture) -> [u64; 3] {
    let waiting = f.locks.inspect().waiting_for();
    assert!(waiting.is_complete);
    [0, 1, 2].map(|id| waiting.of(dc(id)))
}

#[test]
fn a_lock_counts_for_each_owner_of_parts_of_others() {
    let mut f = Fixture::new();
    assert_eq!(away(&f), [0, 0, 0]);
    f.gather("a");
    assert_eq!(away(&f), [1, 0, 0], "a lock with two parts of others is one lock");
    f.transfer(1, 2, "b", &[1]);
    f.transfer(2, 1, "b", &[2]);
    assert_eq!(away(&f), [1, 1, 1], "they have a part of each other");
    f.remote(1, 1, &[("a", EXCLUSIVE)]);
    assert_eq!(away(&f), [0, 2, 1], "it went on");
    f.transfer(2, 1, "b", &[1]);
    assert_eq!(away(&f), [0, 2, 0], "dc1 still has the part of dc2");
    f.transfer(1, 2, "b", &[2]);
    assert_eq!(away(&f), [0, 1, 0], "all of it is at home");
}

#[test]
fn a_request_counts_for_each_owner_that_it_needs() {
    let mut f = Fixture::new();
    assert_eq!(waiting(&f), [0, 0, 0]);
    f.acquire(1, &[("x", EXCLUSIVE), ("y", EXCLUSIVE)]);
    assert_eq!(waiting(&f), [0, 1, 1], "one request for two locks");
    f.remote(2, 2, &[("z", EXCLUSIVE)]);
    assert_eq!(waiting(&f), [0, 2, 1], "our part of it has left, and it does not wait for its own");
    f.remote(1, 3, &[("s", SHARED)]);
    assert_eq!(waiting(&f), [0, 2, 1], "it needs its own part only");
    f.gather("h");
    assert_eq!(f.acquire(4, &[("h", EXCLUSIVE)]), ["grant 4"]);
    f.remote(1, 5, &[("h", SHARED)]);
    assert_eq!(waiting(&f), [1, 2, 1], "the holder is here");
    f.cancel(1);
    assert_eq!(waiting(&f), [1, 1, 0]);
}

#[test]
fn of_very_many_requests_the_first_are_counted() {
    let mut f = Fixture::new();
    for n in 1..=LOOKS as u64 {
        f.acquire(n, &[("x", EXCLUSIVE)]);
    }
    let waiting = f.locks.inspect().waiting_for();
    // Each request and each lock is a look.
    assert_eq!((waiting.is_complete, waiting.of(dc(1))), (false, LOOKS as u64 / 2));
}
