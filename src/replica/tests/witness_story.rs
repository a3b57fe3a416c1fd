//! A cluster with a witness, for stories: a server that only votes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cluster::{Cluster, dc, founding};
use crate::base::bugs::{Bug, Bugs};
use crate::base::time::{Instant, Now, Timestamp, Wall};
use crate::base::wire::PROTOCOL_VERSION;
use crate::membership::{
    Address, Command, Config, Credentials, EvictPolicy, Evictee, Eviction, Generation, JoinPolicy, Lineage,
    MemberName, NewWitness, Policy, Proposal, ServerId, Voter, Vouch,
};
use crate::replica::call::{Phase, Reply};
use crate::replica::{Effect, Event, Message, Position, Record, Witness, WitnessConfig};
use geolock_api::names::ClusterId;

/// The id of the links of the witness.
pub const WITNESS: u8 = 9;

/// Members that have added a witness, with links between all, and their control group.
pub struct Story {
    pub c: Cluster,
    pub config: Config,
    /// Members that learn each decision at once.
    pub up: Vec<u8>,
    pub witness: Witness,
    pub records: Vec<(Position, Record)>,
    /// The disk of the witness makes nothing durable.
    pub is_stuck: bool,
    /// The witness learns each decision at once.
    pub learns: bool,
    /// Members with a link to the witness.
    pub linked: BTreeSet<u8>,
    pub proposed: Vec<Proposal>,
    /// The voters that are up are a majority: proposals are decided. Otherwise they are lost.
    pub decides: bool,
    /// The number of messages of the witness, and to it.
    pub messages: usize,
    pub bug: Option<Bug>,
}

pub fn server() -> ServerId {
    ServerId([99; 16])
}

pub fn new_witness() -> NewWitness {
    NewWitness {
        dc: dc(WITNESS),
        server: server(),
        name: MemberName::new("witness").expect("a short name"),
        address: Address::new("witness:1").expect("a host and a port"),
        credentials: Credentials {
            cluster: ClusterId::of("stories"),
            lineage: None,
            version: PROTOCOL_VERSION,
        },
    }
}

pub fn recover(bug: Option<Bug>, now: Now, records: Vec<(Position, Record)>) -> Witness {
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
    pub fn new(size: u8, evict: EvictPolicy, bug: Option<Bug>) -> Story {
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
            decides: true,
            messages: 0,
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

    pub fn decide_command(&mut self, command: Command) {
        self.decide(Proposal { checked: self.config.revision(), command });
    }

    /// The control group orders a proposal.
    pub fn decide(&mut self, proposal: Proposal) {
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
    pub fn handle(&mut self, event: Event) {
        self.witness.handle(now(&self.c), event);
        self.witness.check();
        while let Some(effect) = self.witness.poll_effect() {
            match effect {
                Effect::Persist { position, record } => self.records.push((position, record)),
                Effect::Send { peer, message } if self.linked.contains(&peer.get()) => {
                    self.messages += 1;
                    self.c.handle(peer.get(), Event::Received { peer: dc(WITNESS), message });
                }
                Effect::Propose(proposal) => self.proposed.push(*proposal),
                other => panic!("a witness has no effect {other:?} here"),
            }
        }
    }

    pub fn link(&mut self, id: u8) {
        self.linked.insert(id);
        self.c.wires.insert((dc(id), dc(WITNESS)), Default::default());
        self.c.handle(id, Event::LinkUp { peer: dc(WITNESS), version: PROTOCOL_VERSION });
        self.handle(Event::LinkUp { peer: dc(id), version: PROTOCOL_VERSION });
        self.run();
    }

    pub fn cut(&mut self, id: u8) {
        if self.linked.remove(&id) {
            self.c.wires.remove(&(dc(id), dc(WITNESS)));
            self.c.handle(id, Event::LinkDown { peer: dc(WITNESS) });
            self.handle(Event::LinkDown { peer: dc(id) });
        }
    }

    /// A member is down, or cut off from all others.
    pub fn isolate(&mut self, id: u8) {
        self.up.retain(|up| *up != id);
        self.cut(id);
        self.c.isolate(id);
    }

    /// Syncs and delivers everything, and all that follows from it.
    pub fn run(&mut self) {
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
                self.messages += 1;
                self.c.handle(peer.get(), Event::Flushed { peer: dc(WITNESS), messages: 1, batches: 0 });
                self.handle(Event::Received { peer, message });
            }
        }
    }

    /// Time passes, and what is proposed is decided.
    pub fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 250 {
            self.c.pass(250);
            self.handle(Event::Tick);
            self.run();
            let mut proposed = std::mem::take(&mut self.c.proposed);
            proposed.append(&mut self.proposed);
            proposed.retain(|_| self.decides);
            proposed.into_iter().for_each(|proposal| self.decide(proposal));
        }
    }

    /// A member is up and reaches all others again.
    pub fn rejoin(&mut self, id: u8) {
        if !self.up.contains(&id) {
            self.up.push(id);
        }
        self.c.link_again(id);
        self.link(id);
        self.run();
    }

    pub fn begin(&mut self, id: u8) {
        let members =
            vec![Evictee { dc: dc(id), generation: Generation(0), last_heard: Timestamp::default() }];
        self.decide_command(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }));
    }

    /// The witness loses all that was recorded after the first `keep` records, and starts again.
    pub fn crash_witness(&mut self, keep: usize) {
        self.linked.clone().into_iter().for_each(|id| self.cut(id));
        self.records.truncate(keep);
        self.witness = recover(self.bug, now(&self.c), self.records.clone());
    }

    pub fn voter(&self) -> Voter {
        Voter::Witness(self.config.witnesses().of(server()).expect("it was added"))
    }

    pub fn has_promised(&self) -> bool {
        self.config.attempt().is_some_and(|attempt| attempt.promised.contains(&self.voter()))
    }

    pub fn is_member(&self, id: u8) -> bool {
        self.config.slots().member(dc(id)).is_some()
    }

    pub fn serves(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).phase() == Phase::Serving
    }

    pub fn is_backed(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).status().backed_for_ms > Some(0)
    }

    /// Returns true if an exclusive request is granted at once.
    pub fn grants(&mut self, id: u8, lock: &str) -> bool {
        let tag = self.c.lock(id, lock);
        self.run();
        matches!(self.c.reply(id, tag), Some(Reply::Granted(_)))
    }
}

pub fn now(c: &Cluster) -> Now {
    let mono = Instant::ZERO + Duration::from_millis(c.now);
    Now { mono, wall: Wall(1_700_000_000_000 + c.now) }
}
