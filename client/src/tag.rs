//! Pure. The subject of a call, encoded as the number that its answer repeats, so the client needs no table
//! of calls in flight.
//!
//! A request has one number for as long as the client lives, and makes each kind of call at most once per
//! stream. So no tag is reused while its call is unanswered. The same holds for calls about the lease: at
//! most one of each kind is in flight, and the pieces of a reclaim are numbered.

/// The kind of a call, with the number of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Hello,
    OpenLease,
    AttachLease,
    KeepAlive,
    CloseLease,
    /// A piece of a reclaim.
    Reclaim(u64),
    /// The request with that number.
    Acquire(u64),
    Release(u64),
    Cancel(u64),
    /// The transaction with that number.
    Begin(u64),
    /// The step of that transaction that is in flight: one at a time.
    Step(u64),
    Abort(u64),
    /// The query for the outcome of that transaction, under a lease that is lost.
    Outcome(u64),
    /// The downgrade with that number.
    Downgrade(u64),
    /// The amendment of that request: one is in flight at a time.
    Amend(u64),
}

impl Tag {
    /// Never 0, which marks messages that answer no call.
    pub(super) const fn to_wire(self) -> u64 {
        let (kind, number) = match self {
            Tag::Hello => (1, 0),
            Tag::OpenLease => (2, 0),
            Tag::AttachLease => (3, 0),
            Tag::KeepAlive => (4, 0),
            Tag::CloseLease => (5, 0),
            Tag::Reclaim(piece) => (6, piece),
            Tag::Acquire(request) => (7, request),
            Tag::Release(request) => (8, request),
            Tag::Cancel(request) => (9, request),
            Tag::Begin(txn) => (10, txn),
            Tag::Step(txn) => (11, txn),
            Tag::Abort(txn) => (12, txn),
            Tag::Outcome(txn) => (13, txn),
            Tag::Downgrade(downgrade) => (14, downgrade),
            Tag::Amend(request) => (15, request),
        };
        number << 4 | kind
    }

    /// Returns `None` for a number that this client never sent.
    pub(super) const fn from_wire(wire: u64) -> Option<Tag> {
        let number = wire >> 4;
        Some(match wire & 0xf {
            1 => Tag::Hello,
            2 => Tag::OpenLease,
            3 => Tag::AttachLease,
            4 => Tag::KeepAlive,
            5 => Tag::CloseLease,
            6 => Tag::Reclaim(number),
            7 => Tag::Acquire(number),
            8 => Tag::Release(number),
            9 => Tag::Cancel(number),
            10 => Tag::Begin(number),
            11 => Tag::Step(number),
            12 => Tag::Abort(number),
            13 => Tag::Outcome(number),
            14 => Tag::Downgrade(number),
            15 => Tag::Amend(number),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive_the_wire() {
        let tags = [
            Tag::Hello,
            Tag::OpenLease,
            Tag::AttachLease,
            Tag::KeepAlive,
            Tag::CloseLease,
            Tag::Reclaim(3),
            Tag::Acquire(1),
            Tag::Release(u64::MAX >> 4),
            Tag::Cancel(7),
            Tag::Begin(8),
            Tag::Step(9),
            Tag::Abort(10),
            Tag::Outcome(11),
            Tag::Downgrade(12),
            Tag::Amend(13),
        ];
        for tag in tags {
            assert_ne!(tag.to_wire(), 0);
            assert_eq!(Tag::from_wire(tag.to_wire()), Some(tag));
        }
        assert_eq!(Tag::from_wire(0), None);
    }
}
