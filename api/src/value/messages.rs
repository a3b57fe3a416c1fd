//! Conversion of operations on values to and from messages of the API, for the server and for its Rust
//! client.

use bytes::Bytes;

use super::{FlagOp, MapOp, MapType, Op, PathStep, RegisterOp, ResettableCounterOp, SetOp, Update};
use crate::names::DcId;
use crate::proto::{self, map_op, register_op, resettable_counter_op, set_op, update};

/// A fault of a message: the field that is missing or has an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UpdateFault(pub &'static str);

const NO_MAP: UpdateFault = UpdateFault("`map`: say which type of map the path leads through");
const NO_FLAG: UpdateFault = UpdateFault("`enable_wins_flag`, `disable_wins_flag`: an operation is required");
const NO_OP: UpdateFault = UpdateFault("`op`: it is missing, or unknown to this version");

/// Converts an update into a message, which [`parse`] converts back.
pub fn show(update: Update) -> proto::Update {
    let path = update.path.into_iter().map(show_step).collect();
    proto::Update { path, op: Some(show_op(update.op)) }
}

fn show_step(step: PathStep) -> proto::PathStep {
    let map = match step.map {
        MapType::GrowOnly => proto::MapType::GrowOnly,
        MapType::Resettable => proto::MapType::Resettable,
    };
    proto::PathStep { map: map.into(), field: step.field }
}

fn show_op(op: Op) -> update::Op {
    match op {
        Op::Counter(amount) => update::Op::Counter(amount),
        Op::ResettableCounter(op) => {
            let op = match op {
                ResettableCounterOp::Add(amount) => resettable_counter_op::Op::Add(amount),
                ResettableCounterOp::Reset => resettable_counter_op::Op::Reset(proto::Reset {}),
            };
            update::Op::ResettableCounter(proto::ResettableCounterOp { op: Some(op) })
        }
        Op::BoundedCounter(amount) => update::Op::BoundedCounter(amount),
        Op::TransferRights { to, amount } => {
            update::Op::TransferRights(proto::TransferRights { to: to.get().into(), amount })
        }
        Op::LwwRegister(value) => update::Op::LwwRegister(value),
        Op::MvRegister(op) => {
            let op = match op {
                RegisterOp::Assign(value) => register_op::Op::Assign(value),
                RegisterOp::Reset => register_op::Op::Reset(proto::Reset {}),
            };
            update::Op::MvRegister(proto::RegisterOp { op: Some(op) })
        }
        Op::Versioned { version, value, done } => {
            update::Op::Versioned(proto::VersionedOp { version, value, done })
        }
        Op::AddWinsSet(op) => update::Op::AddWinsSet(show_set(op)),
        Op::RemoveWinsSet(op) => update::Op::RemoveWinsSet(show_set(op)),
        Op::GrowOnlySet(elements) => update::Op::GrowOnlySet(proto::Elements { elements }),
        Op::EnableWinsFlag(op) => update::Op::EnableWinsFlag(show_flag(&op).into()),
        Op::DisableWinsFlag(op) => update::Op::DisableWinsFlag(show_flag(&op).into()),
        Op::ResettableMap(op) => {
            let op = match op {
                MapOp::Remove(elements) => map_op::Op::Remove(proto::Elements { elements }),
                MapOp::Reset => map_op::Op::Reset(proto::Reset {}),
            };
            update::Op::ResettableMap(proto::MapOp { op: Some(op) })
        }
    }
}

fn show_set(op: SetOp) -> proto::SetOp {
    let op = match op {
        SetOp::Add(elements) => set_op::Op::Add(proto::Elements { elements }),
        SetOp::Remove(elements) => set_op::Op::Remove(proto::Elements { elements }),
        SetOp::Reset => set_op::Op::Reset(proto::Reset {}),
    };
    proto::SetOp { op: Some(op) }
}

fn show_flag(op: &FlagOp) -> proto::FlagOp {
    match op {
        FlagOp::Enable => proto::FlagOp::Enable,
        FlagOp::Disable => proto::FlagOp::Disable,
        FlagOp::Reset => proto::FlagOp::Reset,
    }
}

/// Converts a message into an update. It does not check that a value can be changed like that:
/// [`Update::validate`] does.
pub fn parse(message: proto::Update) -> Result<Update, UpdateFault> {
    let path = message.path.into_iter().map(parse_step).collect::<Result<_, _>>()?;
    Ok(Update { path, op: parse_op(message.op.ok_or(NO_OP)?)? })
}

fn parse_step(message: proto::PathStep) -> Result<PathStep, UpdateFault> {
    let map = match message.map() {
        proto::MapType::GrowOnly => MapType::GrowOnly,
        proto::MapType::Resettable => MapType::Resettable,
        proto::MapType::Unspecified => return Err(NO_MAP),
    };
    Ok(PathStep { map, field: own(&message.field) })
}

