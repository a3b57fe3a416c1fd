//! The encoding of names and keys in the messages between datacenters and in the journal: checked when they
//! are read, as the bytes come from a peer or a disk.

use std::fmt;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::keys::Key;
use crate::names::{DcId, LockName, MAX_DCS, MAX_LOCK_NAME};

impl<'de> Deserialize<'de> for DcId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DcId, D::Error> {
        let id = u8::deserialize(deserializer)?;
        DcId::new(id)
            .ok_or_else(|| de::Error::custom(format_args!("datacenter {id}: ids are below {MAX_DCS}")))
    }
}

impl Serialize for LockName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for LockName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LockName, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = LockName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a lock name of 1 to {MAX_LOCK_NAME} bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<LockName, E> {
                LockName::new(bytes).map_err(E::custom)
            }
        }
        deserializer.deserialize_bytes(Visitor)
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
