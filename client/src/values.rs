//! Values that were read, and the types as which they can be used.

use bytes::Bytes;

use geolock_api::proto::{self, value};
use geolock_api::value::{Reading, Type, VersionedReading};

/// The value of a key, or of a field of a map. A key without a value can be used as any type: it is the empty
/// value of that type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value(Option<Reading>);

/// A value was used as another type than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value has type {is}, it was read as {wanted}")]
pub struct WrongType {
    /// The type of the value.
    pub is: Type,
    /// The type as which it was used; of types that read alike, the first.
    pub wanted: Type,
}

impl Value {
    /// Returns the value, or `None` for a key without one.
    pub fn reading(&self) -> Option<&Reading> {
        self.0.as_ref()
    }

    /// Returns the value, or `None` for a key without one.
    pub fn into_reading(self) -> Option<Reading> {
        self.0
    }

    /// Returns true if there is a value.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the value of a counter of any kind.
    pub fn counter(&self) -> Result<i64, WrongType> {
        match &self.0 {
            None => Ok(0),
            Some(Reading::Counter(count) | Reading::ResettableCounter(count)) => Ok(*count),
            Some(Reading::BoundedCounter { value, .. }) => Ok(i64::try_from(*value).unwrap_or(i64::MAX)),
            Some(other) => Err(wrong(other, Type::Counter)),
        }
    }

    /// Returns the value of a last-writer-wins register.
    pub fn register(&self) -> Result<Option<&Bytes>, WrongType> {
        match &self.0 {
            None => Ok(None),
            Some(Reading::LwwRegister(value)) => Ok(value.as_ref()),
            Some(other) => Err(wrong(other, Type::LwwRegister)),
        }
    }

    /// Returns the value of a multi-value register: all values that were assigned concurrently, in order.
    pub fn multi_value(&self) -> Result<&[Bytes], WrongType> {
        match &self.0 {
            None => Ok(&[]),
            Some(Reading::MvRegister(values)) => Ok(values),
            Some(other) => Err(wrong(other, Type::MvRegister)),
        }
    }

    /// Returns a versioned value.
    pub fn versioned(&self) -> Result<Option<&VersionedReading>, WrongType> {
        match &self.0 {
            None => Ok(None),
            Some(Reading::Versioned(versioned)) => Ok(versioned.as_ref()),
            Some(other) => Err(wrong(other, Type::Versioned)),
        }
    }

    /// Returns the elements of a set of any kind, in order.
    pub fn set(&self) -> Result<&[Bytes], WrongType> {
        match &self.0 {
            None => Ok(&[]),
            Some(Reading::Set(_, elements)) => Ok(elements),
            Some(other) => Err(wrong(other, Type::AddWinsSet)),
        }
    }

    /// Returns the value of a flag of either kind.
    pub fn flag(&self) -> Result<bool, WrongType> {
        match &self.0 {
            None => Ok(false),
            Some(Reading::Flag(_, is_set)) => Ok(*is_set),
            Some(other) => Err(wrong(other, Type::EnableWinsFlag)),
        }
    }

    /// Returns the value in a field of a map of either kind.
    pub fn field(&self, name: impl AsRef<[u8]>) -> Result<Value, WrongType> {
        match &self.0 {
            None => Ok(Value(None)),
            Some(Reading::Map(_, fields)) => {
                let found = fields.iter().find(|(field, _)| field[..] == *name.as_ref());
                Ok(Value(found.map(|(_, reading)| reading.clone())))
            }
            Some(other) => Err(wrong(other, Type::GrowOnlyMap)),
        }
    }
}

fn wrong(reading: &Reading, wanted: Type) -> WrongType {
    WrongType { is: reading.value_type(), wanted }
}

impl From<Reading> for Value {
    fn from(reading: Reading) -> Value {
        Value(Some(reading))
    }
}

/// A type that this client does not know reads as no value. Decoding has already bounded the nesting depth.
impl From<proto::Value> for Value {
    fn from(message: proto::Value) -> Value {
        Value(message.reading.map(reading))
    }
}

fn reading(message: value::Reading) -> Reading {
    match message {
        value::Reading::Counter(count) => Reading::Counter(count),
        value::Reading::ResettableCounter(count) => Reading::ResettableCounter(count),
        value::Reading::BoundedCounter(read) => {
            Reading::BoundedCounter { value: read.value, rights: read.rights }
        }
        value::Reading::LwwRegister(read) => Reading::LwwRegister(read.value),
        value::Reading::MvRegister(values) => Reading::MvRegister(values.elements),
        value::Reading::Versioned(proto::VersionedReading { version, value, done }) => {
            Reading::Versioned(value.map(|value| VersionedReading { version, value, done }))
        }
        value::Reading::AddWinsSet(set) => Reading::Set(Type::AddWinsSet, set.elements),
        value::Reading::RemoveWinsSet(set) => Reading::Set(Type::RemoveWinsSet, set.elements),
        value::Reading::GrowOnlySet(set) => Reading::Set(Type::GrowOnlySet, set.elements),
        value::Reading::EnableWinsFlag(is_set) => Reading::Flag(Type::EnableWinsFlag, is_set),
        value::Reading::DisableWinsFlag(is_set) => Reading::Flag(Type::DisableWinsFlag, is_set),
        value::Reading::GrowOnlyMap(map) => Reading::Map(Type::GrowOnlyMap, fields(map)),
        value::Reading::ResettableMap(map) => Reading::Map(Type::ResettableMap, fields(map)),
    }
}

fn fields(map: proto::MapReading) -> Vec<(Bytes, Reading)> {
    let field = |field: proto::FieldReading| Some((field.field, reading(field.value?.reading?)));
    map.fields.into_iter().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_every_types_empty_value() {
        let nothing = Value::default();
        assert_eq!((nothing.counter(), nothing.register(), nothing.flag()), (Ok(0), Ok(None), Ok(false)));
        assert_eq!((nothing.set(), nothing.multi_value()), (Ok(&[][..]), Ok(&[][..])));
        assert_eq!(nothing.field("a"), Ok(Value::default()));
    }

    #[test]
    fn a_value_is_used_as_what_it_is() {
        let message = proto::Value { reading: Some(value::Reading::Counter(5)) };
        let value = Value::from(message.clone());
        assert_eq!(value.counter(), Ok(5));
        let error = value.set().expect_err("it is a counter");
        assert_eq!(error.to_string(), "the value has type counter, it was read as add-wins set");
        let field = proto::FieldReading { field: Bytes::from_static(b"f"), value: Some(message) };
        let map = proto::MapReading { fields: vec![field] };
        let map = Value::from(proto::Value { reading: Some(value::Reading::GrowOnlyMap(map)) });
        assert_eq!(map.field("f").and_then(|field| field.counter()), Ok(5));
        assert_eq!(map.field("g"), Ok(Value::default()));
    }
}
