//! The operations on values, as callers write them.

use bytes::Bytes;

use super::{FlagOp, MapOp, MapType, Op, PathStep, RegisterOp, ResettableCounterOp, SetOp, Update};
use crate::names::DcId;

/// Operations on a key's own value. [`Update::in_field`] applies one to a field of a map. For the results of
/// concurrent operations see [`crdt::value`](crate::value).
impl Update {
    /// Adds to a counter; `amount` may be negative.
    pub fn counter(amount: i64) -> Update {
        Update::of(Op::Counter(amount))
    }

    /// Adds to a counter that can be reset.
    pub fn resettable_counter(amount: i64) -> Update {
        Update::of(Op::ResettableCounter(ResettableCounterOp::Add(amount)))
    }

    /// Subtracts from a resettable counter everything that the transaction's snapshot shows.
    pub fn resettable_counter_reset() -> Update {
        Update::of(Op::ResettableCounter(ResettableCounterOp::Reset))
    }

    /// Adds to a counter that is never negative. A decrement is refused if this datacenter has not enough
    /// rights.
    pub fn bounded_counter(amount: i64) -> Update {
        Update::of(Op::BoundedCounter(amount))
    }

    /// Transfers rights to decrement a bounded counter to another datacenter.
    pub fn transfer_rights(to: DcId, amount: u64) -> Update {
        Update::of(Op::TransferRights { to, amount })
    }

    /// Assigns a register whose last writer wins.
    pub fn register(value: impl Into<Bytes>) -> Update {
        Update::of(Op::LwwRegister(value.into()))
    }

    /// Assigns a register that shows all concurrent values.
    pub fn multi_value(value: impl Into<Bytes>) -> Update {
        Update::of(Op::MvRegister(RegisterOp::Assign(value.into())))
    }

    /// Assigns a versioned value. Refused unless `version` is above the one that is there.
    pub fn versioned(version: u64, value: impl Into<Bytes>) -> Update {
        Update::of(Op::Versioned { version, value: value.into(), done: false })
    }

    /// As [`Update::versioned`], for the last time: the key is removed once the write is applied in every
    /// datacenter.
    pub fn versioned_done(version: u64, value: impl Into<Bytes>) -> Update {
        Update::of(Op::Versioned { version, value: value.into(), done: true })
    }

    /// Adds to a set in which an add survives a concurrent remove.
    pub fn set_add<T: Into<Bytes>>(elements: impl IntoIterator<Item = T>) -> Update {
        Update::of(Op::AddWinsSet(SetOp::Add(all(elements))))
    }

    /// Removes from an add-wins set.
    pub fn set_remove<T: Into<Bytes>>(elements: impl IntoIterator<Item = T>) -> Update {
        Update::of(Op::AddWinsSet(SetOp::Remove(all(elements))))
    }

    /// Adds to a set in which a remove wins over a concurrent add.
    pub fn remove_wins_add<T: Into<Bytes>>(elements: impl IntoIterator<Item = T>) -> Update {
        Update::of(Op::RemoveWinsSet(SetOp::Add(all(elements))))
    }

    /// Removes from a remove-wins set.
    pub fn remove_wins_remove<T: Into<Bytes>>(elements: impl IntoIterator<Item = T>) -> Update {
        Update::of(Op::RemoveWinsSet(SetOp::Remove(all(elements))))
    }

    /// Adds to a set that only grows.
    pub fn grow_only_add<T: Into<Bytes>>(elements: impl IntoIterator<Item = T>) -> Update {
        Update::of(Op::GrowOnlySet(all(elements)))
    }

    /// Sets a flag that stays enabled when it is disabled concurrently.
    pub fn enable_wins(to: FlagOp) -> Update {
        Update::of(Op::EnableWinsFlag(to))
    }

    /// Sets a flag that is disabled when it is enabled concurrently.
    pub fn disable_wins(to: FlagOp) -> Update {
        Update::of(Op::DisableWinsFlag(to))
    }

    /// Removes fields of a resettable map, with all of their content that the transaction's snapshot shows.
    pub fn remove_fields<T: Into<Bytes>>(fields: impl IntoIterator<Item = T>) -> Update {
        Update::of(Op::ResettableMap(MapOp::Remove(all(fields))))
    }

    /// The same operation on a field of a grow-only map: `Update::register("Oslo").in_field("city")`. Call it
    /// again for a map around that one; the field named last is the outermost.
    #[must_use]
    pub fn in_field(self, field: impl Into<Bytes>) -> Update {
        self.within(MapType::GrowOnly, field.into())
    }

    /// As [`Update::in_field`], for a map whose fields can be removed: its fields can be sets, flags,
    /// multi-value registers, resettable counters and resettable maps.
    #[must_use]
    pub fn in_resettable_field(self, field: impl Into<Bytes>) -> Update {
        self.within(MapType::Resettable, field.into())
    }

    fn within(mut self, map: MapType, field: Bytes) -> Update {
        self.path.insert(0, PathStep { map, field });
        self
    }
}

fn all<T: Into<Bytes>>(elements: impl IntoIterator<Item = T>) -> Vec<Bytes> {
    elements.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_field_named_is_the_outermost() {
        let update = Update::register("Oslo").in_field("city").in_field("address");
        let fields: Vec<&[u8]> = update.path.iter().map(|step| &step.field[..]).collect();
        assert_eq!(fields, [&b"address"[..], b"city"]);
        assert!(update.validate().is_ok());
        assert!(Update::register("Oslo").in_resettable_field("city").validate().is_err());
        assert!(Update::set_add(["a"]).in_resettable_field("tags").validate().is_ok());
    }
}
