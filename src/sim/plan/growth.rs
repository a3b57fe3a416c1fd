//! Plans in which datacenters join a running cluster, leave it, or are lost.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::membership::{EvictPolicy, JoinPolicy, Policy};
use crate::replica::MIN_LEASE_TTL;
use crate::sim::failure::FaultKind;
use crate::sim::plan::{LoadPlan, MS, Plan, Profile, TxnPlan};
use geolock_api::names::DcId;

impl Plan {
    /// One to three datacenters found the cluster, and one to three join it, all within the first half of the
    /// run, while locks are in use. The faults take back what was not durable, and let entries of different
    /// epochs overtake each other.
    pub(super) fn growth(mut self, seed: u64, rng: &mut Rng) -> Plan {
        self.founders = *rng.pick(&[1, 1, 2, 3]);
        self.dcs = (self.founders + *rng.pick(&[1, 2, 3])).min(5);
        let scale = *rng.pick(&[1, 5, 20]);
        self.net.delays = Vec::new();
        for a in 0..self.dcs {
            let far = (a + 1..self.dcs).map(|b| ((a, b), rng.duration(scale * MS, 4 * scale * MS)));
            self.net.delays.extend(far);
        }
        self.net.reconnect = 50 * MS;
        self.net.jitter = *rng.pick(&[0, 10]) * MS;
        self.disk.sync = *rng.pick(&[1, 5]) * MS;
        self.disk.slow_percent = 10;
        self.disk.slow = 80 * MS;
        self.disk.checkpoint_every = rng.percent(60).then_some(1_500 * MS);
        (self.down, self.cut) = (300 * MS, 800 * MS);
        self.heartbeat = 200 * MS;
        self.peer_timeout = 1_000 * MS;
        if rng.percent(75) {
            self.faults = vec![
                (FaultKind::LinkReset, 1_500 * MS),
                (FaultKind::ClientDisconnects, 2_500 * MS),
                (FaultKind::Crash, *rng.pick(&[1_500, 4_000]) * MS),
            ];
        }
        let dcs = usize::from(self.dcs);
        self.load = LoadPlan {
            clients: vec![3; dcs],
            shared_percent: vec![*rng.pick(&[0, 30, 60]); dcs],
            hot_locks: *rng.pick(&[2, 6]),
            cold_locks: *rng.pick(&[0, 30]),
            hot_percent: 60,
            home_percent: 50,
            max_locks: 2,
            think: 30 * MS,
            hold: 60 * MS,
            ttl: (1_000 * MS, 2_000 * MS),
            concurrent: 2,
            ..self.load
        };
        self.max_log = *rng.pick(&[super::LARGE, super::LARGE, 20_000]);
        // From generators of their own, so that seeds of before have the same plan but for these.
        self.load.homed_percent = *Rng::new(seed, 33).pick(&[0, 0, 40]);
        let mut majority = Rng::new(seed, 34);
        self.txns = TxnPlan {
            percent: 40,
            plain_percent: 50,
            least_commits: 10,
            majority_percent: *majority.pick(&[0, 0, 40]),
            majority_wait: *majority.pick(&[50 * MS, 1_000 * MS, 10_000 * MS]),
            ..TxnPlan::some()
        };
        self
    }

    /// Members are evicted while they are down. Their leases are long enough that some clients still rely on
    /// them when the operator's word is given.
    fn with_absences(mut self, rng: &mut Rng) -> Plan {
        (self.absences, self.losses) = (true, 3);
        self.load.ttl = (1_000 * MS, 4_000 * MS);
        self.load.hold = *rng.pick(&[60, 1_500]) * MS;
        self.max_lease_ttl = self.load.ttl.1;
        self
    }

    /// Returns the longest lease that this server gives. Where members are away they differ: who evicts one
    /// has to know that of the other.
    pub fn longest_lease(&self, dc: DcId) -> Duration {
        let shorter = if self.absences { dc.get() } else { 0 };
        (self.max_lease_ttl / (1 + u32::from(shorter))).max(MIN_LEASE_TTL)
    }

