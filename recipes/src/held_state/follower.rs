//! A follower of a value: reads and commits in, changes for the caller out.
//!
//! A commit that a watch reports has the record. The end of a record has none, and an expiry may have missed
//! a record that is written again; so the driver reads the key at every end, and that read may be ahead of
//! the watch. It only tells if the record that is shown is still there: records after it come by the watch,
//! so that none is left out.

use super::record::{HeldValue, Record};

/// A thing that the driver has read or heard.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// The watch begins here, with this record.
    Begun(Option<Record>),
    /// A holder has written this record.
    Wrote(Record),
    /// The record ended, or was not written again in time: the key was read again.
    ReadAgain(Option<Record>),
}

/// A deliberate mistake, in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A read that is ahead of the watch is shown.
    ReadAheadShown,
}

/// The state of a follower.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// The last change; `None` before the first.
    shown: Option<Option<HeldValue>>,
    /// The highest token that was shown.
    highest: u64,
    bug: Option<Bug>,
}

impl Follower {
    #[cfg(test)]
    pub fn with_bug(bug: Option<Bug>) -> Follower {
        Follower { bug, ..Follower::default() }
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.bug == Some(bug)
    }

    /// Returns the change to show, if the news is one.
    pub fn handle(&mut self, news: News) -> Option<Option<HeldValue>> {
        let record = match news {
            News::ReadAgain(Some(record)) if !self.has(Bug::ReadAheadShown) => {
                if record.held.token.0 == self.highest {
                    // The end was not the end of this record.
                    return None;
                }
                None
            }
            News::Wrote(record) => Some(record),
            News::Begun(record) | News::ReadAgain(record) => record,
        };
        let held = record.map(|record| record.held);
        let token = held.as_ref().map_or(self.highest, |held| held.token.0);
        if token < self.highest || self.shown.as_ref() == Some(&held) {
            return None;
        }
        self.highest = self.highest.max(token);
        self.shown = Some(held.clone());
        Some(held)
    }
}
