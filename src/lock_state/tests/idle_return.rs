//! Idle return: `docs/algorithm/ownership.md#14-idle-return`.

use crdts::CmRDT;

use super::*;
use crate::base::bugs::{Bug, Bugs};
use crate::base::work;
use crate::crdt::{Ownership, PartMove};
use crate::lock_state::schedule::IdleReturns;

/// Parts return after a minute without a use.
fn minute() -> HoldRule {
    HoldRule { policy: HoldPolicy::FIXED, idle_return_after: ms(60_000), ..HoldRule::default() }
}

impl Fixture {
    /// At most `max_away` locks stay away here.
    fn with_max_away(max_away: usize, bugs: Bugs) -> Fixture {
        let f = Fixture::with(minute());
        Fixture { locks: f.locks.with_max_away(max_away).with_bugs(bugs), ..f }
    }

    /// A heartbeat begins a round, some time later.
    fn round(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        self.locks.begin_idle_return(self.now);
        self.pass(ms(0))
    }

    /// Gathers a lock, uses it here for 10 ms, and lets it be forgotten.
    fn used_once(&mut self, n: u64, lock: &str) {
        self.gather(lock);
        assert_eq!(self.acquire(n, &[(lock, EXCLUSIVE)]), [format!("grant {n}")]);
        self.pass(ms(10));
        self.release(n);
        self.forget();
    }

    fn idle_returns(&self) -> [u64; 3] {
        let IdleReturns { age, number, shared } = self.locks.move_counts().idle_returns;
        [age, number, shared]
    }

    /// Returns a fixture with this many locks all of whose parts are here, as after a restart.
    fn restored(locks: u32, max_away: usize) -> Fixture {
        let mut f = Fixture::with_max_away(max_away, Bugs::default());
        let mut map = Ownership::new(7);
        for (n, part) in (0..locks).flat_map(|n| [(n, dc(1)), (n, dc(2))]) {
            let lock = LockName::new(&n.to_be_bytes()).expect("four bytes");
            map.apply(PartMove { lock, part, owner: dc(0), version: 1 });
        }
        f.locks.replay().restore_ownership(map);
        f
    }

    /// Does what is left of a round, as the replica does. Returns the most work of a step.
    fn finish_round(&mut self) -> u64 {
        let mut most = 0;
        self.locks.begin_idle_return(self.now);
        while self.locks.has_work(self.now) {
            work::take();
            self.locks.return_idle(self.now);
            most = most.max(work::take());
            let ops = self.locks.take_ops();
            self.seq[0] += 1;
            self.locks.log_operations().note_own_entry(self.seq[0], &ops, self.now);
        }
        most
    }
}

#[test]
fn parts_that_were_not_used_for_long_return() {
    let mut f = Fixture::with(minute());
    assert_eq!(f.round(ms(0)), [""; 0]);
    f.gather("a");
    f.gather("b");
    f.acquire(1, &[("b", EXCLUSIVE)]);
    f.pass(ms(400));
    f.locks.forget_idle(f.now, Position(7), 64);
    assert_eq!(f.locks.inspect().active(), 1, "b is held");
    assert_eq!(f.round(ms(59_000)), [""; 0]);
    assert_eq!(f.set_away(&[2]), [""; 0]);
    assert_eq!(f.round(ms(3_000)), ["dc1 of a to dc1"]);
    assert_eq!(f.set_away(&[]), [""; 0]);
    assert_eq!(f.round(ms(0)), ["dc2 of a to dc2"]);
    assert_eq!(f.idle_returns(), [2, 0, 0]);
    assert_eq!(f.round(ms(100_000)), [""; 0], "a lock in use stays");
}

#[test]
fn a_lock_that_is_used_every_ten_minutes_stays_for_a_day() {
    let mut f = Fixture::new();
    f.used_once(1, "a");
    for n in 2..100 {
        assert_eq!(f.round(ms(600_000)), [""; 0]);
        assert_eq!(f.acquire(n, &[("a", EXCLUSIVE)]), [format!("grant {n}")], "nobody is asked");
        f.release(n);
        f.forget();
    }
    assert_eq!(f.round(ms(23 * 3_600_000)), [""; 0]);
    assert_eq!(f.round(ms(3_602_000)), ["dc1 of a to dc1", "dc2 of a to dc2"]);
}

