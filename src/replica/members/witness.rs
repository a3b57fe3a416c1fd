//! A witness: a server that only votes. It has no locks, no data and no clients, and relays nothing.
//!
//! As a voter it does what a member that votes does, with the same parts: it records the decisions
//! ([`Decided`]); it promises when an eviction begins ([`Promise`]); under the policy `auto` it acknowledges
//! heartbeats, or states its silence ([`Listener`]); and it tells members how many decisions it knows, which
//! confirms those that have restarted ([`asking`](super::asking)).
//!
//! ```text
//! journal   Decided   each decision; with that of a `Begin`, the promise is on disk
//!           Compacted the state after decisions that members have compacted, if it lacks some of them
//!           Silent    from now on it acknowledges nothing of that member
//! decision  Have      of an eviction, without a vector, once the promise is on disk
//!           Abort     instead, while it hears one that is to be evicted
//! messages  to each linked member with each heartbeat: the members that it hears (`WitnessHears`), the
//!           number of decisions that it knows, and under `auto` the heartbeats that it acknowledges
//! ```
//!
//! Two datacenters and a witness go on when one of the three is lost: a majority is two.
//!
//! One that was removed says and records nothing any more: its server stops.

use std::time::Duration;

use super::decided::Decided;
use super::evict::Promise;
use super::list_state::ListState;
use super::listing::Missing;
use super::pending::Kind;
use super::silences::{Listener, Silences};
use crate::base::bugs::{Bug, Bugs};
use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::Histogram;
use crate::base::time::{Instant, Now, Timestamp};
use crate::crdt::VersionVector;
use crate::membership::{Command, Config, Index, Lineage, Proposal, ServerId};
use crate::replica::call::{Acquires, Call, Counts, MembersStatus, Phase, Reply, Status};
use crate::replica::effect::Effect;
use crate::replica::event::Event;
use crate::replica::message::{Heartbeat, Message};
use crate::replica::outputs::Outputs;
use crate::replica::outputs::output_commit::OutputCommit;
use crate::replica::peers::reachability::{PeerReport, Reachability};
use crate::replica::record::Record;
use geolock_api::names::{DcId, DcSet, Position};

/// The options of a witness.
#[derive(Clone, Debug)]
pub struct WitnessConfig {
    /// The id of its links.
    pub dc: DcId,
    /// The random id of its data directory.
    pub server: ServerId,
    /// As that of members: how often it tells what it hears.
    pub heartbeat: Duration,
    /// As that of members: one that was not heard for this long is not heard.
    pub peer_timeout: Duration,
    /// As that of members: the clock of a heartbeat counts as no higher than this above the own wall clock.
    pub max_clock_skew: Duration,
    /// A deliberate bug, to prove that the simulator's checks can fail.
    pub bugs: Bugs,
}

/// A journal that is not that of a witness.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WitnessRecoveryError {
    /// A witness makes no such record.
    #[error("record {position:?} is not of a witness: this directory is that of a member")]
    NotOfWitness {
        /// The position of the record.
        position: Position,
    },
    /// A decision is missing.
    #[error("decision {found} follows decision {last} in the journal: it is damaged")]
    DecisionMissing {
        /// The decision that was found.
        found: Index,
        /// The last one before it.
        last: Index,
    },
}

/// The state machine of a witness. It is driven as a [`Replica`](crate::replica::Replica) is, with the same
/// events and effects, of which it uses few.
pub struct Witness {
    config: WitnessConfig,
    now: Now,
    out: Outputs,
    decided: Decided,
    silences: Silences,
    /// The eviction under way.
    promise: Option<Promise>,
    /// The members that are heard, directly or through others.
    reachability: Reachability,
    linked: DcSet,
    heartbeat_at: Instant,
    /// It has more to do when the record at this position is on disk.
    goes_on_at: Option<Position>,
}

