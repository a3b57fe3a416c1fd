//! Operations of the log on locks: requests, withdrawals and transfers, of other datacenters and, when the
//! journal is read after a restart, of this one.

use crate::base::bugs::Bug;
use smallvec::SmallVec;

use super::lock::LockIndex;
use super::locks::Locks;
use super::owners::Known;
use super::request::{Origin, Request, RequestRow, Want};
use super::tables::Tables;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::{EntryFault, LockParts, Op, Wants};
use geolock_api::names::{DcId, DcSet, LockName, MAX_NUMBER, Mode, Position, RequestId};

/// A published request: a [`RequestRow`], or one in an entry.
pub(crate) struct Published<'a> {
    pub id: RequestId,
    pub at: Timestamp,
    pub wants: &'a Wants,
    pub seq: u64,
}

impl<'a> From<&'a RequestRow> for Published<'a> {
    fn from(row: &'a RequestRow) -> Published<'a> {
        Published { id: row.id, at: row.at, wants: &row.wants, seq: row.seq }
    }
}

impl Locks {
    /// Checks the operations of an entry of `dc` (`docs/algorithm.md#46-validation`). `known`: the
    /// datacenters of the epoch of the entry.
    pub fn validate(&self, dc: DcId, known: Known, ops: &[Op]) -> Result<(), EntryFault> {
        let mut requests = Vec::new();
        let mut moved = Vec::new();
        for op in ops {
            match op {
                Op::Request { id, wants, .. } => {
                    validate_request(&self.tables, dc, *id, wants)?;
                    self.validate_homes(known, wants.locks().iter().map(|(lock, _)| lock))?;
                    requests.push(*id);
                }
                Op::Withdraw { id } if id.dc != dc => return Err(EntryFault::ForeignWithdraw { id: *id }),
                Op::Withdraw { .. } | Op::Commit(_) | Op::Enter { .. } | Op::Leave => {}
                Op::Freed { slot, .. } if !known.left.contains(*slot) => {
                    return Err(EntryFault::NotOver { slot: *slot });
                }
                Op::Freed { .. } => {}
                Op::Split { part } => self.validate_split(dc, *part)?,
                Op::Done { part } => self.validate_done(*part)?,
                Op::Transfer { to, parts } => {
                    let owners = &self.tables.owners;
                    self.validate_homes(known, parts.iter().map(|moved| &moved.lock))?;
                    parts.iter().try_for_each(|lock| owners.validate_transfer(dc, known, *to, lock))?;
                    moved.extend(
                        parts.iter().flat_map(|lock| lock.parts.iter().map(|(part, _)| (&lock.lock, *part))),
                    );
                }
            }
        }
        if let Some(id) = first_twice(&mut requests) {
            return Err(EntryFault::DuplicateRequest { id });
        }
        match first_twice(&mut moved) {
            Some((lock, part)) => Err(EntryFault::MovedTwice { lock: lock.clone(), part }),
            None => Ok(()),
        }
    }

