//! Results of transaction steps, as messages.

use bytes::Bytes;

use super::show::{dcs, snapshot};
use crate::replica::store_call::{Durable, Stepped, TxnState};
use geolock_api::proto::{self, value};
use geolock_api::value::{Reading, Type};

/// Returns the answer to a step.
pub(super) fn stepped(stepped: Stepped) -> proto::StepResponse {
    let (state, commit) = match &stepped.state {
        TxnState::Open => (proto::TransactionState::Open, None),
        TxnState::Committed(commit) => (proto::TransactionState::Committed, Some(snapshot(commit))),
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
        snapshot: Some(snapshot(&stepped.snapshot)),
        token: stepped.token.map_or(0, |token| token.0),
        values: stepped.values.into_iter().map(value).collect(),
        state: state.into(),
        commit,
        durability: durability.into(),
        missing,
    }
}

/// Returns the answer to a read without a transaction.
pub(super) fn read(read: Stepped) -> proto::StepResponse {
    proto::StepResponse { state: proto::TransactionState::Unspecified.into(), ..stepped(read) }
}

fn value(reading: Option<Reading>) -> proto::Value {
    proto::Value { reading: reading.map(show) }
}

/// Recurses as deep as maps nest.
fn show(reading: Reading) -> value::Reading {
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
    let field = |(field, reading)| proto::FieldReading { field, value: Some(value(Some(reading))) };
    proto::MapReading { fields: fields.into_iter().map(field).collect() }
}
