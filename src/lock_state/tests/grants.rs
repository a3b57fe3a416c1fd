//! Grants of local requests: `docs/algorithm/ownership.md#11-parts-and-grants`,
//! `docs/algorithm/ownership.md#24-local-grants`, `docs/algorithm/grants.md#12-when-a-grant-is-answered` and
//! `docs/algorithm/grants.md#15-restart-grace-and-reclaim`.

use super::*;

#[test]
fn a_shared_grant_needs_the_own_part_and_an_exclusive_one_needs_all() {
    let mut f = Fixture::new();
    assert_eq!(f.acquire(1, &[("a", SHARED)]), ["grant 1"]);
    assert_eq!(f.acquire(2, &[("b", EXCLUSIVE)]), ["publish 2"]);
    assert_eq!(f.transfer(1, 0, "b", &[1]), [""; 0]);
    assert_eq!(f.transfer(2, 0, "b", &[2]), ["grant 2", "withdraw 2"]);
}

#[test]
fn foreign_parts_are_of_no_use_for_a_shared_grant() {
    let mut f = Fixture::new();
    f.gather("a");
    assert_eq!(f.remote(2, 2, &[("a", EXCLUSIVE)]), ["dc0+dc1+dc2 of a to dc2"]);
    f.withdraw(2, 2);
    assert_eq!(f.transfer(2, 0, "a", &[1]), [""; 0]);
    assert_eq!(f.acquire(3, &[("a", SHARED)]), ["publish 3"]);
}

#[test]
fn shared_holders_are_together_and_an_exclusive_one_is_alone() {
    let mut f = Fixture::new();
    f.gather("a");
    assert_eq!(f.acquire(1, &[("a", SHARED)]), ["grant 1"]);
    assert_eq!(f.acquire(2, &[("a", SHARED)]), ["grant 2"]);
    assert_eq!(f.acquire(3, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.release(1), [""; 0]);
    assert_eq!(f.release(2), ["grant 3"]);
    assert_eq!(f.acquire(4, &[("a", SHARED)]), [""; 0]);
    assert_eq!(f.release(3), ["grant 4"]);
}

/// Rule 3: a shared request does not pass an earlier exclusive one, although the holder is shared.
#[test]
fn no_request_passes_an_earlier_local_one_that_conflicts() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", SHARED)]);
    assert_eq!(f.acquire(3, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.acquire(4, &[("a", SHARED)]), [""; 0]);
    assert_eq!(f.acquire(2, &[("a", SHARED)]), ["grant 2"], "it is before the exclusive one");
    assert_eq!(f.cancel(3), ["grant 4"]);
}

#[test]
fn waiters_are_granted_in_the_order_of_their_times() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    for n in [7, 3, 5, 4, 6] {
        assert_eq!(f.acquire(n, &[("a", if n == 7 { EXCLUSIVE } else { SHARED })]), [""; 0]);
    }
    assert_eq!(f.release(1), ["grant 3", "grant 4", "grant 5", "grant 6"]);
    for n in [3, 4, 5] {
        assert_eq!(f.release(n), [""; 0]);
    }
    assert_eq!(f.release(6), ["grant 7"]);
}

#[test]
fn a_request_gets_all_its_locks_or_none() {
    let mut f = Fixture::new();
    f.gather("a");
    f.gather("b");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.acquire(2, &[("b", EXCLUSIVE)]);
    assert_eq!(f.acquire(3, &[("a", EXCLUSIVE), ("b", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.release(1), [""; 0]);
    assert_eq!(f.acquire(4, &[("a", EXCLUSIVE)]), [""; 0], "3 is before it, and holds nothing");
    assert_eq!(f.release(2), ["grant 3"]);
    assert_eq!(f.release(3), ["grant 4"]);
}

#[test]
fn a_request_that_does_not_wait_leaves_no_trace() {
    let mut f = Fixture::new();
    assert_eq!(f.try_acquire(1, &[("a", EXCLUSIVE)], IfNotFree::GiveUp), Acquired::NotFree);
    assert_eq!(f.settle(), [""; 0]);
    assert_eq!(f.locks.requests().find(Fixture::id(1)), None);
    assert_eq!(f.locks.requests().counts().waiting, 0);
}

#[test]
fn a_grant_depends_on_what_last_gave_its_locks_their_meaning() {
    let mut f = Fixture::new();
    let ready = |f: &mut Fixture, n, lock| {
        let Acquired::Granted(request) = f.try_acquire(n, &[(lock, SHARED)], IfNotFree::GiveUp) else {
            panic!("the own part is here")
        };
        assert_eq!(f.locks.next_granted(), Some(request));
        assert_eq!(f.locks.requests()[request].token(), None);
        let fresh = f.locks.local_requests().set_token(request, FencingToken(n));
        assert_eq!(f.locks.requests()[request].token(), Some(FencingToken(n)));
        assert!(!fresh.was_published);
        fresh.ready
    };
    assert_eq!(ready(&mut f, 1, "a"), Position::default(), "it was always here");
    let request = f.index(1);
    f.locks.local_requests().release(request, Position(9), f.now);
    assert_eq!(ready(&mut f, 2, "a"), Position(9), "the record of the release");
    f.transfer(1, 0, "b", &[1]);
    assert_eq!(ready(&mut f, 3, "b"), Position(7), "the entry by which a part came");
}

#[test]
fn in_grace_requests_wait_and_no_part_leaves() {
    let mut f = Fixture::new();
    f.gather("a");
    assert_eq!(f.permit(Permissions { grant: false, append: true }), [""; 0]);
    assert_eq!(f.acquire(1, &[("a", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.acquire(2, &[("b", EXCLUSIVE)]), ["publish 2"], "the others may move its parts");
    assert_eq!(f.remote(1, 3, &[("c", SHARED)]), [""; 0]);
    assert_eq!(f.remote(1, 4, &[("c", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.permit(SERVING), ["grant 1", "dc0 of c to dc1"]);
}

#[test]
fn a_reclaimed_request_is_held_with_its_token() {
    let mut f = Fixture::new();
    f.gather("a");
    f.permit(Permissions { grant: false, append: true });
    let conflicts = |f: &mut Fixture, n, lock, token| {
        let wants = wants(&[(lock, EXCLUSIVE)]);
        let token = FencingToken(token);
        Fixture::new_request(n, &wants, |request| {
            let held = HeldRequest { request, token };
            let conflicts = f.locks.local_requests().conflicts_of(&held, f.now);
            if conflicts.as_ref().is_some_and(Vec::is_empty) {
                f.locks.local_requests().reclaim(&held, f.now);
            }
            conflicts
        })
    };
    assert_eq!(conflicts(&mut f, 1, "b", 50), None, "its parts are not here");
    assert_eq!(conflicts(&mut f, 2, "a", 60), Some(Vec::new()));
    assert_eq!(f.settle(), [""; 0], "its client knows already");
    assert_eq!(f.locks.requests()[f.index(2)].token(), Some(FencingToken(60)));
    assert_eq!(conflicts(&mut f, 3, "a", 59), None, "the holder has a higher token");
    assert_eq!(conflicts(&mut f, 4, "a", 61), Some(vec![Fixture::id(2)]));
}
