//! Requests of other datacenters, and when they are due: `docs/algorithm/ownership.md#25-remote-requests` and
//! `docs/algorithm/ownership.md#26-hold-policies`.

use super::*;

#[test]
fn an_unused_lock_leaves_at_once() {
    let mut f = Fixture::new();
    f.gather("a");
    assert_eq!(f.remote(1, 1, &[("a", EXCLUSIVE)]), ["dc0+dc1+dc2 of a to dc1"]);
    assert_eq!(f.remote(2, 2, &[("b", EXCLUSIVE)]), ["dc0 of b to dc2"]);
    assert_eq!(f.remote(2, 3, &[("c", SHARED)]), [""; 0], "the part of dc2 is not here");
}

#[test]
fn a_lock_that_was_used_stays_for_its_patience() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.pass(ms(10));
    f.release(1);
    assert_eq!(f.remote(1, 2, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.next_timer(), Some(ms(250)));
    assert_eq!(f.acquire(3, &[("a", EXCLUSIVE)]), ["grant 3"], "the remote request is not due");
    assert_eq!(f.pass(ms(100)), [""; 0]);
    assert_eq!(f.release(3), [""; 0]);
    assert_eq!(f.pass(ms(249)), [""; 0]);
    assert_eq!(f.pass(ms(1)), ["dc0+dc1+dc2 of a to dc1"], "250 ms after the last use");
}

#[test]
fn a_lock_in_constant_use_stays_for_its_turn() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", SHARED)]);
    f.remote(1, 2, &[("a", EXCLUSIVE)]);
    assert_eq!(f.next_timer(), Some(ms(1_000)));
    assert_eq!(f.acquire(3, &[("a", SHARED)]), ["grant 3"], "the remote request is not due");
    assert_eq!(f.pass(ms(1_000)), [""; 0]);
    assert_eq!(f.acquire(4, &[("a", SHARED)]), [""; 0], "it is due: no later request passes it");
    assert_eq!(f.release(1), [""; 0]);
    assert_eq!(f.release(3), ["dc0+dc1+dc2 of a to dc1", "publish 4"]);
}

#[test]
fn a_turn_depends_on_the_distance_of_the_datacenter_that_asks() {
    let mut f = Fixture::with(HoldRule { policy: HoldPolicy::LATENCY, ..HoldRule::default() });
    f.gather("a");
    f.locks.set_distance(dc(1), ms(39));
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", EXCLUSIVE)]);
    assert_eq!(f.next_timer(), Some(ms(3 * 40)), "three times the distance and two syncs");
    f.remote(2, 3, &[("a", EXCLUSIVE)]);
    assert_eq!(f.next_timer(), Some(ms(3 * 40)), "the first one counts");
    f.withdraw(1, 2);
    assert_eq!(f.next_timer(), Some(ms(3 * 26)), "an unknown distance counts as 25 ms");
}

/// The part of a datacenter goes to its shared request. The own part stays.
#[test]
fn shared_requests_are_served_together_up_to_the_first_exclusive_one() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", SHARED)]);
    f.remote(2, 3, &[("a", SHARED)]);
    assert_eq!(f.pass(ms(1_000)), [""; 0], "both are due, and the lock is held");
    assert_eq!(f.release(1), ["dc1 of a to dc1", "dc2 of a to dc2"]);

    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", SHARED)]);
    f.remote(1, 3, &[("a", EXCLUSIVE)]);
    f.remote(2, 4, &[("a", SHARED)]);
    f.pass(ms(1_000));
    assert_eq!(f.release(1), ["dc1 of a to dc1", "dc0+dc2 of a to dc1"], "4 comes after the exclusive one");
}

#[test]
fn a_shared_holder_stops_no_shared_request_and_an_exclusive_request_waits_for_all() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", SHARED)]);
    assert_eq!(f.remote(1, 2, &[("a", SHARED)]), ["dc1 of a to dc1", "dc2 of a to dc2"]);
    assert_eq!(f.remote(2, 3, &[("a", EXCLUSIVE)]), [""; 0]);
    f.pass(ms(1_000));
    assert_eq!(f.release(1), ["dc0 of a to dc2"]);
}

#[test]
fn an_exclusive_request_waits_for_earlier_requests_that_conflict() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.acquire(2, &[("a", EXCLUSIVE)]);
    f.remote(1, 3, &[("a", EXCLUSIVE)]);
    f.pass(ms(1_000));
    assert_eq!(f.release(1), ["grant 2"]);
    assert_eq!(f.release(2), ["dc0+dc1+dc2 of a to dc1"]);
}

/// Without this, a contended lock leaves after every single grant.
#[test]
fn a_waiter_that_is_there_when_parts_come_uses_the_lock_first() {
    let mut f = Fixture::new();
    assert_eq!(f.acquire(1, &[("a", EXCLUSIVE)]), ["publish 1"]);
    assert_eq!(f.remote(2, 2, &[("a", EXCLUSIVE)]), [""; 0], "1 is before it");
    f.transfer(1, 0, "a", &[1]);
    assert_eq!(f.transfer(2, 0, "a", &[2]), ["grant 1", "withdraw 1"]);
    assert_eq!(f.next_timer(), Some(ms(1_000)), "now a turn begins");
    assert_eq!(f.release(1), [""; 0]);
    assert_eq!(f.pass(ms(250)), ["dc0+dc1+dc2 of a to dc2"]);
}

#[test]
fn a_withdrawn_request_gets_nothing() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", EXCLUSIVE)]);
    f.pass(ms(1_000));
    assert_eq!(f.acquire(3, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.withdraw(1, 2), [""; 0]);
    assert_eq!(f.release(1), ["grant 3"]);
    assert_eq!(f.withdraw(1, 99), [""; 0], "an unknown id is no error");
}

#[test]
fn a_request_delay_lets_earlier_requests_of_others_go_first() {
    let mut f = Fixture::with(HoldRule { request_delay: ms(10), ..HoldRule::default() });
    f.try_acquire(5, &[("a", EXCLUSIVE)], IfNotFree::Wait);
    f.locks.schedule(f.now);
    assert_eq!(f.locks.requests()[f.index(5)].at, Timestamp::from_millis(15));
    f.settle();
    assert_eq!(f.remote(1, 9, &[("a", EXCLUSIVE)]), ["dc0 of a to dc1"]);
    assert_eq!(f.acquire(6, &[("b", SHARED)]), ["grant 6"]);
    assert_eq!(f.locks.requests()[f.index(6)].at, Timestamp::from_millis(6), "its part is here");
}

/// The turn of a reader that is far away lasts longer than that of a writer that is near.
#[test]
fn an_exclusive_request_waits_for_an_earlier_reader_that_is_not_due() {
    let mut f = Fixture::with(HoldRule { policy: HoldPolicy::LATENCY, ..HoldRule::default() });
    f.gather("a");
    f.locks.set_distance(dc(1), ms(139));
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", SHARED)]);
    f.remote(2, 3, &[("a", EXCLUSIVE)]);
    f.release(1);
    assert_eq!(f.next_timer(), Some(Duration::from_micros(3_250)), "then the writer is due");
    assert_eq!(f.pass(ms(5)), [""; 0], "the reader is before it");
    assert_eq!(f.pass(ms(20)), ["dc1 of a to dc1", "dc0+dc2 of a to dc2"]);
}
