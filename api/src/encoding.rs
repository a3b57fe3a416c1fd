//! The encoding of names and keys in the messages between datacenters and in the journal: checked when they
//! are read, as the bytes come from a peer or a disk.

use std::fmt;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::keys::Key;
use crate::names::{DcId, LockName, LockNameError, MAX_DCS, MAX_LOCK_NAME};

impl<'de> Deserialize<'de> for DcId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DcId, D::Error> {
        let id = u8::deserialize(deserializer)?;
        DcId::new(id)
            .ok_or_else(|| de::Error::custom(format_args!("datacenter {id}: ids are below {MAX_DCS}")))
    }
}

/// A plain name is its bytes. A homed name is an escape that no plain name can be (no bytes), its home, and
/// its bytes. Decoders of before homed names refuse the escape as an empty name.
impl Serialize for LockName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = Bytes(self.as_bytes());
        match self.home() {
            None => bytes.serialize(serializer),
            Some(home) => (Bytes(&[]), home, bytes).serialize(serializer),
        }
    }
}

/// A string of bytes, which serde would take for a list of numbers.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// The first field of a lock name: the whole of a plain one, or the escape.
enum Start {
    Plain(LockName),
    Escape,
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Start, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Start;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a lock name of 1 to {MAX_LOCK_NAME} bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Start, E> {
                match bytes {
                    [] => Ok(Start::Escape),
                    bytes => LockName::new(bytes).map(Start::Plain).map_err(E::custom),
                }
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

impl<'de> Deserialize<'de> for LockName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LockName, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = LockName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a lock name, plain or with a home")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut fields: A) -> Result<LockName, A::Error> {
                let missing = |field| de::Error::invalid_length(field, &self);
                match fields.next_element()?.ok_or_else(|| missing(0))? {
                    Start::Plain(name) => Ok(name),
                    Start::Escape => {
                        let home: DcId = fields.next_element()?.ok_or_else(|| missing(1))?;
                        match fields.next_element()?.ok_or_else(|| missing(2))? {
                            Start::Plain(name) => {
                                LockName::homed(home, name.as_bytes()).map_err(de::Error::custom)
                            }
                            Start::Escape => Err(de::Error::custom(LockNameError::Empty)),
                        }
                    }
                }
            }
        }
        // The encoding has no framing of tuples: of a plain name one field is read, and one was written.
        deserializer.deserialize_tuple(3, Visitor)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a bucket and a key")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Key, E> {
                Key::from_bytes(bytes).map_err(E::custom)
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{BytesDeserializer, Error};

    use super::*;

    #[test]
    fn bytes_from_outside_are_keys_or_errors() {
        let key = Key::new(b"b", b"name").expect("it is a key");
        let read = |bytes| Key::deserialize(BytesDeserializer::<Error>::new(bytes));
        assert_eq!(read(key.as_bytes()).expect("it was one"), key);
        for wrong in [&[][..], &[0], &[1, 0], &[3, 5, 1, 1], &[2, 1, b'b']] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
