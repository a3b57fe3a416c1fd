//! Installation of another datacenter's view of the locks in a state transfer, because the entries between
//! are truncated.
//!
//! The view replaces the local one, and the entries that are applied here and that the view lacks are applied
//! on top of it. So the result is the same as if all entries had come one by one
//! (`docs/algorithm/recovery.md#2-state-transfer`). It does not take parts away that are here, because only
//! the owner of a part gives it away; it may add parts that were on their way here. A row of the request
//! table that only one side has stays if the other side's vector does not cover the entry that published it;
//! covered and absent means withdrawn.

use super::apply::LogOperations;
use super::inspect::Inspect;
use super::owners::Known;
use super::request::{Origin, RequestRow};
use crate::base::time::Instant;
use crate::base::work;
use crate::causal_log::{Entry, LockParts, Op};
use crate::crdt::{AsOf, Ownership, PartMove, VersionVector};
use geolock_api::names::{DcId, DcSet, LockName, MAX_NUMBER, Position, RequestId};

/// Another datacenter's view of the locks after it had applied `vector`.
pub(crate) struct Foreign {
    pub vector: VersionVector,
    /// With what is applied here beyond `vector`.
    pub ownership: Ownership,
    /// The datacenters of its epoch, if decisions say which they are.
    pub known: Option<Known>,
    /// The taker has had no state before: what it believes of parts is nothing.
    pub is_first: bool,
    pub requests: Vec<RequestRow>,
}

impl Foreign {
    /// Returns a view from its map. `beyond`: entries that are applied here and not covered by `vector`, in
    /// order, each with what its maker knew of homes.
    pub fn new<'a>(
        vector: VersionVector,
        mut ownership: Ownership,
        beyond: impl Iterator<Item = (&'a Entry, AsOf<'a>)>,
    ) -> Foreign {
        let ops = beyond.flat_map(|(entry, as_of)| entry.ops.iter().map(move |op| (entry, as_of, op)));
        for (entry, as_of, op) in ops {
            match op {
                Op::Split { part } => {
                    // It may have ended in the state.
                    if ownership.sponsors().get(*part).is_some() {
                        ownership.sponsors_mut().split(*part);
                    }
                }
                Op::Rehome { epoch } => {
                    ownership.sponsors_mut().rules_mut().give(entry.dc, *epoch, entry.seq)
                }
                Op::Transfer { to, parts } => {
                    moves(*to, parts).for_each(|it| ownership.apply_as_of(it, as_of))
                }
                Op::Keep { parts } => moves(entry.dc, parts).for_each(|it| ownership.keep(it)),
                Op::Request { .. }
                | Op::Withdraw { .. }
                | Op::Commit(_)
                | Op::Under { .. }
                | Op::Enter { .. }
                | Op::Done { .. }
                | Op::Freed { .. }
                | Op::Leave => {}
            }
        }
        Foreign { vector, ownership, known: None, is_first: false, requests: Vec::new() }
    }
}

fn moves(owner: DcId, parts: &[LockParts]) -> impl Iterator<Item = PartMove> {
    parts.iter().flat_map(move |LockParts { lock, parts }| {
        parts.iter().map(move |&(part, version)| PartMove { lock: lock.clone(), part, owner, version })
    })
}

/// A reason for which a view cannot be installed. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForeignFault {
    #[error(
        "part {part} of lock {lock} belongs to {owner}: that, the part or the home of the lock is no member"
    )]
    Stranger { lock: LockName, part: DcId, owner: DcId },
    #[error("part {part} of lock {lock} is here and was given to nobody; it says that {owner} has it")]
    Stolen { lock: LockName, part: DcId, owner: DcId },
    #[error("request {0} is of no member, or wants what nobody can want")]
    Request(RequestId),
}

