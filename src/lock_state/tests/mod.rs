//! The rules of the algorithm (`docs/algorithm/README.md`) that this room implements, each against [`Locks`]
//! alone: input, and the exact grants and operations that follow.
//!
//! [`Fixture`] is dc0 of three datacenters. A request is ordered by its number: number 5 was made at 5 ms,
//! wherever it is from. All locks are at home in the beginning.

mod downgrades;
mod enough;
mod enough_large;
mod grants;
mod idle_return;
mod installs;
mod joining;
mod parking;
mod publishing;
mod remote;
mod transfers;
mod waiting;

use std::time::Duration;

use super::owners::Known;
use super::*;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::{LockParts, Op, Wants};
use crate::crdt::AsOf;
use geolock_api::names::{DcId, DcSet, FencingToken, LeaseId, LockName, Mode, Position, RequestId};

const SHARED: Mode = Mode::Shared;
const EXCLUSIVE: Mode = Mode::Exclusive;
const SERVING: Permissions = Permissions { grant: true, append: true };

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

/// The members of the fixture.
fn members() -> DcSet {
    [0, 1, 2].map(dc).into_iter().collect()
}

fn known() -> Known {
    Known { members: members(), left: DcSet::EMPTY, no_homes: DcSet::EMPTY }
}

fn name(name: &str) -> LockName {
    LockName::try_from(name).expect("a short name")
}

