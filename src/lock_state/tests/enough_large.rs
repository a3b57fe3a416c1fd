//! Requests for enough of thousands of locks: what they cost over their life.
//!
//! Counted is what the scheduler examines: checks of a lock for a request, and rows of loops that count
//! themselves ([`work`]). Neither depends on the machine.

use std::sync::Arc;

use super::*;
use crate::base::work;
use crate::lock_state::{AnyOf, NewEnough};

/// Most that may be examined for each candidate from the acquire to the grant.
const PER_CANDIDATE: u64 = 24;
/// Most that one event about one candidate may examine, unless the request begins or is granted by it.
const PER_EVENT: u64 = 100;

/// A fixture that counts what its steps examine.
struct Counted {
    f: Fixture,
    total: u64,
    /// The greatest count of one event.
    longest: u64,
    told: Vec<String>,
}

fn lock_name(n: usize) -> String {
    format!("lock {n:05}")
}

impl Counted {
    fn new() -> Counted {
        let mut f = Fixture::new();
        [1, 2].into_iter().for_each(|id| f.locks.set_distance(dc(id), ms(20)));
        work::take();
        f.locks.tables.locks.looks = 0;
        Counted { f, total: 0, longest: 0, told: Vec::new() }
    }

    /// Ends the event, and counts what it examined.
    fn count(&mut self) -> u64 {
        let told = self.f.finish();
        self.told.extend(told);
        let examined = work::take() + std::mem::take(&mut self.f.locks.tables.locks.looks) as u64;
        self.total += examined;
        self.longest = self.longest.max(examined);
        examined
    }

    fn enough(&mut self, n: u64, amount: u64, most: u32, candidates: Vec<(LockName, u64)>) -> Acquired {
        let of = Arc::new(AnyOf::new(amount, most, candidates).expect("it can be reached"));
        let (id, at, label) = (Fixture::id(n), Timestamp::from_millis(n), "test".into());
        let new = NewEnough { id, at, of: &of, revision: 0, lease: LeaseId::new(dc(0), 1), label: &label };
        let acquired = self.f.locks.local_requests().acquire_enough(&new, IfNotFree::Wait, self.f.now);
        self.count();
        acquired
    }

    /// A part of a lock comes here.
    fn arrive(&mut self, lock: &str, from: u8) -> u64 {
        let moved = self.f.moved(lock, &[from]);
        self.f.locks.log_operations().apply_transfer(
            (dc(from), dc(0)),
            &moved,
            AsOf::here(DcSet::EMPTY),
            Position(7),
        );
        self.count()
    }

    fn is_granted(&self) -> bool {
        self.told.iter().any(|line| line.starts_with("grant"))
    }

    /// Asserts that no event examined more than its share.
    fn check_event(&self, examined: u64) {
        assert!(
            examined <= PER_EVENT || self.is_granted(),
            "one part came, and {examined} things were examined"
        );
    }
}

fn each_weighs_one(many: usize) -> Vec<(LockName, u64)> {
    (0..many).map(|n| (name(&lock_name(n)), 1)).collect()
}

