//! Messages to calls: transactions, their reads and changes.
//!
//! Content that the datacenter would refuse because of its size is refused here, before anything is
//! allocated for it. An update that could not be applied to any value is refused, too.

use std::time::Duration;

use super::error::BorderError;
use super::parse::{self, ProofBy, key, label, lease, proof, wants};
use crate::base::time::TimeToLive;
use crate::causal_log::{Action, Change, MAX_CHANGES, MAX_COMMIT_BYTES};
use crate::crdt::VersionVector;
use crate::replica::call::{Call, Wait};
use crate::replica::store_call::{
    AtLeast, Begin, BeginLocks, Durability, MAX_MAJORITY_WAIT, MAX_READS, NextStep, Read, Step, Then,
    TxnRefusal,
};
use crate::store_state::ChangeError;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, MAX_DCS};
use geolock_api::proto::{self, begin_locks, change};
use geolock_api::value::messages;
use geolock_api::value::{MAX_DEPTH, OpError};

use BorderError::Malformed;

pub(super) fn begin(message: proto::BeginRequest, by: ProofBy) -> Result<Call, BorderError> {
    Ok(Call::Begin(Begin {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key: key(message.idempotency_key).ok_or(NO_KEY)?,
        locks: message.locks.map(locks).transpose()?,
        at_least: at_least(message.at_least)?,
        acknowledged_through: message.acknowledged_through,
        step: step(message.step)?,
    }))
}

/// Parses a begin that is the whole transaction.
pub(super) fn transact(message: proto::BeginRequest) -> Result<Call, BorderError> {
    match &message.step {
        Some(step) if step.then() == proto::Then::Commit => begin(message, ProofBy::Secret),
        _ => Err(Malformed(
            "`step.then`: a unary transaction is one step, which commits; others need a stream",
        )),
    }
}

pub(super) fn next_step(message: proto::StepRequest, by: ProofBy) -> Result<Call, BorderError> {
    Ok(Call::Step(NextStep {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key: key(message.idempotency_key).ok_or(NO_KEY)?,
        after: message.applied_changes as usize,
        step: step(message.step)?,
    }))
}

pub(super) fn read(message: proto::ReadRequest) -> Result<Call, BorderError> {
    Ok(Call::Read(Read { reads: reads(message.keys)?, at_least: at_least(message.at_least)? }))
}

const NO_KEY: BorderError = Malformed("`key`: a transaction has one, so that it can be asked for again");

fn locks(message: proto::BeginLocks) -> Result<BeginLocks, BorderError> {
    let wait = match message.wait {
        Some(begin_locks::Wait::TryOnce(_)) => Wait::Try,
        Some(begin_locks::Wait::WaitMs(millis)) => Wait::AtMost(Duration::from_millis(millis)),
        Some(begin_locks::Wait::WaitForever(_)) => Wait::Forever,
        None => return Err(parse::NO_WAIT),
    };
    Ok(BeginLocks { wants: wants(&message.locks)?, wait, label: label(&message.label)? })
}

fn at_least(message: Option<proto::AtLeast>) -> Result<AtLeast, BorderError> {
    let Some(proto::AtLeast { snapshot, wait_ms }) = message else { return Ok(AtLeast::default()) };
    let snapshot = vector(snapshot.unwrap_or_default())?;
    Ok(AtLeast { snapshot, patience: Duration::from_millis(wait_ms) })
}

pub(super) fn vector(message: proto::Snapshot) -> Result<VersionVector, BorderError> {
    if message.seqs.len() > MAX_DCS {
        return Err(Malformed("`snapshot.seqs`: a cluster has at most 64 datacenters"));
    }
    let dcs = (0_u8..).map_while(DcId::new);
    Ok(dcs.zip(message.seqs).collect())
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

fn reads(keys: Vec<proto::Key>) -> Result<Vec<Key>, BorderError> {
    if keys.len() > MAX_READS {
        return Err(TxnRefusal::TooManyReads(keys.len()).into());
    }
    keys.iter().map(store_key).collect()
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