    /// Returns the plan of a profile in which members come or go, from that in which servers join.
    pub(super) fn of_members(self, profile: Profile, seed: u64) -> Plan {
        let evictions = |plan: Plan| plan.evictions(&mut Rng::new(seed, 37));
        match profile {
            Profile::Changes => self.changes(&mut Rng::new(seed, 35)),
            Profile::Evictions => evictions(self),
            Profile::TimedEvictions => evictions(self).timed(&mut Rng::new(seed, 39)),
            Profile::StoppedClocks => {
                Plan { stops_clocks: true, ..evictions(self).timed(&mut Rng::new(seed, 39)) }
            }
            Profile::Absences => evictions(self).with_absences(&mut Rng::new(seed, 48)),
            Profile::Returns => self.returns(seed, &mut Rng::new(seed, 40)),
            Profile::Recoveries => evictions(self).recoveries(&mut Rng::new(seed, 41)),
            Profile::Rules => self.rules(seed, &mut Rng::new(seed, 44)),
            Profile::Witnesses => self.witnessed(seed, &mut Rng::new(seed, 43)),
            Profile::Staying => self.staying(seed, &mut Rng::new(seed, 46)),
            Profile::Upgrades => self.upgrades(seed, &mut Rng::new(seed, 47)),
            other => {
                assert_eq!(other, Profile::Growth, "a profile in which members come or go");
                self
            }
        }
    }

    /// Members also leave, whichever the seed picks, while locks are in use.
    pub(super) fn changes(self, rng: &mut Rng) -> Plan {
        Plan { leaves: *rng.pick(&[1, 1, 2, 3]), ..self }
    }

    /// Three to five members, of which one or two are lost for good and evicted, while locks are in use. In
    /// some runs one joins, too, or leaves.
    pub(super) fn evictions(mut self, rng: &mut Rng) -> Plan {
        self.founders = *rng.pick(&[3, 3, 4, 5]);
        self.dcs = self.founders + u8::from(rng.percent(30));
        self.leaves = u8::from(rng.percent(30));
        self.losses = if self.founders > 3 { *rng.pick(&[1, 2]) } else { 1 };
        self.spread(rng);
        self.max_lease_ttl = self.load.ttl.1;
        // So one that is lost may have given out higher tokens than any other can for a while.
        self.clock.skew = *rng.pick(&[0, 0, 2_000]) * MS;
        if rng.percent(30) {
            self.txns = TxnPlan::NONE;
        }
        self
    }

    /// Gives all datacenters distances of one scale, and clients alike.
    fn spread(&mut self, rng: &mut Rng) {
        let scale = *rng.pick(&[1, 5, 20]);
        self.net.delays = Vec::new();
        for a in 0..self.dcs {
            let far = (a + 1..self.dcs).map(|b| ((a, b), rng.duration(scale * MS, 4 * scale * MS)));
            self.net.delays.extend(far);
        }
        let dcs = usize::from(self.dcs);
        self.load.clients = vec![3; dcs];
        self.load.shared_percent = vec![*rng.pick(&[0, 30, 60]); dcs];
    }

    /// Members are evicted by time. The rates of clocks differ by as much as that relies on. One that is cut
    /// off has enough that it could go on granting: readers, and locks that are used there alone.
    pub(super) fn timed(mut self, rng: &mut Rng) -> Plan {
        self.by_time = true;
        if self.founders < self.dcs && rng.percent(30) {
            // Neither can be evicted before a third one votes.
            (self.founders, self.dcs, self.losses) = (2, 3, 1);
        }
        self.clock.drift_ppm = *rng.pick(&[0, 1_000, 14_000]);
        self.load.shared_percent = vec![*rng.pick(&[30, 60]); usize::from(self.dcs)];
        self.load.homed_percent = *rng.pick(&[0, 60]);
        (self.load.cold_locks, self.load.hot_percent) = (30, *rng.pick(&[20, 60]));
        if rng.percent(30) {
            // Longer than it takes until others are granted what is held.
            self.load.hold = 6_000 * MS;
        }
        if rng.percent(50) {
            self.faults.retain(|(kind, _)| *kind != FaultKind::Crash);
        }
        self
    }

    /// Two or four members and a witness: one member is lost, or two of four, and evicted by an operator or
    /// by time. Some return.
    pub(super) fn witnessed(self, seed: u64, rng: &mut Rng) -> Plan {
        let mut plan = self.evictions(&mut Rng::new(seed, 37));
        plan.witnesses = 1 + u8::from(rng.percent(30));
        plan.founders = *rng.pick(&[2, 2, 2, 4]);
        plan.dcs = plan.founders + u8::from(rng.percent(30));
        plan.losses = plan.founders / 2;
        plan.leaves = u8::from(rng.percent(20));
        plan.spread(rng);
        if rng.percent(50) {
            plan = plan.timed(rng);
        }
        Plan { returns: rng.percent(40), ..plan }
    }

