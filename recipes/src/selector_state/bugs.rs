//! Deliberate bugs, which prove that the simulation notices bugs. Outside of tests there is none.

/// A deliberate bug of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A selection does not look at the marks of what it was granted.
    MarksIgnored,
    /// `spent` lets the locks go at once.
    SpentLetsGoAtOnce,
    /// `reserve` trusts a lock that may be lost.
    ReservedWithoutGuard,
    /// A selection that waits does not hear of new tokens.
    NewsIgnored,
    /// A selection says that a pool has not enough without reading it again.
    OldListingTrusted,
}
