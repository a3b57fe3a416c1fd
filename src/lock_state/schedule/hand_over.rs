//! Parts that leave for another datacenter, and parts that come:
//! `docs/algorithm/ownership.md#25-remote-requests`.

use super::{Cause, IdleReturns, Schedule};
use crate::base::bugs::Bug;
use crate::base::tables::RowIndex;
use crate::crdt::is_below;
use crate::lock_state::lock::{Lock, LockIndex};
use crate::lock_state::queue::{Class, Due, Waiter, earliest};
use crate::lock_state::tables::Tables;
use geolock_api::names::{DcId, DcSet, LockName, Mode, Position};

/// Returns the parts of a lock whose own datacenters get them for shared requests: the due ones up to the
/// first exclusive one, all together.
fn parts_for_readers(lock: &Lock, first_exclusive: Option<Waiter>) -> DcSet {
    let is_served = |dc: &DcId| match lock.queue.first_remote_shared(*dc) {
        Some((reader, Due::Due)) => first_exclusive.is_none_or(|exclusive| reader.0 < exclusive.0),
        _ => false,
    };
    lock.parts.iter().filter(is_served).collect()
}

/// Returns true if no request for a lock that counts here stops the first exclusive one of others.
fn is_first(lock: &Lock, writer: Waiter) -> bool {
    let stops = |dc| lock.queue.first_remote_shared(dc).is_some_and(|(reader, _)| reader < writer);
    lock.queue.first_local_conflict(Mode::Exclusive).is_none_or(|first| first >= writer.0)
        && !lock.parts.iter().any(stops)
}

impl Schedule {
    /// Transfers parts to remote requests that can be served, are due, and are not blocked by a holder.
    pub(super) fn serve_remote(&mut self, tables: &mut Tables, index: LockIndex) {
        let lock = &tables.locks[index];
        if lock.parts.is_empty() || lock.queue.is_empty() {
            return;
        }
        let lock_parts = lock.parts;
        let remote_exclusive = lock.queue.first_remote_exclusive();
        let first_exclusive =
            earliest(lock.queue.first(Class::LocalExclusive), remote_exclusive.map(|(w, _)| w));
        let first_exclusive =
            if tables.view.bugs.has(Bug::SharedPastExclusive) { None } else { first_exclusive };
        if !lock.is_held_against(Mode::Shared) {
            for part in parts_for_readers(lock, first_exclusive).iter() {
                self.transfer(tables, index, DcSet::only(part), part);
            }
            if tables.locks[index].parts != lock_parts {
                self.return_beside_shared(tables, index);
            }
        }

        let Some((writer, Due::Due)) = remote_exclusive else { return };
        let lock = &tables.locks[index];
        let held = lock.is_held_against(Mode::Exclusive);
        let held = held && !tables.view.bugs.has(Bug::TransferWhileHeld);
        if !held && is_first(lock, writer) {
            let parts = lock.parts;
            self.transfer(tables, index, parts, writer.0.id.dc);
        }
    }

    fn transfer(&mut self, tables: &mut Tables, index: LockIndex, parts: DcSet, to: DcId) {
        let me = tables.view.me;
        assert!(to != me, "parts are handed to others");
        // Some may have gone along with others in this step.
        let parts = parts.intersection(tables.locks[index].parts);
        // Requests of a datacenter that went away just now, or is leaving, may not be parked yet.
        if parts.is_empty() || (self.sweeps.is_reparking() && tables.view.takes_none(to)) {
            return;
        }
        assert!(
            !tables.view.leaving.contains(to) || tables.view.bugs.has(Bug::GivenToLeaver),
            "{to} leaves, and gets no parts any more"
        );
        let lock = &mut tables.locks[index];
        let against = if parts == lock.parts { Mode::Exclusive } else { Mode::Shared };
        debug_assert!(
            !lock.is_held_against(against) || tables.view.bugs.has(Bug::TransferWhileHeld),
            "parts of lock {} leave while it is held",
            lock.name
        );
        let moved = tables.owners.next_versions(&lock.name, parts);
        lock.parts = lock.parts.difference(moved.parts.iter().map(|(part, _)| *part).collect());
        self.counts.part_transfers_sent += parts.len() as u64;
        self.counts.hand_offs_sent += 1;
        tables.hot_locks.moved(&moved.lock);
        tables.owners.move_parts(to, &moved);
        self.repark_lock(tables, index, me, to);
        self.output.transfers.push((to, moved));
    }

    /// Returns the other foreign parts of a lock to their homes, after a shared request of another datacenter
    /// got its part: an exclusive grant here costs a round trip now anyway, and without them the next shared
    /// grant elsewhere costs none (`docs/algorithm/ownership.md#14-idle-return`). Parts stay for an exclusive
    /// request that waits, and if the lock will probably be used exclusively here before a part is home.
    fn return_beside_shared(&mut self, tables: &mut Tables, index: LockIndex) {
        let Tables { view, policies, owners, locks, .. } = &mut *tables;
        let lock = &mut locks[index];
        let is_wanted = lock.queue.first(Class::LocalExclusive).is_some()
            || lock.queue.first_remote_exclusive().is_some();
        if is_wanted && !view.bugs.has(Bug::ReturnedPastExclusive) {
            return;
        }
        let foreign = owners.foreign_parts(&lock.name);
        let returns = |part: &DcId| {
            let home = owners.default_owner(&lock.name, *part);
            // Readers here need the own part, also of a lock whose home is elsewhere.
            *part != view.me
                && home != view.me
                && !view.takes_none(home)
                && !policies.is_exclusive_sooner(lock, home)
        };
        let parts: DcSet = foreign.iter().filter(returns).collect();
        if parts.is_empty() {
            return;
        }
        let going_along = owners.going_along(&lock.name, parts);
        lock.parts = lock.parts.difference(parts).difference(going_along);
        let name = lock.name.clone();
        self.return_home(tables, &name, parts, Cause::Shared);
    }

