//! Stories about members and a witness: a server that only votes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cluster::{Cluster, dc, founding};
use crate::base::bugs::{Bug, Bugs};
use crate::base::time::Timestamp;
use crate::base::time::{Instant, Now, Wall};
use crate::membership::{
    Address, Command, Config, Credentials, EvictPolicy, Evictee, Eviction, Generation, Index, JoinPolicy,
    Lineage, MemberName, NewWitness, Policy, Proposal, ServerId, Voter, Vouch,
};
use crate::replica::call::{Phase, Reply};
use crate::replica::{
    Effect, Event, Message, Position, Record, Witness, WitnessConfig, WitnessRecoveryError,
};
use geolock_api::names::ClusterId;

/// The id of the links of the witness.
const WITNESS: u8 = 9;

/// Members that have added a witness, with links between all, and their control group.
struct Story {
    c: Cluster,
    config: Config,
    /// Members that learn each decision at once.
    up: Vec<u8>,
    witness: Witness,
    records: Vec<(Position, Record)>,
    /// The disk of the witness makes nothing durable.
    is_stuck: bool,
    /// The witness learns each decision at once.
    learns: bool,
    /// Members with a link to the witness.
    linked: BTreeSet<u8>,
    proposed: Vec<Proposal>,
    bug: Option<Bug>,
}

fn server() -> ServerId {
    ServerId([99; 16])
}

fn new_witness() -> NewWitness {
    NewWitness {
        dc: dc(WITNESS),
        server: server(),
        name: MemberName::new("witness").expect("a short name"),
        address: Address::new("witness:1").expect("a host and a port"),
        credentials: Credentials { cluster: ClusterId::of("stories"), lineage: None, version: 3 },
    }
}

fn recover(bug: Option<Bug>, now: Now, records: Vec<(Position, Record)>) -> Witness {
    let config = WitnessConfig {
        dc: dc(WITNESS),
        server: server(),
        heartbeat: Duration::from_millis(500),
        peer_timeout: Duration::from_secs(3),
        max_clock_skew: Duration::from_secs(5),
        bugs: bug.map(Bugs::one).unwrap_or_default(),
    };
    Witness::recover(config, now, records).expect("its own records are fine")
}

impl Story {
    fn new(size: u8, evict: EvictPolicy, bug: Option<Bug>) -> Story {
        let mut c = Cluster::with_old(size, Default::default(), bug);
        c.pass(1_000);
        let witness = recover(bug, now(&c), Vec::new());
        let mut s = Story {
            c,
            config: Config::default(),
            up: (0..size).collect(),
            witness,
            records: Vec::new(),
            is_stuck: false,
            learns: true,
            linked: BTreeSet::new(),
            proposed: Vec::new(),
            bug,
        };
        s.decide_command(Command::Found(founding(size)));
        s.decide_command(Command::SetPolicy(Policy { evict, join: JoinPolicy::Auto, ..Policy::default() }));
        s.decide_command(Command::AddWitness(new_witness()));
        (0..size).for_each(|id| s.link(id));
        // Under `auto`, leases of 60 s were possible before.
        s.pass(if evict == EvictPolicy::Auto { 60_000 } else { 2_000 });
        for id in 0..size {
            assert!(s.serves(id) && s.c.inspect(usize::from(id)).epoch() == s.config.epoch(), "dc{id}");
            s.c.open_lease(id, Duration::from_secs(15));
        }
        s
    }

    fn decide_command(&mut self, command: Command) {
        self.decide(Proposal { checked: self.config.revision(), command });
    }

    /// The control group orders a proposal.
    fn decide(&mut self, proposal: Proposal) {
        let index = self.config.index().next();
        // A refused command is a decision without effect.
        let _applied = self.config.apply(index, &proposal);
        let decided = || Event::Decided { lineage: Lineage(0), index, proposal: Box::new(proposal.clone()) };
        for id in self.up.clone() {
            self.c.handle(id, decided());
        }
        if self.learns {
            self.handle(decided());
        }
        self.run();
    }

