//! The choices of one seed before its world begins: the kinds of fault and their frequency, the distances of
//! the datacenters, the load of clients. A run in which everything is possible shows little of anything, so
//! each seed picks a few.
//!
//! A [`Profile`] other than `General` directs the picks at one kind of trouble, so that a test can show a bug
//! within a few seeds.

mod busy;
mod clock;
mod disks;
mod enough;
mod growth;
mod habits;
mod hold;
mod load;
mod majority;
mod profile;
mod read_write;
mod transactions;

use std::time::Duration;

use clock::ClockPlan;
pub(super) use habits::Habits;
pub(super) use hold::IDLE_RETURN_SOON;
pub(super) use load::LoadPlan;
use load::general_load;
pub use profile::{Profile, UnknownProfile};
pub(super) use transactions::TxnPlan;

use crate::base::rng::Rng;
use crate::lock_state::{HoldPolicy, HoldRule, MAX_AWAY_LOCKS};
use crate::sim::failure::FaultKind;
use crate::sim::network::Path;
use geolock_api::names::DcId;

/// The connections of datacenters.
#[derive(Clone, Debug)]
pub(super) struct NetPlan {
    /// One way, by the pair's (lower, higher) index.
    pub delays: Vec<((u8, u8), Duration)>,
    pub jitter: Duration,
    /// Time that a message stays on its link's queue.
    pub flush: Duration,
    /// Maximum time until a broken link is back.
    pub reconnect: Duration,
    /// Messages pass through the codec.
    pub encoded: bool,
}

impl NetPlan {
    pub fn path(&self, a: DcId, b: DcId) -> Path {
        let pair = (a.min(b).get(), a.max(b).get());
        let delay = self.delays.iter().find(|(p, _)| *p == pair).map(|(_, delay)| *delay);
        Path { delay: delay.unwrap_or(Duration::from_millis(50)), jitter: self.jitter }
    }

    pub fn longest(&self) -> Duration {
        let delays = self.delays.iter().map(|(_, delay)| *delay);
        delays.max().unwrap_or_default() + self.jitter
    }
}

#[derive(Clone, Debug)]
pub(super) struct DiskPlan {
    pub sync: Duration,
    /// Percentage of syncs that take up to `slow`.
    pub slow_percent: u64,
    pub slow: Duration,
    pub checkpoint_every: Option<Duration>,
    /// A checkpoint is requested when the next timer is due, before that timer fires.
    pub checkpoint_before_timer: bool,
    /// Copies of the disk are taken now and then, so that it can be found in an older state.
    pub is_copied: bool,
    /// Percentage of losses of durable data that happen while the members that know more are away.
    pub away_percent: u64,
}

/// The choices of one seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub dcs: u8,
    /// Servers that only vote, added while it runs.
    pub witnesses: u8,
    /// Datacenters that found the cluster; the others join while it runs.
    pub founders: u8,
    /// How often a member is to leave.
    pub leaves: u8,
    /// Percentage of the leaves that are taken back.
    pub cancels: u64,
    /// How often a member is lost for good, and evicted.
    pub losses: u8,
    /// Members are evicted by time, and those that are lost may only be cut off or stopped.
    pub by_time: bool,
    /// Members that are lost are only away: down and cut off, started meanwhile, and evicted by the word of
    /// an operator.
    pub absences: bool,
    /// Machines of members that are cut off are stopped with their clocks.
    pub stops_clocks: bool,
    /// Slots of members that have ended are given out again.
    pub returns: bool,
    /// The members that are lost are lost at once, and are a majority.
    pub recovers: bool,
    /// Decisions that members and witnesses keep one by one.
    pub kept_decisions: usize,
    /// Number of times that a prefix is to get another home.
    pub rules: u8,
    /// Servers are restarted as the next release, one after the other at these distances.
    pub upgrade: Option<Duration>,
    /// Duration of the faults.
    pub trouble: Duration,
    pub net: NetPlan,
    pub disk: DiskPlan,
    pub clock: ClockPlan,
    pub load: LoadPlan,
    pub txns: TxnPlan,
    pub habits: Habits,
    /// The faults, with their average intervals.
    pub faults: Vec<(FaultKind, Duration)>,
    /// Duration for which a node stays down.
    pub down: Duration,
    /// Duration of a cut.
    pub cut: Duration,
    pub heartbeat: Duration,
    pub peer_timeout: Duration,
    pub hold: Vec<HoldRule>,
    /// Number of locks with foreign parts in a datacenter above which the oldest are returned.
    pub max_away_locks: usize,
    /// Maximum time to live of a lease, and so the time that a server waits if it may not know all leases.
    pub max_lease_ttl: Duration,
    /// Number of bytes of entries above which members are given up.
    pub max_log: usize,
    /// No request of a living client may wait longer than this, even during the faults.
    pub max_wait: Option<Duration>,
    /// While the last datacenter is down, no reader whose own part is at home may wait longer than this.
    pub max_wait_at_home: Option<Duration>,
    /// Cuts leave a way round: one link at a time.
    pub keep_connected: bool,
    /// Nothing is ever parked, so no transfer passes an earlier exclusive request of another datacenter.
    pub in_order: bool,
}