impl Witness {
    /// Returns the machine after the records of its journal, all of which are on disk.
    pub fn recover(
        config: WitnessConfig,
        now: Now,
        records: impl IntoIterator<Item = (Position, Record)>,
    ) -> Result<Witness, WitnessRecoveryError> {
        let mut witness = Witness {
            now,
            out: Outputs::new(config.bugs),
            decided: Decided::new(config.dc, config.server, false),
            silences: Silences::default(),
            promise: None,
            reachability: Reachability::new(DcSet::EMPTY, config.peer_timeout),
            linked: DcSet::EMPTY,
            heartbeat_at: now.mono,
            goes_on_at: None,
            config,
        };
        for (position, record) in records {
            witness.out.position = position;
            witness.replay(position, record)?;
        }
        witness.out.output_commit = OutputCommit::new(witness.out.position);
        Ok(witness)
    }

    fn replay(&mut self, position: Position, record: Record) -> Result<(), WitnessRecoveryError> {
        match record {
            Record::Decided { index, proposal } => {
                let last = self.decided.config().index();
                if index != last.next() {
                    return Err(WitnessRecoveryError::DecisionMissing { found: index, last });
                }
                self.take_decision(index, *proposal);
            }
            Record::Compacted(compacted) => {
                let last = self.decided.config().index();
                if compacted.index() <= last {
                    return Err(WitnessRecoveryError::DecisionMissing { found: compacted.index(), last });
                }
                self.take_compacted(&compacted);
            }
            Record::Silent { of, number, policy } => self.silences.note(of, number, policy, position),
            _ => return Err(WitnessRecoveryError::NotOfWitness { position }),
        }
        Ok(())
    }

    /// Applies an event, and does what is due by `now`. Events about locks, clients and disk space mean
    /// nothing here.
    pub fn handle(&mut self, now: Now, event: Event) {
        assert!(now.mono >= self.now.mono, "the monotonic clock went back from {:?} to {now:?}", self.now);
        self.now = now;
        match event {
            Event::Durable { position } => self.on_durable(position),
            Event::LinkUp { peer, .. } => {
                self.linked.insert(peer);
                self.tell_decisions_to(peer);
            }
            Event::LinkDown { peer } => self.linked.remove(peer),
            Event::Received { peer, message } if self.linked.contains(peer) => self.on_message(peer, message),
            Event::Decided { lineage, index, proposal } => self.on_decided(lineage, index, *proposal),
            Event::Client { call, request: Call::Status, .. } => {
                let status = Reply::Status(Box::new(self.status()));
                self.out.reply(call, status);
            }
            _ => {}
        }
        if self.is_over() {
            self.goes_on_at = None;
            self.heartbeat_at = now.mono + self.config.heartbeat;
            return;
        }
        let hurries = self.config.bugs.has(Bug::WitnessPromiseNotOnDisk);
        let may_go_on = |position| hurries || self.out.output_commit.may_emit(position);
        if self.goes_on_at.is_some_and(may_go_on) {
            self.goes_on_at = None;
            self.vote();
        }
        if self.heartbeat_at <= now.mono {
            self.heartbeat_at = now.mono + self.config.heartbeat;
            self.vote();
            self.tell_members();
        }
    }

