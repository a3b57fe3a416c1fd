//! Witnesses: servers that only vote. They have disks that lose what was not synced, crash, and are cut off
//! from some members; nothing else about them can go wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::bugs::Bugs;
use crate::base::time::Instant;
use crate::base::wire::PROTOCOL_VERSION;
use crate::membership::{
    Address, AttemptId, Command, Credentials, Index, MemberName, NewWitness, Proposal, ServerId, Voter,
    WitnessId,
};
use crate::replica::{Effect, Event, Position, Record, Witness, WitnessConfig};
use crate::sim::clock::NodeClock;
use crate::sim::disk::Disk;
use crate::sim::failure::FailureKind;
use crate::sim::queue::Moment;
use crate::sim::world::members::ASK_AGAIN;
use crate::sim::world::{Action, Phase, World, show};
use geolock_api::names::{ClusterId, DcId, DcSet};

/// Average time between two faults of a witness.
const FAULT_EVERY: Duration = Duration::from_millis(1_500);

/// One witness.
pub(super) struct WitnessNode {
    dc: DcId,
    config: WitnessConfig,
    /// `None` while it is down.
    machine: Option<Box<Witness>>,
    clock: NodeClock,
    disk: Disk,
    /// Number of starts.
    life: u64,
    tick: Option<Moment>,
    /// It was removed, and its server was stopped.
    is_gone: bool,
    /// Positions of the records of decisions, and of statements that it is silent.
    decided: BTreeMap<Index, Position>,
    silent: BTreeMap<(DcId, u64), Position>,
}

impl WitnessNode {
    /// Returns when its next timer is due.
    pub fn next_tick(&self) -> Option<(Moment, DcId)> {
        Some((self.tick?, self.dc))
    }

    fn has_on_disk(&self, position: Option<&Position>) -> bool {
        position.is_some_and(|position| *position <= self.disk.durable())
    }

    /// Returns true if its disk has what a proposal promises, so that a crash does not take it back.
    fn keeps(&self, command: &Command) -> bool {
        match command {
            Command::Have { attempt, .. } => self.has_promised(*attempt),
            Command::Silent { mark, .. } => self.has_on_disk(self.silent.get(&(mark.of, mark.number))),
            _ => true,
        }
    }

    fn has_promised(&self, attempt: AttemptId) -> bool {
        self.has_on_disk(self.decided.get(&Index(attempt.0)))
    }

    fn note_record(&mut self, position: Position, record: &Record) {
        match record {
            Record::Decided { index, .. } => drop(self.decided.insert(*index, position)),
            Record::Compacted(compacted) => {
                if let Some(attempt) = compacted.config().attempt() {
                    self.decided.insert(Index(attempt.id.0), position);
                }
            }
            Record::Silent { of, number, .. } => drop(self.silent.insert((*of, *number), position)),
            _ => {}
        }
    }
}

fn server(dc: DcId) -> ServerId {
    ServerId([200 + dc.get(); 16])
}

impl World {
    /// Returns the ids of the witnesses: those after the members.
    pub(super) fn witness_ids(&self) -> DcSet {
        self.witnesses.iter().map(|witness| witness.dc).collect()
    }

    /// Returns all that may have links.
    pub(super) fn linkable(&self) -> DcSet {
        self.members().union(self.witness_ids())
    }

    pub(super) fn witness(&self, dc: DcId) -> Option<&WitnessNode> {
        self.witnesses.iter().find(|witness| witness.dc == dc)
    }

    fn witness_mut(&mut self, dc: DcId) -> &mut WitnessNode {
        let witness = self.witnesses.iter_mut().find(|witness| witness.dc == dc);
        witness.expect("it is the id of a witness")
    }

    pub(super) fn witness_runs(&self, dc: DcId) -> bool {
        self.witness(dc).is_some_and(|witness| witness.machine.is_some())
    }

    /// Plans when witnesses are added. They run from the beginning.
    pub(super) fn plan_witnesses(&mut self, bugs: Bugs) {
        for number in 0..self.plan.witnesses {
            let dc = DcId::new(self.plan.dcs + number).expect("a small id");
            let config = WitnessConfig {
                dc,
                server: server(dc),
                heartbeat: self.plan.heartbeat,
                peer_timeout: self.plan.peer_timeout,
                max_clock_skew: Duration::from_secs(5),
                bugs,
            };
            self.witnesses.push(WitnessNode {
                dc,
                config,
                machine: None,
                clock: NodeClock::new(Instant::ZERO, Moment::START, 0, 0),
                disk: Disk::new(),
                life: 0,
                tick: None,
                is_gone: false,
                decided: BTreeMap::new(),
                silent: BTreeMap::new(),
            });
            self.start_witness(dc);
            // Each takes the place of the one before.
            let at = self.chance.members.duration(Duration::ZERO, self.plan.trouble / 8);
            let at = at + self.plan.trouble / 4 * u32::from(number);
            self.queue.push(self.now + at, Action::AddWitness { node: dc });
            self.plan_witness_fault(dc);
        }
    }

