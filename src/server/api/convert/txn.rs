//! Transactions: their steps, reads and changes, and the results.
//!
//! Content that the datacenter would refuse because of its size is refused here, before anything is
//! allocated for it. An update that could not be applied to any value is refused, too.

use std::time::Duration;

use bytes::Bytes;

use super::fields::{
    self, ProofBy, dcs, idempotency_key, label, lease, proof, request_id, snapshot_message, wants,
};
use super::lock::NO_WAIT;
use crate::base::time::TimeToLive;
use crate::causal_log::{Action, Change, MAX_CHANGES, MAX_COMMIT_BYTES};
use crate::replica::call::store::{
    AtLeast, Begin, Durability, Durable, MAX_GUARDS, MAX_MAJORITY_WAIT, MAX_READS, NextStep, Read, Step,
    Stepped, Then, TxnRefusal, TxnState,
};
use crate::replica::call::{Call, LockRequest, Wait};
use crate::server::api::error::BorderError;
use crate::store_state::ChangeError;
use geolock_api::keys::Key;
use geolock_api::names::RequestId;
use geolock_api::proto::{self, begin_locks, change, value};
use geolock_api::value::{MAX_DEPTH, OpError, Reading, Type, messages};

use BorderError::Malformed;

pub(in crate::server::api) fn begin(message: proto::BeginRequest, by: ProofBy) -> Result<Call, BorderError> {
    Ok(Call::Begin(Begin {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key: idempotency_key(message.idempotency_key).ok_or(NO_KEY)?,
        locks: message.locks.map(begin_locks).transpose()?,
        under: guards(message.under)?,
        at_least: at_least(message.at_least)?,
        acknowledged_through: message.acknowledged_through,
        step: step(message.step)?,
    }))
}

/// Parses a begin that is the whole transaction.
pub(in crate::server::api) fn transact(message: proto::BeginRequest) -> Result<Call, BorderError> {
    match &message.step {
        Some(step) if step.then() == proto::Then::Commit => begin(message, ProofBy::Secret),
        _ => Err(Malformed(
            "`step.then`: a unary transaction is one step, which commits; others need a stream",
        )),
    }
}

pub(in crate::server::api) fn next_step(
    message: proto::StepRequest,
    by: ProofBy,
) -> Result<Call, BorderError> {
    Ok(Call::Step(NextStep {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key: idempotency_key(message.idempotency_key).ok_or(NO_KEY)?,
        after: message.applied_changes as usize,
        step: step(message.step)?,
    }))
}

const NO_KEY: BorderError =
    Malformed("`idempotency_key`: a transaction has one, so that it can be asked for again");

fn begin_locks(message: proto::BeginLocks) -> Result<LockRequest, BorderError> {
    let wait = match message.wait {
        Some(begin_locks::Wait::TryOnce(_)) => Wait::Try,
        Some(begin_locks::Wait::WaitMs(millis)) => Wait::AtMost(Duration::from_millis(millis)),
        Some(begin_locks::Wait::WaitForever(_)) => Wait::Forever,
        None => return Err(NO_WAIT),
    };
    Ok(LockRequest { wants: wants(&message.locks)?, wait, label: label(&message.label)? })
}

fn guards(under: Vec<proto::RequestId>) -> Result<Vec<RequestId>, BorderError> {
    // Before anything is allocated for them.
    if under.len() > MAX_GUARDS {
        return Err(TxnRefusal::TooManyGuards(under.len()).into());
    }
    under.into_iter().map(request_id).collect()
}

fn at_least(message: Option<proto::AtLeast>) -> Result<AtLeast, BorderError> {
    let Some(proto::AtLeast { snapshot, wait_ms }) = message else { return Ok(AtLeast::default()) };
    let snapshot = fields::snapshot(snapshot.unwrap_or_default())?;
    Ok(AtLeast { snapshot, patience: Duration::from_millis(wait_ms) })
}

fn step(message: Option<proto::Step>) -> Result<Step, BorderError> {
    let message = message.ok_or(Malformed("`step` is missing"))?;
    let then = match message.then() {
        proto::Then::Unspecified | proto::Then::Continue => Then::Continue,
        proto::Then::Commit => Then::Commit,
        proto::Then::Abort => Then::Abort,
    };
    let durability = durability(message.durability(), message.majority_wait_ms);
    let changes = message.changes.len();
    if changes > MAX_CHANGES {
        let (max_changes, max_bytes) = (MAX_CHANGES, MAX_COMMIT_BYTES);
        return Err(TxnRefusal::TooLarge { changes, bytes: 0, max_changes, max_bytes }.into());
    }
    let changes = message.changes.into_iter().map(change).collect::<Result<_, _>>()?;
    Ok(Step { changes, reads: reads(message.reads)?, then, durability })
}

fn durability(durability: proto::Durability, wait_ms: u64) -> Durability {
    match (durability, wait_ms) {
        (proto::Durability::Unspecified | proto::Durability::Local, _) => Durability::Local,
        (proto::Durability::Majority, 0) => Durability::MAJORITY,
        (proto::Durability::Majority, millis) => {
            Durability::Majority { wait: Duration::from_millis(millis).min(MAX_MAJORITY_WAIT) }
        }
    }
}

