//! The messages of a server that joins and the member that it asks. Wire types: append only, with golden
//! bytes in the tests.

use serde::{Deserialize, Serialize};

use crate::membership::{Address, AgreedOptions, Credentials, Generation, MemberName, ServerId};
use geolock_api::names::DcId;

/// The request of a server to become a member. Its slot is that of its certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum JoinRequest {
    V1 {
        /// The id of its data directory.
        server: ServerId,
        name: MemberName,
        /// The address at which other members reach it.
        address: Address,
        credentials: Credentials,
    },
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum JoinAnswer {
    /// It is a member, by a decision that names its id: it may start, and gets its state from the others.
    Admitted(Admitted),
    /// It may become one: it asks again. The text says what has to happen before.
    Wait(String),
    /// It does not become one, and nothing was changed. The text says why, and what to do.
    Refused(String),
}

/// Everything that a new member needs to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Admitted {
    /// The number of servers that had its slot before.
    pub generation: Generation,
    /// All members, the new one included.
    pub members: Vec<AdmittedMember>,
    pub options: AgreedOptions,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct AdmittedMember {
    pub dc: DcId,
    pub name: MemberName,
    pub address: Address,
}