    /// Checks that the homes of these locks are members, or were.
    fn validate_homes<'a>(
        &self,
        known: Known,
        locks: impl IntoIterator<Item = &'a LockName>,
    ) -> Result<(), EntryFault> {
        match locks.into_iter().find(|lock| lock.home().is_some_and(|home| !known.ever().contains(home))) {
            Some(lock) => Err(EntryFault::UnknownHome { lock: lock.clone() }),
            None => Ok(()),
        }
    }

    /// Adds a request to the request table.
    pub fn apply_request(&mut self, published: &Published<'_>) {
        let tables = &mut self.tables;
        let Published { id, at, wants, seq } = *published;
        debug_assert!(tables.is_news(id), "request {id} was validated as new");
        tables.note_before(id);
        if id.dc == tables.view.me {
            // It was published before a restart, so no client waits for it through the log any more.
            return tables.request_table.insert_orphan(RequestRow { id, at, wants: wants.clone(), seq });
        }
        let want =
            |(name, mode): &(LockName, Mode)| Want { lock: tables.activate(name), mode: *mode, holder: 0 };
        let wants: SmallVec<[Want; 1]> = wants.locks().iter().map(want).collect();
        let mut row = Request { id, at, wants, origin: Origin::Remote { seq }, parked: false };
        row.parked = tables.should_park(&row);
        let locks: SmallVec<[LockIndex; 1]> = row.wants.iter().map(|want| want.lock).collect();
        let index = tables.requests.insert(row);
        tables.request_table.insert(id, index, seq);
        tables.enqueue(index);
        tables.note_wait(index);
        locks.into_iter().for_each(|lock| tables.locks.mark(lock));
    }

    /// Removes a request from the request table; an unknown id is no error.
    pub fn apply_withdraw(&mut self, id: RequestId, now: Instant) {
        let tables = &mut self.tables;
        tables.note_before(id);
        if id.dc == tables.view.me {
            tables.request_table.remove_orphan(id);
        }
        let Some(index) = tables.requests.find(id) else { return };
        if tables.requests[index].local().is_some() {
            return;
        }
        if tables.view.bugs.has(Bug::WithdrawnServed) {
            return;
        }
        tables.request_table.remove(id);
        tables.forget_waiting(index, now);
        self.gives_back |= tables.requests.is_empty();
    }

    /// Applies a transfer by an entry of `from` at `position`; [`Position::default`] for an entry that has
    /// long been durable. `no_homes`: the slots that were no homes in the epoch of the entry.
    pub fn apply_transfer(
        &mut self,
        (from, to): (DcId, DcId),
        moved: &LockParts,
        no_homes: DcSet,
        position: Position,
    ) {
        let parts: DcSet = moved.parts.iter().map(|(part, _)| *part).collect();
        debug_assert_eq!(parts.len(), moved.parts.len(), "a part of lock {} moves once", moved.lock);
        // Its maker may not have known of a new member.
        let parts = parts.union(self.tables.owners.going_along(&moved.lock, parts));
        self.tables.owners.move_parts_in(to, moved, no_homes);
        let owners = &self.tables.owners;
        let (me, has_ended) = (self.tables.view.me, owners.has_ended(to));
        // Parts that are given to a member that was evicted fall home.
        let is_here = || parts.iter().any(|part| owners.owner(&moved.lock, part) == me);
        let to = if has_ended && is_here() { me } else { to };
        self.schedule.note_moved(&mut self.tables, (from, to), (&moved.lock, parts), position);
    }

    /// Records the entry of this datacenter that published its requests, and removes the orphans that it
    /// withdrew.
    pub fn note_own_entry(&mut self, seq: u64, ops: &[Op], now: Instant) {
        for op in ops {
            match op {
                Op::Request { id, .. } => {
                    debug_assert_eq!(id.dc, self.tables.view.me, "an own entry publishes own requests");
                    let index = self.find(*id).expect("a request is published in the step in which it waits");
                    self.tables.requests.note_published(index, seq);
                    self.tables.request_table.insert(*id, index, seq);
                }
                Op::Withdraw { id } => self.apply_withdraw(*id, now),
                Op::Transfer { .. }
                | Op::Commit(_)
                | Op::Enter { .. }
                | Op::Split { .. }
                | Op::Done { .. }
                | Op::Freed { .. }
                | Op::Leave => {}
            }
        }
    }
}

fn validate_request(tables: &Tables, dc: DcId, id: RequestId, wants: &Wants) -> Result<(), EntryFault> {
    if id.dc != dc {
        return Err(EntryFault::ForeignRequest { id });
    }
    if id.n > MAX_NUMBER {
        return Err(EntryFault::RequestNumber { id });
    }
    if !tables.is_news(id) {
        return Err(EntryFault::DuplicateRequest { id });
    }
    wants.validate().map_err(|error| EntryFault::Wants { id, error })
}

/// Returns an element that the list contains more than once.
fn first_twice<T: Ord + Copy>(list: &mut [T]) -> Option<T> {
    list.sort_unstable();
    list.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