const MS: Duration = Duration::from_millis(1);
/// Processes are not stopped more often than about every third pause.
const PAUSE_EVERY: Duration = Duration::from_secs(12);
/// More than a run writes, so no member is given up.
pub(super) const LARGE: usize = 256 << 20;

/// Round trips of 80, 150 and 220 ms between three datacenters.
pub(super) fn world_delays() -> Vec<((u8, u8), Duration)> {
    vec![((0, 1), 40 * MS), ((0, 2), 75 * MS), ((1, 2), 110 * MS)]
}

impl Plan {
    pub fn new(profile: Profile, seed: u64, seconds: u64) -> Plan {
        let mut rng = Rng::new(seed, 0);
        let max_log = *Rng::new(seed, 7).pick(&[LARGE, LARGE, LARGE, 20_000, 3_000]);
        let txns = transactions::general(&mut Rng::new(seed, 6), &mut Rng::new(seed, 24))
            .or_wide(max_log, &mut Rng::new(seed, 27));
        let habits = Habits::general(&mut Rng::new(seed, 21), &mut Rng::new(seed, 22));
        let mut general = Plan { txns, max_log, habits: habits.clone(), ..Plan::general(&mut rng, seconds) };
        general.load.homed_percent = *Rng::new(seed, 29).pick(&[0, 0, 50, 80]);
        let general = Plan { max_away_locks: hold::max_away_locks(seed), ..general };
        match profile {
            Profile::General => general,
            Profile::BusyReaders => general.calm().busy_readers(),
            Profile::ReadersEverywhere => general.calm().readers_everywhere(),
            Profile::DeadWriter => general.calm().dead_writer(),
            Profile::LongCut => general.calm().long_cut(),
            Profile::ReadWrite => Plan { habits, ..general.calm() }.read_write(&mut Rng::new(seed, 45)),
            Profile::Enough => Plan { habits, ..general.calm() }.enough(&mut Rng::new(seed, 46)),
            Profile::ManyLocks => Plan { habits, ..general.calm() }.many_locks(&mut Rng::new(seed, 48)),
            Profile::Resets => general.calm().resets(),
            Profile::Crashes => general.calm().crashes(),
            Profile::Tangle => general.calm().tangle(),
            Profile::Transactions => Plan { habits, ..general.calm().transactions() },
            Profile::Guarded => Plan { habits, ..general.calm().guarded(&mut Rng::new(seed, 42)) },
            Profile::Values => Plan { habits, ..general.calm().values() },
            Profile::Removals => general.calm().removals(),
            Profile::LeftBehind => general.calm().left_behind(),
            Profile::Homed => general.calm().left_behind().homed(),
            Profile::Clocks => general.calm().clocks(&mut Rng::new(seed, 24)),
            Profile::Busy => Plan { habits, ..general.calm().busy() },
            Profile::Crowds => general.calm().crowds(),
            Profile::Disks => general.calm().disks(&mut Rng::new(seed, 8)),
            Profile::RuledDisks => general.calm().ruled_disks(&mut Rng::new(seed, 49)),
            Profile::Compacted => {
                let mut rng = Rng::new(seed, 50);
                let of = *rng.pick(&Profile::WITH_DECISIONS);
                Plan { kept_decisions: *rng.pick(&[1, 2, 8]), ..Plan::new(of, seed, seconds) }
            }
            Profile::Majority => general.calm().majority(&mut Rng::new(seed, 25)),
            Profile::Quiet => general.calm().quiet(),
            _ => general.calm().growth(seed, &mut Rng::new(seed, 30)).of_members(profile, seed),
        }
    }

