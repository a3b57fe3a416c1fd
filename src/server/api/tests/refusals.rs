//! Every refusal has a reason of its own, with a number that never changes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

use super::translations::{acquire_message, description, held_message, lock, secret};
use crate::lock_server::fakes::dc;
use crate::lock_server::{End, OpenError, Stopped, TooManySessions};
use crate::replica::call::{Limit, Refusal};
use crate::server::api::convert::{ProofBy, inspect, lock, session};
use crate::server::api::error::{self, BorderError};
use crate::server::api::reclaim::Gathered;
use geolock_api::names::{DcSet, LeaseId};
use geolock_api::proto::{self, ERROR_METADATA, Reason};

fn refused_by_border(message: proto::AcquireRequest) -> Reason {
    match lock::acquire(message, ProofBy::SecretOrStream) {
        Ok(call) => panic!("it should be refused: {call:?}"),
        Err(error) => error.to_error().reason(),
    }
}

fn with_locks(locks: Vec<proto::LockMode>) -> proto::AcquireRequest {
    proto::AcquireRequest { locks, ..acquire_message() }
}

fn named(name: &[u8]) -> proto::LockMode {
    lock(name, proto::Mode::Exclusive)
}

#[test]
fn lock_names_have_1_to_1024_bytes() {
    assert_eq!(refused_by_border(with_locks(vec![named(b"")])), Reason::LockNameEmpty);
    assert_eq!(refused_by_border(with_locks(vec![named(&[0; 1025])])), Reason::LockNameTooLong);
    assert!(lock::acquire(with_locks(vec![named(&[0xff; 1024])]), ProofBy::SecretOrStream).is_ok());
}

#[test]
fn a_request_has_1_to_10_000_locks_and_1_mib_of_names() {
    let distinct = |count: u32, width: usize| -> Vec<proto::LockMode> {
        (0..count).map(|i| named(format!("{i:0width$}").as_bytes())).collect()
    };
    assert_eq!(refused_by_border(with_locks(vec![])), Reason::NoLocks);
    assert_eq!(refused_by_border(with_locks(distinct(10_001, 1))), Reason::TooManyLocks);
    assert_eq!(refused_by_border(with_locks(distinct(1_025, 1_024))), Reason::NamesTooLong);
    let largest = with_locks(distinct(1_024, 1_024));
    assert!(largest.encoded_len() < crate::server::api::options::MAX_MESSAGE);
    assert!(lock::acquire(largest, ProofBy::SecretOrStream).is_ok());
    assert!(lock::acquire(with_locks(distinct(10_000, 1)), ProofBy::SecretOrStream).is_ok());
}

#[test]
fn an_acquire_says_everything_it_has_to() {
    let malformed = |message| assert_eq!(refused_by_border(message), Reason::Malformed);
    malformed(proto::AcquireRequest { lease: 0, ..acquire_message() });
    malformed(proto::AcquireRequest { wait: None, ..acquire_message() });
    malformed(proto::AcquireRequest { secret: Bytes::from_static(b"short"), ..acquire_message() });
    malformed(with_locks(vec![lock(b"a", proto::Mode::Unspecified)]));
    malformed(with_locks(vec![proto::LockMode { name: Bytes::from_static(b"a"), mode: 77, home: None }]));
    let label = "x".repeat(257);
    let long = proto::AcquireRequest { label, ..acquire_message() };
    assert_eq!(refused_by_border(long), Reason::LabelTooLong);
}

#[test]
fn a_unary_acquire_needs_key_and_secret() {
    let refused = |message| lock::acquire(message, ProofBy::Secret).is_err();
    assert!(refused(acquire_message()), "no secret");
    assert!(
        refused(proto::AcquireRequest { secret: secret(), idempotency_key: 0, ..acquire_message() }),
        "no key"
    );
    assert!(!refused(proto::AcquireRequest { secret: secret(), ..acquire_message() }));
}

