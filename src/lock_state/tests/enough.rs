//! Enough of many locks: `docs/algorithm/ownership.md#29-enough-of-many-locks`.

use std::sync::Arc;

use super::*;
use crate::base::bugs::{Bug, Bugs};
use crate::lock_state::{AnyOf, NewEnough};

impl Fixture {
    /// A client acquires enough of these locks; each weighs 1 unless its name says otherwise, such as `a*3`.
    fn enough(&mut self, n: u64, amount: u64, most: u32, names: &str) -> Vec<String> {
        self.ask_enough(n, amount, most, names, IfNotFree::Wait);
        self.settle()
    }

    fn ask_enough(&mut self, n: u64, amount: u64, most: u32, names: &str, or: IfNotFree) -> Acquired {
        let one = |text: &str| match text.split_once('*') {
            Some((lock, weight)) => (name(lock), weight.parse().expect("a number")),
            None => (name(text), 1),
        };
        let of = AnyOf::new(amount, most, names.split(' ').map(one).collect()).expect("it can be reached");
        let (of, label) = (Arc::new(of), "test".into());
        let (id, at) = (Fixture::id(n), Timestamp::from_millis(n));
        let new = NewEnough { id, at, of: &of, revision: 0, lease: LeaseId::new(dc(0), 1), label: &label };
        self.locks.local_requests().acquire_enough(&new, or, self.now)
    }

    /// Replaces the candidates of a waiting request; each weighs 1.
    fn amend(&mut self, n: u64, revision: u64, amount: u64, names: &str) -> Vec<String> {
        let all = names.split(' ').map(|text| (name(text), 1)).collect();
        let of = Arc::new(AnyOf::new(amount, 0, all).expect("it can be reached"));
        let request = self.index(n);
        self.locks.local_requests().amend(request, &of, revision, self.now);
        self.settle()
    }

    fn target(&self, n: u64) -> String {
        let wants = self.locks.inspect().wants(self.index(n));
        let mut names: Vec<String> = wants.map(|(name, _)| name.to_string()).collect();
        names.sort_unstable();
        names.join(" ")
    }

    fn asked(&self, n: u64) -> String {
        let rows = self.locks.inspect().request_table();
        let row = rows.iter().find(|row| row.id == Fixture::id(n)).expect("it is published");
        row.wants.locks().iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
    }

    fn chosen(&self, n: u64) -> Vec<u32> {
        self.locks.inspect().chosen(self.index(n)).expect("it is held").0
    }

    fn here(locks: &str) -> Fixture {
        let mut f = Fixture::new();
        locks.split(' ').for_each(|lock| f.gather(lock));
        f
    }
}

#[test]
fn free_ones_are_granted_at_once_in_the_order_of_the_client() {
    let mut f = Fixture::here("a b c");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    assert_eq!(f.enough(2, 2, 0, "a c b"), ["grant 2"]);
    assert_eq!((f.target(2), f.chosen(2)), ("b c".to_owned(), vec![1, 2]));
    assert_eq!(f.ask_enough(3, 1, 0, "a b c", IfNotFree::GiveUp), Acquired::NotEnough(0));
    assert_eq!(f.release(2), [""; 0]);
    assert_eq!(f.ask_enough(3, 3, 0, "a b c", IfNotFree::GiveUp), Acquired::NotEnough(2));
    assert_eq!(f.enough(2, 2, 0, "a c b"), ["grant 2"]);
    assert_eq!(f.settle(), [""; 0]);
    assert_eq!(f.release(2), [""; 0]);
    assert_eq!(f.enough(4, 3, 1, "a b c*3"), ["grant 4"], "the heaviest, if there may not be more");
    assert_eq!(f.chosen(4), [2]);
}

#[test]
fn what_becomes_free_takes_the_place_of_what_is_not() {
    let mut f = Fixture::here("a b c");
    for (n, lock) in [(1, "a"), (2, "b"), (3, "c")] {
        f.acquire(n, &[(lock, EXCLUSIVE)]);
    }
    assert_eq!(f.enough(4, 2, 0, "a b c"), [""; 0]);
    assert_eq!(f.target(4), "a b");
    assert_eq!(f.acquire(5, &[("c", EXCLUSIVE)]), [""; 0], "it is held");
    assert_eq!(f.cancel(5), [""; 0]);
    assert_eq!(f.release(3), [""; 0]);
    assert!(f.target(4) == "b c" || f.target(4) == "a c", "{}", f.target(4));
    assert_eq!(f.acquire(6, &[("c", EXCLUSIVE)]), [""; 0], "the earlier one waits for it");
    let (left, other) = if f.target(4) == "b c" { (2, 1) } else { (1, 2) };
    assert_eq!(f.release(left), ["grant 4"]);
    assert_eq!(f.release(4), ["grant 6"]);
    assert_eq!(f.release(other), [""; 0]);
    assert_eq!(f.locks.requests().counts().waiting, 0);
}

