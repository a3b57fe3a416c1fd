//! The knowledge of the own log: if this directory has all of it, and if leases may live that it does not
//! know (`docs/algorithm/recovery.md#3-log-recovery`, `docs/algorithm/recovery.md#4-doubted-datacenters`).
//!
//! ```text
//!          every member was heard
//!     New ------------------------------> Joined
//!      |                                   |  ^
//!      | a member knows more than is       |  | every member was heard, nothing is missing,
//!      | here, or relies on more, or an    |  | and unknown leases are over
//!      | operator marked the directory     v  |
//!      +--------------------------------> Doubted
//! ```
//!
//! Beside that, every run asks: it hears the members one by one, and a restarted one waits for all of them,
//! but only for a time.

use std::time::Duration;

use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::replica::peers::stability::Floor;
use geolock_api::names::{DcId, DcSet};

/// The knowledge of the own log.
pub(in crate::replica) struct OwnLog {
    me: DcId,
    peers: DcSet,
    /// How long a restarted datacenter waits for members.
    patience: Duration,
    directory: Directory,
    /// Members heard in this run.
    heard: DcSet,
    /// After a restart: until then we wait for members that were not heard yet. The disk may be an old copy,
    /// and then any of them may know more of our log.
    asks_until: Option<Instant>,
    /// Seq of the last own entry that any member is known to have.
    known: u64,
    /// Entries that peers know we applied but that are missing here: this disk is an old copy. Relying on
    /// that, peers may already have dropped tombstones.
    relied_on: Option<VersionVector>,
}

/// The data directory, as far as this datacenter can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Directory {
    /// It was empty, and nobody knows that anything was ever written here.
    New,
    /// It is an old copy, or an empty one in the place of a used one. Leases that it does not know may live:
    /// until the given time, or no longer. Nothing was granted since the doubt began.
    Doubted { leases_until: Option<Instant> },
    /// Every member was heard once, now or before a restart, and all that they knew of our log is here.
    Joined,
}

/// The events. Those that can change [`OwnLog::is_recovered`] are passed in through the lifecycle.
impl OwnLog {
    pub(super) fn new(me: DcId, peers: DcSet, patience: Duration) -> OwnLog {
        assert!(!peers.contains(me), "nobody is a peer of itself");
        OwnLog {
            me,
            peers,
            patience,
            directory: Directory::New,
            heard: DcSet::EMPTY,
            asks_until: None,
            known: 0,
            relied_on: None,
        }
    }

    /// Returns true if these are others than before.
    pub(super) fn set_peers(&mut self, peers: DcSet) -> bool {
        assert!(!peers.contains(self.me), "nobody is a peer of itself");
        let are_others = std::mem::replace(&mut self.peers, peers) != peers;
        self.end_asking_if_all_were_heard();
        are_others
    }

    /// The data here may be incomplete, and leases that it does not know may live until then.
    pub(super) fn doubt(&mut self, leases_until: Instant) {
        assert!(self.relied_on.is_none(), "a doubt that a peer has caused is not begun again");
        self.directory = Directory::Doubted { leases_until: Some(leases_until) };
    }

    pub(super) fn join(&mut self) {
        self.directory = Directory::Joined;
    }

    /// The disk was read: everything that is known to exist is here.
    pub(super) fn restart(&mut self, applied: &VersionVector) {
        assert_eq!(self.known, 0, "nobody was heard before the restart");
        self.known = applied.get(self.me);
    }

    /// A restarted datacenter begins to ask. Time counts from now, because reading the journal may have taken
    /// any time.
    pub(super) fn ask(&mut self, now: Instant) {
        assert!(!self.is_asking() && self.heard.is_empty(), "a run begins to ask once, before it hears");
        if !self.peers.is_empty() {
            self.asks_until = Some(now + self.patience);
        }
    }

    pub(super) fn hear(&mut self, peer: DcId) {
        assert_ne!(peer, self.me, "an answer comes from another member");
        self.heard.insert(peer);
        self.end_asking_if_all_were_heard();
    }

