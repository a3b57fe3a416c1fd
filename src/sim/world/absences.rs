//! Members that an operator evicts while they are down, and that are started meanwhile: their disks and their
//! clients stay.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::membership::{Command, EvictPolicy, Evictee, Eviction, Generation, Policy, Vouch};
use crate::replica::Event;
use crate::sim::queue::Moment;
use crate::sim::world::losses::clients_are_over;
use crate::sim::world::members::ASK_AGAIN;
use crate::sim::world::{Action, Phase as RunPhase, World};
use geolock_api::names::DcId;

/// The word of an operator that a member does not run.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Word {
    pub node: DcId,
    generation: Generation,
    /// The clock of its last heartbeat that the asked member knows of.
    last_heard: Timestamp,
    /// Until then the operator repeats the command.
    until: Moment,
}

impl World {
    /// In some runs the policy is `wait` at first: a member that is away when that changes does not know it.
    pub(super) fn plan_absences(&mut self) {
        if self.plan.absences && self.chance.members.percent(50) {
            self.queue.push(self.now, Action::ChangePolicy { evict: EvictPolicy::Wait });
        }
    }

    /// An operator asks for a policy until it is decided.
    pub(super) fn on_change_policy(&mut self, evict: EvictPolicy) {
        let policy = *self.control.config.policy();
        if policy.evict == evict || self.phase == RunPhase::Healing {
            return;
        }
        if let Some(asked) = self.some_serving() {
            let command = Command::SetPolicy(Policy { evict, ..policy });
            self.step(asked, Event::Propose { command: Box::new(command) });
        }
        self.queue.push(self.now + ASK_AGAIN, Action::ChangePolicy { evict });
    }

    fn some_serving(&mut self) -> Option<DcId> {
        let serving: Vec<DcId> = self.members().iter().filter(|member| self.serves(*member)).collect();
        (!serving.is_empty()).then(|| *self.chance.members.pick(&serving))
    }

    /// The process of a member ends, and no other datacenter can reach it; its clients can. An operator sees
    /// that it does not run, and evicts it once its clients believe in their leases no more. Meanwhile it is
    /// started, perhaps again, and linked to another member for a moment.
    pub(super) fn go_away(&mut self, dc: DcId) {
        let clients = clients_are_over(self.plan.load.ttl.1);
        let lasts = self.chance.members.duration(clients, 4 * clients);
        self.trace.line(self.now, dc, || format!("is away for {lasts:?}"));
        self.crash(dc);
        self.control.lost.insert(dc);
        self.control.cut_off.insert(dc, self.now + lasts);
        let others: Vec<DcId> = self.linkable().iter().filter(|other| *other != dc).collect();
        let glimpsed = *self.chance.members.pick(&others);
        // By then all members know its last heartbeat.
        let word_at = 3 * self.plan.heartbeat + self.plan.net.longest();
        let meets_at = self.chance.members.duration(word_at, lasts);
        let meets_for = self.chance.members.duration(Duration::from_millis(100), Duration::from_millis(900));
        for other in others {
            let until = if other == glimpsed { meets_at } else { lasts };
            self.cut_for(dc, other, until);
            self.cut_for(other, dc, until);
        }
        self.queue
            .push(self.now + meets_at + meets_for, Action::PartAgain { node: dc, other: glimpsed, lasts });
        let before = self.chance.members.duration(Duration::ZERO, Duration::from_millis(600));
        for start in
            [self.chance.members.duration(word_at, lasts), meets_at.saturating_sub(before).max(word_at)]
        {
            self.restart_later(dc, start);
        }
        self.queue.push(self.now + word_at, Action::GiveWord { node: dc, until: self.now + lasts });
        self.queue.push(self.now + word_at, Action::ChangePolicy { evict: EvictPolicy::Operator });
    }

    /// A member that is away has met another one, and is cut off from it again.
    pub(super) fn on_part_again(&mut self, dc: DcId, other: DcId, lasts: Duration) {
        if self.is_cut_off(dc) {
            self.cut_for(dc, other, lasts);
            self.cut_for(other, dc, lasts);
        }
    }

    /// An operator vouches that a member does not run, unless it was started.
    pub(super) fn on_give_word(&mut self, dc: DcId, until: Moment) {
        let generation = self.control.config.slots().generation(dc);
        let Some(generation) = generation.filter(|_| !self.is_running(dc) && self.now < until) else {
            self.control.lost.remove(dc);
            return;
        };
        let asked = self.some_serving();
        let known = asked.and_then(|asked| {
            let inspect = self.node(asked).inspect()?;
            Some((*inspect.last_clocks().get(&dc)?, *inspect.lease_limits().get(&dc)?))
        });
        let Some((last_heard, longest_lease)) = known else {
            return self.queue.push(self.now + ASK_AGAIN, Action::GiveWord { node: dc, until });
        };
        let after = clients_are_over(longest_lease);
        let word = Word { node: dc, generation, last_heard, until };
        // If the member is back before that, the operator gives up then.
        let gives_up = until + Duration::from_millis(1);
        self.queue.push((self.now + after).min(gives_up), Action::EvictAbsent(word));
    }

    /// The operator's command, repeated until the member is evicted or back.
    pub(super) fn on_evict_absent(&mut self, word: Word) {
        let Word { node: dc, generation, last_heard, until } = word;
        let is_member = self.control.config.slots().generation(dc) == Some(generation);
        if !is_member || self.phase == RunPhase::Healing || until < self.now {
            self.control.lost.remove(dc);
            return;
        }
        if self.control.config.attempt().is_none()
            && let Some(asked) = self.some_serving().filter(|asked| *asked != dc)
        {
            let members = vec![Evictee { dc, generation, last_heard }];
            let eviction = Eviction { members, vouch: Vouch::Operator, recut: None };
            self.step(asked, Event::Propose { command: Box::new(Command::Begin(eviction)) });
        }
        self.queue.push(self.now + ASK_AGAIN, Action::EvictAbsent(word));
    }

    /// A member that is cut off is stopped by its host, clocks and all, several times.
    pub(super) fn plan_standstills(&mut self, dc: DcId, lasts: Duration) {
        if !self.plan.stops_clocks || !self.is_running(dc) {
            return;
        }
        let (third, life) = (lasts / 3, self.node(dc).life);
        for number in 0..3 {
            let at = self.now + third * number + self.chance.members.duration(Duration::ZERO, third / 2);
            let stands = self.chance.members.duration(third / 4, third / 2);
            self.queue.push(at, Action::StandStill { node: dc, life, lasts: stands });
        }
    }

    pub(super) fn on_stand_still(&mut self, dc: DcId, life: u64, lasts: Duration) {
        let is_its_run = self.node(dc).life == life && self.is_cut_off(dc);
        if is_its_run && self.pause_for(dc, lasts) {
            let now = self.now;
            self.nodes[dc.index()].clock.stand_still(now, lasts);
        }
    }
}