    /// Submits an event to the witness.
    fn handle(&mut self, event: Event) {
        self.witness.handle(now(&self.c), event);
        self.witness.check();
        while let Some(effect) = self.witness.poll_effect() {
            match effect {
                Effect::Persist { position, record } => self.records.push((position, record)),
                Effect::Send { peer, message } if self.linked.contains(&peer.get()) => {
                    self.c.handle(peer.get(), Event::Received { peer: dc(WITNESS), message });
                }
                Effect::Propose(proposal) => self.proposed.push(*proposal),
                other => panic!("a witness has no effect {other:?} here"),
            }
        }
    }

    fn link(&mut self, id: u8) {
        self.linked.insert(id);
        self.c.wires.insert((dc(id), dc(WITNESS)), Default::default());
        self.c.handle(id, Event::LinkUp { peer: dc(WITNESS), version: 4 });
        self.handle(Event::LinkUp { peer: dc(id), version: 4 });
        self.run();
    }

    fn cut(&mut self, id: u8) {
        if self.linked.remove(&id) {
            self.c.wires.remove(&(dc(id), dc(WITNESS)));
            self.c.handle(id, Event::LinkDown { peer: dc(WITNESS) });
            self.handle(Event::LinkDown { peer: dc(id) });
        }
    }

    /// A member is down, or cut off from all others.
    fn isolate(&mut self, id: u8) {
        self.up.retain(|up| *up != id);
        self.cut(id);
        self.c.isolate(id);
    }

    /// Syncs and delivers everything, and all that follows from it.
    fn run(&mut self) {
        loop {
            self.c.run();
            if !self.is_stuck {
                self.handle(Event::Durable { position: Position(self.records.len() as u64) });
            }
            let mut arrived = Vec::new();
            for ((from, to), wire) in &mut self.c.wires {
                if to.get() == WITNESS {
                    arrived.extend(wire.drain(..).map(|message| (*from, message)));
                }
            }
            if arrived.is_empty() {
                return;
            }
            for (peer, message) in arrived {
                assert!(!matches!(message, Message::Entries(_)), "a witness has no log");
                self.c.handle(peer.get(), Event::Flushed { peer: dc(WITNESS), messages: 1, batches: 0 });
                self.handle(Event::Received { peer, message });
            }
        }
    }

    /// Time passes, and what is proposed is decided.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 250 {
            self.c.pass(250);
            self.handle(Event::Tick);
            self.run();
            let mut proposed = std::mem::take(&mut self.c.proposed);
            proposed.append(&mut self.proposed);
            proposed.into_iter().for_each(|proposal| self.decide(proposal));
        }
    }

    fn begin(&mut self, id: u8) {
        let members =
            vec![Evictee { dc: dc(id), generation: Generation(0), last_heard: Timestamp::default() }];
        self.decide_command(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }));
    }

    /// The witness loses all that was recorded after the first `keep` records, and starts again.
    fn crash_witness(&mut self, keep: usize) {
        self.linked.clone().into_iter().for_each(|id| self.cut(id));
        self.records.truncate(keep);
        self.witness = recover(self.bug, now(&self.c), self.records.clone());
    }

    fn voter(&self) -> Voter {
        Voter::Witness(self.config.witnesses().of(server()).expect("it was added"))
    }

    fn has_promised(&self) -> bool {
        self.config.attempt().is_some_and(|attempt| attempt.promised.contains(&self.voter()))
    }

    fn is_member(&self, id: u8) -> bool {
        self.config.slots().member(dc(id)).is_some()
    }

    fn serves(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).phase() == Phase::Serving
    }

    fn is_backed(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).status().backed_for_ms > Some(0)
    }

    /// Returns true if an exclusive request is granted at once.
    fn grants(&mut self, id: u8, lock: &str) -> bool {
        let tag = self.c.lock(id, lock);
        self.run();
        matches!(self.c.reply(id, tag), Some(Reply::Granted(_)))
    }
}

fn now(c: &Cluster) -> Now {
    let mono = Instant::ZERO + Duration::from_millis(c.now);
    Now { mono, wall: Wall(1_700_000_000_000 + c.now) }
}

#[test]
fn with_a_witness_one_of_two_is_evicted_and_its_locks_go_to_the_other() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.c.use_lock(1, "moved");
    s.run();
    s.isolate(1);
    s.pass(4_000);
    assert!(!s.grants(0, "moved"), "dc1 has it");
    s.begin(1);
    s.pass(2_000);
    assert!(!s.is_member(1), "{:?}", s.config.attempt());
    assert!(s.grants(0, "other"));
    assert_eq!(s.config.voters().majority(), 2, "neither the last member nor the witness decides alone");
}

