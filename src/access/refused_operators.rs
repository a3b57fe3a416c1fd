//! Refused calls of operators, for `geolock audit`: the latest ones since the start of the process.
//!
//! The log may lose lines; these records are only displaced by others of their kind. Repetitions are one
//! record with a count, and the caller with the most records loses its own first: so a caller that asks for
//! more and more locks displaces no record of others.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustc_hash::FxHashMap;

use super::action::Action;
use super::principal::Principal;
use super::refused::Refused;

/// Most records at a time. One takes some hundred bytes.
pub const MAX_REFUSED_OPERATORS: usize = 1_000;

/// A refused call of an operator, with its repetitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOperator {
    /// `None`: not identified.
    pub caller: Option<Principal>,
    /// The address of the latest call.
    pub from: SocketAddr,
    /// The call, as the API names it.
    pub call: &'static str,
    /// The action that no rule allows, and its object; `None` if the call was refused before it was read.
    pub denied: Option<(Action, String)>,
    /// The reason of the latest refusal.
    pub reason: String,
    pub count: u64,
    pub first: SystemTime,
    pub last: SystemTime,
}

/// The records.
#[derive(Debug, Default)]
pub(super) struct RefusedOperators(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    /// By caller, those of one caller by the number of their latest call.
    by_caller: FxHashMap<Option<Principal>, BTreeMap<u64, RefusedOperator>>,
    count: usize,
    calls: u64,
    /// Records that were displaced.
    dropped: u64,
}

impl RefusedOperators {
    pub fn note(&self, call: &'static str, refused: &Refused, from: SocketAddr, now: SystemTime) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(call, refused, from, now);
    }

    /// Returns the records, the latest last, and how many were displaced by others.
    pub fn list(&self) -> (Vec<RefusedOperator>, u64) {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = records.by_caller.values().flatten().collect();
        all.sort_unstable_by_key(|(number, _)| **number);
        (all.into_iter().map(|(_, record)| record.clone()).collect(), records.dropped)
    }
}

impl Records {
    fn note(&mut self, call: &'static str, refused: &Refused, from: SocketAddr, now: SystemTime) {
        let (caller, denied, reason) = match refused {
            Refused::Denied { principal, action, resource } => {
                let reason = "no rule of this server (api.acl) allows it".to_owned();
                (Some(principal.clone()), Some((*action, resource.clone())), reason)
            }
            other => (None, None, other.to_string()),
        };
        let record = RefusedOperator { caller, from, call, denied, reason, count: 1, first: now, last: now };
        self.calls += 1;
        let of_caller = self.by_caller.entry(record.caller.clone()).or_default();
        let before =
            of_caller.iter().find(|(_, before)| is_repeated(before, &record)).map(|(number, _)| *number);
        match before.and_then(|number| of_caller.remove(&number)) {
            Some(RefusedOperator { count, first, .. }) => {
                of_caller.insert(self.calls, RefusedOperator { count: count + 1, first, ..record });
            }
            None => {
                of_caller.insert(self.calls, record);
                self.count += 1;
                self.displace();
            }
        }
    }

    /// Drops a record if there are too many.
    fn displace(&mut self) {
        if self.count <= MAX_REFUSED_OPERATORS {
            return;
        }
        let largest = self.by_caller.iter().max_by_key(|(_, of_caller)| of_caller.len());
        let caller = largest.expect("there are records").0.clone();
        let of_caller = self.by_caller.get_mut(&caller).expect("it was just found");
        of_caller.pop_first();
        if of_caller.is_empty() {
            self.by_caller.remove(&caller);
        }
        self.count -= 1;
        self.dropped += 1;
    }
}

/// Returns true if both are the same call of the same caller.
fn is_repeated(one: &RefusedOperator, other: &RefusedOperator) -> bool {
    let origin = |record: &RefusedOperator| -> Option<IpAddr> {
        matches!(record.caller, None | Some(Principal::Anonymous)).then(|| record.from.ip())
    };
    one.call == other.call && one.denied == other.denied && origin(one) == origin(other)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn client(name: &str) -> Option<Principal> {
        Some(Principal::Client(name.into()))
    }

    fn denied(name: &str, lock: usize) -> Refused {
        let principal = Principal::Client(name.into());
        Refused::Denied { principal, action: Action::ForceRelease, resource: format!("the lock \"{lock}\"") }
    }

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn from(host: u8, port: u16) -> SocketAddr {
        (IpAddr::from([10, 0, 0, host]), port).into()
    }

    #[test]
    fn repetitions_are_one_record_with_its_first_and_last_time() {
        let refused = RefusedOperators::default();
        refused.note("ForceRelease", &denied("bob", 1), from(1, 1), at(1));
        refused.note("ForceRelease", &denied("bob", 2), from(1, 1), at(2));
        (3..=9).for_each(|second| refused.note("ForceRelease", &denied("bob", 1), from(2, 7), at(second)));
        // A caller that is not identified is known by its address alone.
        for (host, port) in [(1, 1), (1, 2), (2, 1)] {
            refused.note("Audit", &Refused::Nobody, from(host, port), at(10));
        }
        let (listed, dropped) = refused.list();
        let shown: Vec<_> =
            listed.iter().map(|it| (it.caller.clone(), it.from, it.count, (it.first, it.last))).collect();
        let expected = [
            (client("bob"), from(1, 1), 1, (at(2), at(2))),
            (client("bob"), from(2, 7), 8, (at(1), at(9))),
            (None, from(1, 2), 2, (at(10), at(10))),
            (None, from(2, 1), 1, (at(10), at(10))),
        ];
        assert_eq!((shown, dropped), (expected.to_vec(), 0));
        assert!(listed[1].reason.contains("api.acl") && listed[2].reason.contains("certificate"));
    }

    #[test]
    fn who_asks_for_ever_other_locks_displaces_its_own_records_only() {
        let refused = RefusedOperators::default();
        for (second, name) in ["ann", "bob", "carol"].into_iter().enumerate() {
            refused.note("ForceRelease", &denied(name, 0), from(1, 1), at(second as u64));
        }
        for lock in 0..5_000 {
            refused.note("ForceRelease", &denied("mallory", lock), from(2, 1), at(10));
        }
        for host in 0..=255 {
            refused.note("Audit", &Refused::Nobody, from(host, 1), at(11));
        }
        let (listed, dropped) = refused.list();
        assert_eq!((listed.len(), dropped), (MAX_REFUSED_OPERATORS, 5_003 + 256 - 1_000));
        let of = |caller| listed.iter().filter(|it| it.caller == caller).count();
        assert_eq!(["ann", "bob", "carol"].map(|name| of(client(name))), [1; 3]);
        assert_eq!((of(None), of(client("mallory"))), (256, 741), "and the largest one gives way");
        let latest = listed.iter().rev().find(|it| it.caller == client("mallory")).expect("there are some");
        assert_eq!(latest.denied, Some((Action::ForceRelease, "the lock \"4999\"".to_owned())));
    }
}
