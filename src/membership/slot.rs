//! A slot of the cluster: its member, and the generations that are over.

use geolock_api::names::DcId;
use serde::{Deserialize, Serialize};

use super::ids::{Address, Epoch, Generation, MemberName, ServerId};

/// Most generations that are over of which a slot is remembered. Older ones have no entry that any member
/// could still send: later ends were entered only with all entries before them.
pub const MAX_PAST: usize = 16;

/// A slot that was given out at least once.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Slot {
    /// The member that has the slot, if one has.
    pub member: Option<Member>,
    /// The last generations that are over, in increasing order; at most [`MAX_PAST`].
    pub past: Vec<Past>,
}

/// A member: a part of every lock, a log, and all data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The generation in the slot.
    pub generation: Generation,
    /// The server.
    pub server: ServerId,
    /// Its name.
    pub name: MemberName,
    /// The address at which others reach it.
    pub address: Address,
    /// How far the member is.
    pub phase: Phase,
    /// The member whose parts its parts go with until it is settled; then the member itself.
    pub sponsor: DcId,
    /// The epoch of its admission.
    pub admitted: Epoch,
    /// It is to vote if there is room.
    pub wants_vote: bool,
}

/// How far a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Admitted; its parts go with those of its sponsor.
    Joining,
    /// Settled: its parts are its own.
    Settled,
    /// Settled, and handing its parts back.
    Leaving,
}

/// A generation that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Past {
    /// The generation in the slot.
    pub generation: Generation,
    /// The server.
    pub server: ServerId,
    /// The epoch of its admission.
    pub admitted: Epoch,
    /// The epoch of its end.
    pub ended: Epoch,
    /// The number of its last entry that counts; [`Generation::base`] if none does.
    pub cut: u64,
    /// The way in which it ended.
    pub cause: EndCause,
}

/// The way in which a generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EndCause {
    /// It left, in order.
    Left,
    /// It was evicted, and an operator vouched that it does not run.
    Evicted,
    /// It was evicted by silence. Parts of locks with the rule `evict = operator` have not fallen home.
    EvictedBySilence,
    /// Forced recovery continued without it.
    Lost,
}

/// A voter without data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Witness {
    /// The id with which it has links and a certificate. Only one witness, and no member, ever has it.
    pub dc: DcId,
    /// The server.
    pub server: ServerId,
    /// Its name.
    pub name: MemberName,
    /// The address at which others reach it.
    pub address: Address,
}

impl Past {
    /// Returns true if a log of which the last applied entry is `applied` has all entries that count.
    pub fn is_reached_by(&self, applied: u64) -> bool {
        applied >= self.cut || self.cut == self.generation.base()
    }
}

impl Slot {
    /// Returns the generation that the slot's next member has, or `None` if there was the last one. The slot
    /// has no member.
    pub(super) fn next_generation(&self) -> Option<Generation> {
        match self.past.last() {
            Some(past) => past.generation.next(),
            None => Some(Generation(0)),
        }
    }

    /// Ends the generation of its member.
    pub(super) fn end(&mut self, ended: Epoch, cut: u64, cause: EndCause) {
        let Some(member) = self.member.take() else { return };
        if self.past.len() == MAX_PAST {
            self.past.remove(0);
        }
        self.past.push(Past {
            generation: member.generation,
            server: member.server,
            admitted: member.admitted,
            ended,
            cut,
            cause,
        });
    }
}
