//! Reads the leases for a checkpoint: as they were when it began, some in each step.

use std::ops::Range;

use super::lease::{LeaseIndex, LeaseRecord};
use super::table::Leases;
use crate::base::tables::RowIndex as _;

/// A reader of all leases. There is at most one.
pub(super) struct Reader {
    /// The rows that are to be read.
    rows: Range<usize>,
    /// Leases with this number or a higher one were opened later.
    before: u64,
    /// Leases that have ended since, and were not read yet.
    ended: Vec<LeaseRecord>,
}

impl Reader {
    /// A lease ends.
    pub fn note_end(&mut self, index: LeaseIndex, lease: LeaseRecord) {
        if self.rows.contains(&index.row()) && lease.lease.n() < self.before {
            self.ended.push(lease);
        }
    }
}

impl Leases {
    /// Begins to read the leases of this moment. `before`: no lease has this number or a higher one yet. A
    /// reader of before stops.
    pub fn begin_reading(&mut self, before: u64) {
        self.reader = Some(Reader { rows: 0..self.rows.end(), before, ended: Vec::new() });
    }

    /// Reads about `most` more leases. Returns them, in no order, and the number that was examined; less than
    /// `most` if these are the last ones.
    pub fn read(&mut self, most: usize) -> (Vec<LeaseRecord>, usize) {
        let Some(reader) = &mut self.reader else { return (Vec::new(), 0) };
        let rows = reader.rows.start..reader.rows.end.min(reader.rows.start + most);
        let examined = rows.len();
        reader.rows.start = rows.end;
        let leases = rows.filter_map(|row| self.rows.get(LeaseIndex::from_row(row)));
        let mut read: Vec<LeaseRecord> =
            leases.map(|lease| lease.record()).filter(|lease| lease.lease.n() < reader.before).collect();
        let ended = reader.ended.len().min(most - examined);
        read.extend(reader.ended.drain(reader.ended.len() - ended..));
        if examined + ended < most {
            self.reader = None;
        }
        (read, examined + ended)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::base::time::Instant;
    use crate::leases::{ClientId, OnDisconnect};
    use geolock_api::names::{DcId, LeaseId, Secret};

    fn open(leases: &mut Leases, n: u64) {
        let (lease, ttl) = (LeaseId::new(DcId::new(0).expect("a small id"), n), Duration::from_secs(10));
        let (secret, on_disconnect) = (Secret::new([7; 16]), OnDisconnect::Keep);
        leases.open(LeaseRecord { lease, secret, ttl, on_disconnect }, ClientId(1), Instant::ZERO);
    }

    fn end(leases: &mut Leases, n: u64) {
        let index = leases.find(LeaseId::new(DcId::new(0).expect("a small id"), n)).expect("it is there");
        leases.end(index);
    }

    #[test]
    fn a_reader_finds_the_leases_of_its_beginning_whatever_begins_and_ends_meanwhile() {
        for most in [1, 3, 7, 100] {
            let mut leases = Leases::new(DcId::new(0).expect("a small id"), 0);
            (1..=40).for_each(|n| open(&mut leases, n));
            (11..=20).for_each(|n| end(&mut leases, n));
            leases.begin_reading(41);
            let (mut read, mut next, mut old) = (Vec::new(), 41, 1);
            loop {
                let (some, examined) = leases.read(most);
                read.extend(some.iter().map(|lease| lease.lease.n()));
                if examined < most {
                    break;
                }
                // New leases take rows of ended ones, behind the reader and before it.
                open(&mut leases, next);
                next += 1;
                if old <= 10 {
                    end(&mut leases, old);
                    end(&mut leases, 41 - old);
                    old += 1;
                }
            }
            let unique: BTreeSet<u64> = read.iter().copied().collect();
            assert_eq!(unique.len(), read.len(), "none twice");
            assert!(unique.into_iter().eq((1..=10).chain(21..=40)), "{most}: {read:?}");
        }
    }
}
