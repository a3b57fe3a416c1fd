//! Transactions as messages: their meaning, the refusals of the API layer, the values that readers get.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::translations::{lock, secret};
use crate::base::time::TimeToLive;
use crate::causal_log::{Action, Change, Wants};
use crate::crdt::value::SharedValue;
use crate::lock_server::fakes::{dc, name};
use crate::replica::call::store::{
    AtLeast, Begin, Durability, Durable, NextStep, Read, Step, Stepped, Then, TxnRefusal, TxnState,
};
use crate::replica::call::watch::WatchRefusal;
use crate::replica::call::{Call, LockRequest, Proof, Refusal, Wait};
use crate::server::api::convert::{ProofBy, txn};
use crate::server::api::error::{self, BorderError};
use crate::store_state::ChangeError;
use geolock_api::keys::Key;
use geolock_api::names::{DcSet, FencingToken, LeaseId, Mode, RequestId};
use geolock_api::proto::{self, Reason, update, value};
use geolock_api::value::{
    FlagOp, MapOp, MapType, Op, OpError, PathStep, Reading, RegisterOp, ResettableCounterOp, SetOp, Type,
    Update, VersionedReading,
};

fn key(name: &str) -> Key {
    Key::new(b"b", name.as_bytes()).expect("it is a key")
}

fn key_message(name: &str) -> proto::Key {
    proto::Key { bucket: Bytes::from_static(b"b"), name: Bytes::copy_from_slice(name.as_bytes()) }
}

fn change_message(name: &str, op: update::Op) -> proto::Change {
    let update = proto::Update { path: vec![], op: Some(op) };
    proto::Change { key: Some(key_message(name)), action: Some(proto::change::Action::Update(update)) }
}

fn begin_message() -> proto::BeginRequest {
    proto::BeginRequest {
        lease: 7,
        secret: Bytes::new(),
        idempotency_key: 3,
        under: vec![proto::RequestId { dc: 1, n: 9 }],
        locks: Some(proto::BeginLocks {
            locks: vec![lock(b"a", proto::Mode::Exclusive)],
            wait: Some(proto::begin_locks::Wait::WaitMs(1500)),
            label: "me".to_owned(),
        }),
        at_least: Some(proto::AtLeast {
            snapshot: Some(proto::Snapshot { seqs: vec![0, 4, 0] }),
            wait_ms: 250,
        }),
        acknowledged_through: 2,
        step: Some(proto::Step {
            changes: vec![change_message("x", update::Op::Counter(-5))],
            reads: vec![key_message("y")],
            then: proto::Then::Commit.into(),
            ..Default::default()
        }),
    }
}

#[test]
fn a_begin_means_what_it_says() {
    let call = txn::begin(begin_message(), ProofBy::SecretOrStream).expect("it is well formed");
    let change = Change { key: key("x"), action: Action::Update(Update::of(Op::Counter(-5))) };
    let expected = Begin {
        lease: LeaseId::from_raw(7),
        proof: Proof::Attached,
        key: 3,
        locks: Some(LockRequest {
            wants: Wants::all(vec![(name("a"), Mode::Exclusive)]).expect("one lock"),
            wait: Wait::AtMost(Duration::from_millis(1500)),
            label: "me".into(),
        }),
        at_least: AtLeast {
            snapshot: [(dc(1), 4)].into_iter().collect(),
            patience: Duration::from_millis(250),
        },
        acknowledged_through: 2,
        step: Step {
            changes: vec![change],
            reads: vec![key("y")],
            then: Then::Commit,
            durability: Durability::Local,
        },
        under: vec![RequestId { dc: dc(1), n: 9 }],
    };
    assert_eq!(call, Call::Begin(expected));
    let bare = proto::BeginRequest { locks: None, at_least: None, ..begin_message() };
    match txn::begin(bare, ProofBy::SecretOrStream) {
        Ok(Call::Begin(begin)) => assert_eq!((begin.locks, begin.at_least), (None, AtLeast::default())),
        other => panic!("a begin was expected, this is {other:?}"),
    }
}