/// The names of the locks that the request asks for.
fn asked(f: &Fixture) -> Vec<String> {
    let rows = f.locks.inspect().request_table();
    rows[0].wants.locks().iter().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn the_parts_of_ten_thousand_candidates_come_one_after_the_other() {
    const MANY: usize = 10_000;
    let mut c = Counted::new();
    c.enough(5, MANY as u64, 0, each_weighs_one(MANY));
    for lock in (0..MANY).map(lock_name) {
        for from in [1, 2] {
            let examined = c.arrive(&lock, from);
            c.check_event(examined);
        }
    }
    assert!(c.is_granted(), "all have come");
    assert!(c.total <= PER_CANDIDATE * MANY as u64, "{} for each candidate", c.total / MANY as u64);
    c.f.locks.check();
}

/// Locks that were asked for as spares come before members of the target, and take their places.
#[test]
fn enough_of_twice_as_many_come_one_after_the_other() {
    for (many, amount) in [(800, 400), (8_000, 4_000)] {
        let mut c = Counted::new();
        c.enough(5, amount, 0, each_weighs_one(many));
        let asked = asked(&c.f);
        assert!(asked.len() > amount as usize, "some more are asked for");
        for lock in asked.iter().rev() {
            for from in [1, 2] {
                if !c.is_granted() {
                    let examined = c.arrive(lock, from);
                    c.check_event(examined);
                }
            }
        }
        assert!(c.is_granted(), "enough has come");
        assert!(c.total <= PER_CANDIDATE * many as u64, "{} for each candidate", c.total / many as u64);
        c.f.locks.check();
    }
}

/// The locks of a cluster with one datacenter: all parts are here.
fn alone() -> Counted {
    let mut c = Counted::new();
    c.f.locks = Locks::new(dc(0), DcSet::only(dc(0)), Vec::new(), 0);
    c.f.permit(SERVING);
    work::take();
    c
}

/// Every lock that becomes free is offered to the request, and some are too light for it.
#[test]
fn thousands_of_candidates_are_released_one_after_the_other() {
    const MANY: usize = 4_001;
    let weight = |n: usize| 1 + (n as u64 * 31) % 7;
    for (amount, most) in [(9_000, 0), (9_000, 2_000), (16_000, 0)] {
        let mut c = alone();
        for n in 0..MANY {
            c.f.try_acquire(100 + n as u64, &[(&lock_name(n), EXCLUSIVE)], IfNotFree::Wait);
        }
        c.f.finish();
        (c.total, c.told) = (0, Vec::new());
        work::take();
        c.f.locks.tables.locks.looks = 0;
        let all = (0..MANY).map(|n| (name(&lock_name(n)), weight(n))).collect();
        assert!(matches!(c.enough(100_000, amount, most, all), Acquired::Waiting(_)), "all are held");
        // 1 009 is prime, so each is released once.
        let mut released = (0..MANY).map(|n| (n * 1_009) % MANY);
        while !c.is_granted() {
            let held = c.f.index(100 + released.next().expect("all together are enough") as u64);
            c.f.locks.local_requests().release(held, Position::default(), c.f.now);
            let examined = c.count();
            c.check_event(examined);
        }
        assert!(c.total <= PER_CANDIDATE * MANY as u64, "{} for each candidate", c.total / MANY as u64);
        let chosen = c.f.locks.inspect().chosen(c.f.index(100_000)).expect("it is held");
        assert!(chosen.1 >= u128::from(amount) && (most == 0 || chosen.0.len() <= most as usize));
        c.f.locks.check();
    }
}

/// Thousands of locks change at once: each step does a share of what follows, and the next ones the rest.
#[test]
fn the_rules_of_thousands_of_locks_are_restored_over_several_steps() {
    const MANY: usize = 10_000;
    let names: Vec<String> = (0..MANY).map(lock_name).collect();
    let wanted: Vec<(&str, Mode)> = names.iter().map(|name| (&**name, EXCLUSIVE)).collect();
    let mut c = alone();
    c.f.try_acquire(1, &wanted, IfNotFree::Wait);
    c.f.finish();
    c.told.clear();
    c.enough(2, MANY as u64, 0, each_weighs_one(MANY));
    let holder = c.f.index(1);
    c.f.locks.local_requests().release(holder, Position::default(), c.f.now);
    let mut steps = 0;
    while !c.is_granted() {
        let examined = c.count();
        assert!(examined <= 4_096 || c.is_granted(), "{examined} in one step");
        c.f.locks.check();
        steps += 1;
        assert!(c.is_granted() || c.f.locks.has_work(c.f.now), "the next step follows at once");
    }
    assert!(steps >= 5, "{steps} steps");
}

/// A datacenter goes away that many large requests need: they choose their targets again one by one.
#[test]
fn targets_are_chosen_again_some_in_each_step() {
    const MANY: usize = 3_000;
    let mut c = Counted::new();
    let all = |of: usize| (0..MANY).map(|n| (name(&format!("{of} {}", lock_name(n))), 1)).collect();
    for of in 0..10 {
        c.enough(10 + of as u64, 100, 0, all(of));
    }
    c.f.locks.set_unreachable(DcSet::only(dc(2)));
    let mut steps = 0;
    while {
        let examined = c.count();
        c.f.locks.check();
        steps += 1;
        assert!(examined <= 16_000, "{examined} in one step");
        c.f.locks.has_work(c.f.now)
    } {}
    assert!(steps >= 10, "{steps} steps");
    assert_eq!(c.f.locks.requests().counts().parked, 10, "each of them needs all datacenters");
}
