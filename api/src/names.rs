//! Names and ids, as types: parsed at the edge, trusted inside.

use std::fmt;
use std::sync::Arc;

mod lock_name;

pub use lock_name::{LockName, LockNameError, MAX_LOCK_NAME};

/// Maximum number of members of a cluster: a set of datacenters fits one machine word.
pub const MAX_DCS: usize = 64;
/// Maximum number of a request or a move of a part that is accepted from outside. Counting never reaches it,
/// and counting on from it stays far below the limit of every type.
pub const MAX_NUMBER: u64 = 1 << 54;
/// The same for the number of an entry, of which the upper bits say how often its datacenter's id was given
/// out before.
pub const MAX_ENTRY: u64 = 1 << 62;
/// Maximum length of a client label, in bytes.
pub const MAX_LABEL: usize = 256;
/// Maximum length of the reason of a force release, in bytes.
pub const MAX_FORCE_REASON: usize = 256;

/// The number of an entry in the log of a datacenter, for people: `1/5` is the fifth entry of generation 1,
/// the second server that had that id; of the first one it is `5`. For programs it is one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EntryNumber(pub u64);

impl EntryNumber {
    /// Number of bits that count within a generation. The upper ones are the generation.
    pub const COUNT_BITS: u32 = 48;

    /// Returns how many servers had the id of the datacenter before.
    pub const fn generation(self) -> u64 {
        self.0 >> EntryNumber::COUNT_BITS
    }

    /// Returns the number of the entry in the log of its server. The first one has number 1.
    pub const fn count(self) -> u64 {
        self.0 & ((1 << EntryNumber::COUNT_BITS) - 1)
    }
}

impl fmt::Display for EntryNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation() {
            0 => write!(f, "{}", self.count()),
            generation => write!(f, "{generation}/{}", self.count()),
        }
    }
}

/// A datacenter (DC): a member of the cluster. A small integer, below [`MAX_DCS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DcId(u8);

impl DcId {
    /// Returns `None` if `id` is not below [`MAX_DCS`].
    pub const fn new(id: u8) -> Option<DcId> {
        if (id as usize) < MAX_DCS { Some(DcId(id)) } else { None }
    }

    /// Returns the number of the datacenter.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number of the datacenter, as an index into a table of [`MAX_DCS`] rows.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dc{}", self.0)
    }
}

impl fmt::Debug for DcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of datacenters, or of the parts of one lock: bit `i` is [`DcId`] `i`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DcSet(u64);

impl DcSet {
    /// The set without members.
    pub const EMPTY: DcSet = DcSet(0);

    /// Returns the set whose only member is `dc`.
    pub const fn only(dc: DcId) -> DcSet {
        DcSet(1 << dc.0)
    }

    /// Returns true if `dc` is a member.
    pub const fn contains(self, dc: DcId) -> bool {
        self.0 & (1 << dc.0) != 0
    }

    /// Adds `dc`, if it is not a member.
    pub const fn insert(&mut self, dc: DcId) {
        self.0 |= 1 << dc.0;
    }

    /// Removes `dc`, if it is a member.
    pub const fn remove(&mut self, dc: DcId) {
        self.0 &= !(1 << dc.0);
    }

    /// Returns true if there is no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of members.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the members of either set.
    pub const fn union(self, other: DcSet) -> DcSet {
        DcSet(self.0 | other.0)
    }

    /// Returns the members of both sets.
    pub const fn intersection(self, other: DcSet) -> DcSet {
        DcSet(self.0 & other.0)
    }

    /// Returns the members of this set that are not members of `other`.
    pub const fn difference(self, other: DcSet) -> DcSet {
        DcSet(self.0 & !other.0)
    }

    /// Returns true if all members of `other` are members of this set.
    pub const fn is_superset(self, other: DcSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the members in increasing order.
    pub fn iter(self) -> impl Iterator<Item = DcId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let lowest = rest.trailing_zeros() as u8;
                rest &= rest - 1;
                DcId(lowest)
            })
        })
    }
}

impl FromIterator<DcId> for DcSet {
    fn from_iter<I: IntoIterator<Item = DcId>>(dcs: I) -> DcSet {
        let mut set = DcSet::EMPTY;
        dcs.into_iter().for_each(|dc| set.insert(dc));
        set
    }
}

impl fmt::Debug for DcSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Description of the names that [`is_plain`] accepts.
pub const PLAIN: &str = "1 to 64 of a-z, 0-9 and -";

