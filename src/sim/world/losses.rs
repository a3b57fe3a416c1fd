//! Members that are lost for good, and evicted by an operator who knows that.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::membership::{Command, Cut, Evictee, Eviction, Generation, Vouch};
use crate::replica::Event;
use crate::sim::world::members::ASK_AGAIN;
use crate::sim::world::returns::server;
use crate::sim::world::{Action, Driver, Phase as RunPhase, World};
use geolock_api::names::{DcId, DcSet};

/// The clients of a lost datacenter believe in their leases for at most that long, by clocks that are slow.
pub(super) fn clients_are_over(max_ttl: Duration) -> Duration {
    max_ttl + max_ttl / 20
}

impl World {
    /// Plans which members are lost, and when.
    pub(super) fn plan_losses(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, 38);
        let trouble = self.plan.trouble;
        if self.plan.by_time {
            let at = self.now + rng.duration(Duration::from_millis(300), trouble / 8);
            self.queue.push(at, Action::SetPolicy);
        }
        let one_by_one = if self.plan.recovers { 0 } else { self.plan.losses };
        for _ in 0..one_by_one {
            let node = self.nodes[rng.index(self.nodes.len())].dc;
            let at = self.now + rng.duration(trouble / 8, trouble / 2);
            self.queue.push(at, Action::Lose { node });
        }
    }

    /// A member is lost for good, with its disk, as soon as the others can do without it. An operator hears
    /// of it, and evicts it when no client of it believes in a lock any more.
    pub(super) fn on_lose(&mut self, dc: DcId) {
        if self.node(dc).is_gone || self.phase == RunPhase::Healing {
            return;
        }
        if !self.can_lose(dc) {
            return self.queue.push(self.now + ASK_AGAIN, Action::Lose { node: dc });
        }
        if self.plan.absences {
            return self.go_away(dc);
        }
        if self.plan.by_time && self.chance.members.percent(75) {
            return self.cut_off(dc);
        }
        if !self.control.isolated.contains(dc) && self.chance.members.percent(60) {
            return self.isolate(dc);
        }
        self.crash(dc);
        self.trace.line(self.now, dc, || "is lost for good".to_owned());
        self.nodes[dc.index()].is_gone = true;
        self.control.lost.insert(dc);
        self.control.lost_at.insert(dc, self.now);
        self.control.joining.remove(dc);
        // They count on their locks for as long as they would by themselves.
        self.drop_clients_of(dc);
        let others: Vec<DcId> = self.members().iter().filter(|other| !self.is_leaving(*other)).collect();
        if let Some(other) = others.first() {
            for _ in 0..2 {
                self.spawn_client(*other, Driver::Random);
            }
        }
        if self.plan.by_time {
            return self.evict_later(dc, ASK_AGAIN);
        }
        let clients = clients_are_over(self.plan.load.ttl.1);
        let after = clients + self.chance.members.duration(Duration::ZERO, Duration::from_secs(2));
        self.evict_later(dc, after);
    }

    /// Cuts a member off from all but one, and that one from the others, for longer. So when the member is
    /// lost a moment later, the one has entries of it that nobody else has, and the others get them late.
    fn isolate(&mut self, dc: DcId) {
        self.control.isolated.insert(dc);
        let others: Vec<DcId> = self.members().iter().filter(|other| *other != dc).collect();
        let heir = *self.chance.members.pick(&others);
        let lasts = self.chance.members.duration(Duration::from_millis(300), 2 * self.plan.load.ttl.1);
        let others = self.linkable().difference(DcSet::only(dc));
        for other in others.iter().filter(|other| *other != heir) {
            for (a, b) in [(dc, other), (other, dc), (heir, other), (other, heir)] {
                self.cut_for(a, b, lasts);
            }
        }
        let after = self.chance.members.duration(Duration::from_millis(100), Duration::from_millis(900));
        self.queue.push(self.now + after, Action::Lose { node: dc });
    }

    /// The present member with this slot is to be evicted.
    fn evict_later(&mut self, dc: DcId, after: Duration) {
        let generation = self.control.config.slots().generation(dc).unwrap_or_default();
        self.queue.push(self.now + after, Action::Evict { node: dc, generation });
    }

    /// Returns true if a majority of the voters is left when this member is lost, also when those that leave
    /// have left.
    fn can_lose(&self, dc: DcId) -> bool {
        let lost = self.control.lost.union(DcSet::only(dc));
        // In production the vote is not given to a member that is not heard.
        let is_voting = self.control.config.next_voter() != Some(dc);
        let settled = self.control.config.slots().is_settled(dc) && !self.is_leaving(dc) && is_voting;
        settled
            && !self.control.replaces_witness
            && self.can_decide(DcSet::EMPTY, lost)
            && self.can_decide(self.may_leave(), lost)
            // One that is lost does not leave, also if it was asked to.
            && self.can_decide(self.may_leave().difference(DcSet::only(dc)), lost)
    }

    /// Returns true if a majority of the voters lives when these have left.
    pub(super) fn can_decide(&self, left: DcSet, lost: DcSet) -> bool {
        let voters = self.control.config.voters().without(left);
        // A member that leaves gives its vote to another one before.
        voters.voters.is_empty() || voters.without(lost).voters.len() >= voters.majority()
    }

    /// A member is cut off from all others, or its process is stopped, mostly for longer than it takes until
    /// it is evicted. Its clients can still reach it.
    fn cut_off(&mut self, dc: DcId) {
        let evict_after = self.plan.policy_by_time().evict_after();
        let lasts = self.chance.members.duration(evict_after / 2, evict_after * 3);
        self.control.lost.insert(dc);
        self.control.cut_off.insert(dc, self.now + lasts);
        self.plan_standstills(dc, lasts);
        if self.chance.members.percent(20) && self.pause_for(dc, lasts) {
            return self.evict_later(dc, ASK_AGAIN);
        }
        for other in self.linkable().iter().filter(|other| *other != dc) {
            self.cut_for(dc, other, lasts);
            self.cut_for(other, dc, lasts);
        }
        self.trace.line(self.now, dc, || format!("is cut off for {lasts:?}"));
        self.evict_later(dc, ASK_AGAIN);
    }

    /// Returns true if nobody reaches a member: neither others nor the control group.
    pub(super) fn is_cut_off(&self, dc: DcId) -> bool {
        let lasts = self.control.cut_off.get(&dc).is_some_and(|until| self.now < *until);
        lasts && self.phase != RunPhase::Healing
    }

    /// Returns true if a member that was cut off is back for so long that it is not evicted any more.
    fn is_back(&self, dc: DcId) -> bool {
        let evict_after = self.plan.policy_by_time().evict_after();
        self.control.cut_off.get(&dc).is_some_and(|until| *until + evict_after < self.now)
    }

    /// Returns true if a member was lost before it knew that it has to stop by itself: only an operator can
    /// evict it.
    fn needs_operator(&self, dc: DcId) -> bool {
        let since = self.control.config.fenced_since(dc);
        let entered = |other: DcId| self.node(other).inspect().map(|replica| replica.entered_by(dc));
        self.is_lost(dc)
            && self
                .members()
                .iter()
                .filter_map(entered)
                .all(|entered| since.is_none_or(|since| entered < since))
    }

    /// Returns true if a member is lost for good, and its clients with it.
    fn is_lost(&self, dc: DcId) -> bool {
        self.node(dc).is_gone && self.lost_since(dc) > clients_are_over(self.plan.load.ttl.1)
    }

    fn lost_since(&self, dc: DcId) -> Duration {
        self.control.lost_at.get(&dc).map_or(Duration::ZERO, |at| self.now.since(*at))
    }

    /// An operator asks for eviction by time until that is decided.
    pub(super) fn on_set_policy(&mut self) {
        let policy = self.plan.policy_by_time();
        if *self.control.config.policy() == policy {
            return;
        }
        let members: Vec<DcId> = self.members().iter().filter(|member| self.serves(*member)).collect();
        if !members.is_empty() {
            let asked = *self.chance.members.pick(&members);
            self.step(asked, Event::Propose { command: Box::new(Command::SetPolicy(policy)) });
        }
        self.queue.push(self.now + ASK_AGAIN, Action::SetPolicy);
    }

    /// A lost member is evicted: an operator asks for it until that is decided, unless it is evicted by time.
    pub(super) fn on_evict(&mut self, dc: DcId, generation: Generation) {
        match self.control.config.slots().generation(dc) {
            None => return self.control.lost.remove(dc),
            // Another server has its slot.
            Some(now) if now != generation => return,
            Some(_) => {}
        }
        if self.plan.by_time && self.is_back(dc) {
            self.control.lost.remove(dc);
            return;
        }
        if self.plan.by_time && !self.needs_operator(dc) {
            return self.evict_later(dc, ASK_AGAIN);
        }
        // Those that are lost as well cannot report, also if they would be evicted by time.
        let all_lost = self.control.lost.iter().filter(|other| self.plan.by_time && self.is_lost(*other));
        self.control.without_clients = self.control.without_clients.union(all_lost.collect());
        self.control.without_clients.insert(dc);
        let members: Vec<DcId> = self.members().iter().filter(|member| self.serves(*member)).collect();
        if self.control.config.attempt().is_none() && !members.is_empty() {
            let asked = *self.chance.members.pick(&members);
            // Each needs the reports of all that remain, so those that are lost together are evicted
            // together.
            let lost = self.control.lost.intersection(self.control.without_clients).iter();
            let config = &self.control.config;
            let evictee = |dc| {
                Some(Evictee {
                    dc,
                    generation: config.slots().generation(dc)?,
                    last_heard: Timestamp::default(),
                })
            };
            let eviction =
                Eviction { members: lost.filter_map(evictee).collect(), vouch: Vouch::Operator, recut: None };
            self.step(asked, Event::Propose { command: Box::new(Command::Begin(eviction)) });
        }
        self.evict_later(dc, ASK_AGAIN);
    }

    /// The eviction of a member is decided. One that was only cut off, or that was joining and had a lost
    /// sponsor, is alive: it ends as soon as it knows.
    pub(super) fn on_evicted(&mut self, Cut { dc, seq, generation }: Cut) {
        self.lose_after(dc, seq);
        // The cut of an earlier end is set anew, and its slot may have another server.
        if self.node(dc).server() != server(dc, generation) {
            return;
        }
        if self.node(dc).is_gone {
            self.tally.evictions += 1;
            // A proposal that it leaves may have been decided after it was lost.
            self.control.leaving.remove(dc);
            self.control.lost.remove(dc);
            self.plan_return(dc);
        } else {
            self.tally.evictions += 1;
            self.control.joining.remove(dc);
            self.control.leaving.insert(dc);
            self.control.evicted.insert(dc);
            // They are turned away once it knows.
            self.clients
                .iter_mut()
                .filter(|client| client.dc == dc)
                .for_each(|client| client.is_moving = true);
            self.queue.push(self.now + ASK_AGAIN, Action::Leave { node: dc });
        }
    }
}