    fn end_asking_if_all_were_heard(&mut self) {
        if self.unheard().is_empty() {
            self.asks_until = None;
        }
    }

    /// Some member has own entries up to `seq`. Returns true if that shows, for the first time, that this
    /// disk lacks so many: then the datacenter has to be doubted.
    #[must_use]
    pub fn note_known(&mut self, seq: u64, applied: &VersionVector) -> bool {
        let lacks_more = seq > applied.get(self.me).max(self.known);
        self.known = self.known.max(seq);
        lacks_more
    }

    /// Peers know that everything in `seen` was applied here, and some of it is not. The datacenter is
    /// doubted.
    pub fn note_relied_on(&mut self, seen: &VersionVector) {
        assert!(!self.has_joined(), "a directory that lacks something is doubted");
        let relied_on = self.relied_on.get_or_insert_default();
        seen.iter().for_each(|(dc, seq)| relied_on.raise(dc, seq));
    }

    /// Ends the wait for silent members when its time is over. Returns true if it ends.
    pub(super) fn end_asking(&mut self, now: Instant, linked: DcSet) -> bool {
        let is_over = self.asks_until(linked).is_some_and(|until| until <= now);
        if is_over {
            self.asks_until = None;
        }
        is_over
    }

    /// Ends the wait for leases that this directory does not know.
    pub(super) fn end_leases(&mut self, now: Instant) {
        if let Directory::Doubted { leases_until } = &mut self.directory {
            leases_until.take_if(|until| *until <= now);
        }
    }

    /// Returns true, once, if everything is applied again that peers rely on.
    pub(super) fn end_relied_on(&mut self, applied: &VersionVector) -> bool {
        self.relied_on.take_if(|seen| applied.covers(seen)).is_some()
    }
}

/// The questions.
impl OwnLog {
    /// Returns true if every member was heard once, now or before a restart, and all that they knew of the
    /// own log is here.
    pub fn has_joined(&self) -> bool {
        self.directory == Directory::Joined
    }

    /// Returns true if the directory is thought to be an old copy, or an empty one in the place of a used
    /// one.
    pub fn is_doubted(&self) -> bool {
        matches!(self.directory, Directory::Doubted { .. })
    }

    /// Returns for how long leases may live that this directory does not know.
    pub fn unknown_leases_for(&self, now: Instant) -> Duration {
        match self.directory {
            Directory::Doubted { leases_until: Some(until) } => until.saturating_since(now),
            _ => Duration::ZERO,
        }
    }

    /// Returns true if this run still waits for members because it has restarted.
    pub fn is_asking(&self) -> bool {
        self.asks_until.is_some()
    }

    /// Returns the members without a link that have still to be asked how much they have of the own log.
    pub fn to_ask(&self, linked: DcSet) -> DcSet {
        match !self.has_joined() || self.is_asking() {
            true => self.unheard().difference(linked),
            false => DcSet::EMPTY,
        }
    }

    /// Returns the members that were not heard in this run.
    fn unheard(&self) -> DcSet {
        self.peers.difference(self.heard)
    }

    /// Returns true if everything is applied that the heard members know to have been here.
    pub(super) fn has_all_that_is_known(&self, applied: &VersionVector) -> bool {
        applied.get(self.me) >= self.known && self.relied_on.is_none()
    }

    /// Returns true if the own log is whole, as far as any heard member knows.
    pub fn is_whole(&self, applied: &VersionVector) -> bool {
        let all_heard = self.has_joined() || self.unheard().is_empty();
        !self.is_asking() && all_heard && self.has_all_that_is_known(applied)
    }

    /// Returns true if the own log is whole, as far as any heard member knows, and leases that this directory
    /// may not know are over. Nothing is missing in a directory that has joined: see [`OwnLog::check`].
    pub fn is_recovered(&self) -> bool {
        self.has_joined() && !self.is_asking()
    }