/// Offers in the order of requests, and only of what no earlier one waits for.
#[test]
fn of_two_the_earlier_one_gets_it() {
    let mut f = Fixture::here("a b");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.acquire(2, &[("b", EXCLUSIVE)]);
    f.enough(3, 2, 0, "a b");
    f.enough(4, 1, 0, "b a");
    assert_eq!(f.release(1), [""; 0], "the first one waits for it as for a request for both");
    assert_eq!(f.release(2), ["grant 3"]);
    assert_eq!(f.release(3), ["grant 4"]);
}

/// With the deliberate bug: the test above needs the order.
#[test]
fn a_later_one_that_takes_from_an_earlier_target_is_granted_first() {
    let mut f = Fixture::here("a b");
    f.locks = f.locks.with_bugs(Bugs::one(Bug::EnoughFromTargets));
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.acquire(2, &[("b", EXCLUSIVE)]);
    f.enough(3, 2, 0, "a b");
    f.enough(4, 1, 0, "b a");
    assert_eq!(f.release(1), ["grant 4"]);
}

/// A later one that gathers a lock does not keep it from an earlier one that has enough with it.
#[test]
fn an_earlier_one_takes_from_a_later_target() {
    let mut f = Fixture::here("a b c");
    for (n, lock) in [(1, "a"), (2, "b"), (3, "c")] {
        f.acquire(n, &[(lock, EXCLUSIVE)]);
    }
    f.enough(4, 1, 0, "a b c");
    f.enough(5, 2, 0, "b c");
    assert_eq!(f.acquire(6, &[("b", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.release(2), ["grant 4"]);
    assert_eq!(f.release(4), [""; 0], "the second one gathers it");
    assert_eq!(f.release(3), ["grant 5"]);
    assert_eq!(f.release(5), ["grant 6"]);
}

#[test]
fn others_are_asked_for_the_whole_target_and_some_more() {
    let mut f = Fixture::here("a");
    assert_eq!(f.enough(1, 2, 0, "x a y z w"), ["publish 1"]);
    assert_eq!((f.target(1), f.asked(1)), ("a x".to_owned(), "a x y z".to_owned()));
    f.transfer(1, 0, "y", &[1]);
    assert_eq!(f.transfer(2, 0, "y", &[2]), ["grant 1", "withdraw 1"], "what came is enough");
    assert_eq!(f.chosen(1), [1, 2]);
}

/// With the deliberate bug: what is here is not asked for, and leaves for an earlier request of others.
#[test]
fn a_target_that_is_asked_for_in_part_has_to_be_asked_for_again() {
    for (bugs, asked, again) in [
        (Bugs::default(), "a x", &[][..]),
        (Bugs::one(Bug::EnoughMissingOnly), "x", &["withdraw 5", "publish 1005"][..]),
    ] {
        let mut f = Fixture::here("a");
        f.locks = f.locks.with_bugs(bugs);
        f.enough(5, 2, 0, "a x");
        assert_eq!(f.asked(5), asked);
        let told = f.remote(1, 2, &[("a", EXCLUSIVE)]);
        assert_eq!(told[0], "dc0+dc1+dc2 of a to dc1");
        assert!(told[1..].iter().eq(again), "{told:?}");
    }
}

/// A request that asks again is still before those that came after it; with the deliberate bug it is not.
#[test]
fn a_request_that_asks_again_keeps_its_place() {
    for (bugs, first) in [(Bugs::default(), 1_005), (Bugs::one(Bug::EnoughAsksLater), 60)] {
        let mut f = Fixture::new();
        f.locks = f.locks.with_bugs(bugs);
        [1, 2].into_iter().for_each(|id| f.locks.set_distance(dc(id), ms(20)));
        f.enough(5, 1, 0, "a b c d");
        assert_eq!(f.acquire(60, &[("c", EXCLUSIVE)]), ["publish 60"]);
        f.now += ms(130);
        f.locks.expire(f.now);
        f.settle();
        assert_eq!(f.target(1_005), "c");
        f.transfer(1, 0, "c", &[1]);
        let told = f.transfer(2, 0, "c", &[2]);
        assert_eq!(told[0], format!("grant {first}"));
    }
}

#[test]
fn after_two_round_trips_it_asks_for_others_with_its_old_time() {
    let mut f = Fixture::new();
    [1, 2].into_iter().for_each(|id| f.locks.set_distance(dc(id), ms(20)));
    assert_eq!(f.enough(5, 1, 0, "a b c d"), ["publish 5"]);
    assert_eq!(f.asked(5), "a b");
    assert_eq!(f.next_timer(), Some(ms(130)), "two round trips and 50 ms");
    f.now += ms(130);
    f.locks.expire(f.now);
    assert_eq!(f.settle(), ["withdraw 5", "publish 1005"]);
    assert_eq!(f.asked(1_005), "c d");
    assert_eq!(f.locks.requests()[f.index(1_005)].at, Timestamp::from_millis(5));
    assert_eq!(f.cancel(1_005), ["withdraw 1005"]);
    assert_eq!(f.next_timer(), None);
}

#[test]
fn a_member_that_an_earlier_request_takes_away_is_asked_for() {
    let mut f = Fixture::here("a");
    f.enough(5, 2, 0, "a x");
    assert_eq!(f.asked(5), "a x", "also what is here");
    assert_eq!(f.remote(1, 2, &[("a", EXCLUSIVE)]), ["dc0+dc1+dc2 of a to dc1"]);
    assert_eq!(f.settle(), [""; 0], "it has asked for it already");
}

/// It waits for what is here, so nobody tells it that another candidate can be had again.
#[test]
fn one_that_waits_here_looks_elsewhere_again() {
    let mut f = Fixture::here("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.set_away(&[2]);
    assert_eq!(f.enough(50, 1, 0, "a x"), [""; 0]);
    assert_eq!(f.set_away(&[]), [""; 0]);
    for wait in [1_000, 2_000] {
        assert_eq!((f.target(50), f.next_timer()), ("a".to_owned(), Some(ms(wait))));
        f.set_away(if wait == 1_000 { &[2] } else { &[] });
        f.now += ms(wait);
        f.locks.expire(f.now);
        f.settle();
    }
    assert_eq!((f.target(50), f.asked(50)), ("x".to_owned(), "x".to_owned()));
    assert_eq!(f.release(1), ["grant 50", "withdraw 50"], "it is offered what it does not wait for now");
}

#[test]
fn what_cannot_be_reached_is_the_last_choice() {
    let mut f = Fixture::new();
    f.transfer(1, 0, "a", &[1]);
    f.transfer(1, 0, "b", &[1]);
    f.transfer(2, 0, "b", &[2]);
    f.acquire(1, &[("b", EXCLUSIVE)]);
    assert_eq!(f.enough(2, 1, 0, "a b"), ["publish 2"]);
    assert_eq!(f.target(2), "a");
    f.set_away(&[2]);
    assert_eq!(f.target(2), "b", "a part of the other one is in the datacenter that is away");
    assert_eq!(f.locks.requests().counts().parked, 0);
    f.enough(3, 2, 0, "a b");
    assert_eq!(f.locks.requests().counts().parked, 1, "one of them is not enough");
    assert_eq!(f.release(1), ["grant 2", "withdraw 2"]);
    assert_eq!(f.set_away(&[]), ["publish 3"]);
}

#[test]
fn an_amended_request_is_granted_what_is_free_now_in_its_place() {
    let mut f = Fixture::here("a b c");
    for (n, lock) in [(1, "a"), (2, "b"), (3, "c")] {
        f.acquire(n, &[(lock, EXCLUSIVE)]);
    }
    f.enough(4, 2, 0, "a b");
    assert_eq!(f.acquire(5, &[("a", EXCLUSIVE)]), [""; 0], "it is held, and an earlier one waits for it");
    assert_eq!(f.amend(4, 1, 2, "b c"), [""; 0]);
    assert_eq!(f.target(4), "b c");
    assert_eq!(f.acquire(6, &[("c", EXCLUSIVE)]), [""; 0]);
    assert_eq!(f.release(1), ["grant 5"], "nobody else waits for it any more");
    assert_eq!(f.release(3), [""; 0], "the amended one is the first for it");
    assert_eq!(f.amend(4, 2, 2, "c a x"), ["publish 4"]);
    assert_eq!(f.target(4), "c x");
    assert_eq!(f.release(5), ["grant 4", "withdraw 4"], "it takes what becomes free");
    assert_eq!((f.chosen(4), f.release(4)), (vec![0, 1], vec!["grant 6".to_owned()]));
}

/// With the deliberate bug the test fails: the later one is granted.
#[test]
fn an_amended_request_keeps_its_place() {
    for (bugs, first) in [(Bugs::default(), 50), (Bugs::one(Bug::AmendLosesPlace), 60)] {
        let mut f = Fixture::here("a b");
        f.locks = f.locks.with_bugs(bugs);
        f.acquire(1, &[("a", EXCLUSIVE)]);
        f.acquire(2, &[("b", EXCLUSIVE)]);
        f.enough(50, 1, 0, "a");
        assert_eq!(f.acquire(60, &[("b", EXCLUSIVE)]), [""; 0]);
        f.now += ms(100);
        assert_eq!(f.amend(50, 1, 1, "b"), [""; 0]);
        assert_eq!(f.release(2), [format!("grant {first}")]);
    }
}

#[test]
fn an_amended_request_asks_for_what_it_wants_now_and_for_nothing_else() {
    let mut f = Fixture::here("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    assert_eq!(f.enough(5, 2, 0, "a x y"), ["publish 5"]);
    assert_eq!(f.asked(5), "x y");
    assert_eq!(f.amend(5, 1, 2, "a x y z"), [""; 0], "it goes on with what it has asked for");
    assert_eq!(f.amend(5, 2, 2, "a x z"), ["withdraw 5", "publish 1005"]);
    assert_eq!(f.asked(1_005), "x z");
    assert_eq!(f.locks.requests()[f.index(1_005)].at, Timestamp::from_millis(5), "with its old time");
    assert_eq!(f.amend(1_005, 3, 1, "a"), ["withdraw 1005", "publish 2005"].map(String::from));
    assert_eq!(f.release(1), ["grant 2005", "withdraw 2005"]);
    assert_eq!(f.release(2_005), [""; 0]);
    assert_eq!(f.locks.requests().counts().waiting, 0);
}
