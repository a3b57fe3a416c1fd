//! Parked requests: `docs/algorithm/ownership.md#23-parking`.

use super::*;

#[test]
fn a_request_that_needs_a_datacenter_which_is_away_stops_nobody_and_keeps_its_place() {
    let mut f = Fixture::new();
    f.acquire(1, &[("a", SHARED)]);
    assert_eq!(f.acquire(2, &[("a", EXCLUSIVE)]), ["publish 2"]);
    assert_eq!(f.acquire(3, &[("a", SHARED)]), [""; 0]);
    assert_eq!(f.set_away(&[1]), ["grant 3"]);
    assert_eq!(f.locks.requests().counts().parked, 1);
    assert_eq!(f.acquire(4, &[("a", SHARED)]), ["grant 4"]);
    assert_eq!(f.set_away(&[]), [""; 0]);
    assert_eq!(f.acquire(5, &[("a", SHARED)]), [""; 0], "2 is before it again");
}

#[test]
fn a_due_request_of_a_datacenter_that_goes_away_stops_no_local_grants() {
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", SHARED)]);
    f.remote(1, 2, &[("a", EXCLUSIVE)]);
    f.pass(ms(1_000));
    assert_eq!(f.acquire(3, &[("a", SHARED)]), [""; 0]);
    assert_eq!(f.set_away(&[1]), ["grant 3"]);
    for n in [1, 3] {
        assert_eq!(f.release(n), [""; 0]);
    }
    assert_eq!(f.set_away(&[]), ["dc0+dc1+dc2 of a to dc1"], "the turn is over");
}

#[test]
fn a_request_is_unparked_when_the_parts_that_were_away_come() {
    let mut f = Fixture::new();
    f.transfer(2, 0, "a", &[2]);
    f.transfer(1, 2, "a", &[1]);
    f.set_away(&[2]);
    assert_eq!(f.acquire(1, &[("a", EXCLUSIVE)]), [""; 0], "it is parked, so it is not published");
    assert_eq!(f.acquire(2, &[("a", SHARED)]), ["grant 2"]);
    assert_eq!(f.transfer(2, 1, "a", &[1]), ["publish 1"]);
    assert_eq!(f.locks.requests().counts().parked, 0);
}

#[test]
fn a_server_that_cannot_make_entries_parks_what_needs_one() {
    let mut f = Fixture::new();
    f.acquire(1, &[("a", SHARED)]);
    assert_eq!(f.acquire(2, &[("a", EXCLUSIVE)]), ["publish 2"]);
    assert_eq!(f.permit(Permissions { grant: true, append: false }), [""; 0]);
    assert!(f.locks.view().permissions.is_alone());
    assert_eq!(f.settle(), [""; 0]);
    assert_eq!(f.locks.requests().counts().parked, 1);
    assert_eq!(f.acquire(3, &[("a", SHARED)]), ["grant 3"]);
    assert_eq!(f.acquire(4, &[("b", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.permit(SERVING), ["publish 4"]);
    assert_eq!(f.settle(), [""; 0]);
    assert_eq!(f.locks.requests().counts().parked, 0);
}

/// The sweep of all requests takes several steps; each is bounded.
#[test]
fn many_requests_are_parked_in_several_steps() {
    let mut f = Fixture::new();
    f.acquire(1, &[("a", SHARED)]);
    for n in 2..3_000 {
        f.try_acquire(n, &[("a", EXCLUSIVE)], IfNotFree::Wait);
    }
    f.settle();
    f.set_away(&[1]);
    let parked = f.locks.requests().counts().parked;
    assert!(parked > 0 && parked < 2_998 && f.locks.has_work(f.now), "{parked} are parked");
    f.settle();
    assert_eq!((f.settle(), f.locks.requests().counts().parked), (Vec::new(), 2_998));
    assert!(!f.locks.has_work(f.now));
}

/// The sweep has not reached the request of a datacenter that went away: it is given nothing all the same.
#[test]
fn a_request_that_is_to_be_parked_is_given_nothing() {
    let mut f = Fixture::new();
    f.acquire(1, &[("a", SHARED)]);
    for n in 2..6_000 {
        f.try_acquire(n, &[("a", EXCLUSIVE)], IfNotFree::Wait);
    }
    f.settle();
    f.gather("z");
    f.acquire(6_000, &[("z", EXCLUSIVE)]);
    f.remote(1, 6_001, &[("z", EXCLUSIVE)]);
    assert_eq!(f.pass(ms(1_000)), [""; 0], "it is due, and the lock is held");
    let given = |mut told: Vec<String>, f: &mut Fixture| {
        while f.locks.has_work(f.now) {
            told.extend(f.settle());
        }
        told.retain(|line| !line.starts_with("publish"));
        told
    };
    f.set_away(&[1]);
    assert!(f.locks.has_work(f.now), "the sweep goes on");
    let told = f.release(6_000);
    assert_eq!(given(told, &mut f), [""; 0]);
    let told = f.set_away(&[]);
    assert_eq!(given(told, &mut f), ["dc0+dc1+dc2 of z to dc1"]);
}