#[test]
fn an_eviction_waits_for_the_promise_of_the_witness() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.isolate(1);
    s.pass(4_000);
    s.is_stuck = true;
    s.begin(1);
    let before = s.config.index();
    s.pass(10_000);
    assert!(s.is_member(1) && !s.has_promised());
    assert!(s.config.index().0 <= before.0 + 1, "an end that would be refused is not proposed");
    s.is_stuck = false;
    s.pass(1_000);
    assert!(!s.is_member(1));
}

#[test]
fn a_witness_that_hears_one_that_is_to_be_evicted_gives_that_up() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.c.cut(0, 1);
    s.pass(5_000);
    let members = vec![Evictee { dc: dc(1), generation: Generation(0), last_heard: Timestamp::default() }];
    let begin = Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None });
    s.c.handle(0, Event::Propose { command: Box::new(begin.clone()) });
    assert!(s.c.proposed.is_empty(), "the witness hears it");
    s.begin(1);
    s.pass(1_000);
    assert!(s.config.attempt().is_none() && s.is_member(1));
    s.cut(1);
    s.pass(5_000);
    s.c.handle(0, Event::Propose { command: Box::new(begin) });
    assert_eq!(s.c.proposed.len(), 1, "nobody hears it");
}

#[test]
fn a_member_that_was_down_serves_when_the_witness_confirms_it() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.isolate(1);
    s.c.restart(1);
    s.pass(30_000);
    assert!(!s.serves(1), "nobody has told it that it is a member");
    s.up.push(1);
    s.link(1);
    s.pass(1_000);
    assert!(s.serves(1), "the witness and itself are a majority");
}

/// dc1 is evicted while the witness lags, or forgets; then it is started again, and has a link to the witness
/// alone. Returns true if it is evicted and serves.
fn serves_after_its_end(mut s: Story, known: usize) -> bool {
    s.pass(3_000);
    s.learns = false;
    let is_over = !s.is_member(1);
    s.crash_witness(known);
    s.cut(0);
    s.c.restart(1);
    s.c.cut(0, 1);
    s.link(1);
    s.pass(30_000);
    is_over && s.serves(1)
}

#[test]
fn a_witness_that_forgot_its_promise_confirms_one_that_was_evicted() {
    let serves = |bug| {
        let mut s = Story::new(2, EvictPolicy::Operator, bug);
        s.isolate(1);
        s.pass(4_000);
        s.is_stuck = true;
        let known = s.records.len();
        s.begin(1);
        serves_after_its_end(s, known)
    };
    assert!(!serves(None));
    assert!(serves(Some(Bug::WitnessPromiseNotOnDisk)));
}

#[test]
fn a_witness_that_lags_confirms_one_that_was_evicted_if_its_promise_was_not_awaited() {
    let serves = |bug| {
        let mut s = Story::new(2, EvictPolicy::Operator, bug);
        s.isolate(1);
        s.pass(4_000);
        s.learns = false;
        s.cut(0);
        let known = s.records.len();
        s.begin(1);
        serves_after_its_end(s, known)
    };
    assert!(!serves(None));
    assert!(serves(Some(Bug::PromisesForWitness)));
}

#[test]
fn a_witness_keeps_its_promise_over_a_restart() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.isolate(1);
    s.pass(4_000);
    s.begin(1);
    s.run();
    let known = s.records.len();
    s.crash_witness(known);
    s.c.restart(1);
    s.link(1);
    s.run();
    assert!(!s.serves(1), "it learns that it is to be evicted");
    s.cut(1);
    s.link(0);
    s.pass(5_000);
    assert!(!s.is_member(1));
}

#[test]
fn with_a_witness_one_of_two_is_evicted_by_time() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    assert!(s.is_backed(0) && s.is_backed(1));
    s.isolate(1);
    s.pass(11_000);
    assert!(!s.is_backed(1), "it is cut off");
    assert!(s.is_backed(0), "the witness acknowledges it");
    s.pass(15_000);
    assert!(s.is_member(1), "its clients may believe in their leases");
    s.pass(8_000);
    assert!(!s.is_member(1));
    s.c.open_lease(0, Duration::from_secs(15));
    assert!(s.grants(0, "any"));
}

