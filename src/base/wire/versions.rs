//! The versions of the protocol between datacenters.

use std::ops::RangeInclusive;

/// The versions of the protocol between datacenters that this release speaks: of two datacenters on a link
/// the highest common one is used.
pub const VERSIONS: RangeInclusive<u16> = 1..=7;

/// The protocol version of links that this release speaks, besides all earlier ones. Version 3 adds messages
/// about acknowledgements, version 4 the control group, version 5 the lengths of leases, version 6 compacted
/// decisions. From version 7 on the part of a new member is split off after it is settled.
pub const PROTOCOL_VERSION: u16 = 7;
/// The version of a server that acts as the next release, in tests and in the simulator.
pub const NEXT_VERSION: u16 = PROTOCOL_VERSION + 1;
/// The protocol version from which on links have a lane for the control group, and servers can join.
pub const CONTROL_VERSION: u16 = 4;
/// The protocol version from which on members tell how long the leases of their clients may be.
pub const LEASES_VERSION: u16 = 5;
/// The protocol version from which on members compact decisions.
pub const COMPACTS_VERSION: u16 = 6;
/// The protocol version from which on a sponsor splits a part off when its member is settled, not before.
pub const SETTLES_FIRST_VERSION: u16 = 7;

/// Returns the version that a cluster has to decide on before it uses what members of this version speak. One
/// that adds a message to links, or an order of entries that earlier ones read, too, needs no decision: each
/// link knows the version of its two ends, and one that speaks less than all did once is refused.
pub fn to_decide(spoken: u16) -> u16 {
    if (LEASES_VERSION..=SETTLES_FIRST_VERSION).contains(&spoken) { CONTROL_VERSION } else { spoken }
}

// Links negotiate the highest version of both.
const _: () = assert!(PROTOCOL_VERSION == *VERSIONS.end(), "the newest version is spoken");