    /// Members are to leave, and stay after all in many cases; some others are lost, or evicted by time. Of
    /// two members and a witness, the one that leaves may be the last one that is left.
    pub(super) fn staying(self, seed: u64, rng: &mut Rng) -> Plan {
        let mut plan = match rng.below(4) {
            0 => self.changes(&mut Rng::new(seed, 35)),
            1 => self.evictions(&mut Rng::new(seed, 37)),
            _ => self.witnessed(seed, &mut Rng::new(seed, 43)),
        };
        plan.leaves = plan.leaves.max(*rng.pick(&[1, 2, 3]));
        plan.cancels = *rng.pick(&[50, 80]);
        if rng.percent(30) {
            // They leave, and stay, while clients hold locks.
            plan.load.hold = 3_000 * MS;
        }
        plan
    }

    /// Returns true if of two members one is to leave again and again, and both crash before they are out of
    /// grace: one of them serves for a moment now and then.
    pub fn hardly_serves(&self) -> bool {
        let in_grace = |(kind, every): &(FaultKind, _)| *kind == FaultKind::Crash && *every < self.load.ttl.1;
        self.cancels > 0 && self.founders == 2 && self.faults.iter().any(in_grace)
    }

    /// A majority of three to five members is lost at once, and the others go on. Nobody joins or leaves.
    pub(super) fn recoveries(mut self, rng: &mut Rng) -> Plan {
        (self.recovers, self.leaves) = (true, 0);
        self.founders = *rng.pick(&[3, 4, 5, 5, 5]);
        self.dcs = self.founders;
        self.spread(rng);
        // Of five, two are left in most runs.
        self.losses = self.dcs / 2 + 1 + u8::from(self.dcs == 5 && rng.percent(20));
        // Commits that a majority had are lost with it.
        self.txns.majority_percent = 0;
        self
    }

    /// Members leave, or are evicted by an operator or by time, and their slots are given out again.
    pub(super) fn returns(self, seed: u64, rng: &mut Rng) -> Plan {
        let evictions = |plan: Plan| plan.evictions(&mut Rng::new(seed, 37));
        let plan = match rng.below(3) {
            0 => self.changes(&mut Rng::new(seed, 35)),
            1 => evictions(self),
            _ => evictions(self).timed(&mut Rng::new(seed, 39)),
        };
        Plan { returns: true, ..plan }
    }

    /// Prefixes get homes, other ones, and none again, while locks are in use. In some runs members also
    /// join, leave, are evicted by an operator or by time, or return.
    pub(super) fn rules(self, seed: u64, rng: &mut Rng) -> Plan {
        let evictions = |plan: Plan| plan.evictions(&mut Rng::new(seed, 37));
        let mut plan = match rng.below(6) {
            0 => self.changes(&mut Rng::new(seed, 35)),
            1 => evictions(self),
            2 => evictions(self).timed(&mut Rng::new(seed, 39)),
            3 => self.returns(seed, &mut Rng::new(seed, 40)),
            _ => Plan { founders: self.dcs, ..self },
        };
        plan.rules = *rng.pick(&[2, 4, 8]);
        plan.load.homed_percent = *rng.pick(&[0, 0, 20]);
        plan.hold.iter_mut().for_each(|rule| rule.idle_return_after = *rng.pick(&[500, 3_000]) * MS);
        plan
    }

    /// Members join, leave, are evicted by an operator or by time, or return, while all servers are upgraded
    /// one after the other.
    pub(super) fn upgrades(self, seed: u64, rng: &mut Rng) -> Plan {
        let plan = match rng.below(4) {
            0 => self,
            1 => self.changes(&mut Rng::new(seed, 35)),
            2 => self.evictions(&mut Rng::new(seed, 37)),
            _ => self.returns(seed, &mut Rng::new(seed, 40)),
        };
        Plan { upgrade: Some(*rng.pick(&[200, 800, 1_500]) * MS), ..plan }
    }

    /// Returns the policy by which members are evicted by time: as soon as it permits.
    pub fn policy_by_time(&self) -> Policy {
        let millis = |duration: Duration| u32::try_from(duration.as_millis()).expect("a short time");
        let policy = Policy {
            evict: EvictPolicy::Auto,
            join: JoinPolicy::Auto,
            rejoin: JoinPolicy::Auto,
            fence_after_ms: 1_000,
            max_lease_ttl_ms: millis(self.max_lease_ttl),
            ..Policy::default()
        };
        let evict_after_ms = u32::try_from(policy.min_evict_after_ms()).expect("a short time");
        Policy { evict_after_ms, ..policy }
    }
}
