//! The request of an acquire.

use std::time::Duration;

use bytes::Bytes;

use super::error::{AcquireError, AmendError};
use geolock_api::names::{LockName, MAX_LABEL, Mode};
use geolock_api::proto::{self, Enough, LockMode, Reason, acquire_request};

/// Bounds of a request, as the .proto file states them.
const MAX_LOCKS: usize = 10_000;
const MAX_NAMES: usize = 1 << 20;

/// Locks to be acquired all at once, or not at all.
///
/// Without another setting the request waits for ever. Requests conflict with each other even within one
/// client: there is no re-entrancy and no upgrade. Holding one request while waiting for another can
/// deadlock; several locks in one request cannot.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    pub(super) locks: Vec<LockMode>,
    /// Instead of `locks`: enough of these.
    pub(super) enough: Option<Enough>,
    pub(super) wait: Wait,
    pub(super) label: String,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Does not wait: the datacenter answers from the parts that it has, without asking others.
    Try,
    /// Waits for this long, measured by the datacenter.
    AtMost(Duration),
    /// Waits as long as the lease lives.
    Forever,
}

impl AcquireRequest {
    /// Requests `name` in exclusive mode.
    pub fn exclusive(name: LockName) -> AcquireRequest {
        AcquireRequest::new(name, Mode::Exclusive)
    }

    /// Requests `name` in shared mode.
    pub fn shared(name: LockName) -> AcquireRequest {
        AcquireRequest::new(name, Mode::Shared)
    }

    /// Requests `name` in this mode.
    pub fn new(name: LockName, mode: Mode) -> AcquireRequest {
        let (wait, label) = (Wait::Forever, String::new());
        AcquireRequest { locks: vec![lock_mode(&name, mode)], enough: None, wait, label }
    }

    /// Requests enough of many locks: any of the [candidates](AcquireRequest::candidate) whose weights reach
    /// `amount`, all in exclusive mode, at once or none.
    ///
    /// Free candidates are taken in the order in which they are named. While the request waits it holds
    /// nothing; a candidate that becomes free takes the place of one that is not.
    /// [`LockGuard::chosen`](super::LockGuard::chosen) tells which it got. The server refuses a list that
    /// does not reach the amount ([`Reason::NotEnough`]).
    pub fn enough(amount: u64) -> AcquireRequest {
        let enough = Some(Enough { amount, most: 0, candidates: Vec::new(), revision: 0 });
        AcquireRequest { locks: Vec::new(), enough, wait: Wait::Forever, label: String::new() }
    }

    /// Adds a candidate with a weight of at least 1 to a request for [enough](AcquireRequest::enough) locks.
    /// At most 10 000, each once. Another kind of request stays as it is.
    #[must_use]
    pub fn candidate(mut self, name: &LockName, weight: u64) -> AcquireRequest {
        if let Some(enough) = &mut self.enough {
            enough.candidates.push(candidate(name, weight));
        }
        self
    }

    /// Bounds the number of locks that a request for [enough](AcquireRequest::enough) locks gets, at most
    /// 10 000; 0 is no bound. Another kind of request stays as it is.
    #[must_use]
    pub fn most(mut self, most: u32) -> AcquireRequest {
        if let Some(enough) = &mut self.enough {
            enough.most = most;
        }
        self
    }

    /// Adds a lock. The same lock twice means the stronger mode; at most 10 000 locks.
    #[must_use]
    pub fn and(mut self, name: LockName, mode: Mode) -> AcquireRequest {
        self.locks.push(lock_mode(&name, mode));
        self
    }

    /// Returns the locks in the order in which they were named, each with its mode.
    pub fn locks(&self) -> impl Iterator<Item = (LockName, Mode)> {
        self.locks.iter().filter_map(|lock| {
            let mode = match lock.mode() {
                proto::Mode::Exclusive => Mode::Exclusive,
                _ => Mode::Shared,
            };
            // Each was made from a name.
            Some((LockName::from_fields(&lock.name, lock.home).ok()?, mode))
        })
    }

