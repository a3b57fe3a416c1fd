//! The numbers and names that decisions use.

use std::fmt;
use std::sync::Arc;

use geolock_api::names::{DcId, MAX_ENTRY, PLAIN, is_plain};
use serde::{Deserialize, Serialize};

use crate::base::entry_number::COUNT_BITS;

/// Defines a number with a short prefix in its output.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($type:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $type);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number! {
    /// The number of a decision: 1 for the first of the list, then without gaps. Refused commands count.
    Index(u64), "n"
}
number! {
    /// The number of the last decision that every member has to enter: one that changed the members or the
    /// voters, or that concerns the policy `auto`. 0 from the first decision, [`Found`], to the next such
    /// one: entries that were made before there was a list of decisions are of epoch 0.
    ///
    /// [`Found`]: super::Command::Found
    Epoch(u64), "e"
}
number! {
    /// The number of the last decision with an effect, apart from reports of an attempt and marks of silence.
    /// A proposal names the revision it was checked against and has no effect at any other (compare and set).
    /// So a proposal that is delivered twice has its effect once.
    Revision(u64), "r"
}
number! {
    /// The number of control groups that this cluster has had before: forced recovery adds 1. Members of an
    /// earlier lineage are refused for ever.
    Lineage(u32), "l"
}
number! {
    /// The number of times that a slot was given out before: 0 for its first member. A slot is given to one
    /// server at a time, and the generation distinguishes its servers.
    Generation(u16), "g"
}
number! {
    /// The number of an eviction attempt: the index of the decision that began it.
    AttemptId(u64), "a"
}
number! {
    /// The id of a witness: the index of the decision that added it. So an id is never used again.
    WitnessId(u64), "w"
}

impl Index {
    /// Returns the number of the decision that follows.
    pub const fn next(self) -> Index {
        Index(self.0 + 1)
    }
}

impl Generation {
    /// The last generation of a slot: after it the slot cannot be given out again. Its entries are below
    /// [`MAX_ENTRY`].
    pub const MAX: Generation = Generation((MAX_ENTRY >> COUNT_BITS) as u16 - 1);

    /// Returns the number that the first entry of this generation follows: the cut of a generation that made
    /// no entry.
    pub const fn base(self) -> u64 {
        (self.0 as u64) << COUNT_BITS
    }

    /// Returns the highest number that an entry of this generation can have.
    pub const fn last(self) -> u64 {
        self.base() | ((1 << COUNT_BITS) - 1)
    }

    /// Returns the generation of the entry with number `seq`.
    pub const fn of_seq(seq: u64) -> Generation {
        Generation((seq >> COUNT_BITS) as u16)
    }

    /// Returns the generation that follows, or `None` after the last.
    pub fn next(self) -> Option<Generation> {
        (self < Generation::MAX).then(|| Generation(self.0 + 1))
    }
}

/// The random id that a data directory makes at its first start, and again when it sets its journal aside
/// because its generation is over. A server is a member only by an admission that names its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ServerId(pub [u8; 16]);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One that takes part in decisions. The generation of a member is part of its identity as a voter: a vote,
/// promise or mark of silence of one generation never counts for the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Voter {
    /// A member, in one generation.
    Member {
        /// The slot.
        dc: DcId,
        /// The generation in the slot.
        generation: Generation,
    },
    /// A voter without data.
    Witness(WitnessId),
}

impl Voter {
    /// Returns the slot of the voter, or `None` for a witness.
    pub const fn dc(self) -> Option<DcId> {
        match self {
            Voter::Member { dc, .. } => Some(dc),
            Voter::Witness(_) => None,
        }
    }
}

impl fmt::Display for Voter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Voter::Member { dc, .. } => write!(f, "{dc}"),
            Voter::Witness(id) => write!(f, "witness {id}"),
        }
    }
}

/// A reason for which some text is not a name or an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    /// It is not the name of a member.
    #[error("the name of a member is {PLAIN}; this one is {0:?}")]
    Name(String),
    /// It is not an address.
    #[error("an address is HOST:PORT, at most {MAX_ADDRESS} bytes; this one is {0:?}")]
    Address(String),
}

/// Maximum length of an address, in bytes: the longest name of a host, brackets, and a port.
pub const MAX_ADDRESS: usize = 262;

/// The name of a member or a witness: 1 to 64 of a-z, 0-9 and -. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct MemberName(Arc<str>);

impl MemberName {
    /// Copies the text, if it can be a name.
    pub fn new(text: &str) -> Result<MemberName, TextError> {
        if is_plain(text) { Ok(MemberName(text.into())) } else { Err(TextError::Name(text.to_owned())) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The address at which other members reach a member or a witness: `HOST:PORT`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Address(Arc<str>);

impl Address {
    /// Copies the text, if it has a host and a port above 0.
    pub fn new(text: &str) -> Result<Address, TextError> {
        let valid = text.len() <= MAX_ADDRESS
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && text.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !port.starts_with('+') && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
        if valid { Ok(Address(text.into())) } else { Err(TextError::Address(text.to_owned())) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = TextError;

            fn try_from(text: String) -> Result<$name, TextError> {
                $name::new(&text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text!(MemberName);
text!(Address);
