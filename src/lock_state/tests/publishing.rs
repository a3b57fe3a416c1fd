//! Published requests: `docs/algorithm/ownership.md#22-publishing`, and abandoned ones:
//! `docs/algorithm/log.md#11-entries`.

use super::*;

#[test]
fn any_number_of_waiters_costs_one_published_request() {
    let mut f = Fixture::new();
    assert_eq!(f.acquire(1, &[("a", EXCLUSIVE)]), ["publish 1"]);
    for n in 2..10 {
        assert_eq!(f.acquire(n, &[("a", if n % 2 == 0 { SHARED } else { EXCLUSIVE })]), [""; 0]);
    }
    assert_eq!(f.locks.requests().counts().published, 1);
    assert_eq!(
        f.cancel(1),
        ["grant 2", "withdraw 1", "publish 3"],
        "the own part is here for the shared one"
    );
}

#[test]
fn a_first_shared_request_is_published_beside_an_exclusive_one() {
    let mut f = Fixture::new();
    assert_eq!(f.remote(1, 1, &[("a", EXCLUSIVE)]), ["dc0 of a to dc1"]);
    assert_eq!(f.acquire(2, &[("a", SHARED)]), ["publish 2"]);
    assert_eq!(f.acquire(3, &[("a", SHARED)]), [""; 0]);
    assert_eq!(f.acquire(4, &[("a", EXCLUSIVE)]), ["publish 4"]);
    assert_eq!(f.acquire(5, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.cancel(2), ["withdraw 2", "publish 3"]);
}

#[test]
fn a_request_is_published_whole_with_its_time() {
    let mut f = Fixture::new();
    f.gather("a");
    f.try_acquire(5, &[("a", SHARED), ("b", EXCLUSIVE)], IfNotFree::Wait);
    f.locks.schedule(f.now);
    let (id, at) = (Fixture::id(5), Timestamp::from_millis(5));
    let wants = wants(&[("a", SHARED), ("b", EXCLUSIVE)]);
    let ops = f.locks.take_ops();
    assert_eq!(ops, [Op::Request { id, at, wants: wants.clone() }]);
    f.locks.log_operations().note_own_entry(1, &ops, f.now);
    assert_eq!(f.locks.inspect().request_table(), [RequestRow { id, at, wants, seq: 1 }]);
}

#[test]
fn a_request_that_waits_for_a_neighbour_is_not_published() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    assert_eq!(f.acquire(2, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.release(1), ["grant 2"]);
    assert_eq!(f.release(2), [""; 0]);
    assert_eq!(f.locks.inspect().asked(), 0);
}

/// The transfer and the request for what it took away share an entry.
#[test]
fn what_a_transfer_takes_from_a_waiter_is_asked_for_at_once() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", EXCLUSIVE)]);
    f.acquire(3, &[("a", EXCLUSIVE)]);
    assert_eq!(f.pass(ms(1_000)), [""; 0], "it is due, and the lock is held");
    let request = f.index(1);
    f.locks.local_requests().release(request, Position::default(), f.now);
    f.locks.schedule(f.now);
    let ops = f.locks.take_ops();
    let told: Vec<String> = ops.iter().flat_map(lines).collect();
    assert_eq!(told, ["dc0+dc1+dc2 of a to dc1", "publish 3"]);
}

#[test]
fn withdrawals_come_first_in_an_entry_and_transfers_by_receiver() {
    let mut f = Fixture::new();
    f.gather("a");
    f.gather("b");
    f.acquire(1, &[("c", EXCLUSIVE)]);
    let request = f.index(1);
    f.locks.local_requests().cancel(request, f.now);
    let publish = |f: &mut Fixture, from, n, lock| {
        let wants = wants(&[(lock, EXCLUSIVE)]);
        let id = RequestId { dc: dc(from), n };
        f.locks.log_operations().apply_request(&Published {
            id,
            at: Timestamp::from_millis(n),
            wants: &wants,
            seq: n,
        });
    };
    publish(&mut f, 2, 2, "a");
    publish(&mut f, 1, 3, "b");
    f.try_acquire(4, &[("d", EXCLUSIVE)], IfNotFree::Wait);
    assert_eq!(f.settle(), ["withdraw 1", "dc0+dc1+dc2 of b to dc1", "dc0+dc1+dc2 of a to dc2", "publish 4"]);
}

#[test]
fn a_request_that_is_over_before_its_entry_is_made_is_not_published() {
    let mut f = Fixture::new();
    f.try_acquire(1, &[("a", EXCLUSIVE)], IfNotFree::Wait);
    let request = f.index(1);
    f.locks.local_requests().cancel(request, f.now);
    assert_eq!(f.settle(), [""; 0]);
    assert_eq!(f.locks.requests().counts().published, 0);
}

#[test]
fn own_requests_of_before_a_restart_are_abandoned_until_they_are_withdrawn() {
    let mut f = Fixture::new();
    f.permit(Permissions { grant: false, append: false });
    f.gather("a");
    assert_eq!(f.remote(0, 1, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!((f.locks.requests().find(Fixture::id(1)), f.locks.inspect().asked()), (None, 1));
    assert_eq!(f.locks.inspect().waiters(&name("a"), 9).1, 0, "it is in no queue");
    assert_eq!(f.permit(Permissions { grant: false, append: true }), ["withdraw 1"]);
    assert_eq!(f.locks.inspect().asked(), 0);
}
