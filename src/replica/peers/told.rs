//! News that every peer is to be told, and that not all releases understand.

use geolock_api::names::{DcId, DcSet};

/// The peers that understand a message on their present link, and those of them that were told the latest.
#[derive(Default)]
pub(in crate::replica) struct Told {
    understood_by: DcSet,
    informed: DcSet,
}

impl Told {
    /// A link is up on which the message is understood, or not.
    pub fn note_link_up(&mut self, peer: DcId, understands: bool) {
        self.informed.remove(peer);
        match understands {
            true => self.understood_by.insert(peer),
            false => self.understood_by.remove(peer),
        };
    }

    /// There is something new to tell.
    pub fn renew(&mut self) {
        self.informed = DcSet::EMPTY;
    }

    /// Returns those of the linked peers that are to be told now, and counts them as told.
    pub fn take_untold(&mut self, linked: DcSet) -> DcSet {
        let untold = linked.intersection(self.understood_by).difference(self.informed);
        self.informed = self.informed.union(untold);
        untold
    }
}
