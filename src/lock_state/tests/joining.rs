//! A member that joins (`docs/algorithm/membership.md#2-members-that-join`): dc3, whose sponsor is dc0.

use super::*;
use crate::base::bugs::{Bug, Bugs};
use crate::crdt::Sponsored;

/// dc0 names the part of dc3 as its own, or gives it to dc3. Returns the operations.
fn named(f: &mut Fixture) -> Vec<String> {
    let row = Sponsored { part: dc(3), sponsor: dc(0), split: false };
    let mut naming = f.locks.member_changes().begin_naming(row);
    while !f.locks.member_changes().name_some(&mut naming) {}
    f.settle()
}

/// A lock is used while dc3 joins, and a second later it is idle.
fn used_while_one_joins(bugs: Bugs) -> (Fixture, Vec<String>) {
    let f = Fixture::new();
    let mut f = Fixture { locks: f.locks.with_bugs(bugs), ..f };
    f.gather("a");
    f.gather("b");
    f.forget();
    f.locks.member_changes().admit(dc(3), dc(0), 1);
    assert_eq!(f.acquire(1, &[("a", EXCLUSIVE)]), ["grant 1"]);
    f.release(1);
    f.pass(ms(1_000));
    f.locks.forget_idle(f.now, Position(7), 64);
    let named = named(&mut f);
    (f, named)
}

#[test]
fn a_lock_that_was_used_since_a_member_joins_keeps_its_part_here() {
    let (mut f, named) = used_while_one_joins(Bugs::default());
    assert_eq!(named, ["dc3 of a to dc0"], "and that of b is nowhere else");
    f.locks.member_changes().split(dc(3));
    assert_eq!(f.acquire(2, &[("a", EXCLUSIVE)]), ["grant 2"], "dc3 is not asked");
    assert_eq!(f.acquire(3, &[("b", EXCLUSIVE)]), ["publish 3"]);
    f.release(2);
    f.cancel(3);
    f.locks.member_changes().settle(dc(3));
    f.pass(ms(1_000));
    f.forget();

    let (_, named) = used_while_one_joins(Bugs::one(Bug::UseForgotten));
    assert_eq!(named, [""; 0]);
}
