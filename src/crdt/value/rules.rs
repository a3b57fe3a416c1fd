//! Properties of updates that follow from how values are stored.

use geolock_api::value::{Op, SetOp, Type, Update};

/// Returns true if the present value, not only its type, decides if an update is allowed.
pub fn depends_on_state(update: &Update) -> bool {
    let leaf = update.op.value_type();
    !update.path.is_empty()
        || matches!(leaf, Type::Counter | Type::ResettableCounter | Type::BoundedCounter | Type::Versioned)
}

/// Returns true if an update may add an element to a set, or a field, or something in one, to a map.
pub fn adds_elements(update: &Update) -> bool {
    match &update.op {
        Op::AddWinsSet(op) | Op::RemoveWinsSet(op) => matches!(op, SetOp::Add(_)),
        Op::GrowOnlySet(_) => true,
        Op::ResettableMap(_) => false,
        _ => !update.path.is_empty(),
    }
}

/// Returns true if an update leaves tombstones that [`Slots::compact`](super::Slots::compact) can drop.
pub fn leaves_tombstones(update: &Update) -> bool {
    let plain = matches!(
        update.root_type(),
        Type::Counter | Type::BoundedCounter | Type::LwwRegister | Type::Versioned | Type::GrowOnlySet
    );
    !plain
}

/// Returns true if [`Slots::done_by`](super::Slots::done_by) may return a commit after the update.
pub fn may_be_the_last(update: &Update) -> bool {
    update.path.is_empty() && matches!(update.op, Op::Versioned { done: true, .. })
}
