//! Parts that move: `docs/algorithm/ownership.md#13-validity-of-a-transfer` and
//! `docs/algorithm/log.md#16-validation`.

use super::*;
use crate::causal_log::EntryFault;

#[test]
fn only_the_owner_gives_parts_away() {
    let f = Fixture::new();
    let lock = name("a");
    let fault = |from, to, parts: &[(u8, u64)]| {
        let parts = parts.iter().map(|(part, version)| (dc(*part), *version)).collect();
        let parts = vec![LockParts { lock: lock.clone(), parts }];
        f.locks.inspect().validate(dc(from), known(), &[Op::Transfer { to: dc(to), parts }]).err()
    };
    let (lock, part) = (name("a"), dc(1));
    assert_eq!(fault(1, 0, &[(1, 1)]), None);
    assert_eq!(
        fault(2, 0, &[(1, 1)]),
        Some(EntryFault::NotTheOwner { lock: lock.clone(), part, owner: dc(1) })
    );
    assert_eq!(
        fault(1, 5, &[(1, 1)]),
        Some(EntryFault::TransferToStranger { lock: lock.clone(), part, to: dc(5) })
    );
    assert_eq!(fault(1, 0, &[(5, 1)]), Some(EntryFault::UnknownPart { lock: lock.clone(), part: dc(5) }));
    assert_eq!(
        fault(1, 0, &[(1, 0)]),
        Some(EntryFault::WrongVersion { lock: lock.clone(), part, version: 0, current: 0 })
    );
    assert_eq!(fault(1, 0, &[(1, 1), (1, 2)]), Some(EntryFault::MovedTwice { lock: lock.clone(), part }));
}

#[test]
fn a_datacenter_publishes_its_own_requests_once() {
    let mut f = Fixture::new();
    let fault = |f: &Fixture, from, op| f.locks.inspect().validate(dc(from), known(), &[op]).err();
    let id = RequestId { dc: dc(1), n: 1 };
    let request = || Op::Request { id, at: Timestamp::from_millis(1), wants: wants(&[("a", EXCLUSIVE)]) };
    assert_eq!(fault(&f, 2, request()), Some(EntryFault::ForeignRequest { id }));
    assert_eq!(fault(&f, 2, Op::Withdraw { id }), Some(EntryFault::ForeignWithdraw { id }));
    assert_eq!(
        f.locks.inspect().validate(dc(1), known(), &[request(), request()]),
        Err(EntryFault::DuplicateRequest { id })
    );
    assert_eq!(fault(&f, 1, request()), None);
    f.remote(1, 1, &[("a", EXCLUSIVE)]);
    assert_eq!(fault(&f, 1, request()), Some(EntryFault::DuplicateRequest { id }));
}

#[test]
fn a_part_that_is_home_has_no_register() {
    let mut f = Fixture::new();
    f.gather("a");
    assert_eq!(f.locks.owners().map().len(), 1);
    let sum = f.locks.owners().sum();
    assert_eq!(f.remote(1, 1, &[("a", SHARED)]), ["dc1 of a to dc1", "dc2 of a to dc2"]);
    assert_eq!((f.locks.owners().map().len(), f.locks.owners().sum()), (0, 0));
    f.withdraw(1, 1);
    f.gather("a");
    assert_eq!(f.locks.owners().sum(), sum, "the versions begin anew");
}

#[test]
fn an_idle_row_is_dropped_when_its_position_is_durable() {
    let mut f = Fixture::new();
    f.gather("a");
    f.pass(ms(400));
    f.locks.forget_idle(f.now, Position(6), 64);
    assert_eq!(f.locks.inspect().active(), 1, "the entry by which its parts came may be lost");
    f.pass(ms(99));
    f.locks.forget_idle(f.now, Position(7), 64);
    assert_eq!(f.locks.inspect().active(), 1, "it is tried again after 100 ms");
    f.forget();
}

#[test]
fn every_step_counts_the_parts_that_move() {
    let mut f = Fixture::new();
    f.acquire(1, &[("a", EXCLUSIVE)]);
    f.transfer(1, 0, "a", &[1]);
    f.transfer(2, 0, "a", &[2]);
    f.release(1);
    f.remote(1, 2, &[("a", EXCLUSIVE)]);
    assert_eq!(f.pass(ms(250)), ["dc0+dc1+dc2 of a to dc1"]);
    let counts = f.locks.move_counts();
    assert_eq!((counts.part_transfers_received, counts.hand_offs_received), (2, 2));
    assert_eq!((counts.part_transfers_sent, counts.hand_offs_sent), (3, 1));
}