    fn general(rng: &mut Rng, seconds: u64) -> Plan {
        let dcs = *rng.pick(&[3, 3, 3, 5, 2, 4]);
        let trouble = Duration::from_secs(seconds);
        let fast = rng.percent(40);
        let (down, cut) = (*rng.pick(&[100, 1_000, 4_000]) * MS, *rng.pick(&[300, 2_000, 6_000]) * MS);
        let mut plan = Plan {
            dcs,
            witnesses: 0,
            founders: dcs,
            leaves: 0,
            cancels: 0,
            losses: 0,
            by_time: false,
            absences: false,
            stops_clocks: false,
            returns: false,
            recovers: false,
            kept_decisions: usize::MAX,
            rules: 0,
            upgrade: None,
            trouble,
            net: general_net(rng, dcs),
            disk: general_disk(rng),
            clock: ClockPlan::general(rng),
            load: general_load(rng, dcs),
            txns: TxnPlan::NONE,
            habits: Habits::NONE,
            faults: general_faults(rng, trouble, down, cut),
            down,
            cut,
            heartbeat: if fast { 100 * MS } else { 500 * MS },
            peer_timeout: if fast { 600 * MS } else { 3_000 * MS },
            hold: hold::general(rng),
            max_away_locks: MAX_AWAY_LOCKS,
            max_lease_ttl: Duration::from_secs(60),
            max_log: LARGE,
            max_wait: None,
            max_wait_at_home: None,
            keep_connected: false,
            in_order: false,
        };
        if !plan.faults.iter().any(|(kind, _)| *kind == FaultKind::WallJump) {
            plan.clock.jump = Duration::ZERO;
        }
        plan
    }

    /// Three datacenters as far apart as continents, default timings, no faults.
    fn calm(self) -> Plan {
        let quick = Duration::from_micros(300);
        Plan {
            dcs: 3,
            witnesses: 0,
            founders: 3,
            leaves: 0,
            cancels: 0,
            losses: 0,
            by_time: false,
            net: NetPlan {
                delays: world_delays(),
                jitter: Duration::ZERO,
                flush: Duration::from_micros(20),
                reconnect: 200 * MS,
                encoded: false,
            },
            disk: DiskPlan {
                sync: quick,
                slow_percent: 0,
                slow: quick,
                checkpoint_every: None,
                checkpoint_before_timer: false,
                is_copied: false,
                away_percent: 0,
            },
            clock: ClockPlan::RIGHT,
            load: LoadPlan {
                clients: vec![3; 3],
                hot_locks: 2,
                cold_locks: 0,
                hot_percent: 100,
                home_percent: 0,
                homed_percent: 0,
                max_locks: 1,
                shared_percent: vec![0; 3],
                think: 20 * MS,
                hold: 20 * MS,
                ttl: (2_000 * MS, 4_000 * MS),
                concurrent: 1,
                try_percent: 0,
                at_most_percent: 0,
                at_most: Duration::ZERO,
                cancel_percent: 0,
                release_on_disconnect_percent: 0,
                distance: Duration::ZERO,
            },
            txns: TxnPlan::NONE,
            habits: Habits::NONE,
            faults: Vec::new(),
            down: 1_000 * MS,
            cut: 1_000 * MS,
            heartbeat: 500 * MS,
            peer_timeout: 3_000 * MS,
            hold: vec![HoldRule::default()],
            max_away_locks: MAX_AWAY_LOCKS,
            max_log: LARGE,
            ..self
        }
    }

    fn busy_readers(mut self) -> Plan {
        self.load.shared_percent = vec![100, 0, 0];
        self.load.clients = vec![8, 1, 1];
        self.load.hot_locks = 1;
        self.load.think = 5 * MS;
        self.load.hold = 200 * MS;
        self.max_wait = Some(8_000 * MS);
        self
    }

    fn readers_everywhere(mut self) -> Plan {
        self.load.shared_percent = vec![80; 3];
        self.load.clients = vec![4; 3];
        self.load.think = 2 * MS;
        self.load.hold = 30 * MS;
        self.load.hot_locks = 1;
        self.max_wait = Some(10_000 * MS);
        self.in_order = true;
        let policy = HoldPolicy::Fixed { min_keep: Duration::ZERO, max_keep: 1_000 * MS };
        self.hold = vec![HoldRule { policy, ..HoldRule::default() }];
        self
    }

    fn dead_writer(mut self) -> Plan {
        self.load.shared_percent = vec![100, 100, 0];
        self.load.hold = 10_000 * MS;
        self.load.think = 100 * MS;
        self.faults = vec![(FaultKind::Crash, self.trouble / 3)];
        self.down = self.trouble / 2;
        self.max_wait_at_home = Some(5_000 * MS);
        self
    }

    fn long_cut(mut self) -> Plan {
        self.faults = vec![(FaultKind::CutPair, self.trouble / 10)];
        self.cut = 4 * self.trouble;
        self.keep_connected = true;
        self.load.hot_locks = 4;
        self.load.think = 400 * MS;
        self.max_wait = Some(10_000 * MS);
        self
    }

