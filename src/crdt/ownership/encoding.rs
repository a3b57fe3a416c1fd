//! The ownership map in messages and on disk: the rows, each with its registers.

use std::collections::BTreeSet;

use serde::de::{Deserializer, Error as _};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::recency::Use;
use super::{Ownership, Register, Registers, Row};
use geolock_api::names::{LockName, MAX_DCS, MAX_NUMBER};

impl Serialize for Ownership {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.rows.len()))?;
        for row in self.rows.iter() {
            sequence
                .serialize_element(&(&row.lock, row.registers.iter().map(|r| r.0).collect::<Vec<_>>()))?;
        }
        sequence.end()
    }
}

impl<'de> Deserialize<'de> for Ownership {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ownership, D::Error> {
        let rows = Vec::<(LockName, Vec<u64>)>::deserialize(deserializer)?;
        // No client knows all names, so none can choose names that collide.
        let seed = rows.iter().fold(0, |seed, (lock, _)| xxh3_64_with_seed(lock.identity(), seed));
        let (mut map, mut home) = (Ownership::new(seed), BTreeSet::new());
        for (lock, registers) in rows {
            let mut registers: Registers = registers.into_iter().map(Register).collect();
            let fault = |what: &str| Err(D::Error::custom(format_args!("lock {lock}: {what}")));
            if registers.len() > MAX_DCS {
                return fault("more parts than there are datacenters");
            }
            let says_nothing = |r: &Register| *r == Register::default() || r.is_home();
            if registers.iter().any(|r| !says_nothing(r) && r.owner().is_none()) {
                return fault("the owner of a part is no datacenter");
            }
            if registers.iter().any(|r| r.version() > MAX_NUMBER) {
                return fault("no part ever moved so often");
            }
            if map.find(&lock).is_some() || home.contains(&lock) {
                return fault("it is there twice");
            }
            // Written by a version in which parts kept their registers at home, and no lock had a home.
            for (part, register) in (0_u8..).zip(&mut registers).filter(|_| lock.home().is_none()) {
                if register.owner().is_some_and(|owner| owner.get() == part) {
                    *register = Register::default();
                }
            }
            let row = Row { lock, registers, usage: Use::UNKNOWN };
            if row.is_empty() {
                home.insert(row.lock);
            } else {
                map.push(row);
            }
        }
        Ok(map)
    }
}
