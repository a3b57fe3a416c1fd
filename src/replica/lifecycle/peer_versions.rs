//! The protocol versions of the members, and the highest one that all of them are known to speak.
//!
//! Members are upgraded one after the other. A member may write nothing that another one cannot read, so
//! what needs a version waits until every member was heard to speak it: itself, or through others, because
//! not all pairs of members have a link. That level rises and never falls: it is recorded, and a member that
//! goes back is refused. A later version needs no more than a higher [`VERSION`] and the question
//! [`PeerVersions::all_speak`].
//!
//! | version | what waits for it |
//! |---|---|
//! | 2 | own entries name their predecessors, see [`PeerVersions::are_chained`] |
//! | 3 | homed locks |
//! | 4 | commits say under which token they were made |
//! | 7 | parts of new members are split off after these are settled |

use crate::base::bugs::Bug;
use crate::base::capacity::DiskSpace;
use crate::base::wire::CONTROL_VERSION;
use crate::causal_log::Violation;
use crate::replica::call::Refusal;
use crate::replica::config::ReplicaConfig;
use crate::replica::lifecycle::LogRecovery;
use crate::replica::record::Record;
use geolock_api::names::{DcId, DcSet, LockName, MAX_DCS};

/// The highest version of the protocol that this release speaks.
pub const VERSION: u16 = *crate::base::wire::VERSIONS.end();
/// The version from which on entries name their predecessors: version 1 would not relay that field, and
/// entries would look like another log.
pub const CHAINED: u16 = 2;
/// The version from which on the name of a lock may have a home.
pub const HOMED: u16 = 3;
/// The version from which on entries have [`Op::Under`](crate::causal_log::Op::Under).
pub const UNDER: u16 = 4;

const _: () = assert!(CHAINED < HOMED && HOMED < UNDER && UNDER <= VERSION);

/// The protocol versions of the members.
pub(in crate::replica) struct PeerVersions {
    peers: DcSet,
    /// It is a member. If not, there are others, although it knows of none.
    is_member: bool,
    /// The highest version that this datacenter speaks.
    own: u16,
    /// The highest version that each member is known to speak; 1 if nothing is known of it.
    spoken: [u16; MAX_DCS],
    /// All members speak this version, now or earlier. Never falls.
    all: u16,
    /// The journal has this value of `all`.
    recorded: u16,
}

impl PeerVersions {
    /// `is_member`: it is no server that is still to join.
    pub(super) fn new(me: DcId, peers: DcSet, own: u16, is_member: bool) -> PeerVersions {
        let all = match (peers.is_empty(), is_member) {
            // A cluster of one member has no other one to wait for.
            (true, true) => own,
            // All that a cluster needs that others can join.
            (true, false) => own.min(CONTROL_VERSION),
            (false, _) => 1,
        };
        let spoken = [1; MAX_DCS];
        let mut versions = PeerVersions { peers, is_member, own, spoken, all, recorded: all };
        versions.spoken[me.index()] = own;
        versions
    }

    /// Without the members that are gone, all may speak more. Their slots may get servers of another release.
    pub(super) fn set_peers(&mut self, peers: DcSet) {
        for dc in self.peers.difference(peers).iter() {
            self.spoken[dc.index()] = 1;
        }
        self.peers = peers;
        self.raise();
    }

    /// It has become a member, or is none any more.
    pub(super) fn set_member(&mut self, is_member: bool) {
        self.is_member = is_member;
        self.raise();
    }

    /// Notes that a member speaks this version, as itself or another member reports.
    fn note(&mut self, dc: DcId, version: u16) {
        let spoken = &mut self.spoken[dc.index()];
        if *spoken >= version {
            return;
        }
        *spoken = version;
        self.raise();
    }

    fn raise(&mut self) {
        if self.peers.is_empty() && !self.is_member {
            return;
        }
        let of_peers = self.peers.iter().map(|peer| self.spoken[peer.index()]);
        let least = of_peers.min().unwrap_or(self.own);
        self.all = self.all.max(least.min(self.own));
    }