impl Inspect<'_> {
    /// Checks that another datacenter's view can be installed here. `applied`: the vector that is applied
    /// here.
    pub fn validate_foreign(self, foreign: &Foreign, applied: &VersionVector) -> Result<(), ForeignFault> {
        let (owners, me) = (&self.0.owners, self.0.view.me);
        let known = foreign.known.unwrap_or(Known {
            members: self.0.view.members,
            left: owners.left(),
            no_homes: owners.left(),
        });
        // Parts of datacenters that have left may still be on their way home.
        let member = |dc| known.ever().contains(dc);
        let has_home = |lock: &LockName| lock.home().is_none_or(member);
        for (lock, part, theirs) in foreign.ownership.iter() {
            let owner = theirs.owner().expect("only parts that moved are iterated");
            if !member(part) || !member(owner) || !has_home(lock) {
                return Err(ForeignFault::Stranger { lock: lock.clone(), part, owner });
            }
        }
        // A datacenter that lost entries of its own log may have given away parts that it believes it owns,
        // and may have got them back.
        let knows_own_log = foreign.vector.get(me) <= applied.get(me) && !foreign.is_first;
        let theirs = &foreign.ownership;
        work::count(theirs.len());
        let mut changes = knows_own_log.then(|| owners.map().differences(theirs)).into_iter().flatten();
        if let Some((lock, part)) = changes.find(|(lock, part)| owners.owner(lock, *part) == me) {
            let (lock, owner) = (lock.clone(), theirs.of(lock).owner(part));
            return Err(ForeignFault::Stolen { lock, part, owner });
        }
        let is_fine = |row: &&RequestRow| {
            let is_known = member(row.id.dc) && row.id.n <= MAX_NUMBER;
            let has_homes = row.wants.locks().iter().all(|(lock, _)| has_home(lock));
            is_known && has_homes && row.wants.validate().is_ok()
        };
        match foreign.requests.iter().find(|row| !is_fine(row)) {
            Some(row) => Err(ForeignFault::Request(row.id)),
            None => Ok(()),
        }
    }

    /// Returns locks that are held here by parts which are elsewhere in another datacenter's view, if that
    /// view covers more of our own log than `applied` does. Some of them are returned twice.
    pub fn contested(self, foreign: &Foreign, applied: &VersionVector) -> Vec<LockName> {
        let (owners, me) = (&self.0.owners, self.0.view.me);
        if foreign.vector.get(me) <= applied.get(me) {
            return Vec::new();
        }
        let theirs = &foreign.ownership;
        work::count(theirs.len());
        let is_contested = |(lock, part): &(&LockName, DcId)| {
            theirs.of(lock).owner(*part) != me
                && owners.owner(lock, *part) == me
                && self.is_held_by(lock, *part)
        };
        let moved = owners.map().differences(theirs).filter(is_contested).map(|(lock, _)| lock.clone());
        // Parts that were given by rules have no registers.
        let held = theirs.sponsors().rules().prefixes().flat_map(|prefix| self.held_below(prefix));
        let is_given = |lock: &&LockName| {
            let given = owners.parts_here(lock).iter().filter(|part| theirs.of(lock).owner(*part) != me);
            given.into_iter().any(|part| self.is_held_by(lock, part))
        };
        moved.chain(held.filter(is_given).cloned()).collect()
    }
}

impl LogOperations<'_> {
    /// Installs a validated view, which the journal has at `position`; [`Position::default`] when it is read
    /// again. `applied`: the vector that was applied here before.
    pub fn install_state(
        &mut self,
        foreign: Foreign,
        applied: &VersionVector,
        position: Position,
        now: Instant,
    ) {
        assert!(
            self.schedule.is_in_log(),
            "what moves in a step is in the log before a state replaces what is known"
        );
        let Foreign { vector, ownership: theirs, known, is_first: _, requests } = foreign;
        // The maps are compared whole, in one step: an exception to the bound of a step
        // (`docs/algorithm/model.md#6-not-promised`).
        work::count(self.tables.owners.map().len() + theirs.len() + requests.len());
        let tables = &mut *self.tables;
        tables.request_table.close_readers();
        let changes = tables.owners.map().differences(&theirs);
        let changes: Vec<(LockName, DcId)> = changes.map(|(lock, part)| (lock.clone(), part)).collect();
        let before = tables.owners.replace(theirs);
        for (lock, part) in &changes {
            let between = (before.of(lock).owner(*part), tables.owners.owner(lock, *part));
            self.schedule.note_moved(tables, between, (lock, DcSet::only(*part)), position);
        }
        if known.is_some() {
            // A part that is settled there may still go along here, and some may have left.
            self.schedule.note_parts_here(self.tables, position);
        }
        let is_withdrawn = |id: RequestId, seq| {
            seq <= vector.get(id.dc) && requests.binary_search_by_key(&id, |row| row.id).is_err()
        };
        let remote = self.tables.requests.iter().filter_map(|(_, row)| match row.origin {
            Origin::Remote { seq } => Some((row.id, seq)),
            Origin::Local(_) => None,
        });
        let withdrawn: Vec<RequestId> =
            remote.filter(|(id, seq)| is_withdrawn(*id, *seq)).map(|(id, _)| id).collect();
        withdrawn.into_iter().for_each(|id| self.apply_withdraw(id, now));
        // Own requests, too: a disk that is an older copy has lost the entries that withdrew them.
        self.tables.request_table.retain_abandoned(|row| !is_withdrawn(row.id, row.seq));
        debug_assert!(requests.is_sorted_by(|a, b| a.id < b.id), "requests of a state are in order");
        for row in &requests {
            if row.seq > applied.get(row.id.dc) && self.tables.is_news(row.id) {
                self.apply_request(&row.into());
            }
        }
    }
}
