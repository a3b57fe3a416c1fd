//! Messages to calls: transactions and what they read and write.
//!
//! What the datacenter would refuse because of its size is refused here, before anything is allocated for it; and no
//! update gets in that could not be applied to some value.

use std::time::Duration;

use super::error::BorderError;
use super::parse::{self, ProofBy, key, label, lease, proof, wants};
use crate::causal_log::{Action, Change, MAX_CHANGES, MAX_COMMIT_BYTES};
use crate::crdt::VersionVector;
use crate::crdt::value::{
    FlagOp, MAX_DEPTH, MapOp, MapType, Op, OpError, PathStep, RegisterOp, ResettableCounterOp, SetOp, Update,
};
use crate::keys::Key;
use crate::names::{DcId, MAX_DCS};
use crate::proto::{self, begin_locks, change, map_op, register_op, resettable_counter_op, set_op, update};
use crate::replica::call::{Call, Wait};
use crate::replica::store_call::{AtLeast, Begin, BeginLocks, GoOn, Look, MAX_READS, Step, Then, TxnRefusal};
use crate::store_state::ChangeError;

use BorderError::Malformed;

pub(super) fn begin(message: proto::BeginRequest, by: ProofBy) -> Result<Call, BorderError> {
    Ok(Call::Begin(Begin {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key: key(message.key).ok_or(NO_KEY)?,
        locks: message.locks.map(locks).transpose()?,
        at_least: at_least(message.at_least)?,
        settled: message.settled,
        step: step(message.step)?,
    }))
}

/// A begin that does all there is to do.
pub(super) fn transact(message: proto::BeginRequest) -> Result<Call, BorderError> {
    match &message.step {
        Some(step) if step.then() == proto::Then::Commit => begin(message, ProofBy::Secret),
        _ => Err(Malformed(
            "`step.then`: a unary transaction is one step, which commits; others need a stream",
        )),
    }
}

pub(super) fn go_on(message: proto::GoOnRequest, by: ProofBy) -> Result<Call, BorderError> {
    Ok(Call::GoOn(GoOn {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key: key(message.key).ok_or(NO_KEY)?,
        after: message.after as usize,
        step: step(message.step)?,
    }))
}

pub(super) fn look(message: proto::ReadRequest) -> Result<Call, BorderError> {
    Ok(Call::Look(Look { reads: reads(message.keys)?, at_least: at_least(message.at_least)? }))
}

const NO_KEY: BorderError = Malformed("`key`: a transaction has one, so that it can be asked for again");
const NO_MAP: BorderError = Malformed("`map`: say which type of map the path leads through");
const NO_FLAG: BorderError = Malformed("`enable_wins_flag`, `disable_wins_flag`: say what to do with it");
const NO_OP: BorderError = Malformed("`op`: it is missing, or unknown to this server");

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
    let seqs = snapshot.unwrap_or_default().seqs;
    if seqs.len() > MAX_DCS {
        return Err(Malformed("`snapshot.seqs`: a cluster has at most 64 datacenters"));
    }
    let dcs = (0_u8..).map_while(DcId::new);
    let snapshot: VersionVector = dcs.zip(seqs).collect();
    Ok(AtLeast { snapshot, patience: Duration::from_millis(wait_ms) })
}

fn step(message: Option<proto::Step>) -> Result<Step, BorderError> {
    let message = message.ok_or(Malformed("`step` is missing"))?;
    let then = match message.then() {
        proto::Then::Unspecified | proto::Then::GoOn => Then::GoOn,
        proto::Then::Commit => Then::Commit,
        proto::Then::Abort => Then::Abort,
    };
    let changes = message.changes.len();
    if changes > MAX_CHANGES {
        let (max_changes, max_bytes) = (MAX_CHANGES, MAX_COMMIT_BYTES);
        return Err(TxnRefusal::TooLarge { changes, bytes: 0, max_changes, max_bytes }.into());
    }
    let changes = message.changes.into_iter().map(change).collect::<Result<_, _>>()?;
    Ok(Step { changes, reads: reads(message.reads)?, then })
}

