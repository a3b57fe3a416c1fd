//! Profiles: the kind of trouble at which a run is directed.

use std::fmt;
use std::str::FromStr;

/// The kind of trouble at which a run is directed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Any trouble that the seed picks. Of the seeds with transactions, one of four has values as in
    /// `Values`.
    #[default]
    General,
    /// No faults. dc0 reads all the time, the others sometimes write. It bounds the wait of a writer.
    BusyReaders,
    /// No faults. All read all the time from far apart and sometimes write.
    ReadersEverywhere,
    /// Only dc2 writes, and it is dead for long: readers elsewhere must continue.
    DeadWriter,
    /// One pair is cut for almost the whole run: entries must be relayed.
    LongCut,
    /// Readers and writers, whose holders downgrade, among crashes, lost links and force releases.
    ReadWrite,
    /// Requests for enough of many locks, beside others, among crashes, lost and cut links.
    Enough,
    /// A few clients request hundreds of locks at once, or enough of up to 3 000, among crashes, lost and cut
    /// links.
    ManyLocks,
    /// Links lose everything in flight all the time; nothing else.
    Resets,
    /// Nodes crash often, disks are slow, wall clocks are off at each restart.
    Crashes,
    /// Requests for several locks wait for a datacenter that is gone; requests behind them could be served.
    Tangle,
    /// Crashes and lost links between locked transactions.
    Transactions,
    /// The same, and most transactions run under locks that their clients hold.
    Guarded,
    /// As `Transactions`, with sets and maps of up to 3 000 elements now and then, and registers of 64 to 200
    /// KiB.
    Values,
    /// No faults. Keys are removed while transactions that have not seen it change them.
    Removals,
    /// Datacenters are away for longer than the others keep entries for them.
    LeftBehind,
    /// Wall clocks jump by up to two hours either way all the time, monotonic ones drift by up to 1 %.
    Clocks,
    /// Every kind of fault now and then, and more than 100 acquisitions a second. It measures the speed of
    /// the simulator.
    Busy,
    /// Disks are found empty, rolled back or restored from a copy after crashes.
    Disks,
    /// Disks are rolled back, or restored from a copy, while prefixes of lock names get homes: they lack
    /// decisions, too.
    RuledDisks,
    /// As one of the profiles with decisions; members keep only 1 to 8 of these, and compact the others.
    Compacted,
    /// Commits wait until a majority has them, among cut links, crashes and lost disks.
    Majority,
    /// Most locks have a home; otherwise as `LeftBehind`, and clients die. Idle locks return soon.
    Homed,
    /// Thousands of requests wait for a few locks, and are cancelled at one moment.
    Crowds,
    /// Datacenters join the cluster while it runs, among crashes and lost links.
    Growth,
    /// The same, and members leave.
    Changes,
    /// Members are lost for good and evicted, among crashes and lost links.
    Evictions,
    /// The same, evicted by time; some of them live, and are only cut off or stopped.
    TimedEvictions,
    /// The same, by time, and machines of members that are cut off are stopped with their clocks.
    StoppedClocks,
    /// Members are down and cut off, are evicted by an operator's word, and are started meanwhile; policies
    /// change. Their clients stay.
    Absences,
    /// Members end in any way, and servers with empty disks get their slots, again and again.
    Returns,
    /// A majority of the members is lost at once, and the others go on by force.
    Recoveries,
    /// Prefixes of lock names get homes while locks are in use and members come and go.
    Rules,
    /// Two or four members and a witness; members are lost and evicted by an operator or by time, and the
    /// witness crashes and is cut off.
    Witnesses,
    /// Members are to leave, and stay after all in many cases, also when all others are lost meanwhile.
    Staying,
    /// Servers are restarted as the next release one after the other, while members come and go.
    Upgrades,
    /// No faults, no clients of its own: for stories and figures.
    Quiet,
}

impl Profile {
    /// Profiles in which there are decisions about the members, and disks of before them.
    pub(super) const WITH_DECISIONS: [Profile; 12] = [
        Profile::RuledDisks,
        Profile::RuledDisks,
        Profile::RuledDisks,
        Profile::Changes,
        Profile::Evictions,
        Profile::TimedEvictions,
        Profile::Absences,
        Profile::Returns,
        Profile::Recoveries,
        Profile::Rules,
        Profile::Witnesses,
        Profile::Staying,
    ];

    /// The profiles that a range of seeds can be run with, by name.
    pub const NAMED: [(&str, Profile); 36] = [
        ("general", Profile::General),
        ("busy-readers", Profile::BusyReaders),
        ("readers-everywhere", Profile::ReadersEverywhere),
        ("dead-writer", Profile::DeadWriter),
        ("long-cut", Profile::LongCut),
        ("read-write", Profile::ReadWrite),
        ("enough", Profile::Enough),
        ("many-locks", Profile::ManyLocks),
        ("resets", Profile::Resets),
        ("crashes", Profile::Crashes),
        ("tangle", Profile::Tangle),
        ("transactions", Profile::Transactions),
        ("guarded", Profile::Guarded),
        ("values", Profile::Values),
        ("removals", Profile::Removals),
        ("left-behind", Profile::LeftBehind),
        ("homed", Profile::Homed),
        ("clocks", Profile::Clocks),
        ("busy", Profile::Busy),
        ("disks", Profile::Disks),
        ("ruled-disks", Profile::RuledDisks),
        ("compacted", Profile::Compacted),
        ("majority", Profile::Majority),
        ("crowds", Profile::Crowds),
        ("growth", Profile::Growth),
        ("changes", Profile::Changes),
        ("evictions", Profile::Evictions),
        ("timed-evictions", Profile::TimedEvictions),
        ("stopped-clocks", Profile::StoppedClocks),
        ("absences", Profile::Absences),
        ("returns", Profile::Returns),
        ("recoveries", Profile::Recoveries),
        ("rules", Profile::Rules),
        ("witnesses", Profile::Witnesses),
        ("staying", Profile::Staying),
        ("upgrades", Profile::Upgrades),
    ];
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Profile::NAMED.iter().find(|(_, profile)| profile == self);
        f.write_str(named.map_or("quiet", |(name, _)| name))
    }
}

/// The error for an unknown profile name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no profile {0:?}; there are {known}", known = Profile::NAMED.map(|(name, _)| name).join(", "))]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        let named = Profile::NAMED.iter().find(|(known, _)| *known == name);
        named.map(|(_, profile)| *profile).ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}
