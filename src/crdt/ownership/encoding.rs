//! The ownership map in messages and on disk: the rows, each with its registers.

use std::collections::BTreeSet;

use serde::de::{Deserializer, Error as _};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::row::{LockRow, Registers};
use super::{Ownership, Register};
use geolock_api::names::{DcId, LockName, MAX_DCS, MAX_NUMBER};

/// Marks the register of a plain lock's part at the member that it is named after: it is kept there, away
/// from the home of the prefix. Without it, it is one of a version in which parts at home had registers.
const KEPT: u64 = 0x80;

/// A row as it is encoded.
type EncodedRow = (LockName, Vec<u64>);

impl Serialize for Ownership {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.len()))?;
        for row in self.table.iter() {
            let kept = |(part, register): (DcId, Register)| match register.owner() == Some(part) {
                true if row.lock().home().is_none() => register.0 | KEPT,
                _ => register.0,
            };
            let registers: Vec<u64> = row.parts().map(kept).collect();
            sequence.serialize_element(&(row.lock(), registers))?;
        }
        sequence.end()
    }
}

impl<'de> Deserialize<'de> for Ownership {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ownership, D::Error> {
        let rows = Vec::<EncodedRow>::deserialize(deserializer)?;
        // No client knows all names, so none can choose names that collide.
        let seed = rows.iter().fold(0, |seed, (lock, _)| xxh3_64_with_seed(lock.identity(), seed));
        let (mut map, mut home) = (Ownership::new(seed), BTreeSet::new());
        for row in rows {
            let row = LockRow::try_from(row).map_err(D::Error::custom)?;
            let lock = row.lock();
            if map.table.find(lock).is_some() || home.contains(lock) {
                return Err(D::Error::custom(format_args!("lock {lock}: it is there twice")));
            }
            if row.is_empty() {
                home.insert(lock.clone());
            } else {
                map.table.push(row);
            }
        }
        Ok(map)
    }
}

/// A row with registers that no part can have.
#[derive(Debug, thiserror::Error)]
#[error("lock {lock}: {fault}")]
pub(super) struct BadRow {
    lock: LockName,
    fault: &'static str,
}

impl TryFrom<EncodedRow> for LockRow {
    type Error = BadRow;

    fn try_from((lock, encoded): EncodedRow) -> Result<LockRow, BadRow> {
        let mark = if lock.home().is_none() { KEPT } else { 0 };
        let mut registers: Registers = encoded.iter().map(|register| Register(register & !mark)).collect();
        if let Some(fault) = fault(&registers) {
            return Err(BadRow { lock, fault });
        }
        // Written by a version in which parts kept their registers at home, and no lock had a home.
        if lock.home().is_none() {
            let parts = (0_u8..).filter_map(DcId::new).zip(&mut registers);
            for ((part, register), encoded) in parts.zip(encoded) {
                if register.owner() == Some(part) && encoded & KEPT == 0 {
                    *register = Register::default();
                }
            }
        }
        Ok(LockRow::new(lock, registers))
    }
}

/// Returns the reason why no lock has these registers, if there is one.
fn fault(registers: &[Register]) -> Option<&'static str> {
    let says_nothing = |r: &Register| *r == Register::default() || r.is_home();
    if registers.len() > MAX_DCS {
        Some("more parts than there are datacenters")
    } else if registers.iter().any(|r| !says_nothing(r) && r.owner().is_none()) {
        Some("the owner of a part is no datacenter")
    } else if registers.iter().any(|r| r.version() > MAX_NUMBER) {
        Some("no part ever moved so often")
    } else {
        None
    }
}