    fn resets(mut self) -> Plan {
        self.faults = vec![(FaultKind::LinkReset, 150 * MS)];
        self.net.reconnect = 30 * MS;
        self.load.hot_locks = 4;
        self.max_wait = Some(15_000 * MS);
        self
    }

    fn crashes(mut self) -> Plan {
        self.faults = vec![
            (FaultKind::Crash, 1_500 * MS),
            (FaultKind::CrashAll, 3_000 * MS),
            (FaultKind::ClientDies, 2_000 * MS),
            (FaultKind::ClientDisconnects, 1_500 * MS),
        ];
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay = 5 * MS);
        self.down = 300 * MS;
        self.disk.sync = 5 * MS;
        self.disk.slow_percent = 20;
        self.disk.slow = 150 * MS;
        self.disk.checkpoint_every = Some(1_500 * MS);
        self.clock.restart_behind = 20_000 * MS;
        self.load.ttl = (1_000 * MS, 2_000 * MS);
        self.load.release_on_disconnect_percent = 60;
        self.load.hot_locks = 4;
        self.load.hold = 1_000 * MS;
        self
    }

    fn tangle(mut self) -> Plan {
        self.faults = vec![(FaultKind::Crash, self.trouble / 3)];
        self.down = self.trouble / 2;
        self.load.max_locks = 3;
        self.load.hot_locks = 6;
        self.load.concurrent = 3;
        self
    }

    fn quiet(mut self) -> Plan {
        self.load.clients = Vec::new();
        self
    }

    /// Returns the maximum time of healing for this number of waiting requests, served one by one.
    pub fn healing_bound(&self, waiting: usize) -> Duration {
        let round_trip = 2 * self.net.longest();
        let keep = self.hold.iter().map(|rule| rule.policy.max_keep() + rule.request_delay).max();
        let hold = self.load.hold.max(self.txns.longest(self.load.ttl.1));
        let turn = 2 * hold + keep.unwrap_or_default() + 4 * round_trip + 4 * self.disk.slow;
        // A lease of a dead client, after a restart, after a reconnect; a clock that is ahead.
        let once = 3 * self.load.ttl.1 + 2 * self.peer_timeout + 4 * self.heartbeat + 5_000 * MS;
        once + 2 * self.clock.restart_ahead + self.doubts_for() + turn * (waiting as u32)
    }
}

fn general_net(rng: &mut Rng, dcs: u8) -> NetPlan {
    let scale = *rng.pick(&[1, 5, 40]);
    let mut delays = Vec::new();
    for a in 0..dcs {
        delays.extend((a + 1..dcs).map(|b| ((a, b), rng.duration(scale * MS / 2, 3 * scale * MS))));
    }
    NetPlan {
        delays,
        jitter: *rng.pick(&[Duration::ZERO, MS, 2 * scale * MS]),
        flush: *rng.pick(&[Duration::from_micros(20), MS, 20 * MS]),
        reconnect: *rng.pick(&[10 * MS, 300 * MS]),
        encoded: rng.percent(10),
    }
}

fn general_disk(rng: &mut Rng) -> DiskPlan {
    DiskPlan {
        sync: *rng.pick(&[Duration::from_micros(300), Duration::from_micros(300), 5 * MS]),
        slow_percent: *rng.pick(&[0, 1, 20]),
        slow: *rng.pick(&[10 * MS, 200 * MS]),
        checkpoint_every: *rng.pick(&[None, Some(500 * MS), Some(3_000 * MS)]),
        checkpoint_before_timer: false,
        is_copied: false,
        away_percent: 0,
    }
}

/// Each kind exists in a third of the seeds; at least one always does. None by itself stops everything.
fn general_faults(
    rng: &mut Rng,
    trouble: Duration,
    down: Duration,
    cut: Duration,
) -> Vec<(FaultKind, Duration)> {
    let mut faults = Vec::new();
    for kind in FaultKind::ALL {
        if rng.percent(33) {
            let often = *rng.pick(&[3, 8, 20]);
            let least = match kind {
                FaultKind::Crash => down,
                FaultKind::CrashAll => 3 * down,
                FaultKind::CutPair | FaultKind::CutOneWay => cut,
                FaultKind::Isolate | FaultKind::Split | FaultKind::DiskFull => 2 * cut,
                FaultKind::Lossy | FaultKind::Jitter | FaultKind::Slow | FaultKind::Mute => cut,
                FaultKind::Pause | FaultKind::ClientPause => PAUSE_EVERY,
                _ => Duration::ZERO,
            };
            faults.push((kind, least.max(trouble / often)));
        }
    }
    if faults.is_empty() {
        faults.push((FaultKind::LinkReset, trouble / 10));
    }
    faults
}