fn parse_op(message: update::Op) -> Result<Op, UpdateFault> {
    Ok(match message {
        update::Op::Counter(amount) => Op::Counter(amount),
        update::Op::ResettableCounter(message) => Op::ResettableCounter(match message.op.ok_or(NO_OP)? {
            resettable_counter_op::Op::Add(amount) => ResettableCounterOp::Add(amount),
            resettable_counter_op::Op::Reset(_) => ResettableCounterOp::Reset,
        }),
        update::Op::BoundedCounter(amount) => Op::BoundedCounter(amount),
        update::Op::TransferRights(message) => {
            let to = u8::try_from(message.to).ok().and_then(DcId::new);
            let to = to.ok_or(UpdateFault("`transfer_rights.to`: no datacenter has that number"))?;
            Op::TransferRights { to, amount: message.amount }
        }
        update::Op::LwwRegister(value) => Op::LwwRegister(own(&value)),
        update::Op::MvRegister(message) => Op::MvRegister(match message.op.ok_or(NO_OP)? {
            register_op::Op::Assign(value) => RegisterOp::Assign(own(&value)),
            register_op::Op::Reset(_) => RegisterOp::Reset,
        }),
        update::Op::Versioned(proto::VersionedOp { version, value, done }) => {
            Op::Versioned { version, value: own(&value), done }
        }
        update::Op::AddWinsSet(message) => Op::AddWinsSet(parse_set(message)?),
        update::Op::RemoveWinsSet(message) => Op::RemoveWinsSet(parse_set(message)?),
        update::Op::GrowOnlySet(message) => Op::GrowOnlySet(own_all(message)),
        update::Op::EnableWinsFlag(raw) => Op::EnableWinsFlag(parse_flag(raw)?),
        update::Op::DisableWinsFlag(raw) => Op::DisableWinsFlag(parse_flag(raw)?),
        update::Op::ResettableMap(message) => Op::ResettableMap(match message.op.ok_or(NO_OP)? {
            map_op::Op::Remove(fields) => MapOp::Remove(own_all(fields)),
            map_op::Op::Reset(_) => MapOp::Reset,
        }),
    })
}

/// Copies bytes that are kept for long. A slice of the frame in which they arrived would keep the whole frame
/// in memory.
fn own(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}

fn own_all(elements: proto::Elements) -> Vec<Bytes> {
    elements.elements.iter().map(own).collect()
}

fn parse_set(message: proto::SetOp) -> Result<SetOp, UpdateFault> {
    Ok(match message.op.ok_or(NO_OP)? {
        set_op::Op::Add(elements) => SetOp::Add(own_all(elements)),
        set_op::Op::Remove(elements) => SetOp::Remove(own_all(elements)),
        set_op::Op::Reset(_) => SetOp::Reset,
    })
}

fn parse_flag(raw: i32) -> Result<FlagOp, UpdateFault> {
    match proto::FlagOp::try_from(raw) {
        Ok(proto::FlagOp::Enable) => Ok(FlagOp::Enable),
        Ok(proto::FlagOp::Disable) => Ok(FlagOp::Disable),
        Ok(proto::FlagOp::Reset) => Ok(FlagOp::Reset),
        Ok(proto::FlagOp::Unspecified) | Err(_) => Err(NO_FLAG),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn every_operation_comes_back_as_it_was() {
        let bytes = Bytes::from_static;
        let all = || vec![bytes(b"a"), bytes(b"\xff")];
        let to = DcId::new(63).expect("the last one");
        let flags = || [FlagOp::Enable, FlagOp::Disable, FlagOp::Reset];
        let mut ops = vec![
            Op::Counter(-5),
            Op::ResettableCounter(ResettableCounterOp::Add(i64::MIN)),
            Op::ResettableCounter(ResettableCounterOp::Reset),
            Op::BoundedCounter(5),
            Op::TransferRights { to, amount: u64::MAX },
            Op::LwwRegister(bytes(b"")),
            Op::MvRegister(RegisterOp::Assign(bytes(b"v"))),
            Op::MvRegister(RegisterOp::Reset),
            Op::Versioned { version: 7, value: bytes(b"v"), done: true },
            Op::GrowOnlySet(all()),
            Op::ResettableMap(MapOp::Remove(all())),
            Op::ResettableMap(MapOp::Reset),
        ];
        ops.extend(flags().map(Op::EnableWinsFlag));
        ops.extend(flags().map(Op::DisableWinsFlag));
        for set in [Op::AddWinsSet, Op::RemoveWinsSet] {
            ops.extend([SetOp::Add(all()), SetOp::Remove(vec![]), SetOp::Reset].map(set));
        }
        for op in ops {
            let path =
                [MapType::GrowOnly, MapType::Resettable].map(|map| PathStep { map, field: bytes(b"f") });
            let update = Update { path: path.into(), op };
            assert_eq!(parse(show(update.clone())), Ok(update));
        }
    }

    #[test]
    fn what_says_nothing_is_no_operation() {
        assert_eq!(parse(proto::Update::default()), Err(NO_OP));
        let flag = proto::Update { path: vec![], op: Some(update::Op::EnableWinsFlag(9)) };
        assert_eq!(parse(flag), Err(NO_FLAG));
        let mut pathless = show(Update::of(Op::Counter(1)));
        pathless.path.push(proto::PathStep::default());
        assert_eq!(parse(pathless), Err(NO_MAP));
    }
}