fn reads(keys: Vec<proto::Key>) -> Result<Vec<Key>, BorderError> {
    if keys.len() > MAX_READS {
        return Err(TxnRefusal::TooManyReads(keys.len()).into());
    }
    keys.iter().map(store_key).collect()
}

fn store_key(message: &proto::Key) -> Result<Key, BorderError> {
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
            let update = update(message)?;
            update.validate().map_err(refused)?;
            Action::Update(update)
        }
        Some(change::Action::Remove(_)) => Action::Remove,
        None => return Err(Malformed("`change`: set `update` or `remove`")),
    };
    Ok(Change { key, action })
}

fn update(message: proto::Update) -> Result<Update, BorderError> {
    let path = message.path.into_iter().map(path_step).collect::<Result<_, _>>()?;
    Ok(Update { path, op: op(message.op.ok_or(NO_OP)?)? })
}

fn path_step(message: proto::PathStep) -> Result<PathStep, BorderError> {
    let map = match message.map() {
        proto::MapType::GrowOnly => MapType::GrowOnly,
        proto::MapType::Resettable => MapType::Resettable,
        proto::MapType::Unspecified => return Err(NO_MAP),
    };
    Ok(PathStep { map, field: message.field })
}

fn op(message: update::Op) -> Result<Op, BorderError> {
    Ok(match message {
        update::Op::Counter(amount) => Op::Counter(amount),
        update::Op::ResettableCounter(message) => Op::ResettableCounter(match message.op.ok_or(NO_OP)? {
            resettable_counter_op::Op::Add(amount) => ResettableCounterOp::Add(amount),
            resettable_counter_op::Op::Reset(_) => ResettableCounterOp::Reset,
        }),
        update::Op::BoundedCounter(amount) => Op::BoundedCounter(amount),
        update::Op::MoveRights(message) => {
            let to = u8::try_from(message.to).ok().and_then(DcId::new);
            let to = to.ok_or(Malformed("`move_rights.to`: no datacenter has that number"))?;
            Op::MoveRights { to, amount: message.amount }
        }
        update::Op::LwwRegister(value) => Op::LwwRegister(value),
        update::Op::MvRegister(message) => Op::MvRegister(match message.op.ok_or(NO_OP)? {
            register_op::Op::Assign(value) => RegisterOp::Assign(value),
            register_op::Op::Reset(_) => RegisterOp::Reset,
        }),
        update::Op::Versioned(proto::VersionedOp { version, value, done }) => {
            Op::Versioned { version, value, done }
        }
        update::Op::AddWinsSet(message) => Op::AddWinsSet(set(message)?),
        update::Op::RemoveWinsSet(message) => Op::RemoveWinsSet(set(message)?),
        update::Op::GrowOnlySet(message) => Op::GrowOnlySet(message.elements),
        update::Op::EnableWinsFlag(raw) => Op::EnableWinsFlag(flag(raw)?),
        update::Op::DisableWinsFlag(raw) => Op::DisableWinsFlag(flag(raw)?),
        update::Op::ResettableMap(message) => Op::ResettableMap(match message.op.ok_or(NO_OP)? {
            map_op::Op::Remove(fields) => MapOp::Remove(fields.elements),
            map_op::Op::Reset(_) => MapOp::Reset,
        }),
    })
}

fn set(message: proto::SetOp) -> Result<SetOp, BorderError> {
    Ok(match message.op.ok_or(NO_OP)? {
        set_op::Op::Add(elements) => SetOp::Add(elements.elements),
        set_op::Op::Remove(elements) => SetOp::Remove(elements.elements),
        set_op::Op::Reset(_) => SetOp::Reset,
    })
}

fn flag(raw: i32) -> Result<FlagOp, BorderError> {
    match proto::FlagOp::try_from(raw) {
        Ok(proto::FlagOp::Enable) => Ok(FlagOp::Enable),
        Ok(proto::FlagOp::Disable) => Ok(FlagOp::Disable),
        Ok(proto::FlagOp::Reset) => Ok(FlagOp::Reset),
        Ok(proto::FlagOp::Unspecified) | Err(_) => Err(NO_FLAG),
    }
}
