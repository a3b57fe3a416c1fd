//! One watcher and its events: it gets every change that it follows once, in causal order, with none left
//! out, wherever it resumes after a reconnect; of holders, it gets states that were true one after the other.

use std::collections::BTreeMap;

use crdts::CvRDT;

use crate::causal_log::{Entry, LockParts, Op};
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;
use crate::replica::call::watch::{Changed, Holding, LockEvent, LockMove, Subject};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{Broken, Transactions};
use geolock_api::names::{DcId, DcSet, LockName, Mode, RequestId};

/// One watcher.
#[derive(Debug)]
pub(crate) struct Watched {
    subject: Subject,
    /// The vector of everything that it received, or knew before.
    known: VersionVector,
    /// Up to this vector nothing was left out: not checked again.
    checked: VersionVector,
    /// The receivers of parts, as far as it received transfers.
    owners: BTreeMap<(LockName, DcId), DcId>,
    /// The holders in one datacenter, as far as it received them.
    held: BTreeMap<RequestId, Holding>,
    /// It has received all present holders since it began.
    is_current: bool,
    /// Number of events.
    pub told: u64,
    /// Number of bytes of holder events that it has not acknowledged.
    pub unread: usize,
}

fn broken(what: String) -> Result<(), Broken> {
    Err(Broken::new(FailureKind::WatchedWrong, what))
}

impl Watched {
    pub fn new(subject: Subject) -> Watched {
        Watched {
            subject,
            known: VersionVector::default(),
            checked: VersionVector::default(),
            owners: BTreeMap::new(),
            held: BTreeMap::new(),
            is_current: false,
            told: 0,
            unread: 0,
        }
    }

    pub fn subject(&self) -> Subject {
        self.subject
    }

    pub fn known(&self) -> &VersionVector {
        &self.known
    }

    /// A watch begins after this vector: the one that it knew, or `anew` from the present state.
    pub fn begin(&mut self, from: &VersionVector, anew: bool) -> Result<(), Broken> {
        (self.held, self.is_current, self.unread) = (BTreeMap::new(), false, 0);
        if anew {
            (self.known, self.checked) = (from.clone(), from.clone());
            self.owners.clear();
        }
        if *from == self.known {
            return Ok(());
        }
        broken(format!("a watch from {} began at {from}", self.known))
    }

    /// Returns true if it follows this entry.
    fn follows(&self, entry: &Entry) -> bool {
        match self.subject {
            Subject::Keys => entry.ops.iter().any(|op| op.as_commit().is_some()),
            Subject::Locks => entry.ops.iter().any(|op| matches!(op, Op::Transfer { .. })),
        }
    }

    /// Checks that it received all entries up to `vector` that it follows.
    fn check_complete(&mut self, all: &Transactions, vector: &VersionVector) -> Result<(), Broken> {
        for (dc, upto) in vector.iter() {
            let after = self.known.get(dc).max(self.checked.get(dc));
            if upto > after && all.entry(Dot { dc, seq: upto }).is_none() {
                return broken(format!("a watch was told {dc}:{upto}, which never was"));
            }
            if let Some(entry) = all.commits.between(dc, after, upto).iter().find(|entry| self.follows(entry))
            {
                return broken(format!("a watch of {:?} left out {entry:?}", self.subject));
            }
        }
        self.checked.merge(vector.clone());
        Ok(())
    }

    /// Checks the next entry: the watcher has received all dependencies, and not the entry itself.
    fn advance(&mut self, all: &Transactions, dc: DcId, seq: u64) -> Result<(), Broken> {
        self.told += 1;
        if seq <= self.known.get(dc) {
            return broken(format!("a watch was told {dc}:{seq} again, after {}", self.known));
        }
        let Some(entry) = all.entry(Dot { dc, seq }) else {
            return broken(format!("a watch was told {dc}:{seq}, which never was"));
        };
        self.check_complete(all, &entry.deps)?;
        self.known.raise(dc, seq);
        Ok(())
    }

    pub fn on_changed(&mut self, all: &Transactions, changed: &Changed) -> Result<(), Broken> {
        self.advance(all, changed.dc, changed.seq)?;
        let commit = all.entry(Dot { dc: changed.dc, seq: changed.seq });
        let commit = commit.and_then(|entry| entry.ops.iter().find_map(Op::as_commit));
        if commit.is_some_and(|commit| commit.changes == changed.changes) {
            return Ok(());
        }
        broken(format!("a watch was told {changed:?}; committed is {commit:?}"))
    }

    /// Checks that nothing that it follows was left out up to there.
    pub fn on_reached(&mut self, all: &Transactions, vector: &VersionVector) -> Result<(), Broken> {
        self.check_complete(all, vector)?;
        self.known.merge(vector.clone());
        Ok(())
    }

    pub fn on_lock(&mut self, all: &Transactions, event: &LockEvent) -> Result<(), Broken> {
        if event.is_best_effort() {
            self.unread += event.weight();
        }
        match event {
            LockEvent::Moved { dc, seq, moves, .. } => {
                self.advance(all, *dc, *seq)?;
                let made =
                    all.entry(Dot { dc: *dc, seq: *seq }).map_or_else(Vec::new, |entry| moves_of(entry));
                if made != *moves {
                    return broken(format!("a watch was told {moves:?} of {dc}:{seq}; made were {made:?}"));
                }
                moves.iter().try_for_each(|moved| self.on_move(*dc, moved))
            }
            LockEvent::HoldersReset => {
                (self.held, self.is_current) = (BTreeMap::new(), false);
                Ok(())
            }
            LockEvent::HoldersSynced => {
                self.is_current = true;
                Ok(())
            }
            LockEvent::Granted(holding) => self.on_granted(holding),
            LockEvent::Released(holding) => {
                let known = self.held.remove(&holding.request);
                if known.is_none() && self.is_current {
                    return broken(format!(
                        "a watch was told that {holding:?} is over, and never that it began"
                    ));
                }
                Ok(())
            }
        }
    }

