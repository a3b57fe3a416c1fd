//! Downgrades: `docs/algorithm/grants.md#17-downgrades`.

use super::*;
use crate::lock_state::Downgraded;

impl Fixture {
    fn downgrade(&mut self, n: u64, lock: &str) -> (Downgraded, Vec<String>) {
        let request = self.index(n);
        let done = self.locks.local_requests().downgrade(request, &name(lock), self.now);
        (done, self.settle())
    }

    fn lets_in(&mut self, n: u64, lock: &str) -> Vec<String> {
        let (done, told) = self.downgrade(n, lock);
        assert_eq!(done, Downgraded::Done);
        told
    }
}

#[test]
fn readers_up_to_the_first_writer_are_let_in_and_no_writer_is() {
    let mut f = Fixture::new();
    f.gather("a");
    assert_eq!(f.acquire(1, &[("a", EXCLUSIVE)]), ["grant 1"]);
    f.acquire(2, &[("a", SHARED)]);
    f.acquire(3, &[("a", SHARED)]);
    f.acquire(4, &[("a", EXCLUSIVE)]);
    f.acquire(5, &[("a", SHARED)]);
    assert_eq!(f.lets_in(1, "a"), ["grant 2", "grant 3"]);
    assert_eq!(f.locks.requests()[f.index(1)].token(), Some(FencingToken(1)), "it keeps its token");
    assert_eq!(f.release(2), [""; 0]);
    assert_eq!(f.release(3), [""; 0], "the first one holds it still");
    assert_eq!(f.release(1), ["grant 4"]);
    assert_eq!(f.release(4), ["grant 5"]);
}

#[test]
fn a_lock_that_is_shared_already_or_is_none_of_the_request_changes_nothing() {
    let mut f = Fixture::new();
    f.gather("a");
    f.gather("b");
    assert_eq!(f.acquire(1, &[("a", EXCLUSIVE), ("b", SHARED)]), ["grant 1"]);
    f.acquire(2, &[("a", SHARED)]);
    assert_eq!(f.downgrade(1, "b"), (Downgraded::IsShared, vec![]));
    assert_eq!(f.downgrade(1, "c"), (Downgraded::NotWanted, vec![]));
    assert_eq!(f.downgrade(1, "a"), (Downgraded::Done, vec!["grant 2".to_owned()]));
    assert_eq!(f.downgrade(1, "a"), (Downgraded::IsShared, vec![]));
    let request = f.index(1);
    let is_made_for = |wanted: &[(&str, Mode)]| f.locks.inspect().is_made_for(request, &wants(wanted));
    assert!(is_made_for(&[("a", EXCLUSIVE), ("b", SHARED)]), "as it was asked for");
    assert!(is_made_for(&[("a", SHARED), ("b", SHARED)]), "as it is");
    assert!(!is_made_for(&[("a", EXCLUSIVE), ("b", EXCLUSIVE)]) && !is_made_for(&[("a", EXCLUSIVE)]));
}

/// Patience counts from the downgrade as from a release, and the other parts stay for the holder.
#[test]
fn a_reader_elsewhere_gets_its_part_and_a_writer_elsewhere_waits_for_the_release() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    assert_eq!(f.remote(1, 2, &[("a", SHARED)]), [""; 0]);
    assert_eq!(f.remote(2, 3, &[("a", EXCLUSIVE)]), [""; 0]);
    f.pass(ms(2_000));
    assert_eq!(f.lets_in(1, "a"), ["dc1 of a to dc1"]);
    assert_eq!(f.release(1), ["dc0+dc2 of a to dc2"]);
}