    /// An entry, a record or a checkpoint shows that all members speak this version.
    pub fn note_all(&mut self, version: u16) {
        self.all = self.all.max(version);
    }

    /// The journal has a record, or an entry, that shows this to the next run.
    pub fn note_recorded(&mut self, version: u16) {
        self.note_all(version);
        self.recorded = self.recorded.max(version);
        debug_assert!(self.recorded <= self.all, "only versions that all speak are recorded");
    }

    /// Returns the version that all members are known to speak, if the journal does not have it yet. Entries
    /// show version 2.
    fn to_record(&self) -> Option<u16> {
        (self.all > self.recorded.max(CHAINED)).then_some(self.all)
    }

    /// Returns the highest version that all members are known to speak.
    #[inline]
    pub fn all(&self) -> u16 {
        self.all
    }

    /// Returns true if all members are known to speak this version.
    #[inline]
    pub fn all_speak(&self, version: u16) -> bool {
        self.all >= version
    }

    /// Returns true if all members are known to speak this version, and the next run will know it, too.
    #[inline]
    pub fn may_use(&self, version: u16) -> bool {
        self.recorded >= version
    }

    /// Returns true if own entries name their predecessors.
    #[inline]
    pub fn are_chained(&self) -> bool {
        self.all_speak(CHAINED)
    }

    /// Returns true if a member is known to speak this version.
    pub fn speaks(&self, dc: DcId, version: u16) -> bool {
        self.of(dc) >= version
    }

    /// Returns the highest version that a member is known to speak.
    pub fn of(&self, dc: DcId) -> u16 {
        self.spoken[dc.index()].max(self.all)
    }

    /// Returns the peers that are not known to speak this version.
    pub fn behind(&self, version: u16) -> DcSet {
        self.peers.iter().filter(|peer| !self.speaks(*peer, version)).collect()
    }

    /// Returns the members of which more than version 1 is known, with their versions.
    pub fn to_tell(&self) -> Vec<(DcId, u16)> {
        let all = (0_u8..).map_while(DcId::new).zip(self.spoken);
        all.filter(|(_, version)| *version > 1).collect()
    }

    /// Refuses locks with a home until all members are known to understand their names, and those whose home
    /// is no member.
    #[inline]
    pub fn admit_homes<'a>(
        &self,
        config: &ReplicaConfig,
        members: DcSet,
        locks: impl IntoIterator<Item = &'a LockName>,
    ) -> Result<(), Refusal> {
        locks
            .into_iter()
            .filter(|lock| lock.home().is_some())
            .try_for_each(|lock| self.admit_home(config, members, lock))
    }

    #[cold]
    fn admit_home(&self, config: &ReplicaConfig, members: DcSet, lock: &LockName) -> Result<(), Refusal> {
        if !self.may_use(HOMED) && !config.bugs.has(Bug::HomedTooEarly) {
            return Err(Refusal::NotYet { needs: HOMED, behind: self.behind(HOMED) });
        }
        match lock.home().filter(|home| !members.contains(*home)) {
            Some(home) => Err(Refusal::UnknownHome { home, members }),
            None => Ok(()),
        }
    }

    /// Refuses a peer that speaks no more than this version if all members have spoken a higher one: it
    /// cannot read, or not relay, what they write.
    pub fn admit(&self, speaks: u16) -> Result<(), Violation> {
        if speaks < self.all { Err(Violation::OldVersion { speaks, all: self.all }) } else { Ok(()) }
    }

    /// Asserts the invariants.
    pub(super) fn check(&self) {
        assert!(self.recorded <= self.all, "only versions that all speak are recorded");
        assert!(self.spoken.iter().all(|version| *version >= 1), "there is no version below the first");
    }
}