    /// Returns true if the directory can join, as far as the own log is concerned.
    pub(super) fn may_join(&self, applied: &VersionVector) -> bool {
        match self.directory {
            Directory::New | Directory::Doubted { leases_until: None } => {
                self.unheard().is_empty() && self.has_all_that_is_known(applied)
            }
            Directory::Doubted { leases_until: Some(_) } | Directory::Joined => false,
        }
    }

    /// Returns until when we wait for members that were not heard since the restart. If a link to one of them
    /// is up, its first heartbeat is on its way and may show more of our log: then we wait longer, but not
    /// for ever.
    fn asks_until(&self, linked: DcSet) -> Option<Instant> {
        let until = self.asks_until?;
        let is_silent = !linked.difference(self.heard).is_empty();
        Some(if is_silent { until + self.patience } else { until })
    }

    /// Returns when time alone may change something.
    pub(super) fn next_deadline(&self, linked: DcSet) -> Instant {
        let leases = match self.directory {
            Directory::Doubted { leases_until } => leases_until,
            Directory::New | Directory::Joined => None,
        };
        let deadlines = [self.asks_until(linked), leases];
        deadlines.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Asserts the invariants.
    pub(super) fn check(&self, applied: &VersionVector) {
        if self.has_joined() {
            assert!(self.has_all_that_is_known(applied), "a directory that lacks something is doubted");
        }
        if self.is_recovered() {
            assert!(self.is_whole(applied), "a log that is recovered is whole");
        }
        assert!(!self.is_asking() || !self.unheard().is_empty(), "who was heard is not waited for");
        assert!(!self.peers.contains(self.me) && !self.heard.contains(self.me), "nobody hears itself");
    }
}

/// Returns the minimum of the stability floors if there is one of each member, this one included: all of them
/// announced that their further commits have seen it.
pub(super) fn seen_by_all(members: DcSet, floors: &[&Floor]) -> Option<VersionVector> {
    let floor_of = |dc| floors.iter().find(|floor| floor.dc == dc).map(|floor| &floor.floor);
    let mut all = members.iter().map(floor_of);
    let first = all.next().flatten().cloned()?;
    all.try_fold(first, |seen, other| Some(seen.meet(other?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn applied(own: u64, other: u64) -> VersionVector {
        VersionVector::from_iter([(dc(0), own), (dc(1), other)])
    }

    fn only(id: u8) -> DcSet {
        DcSet::only(dc(id))
    }

    /// The log of datacenter 0 of three.
    fn own_log() -> OwnLog {
        OwnLog::new(dc(0), only(1).union(only(2)), Duration::from_millis(3_000))
    }

    fn restarted() -> OwnLog {
        let mut log = own_log();
        log.join();
        log.restart(&applied(5, 0));
        log.ask(at(100));
        log
    }

    #[test]
    fn a_new_directory_joins_when_every_member_was_heard() {
        let mut log = own_log();
        log.hear(dc(1));
        assert!(!log.may_join(&applied(0, 0)) && !log.is_whole(&applied(0, 0)));
        log.hear(dc(2));
        assert!(log.may_join(&applied(0, 0)) && log.is_whole(&applied(0, 0)) && !log.is_recovered());
        log.join();
        assert!(log.is_recovered() && !log.may_join(&applied(0, 0)));
        log.check(&applied(0, 0));
    }

    #[test]
    fn a_cluster_of_one_waits_for_nobody() {
        let mut log = OwnLog::new(dc(0), DcSet::EMPTY, Duration::from_secs(3));
        assert!(log.may_join(&applied(0, 0)));
        log.ask(at(0));
        assert!(!log.is_asking());
    }

    #[test]
    fn a_restart_asks_until_every_member_was_heard() {
        let mut log = restarted();
        assert!(log.is_asking() && !log.to_ask(DcSet::EMPTY).is_empty() && !log.is_recovered());
        log.hear(dc(1));
        assert!(log.is_asking());
        log.hear(dc(2));
        assert!(
            !log.is_asking()
                && log.to_ask(DcSet::EMPTY).is_empty()
                && log.is_recovered()
                && log.is_whole(&applied(5, 0))
        );
    }

    #[test]
    fn a_restart_waits_for_a_silent_member_as_long_as_it_takes_to_call_it_unreachable() {
        let mut log = restarted();
        log.hear(dc(1));
        assert_eq!(log.next_deadline(only(1)), at(3_100));
        assert!(!log.end_asking(at(3_099), only(1)) && log.is_asking());
        assert!(log.end_asking(at(3_100), only(1)) && log.is_recovered());
        assert_eq!(log.next_deadline(only(1)), Instant::FAR_FUTURE);
    }

    #[test]
    fn a_restart_waits_twice_as_long_for_a_silent_member_with_a_link() {
        let mut log = restarted();
        assert_eq!(log.next_deadline(only(2)), at(6_100));
        assert!(!log.end_asking(at(6_099), only(2)));
        assert!(log.end_asking(at(6_100), only(2)));
    }

    #[test]
    fn a_joined_directory_of_which_a_member_knows_more_is_missing_something() {
        let mut log = restarted();
        assert!(!log.note_known(5, &applied(5, 0)), "that is here");
        assert!(log.note_known(7, &applied(5, 0)));
        assert!(!log.note_known(7, &applied(5, 0)), "that is no news");
        log.doubt(at(60_000));
        assert!(log.is_doubted() && !log.has_joined() && !log.is_recovered());
        assert!(!log.is_whole(&applied(6, 0)));
    }

    #[test]
    fn a_doubted_directory_joins_when_all_were_heard_and_all_is_here_and_leases_are_over() {
        let mut log = restarted();
        let _ = log.note_known(7, &applied(5, 0));
        log.doubt(at(60_000));
        log.hear(dc(1));
        log.hear(dc(2));
        assert!(log.is_whole(&applied(7, 0)) && !log.is_whole(&applied(6, 0)));
        assert!(!log.may_join(&applied(7, 0)), "leases may live that it does not know");
        assert_eq!(log.next_deadline(DcSet::EMPTY), at(60_000));
        log.end_leases(at(59_999));
        assert!(!log.may_join(&applied(7, 0)));
        log.end_leases(at(60_000));
        assert!(!log.may_join(&applied(6, 0)), "an entry is missing");
        assert!(log.may_join(&applied(7, 0)) && log.is_doubted());
        assert_eq!(log.next_deadline(DcSet::EMPTY), Instant::FAR_FUTURE);
    }

    #[test]
    fn a_doubt_does_not_end_by_itself() {
        let mut log = restarted();
        log.doubt(at(60_000));
        assert!(log.end_asking(at(70_000), DcSet::EMPTY));
        log.end_leases(at(70_000));
        assert!(!log.may_join(&applied(5, 0)), "no member was heard");
    }

    #[test]
    fn entries_that_peers_rely_on_are_waited_for_and_regained_once() {
        let mut log = restarted();
        log.hear(dc(1));
        log.hear(dc(2));
        log.doubt(at(0));
        log.end_leases(at(0));
        log.note_relied_on(&applied(5, 9));
        assert!(!log.is_whole(&applied(5, 8)) && !log.may_join(&applied(5, 8)));
        assert!(!log.end_relied_on(&applied(5, 8)));
        assert!(log.end_relied_on(&applied(5, 9)) && !log.end_relied_on(&applied(5, 9)));
        assert!(log.may_join(&applied(5, 9)));
    }

    #[test]
    fn only_floors_of_all_members_show_something() {
        let floor = |id, own, other| Floor { dc: dc(id), after: 0, floor: applied(own, other) };
        let members = only(0).union(only(1));
        let floors = [floor(1, 3, 4), floor(0, 2, 7)];
        assert_eq!(seen_by_all(members, &[&floors[0]]), None);
        assert_eq!(seen_by_all(members, &[&floors[0], &floors[1]]), Some(applied(2, 4)));
    }

    #[test]
    #[should_panic(expected = "a directory that lacks something is doubted")]
    fn a_joined_directory_lacks_nothing() {
        let mut log = restarted();
        let _ = log.note_known(7, &applied(5, 0));
        log.check(&applied(5, 0));
    }
}