#[test]
fn members_that_do_not_reach_each_other_are_both_backed_by_the_witness() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    s.c.cut(0, 1);
    s.pass(60_000);
    assert!(s.is_member(0) && s.is_member(1) && s.is_backed(0) && s.is_backed(1));
}

#[test]
fn a_witness_without_members_is_silent_about_nobody() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    s.cut(0);
    s.cut(1);
    s.pass(60_000);
    assert!(s.is_member(0) && s.is_member(1) && s.is_backed(0) && s.is_backed(1));
    assert!(!s.records.iter().any(|(_, record)| matches!(record, Record::Silent { .. })));
}

#[test]
fn a_witness_that_crashes_after_it_was_silent_acknowledges_nothing_before_that_is_taken_back() {
    let acknowledges = |bug| {
        let mut s = Story::new(2, EvictPolicy::Auto, bug);
        s.isolate(1);
        s.pass(29_000);
        // Its next proposal is under way.
        let is_silent = |s: &Story| {
            let statements = s.proposed.iter().map(|proposal| &proposal.command);
            statements.filter(|command| matches!(command, Command::Silent { .. })).count() > 0
        };
        for _ in 0..20 {
            s.c.pass(250);
            s.handle(Event::Tick);
            s.run();
            if is_silent(&s) {
                break;
            }
        }
        assert!(is_silent(&s), "it states its silence");
        let known = s.records.len();
        s.crash_witness(known);
        s.proposed.clear();
        s.c.proposed.clear();
        s.c.restart(1);
        s.c.cut(0, 1);
        s.link(1);
        for _ in 0..12 {
            s.c.pass(250);
            s.handle(Event::Tick);
            s.run();
        }
        s.is_backed(1)
    };
    assert!(!acknowledges(None));
    assert!(acknowledges(Some(Bug::SilenceNotOnDisk)), "it has forgotten it");
}

#[test]
fn what_a_removed_witness_acknowledges_does_not_count() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    let Voter::Witness(id) = s.voter() else { panic!("it is a witness") };
    s.decide_command(Command::RemoveWitness { id });
    s.run();
    assert!(s.witness.is_over());
    assert_eq!(s.witness.decisions().witnesses().of(server()), None);
    s.isolate(1);
    s.pass(60_000);
    assert!(s.is_member(1), "of two neither is evicted");
}

#[test]
fn a_witness_that_is_added_late_learns_all_decisions_from_members() {
    let mut s = Story::new(3, EvictPolicy::Operator, None);
    s.learns = false;
    s.linked.clone().into_iter().for_each(|id| s.cut(id));
    for number in 0..70 {
        let name = MemberName::new(&format!("n{number}")).expect("a short name");
        s.decide_command(Command::Invite { name: name.clone(), sponsor: None });
        s.decide_command(Command::CancelInvitation { name });
    }
    assert!(s.witness.decisions().index() < s.config.index());
    s.link(2);
    assert_eq!(s.witness.decisions(), &s.config);
    let again = recover(None, now(&s.c), s.records.clone());
    assert_eq!(again.decisions(), &s.config);
}

#[test]
fn a_witness_refuses_a_journal_that_is_not_its_own() {
    let s = Story::new(2, EvictPolicy::Operator, None);
    let config = |s: &Story| WitnessConfig {
        dc: dc(WITNESS),
        server: server(),
        heartbeat: Duration::from_millis(500),
        peer_timeout: Duration::from_secs(3),
        max_clock_skew: Duration::from_secs(5),
        bugs: s.bug.map(Bugs::one).unwrap_or_default(),
    };
    let of_member = s.c.nodes[0].records.clone();
    let refused = Witness::recover(config(&s), now(&s.c), of_member).map(drop);
    assert!(matches!(refused, Err(WitnessRecoveryError::NotOfWitness { .. })), "{refused:?}");
    let gap = s.records[1..].to_vec();
    let missing = WitnessRecoveryError::DecisionMissing { found: Index(2), last: Index(0) };
    assert_eq!(Witness::recover(config(&s), now(&s.c), gap).map(drop), Err(missing));
}