#[test]
fn targets_pages_and_hellos_are_checked() {
    let release = |target| {
        let message = proto::ReleaseRequest { lease: 1, secret: secret(), target };
        lock::release(&message, ProofBy::SecretOrStream).is_err()
    };
    use proto::release_request::Target;
    assert!(release(None));
    assert!(release(Some(Target::IdempotencyKey(0))));
    assert!(release(Some(Target::Request(proto::RequestId { dc: 64, n: 1 }))));
    assert!(release(Some(Target::Request(proto::RequestId { dc: 256, n: 1 }))));
    assert!(!release(Some(Target::Request(proto::RequestId { dc: 63, n: 1 }))));
    let page_token = Bytes::from_static(b"made up");
    assert!(inspect::list(proto::ListLocksRequest { page_token, ..Default::default() }).is_err());
    let hello = |revision, client: &str| {
        let message = proto::Hello { revision, client: client.to_owned() };
        session::hello(&message).map_err(|error| error.to_error().reason())
    };
    assert_eq!(hello(0, ""), Err(Reason::UnsupportedRevision));
    assert_eq!(hello(1, &"x".repeat(257)), Err(Reason::LabelTooLong));
    assert_eq!(hello(7, "a newer client"), Ok(1));
}

#[test]
fn reclaims_in_pieces_are_bounded_and_may_start_over() {
    let piece = |more| {
        let held = vec![held_message(); 1000];
        let message = proto::ReclaimRequest { lease: 1, secret: secret(), held, more };
        lock::reclaim(&message, ProofBy::SecretOrStream).expect("it is well formed")
    };
    let mut gathered = Gathered::new(Arc::default());
    let refused = (0..1_000_000).find_map(|_| gathered.add(piece(true)).err());
    let reason = refused.expect("a million pieces of a thousand are too many").to_error().reason();
    assert_eq!(reason, Reason::ResourceExhausted);
    let rest = gathered.add(piece(false)).expect_err("what follows a refused piece is no whole").to_error();
    assert_eq!(rest.reason(), Reason::Malformed);
    assert!(matches!(gathered.add(piece(false)), Ok(Some(_))));
    let unary = proto::ReclaimRequest { lease: 1, secret: secret(), held: vec![], more: true };
    assert!(lock::reclaim(&unary, ProofBy::Secret).is_err());
}

/// Returns the reason and the status code of a failed unary call.
fn seen(status: &Status) -> (i32, Code) {
    let trailer = status.metadata().get_bin(ERROR_METADATA).expect("every error has a reason");
    let error = proto::Error::decode(trailer.to_bytes().expect("it is base64")).expect("it is an error");
    assert!(!error.message.is_empty());
    assert_eq!(error.message, status.message());
    (error.reason, status.code())
}

#[test]
fn every_refusal_has_its_number_and_its_code() {
    let lease = LeaseId::new(dc(0), 1);
    let second = Duration::from_secs(1);
    let refusals = [
        (Refusal::UnknownLease(lease), 1, Code::NotFound),
        (Refusal::ForeignLease { lease, dc: dc(1) }, 2, Code::FailedPrecondition),
        (Refusal::WrongSecret(lease), 3, Code::PermissionDenied),
        (Refusal::NotAttached(lease), 4, Code::PermissionDenied),
        (Refusal::TtlOutOfRange { asked: second, min: second, max: second }, 5, Code::InvalidArgument),
        (Refusal::LabelTooLong { len: 257, max: 256 }, 6, Code::InvalidArgument),
        (Refusal::NotHeld, 7, Code::FailedPrecondition),
        (Refusal::IdempotencyKeyReused(3), 8, Code::InvalidArgument),
        (Refusal::IdempotencyKeyFinished(3), 9, Code::FailedPrecondition),
        (Refusal::NotFree, 10, Code::Aborted),
        (Refusal::TimedOut(vec![]), 11, Code::DeadlineExceeded),
        (Refusal::Cancelled, 12, Code::Cancelled),
        (Refusal::LeaseEnded, 13, Code::Aborted),
        (Refusal::Draining, 14, Code::Unavailable),
        (
            Refusal::ResourceExhausted { limit: Limit::Leases, retry_after: second },
            15,
            Code::ResourceExhausted,
        ),
        (Refusal::NoReclaimExpected(lease), 16, Code::FailedPrecondition),
        (Refusal::UnknownHome { home: dc(9), members: DcSet::only(dc(0)) }, 33, Code::InvalidArgument),
        (Refusal::NotYet { needs: 3, behind: DcSet::only(dc(1)) }, 44, Code::FailedPrecondition),
    ];
    for (refusal, number, code) in refusals {
        assert_eq!(seen(&error::refused_status(&refusal)), (number, code), "{refusal:?}");
        assert_eq!(error::refused(&refusal).reason, number);
    }
}