    fn start_witness(&mut self, dc: DcId) {
        let drift = self.chance.members.signed(self.plan.clock.drift_ppm);
        let origin = Instant::from_nanos(self.chance.members.between(0, 1 << 50));
        let now = self.now;
        let node = self.witness_mut(dc);
        let drift = if node.life == 0 { drift } else { node.clock.drift_ppm() };
        node.clock = NodeClock::new(origin, now, drift, 0);
        node.life += 1;
        let (life, records) = (node.life, node.disk.recover().1);
        match Witness::recover(node.config.clone(), node.clock.now(now), records) {
            Ok(machine) => node.machine = Some(Box::new(machine)),
            Err(error) => return self.fail(FailureKind::Forgotten, format!("{dc} cannot recover: {error}")),
        }
        node.tick = Some(now);
        self.trace.line(now, dc, || format!("the witness started for the {life}. time"));
        for peer in self.members().iter() {
            self.connect_soon(dc, peer);
        }
    }

    pub(super) fn crash_witness(&mut self, dc: DcId) {
        let World { witnesses, chance, .. } = self;
        let Some(node) = witnesses.iter_mut().find(|witness| witness.dc == dc) else { return };
        if node.machine.take().is_none() {
            return;
        }
        node.tick = None;
        let lost = node.disk.crash(&mut chance.members);
        let kept = node.disk.durable();
        node.decided.retain(|_, position| *position <= kept);
        node.silent.retain(|_, position| *position <= kept);
        self.tally.records_lost += lost;
        self.trace.line(self.now, dc, || format!("the witness crashed, {lost} records lost"));
        self.drop_links_of(dc);
    }

    pub(super) fn restart_witness(&mut self, dc: DcId) {
        if !self.witness_runs(dc) && !self.witness_mut(dc).is_gone {
            self.start_witness(dc);
            self.learn_again(dc);
        }
    }

    /// A witness is to be added: some member is asked until that is decided.
    pub(super) fn on_add_witness(&mut self, dc: DcId) {
        let is_witness = self.control.config.witnesses().of(server(dc)).is_some();
        if is_witness || self.phase == Phase::Healing {
            self.control.replaces_witness = false;
            return;
        }
        let before = self.control.config.witnesses().iter().next().map(|(id, _)| id);
        if let Some(id) = before {
            self.queue.push(self.now + ASK_AGAIN, Action::AddWitness { node: dc });
            return self.ask_to_remove(id);
        }
        let members: Vec<DcId> = self.members().iter().filter(|member| self.serves(*member)).collect();
        if !members.is_empty() {
            let asked = *self.chance.members.pick(&members);
            let witness = NewWitness {
                dc,
                server: server(dc),
                name: MemberName::new(&format!("witness-{}", dc.get())).expect("a short name"),
                address: Address::new(&format!("{dc}:7402")).expect("a host and a port"),
                credentials: Credentials {
                    cluster: ClusterId::of("simulated"),
                    lineage: None,
                    version: PROTOCOL_VERSION,
                },
            };
            self.step(asked, Event::Propose { command: Box::new(Command::AddWitness(witness)) });
        }
        self.queue.push(self.now + ASK_AGAIN, Action::AddWitness { node: dc });
    }

    /// A witness is removed while nobody is lost: with it goes a vote that an eviction may need.
    fn ask_to_remove(&mut self, id: WitnessId) {
        let members: Vec<DcId> = self.members().iter().filter(|member| self.serves(*member)).collect();
        let control = &mut self.control;
        let is_calm = [control.lost, control.isolated, control.leaving, control.joining]
            .iter()
            .all(|set| set.is_empty());
        if is_calm && !members.is_empty() {
            control.replaces_witness = true;
            let asked = *self.chance.members.pick(&members);
            self.step(asked, Event::Propose { command: Box::new(Command::RemoveWitness { id }) });
        }
    }

    fn plan_witness_fault(&mut self, dc: DcId) {
        let after = self.chance.members.around(FAULT_EVERY);
        self.queue.push(self.now + after, Action::WitnessFault { node: dc });
    }