#[test]
fn nothing_returns_while_no_entry_can_be_made() {
    let mut f = Fixture::with_max_away(0, Bugs::default());
    f.gather("a");
    f.forget();
    f.permit(Permissions { grant: true, append: false });
    assert_eq!(f.round(ms(100_000)), [""; 0]);
    assert!(!f.locks.has_work(f.now), "the round is over");
}

/// Returns what returns first of three locks, of which two may stay.
fn first_of_three(bugs: Bugs) -> Vec<String> {
    let mut f = Fixture::with_max_away(2, bugs);
    for (n, lock) in [(1, "a"), (2, "b"), (3, "c")] {
        f.used_once(n, lock);
    }
    f.acquire(4, &[("a", SHARED)]);
    f.release(4);
    f.forget();
    let returned = f.round(ms(0));
    assert_eq!((f.locks.owners().away_here(), f.idle_returns()), (2, [0, 1, 0]));
    assert_eq!(f.round(ms(1_000)), [""; 0], "as many as may stay");
    returned
}

#[test]
fn of_too_many_locks_the_one_that_was_unused_for_longest_returns() {
    assert_eq!(first_of_three(Bugs::default()), ["dc1 of b to dc1", "dc2 of b to dc2"]);
    let newest = first_of_three(Bugs::one(Bug::NewestReturned));
    assert_eq!(newest, ["dc1 of a to dc1", "dc2 of a to dc2"], "with the bug it is the one used last");
}

#[test]
fn a_lock_with_a_long_name_counts_as_several() {
    let (most, long) = (4, "l".repeat(1_000));
    let mut f = Fixture::with_max_away(most, Bugs::default());
    f.used_once(1, &long);
    assert_eq!(f.round(ms(0)), [""; 0], "four are as many as may stay");
    f.used_once(2, "b");
    assert_eq!(f.round(ms(0)), [format!("dc1 of {long} to dc1"), format!("dc2 of {long} to dc2")]);
    assert_eq!(f.locks.owners().away_here(), 1);
    assert_eq!(f.round(ms(1_000)), [""; 0]);
}

#[test]
fn locks_in_use_do_not_return_by_number() {
    let mut f = Fixture::with_max_away(1, Bugs::default());
    for (n, lock) in [(1, "a"), (2, "b"), (3, "c")] {
        f.gather(lock);
        f.acquire(n, &[(lock, EXCLUSIVE)]);
    }
    assert_eq!(f.round(ms(1_000)), [""; 0]);
    assert_eq!(f.finish_round(), 3, "each is passed over once");
    f.release(2);
    f.pass(ms(400));
    f.locks.forget_idle(f.now, Position(7), 64);
    assert_eq!(f.round(ms(0)), ["dc1 of b to dc1", "dc2 of b to dc2"]);
}

/// Returns the number of locks that return, if one may stay here and three are elsewhere.
fn returned_beside_others(bugs: Bugs) -> usize {
    let mut f = Fixture::with_max_away(1, bugs);
    for lock in ["x", "y", "z"] {
        f.transfer(1, 2, lock, &[1]);
    }
    f.used_once(1, "a");
    f.round(ms(0)).len()
}

#[test]
fn locks_that_are_away_elsewhere_do_not_count() {
    assert_eq!(returned_beside_others(Bugs::default()), 0);
    assert_eq!(returned_beside_others(Bugs::one(Bug::AwayElsewhereCounted)), 2);
}

#[test]
fn nothing_returns_by_number_while_a_member_is_away() {
    let mut f = Fixture::with_max_away(0, Bugs::default());
    f.used_once(1, "a");
    f.set_away(&[2]);
    assert_eq!(f.round(ms(1_000)), [""; 0], "the part of dc2 would stay, and with it the memory");
    f.set_away(&[]);
    assert_eq!(f.round(ms(500)), ["dc1 of a to dc1", "dc2 of a to dc2"]);
}

