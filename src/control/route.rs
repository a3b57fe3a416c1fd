//! The way of frames, when two members have no link: by way of one that has a link to both. Pure.
//!
//! One member in between is enough. Voters that cannot reach each other even so count as cut off; Raft then
//! elects among those that can. So no member keeps routes of others, and no frame can go round in circles: a
//! frame is passed on once, and only on a direct link to its addressee.

use std::collections::BTreeMap;

use geolock_api::names::{DcId, DcSet};

use super::frame::{Frame, FrameKind};

/// The next thing to do with a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It is for this member.
    Deliver(Frame),
    /// Send it on the link to this member.
    Send(DcId, Frame),
    /// Drop it: it cannot arrive, and no task waits for a report of that.
    Drop,
}

/// The ways that this member knows to work.
#[derive(Debug)]
pub(super) struct Routes {
    me: DcId,
    /// The member in between by which to try next, for members without a link.
    via: BTreeMap<DcId, DcId>,
}

impl Routes {
    pub(super) fn new(me: DcId) -> Routes {
        Routes { me, via: BTreeMap::new() }
    }

    /// Returns the link on which a frame of this member goes to `to`.
    pub(super) fn first_hop(&mut self, to: DcId, linked: DcSet) -> Option<DcId> {
        if linked.contains(to) {
            self.via.remove(&to);
            return Some(to);
        }
        match self.via.get(&to) {
            Some(via) if linked.contains(*via) => Some(*via),
            _ => self.next_via(to, linked),
        }
    }

    /// Notes that the way by `via` to `to` does not work: the next frame goes by another.
    pub(super) fn failed(&mut self, to: DcId, via: DcId, linked: DcSet) {
        if self.via.get(&to) == Some(&via) {
            self.next_via(to, linked);
        }
    }

    /// Goes round the links, so that each gets its turn.
    fn next_via(&mut self, to: DcId, linked: DcSet) -> Option<DcId> {
        let last = self.via.get(&to).copied();
        let candidates = || linked.iter().filter(|via| *via != self.me && *via != to);
        let next = candidates().find(|via| Some(*via) > last).or_else(|| candidates().next());
        match next {
            Some(via) => self.via.insert(to, via),
            None => self.via.remove(&to),
        };
        next
    }

    /// Decides about a frame that came on the link to `by`.
    pub(super) fn arrived(&self, frame: Frame, by: DcId, linked: DcSet) -> Step {
        if frame.from == self.me {
            return Step::Drop;
        }
        if frame.to == self.me {
            return Step::Deliver(frame);
        }
        if frame.hops > 0 && linked.contains(frame.to) && frame.to != by {
            let to = frame.to;
            return Step::Send(to, Frame { hops: frame.hops - 1, ..frame });
        }
        match frame.kind {
            FrameKind::Request(_) => Step::Send(by, frame.answered(FrameKind::NoRoute)),
            FrameKind::Answer(_) | FrameKind::NoRoute | FrameKind::Busy => Step::Drop,
        }
    }
}