    /// Each move begins where the one before it ended.
    fn on_move(&mut self, from: DcId, moved: &LockMove) -> Result<(), Broken> {
        for part in moved.parts.iter() {
            let before = self.owners.insert((moved.lock.clone(), part), moved.to);
            if before.is_some_and(|before| before != from) {
                return broken(format!("a watch was told that {from} gave {moved:?}; it was at {before:?}"));
            }
        }
        Ok(())
    }

    fn on_granted(&mut self, holding: &Holding) -> Result<(), Broken> {
        let in_conflict = |other: &&Holding| {
            other.request != holding.request
                && other.locks.iter().any(|(lock, mode)| {
                    holding.locks.iter().any(|(name, as_mode)| name == lock && mode.conflicts_with(*as_mode))
                })
        };
        if let Some(other) = self.held.values().find(in_conflict) {
            return broken(format!("a watch was told of {holding:?} while {other:?} is held"));
        }
        let before = self.held.insert(holding.request, holding.clone());
        if before.is_some_and(|before| !is_downgraded(&before, holding)) && self.is_current {
            return broken(format!("a watch was told twice of {holding:?}"));
        }
        Ok(())
    }

    /// In the quiet it has received everything, and knows of no holder.
    pub fn check_quiet(&mut self, all: &Transactions, applied: &VersionVector) -> Result<(), Broken> {
        self.check_complete(all, applied)?;
        match self.held.values().next() {
            Some(holding) => broken(format!("a watch believes that {holding:?} is held")),
            None => Ok(()),
        }
    }
}

/// Returns true if `after` is the same hold after a downgrade. While the present holders were reported, each
/// of its locks came alone.
fn is_downgraded(before: &Holding, after: &Holding) -> bool {
    let is_weaker = |(lock, mode): &(LockName, Mode)| {
        after.locks.iter().any(|(name, as_mode)| name == lock && as_mode <= mode)
    };
    before.token == after.token && before.locks != after.locks && before.locks.iter().all(is_weaker)
}

/// Returns the moves in an entry, as a watch of all locks gets them.
fn moves_of(entry: &Entry) -> Vec<LockMove> {
    let moves = entry.ops.iter().flat_map(|op| {
        let (to, parts) = match op {
            Op::Transfer { to, parts } => (Some(*to), &parts[..]),
            _ => (None, &[][..]),
        };
        to.into_iter().flat_map(move |to| parts.iter().map(move |moved| (to, moved)))
    });
    let one = |(to, moved): (DcId, &LockParts)| {
        let parts: DcSet = moved.parts.iter().map(|(part, _)| *part).collect();
        LockMove { lock: moved.lock.clone(), parts, to }
    };
    moves.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::names::FencingToken;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn holding(n: u64) -> Holding {
        let lock = LockName::try_from("a").expect("a valid name");
        let request = RequestId { dc: dc(0), n };
        Holding { request, token: FencingToken(n), label: "".into(), locks: vec![(lock, Mode::Exclusive)] }
    }

    fn kind(result: Result<(), Broken>) -> Option<FailureKind> {
        result.err().map(|broken| broken.kind)
    }

    #[test]
    fn holders_that_cannot_be_are_caught() {
        let all = Transactions::default();
        let watched = || {
            let mut watched = Watched::new(Subject::Locks);
            watched.on_lock(&all, &LockEvent::Granted(holding(1))).expect("nobody else holds it");
            watched.on_lock(&all, &LockEvent::HoldersSynced).expect("that is all");
            watched
        };
        let wrong = Some(FailureKind::WatchedWrong);
        assert_eq!(kind(watched().on_lock(&all, &LockEvent::Granted(holding(1)))), wrong, "twice");
        assert_eq!(kind(watched().on_lock(&all, &LockEvent::Granted(holding(2)))), wrong, "in conflict");
        assert_eq!(kind(watched().on_lock(&all, &LockEvent::Released(holding(2)))), wrong, "never granted");
        let mut watched = watched();
        watched.on_lock(&all, &LockEvent::Released(holding(1))).expect("it was held");
        assert_eq!(watched.on_lock(&all, &LockEvent::Granted(holding(2))), Ok(()));
    }

    #[test]
    fn a_part_that_leaves_from_where_it_is_not_is_caught() {
        let mut watched = Watched::new(Subject::Locks);
        let moved = |to| LockMove {
            lock: LockName::try_from("a").expect("a valid name"),
            parts: DcSet::only(dc(0)),
            to: dc(to),
        };
        assert_eq!(watched.on_move(dc(0), &moved(1)), Ok(()));
        assert_eq!(watched.on_move(dc(1), &moved(2)), Ok(()));
        assert_eq!(kind(watched.on_move(dc(1), &moved(0))), Some(FailureKind::WatchedWrong));
    }

    #[test]
    fn what_never_was_and_what_is_left_out_are_caught() {
        let all = Transactions::default();
        let mut watched = Watched::new(Subject::Keys);
        assert_eq!(kind(watched.advance(&all, dc(1), 1)), Some(FailureKind::WatchedWrong));
        let vector = VersionVector::from_iter([(dc(1), 1)]);
        assert_eq!(kind(watched.on_reached(&all, &vector)), Some(FailureKind::WatchedWrong));
    }
}