impl LogRecovery<'_> {
    /// A member reports the versions that members speak, itself among them.
    pub(in crate::replica) fn note_versions(&mut self, speaks: &[(DcId, u16)]) {
        for (dc, version) in speaks {
            self.lifecycle.versions.note(*dc, *version);
        }
        self.record_versions();
    }

    /// Records a new version that all members speak. What needs it waits for that: grants of homed locks are
    /// answered when the record is durable, so that their holders can reclaim them after a crash.
    pub(in crate::replica) fn record_versions(&mut self) {
        let may_write = self.lifecycle.stalls.disk() != DiskSpace::Full && !self.lifecycle.state.is_forked();
        if may_write && let Some(version) = self.lifecycle.versions.to_record() {
            let position = self.out.persist(Record::AllSpeak { version });
            self.lifecycle.versions.note_recorded(version);
            self.locks.set_homed_since(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn versions() -> PeerVersions {
        PeerVersions::new(dc(0), DcSet::only(dc(1)).union(DcSet::only(dc(2))), VERSION, true)
    }

    #[test]
    fn a_version_counts_once_every_peer_is_known_to_speak_it() {
        let mut versions = versions();
        assert_eq!((versions.all(), versions.behind(HOMED)), (1, versions.peers));
        versions.note(dc(1), HOMED);
        assert!(!versions.are_chained());
        versions.note(dc(2), CHAINED);
        assert!(versions.are_chained() && !versions.all_speak(HOMED));
        assert_eq!(versions.behind(HOMED), DcSet::only(dc(2)));
        assert_eq!(versions.to_record(), None, "entries show it");
        versions.note(dc(2), HOMED);
        assert!(versions.all_speak(HOMED) && versions.behind(HOMED).is_empty());
        assert_eq!(versions.to_record(), Some(HOMED));
        assert!(!versions.may_use(HOMED));
        versions.note_recorded(HOMED);
        assert!(versions.may_use(HOMED) && versions.to_record().is_none());
        assert_eq!(versions.to_tell(), [(dc(0), VERSION), (dc(1), HOMED), (dc(2), HOMED)]);
    }

    #[test]
    fn a_version_counts_without_the_member_that_is_gone() {
        let mut versions = versions();
        versions.note(dc(1), HOMED);
        versions.set_peers(DcSet::only(dc(1)));
        assert!(versions.all_speak(HOMED));
        versions.set_peers(DcSet::default());
        assert_eq!(versions.all(), VERSION);
    }

    #[test]
    fn a_server_that_joins_waits_for_members_that_it_does_not_know_yet() {
        let own = CONTROL_VERSION + 1;
        let mut versions = PeerVersions::new(dc(0), DcSet::EMPTY, own, false);
        versions.note(dc(1), own);
        assert_eq!(versions.all(), CONTROL_VERSION);
        versions.set_peers(DcSet::only(dc(1)).union(DcSet::only(dc(2))));
        versions.set_member(true);
        assert_eq!(versions.all(), CONTROL_VERSION);
        versions.note(dc(2), own);
        assert_eq!(versions.all(), own);
    }

    #[test]
    fn it_never_falls_and_is_never_above_our_own() {
        let mut versions = versions();
        versions.note_recorded(HOMED);
        versions.note(dc(1), 1);
        assert!(versions.all_speak(HOMED) && versions.speaks(dc(1), HOMED));
        versions.note(dc(1), u16::MAX);
        versions.note(dc(2), u16::MAX);
        assert_eq!(versions.all(), VERSION);
    }

    #[test]
    fn the_next_server_with_an_id_may_speak_less() {
        let mut versions = versions();
        versions.note(dc(1), VERSION);
        assert_eq!((versions.of(dc(0)), versions.of(dc(1)), versions.of(dc(2))), (VERSION, VERSION, 1));
        versions.set_peers(DcSet::only(dc(2)));
        versions.set_peers(DcSet::only(dc(1)).union(DcSet::only(dc(2))));
        assert_eq!(versions.of(dc(1)), 1);
        versions.note_all(HOMED);
        assert_eq!(versions.of(dc(1)), HOMED, "all speak it");
    }
}
