//! One value of one type: the place where types are told apart.

use crate::crdt::VersionVector;
use crate::crdt::value::counter::Counter;
use crate::crdt::value::lww_register::LwwRegister;
use crate::crdt::value::{At, Op, OpError, Reading, Type};
use crate::names::DcId;

/// The state of a value.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum State {
    Counter(Counter),
    LwwRegister(LwwRegister),
}

impl State {
    pub fn new(of: Type) -> State {
        match of {
            Type::Counter => State::Counter(Counter::default()),
            Type::LwwRegister => State::LwwRegister(LwwRegister::default()),
            _ => todo!(),
        }
    }

    pub fn apply(&mut self, op: &Op, at: &At<'_>) {
        match (self, op) {
            (State::Counter(counter), Op::Counter(amount)) => counter.add(*amount),
            (State::LwwRegister(register), Op::LwwRegister(value)) => register.assign(value, at),
            (state, op) => unreachable!("{op:?} is applied to {state:?}"),
        }
    }

    pub fn check(&self, op: &Op, _me: DcId) -> Result<(), OpError> {
        match (self, op) {
            (State::Counter(counter), Op::Counter(amount)) if !counter.can_add(*amount) => {
                Err(OpError::Overflow)
            }
            _ => Ok(()),
        }
    }

    pub fn read(&self, _me: DcId) -> Reading {
        match self {
            State::Counter(counter) => Reading::Counter(counter.read()),
            State::LwwRegister(register) => Reading::LwwRegister(register.read().cloned()),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            State::Counter(counter) => *counter == Counter::default(),
            State::LwwRegister(register) => register.read().is_none(),
        }
    }

    pub fn settle(&mut self, _stable: &VersionVector) {}
}
