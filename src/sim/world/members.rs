//! The control group, and servers that join.
//!
//! The control group is one list of decisions. A proposal reaches it late, not at all, or twice; each member
//! learns each decision late. The library that makes this list in production is not simulated: the core sees
//! nothing of it but this.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::bugs::Bugs;
use crate::base::rng::Rng;
use crate::base::wire::{PROTOCOL_VERSION, SETTLES_FIRST_VERSION};
use crate::causal_log::{Entry, LockParts, Op};
use crate::membership::{
    Address, Admission, AgreedOptions, Command, Config, Credentials, Founder, Founding, Generation, Index,
    JoinPolicy, MemberName, Phase, Policy, Proposal, ServerId, Voter,
};
use crate::replica::Event;
use crate::replica::call::Phase as ReplicaPhase;
use crate::sim::failure::FailureKind;
use crate::sim::queue::Moment;
use crate::sim::world::returns::server;
use crate::sim::world::{Action, Driver, Node, Phase as RunPhase, World};
use geolock_api::names::{ClusterId, DcId, DcSet};

/// How long a server that joins waits until it asks again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(400);

/// The list of decisions.
#[derive(Default)]
pub(super) struct Control {
    pub decisions: Vec<Proposal>,
    pub config: Config,
    /// Servers that join and have no clients yet.
    pub joining: DcSet,
    /// Members that leave.
    pub leaving: DcSet,
    /// Members that were to leave once, and stayed. A crash may take back what one knows of that.
    pub stayed: DcSet,
    /// Members that were asked to leave: that may be decided at any time.
    pub asked_to_leave: DcSet,
    /// Members that are lost and not evicted yet.
    pub lost: DcSet,
    /// When members were lost for good.
    pub lost_at: BTreeMap<DcId, Moment>,
    /// Members that are cut off, and will be lost a moment later.
    pub isolated: DcSet,
    /// Members that are cut off or stopped, and until when: they are evicted if that takes long enough.
    pub cut_off: BTreeMap<DcId, Moment>,
    /// Members that are evicted and live: they do not know it yet, or stop in a moment. Nothing that they
    /// have or do counts any more, but that none of their clients holds what others are given.
    pub evicted: DcSet,
    /// Lost members whose clients do not believe in their leases any more.
    pub without_clients: DcSet,
    /// A witness is about to take the place of another one: until then a vote less.
    pub replaces_witness: bool,
    /// A majority is lost: nothing is decided.
    pub is_lost: bool,
}

fn name(dc: DcId) -> MemberName {
    MemberName::new(&dc.to_string()).expect("a short name")
}

fn address(dc: DcId) -> Address {
    Address::new(&format!("{dc}:7402")).expect("a host and a port")
}

impl World {
    /// If servers are to join, or members to be evicted, the control group is founded. Those that join start
    /// within the first half of the run.
    pub(super) fn plan_joins(&mut self, joining: DcSet, seed: u64, bugs: Bugs) {
        if joining.is_empty() && self.plan.losses == 0 && self.plan.rules == 0 {
            return;
        }
        let founder = |dc| Founder {
            dc,
            server: server(dc, Generation(0)),
            name: name(dc),
            address: address(dc),
            votes: true,
        };
        let founding = Founding {
            cluster: ClusterId::of("simulated"),
            founders: self.members().iter().map(founder).collect(),
            policy: Policy { join: JoinPolicy::Auto, rejoin: JoinPolicy::Auto, ..Policy::default() },
            options: AgreedOptions::default(),
            version: PROTOCOL_VERSION,
        };
        let checked = self.control.config.revision();
        self.on_decide(Proposal { checked, command: Command::Found(founding) });
        for dc in joining.iter() {
            self.nodes.push(Node::joining(&self.plan, dc, seed, bugs));
            self.control.joining.insert(dc);
            let at = self.chance.members.duration(Duration::from_millis(300), self.plan.trouble / 2);
            self.queue.push(self.now + at, Action::Join { node: dc });
        }
    }

    /// Returns the server id of a node.
    pub(super) fn server_of(dc: DcId) -> ServerId {
        server(dc, Generation(0))
    }