#[test]
fn a_shared_request_elsewhere_returns_the_other_parts_too() {
    let mut f = Fixture::new();
    f.used_once(1, "a");
    assert_eq!(f.remote(1, 2, &[("a", SHARED)]), ["dc1 of a to dc1", "dc2 of a to dc2"]);
    assert_eq!((f.idle_returns(), f.locks.owners().map().len()), ([0, 0, 1], 0));

    f.withdraw(1, 2);
    f.used_once(3, "b");
    f.set_away(&[2]);
    assert_eq!(f.remote(1, 4, &[("b", SHARED)]), ["dc1 of b to dc1"], "dc2 is away");

    // Local readers need none of the foreign parts.
    f.set_away(&[]);
    f.gather("c");
    f.acquire(5, &[("c", SHARED)]);
    assert_eq!(f.pass(ms(300)), [""; 0]);
    assert_eq!(f.remote(2, 6, &[("c", SHARED)]), ["dc1 of c to dc1", "dc2 of c to dc2"]);
}

/// dc2 waits for a lock exclusively, behind a shared request of dc1. Returns what leaves for both.
fn shared_before_exclusive(bugs: Bugs) -> Vec<String> {
    let mut f = Fixture::with_max_away(9, bugs);
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", SHARED)]);
    f.remote(2, 3, &[("a", EXCLUSIVE)]);
    f.pass(ms(1_000));
    f.release(1)
}

#[test]
fn parts_stay_for_an_exclusive_request_that_waits() {
    assert_eq!(shared_before_exclusive(Bugs::default()), ["dc1 of a to dc1", "dc0+dc2 of a to dc2"]);
    let bug = shared_before_exclusive(Bugs::one(Bug::ReturnedPastExclusive));
    assert_eq!(bug, ["dc1 of a to dc1", "dc2 of a to dc2", "dc0 of a to dc2"]);

    // The same of this datacenter: it would wait for one more round trip.
    let mut f = Fixture::new();
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", SHARED)]);
    f.acquire(3, &[("a", EXCLUSIVE)]);
    f.pass(ms(1_000));
    assert_eq!(f.release(1), ["dc1 of a to dc1", "publish 3"]);
}

/// The lock is used exclusively every 10 ms; a part takes 40 ms to its home.
#[test]
fn parts_stay_where_the_next_exclusive_use_is_near() {
    let mut f = Fixture::new();
    f.locks.set_distance(dc(2), ms(39));
    f.gather("a");
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.remote(1, 2, &[("a", SHARED)]);
    for n in 3..40 {
        f.pass(ms(10));
        assert_eq!(f.release(if n == 3 { 1 } else { n - 1 }), [""; 0], "its turn is not over");
        f.pass(ms(10));
        assert_eq!(f.acquire(n, &[("a", EXCLUSIVE)]), [format!("grant {n}")]);
    }
    f.pass(ms(400));
    assert_eq!(f.release(39), ["dc1 of a to dc1"], "the part of dc2 stays");
}

/// Used once, and then no more: two hundred thousand locks leave no memory beyond the limit.
#[test]
fn locks_beyond_the_limit_leave_the_memory() {
    let mut f = Fixture::restored(200_000, 100);
    let (mut rounds, mut most) = (0, 0);
    while f.locks.owners().away_here() > 100 {
        most = most.max(f.finish_round());
        rounds += 1;
    }
    let (rows, here) = (f.locks.owners().map().len(), f.locks.owners().away_here());
    assert_eq!((rows, here), (100, 100));
    assert!(most <= 2_048, "a step looked at {most}");
    assert!(rounds < 60, "{rounds} heartbeats");
    f.locks.check();
}

/// dc3 joins with dc0 as its sponsor: until then its part of each lock goes along with that of dc0.
#[test]
fn a_part_that_was_kept_at_its_home_does_not_return_while_another_goes_along() {
    let mut f = Fixture::with(minute());
    let mut map = Ownership::new(7);
    map.keep(PartMove { lock: name("a"), part: dc(0), owner: dc(0), version: 1 });
    f.locks.replay().restore_ownership(map);
    assert_eq!(f.round(ms(0)), [""; 0]);
    f.locks.member_changes().admit(dc(3), dc(0), 1);
    assert_eq!(f.round(ms(100_000)), [""; 0]);
    f.locks.member_changes().split(dc(3));
    f.locks.member_changes().settle(dc(3));
    assert_eq!(f.round(ms(100_000)), ["dc0 of a to dc0"]);
}