    /// Returns idle parts of a lock to their homes. The row of the lock in the lock table, if there is one,
    /// has lost them already.
    pub fn return_home(&mut self, tables: &mut Tables, name: &LockName, parts: DcSet, cause: Cause) {
        let by_name = tables.view.bugs.has(Bug::ReturnedByName);
        let mut rest = parts;
        while let Some(first) = rest.iter().next() {
            let home_of = |part| if by_name { part } else { tables.owners.default_owner(name, part) };
            let home = home_of(first);
            let together: DcSet = rest.iter().filter(|part| home_of(*part) == home).collect();
            rest = rest.difference(together);
            let is_written = |part: DcId| tables.owners.map().of(name).register(part).version() > 0;
            debug_assert!(
                home != tables.view.me || by_name || together.iter().all(is_written),
                "parts at home stay"
            );
            let moved = tables.owners.next_versions(name, together);
            tables.owners.move_parts(home, &moved);
            self.output.transfers.push((home, moved));
        }
        self.counts.part_transfers_sent += parts.len() as u64;
        let IdleReturns { age, number, shared } = &mut self.counts.idle_returns;
        *match cause {
            Cause::Age => age,
            Cause::Number => number,
            Cause::Shared => shared,
        } += 1;
    }

    /// Updates the lock table after the ownership map changed for these parts by an entry at `position`;
    /// [`Position::default`] for an entry that has long been durable.
    pub fn note_moved(
        &mut self,
        tables: &mut Tables,
        (from, to): (DcId, DcId),
        (name, parts): (&LockName, DcSet),
        position: Position,
    ) {
        let me = tables.view.me;
        let known = tables.locks.find(name);
        if let Some(index) = known {
            if from == me {
                // An own transfer that is read from the journal again, or received from peers that kept it.
                let lock = &mut tables.locks[index];
                lock.parts = lock.parts.difference(parts);
                tables.locks.mark(index);
            }
            self.repark_lock(tables, index, from, to);
        }
        if to != me {
            return;
        }
        self.counts.part_transfers_received += parts.len() as u64;
        // Idle returns, and transfers that are applied again after a start, do not count.
        let is_wanted = known.is_some_and(|index| !tables.locks[index].queue.is_empty());
        if is_wanted && position != Position::default() {
            self.counts.hand_offs_received += 1;
            tables.hot_locks.moved(name);
        }
        if known.is_none() && position == Position::default() {
            return;
        }
        let index = tables.activate(name);
        let here = tables.owners.parts_here(name);
        let lock = &mut tables.locks[index];
        parts.intersection(here).iter().for_each(|part| lock.gain_part(part, position));
        tables.locks.mark(index);
    }

    /// Updates the lock table after the owners of parts without a register may have changed, or the parts
    /// that count, by the record at `position`.
    pub fn note_parts_here(&mut self, tables: &mut Tables, position: Position) {
        self.note_parts_of(tables, position, |_| true);
    }

    /// The same for the locks below a prefix.
    pub fn note_parts_below(&mut self, tables: &mut Tables, prefix: &LockName, position: Position) {
        self.note_parts_of(tables, position, |lock| is_below(&lock.name, prefix));
    }

    fn note_parts_of(&mut self, tables: &mut Tables, position: Position, is_meant: impl Fn(&Lock) -> bool) {
        tables.members_since = tables.members_since.max(position);
        for index in (0..tables.locks.end()).map(LockIndex::from_row) {
            let Some(lock) = tables.locks.get_mut(index).filter(|lock| is_meant(lock)) else { continue };
            lock.position = lock.position.max(position);
            let here = tables.owners.parts_here(&lock.name);
            if lock.parts != here {
                lock.parts = here;
                lock.recheck_shared = true;
                tables.locks.mark(index);
            }
        }
        self.repark_all();
    }

    /// Keeps parts of a lock that are here, whatever their home will be.
    pub fn keep_parts(&mut self, tables: &mut Tables, name: &LockName, parts: DcSet) {
        let kept = tables.owners.next_versions(name, parts);
        tables.owners.keep_parts(tables.view.me, &kept);
        self.output.kept.push(kept);
    }

    /// Names the part of a new member that goes along with parts that are here, by a transfer to `to`: the
    /// new member, or this datacenter, which keeps it under the name.
    pub fn name_part(&mut self, tables: &mut Tables, name: &LockName, part: DcId, to: DcId) {
        let moved = tables.owners.next_versions(name, DcSet::only(part));
        tables.owners.move_parts(to, &moved);
        if let Some(index) = tables.locks.find(name) {
            tables.locks[index].parts = tables.owners.parts_here(name);
            tables.locks.mark(index);
        }
        self.output.transfers.push((to, moved));
    }
}