    /// A node proposes something.
    pub(super) fn on_proposed(&mut self, proposal: Proposal) {
        let rng = &mut self.chance.members;
        let faults = self.phase == RunPhase::Trouble;
        let copies = match rng.below(10) {
            0 if faults => 0,
            1 if faults => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let slow = faults && self.chance.members.percent(10);
            let most = Duration::from_millis(if slow { 3_000 } else { 150 });
            let after = self.chance.members.duration(Duration::from_millis(1), most);
            self.queue.push(self.now + after, Action::Decide { proposal: Box::new(proposal.clone()) });
        }
    }

    pub(super) fn on_decide(&mut self, proposal: Proposal) {
        if self.control.is_lost {
            return;
        }
        let index = self.control.config.index().next();
        let under_way =
            self.control.config.attempt().filter(|_| matches!(proposal.command, Command::End { .. }));
        let promised: Option<(_, Vec<Voter>)> =
            under_way.map(|attempt| (attempt.id, attempt.promised.iter().copied().collect()));
        let applied = self.control.config.apply(index, &proposal);
        self.trace.line(self.now, "control", || format!("decision {index}: {proposal:?}: {applied:?}"));
        if let (Command::Leaving { dc, .. }, Ok(_)) = (&proposal.command, &applied) {
            self.control.leaving.insert(*dc);
            self.control.asked_to_leave.remove(*dc);
            self.move_clients_from(*dc);
            self.cancel_some(*dc);
        }
        if let (Command::CancelLeave { dc, .. }, Ok(_)) = (&proposal.command, &applied) {
            self.on_stays(*dc);
        }
        if applied.is_ok() {
            self.check_version(&proposal.command);
        }
        let is_end = matches!(proposal.command, Command::End { .. });
        self.control.decisions.push(proposal);
        if let (true, Ok(applied)) = (is_end, applied) {
            if let Some((attempt, promised)) = promised {
                self.check_promised(attempt, &promised);
            }
            applied.cuts.iter().for_each(|cut| self.on_evicted(*cut));
        }
        let left = self.control.leaving.iter().filter(|dc| self.control.config.slots().member(*dc).is_none());
        for dc in left.collect::<Vec<_>>() {
            self.learn_soon(dc, index);
        }
        for node in self.linkable().iter() {
            self.learn_soon(node, index);
        }
    }

    pub(super) fn learn_soon(&mut self, node: DcId, index: Index) {
        let faults = self.phase == RunPhase::Trouble;
        // Then others may tell it sooner.
        let slow = faults && self.chance.members.percent(30);
        let most = Duration::from_millis(if slow { 5_000 } else { 200 });
        let after = self.chance.members.duration(Duration::from_millis(1), most);
        self.queue.push(self.now + after, Action::Learn { node, index });
    }

    /// A server that starts again is told all decisions: its disk may have lost some that were not durable.
    pub(super) fn learn_again(&mut self, node: DcId) {
        let index = self.control.config.index();
        if index > Index(0) {
            self.learn_soon(node, index);
        }
    }

    pub(super) fn on_learn(&mut self, node: DcId, index: Index) {
        if self.witness(node).is_some() {
            return self.learn_all(node, index);
        }
        // A server that joins learns them from members.
        let was_member = self.control.config.slots().iter().any(|(dc, _)| dc == node);
        if !was_member || self.control.joining.contains(node) || self.node(node).is_gone {
            return;
        }
        if !self.is_running(node) || self.is_cut_off(node) {
            return self.learn_soon(node, index);
        }
        self.learn_all(node, index);
    }

    fn learn_all(&mut self, node: DcId, index: Index) {
        let lineage = self.control.config.lineage();
        // The log of the group has the last ones, and what no other member knows.
        let knows = |dc| Some(self.node(dc).inspect()?.decided_members()?.index().0);
        let others = self.members().iter().filter(|dc| *dc != node);
        let known = others.filter_map(knows).max().unwrap_or_default().min(index.0);
        let before = (known as usize).saturating_sub(self.plan.kept_decisions);
        for (number, proposal) in (1..=index.0).zip(self.control.decisions.clone()).skip(before) {
            let event = Event::Decided { lineage, index: Index(number), proposal: Box::new(proposal) };
            self.step(node, event);
        }
    }