#[test]
fn every_refusal_of_the_border_has_its_number_and_its_code() {
    use geolock_api::names::LockNameError::{Empty, TooLong, UnknownHome};
    let too_large = Status::out_of_range("decoded message length too large");
    let refusals = [
        (BorderError::Malformed("x"), 100, Code::InvalidArgument),
        (BorderError::Transport(too_large), 100, Code::OutOfRange),
        (BorderError::LockName(Empty), 101, Code::InvalidArgument),
        (BorderError::LockName(TooLong(1025)), 102, Code::InvalidArgument),
        (BorderError::LockName(UnknownHome(64)), 33, Code::InvalidArgument),
        (BorderError::NoLocks, 103, Code::InvalidArgument),
        (BorderError::TooManyLocks(10_001), 104, Code::InvalidArgument),
        (crate::causal_log::WantsError::NamesTooLong(1 << 21).into(), 105, Code::InvalidArgument),
        (BorderError::HelloExpected, 106, Code::FailedPrecondition),
        (BorderError::UnsupportedRevision(0), 107, Code::Unimplemented),
        (BorderError::End(End::SlowReader), 108, Code::ResourceExhausted),
        (BorderError::End(End::Stopped), 109, Code::Unavailable),
        (BorderError::Open(OpenError::Stopped(Stopped)), 109, Code::Unavailable),
        (BorderError::Open(OpenError::TooMany(TooManySessions(1))), 15, Code::ResourceExhausted),
        (BorderError::ReclaimTooLarge(1), 15, Code::ResourceExhausted),
        (BorderError::TooManyReclaims(1), 15, Code::ResourceExhausted),
        (BorderError::NoRandomness, 109, Code::Unavailable),
    ];
    for (refusal, number, code) in refusals {
        let shown = format!("{refusal:?}");
        assert_eq!(seen(&refusal.into()), (number, code), "{shown}");
    }
}

#[test]
fn when_to_come_back_is_said() {
    let exhausted =
        Refusal::ResourceExhausted { limit: Limit::Leases, retry_after: Duration::from_micros(1500) };
    assert_eq!(error::refused(&exhausted).retry_after_ms, 2, "rounded up");
    assert!(BorderError::End(End::Stopped).to_error().retry_after_ms > 0);
}

#[test]
fn an_explanation_fits_the_trailers() {
    let locks: Vec<_> = (0..10_000).map(|i| description(&format!("lock {i}"))).collect();
    let status = error::refused_status(&Refusal::TimedOut(locks));
    let trailer = status.metadata().get_bin(ERROR_METADATA).expect("every error has a reason");
    assert!(trailer.as_encoded_bytes().len() < 6 << 10);
    let error = proto::Error::decode(trailer.to_bytes().expect("it is base64")).expect("it is an error");
    assert!(!error.locks.is_empty());
    assert_eq!(error.locks.len() + error.omitted_locks as usize, 10_000);
}