/// Returns true if a cluster or a datacenter can have this name: it is part of addresses, files and metrics.
pub fn is_plain(name: &str) -> bool {
    let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// The id of a cluster, in its messages and files.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClusterId(u64);

impl ClusterId {
    /// Returns the id of the cluster called `name`: its FNV-1a hash, so operators have to keep only the name
    /// equal in all configurations.
    pub fn of(name: &str) -> ClusterId {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        ClusterId(hash)
    }

    /// Returns the id as a number, for messages and files.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the id that [`ClusterId::get`] returned as `raw`.
    pub const fn from_raw(raw: u64) -> ClusterId {
        ClusterId(raw)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns true if a character of foreign text, displayed to a person, has another effect than being seen: it
/// controls the terminal, ends the line, changes the direction of the text, or is invisible.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The id of a request for locks: the `n`-th of `dc`. Unique for ever, also across restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestId {
    /// The datacenter where a client made the request.
    pub dc: DcId,
    /// The number of the request in that datacenter. Leases and requests share one series of numbers.
    pub n: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.dc, self.n)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of a lease. Positive; the low byte is the datacenter that opened the lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseId(u64);

impl LeaseId {
    /// Returns the id of a lease of `dc` with number `n`, which is positive and below 2^55. Requests and
    /// leases share one series of numbers.
    pub fn new(dc: DcId, n: u64) -> LeaseId {
        assert!((1..1 << 55).contains(&n), "lease numbers are positive and below 2^55, this is {n}");
        LeaseId(n << 8 | u64::from(dc.0))
    }

    /// Returns the id that [`LeaseId::get`] returned as `raw`. Any number is accepted: [`LeaseId::dc`] says
    /// if it can be an id.
    pub const fn from_raw(raw: u64) -> LeaseId {
        LeaseId(raw)
    }

    /// Returns the id as a number, for messages.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number that the id was made from.
    pub const fn n(self) -> u64 {
        self.0 >> 8
    }

    /// Returns the datacenter that opened the lease, or `None` if this cannot be the id of a lease.
    pub const fn dc(self) -> Option<DcId> {
        DcId::new(self.0 as u8)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {self}")
    }
}

/// A reason for which some text is refused as the reason of a force release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForceReasonError {
    /// The text has only blanks, or nothing.
    #[error("say why: a reason has at least one character that is no blank")]
    Empty,
    /// The text has this many bytes, more than [`MAX_FORCE_REASON`].
    #[error("a reason has at most {MAX_FORCE_REASON} bytes; this one has {0}")]
    TooLong(usize),
    /// The text has a control character, such as the end of a line.
    #[error("a reason is one line of text, without control characters")]
    Control,
}

/// The reason of a force release, for people: a line of 1 to [`MAX_FORCE_REASON`] bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String"))]
pub struct ForceReason(Arc<str>);

impl ForceReason {
    /// Copies the text, if it is one line of 1 to [`MAX_FORCE_REASON`] bytes that are not all blank.
    pub fn new(text: &str) -> Result<ForceReason, ForceReasonError> {
        match text.len() {
            _ if text.trim().is_empty() => Err(ForceReasonError::Empty),
            len if len > MAX_FORCE_REASON => Err(ForceReasonError::TooLong(len)),
            _ if text.chars().any(char::is_control) => Err(ForceReasonError::Control),
            _ => Ok(ForceReason(text.into())),
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ForceReason {
    type Error = ForceReasonError;

    fn try_from(text: String) -> Result<ForceReason, ForceReasonError> {
        ForceReason::new(&text)
    }
}

impl fmt::Display for ForceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An idempotency key: a client's number for a request or a transaction, increasing within its lease. A retry
/// has the same key.
pub type IdempotencyKey = u64;

/// Proves that a client owns a lease. The server makes it from a secure source; nothing logs it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Secret([u8; 16]);

impl Secret {
    /// Returns a secret of these bytes, which should be random.
    pub const fn new(bytes: [u8; 16]) -> Secret {
        Secret(bytes)
    }

    /// Returns the bytes, for messages.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Compares in constant time, so the duration does not reveal how many bytes were right.
    pub fn matches(&self, other: &Secret) -> bool {
        self.0.iter().zip(other.0).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}

/// A fencing token. Tokens strictly increase along the conflicting grants of a lock, across datacenters and
/// restarts. So a resource that refuses writes with a smaller token than it has seen cannot be written by a
/// late former holder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FencingToken(pub u64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.0)
    }
}

/// The number of a record in the journal: 1 for the first one ever, without gaps; 0 before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Position(pub u64);

/// A mode of a lock. Two requests conflict on a lock unless both are shared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mode {
    /// Other requests in shared mode may hold the lock at the same time.
    Shared,
    /// No other request holds the lock at the same time.
    Exclusive,
}

impl Mode {
    /// Returns true if one lock cannot be held in both modes at the same time.
    pub const fn conflicts_with(self, other: Mode) -> bool {
        matches!((self, other), (Mode::Exclusive, _) | (_, Mode::Exclusive))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Shared => "shared",
            Mode::Exclusive => "exclusive",
        })
    }
}