    /// A server starts in order to join, and asks a member that serves, until it is admitted; then clients
    /// come.
    pub(super) fn on_join(&mut self, dc: DcId) {
        if !self.control.joining.contains(dc) {
            return;
        }
        if self.node(dc).life == 0 {
            self.start_node(dc);
        }
        if self.control.config.slots().member(dc).is_none() {
            self.ask_to_join(dc);
        } else if self.serves(dc) {
            self.control.joining.remove(dc);
            self.tally.joins += 1;
            if self.plan.by_time {
                self.queue.push(self.now + ASK_AGAIN, Action::Vote { node: dc });
            }
            let clients = self.plan.load.clients[dc.index()];
            if self.phase != RunPhase::Healing {
                for _ in 0..clients {
                    self.spawn_client(dc, Driver::Random);
                }
            }
            return;
        }
        self.queue.push(self.now + ASK_AGAIN, Action::Join { node: dc });
    }

    /// A member that has joined is given its vote: asks for it until that is decided.
    pub(super) fn on_vote(&mut self, dc: DcId) {
        let config = &self.control.config;
        let wants = config.next_voter() == Some(dc);
        let Some(generation) =
            config.slots().generation(dc).filter(|_| wants && self.phase != RunPhase::Healing)
        else {
            return;
        };
        let members: Vec<DcId> =
            config.slots().member_set().iter().filter(|member| self.serves(*member)).collect();
        if !members.is_empty() {
            let asked = *self.chance.members.pick(&members);
            let command = Command::Vote { dc, generation, votes: true };
            self.step(asked, Event::Propose { command: Box::new(command) });
        }
        self.queue.push(self.now + ASK_AGAIN, Action::Vote { node: dc });
    }

    /// Plans which members leave, and when. Which they are is decided when the time comes.
    pub(super) fn plan_leaves(&mut self, seed: u64) {
        let mut rng = Rng::new(seed, 36);
        let trouble = self.plan.trouble;
        for _ in 0..self.plan.leaves {
            let node = self.nodes[rng.index(self.nodes.len())].dc;
            let at = self.now + rng.duration(trouble / 8, trouble / 4 * 3);
            self.queue.push(at, Action::Leave { node });
        }
    }

    /// A member is to leave: asks for it until that is decided; then lets its clients go elsewhere, until it
    /// has left.
    pub(super) fn on_leave(&mut self, dc: DcId) {
        if self.node(dc).is_gone {
            return;
        }
        let member = self.control.config.slots().member(dc).map(|member| member.phase);
        match member {
            // It ends as soon as it knows that it has left.
            None if self.control.leaving.contains(dc) => return self.stop_who_left(dc),
            // It has clients first.
            None | Some(_) if self.control.joining.contains(dc) => {}
            None => {}
            Some(Phase::Leaving) => self.move_clients_from(dc),
            Some(_) if self.members().len() - self.control.leaving.len() < 2 => return,
            Some(_) if !self.can_decide(self.control.leaving.union(DcSet::only(dc)), self.control.lost) => {}
            Some(_) => self.ask_to_leave(dc),
        }
        self.queue.push(self.now + ASK_AGAIN, Action::Leave { node: dc });
    }

    fn ask_to_leave(&mut self, dc: DcId) {
        let config = &self.control.config;
        let members: Vec<DcId> =
            config.slots().member_set().iter().filter(|member| self.serves(*member)).collect();
        let Some(generation) = config.slots().generation(dc).filter(|_| !members.is_empty()) else { return };
        let asked = *self.chance.members.pick(&members);
        let votes = |(other, generation): &(DcId, Generation)| {
            *other != dc
                && config.voters().voters.contains(&Voter::Member { dc: *other, generation: *generation })
        };
        let settled = config.slots().members().filter(|(_, member)| member.phase == Phase::Settled);
        let settled: Vec<_> = settled.map(|(dc, member)| (dc, member.generation)).collect();
        let command = match settled.iter().find(|(other, _)| *other != dc) {
            // In production every member votes as soon as it is settled.
            Some((other, generation)) if !settled.iter().any(votes) => {
                Command::Vote { dc: *other, generation: *generation, votes: true }
            }
            _ => Command::Leaving { dc, generation },
        };
        if matches!(command, Command::Leaving { .. }) {
            self.control.asked_to_leave.insert(dc);
        }
        self.step(asked, Event::Propose { command: Box::new(command) });
    }