/// Returns the answer to a step.
pub(in crate::server::api) fn stepped(stepped: Stepped) -> proto::StepResponse {
    let (state, commit) = match &stepped.state {
        TxnState::Open => (proto::TransactionState::Open, None),
        TxnState::Committed(commit) => (proto::TransactionState::Committed, Some(snapshot_message(commit))),
        TxnState::Aborted => (proto::TransactionState::Aborted, None),
    };
    let (durability, missing) = match (&stepped.state, stepped.durable) {
        (TxnState::Open | TxnState::Aborted, _) => (proto::Durability::Unspecified, Vec::new()),
        (TxnState::Committed(_), Durable::Here) => (proto::Durability::Local, Vec::new()),
        (TxnState::Committed(_), Durable::AtMajority) => (proto::Durability::Majority, Vec::new()),
        (TxnState::Committed(_), Durable::NotAtMajority { missing }) => {
            (proto::Durability::Local, dcs(missing))
        }
    };
    proto::StepResponse {
        snapshot: Some(snapshot_message(&stepped.snapshot)),
        token: stepped.token.map_or(0, |token| token.0),
        values: stepped.readings().into_iter().map(value_message).collect(),
        state: state.into(),
        commit,
        durability: durability.into(),
        missing,
    }
}

pub(in crate::server::api) fn read(message: proto::ReadRequest) -> Result<Call, BorderError> {
    Ok(Call::Read(Read { reads: reads(message.keys)?, at_least: at_least(message.at_least)? }))
}

fn reads(keys: Vec<proto::Key>) -> Result<Vec<Key>, BorderError> {
    if keys.len() > MAX_READS {
        return Err(TxnRefusal::TooManyReads(keys.len()).into());
    }
    keys.iter().map(store_key).collect()
}

/// Returns the answer to a read without a transaction.
pub(in crate::server::api) fn read_answer(read: Stepped) -> proto::StepResponse {
    proto::StepResponse { state: proto::TransactionState::Unspecified.into(), ..stepped(read) }
}

/// Returns the message of a reading; `None`: the key has no value.
pub(in crate::server::api) fn value_message(reading: Option<Reading>) -> proto::Value {
    proto::Value { reading: reading.map(reading_message) }
}

/// Recurses as deep as maps nest.
fn reading_message(reading: Reading) -> value::Reading {
    match reading {
        Reading::Counter(count) => value::Reading::Counter(count),
        Reading::ResettableCounter(count) => value::Reading::ResettableCounter(count),
        Reading::BoundedCounter { value, rights } => {
            value::Reading::BoundedCounter(proto::BoundedCounterReading { value, rights })
        }
        Reading::LwwRegister(value) => value::Reading::LwwRegister(proto::RegisterReading { value }),
        Reading::MvRegister(values) => value::Reading::MvRegister(elements(values)),
        Reading::Versioned(None) => value::Reading::Versioned(proto::VersionedReading::default()),
        Reading::Versioned(Some(read)) => value::Reading::Versioned(proto::VersionedReading {
            version: read.version,
            value: Some(read.value),
            done: read.done,
        }),
        Reading::Set(Type::RemoveWinsSet, all) => value::Reading::RemoveWinsSet(elements(all)),
        Reading::Set(Type::GrowOnlySet, all) => value::Reading::GrowOnlySet(elements(all)),
        Reading::Set(_, all) => value::Reading::AddWinsSet(elements(all)),
        Reading::Flag(Type::DisableWinsFlag, is_set) => value::Reading::DisableWinsFlag(is_set),
        Reading::Flag(_, is_set) => value::Reading::EnableWinsFlag(is_set),
        Reading::Map(Type::GrowOnlyMap, fields) => value::Reading::GrowOnlyMap(map(fields)),
        Reading::Map(_, fields) => value::Reading::ResettableMap(map(fields)),
    }
}

fn elements(elements: Vec<Bytes>) -> proto::Elements {
    proto::Elements { elements }
}

fn map(fields: Vec<(Bytes, Reading)>) -> proto::MapReading {
    let field = |(field, reading)| proto::FieldReading { field, value: Some(value_message(Some(reading))) };
    proto::MapReading { fields: fields.into_iter().map(field).collect() }
}

pub(super) fn store_key(message: &proto::Key) -> Result<Key, BorderError> {
    Ok(Key::new(&message.bucket, &message.name)?)
}

fn change(message: proto::Change) -> Result<Change, BorderError> {
    let key = store_key(&message.key.ok_or(Malformed("`change.key` is missing"))?)?;
    let action = match message.action {
        Some(change::Action::Update(message)) => {
            let refused = |error| TxnRefusal::Change(ChangeError { key: key.clone(), error });
            if message.path.len() > MAX_DEPTH {
                return Err(refused(OpError::TooDeep(message.path.len())).into());
            }
            let update = messages::parse(message)?;
            update.validate().map_err(refused)?;
            Action::Update(update)
        }
        Some(change::Action::Remove(_)) => Action::Remove,
        Some(change::Action::ExpireMs(millis)) => match TimeToLive::from_millis(millis) {
            Ok(ttl) => Action::Expire(ttl),
            Err(error) => return Err(BorderError::Expiry { key, error }),
        },
        Some(change::Action::Expired(_)) => {
            return Err(Malformed(
                "`change.expired`: only datacenters make this change, clients use `remove`",
            ));
        }
        None => return Err(Malformed("`change`: set `update`, `remove` or `expire_ms`")),
    };
    Ok(Change { key, action })
}

pub(super) fn change_message(Change { key, action }: Change) -> proto::Change {
    let action = match action {
        Action::Update(update) => change::Action::Update(messages::show(update)),
        Action::Remove => change::Action::Remove(proto::Remove {}),
        Action::Expire(ttl) => change::Action::ExpireMs(ttl.millis() as i64),
        Action::Expired => change::Action::Expired(proto::Expired {}),
    };
    let (bucket, name) = (Bytes::copy_from_slice(key.bucket()), Bytes::copy_from_slice(key.name()));
    proto::Change { key: Some(proto::Key { bucket, name }), action: Some(action) }
}
