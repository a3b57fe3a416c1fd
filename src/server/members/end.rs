//! The end of a server as a member: that it was evicted, or has left.
//!
//! A server usually learns it from the decisions that a member sends it. A server that was away until the
//! others had forgotten it gets no link, so it asks a member that refuses it. A member that answers so knows
//! the decision, and a decision is final.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::returning::Returning;
use super::wire::{JoinAnswer, JoinRequest};
use crate::base::wire::{self, WireError};
use crate::interdc::{JoinCallError, ask_to_join};
use crate::membership::{Address, Config, EndCause, Generation, JoinPolicy, ServerId};
use crate::pki::Credentials;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The end of a server as a member. A wire type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerEnd {
    /// Its generation in its slot.
    generation: Generation,
    /// It was evicted; otherwise it has left.
    was_evicted: bool,
    /// It may join again without an operator, and its slot is free.
    may_return: bool,
    /// The addresses of the members.
    members: Vec<Address>,
}

/// The reason why a member did not say if a server has ended.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum EndError {
    #[error(transparent)]
    Call(#[from] JoinCallError),
    #[error("the answer of {address} cannot be read: {source}")]
    Unreadable { address: String, source: WireError },
    /// It runs an earlier release, or has no decisions.
    #[error("{address} does not know: {reason}")]
    Unknown { address: String, reason: String },
}

impl ServerEnd {
    /// Returns the end of a server, if it was a member and is none any more.
    pub fn of(config: &Config, server: ServerId) -> Option<ServerEnd> {
        let members = || config.slots().members().map(|(_, member)| member.address.clone()).collect();
        if config.witnesses().is_past(server) {
            let (generation, was_evicted, may_return) = (Generation(0), false, false);
            return Some(ServerEnd { generation, was_evicted, may_return, members: members() });
        }
        let past = config.slots().end_of(server)?;
        let is_its_own = |slot: &crate::membership::Slot| slot.past.iter().any(|past| past.server == server);
        let is_free = config.slots().iter().any(|(_, slot)| is_its_own(slot) && slot.member.is_none());
        let was_evicted = past.cause != EndCause::Left;
        Some(ServerEnd {
            generation: past.generation,
            was_evicted,
            may_return: was_evicted && is_free && config.policy().rejoin == JoinPolicy::Auto,
            members: members(),
        })
    }

    /// Returns true if it was evicted; false if it has left.
    pub fn was_evicted(&self) -> bool {
        self.was_evicted
    }

    /// Returns the note with which the server joins again, if it may.
    pub fn returning(&self) -> Option<Returning> {
        let members: Vec<String> = self.members.iter().map(Address::to_string).collect();
        (self.may_return && !members.is_empty()).then(|| Returning::new(self.generation, members))
    }
}

/// Asks the member at `address` if this server has ended.
pub async fn ask_for_end(
    tls: &Credentials,
    address: &str,
    server: ServerId,
) -> Result<Option<ServerEnd>, EndError> {
    let request = wire::encode("join request", &JoinRequest::EndOf(server)).expect("it is small");
    let answer = ask_to_join(tls, address, &request, LIMIT).await?;
    let answer = wire::decode::<JoinAnswer>("join answer", &answer);
    match answer.map_err(|source| EndError::Unreadable { address: address.into(), source })? {
        JoinAnswer::End(end) => Ok(end),
        JoinAnswer::Wait(reason) | JoinAnswer::Refused(reason) => {
            Err(EndError::Unknown { address: address.into(), reason })
        }
        JoinAnswer::Admitted(_) => {
            Err(EndError::Unknown { address: address.into(), reason: "it answers another request".into() })
        }
    }
}
