//! Operations of the log on locks: requests, withdrawals and transfers, of other datacenters and, when the
//! journal is read after a restart, of this one.

use crdts::CmRDT;
use smallvec::SmallVec;

use super::lock::LockIndex;
use super::locks::Locks;
use super::request::{Origin, Publication, Request, RequestRow, State, Want};
use crate::causal_log::{EntryFault, LockParts, Op, Wants};
use crate::crdt::{Ownership, PartMove};
use crate::names::{DcId, DcSet, LockName, MAX_NUMBER, Mode, Position, RequestId};
use crate::time::{Instant, Timestamp};

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
    /// Checks the operations of an entry of `dc` (`docs/algorithm.md#46-validation`).
    pub fn validate(&self, dc: DcId, ops: &[Op]) -> Result<(), EntryFault> {
        let mut requests = Vec::new();
        let mut moved = Vec::new();
        for op in ops {
            match op {
                Op::Request { id, wants, .. } => {
                    self.validate_request(dc, *id, wants)?;
                    requests.push(*id);
                }
                Op::Withdraw { id } if id.dc != dc => return Err(EntryFault::ForeignWithdraw { id: *id }),
                Op::Withdraw { .. } | Op::Commit(_) => {}
                Op::Transfer { to, parts } => {
                    parts.iter().try_for_each(|lock| self.validate_transfer(dc, *to, lock))?;
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

    fn validate_request(&self, dc: DcId, id: RequestId, wants: &Wants) -> Result<(), EntryFault> {
        if id.dc != dc {
            return Err(EntryFault::ForeignRequest { id });
        }
        if id.n > MAX_NUMBER {
            return Err(EntryFault::RequestNumber { id });
        }
        if !self.is_news(id) {
            return Err(EntryFault::DuplicateRequest { id });
        }
        wants.validate().map_err(|error| EntryFault::Wants { id, error })
    }

    /// Returns true if, as far as is known here, this request was not published before. A client may hold
    /// such a request already: it reclaimed the request before the entry arrived that published it, which an
    /// older disk had lost.
    pub(super) fn is_news(&self, id: RequestId) -> bool {
        let Some(row) = self.find(id) else { return !self.orphans.contains_key(&id) };
        self.get(row)
            .local()
            .is_some_and(|local| !local.publication.is_published() && local.state != State::Waiting)
    }

    fn validate_transfer(&self, dc: DcId, to: DcId, moved: &LockParts) -> Result<(), EntryFault> {
        for (part, version) in &moved.parts {
            let (lock, part) = (moved.lock.clone(), *part);
            if !self.members.contains(part) {
                return Err(EntryFault::UnknownPart { lock, part });
            }
            if !self.members.contains(to) {
                return Err(EntryFault::TransferToStranger { lock, part, to });
            }
            let owner = self.ownership.owner(&lock, part);
            if owner != dc {
                return Err(EntryFault::NotTheOwner { lock, part, owner });
            }
            let current = self.ownership.register(&lock, part).version();
            // By exactly one, except for parts that come from a version of the code in which the versions of
            // a part at home did not begin anew.
            if *version <= current || *version > MAX_NUMBER {
                return Err(EntryFault::WrongVersion { lock, part, version: *version, current });
            }
        }
        Ok(())
    }

    /// Adds a request to the request table.
    pub fn apply_request(&mut self, published: &Published<'_>) {
        self.note_before(published.id);
        if published.id.dc == self.me {
            // It was published before a restart, so no client waits for it through the log any more.
            let Published { id, at, wants, seq } = *published;
            self.orphans.insert(id, RequestRow { id, at, wants: wants.clone(), seq });
            return;
        }
        let want =
            |(name, mode): &(LockName, Mode)| Want { lock: self.activate(name), mode: *mode, holder: 0 };
        let wants: SmallVec<[Want; 1]> = published.wants.locks().iter().map(want).collect();
        let mut row = Request {
            id: published.id,
            at: published.at,
            wants,
            origin: Origin::Remote { seq: published.seq },
            parked: false,
        };
        row.parked = self.should_park(&row);
        let locks: SmallVec<[LockIndex; 1]> = row.wants.iter().map(|want| want.lock).collect();
        let index = self.insert_row(row);
        self.published.insert(published.id, (index, published.seq));
        self.enqueue(index);
        self.note_wait(index);
        self.counts.remote += 1;
        locks.into_iter().for_each(|lock| self.mark(lock));
    }

    /// Removes a request from the request table; an unknown id is no error.
    pub fn apply_withdraw(&mut self, id: RequestId, now: Instant) {
        self.note_before(id);
        if id.dc == self.me {
            self.orphans.remove(&id);
        }
        let Some(index) = self.find(id) else { return };
        if self.is_local(index) {
            return;
        }
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::WithdrawnServed) {
            return;
        }
        self.published.remove(&id);
        self.dequeue(index);
        for i in 0..self.get(index).wants.len() {
            let lock = self.get(index).wants[i].lock;
            self.note_idle(lock, now);
        }
        self.counts.remote -= 1;
        self.forget(index);
    }

    /// Applies a transfer by an entry of `from` at `position`; [`Position::default`] for an entry that has
    /// long been durable.
    pub fn apply_transfer(&mut self, from: DcId, to: DcId, moved: &LockParts, position: Position) {
        self.move_parts(to, moved);
        let parts = moved.parts.iter().map(|(part, _)| *part).collect();
        self.note_moved(from, to, &moved.lock, parts, position);
    }

    /// Updates the lock table after the ownership map changed for these parts.
    pub(super) fn note_moved(
        &mut self,
        from: DcId,
        to: DcId,
        lock: &LockName,
        parts: DcSet,
        position: Position,
    ) {
        let known = self.find_lock(lock.as_bytes());
        if let Some(index) = known {
            if from == self.me {
                // An own transfer that is read from the journal again, or received from peers that kept it.
                let lock = self.lock_mut(index);
                lock.parts = lock.parts.difference(parts);
                self.mark(index);
            }
            self.repark_lock(index, from, to);
        }
        if to == self.me {
            self.counts.transfers_received += parts.len() as u64;
            // Idle returns, and transfers that are applied again after a start, do not count.
            let is_wanted = known.is_some_and(|index| !self.lock(index).queue.is_empty());
            if is_wanted && position != Position::default() {
                self.counts.hand_offs_received += 1;
                self.hot_locks.moved(lock);
            }
            if known.is_none() && position == Position::default() {
                return;
            }
            let index = self.activate(lock);
            let lock = self.lock_mut(index);
            parts.iter().for_each(|part| lock.gain_part(part, position));
            self.mark(index);
        }
    }

    /// Writes the registers of moved parts. The caller updates the waiters of the lock.
    pub(crate) fn move_parts(&mut self, to: DcId, moved: &LockParts) {
        for (part, version) in &moved.parts {
            let part_move = PartMove { lock: moved.lock.clone(), part: *part, owner: to, version: *version };
            if let Err(double_owner) = self.ownership.validate_op(&part_move) {
                panic!(
                    "{double_owner}: mutual exclusion is at stake, restore one of the two from its journal"
                );
            }
            let before = self.ownership.register(&moved.lock, *part);
            self.ownership.apply(part_move);
            let after = self.ownership.register(&moved.lock, *part);
            let digest = |register| Ownership::digest(&moved.lock, *part, register);
            self.ownership_sum = self.ownership_sum.wrapping_sub(digest(before)).wrapping_add(digest(after));
        }
    }

    /// Takes the operations of a step, in the order of an entry: withdrawals, transfers, requests.
    #[inline]
    pub fn take_ops(&mut self) -> Vec<Op> {
        if self.output.is_empty() { Vec::new() } else { self.some_ops() }
    }

    /// Returns true if the log contains all changes of ownership and of the request table. Otherwise neither
    /// may be shown outside.
    pub fn is_in_log(&self) -> bool {
        self.output.is_empty()
    }

    fn some_ops(&mut self) -> Vec<Op> {
        let mut ops = std::mem::take(&mut self.output.withdraws);
        let mut transfers = std::mem::take(&mut self.output.transfers);
        transfers.sort_by_key(|(to, _)| *to);
        for group in transfers.chunk_by(|a, b| a.0 == b.0) {
            ops.push(Op::Transfer {
                to: group[0].0,
                parts: group.iter().map(|(_, lock)| lock.clone()).collect(),
            });
        }
        for request in std::mem::take(&mut self.output.requests) {
            let wants = self.wants(request).map(|(name, mode)| (name.clone(), mode)).collect();
            let row = self.get(request);
            ops.push(Op::Request { id: row.id, at: row.at, wants: Wants::All(wants) });
        }
        ops
    }

    /// Records the entry of this datacenter that published its requests, and removes the orphans that it
    /// withdrew.
    pub fn note_own_entry(&mut self, seq: u64, ops: &[Op], now: Instant) {
        for op in ops {
            match op {
                Op::Request { id, .. } => {
                    let index = self.find(*id).expect("a request is published in the step in which it waits");
                    let local = self.local_mut(index);
                    assert_eq!(local.publication, Publication::InThisStep, "request {id} is published once");
                    local.publication = Publication::Published { seq };
                    self.published.insert(*id, (index, seq));
                }
                Op::Withdraw { id } => self.apply_withdraw(*id, now),
                Op::Transfer { .. } | Op::Commit(_) => {}
            }
        }
    }

    /// Sets the ownership map from a checkpoint, before anything is known of any lock.
    pub fn restore_ownership(&mut self, ownership: Ownership) {
        assert!(self.locks.is_empty(), "ownership is restored before anything else");
        self.ownership_sum = ownership.sum();
        self.ownership = ownership;
    }
}

/// Returns an element that the list contains more than once.
fn first_twice<T: Ord + Copy>(list: &mut [T]) -> Option<T> {
    list.sort_unstable();
    list.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
