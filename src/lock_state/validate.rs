//! The checks of an entry of another datacenter before anything of it is applied
//! (`docs/algorithm/log.md#16-validation`). They only read; `install_state.rs` has those of a whole state.

use super::inspect::Inspect;
use super::owners::Known;
use super::tables::Tables;
use crate::base::bugs::Bug;
use crate::causal_log::{EntryFault, Op, Wants};
use crate::crdt::Sponsors;
use geolock_api::names::{DcId, LockName, MAX_NUMBER, RequestId};

impl Inspect<'_> {
    /// Checks the operations of an entry of `dc`. `known`: the datacenters of the epoch of the entry.
    pub fn validate(self, dc: DcId, known: Known, ops: &[Op]) -> Result<(), EntryFault> {
        let (owners, sponsors) = (&self.0.owners, self.0.owners.sponsors());
        let mut requests = Vec::new();
        let mut moved = Vec::new();
        for op in ops {
            match op {
                Op::Request { id, wants, .. } => {
                    validate_request(self.0, dc, *id, wants)?;
                    validate_homes(known, wants.locks().iter().map(|(lock, _)| lock))?;
                    requests.push(*id);
                }
                Op::Withdraw { id } if id.dc != dc => return Err(EntryFault::ForeignWithdraw { id: *id }),
                Op::Withdraw { .. } | Op::Commit(_) | Op::Under { .. } | Op::Enter { .. } | Op::Leave => {}
                Op::Freed { slot, .. } if !known.left.contains(*slot) => {
                    return Err(EntryFault::NotOver { slot: *slot });
                }
                Op::Freed { .. } => {}
                // One that has ended before it was settled, which the maker did not know yet.
                Op::Split { part } | Op::Done { part } if self.is_over(known, *part) => {}
                Op::Split { part } => validate_split(sponsors, dc, *part)?,
                Op::Done { part } => validate_done(sponsors, dc, *part)?,
                Op::Rehome { epoch } if !sponsors.rules().may_give(dc, *epoch) => {
                    return Err(EntryFault::NotRehoming { epoch: *epoch });
                }
                Op::Rehome { .. } => {}
                Op::Transfer { parts, .. } | Op::Keep { parts } => {
                    // A datacenter that keeps parts gives them to itself.
                    let to = if let Op::Transfer { to, .. } = op { *to } else { dc };
                    validate_homes(known, parts.iter().map(|moved| &moved.lock))?;
                    parts.iter().try_for_each(|lock| owners.validate_transfer(dc, known, to, lock))?;
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

    /// Returns true if this was a member when an entry was made, and is none any more.
    fn is_over(self, known: Known, part: DcId) -> bool {
        let is_over = known.members.contains(part) && self.0.owners.has_ended(part);
        is_over && !self.0.view.bugs.has(Bug::EndedPartUnknown)
    }
}

/// Checks that the homes of these locks are members, or were.
fn validate_homes<'a>(known: Known, locks: impl IntoIterator<Item = &'a LockName>) -> Result<(), EntryFault> {
    match locks.into_iter().find(|lock| lock.home().is_some_and(|home| !known.ever().contains(home))) {
        Some(lock) => Err(EntryFault::UnknownHome { lock: lock.clone() }),
        None => Ok(()),
    }
}

/// Checks that `dc` may split this part off.
fn validate_split(sponsors: &Sponsors, dc: DcId, part: DcId) -> Result<(), EntryFault> {
    match sponsors.get(part) {
        Some(row) if row.sponsor == dc && !row.split => Ok(()),
        _ => Err(EntryFault::NotTheSponsor { part }),
    }
}

/// Checks that this part is not settled, and that its sponsor splits it off before it has named it.
fn validate_done(sponsors: &Sponsors, dc: DcId, part: DcId) -> Result<(), EntryFault> {
    match sponsors.get(part) {
        Some(row) if row.split || row.sponsor != dc => Ok(()),
        _ => Err(EntryFault::NotSplit { part }),
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
