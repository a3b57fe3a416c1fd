//! The request tables, derived from the log: parts go only to datacenters that want them.

use std::collections::BTreeMap;

use crate::causal_log::{Entry, LockParts, Op};
use crate::crdt::VersionVector;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::Broken;
use geolock_api::names::{DcId, LockName, Mode, RequestId};

/// A published request, for one of its locks.
#[derive(Debug)]
struct Row {
    id: RequestId,
    mode: Mode,
    /// The entry that published it.
    seq: u64,
}

/// The entry and the step in which a withdrawal was applied.
#[derive(Clone, Copy, Debug)]
struct Gone {
    seq: u64,
    step: u64,
}

/// All requests of a run.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    by_lock: BTreeMap<(DcId, LockName), Vec<Row>>,
    gone: BTreeMap<(DcId, RequestId), Gone>,
}

impl Requests {
    /// `at` has applied an entry, in its `step`.
    pub fn on_applied(&mut self, at: DcId, entry: &Entry, step: u64) {
        for op in &entry.ops {
            match op {
                Op::Request { id, wants, .. } if at == entry.dc => {
                    for (lock, mode) in wants.locks() {
                        let rows = self.by_lock.entry((at, lock.clone())).or_default();
                        rows.push(Row { id: *id, mode: *mode, seq: entry.seq });
                    }
                }
                Op::Withdraw { id } => {
                    self.gone.insert((at, *id), Gone { seq: entry.seq, step });
                }
                Op::Request { .. }
                | Op::Transfer { .. }
                | Op::Commit(_)
                | Op::Enter { .. }
                | Op::Split { .. }
                | Op::Done { .. }
                | Op::Freed { .. }
                | Op::Keep { .. }
                | Op::Rehome { .. }
                | Op::Under { .. }
                | Op::Leave => {}
            }
        }
    }

    /// A crash of `dc` left it with this vector.
    pub fn on_crash(&mut self, dc: DcId, left: &VersionVector) {
        self.gone.retain(|(at, id), gone| *at != dc || gone.seq <= left.get(id.dc));
        let own = self.by_lock.iter_mut().filter(|((maker, _), _)| *maker == dc);
        own.for_each(|(_, rows)| rows.retain(|row| row.seq <= left.get(dc)));
    }

    /// Checks a transfer of parts from `from` to `to` in its `step`. A withdrawal that it applied in that
    /// very step may be too late for it. `home`: the homes of parts, if parts of the lock may be returned to
    /// them unasked.
    pub fn on_transfer(
        &self,
        (from, to): (DcId, DcId),
        moved: &LockParts,
        step: u64,
        home: Option<&dyn Fn(DcId) -> DcId>,
    ) -> Result<(), Broken> {
        let only_own = moved.parts.iter().all(|(part, _)| *part == to);
        let wanted = |row: &Row| {
            let known_gone = self.gone.get(&(from, row.id)).is_some_and(|gone| gone.step < step);
            !known_gone && (only_own || row.mode == Mode::Exclusive)
        };
        let rows = self.by_lock.get(&(to, moved.lock.clone()));
        let goes_home = home.is_some_and(|home| moved.parts.iter().all(|(part, _)| home(*part) == to));
        if rows.is_some_and(|rows| rows.iter().rev().any(wanted)) || goes_home {
            return Ok(());
        }
        let what =
            format!("{from} gives parts of {} to {to}, which as far as it knows wants none", moved.lock);
        Err(Broken::new(FailureKind::GivenUnasked, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::causal_log::Wants;
    use geolock_api::names::ClusterId;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn lock() -> LockName {
        LockName::try_from("a").expect("valid")
    }

    fn entry(seq: u64, op: Op) -> Entry {
        let (cluster, at, deps) = (ClusterId::of("simulated"), Timestamp::ZERO, VersionVector::default());
        Entry { cluster, epoch: 0, prev: 0, lead_ms: 0, dc: dc(1), seq, at, deps, ops: vec![op] }
    }

    fn given(requests: &Requests, parts: &[u8], step: u64) -> Option<FailureKind> {
        let moved = LockParts { lock: lock(), parts: parts.iter().map(|part| (dc(*part), 1)).collect() };
        requests.on_transfer((dc(0), dc(1)), &moved, step, None).err().map(|broken| broken.kind)
    }

    #[test]
    fn parts_for_nobody_are_caught() {
        let id = RequestId { dc: dc(1), n: 7 };
        let wants = Wants::all(vec![(lock(), Mode::Shared)]).expect("one lock");
        let mut requests = Requests::default();
        assert_eq!(given(&requests, &[1], 1), Some(FailureKind::GivenUnasked));
        requests.on_applied(dc(1), &entry(1, Op::Request { id, at: Timestamp::ZERO, wants }), 1);
        assert_eq!(given(&requests, &[1], 2), None);
        assert_eq!(
            given(&requests, &[0, 1], 2),
            Some(FailureKind::GivenUnasked),
            "a reader wants its own part"
        );
        requests.on_applied(dc(0), &entry(2, Op::Withdraw { id }), 3);
        assert_eq!(given(&requests, &[1], 3), None, "decided before");
        assert_eq!(given(&requests, &[1], 4), Some(FailureKind::GivenUnasked));
        let part = |id| LockParts { lock: lock(), parts: vec![(dc(id), 1)] };
        let goes_home = |part: &LockParts| {
            let home = |of: DcId| part.lock.home().unwrap_or(of);
            requests.on_transfer((dc(0), dc(1)), part, 4, Some(&home)).is_ok()
        };
        assert!(goes_home(&part(1)) && !goes_home(&part(0)), "only what belongs there goes there");
        for (home, may) in [(1, true), (2, false)] {
            let lock = LockName::homed(dc(home), b"a").expect("valid");
            let parts = (0..3).map(|part| (dc(part), 1)).collect();
            let moved = LockParts { lock, parts };
            assert_eq!(goes_home(&moved), may);
            let own = LockParts { parts: vec![(dc(1), 1)], ..moved };
            assert_eq!(goes_home(&own), may, "a homed lock belongs to its home, not to the part's namesake");
        }
        requests.on_crash(dc(0), &[(dc(1), 1)].into_iter().collect());
        assert_eq!(given(&requests, &[1], 5), None, "it has lost the withdrawal");
    }
}
