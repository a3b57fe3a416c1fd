//! The messages of a server that is no member and the member that it asks. Wire types: append only, with
//! golden bytes in the tests.

use serde::{Deserialize, Serialize};

use super::end::ServerEnd;
use crate::membership::{Address, AgreedOptions, Credentials, Generation, MemberName, ServerId};
use geolock_api::names::DcId;

/// The request of a server. Its slot is that of its certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum JoinRequest {
    /// It asks to become a member.
    V1(Applicant),
    /// A member whose link was refused asks if its end is decided. It names the id of its data directory.
    EndOf(ServerId),
    /// It asks to become a witness: a voter without data.
    Witness(Applicant),
    /// As `V1`, of a server that lets its clients do everything, and was not told to do so beside members
    /// that have access rules.
    WithoutRules(Applicant),
}

/// A server that asks to become a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Applicant {
    /// The id of its data directory.
    pub server: ServerId,
    pub name: MemberName,
    /// The address at which other members reach it.
    pub address: Address,
    pub credentials: Credentials,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum JoinAnswer {
    /// It is a member, by a decision that names its id: it may start, and gets its state from the others.
    Admitted(Admitted),
    /// It may become one: it asks again. The text states the condition.
    Wait(String),
    /// It does not become one, and nothing was changed. The text states the reason, and the remedy.
    Refused(String),
    /// The end of the server that asks for it. `None`: none is decided, as the member knows it.
    End(Option<ServerEnd>),
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