    /// Returns the next effect, in the order in which to perform them.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.effects.pop_front()
    }

    /// Returns the time at which to call [`Witness::handle`] if no other event comes first.
    pub fn next_deadline(&self) -> Instant {
        self.heartbeat_at
    }

    /// Returns the state after the decisions that are known here.
    pub fn decisions(&self) -> &Config {
        self.decided.config()
    }

    /// Returns true if it was removed: it votes no more, and its server may stop.
    pub fn is_over(&self) -> bool {
        self.decided.config().witnesses().is_past(self.config.server)
    }

    /// Returns the members that it hears.
    pub fn hears(&self) -> DcSet {
        self.reachability.alive(self.now.mono)
    }

    /// Returns the state as its server publishes it: that of a datacenter without locks, data and clients.
    fn status(&self) -> Status {
        let config = self.decided.config();
        let decision = config.index().0;
        Status {
            dc: self.config.dc,
            phase: Phase::Serving,
            draining: false,
            clock_skew: false,
            clock_behind_ms: 0,
            backed_for_ms: None,
            unknown_leases_ms: 0,
            disk_space: DiskSpace::Enough,
            load: Load::Fits,
            applied: VersionVector::default(),
            durable: VersionVector::default(),
            members: MembersStatus { decision, epoch: config.epoch().0, ..MembersStatus::default() },
            peers: Vec::new(),
            witnesses: Vec::new(),
            counts: Counts::default(),
            acquires: Acquires::default(),
            majority_waits: Histogram::default(),
        }
    }

    /// Asserts the relations of its parts.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.out.check();
        let attempt = self.decided.config().attempt().map(|attempt| attempt.id);
        let promised = self.promise.map(|promise| promise.attempt());
        assert_eq!(promised, attempt, "a promise is about the eviction under way");
        assert!(!self.linked.contains(self.config.dc), "a witness has no link to itself");
    }

    fn on_durable(&mut self, position: Position) {
        assert!(position <= self.out.position, "{position:?} is durable, {:?} was last", self.out.position);
        if position > self.out.output_commit.durable() {
            self.out.output_commit.note_durable(position);
        }
    }

    fn on_message(&mut self, peer: DcId, message: Message) {
        if self.is_over() {
            return;
        }
        match message {
            Message::Heartbeat(heartbeat) => self.on_heartbeat(peer, &heartbeat),
            Message::KnowsDecisions { index } => {
                let missing = match self.decided.list().after(index) {
                    Missing::Decisions([]) => None,
                    Missing::Decisions(some) => {
                        Some(Message::Decisions { after: index, proposals: some.to_vec() })
                    }
                    Missing::Compacted(compacted) => Some(Message::Compacted(Box::new(compacted.clone()))),
                };
                if let Some(missing) = missing {
                    self.out.send_beside_log(peer, missing);
                } else if index > self.decided.config().index() {
                    self.tell_decisions_to(peer);
                }
            }
            Message::Decisions { after, proposals } => self.on_decisions(peer, after, proposals),
            Message::Compacted(compacted) => self.on_compacted(peer, *compacted),
            // About locks and data.
            _ => {}
        }
    }

    fn on_heartbeat(&mut self, peer: DcId, heartbeat: &Heartbeat) {
        self.note_heard(peer, heartbeat.clock, Duration::ZERO);
        for (dc, clock, age_ms) in heartbeat.heard.iter().filter(|(dc, ..)| *dc != peer) {
            self.note_heard(*dc, *clock, Duration::from_millis(u64::from(*age_ms)));
        }
    }

    fn note_heard(&mut self, dc: DcId, clock: Timestamp, age: Duration) {
        if !self.reachability.peers().contains(dc) {
            return;
        }
        if age > self.config.peer_timeout {
            return self.reachability.note_earlier(dc, clock);
        }
        // A clock that was far ahead would keep its member unheard after it was set right.
        let clock = clock.min(Timestamp::from_millis(self.now.wall.0).plus(self.config.max_clock_skew));
        let (durable, at) = (VersionVector::default(), self.now.mono - age);
        let report = PeerReport { clock, at, durable: &durable, is_its_own: false, not_serving: None };
        self.reachability.note_heard(dc, &report);
    }

    fn on_decided(&mut self, lineage: Lineage, index: Index, proposal: Proposal) {
        if lineage == self.decided.config().lineage() {
            self.learn(index, proposal);
        }
    }

    fn on_decisions(&mut self, peer: DcId, after: Index, proposals: Vec<Proposal>) {
        if self.decided.config().slots().is_lost(peer) {
            return;
        }
        let before = self.decided.config().index();
        for (number, proposal) in (after.0.saturating_add(1)..).zip(proposals) {
            self.learn(Index(number), proposal);
        }
        if self.decided.config().index() > before {
            // It may have more.
            self.tell_decisions_to(peer);
        }
    }

    fn on_compacted(&mut self, peer: DcId, compacted: ListState) {
        let known = self.decided.config();
        let cluster = known.cluster().or(compacted.config().cluster());
        let follows = cluster.is_some_and(|cluster| compacted.follows(known, cluster));
        if known.slots().is_lost(peer) || self.is_over() || !follows {
            return;
        }
        self.goes_on_at = Some(self.out.persist(Record::Compacted(Box::new(compacted.clone()))));
        self.take_compacted(&compacted);
        self.linked.iter().for_each(|peer| self.tell_decisions_to(peer));
    }

    fn learn(&mut self, index: Index, proposal: Proposal) {
        if index != self.decided.config().index().next() || self.is_over() {
            return;
        }
        let record = Record::Decided { index, proposal: Box::new(proposal.clone()) };
        self.goes_on_at = Some(self.out.persist(record));
        self.take_decision(index, proposal);
        self.linked.iter().for_each(|peer| self.tell_decisions_to(peer));
    }

    /// Takes in a decision that is recorded.
    fn take_decision(&mut self, index: Index, proposal: Proposal) {
        // One that the config refuses is a decision without effect.
        let change = self.decided.apply(index, proposal).ok().flatten();
        if let Some(Kind::Admits(admitted)) = change.map(|change| change.kind) {
            self.silences.forget(admitted.dc);
        }
        self.follow_decisions();
    }

    /// Takes in the state after compacted decisions, which is recorded.
    fn take_compacted(&mut self, compacted: &ListState) {
        compacted.renewed_since(self.decided.config()).iter().for_each(|dc| self.silences.forget(dc));
        self.decided.go_on_after(compacted);
        self.follow_decisions();
    }

    fn follow_decisions(&mut self) {
        self.promise = Promise::follow(self.promise, &self.decided, self.out.position, self.now.mono);
        self.reachability.set_peers(self.decided.config().slots().member_set());
    }

    fn tell_decisions_to(&mut self, peer: DcId) {
        if self.is_over() {
            return;
        }
        let index = self.decided.config().index();
        self.out.send_beside_log(peer, Message::KnowsDecisions { index });
    }

    /// Tells each linked member what it hears, knows and acknowledges.
    fn tell_members(&mut self) {
        let hears = self.reachability.told(self.now.mono);
        let members = self.reachability.peers();
        let own = self.decided.evict_by_time().then(|| self.listener().acknowledged(members));
        for peer in self.linked.iter() {
            self.out.send_beside_log(peer, Message::WitnessHears { hears: hears.clone() });
            self.tell_decisions_to(peer);
            if let Some(own) = &own {
                let acks = Message::HeartbeatAcks { own: own.clone(), of_receiver: Vec::new() };
                self.out.send_beside_log(peer, acks);
            }
        }
    }

    /// Does what it owes as a voter. Any proposal may be lost, so it is repeated.
    fn vote(&mut self) {
        self.drive_promise();
        if !self.decided.evict_by_time() || self.decided.own_vote().is_none() {
            return self.silences.stop();
        }
        let members = self.reachability.peers();
        self.goes_on_at = self.listener().drive(members).or(self.goes_on_at);
    }

    /// Promises for the eviction under way, once that is on disk; or gives it up, while one that is to be
    /// evicted is heard, or if a voter has heard it since it began.
    fn drive_promise(&mut self) {
        let (Some(promise), Some(by)) = (self.promise, self.decided.own_vote()) else { return };
        let config = self.decided.config();
        let Some(under_way) = config.attempt() else { return };
        assert_eq!(under_way.id, promise.attempt(), "a promise is about the eviction under way");
        let (attempt, must_be_silent) = (under_way.id, config.need_silence(under_way.evicting()));
        let is_on_disk = self.out.output_commit.may_emit(promise.recorded())
            || self.config.bugs.has(Bug::WitnessPromiseNotOnDisk);
        let was_started = config.evicts_started(|dc| self.reachability.newest_clock(dc));
        let is_heard = !must_be_silent.intersection(self.hears()).is_empty();
        let command = if is_heard || config.lacks_silence() || was_started {
            Command::Abort { attempt }
        } else if is_on_disk && !under_way.promised.contains(&by) {
            Command::Have { attempt, by, vector: VersionVector::default() }
        } else {
            return;
        };
        let proposal = Proposal { checked: config.revision(), command };
        self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
    }

    /// Returns this witness as a voter that listens. One that hears no member says nothing: it is cut off
    /// itself.
    fn listener(&mut self) -> Listener<'_> {
        let promised = self.decided.config().attempt().map_or(DcSet::EMPTY, |attempt| attempt.evicting());
        let may_begin = !self.hears().is_empty();
        Listener {
            bugs: self.config.bugs,
            now: self.now,
            out: &mut self.out,
            decided: &self.decided,
            silences: &mut self.silences,
            reachability: &self.reachability,
            promised,
            may_begin,
        }
    }
}
