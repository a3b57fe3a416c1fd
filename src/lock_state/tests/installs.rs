//! Installation of another datacenter's view: `docs/algorithm/recovery.md#2-state-transfer`.

use super::super::install_state::ForeignFault;
use super::*;
use crate::crdt::{Ownership, PartMove, VersionVector};
use crate::lock_state::RequestRow;
use crdts::CmRDT;

/// A map in which these parts have moved once, each to another datacenter.
fn map(moves: &[(&str, u8, u8)]) -> Ownership {
    let mut map = Ownership::new(0);
    for (lock, part, owner) in moves {
        map.apply(PartMove { lock: name(lock), part: dc(*part), owner: dc(*owner), version: 1 });
    }
    map
}

fn vector(seqs: [u64; 3]) -> VersionVector {
    (0..3).map(|id| (dc(id), seqs[usize::from(id)])).collect()
}

#[test]
fn a_view_brings_parts_and_the_waiter_is_granted() {
    let mut f = Fixture::new();
    f.acquire(1, &[("a", EXCLUSIVE)]);
    let (ownership, applied) = (map(&[("a", 1, 0), ("a", 2, 0)]), vector([1, 0, 0]));
    let vector = vector([1, 1, 1]);
    let foreign = Foreign::new(vector.clone(), ownership.clone(), std::iter::empty());
    assert_eq!(f.locks.inspect().validate_foreign(&foreign, &applied), Ok(()));
    f.locks.log_operations().install_state(foreign, &applied, Position(8), f.now);
    assert_eq!(f.settle(), ["grant 1", "withdraw 1"]);
    assert_eq!(f.locks.owners().map(), &ownership);
}

/// A row that only one side has stays if the other side's vector does not cover the entry that published it.
#[test]
fn rows_of_the_request_table_stay_unless_the_view_has_seen_their_end() {
    let mut f = Fixture::new();
    f.permit(Permissions { grant: false, append: true });
    f.remote(1, 1, &[("a", SHARED)]);
    f.remote(2, 2, &[("a", SHARED)]);
    let (ownership, applied, vector) = (Ownership::new(0), vector([0, 1, 1]), vector([0, 5, 0]));
    let wants = wants(&[("b", SHARED)]);
    let requests = [(1, 3, 4), (2, 4, 1)].map(|(of, n, seq)| {
        let (id, at) = (RequestId { dc: dc(of), n }, Timestamp::from_millis(n));
        RequestRow { id, at, wants: wants.clone(), seq }
    });
    let foreign =
        Foreign { requests: requests.to_vec(), ..Foreign::new(vector, ownership, std::iter::empty()) };
    f.locks.log_operations().install_state(foreign, &applied, Position(8), f.now);
    assert_eq!(f.settle(), [""; 0]);
    let rows: Vec<(DcId, u64)> =
        f.locks.inspect().request_table().iter().map(|row| (row.id.dc, row.id.n)).collect();
    // 1 is withdrawn, 2 is not known there yet, 3 is new here, and 4 was withdrawn here.
    assert_eq!(rows, [(dc(1), 3), (dc(2), 2)]);
}

#[test]
fn a_view_takes_nothing_that_is_here() {
    let f = Fixture::new();
    let fault = |moves: &[(&str, u8, u8)], theirs, ours| {
        let (vector, ownership) = (vector(theirs), map(moves));
        let foreign = Foreign::new(vector.clone(), ownership.clone(), std::iter::empty());
        f.locks.inspect().validate_foreign(&foreign, &self::vector(ours)).err()
    };
    let lock = name("a");
    assert_eq!(
        fault(&[("a", 0, 1)], [3, 0, 0], [3, 0, 0]),
        Some(ForeignFault::Stolen { lock: lock.clone(), part: dc(0), owner: dc(1) })
    );
    assert_eq!(fault(&[("a", 0, 1)], [4, 0, 0], [3, 0, 0]), None, "our disk lost an entry of ours");
    assert_eq!(
        fault(&[("a", 1, 5)], [3, 0, 0], [3, 0, 0]),
        Some(ForeignFault::Stranger { lock, part: dc(1), owner: dc(5) })
    );
}

#[test]
fn a_lock_that_is_held_by_parts_which_are_elsewhere_is_contested() {
    let mut f = Fixture::new();
    f.acquire(1, &[("a", SHARED)]);
    let (ownership, applied, vector) =
        (map(&[("a", 0, 1), ("b", 0, 1)]), vector([3, 0, 0]), vector([4, 0, 0]));
    let foreign = Foreign::new(vector.clone(), ownership.clone(), std::iter::empty());
    assert_eq!(f.locks.inspect().contested(&foreign, &applied), [name("a")]);
    assert_eq!(f.locks.inspect().contested(&foreign, &vector), Vec::new());
}