    /// Sets how long the acquire waits.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> AcquireRequest {
        self.wait = wait;
        self
    }

    /// Sets the label of the holder, for people who inspect the lock. At most 256 bytes. Without a label the
    /// name of the client is shown.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> AcquireRequest {
        self.label = text.into();
        self
    }

    /// Refuses requests that the server would refuse. A message that is too large would make the server close
    /// the stream, and the same request on the next stream would close that one too.
    pub(super) fn check(&self) -> Result<(), AcquireError> {
        let candidates = self.enough.as_ref().map_or(&[][..], |enough| &enough.candidates);
        let names: usize = self.locks.iter().map(|lock| lock.name.len()).sum();
        let names = names + candidates.iter().map(|candidate| candidate.name.len()).sum::<usize>();
        let locks = self.locks.len() + candidates.len();
        if self.enough.is_some() && !self.locks.is_empty() {
            let why = "a request for enough locks names candidates, and no other locks";
            return Err(AcquireError::Refused(Reason::Malformed, why.to_owned()));
        }
        let sizes = [
            (Reason::TooManyLocks, "locks", MAX_LOCKS, locks),
            (Reason::NamesTooLong, "bytes of lock names", MAX_NAMES, names),
            (Reason::LabelTooLong, "bytes of label", MAX_LABEL, self.label.len()),
        ];
        check_sizes("a request", &sizes).map_err(|(reason, message)| AcquireError::Refused(reason, message))
    }
}

/// Returns the first size that is above its limit: the reason, and a message about `subject`.
fn check_sizes(subject: &str, sizes: &[(Reason, &str, usize, usize)]) -> Result<(), (Reason, String)> {
    match sizes.iter().find(|(_, _, limit, found)| found > limit) {
        Some((reason, what, limit, found)) => {
            Err((*reason, format!("{subject} has at most {limit} {what}; this one has {found}")))
        }
        None => Ok(()),
    }
}

/// Refuses lists that the server would close the stream for.
pub(super) fn check_candidates(candidates: &[proto::Candidate]) -> Result<(), AmendError> {
    let names: usize = candidates.iter().map(|candidate| candidate.name.len()).sum();
    let sizes = [
        (Reason::TooManyLocks, "locks", MAX_LOCKS, candidates.len()),
        (Reason::NamesTooLong, "bytes of lock names", MAX_NAMES, names),
    ];
    check_sizes("an amendment", &sizes).map_err(|(reason, message)| AmendError::Refused(reason, message))
}

impl Wait {
    /// Returns the message for the server, when `left` of an [`AtMost`](Wait::AtMost) is left.
    pub(super) fn to_proto(self, left: Duration) -> acquire_request::Wait {
        match self {
            Wait::Try => acquire_request::Wait::TryOnce(proto::TryOnce {}),
            Wait::AtMost(_) => acquire_request::Wait::WaitMs(millis(left)),
            Wait::Forever => acquire_request::Wait::WaitForever(proto::WaitForever {}),
        }
    }
}

/// Rounds up, so that a wait is never shorter than requested.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(super) fn candidate(name: &LockName, weight: u64) -> proto::Candidate {
    let home = name.home_field();
    proto::Candidate { name: Bytes::copy_from_slice(name.as_bytes()), home, weight }
}

pub(super) fn lock_mode(name: &LockName, mode: Mode) -> LockMode {
    let mode = match mode {
        Mode::Shared => proto::Mode::Shared,
        Mode::Exclusive => proto::Mode::Exclusive,
    };
    LockMode { name: Bytes::copy_from_slice(name.as_bytes()), mode: mode.into(), home: name.home_field() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(request: AcquireRequest) -> Option<Reason> {
        match request.check() {
            Ok(()) => None,
            Err(AcquireError::Refused(reason, _)) => Some(reason),
            Err(other) => panic!("{other}"),
        }
    }

    fn of(locks: usize, length: usize) -> AcquireRequest {
        let name = LockName::new(&vec![b'x'; length]).expect("a test name is valid");
        let first = AcquireRequest::exclusive(name.clone());
        (1..locks).fold(first, |request, _| request.and(name.clone(), Mode::Shared))
    }

    #[test]
    fn what_would_close_the_stream_is_not_sent() {
        assert_eq!(refused(of(10_000, 100)), None);
        assert_eq!(refused(of(10_001, 100)), Some(Reason::TooManyLocks));
        assert_eq!(refused(of(1024, 1024)), None);
        assert_eq!(refused(of(1025, 1024)), Some(Reason::NamesTooLong));
        assert_eq!(refused(of(1, 1).label("x".repeat(256))), None);
        assert_eq!(refused(of(1, 1).label("x".repeat(257))), Some(Reason::LabelTooLong));
    }

    #[test]
    fn a_request_tells_its_locks() {
        let name = |text| LockName::try_from(text).expect("a test name is valid");
        let homed = LockName::homed(geolock_api::names::DcId::new(2).expect("it is an id"), b"b");
        let homed = homed.expect("a test name is valid");
        let request = AcquireRequest::shared(name("a")).and(homed.clone(), Mode::Exclusive);
        let locks: Vec<_> = request.locks().collect();
        assert_eq!(locks, [(name("a"), Mode::Shared), (homed, Mode::Exclusive)]);
    }

    #[test]
    fn waits_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(5)), 5);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