    /// A witness crashes for a while, or is cut off from some member.
    pub(super) fn on_witness_fault(&mut self, dc: DcId) {
        if self.phase != Phase::Trouble {
            return;
        }
        self.plan_witness_fault(dc);
        let lasts = self.chance.members.around(2 * FAULT_EVERY);
        let members: Vec<DcId> = self.members().iter().collect();
        let member = *self.chance.members.pick(&members);
        if self.chance.members.percent(50) && self.witness_runs(dc) {
            self.crash_witness(dc);
            let life = self.witness_mut(dc).life;
            self.queue.push(self.now + lasts, Action::Restart { node: dc, life });
        } else {
            self.cut_for(dc, member, lasts);
            self.cut_for(member, dc, lasts);
        }
    }

    pub(super) fn heal_witnesses(&mut self) {
        for dc in self.witness_ids().iter() {
            for member in self.members().iter() {
                for (from, to) in [(dc, member), (member, dc)] {
                    while self.network.is_cut_from(from, to) {
                        self.uncut(from, to);
                    }
                }
            }
            self.restart_witness(dc);
        }
    }

    /// Submits one input to a witness, with everything that follows at once.
    pub(super) fn step_witness(&mut self, dc: DcId, event: Event) {
        let now = self.now;
        self.trace.mix(now.0 ^ u64::from(dc.get()) << 56);
        self.trace.line(now, dc, || format!("<- {}", show::event(&event)));
        let node = self.witness_mut(dc);
        let Some(machine) = &mut node.machine else { return };
        machine.handle(node.clock.now(now), event);
        machine.check();
        self.tally.steps += 1;
        while let Some(effect) = self.witness_mut(dc).machine.as_mut().and_then(|it| it.poll_effect()) {
            self.trace.line(now, dc, || format!("-> {}", show::effect(&effect)));
            self.perform_of_witness(dc, effect);
        }
        if self.witness_mut(dc).machine.as_ref().is_some_and(|machine| machine.is_over()) {
            self.witness_mut(dc).is_gone = true;
            return self.crash_witness(dc);
        }
        let node = self.witness_mut(dc);
        let deadline = node.machine.as_ref().map(|machine| machine.next_deadline());
        node.tick = deadline.map(|deadline| node.clock.when(deadline).max(now));
        if node.disk.begin_sync() {
            let life = node.life;
            self.queue.push(now + self.plan.disk.sync, Action::Synced { node: dc, life });
        }
    }

    fn perform_of_witness(&mut self, dc: DcId, effect: Effect) {
        match effect {
            Effect::Persist { position, record } => {
                let node = self.witness_mut(dc);
                node.note_record(position, &record);
                if let Err(due) = node.disk.append(position, record) {
                    let what = format!("{dc} persists position {}, due is {}", position.0, due.0);
                    self.fail(FailureKind::Contract, what);
                }
            }
            Effect::Send { peer, message } => self.send(dc, peer, message),
            Effect::Propose(proposal) => self.on_proposed_by_witness(dc, *proposal),
            other => self.fail(FailureKind::Contract, format!("a witness has no effect {other:?}")),
        }
    }

    fn on_proposed_by_witness(&mut self, dc: DcId, proposal: Proposal) {
        if self.witness(dc).is_some_and(|node| !node.keeps(&proposal.command)) {
            let what = format!("the witness {dc} proposes {:?}, which is not on its disk", proposal.command);
            self.fail(FailureKind::LeftBeforeDurable, what);
        }
        self.on_proposed(proposal);
    }

    /// Checks that the witnesses that are said to have promised for an attempt have promised.
    pub(super) fn check_promised(&mut self, attempt: AttemptId, promised: &[Voter]) {
        for voter in promised {
            let Voter::Witness(id) = voter else { continue };
            let named = self.control.config.witnesses().iter().find(|(witness, _)| witness == id);
            let Some(dc) = named.map(|(_, witness)| witness.dc) else { continue };
            if self.witness(dc).is_some_and(|node| !node.has_promised(attempt)) {
                let what = format!("attempt {attempt} ends, and the witness {dc} has not promised");
                self.fail(FailureKind::LeftBeforeDurable, what);
            }
        }
    }

    pub(super) fn on_witness_synced(&mut self, dc: DcId, life: u64) {
        if self.witness(dc).is_some_and(|node| node.machine.is_some() && node.life == life) {
            let position = self.witness_mut(dc).disk.end_sync();
            self.step_witness(dc, Event::Durable { position });
        }
    }

    /// Returns true if a timer of a witness is due.
    pub(super) fn witness_is_due(&self, dc: DcId) -> bool {
        self.witness(dc).and_then(|node| node.tick).is_some_and(|tick| tick <= self.now)
    }
}