#[test]
fn further_steps_and_looks_mean_what_they_say() {
    let step = proto::Step { changes: vec![], reads: vec![key_message("y")], then: 0, ..Default::default() };
    let message = proto::StepRequest {
        lease: 7,
        secret: secret(),
        idempotency_key: 3,
        applied_changes: 2,
        step: Some(step.clone()),
    };
    match txn::next_step(message, ProofBy::SecretOrStream) {
        Ok(Call::Step(NextStep { key: 3, after: 2, step, .. })) => {
            assert_eq!(
                step,
                Step {
                    changes: vec![],
                    reads: vec![key("y")],
                    then: Then::Continue,
                    durability: Durability::Local
                }
            );
        }
        other => panic!("a step was expected, this is {other:?}"),
    }
    let read = proto::ReadRequest { keys: step.reads, at_least: None };
    let expected = Read { reads: vec![key("y")], at_least: AtLeast::default() };
    assert_eq!(txn::read(read).ok(), Some(Call::Read(expected)));
}

#[test]
fn every_operation_has_its_message() {
    let bytes = Bytes::from_static;
    let elements =
        |all: &[&'static [u8]]| proto::Elements { elements: all.iter().map(|e| bytes(e)).collect() };
    let reset = proto::Reset {};
    let set = |op| proto::SetOp { op: Some(op) };
    use proto::{map_op, register_op, resettable_counter_op, set_op};
    let pairs = [
        (update::Op::Counter(-1), Op::Counter(-1)),
        (
            update::Op::ResettableCounter(proto::ResettableCounterOp {
                op: Some(resettable_counter_op::Op::Add(2)),
            }),
            Op::ResettableCounter(ResettableCounterOp::Add(2)),
        ),
        (
            update::Op::ResettableCounter(proto::ResettableCounterOp {
                op: Some(resettable_counter_op::Op::Reset(reset)),
            }),
            Op::ResettableCounter(ResettableCounterOp::Reset),
        ),
        (update::Op::BoundedCounter(3), Op::BoundedCounter(3)),
        (
            update::Op::TransferRights(proto::TransferRights { to: 1, amount: 4 }),
            Op::TransferRights { to: dc(1), amount: 4 },
        ),
        (update::Op::LwwRegister(bytes(b"v")), Op::LwwRegister(bytes(b"v"))),
        (
            update::Op::MvRegister(proto::RegisterOp { op: Some(register_op::Op::Assign(bytes(b"v"))) }),
            Op::MvRegister(RegisterOp::Assign(bytes(b"v"))),
        ),
        (
            update::Op::Versioned(proto::VersionedOp { version: 2, value: bytes(b"v"), done: true }),
            Op::Versioned { version: 2, value: bytes(b"v"), done: true },
        ),
        (
            update::Op::AddWinsSet(set(set_op::Op::Add(elements(&[b"e", b"f"])))),
            Op::AddWinsSet(SetOp::Add(vec![bytes(b"e"), bytes(b"f")])),
        ),
        (
            update::Op::RemoveWinsSet(set(set_op::Op::Remove(elements(&[b"e"])))),
            Op::RemoveWinsSet(SetOp::Remove(vec![bytes(b"e")])),
        ),
        (update::Op::AddWinsSet(set(set_op::Op::Reset(reset))), Op::AddWinsSet(SetOp::Reset)),
        (update::Op::GrowOnlySet(elements(&[b"e"])), Op::GrowOnlySet(vec![bytes(b"e")])),
        (update::Op::EnableWinsFlag(proto::FlagOp::Enable.into()), Op::EnableWinsFlag(FlagOp::Enable)),
        (update::Op::DisableWinsFlag(proto::FlagOp::Reset.into()), Op::DisableWinsFlag(FlagOp::Reset)),
        (
            update::Op::ResettableMap(proto::MapOp { op: Some(map_op::Op::Remove(elements(&[b"f"]))) }),
            Op::ResettableMap(MapOp::Remove(vec![bytes(b"f")])),
        ),
    ];
    for (message, op) in pairs {
        assert_eq!(parsed(vec![change_message("x", message)]), Ok(vec![Update::of(op)]));
    }
}

/// Returns the updates of changes, or the reason of the refusal.
fn parsed(changes: Vec<proto::Change>) -> Result<Vec<Update>, Reason> {
    let step = Some(proto::Step { changes, reads: vec![], then: 0, ..Default::default() });
    let message = proto::BeginRequest { step, ..begin_message() };
    let update = |change: Change| match change.action {
        Action::Update(update) => update,
        _ => panic!("an update was expected"),
    };
    match txn::begin(message, ProofBy::SecretOrStream) {
        Ok(Call::Begin(begin)) => Ok(begin.step.changes.into_iter().map(update).collect()),
        Ok(other) => panic!("a begin was expected, this is {other:?}"),
        Err(error) => Err(error.to_error().reason()),
    }
}

fn at_path(map: proto::MapType, steps: usize, op: update::Op) -> proto::Change {
    let path = vec![proto::PathStep { map: map.into(), field: Bytes::from_static(b"f") }; steps];
    let update = proto::Update { path, op: Some(op) };
    let action = Some(proto::change::Action::Update(update));
    proto::Change { key: Some(key_message("x")), action }
}

#[test]
fn paths_lead_where_a_value_can_be() {
    use proto::MapType::{GrowOnly, Resettable, Unspecified};
    let counter = || update::Op::Counter(1);
    let step = PathStep { map: MapType::GrowOnly, field: Bytes::from_static(b"f") };
    let deep = Update { path: vec![step; 8], op: Op::Counter(1) };
    assert_eq!(parsed(vec![at_path(GrowOnly, 8, counter())]), Ok(vec![deep]));
    assert_eq!(parsed(vec![at_path(GrowOnly, 9, counter())]), Err(Reason::ImpossibleOperation));
    assert_eq!(parsed(vec![at_path(Resettable, 1, counter())]), Err(Reason::ImpossibleOperation));
    let bounded = update::Op::BoundedCounter(1);
    assert_eq!(parsed(vec![at_path(GrowOnly, 1, bounded)]), Err(Reason::ImpossibleOperation));
    assert_eq!(parsed(vec![at_path(Unspecified, 1, counter())]), Err(Reason::Malformed));
}

#[test]
fn a_key_expires_in_1_ms_to_10_years() {
    let expires = |millis| {
        let action = Some(proto::change::Action::ExpireMs(millis));
        let changes = vec![proto::Change { key: Some(key_message("x")), action }];
        let step = Some(proto::Step { changes, reads: vec![], then: 0, ..Default::default() });
        txn::begin(proto::BeginRequest { step, ..begin_message() }, ProofBy::SecretOrStream)
    };
    for millis in [1, 315_532_800_000] {
        let Ok(Call::Begin(begin)) = expires(millis) else { panic!("{millis} ms is fine") };
        let ttl = TimeToLive::from_millis(millis).expect("it is possible");
        assert_eq!(begin.step.changes, [Change { key: key("x"), action: Action::Expire(ttl) }]);
    }
    for millis in [0, -1, i64::MIN, 315_532_800_001, i64::MAX] {
        let error = expires(millis).expect_err("it is impossible").to_error();
        assert_eq!(error.reason(), Reason::ExpiryOutOfRange);
        assert!(
            error.message.contains("/x") && error.message.contains(&millis.to_string()),
            "{}",
            error.message
        );
    }
}

#[test]
fn what_no_server_can_do_is_malformed() {
    let malformed = |change| assert_eq!(parsed(vec![change]), Err(Reason::Malformed));
    malformed(proto::Change { key: None, ..change_message("x", update::Op::Counter(1)) });
    malformed(proto::Change { key: Some(key_message("x")), action: None });
    let lapse = Some(proto::change::Action::Expired(proto::Expired {}));
    malformed(proto::Change { key: Some(key_message("x")), action: lapse });
    let action = Some(proto::change::Action::Update(proto::Update::default()));
    malformed(proto::Change { key: Some(key_message("x")), action });
    malformed(change_message("x", update::Op::AddWinsSet(proto::SetOp { op: None })));
    malformed(change_message("x", update::Op::EnableWinsFlag(0)));
    malformed(change_message("x", update::Op::DisableWinsFlag(9)));
    malformed(change_message("x", update::Op::TransferRights(proto::TransferRights { to: 300, amount: 1 })));
    let refused = |message| match txn::begin(message, ProofBy::SecretOrStream) {
        Err(error) => error.to_error().reason(),
        Ok(call) => panic!("it should be refused: {call:?}"),
    };
    assert_eq!(refused(proto::BeginRequest { idempotency_key: 0, ..begin_message() }), Reason::Malformed);
    assert_eq!(refused(proto::BeginRequest { step: None, ..begin_message() }), Reason::Malformed);
    let locks = |locks| proto::BeginRequest { locks: Some(locks), ..begin_message() };
    let wait = Some(proto::begin_locks::Wait::TryOnce(proto::TryOnce {}));
    assert_eq!(refused(locks(proto::BeginLocks { wait, ..Default::default() })), Reason::NoLocks);
    let all = vec![lock(b"a", proto::Mode::Shared)];
    assert_eq!(refused(locks(proto::BeginLocks { locks: all, ..Default::default() })), Reason::Malformed);
    let snapshot = Some(proto::Snapshot { seqs: vec![1; 65] });
    let at_least = Some(proto::AtLeast { snapshot, wait_ms: 0 });
    assert_eq!(refused(proto::BeginRequest { at_least, ..begin_message() }), Reason::Malformed);
    let open = proto::Step { then: proto::Then::Continue.into(), ..Default::default() };
    let unary = proto::BeginRequest { step: Some(open), secret: secret(), ..begin_message() };
    assert!(txn::transact(unary).is_err(), "it would stay open");
}

#[test]
fn what_is_too_large_is_refused_before_it_costs_anything() {
    let many = vec![proto::Change::default(); 100_001];
    assert_eq!(parsed(many), Err(Reason::TransactionTooLarge));
    let read = proto::ReadRequest { keys: vec![key_message("x"); 1_001], at_least: None };
    let refused = txn::read(read).map_err(|error| error.to_error().reason());
    assert_eq!(refused, Err(Reason::TooManyReads));
    for (bucket, name) in [(0, 1), (256, 1), (1, 0), (1, 1025)] {
        let key = proto::Key { bucket: vec![0; bucket].into(), name: vec![0; name].into() };
        let read = proto::ReadRequest { keys: vec![key], at_least: None };
        let refused = txn::read(read).map_err(|error| error.to_error().reason());
        assert_eq!(refused, Err(Reason::InvalidKey), "{bucket} {name}");
    }
}

#[test]
fn answers_say_where_a_transaction_stands() {
    let stepped = |state| Stepped {
        snapshot: Arc::new([(dc(0), 2)].into_iter().collect()),
        token: Some(FencingToken(17)),
        values: vec![None, Some(SharedValue::written(Op::Counter(-3)))],
        state,
        durable: Durable::Here,
    };
    let snapshot = |seqs: &[u64]| Some(proto::Snapshot { seqs: seqs.to_vec() });
    let open = txn::stepped(stepped(TxnState::Open));
    assert_eq!((open.state(), open.token), (proto::TransactionState::Open, 17));
    assert_eq!((open.snapshot, open.commit), (snapshot(&[2]), None));
    let count = proto::Value { reading: Some(value::Reading::Counter(-3)) };
    assert_eq!(open.values, [proto::Value::default(), count]);
    let commit = Arc::new([(dc(0), 3)].into_iter().collect());
    let committed = txn::stepped(stepped(TxnState::Committed(commit)));
    assert_eq!(committed.state(), proto::TransactionState::Committed);
    assert_eq!(committed.commit, snapshot(&[3]));
    assert_eq!((committed.durability(), &committed.missing[..]), (proto::Durability::Local, &[][..]));
    let missing = DcSet::only(dc(1)).union(DcSet::only(dc(2)));
    for (durable, durability, missing) in [
        (Durable::AtMajority, proto::Durability::Majority, vec![]),
        (Durable::NotAtMajority { missing }, proto::Durability::Local, vec![1, 2]),
    ] {
        let commit = Arc::new([(dc(0), 3)].into_iter().collect());
        let committed = Stepped { durable, ..stepped(TxnState::Committed(commit)) };
        let shown = txn::stepped(committed);
        assert_eq!((shown.state(), shown.durability()), (proto::TransactionState::Committed, durability));
        assert_eq!(shown.missing, missing);
    }
    let read = txn::read_answer(stepped(TxnState::Aborted));
    assert_eq!(read.state(), proto::TransactionState::Unspecified);
}

#[test]
fn every_reading_has_its_message() {
    let bytes = Bytes::from_static;
    let elements = || proto::Elements { elements: vec![bytes(b"e")] };
    let some = |reading| Some(proto::Value { reading: Some(reading) });
    let versioned = VersionedReading { version: 2, value: bytes(b"v"), done: true };
    let field = |value| proto::MapReading {
        fields: vec![proto::FieldReading { field: bytes(b"f"), value: some(value) }],
    };
    let inner =
        Reading::Map(Type::ResettableMap, vec![(bytes(b"f"), Reading::Flag(Type::EnableWinsFlag, true))]);
    let pairs = [
        (Reading::ResettableCounter(2), value::Reading::ResettableCounter(2)),
        (
            Reading::BoundedCounter { value: 5, rights: 2 },
            value::Reading::BoundedCounter(proto::BoundedCounterReading { value: 5, rights: 2 }),
        ),
        (
            Reading::LwwRegister(Some(bytes(b"v"))),
            value::Reading::LwwRegister(proto::RegisterReading { value: Some(bytes(b"v")) }),
        ),
        (Reading::LwwRegister(None), value::Reading::LwwRegister(proto::RegisterReading { value: None })),
        (Reading::MvRegister(vec![bytes(b"e")]), value::Reading::MvRegister(elements())),
        (
            Reading::Versioned(Some(versioned)),
            value::Reading::Versioned(proto::VersionedReading {
                version: 2,
                value: Some(bytes(b"v")),
                done: true,
            }),
        ),
        (Reading::Versioned(None), value::Reading::Versioned(proto::VersionedReading::default())),
        (Reading::Set(Type::AddWinsSet, vec![bytes(b"e")]), value::Reading::AddWinsSet(elements())),
        (Reading::Set(Type::RemoveWinsSet, vec![bytes(b"e")]), value::Reading::RemoveWinsSet(elements())),
        (Reading::Set(Type::GrowOnlySet, vec![bytes(b"e")]), value::Reading::GrowOnlySet(elements())),
        (Reading::Flag(Type::DisableWinsFlag, false), value::Reading::DisableWinsFlag(false)),
        (
            Reading::Map(Type::GrowOnlyMap, vec![(bytes(b"f"), inner)]),
            value::Reading::GrowOnlyMap(field(value::Reading::ResettableMap(field(
                value::Reading::EnableWinsFlag(true),
            )))),
        ),
    ];
    for (reading, message) in pairs {
        assert_eq!(txn::value_message(Some(reading)), proto::Value { reading: Some(message) });
    }
}

#[test]
fn every_refusal_of_a_transaction_has_its_number_and_its_code() {
    use tonic::Code;
    let change = |error| TxnRefusal::Change(ChangeError { key: key("x"), error });
    let second = Duration::from_secs(1);
    let (counter, register) = (Type::Counter, Type::LwwRegister);
    let refusals = [
        (change(OpError::WrongType { is: counter, wanted: register }), 17, Code::FailedPrecondition),
        (change(OpError::TooDeep(9)), 18, Code::InvalidArgument),
        (change(OpError::NotResettable(counter)), 18, Code::InvalidArgument),
        (change(OpError::BoundedInMap), 18, Code::InvalidArgument),
        (change(OpError::Overflow), 19, Code::OutOfRange),
        (change(OpError::InsufficientRights { asked: 2, rights: 1 }), 20, Code::FailedPrecondition),
        (change(OpError::Stale { is: 2, written: 1 }), 21, Code::FailedPrecondition),
        (change(OpError::KeyEnded), 43, Code::Aborted),
        (TxnRefusal::ChangeTooLarge { index: 0, bytes: 2 << 20 }, 22, Code::InvalidArgument),
        (
            TxnRefusal::TooLarge { changes: 1, bytes: 5 << 20, max_changes: 1, max_bytes: 4 << 20 },
            23,
            Code::InvalidArgument,
        ),
        (TxnRefusal::TooManyReads(1_001), 24, Code::InvalidArgument),
        (TxnRefusal::ReadsTooLarge(4 << 20), 25, Code::OutOfRange),
        (TxnRefusal::Unknown(3), 26, Code::NotFound),
        (TxnRefusal::NotOpenYet(3), 27, Code::FailedPrecondition),
        (TxnRefusal::TooOld(3, second), 28, Code::Aborted),
        (TxnRefusal::StateReplaced(3), 28, Code::Aborted),
        (TxnRefusal::LocksLost(3), 29, Code::Aborted),
        (TxnRefusal::TooManyGuards(17), 23, Code::InvalidArgument),
        (TxnRefusal::NotHeld(RequestId { dc: dc(1), n: 9 }), 7, Code::FailedPrecondition),
        (TxnRefusal::OutcomeUnknown(3), 30, Code::Unknown),
        (TxnRefusal::Committed(3), 31, Code::FailedPrecondition),
        (TxnRefusal::SnapshotAhead { seq: 2, made: 1 }, 32, Code::OutOfRange),
        (TxnRefusal::UnknownDc(dc(9)), 33, Code::InvalidArgument),
        (
            TxnRefusal::SnapshotNotReached { lacks: [(dc(1), 4)].into_iter().collect() },
            34,
            Code::DeadlineExceeded,
        ),
        (TxnRefusal::CannotCommit("why"), 35, Code::Unavailable),
        (TxnRefusal::StepMissing { key: 3, after: 2, made: 1 }, 36, Code::FailedPrecondition),
    ];
    let of_watches = [
        (WatchRefusal::TooOld { begins: [(dc(1), 4)].into_iter().collect() }, 37, Code::OutOfRange),
        (WatchRefusal::TooMany(9), 38, Code::ResourceExhausted),
        (WatchRefusal::Patterns(0), 100, Code::InvalidArgument),
    ];
    let refusals = refusals.map(|(refusal, number, code)| (Refusal::from(refusal), number, code));
    let of_watches = of_watches.map(|(refusal, number, code)| (Refusal::from(refusal), number, code));
    for (refusal, number, code) in refusals.into_iter().chain(of_watches) {
        let text = refusal.to_string();
        let status = error::refused_status(&refusal);
        assert_eq!((status.code(), status.message()), (code, text.as_str()));
        assert_eq!(error::refused(&refusal).reason, number, "{text}");
    }
    let bad = BorderError::Key(geolock_api::keys::KeyError::Bucket(0)).to_error();
    assert_eq!(bad.reason, 110);
}