    /// An operator takes some leaves back, soon after they began.
    fn cancel_some(&mut self, dc: DcId) {
        let is_possible = self.plan.cancels > 0 && self.phase == RunPhase::Trouble;
        if is_possible && self.chance.members.percent(self.plan.cancels) {
            let after = self.chance.members.duration(Duration::ZERO, Duration::from_secs(2));
            self.queue.push(self.now + after, Action::CancelLeave { node: dc });
        }
    }

    /// A member that leaves is to stay: asks it for that until it is decided, or its log says that it leaves.
    pub(super) fn on_cancel_leave(&mut self, dc: DcId) {
        let phase = self.control.config.slots().member(dc).map(|member| member.phase);
        let has_left = self.node(dc).inspect().is_some_and(|replica| replica.has_left());
        if phase != Some(Phase::Leaving) || self.node(dc).is_gone || has_left {
            return;
        }
        if self.is_running(dc) {
            self.step(dc, Event::CancelLeave);
        }
        self.queue.push(self.now + ASK_AGAIN, Action::CancelLeave { node: dc });
    }

    /// It is decided that a member stays. It leaves later, unless it is needed.
    fn on_stays(&mut self, dc: DcId) {
        self.control.leaving.remove(dc);
        self.control.stayed.insert(dc);
        self.tally.stays += 1;
        if self.phase != RunPhase::Healing && !self.node(dc).is_gone {
            for _ in 0..2 {
                self.spawn_client(dc, Driver::Random);
            }
        }
    }

    /// Returns the members that are about to leave, or may be at any moment.
    pub(super) fn may_leave(&self) -> DcSet {
        let stays = |dc: &DcId| self.node(*dc).inspect().is_some_and(|replica| replica.is_to_stay());
        let leaving = self.control.leaving.iter().filter(|dc| !stays(dc)).collect::<DcSet>();
        leaving.union(self.control.asked_to_leave)
    }

    fn stop_who_left(&mut self, dc: DcId) {
        let knows_it = self.node(dc).inspect().is_some_and(|replica| replica.is_over());
        let is_down = self.phase == RunPhase::Healing && !self.is_running(dc);
        if !knows_it && !is_down {
            return self.queue.push(self.now + ASK_AGAIN, Action::Leave { node: dc });
        }
        self.tally.leaves += 1;
        self.crash(dc);
        self.nodes[dc.index()].is_gone = true;
        self.control.leaving.remove(dc);
        self.drop_clients_of(dc);
        self.plan_return(dc);
    }

    /// Returns true if a member leaves or has left.
    pub(super) fn is_leaving(&self, dc: DcId) -> bool {
        self.control.leaving.contains(dc) || self.node(dc).is_gone
    }

    /// Returns a member that has not entered the last epoch.
    pub(super) fn behind_decisions(&self) -> Option<DcId> {
        let epoch = self.control.config.epoch();
        let entered = |dc: DcId| self.node(dc).inspect().map(|replica| replica.entered_by(dc));
        self.members().iter().find(|dc| entered(*dc).is_none_or(|entered| entered < epoch))
    }

    /// Returns the members that leave and are not gone.
    pub(super) fn still_leaving(&self) -> DcSet {
        self.control.leaving
    }

    pub(super) fn serves(&self, dc: DcId) -> bool {
        self.node(dc).inspect().is_some_and(|replica| replica.phase() == ReplicaPhase::Serving)
    }