fn wants(wants: &[(&str, Mode)]) -> Wants {
    Wants::all(wants.iter().map(|(lock, mode)| (name(lock), *mode)).collect()).expect("some locks")
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The locks of dc0 of three datacenters.
struct Fixture {
    locks: Locks,
    now: Instant,
    /// Sequence number of the last entry of each datacenter.
    seq: [u64; 3],
    /// The last token that was given.
    token: u64,
}

impl Fixture {
    /// Locks with [`HoldPolicy::FIXED`]: patience 250 ms, turn 1 s.
    fn new() -> Fixture {
        Fixture::with(HoldRule { policy: HoldPolicy::FIXED, ..HoldRule::default() })
    }

    fn with(rule: HoldRule) -> Fixture {
        let locks = Locks::new(dc(0), members(), vec![rule], 0);
        let mut fixture = Fixture { locks, now: Instant::ZERO, seq: [0; 3], token: 0 };
        assert!(fixture.permit(SERVING).is_empty());
        fixture
    }

    fn id(n: u64) -> RequestId {
        RequestId { dc: dc(0), n }
    }

    fn index(&self, n: u64) -> RequestIndex {
        self.locks.requests().find(Fixture::id(n)).expect("it waits or is held")
    }

    fn new_request<T>(n: u64, wants: &Wants, with: impl FnOnce(NewRequest<'_>) -> T) -> T {
        let (lease, label) = (LeaseId::new(dc(0), 1), "test".into());
        with(NewRequest { id: Fixture::id(n), at: Timestamp::from_millis(n), wants, lease, label: &label })
    }

    fn try_acquire(&mut self, n: u64, locks: &[(&str, Mode)], if_not_free: IfNotFree) -> Acquired {
        Fixture::new_request(n, &wants(locks), |new| {
            self.locks.local_requests().acquire(&new, if_not_free, self.now)
        })
    }

    /// A client acquires these locks.
    fn acquire(&mut self, n: u64, locks: &[(&str, Mode)]) -> Vec<String> {
        self.try_acquire(n, locks, IfNotFree::Wait);
        self.settle()
    }

    fn release(&mut self, n: u64) -> Vec<String> {
        let request = self.index(n);
        self.locks.local_requests().release(request, Position::default(), self.now);
        self.settle()
    }

    fn cancel(&mut self, n: u64) -> Vec<String> {
        let request = self.index(n);
        self.locks.local_requests().cancel(request, self.now);
        self.settle()
    }

    /// An entry of another datacenter publishes its request.
    fn remote(&mut self, from: u8, n: u64, locks: &[(&str, Mode)]) -> Vec<String> {
        self.seq[usize::from(from)] += 1;
        self.locks.log_operations().apply_request(&Published {
            id: RequestId { dc: dc(from), n },
            at: Timestamp::from_millis(n),
            wants: &wants(locks),
            seq: self.seq[usize::from(from)],
        });
        self.settle()
    }

    /// An entry of another datacenter withdraws its request.
    fn withdraw(&mut self, from: u8, n: u64) -> Vec<String> {
        self.seq[usize::from(from)] += 1;
        self.locks.log_operations().apply_withdraw(RequestId { dc: dc(from), n }, self.now);
        self.settle()
    }

    fn moved(&self, lock: &str, parts: &[u8]) -> LockParts {
        let lock = name(lock);
        let version = |part| self.locks.owners().map().of(&lock).register(part).version() + 1;
        let parts = parts.iter().map(|part| (dc(*part), version(dc(*part)))).collect();
        LockParts { lock, parts }
    }

    /// An entry of `from` moves parts; the journal has it at position 7.
    fn transfer(&mut self, from: u8, to: u8, lock: &str, parts: &[u8]) -> Vec<String> {
        self.seq[usize::from(from)] += 1;
        let moved = self.moved(lock, parts);
        let ops = [Op::Transfer { to: dc(to), parts: vec![moved.clone()] }];
        assert_eq!(self.locks.inspect().validate(dc(from), known(), &ops), Ok(()));
        self.locks.log_operations().apply_transfer(
            (dc(from), dc(to)),
            &moved,
            AsOf::here(DcSet::EMPTY),
            Position(7),
        );
        self.settle()
    }

    /// All parts of the lock come here.
    fn gather(&mut self, lock: &str) {
        assert_eq!(self.transfer(1, 0, lock, &[1]), [""; 0]);
        assert_eq!(self.transfer(2, 0, lock, &[2]), [""; 0]);
    }

    fn permit(&mut self, permissions: Permissions) -> Vec<String> {
        self.locks.permit(permissions);
        self.settle()
    }

    fn set_away(&mut self, away: &[u8]) -> Vec<String> {
        self.locks.set_unreachable(away.iter().map(|id| dc(*id)).collect());
        self.settle()
    }

    /// Time passes.
    fn pass(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        self.locks.expire(self.now);
        self.settle()
    }

    /// Drops the idle rows of the lock table, some time later.
    fn forget(&mut self) {
        self.pass(ms(400));
        self.locks.forget_idle(self.now, Position(7), 64);
        assert_eq!(self.locks.inspect().active(), 0, "all are idle");
    }

    /// Returns the time until the next timer, if there is one.
    fn next_timer(&self) -> Option<Duration> {
        let next = self.locks.next_deadline();
        (next != Instant::FAR_FUTURE).then(|| next.saturating_since(self.now))
    }

    /// Ends the step and checks the invariants. Returns the grants and operations that follow, in order.
    fn settle(&mut self) -> Vec<String> {
        let told = self.finish();
        self.locks.check();
        told
    }

    /// Ends the step, as the replica does: returns the grants and operations that follow, in order. A request
    /// that asks again gets a number that is 1000 higher.
    fn finish(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        self.locks.sweep();
        self.locks.return_idle(self.now);
        loop {
            self.locks.schedule(self.now);
            while let Some(request) = self.locks.next_granted() {
                self.token += 1;
                let fresh = self.locks.local_requests().set_token(request, FencingToken(self.token));
                told.push(format!("grant {}", fresh.id.n));
            }
            while let Some(request) = self.locks.next_to_ask_again() {
                let id = Fixture::id(self.locks.requests()[request].id.n + 1_000);
                self.locks.local_requests().ask_again(request, id, self.now);
            }
            let ops = self.locks.take_ops();
            if ops.is_empty() {
                break;
            }
            ops.iter().for_each(|op| told.extend(lines(op)));
            self.seq[0] += 1;
            self.locks.log_operations().note_own_entry(self.seq[0], &ops, self.now);
        }
        told
    }
}

/// Describes an operation: a line for each request, or for each lock that moves.
fn lines(op: &Op) -> Vec<String> {
    match op {
        Op::Request { id, .. } => vec![format!("publish {}", id.n)],
        Op::Withdraw { id } => vec![format!("withdraw {}", id.n)],
        Op::Enter { epoch } => vec![format!("enter {epoch}")],
        Op::Split { part } => vec![format!("split {part}")],
        Op::Done { part } => vec![format!("done {part}")],
        Op::Freed { slot, .. } => vec![format!("freed {slot}")],
        Op::Leave => vec!["leave".to_owned()],
        Op::Keep { parts } => parts.iter().map(|kept| format!("keep {}", kept.lock)).collect(),
        Op::Rehome { epoch } => vec![format!("rehome {epoch}")],
        Op::Transfer { to, parts } => {
            let numbers = |moved: &LockParts| {
                let parts: Vec<String> = moved.parts.iter().map(|(part, _)| part.to_string()).collect();
                parts.join("+")
            };
            parts.iter().map(|moved| format!("{} of {} to {to}", numbers(moved), moved.lock)).collect()
        }
        Op::Commit(_) | Op::Under { .. } => unreachable!("locks make no commits"),
    }
}
