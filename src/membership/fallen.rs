//! The locks and counters that the end of members has concerned, by name.

use geolock_api::keys::Key;
use geolock_api::names::{DcSet, LockName};
use serde::{Deserialize, Serialize};

use super::ids::Epoch;

/// Most ends of members of which the names are remembered.
pub const MAX_FALLEN: usize = 16;

/// The locks and counters of members that an eviction or a forced recovery has ended, as this member saw them
/// when it entered that end. Disk type.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Fallen {
    /// The epoch, and so the decision.
    pub epoch: Epoch,
    /// The members that are over.
    pub members: DcSet,
    /// The number of locks of which they owned parts that are named after others: all these parts fell home.
    /// With very many locks the numbers of these members are added, and some locks counted of which the parts
    /// were at home before.
    pub locks: u64,
    /// Some of these locks.
    pub names: Vec<LockName>,
    /// Some of the bounded counters to which they had rights, with these.
    pub counters: Vec<(Key, u64)>,
    /// There may be more of these counters.
    pub more_counters: bool,
}