    fn ask_to_join(&mut self, dc: DcId) {
        let config = &self.control.config;
        let members: Vec<DcId> =
            config.slots().member_set().iter().filter(|member| self.serves(*member)).collect();
        let Some(generation) = config.slots().next_generation(dc).filter(|_| !members.is_empty()) else {
            return;
        };
        let sponsor = *self.chance.members.pick(&members);
        let asked = *self.chance.members.pick(&members);
        let cluster = ClusterId::of("simulated");
        let admission = Admission {
            dc,
            generation,
            server: server(dc, generation),
            name: name(dc),
            address: address(dc),
            sponsor,
            votes: self.plan.by_time,
            credentials: Credentials { cluster, lineage: None, version: self.node(dc).speaks() },
        };
        self.step(asked, Event::Propose { command: Box::new(Command::Admit(admission)) });
    }

    /// Returns true if a transfer only names the part of a member that joins: it keeps it, or sends it home.
    pub(super) fn names_part(&self, dc: DcId, to: DcId, moved: &LockParts) -> bool {
        let joins = |part: DcId| self.has_joined_later(part);
        moved
            .parts
            .iter()
            .all(|(part, _)| joins(*part) && (to == dc || (to == *part && !self.has_served(to))))
    }

    /// Returns the parts that a transfer to `to` is about: without those of other members that join, unless
    /// it is about these.
    pub(super) fn without_joiners(&self, to: DcId, moved: &LockParts) -> LockParts {
        let founded = moved.parts.iter().filter(|(part, _)| !self.has_joined_later(*part) || *part == to);
        let parts: Vec<_> = founded.copied().collect();
        if parts.is_empty() { moved.clone() } else { LockParts { parts, ..moved.clone() } }
    }

    /// Checks that a sponsor splits a part off after its member is settled: others need it from then on.
    pub(super) fn check_split(&mut self, dc: DcId, entry: &Entry) {
        let split =
            entry.ops.iter().find_map(|op| if let Op::Split { part } = op { Some(*part) } else { None });
        let Some(part) = split.filter(|_| entry.dc == dc && !self.txns.is_made(entry)) else { return };
        let member = self.control.config.slots().member(part);
        let is_joining = member.is_some_and(|member| member.phase == Phase::Joining);
        // One that does not know that all speak this version splits it off before.
        let versions = self.node(dc).inspect().map(|it| it.versions()).unwrap_or_default();
        if is_joining && versions.values().all(|spoken| *spoken >= SETTLES_FIRST_VERSION) {
            let what = format!("{dc} splits off part {part}, which is not settled");
            self.fail(FailureKind::SplitEarly, what);
        }
    }

    /// Returns true for a member that is no founder.
    fn has_joined_later(&self, dc: DcId) -> bool {
        let config = &self.control.config;
        let past = config.slots().last_past(dc).map(|past| past.generation);
        dc.get() >= self.plan.founders || config.slots().generation(dc).max(past) > Some(Generation(0))
    }

    /// Returns true if a server has joined and served.
    fn has_served(&self, dc: DcId) -> bool {
        !self.control.joining.contains(dc)
    }

    /// Returns the members whose parts the oracle can find on disks: none in a world in which members join or
    /// are evicted, or locks get homes, because what goes along and what falls home is in no record.
    pub(super) fn members_on_disks(&self) -> DcSet {
        let moves = self.plan.founders < self.plan.dcs || self.plan.losses > 0 || self.plan.rules > 0;
        if moves { DcSet::EMPTY } else { self.members() }
    }

    /// Returns the servers that are to be members and do not serve yet.
    pub(super) fn still_joining(&self) -> DcSet {
        self.control.joining
    }

    /// Returns true if two nodes know each other, so that they link.
    pub(super) fn know_each_other(&self, a: DcId, b: DcId) -> bool {
        let knows = |dc: DcId, other| match self.witness(dc).is_some() || self.witness(other).is_some() {
            // A witness accepts links of any member.
            true if self.witness(dc).is_some() => true,
            true => self.node(dc).inspect().is_some_and(|replica| replica.witnesses().contains(other)),
            false => self.node(dc).inspect().is_some_and(|replica| replica.may_link(other)),
        };
        knows(a, b) && knows(b, a)
    }
}
