//! Stories of the list of decisions: each command, each refusal, random lists, and the bytes.

mod bytes;
mod evicting;
mod joining;
mod largest;
mod leaving;
mod policies;
mod proposing;
mod random;
mod recovering;
mod silence;
mod voters;

use geolock_api::names::{ClusterId, DcId, DcSet};

use super::*;
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;

const CLUSTER: ClusterId = ClusterId::from_raw(7);

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn set<const N: usize>(ids: [u8; N]) -> DcSet {
    ids.into_iter().map(dc).collect()
}

fn name(text: &str) -> MemberName {
    MemberName::new(text).expect("a plain name")
}

fn address(host: &str) -> Address {
    Address::new(&format!("{host}:7000")).expect("a host and a port")
}

/// The voter that a founder is.
fn founder(id: u8) -> Voter {
    Voter::Member { dc: dc(id), generation: Generation(0) }
}

fn vector<const N: usize>(seqs: [(u8, u64); N]) -> VersionVector {
    seqs.into_iter().map(|(id, seq)| (dc(id), seq)).collect()
}

/// Founders 0, 1, ..., which all vote if there are at most 7.
fn founding(founders: u8) -> Founding {
    let founder = |id: u8| Founder {
        dc: dc(id),
        server: ServerId([id; 16]),
        name: name(&format!("founder-{id}")),
        address: address(&format!("host-{id}")),
        votes: usize::from(id) < MAX_VOTERS,
    };
    Founding {
        cluster: CLUSTER,
        founders: (0..founders).map(founder).collect(),
        policy: Policy { join: JoinPolicy::Auto, ..Policy::default() },
        options: AgreedOptions::default(),
        version: 3,
    }
}

fn auto() -> Policy {
    Policy { evict: EvictPolicy::Auto, join: JoinPolicy::Auto, rejoin: JoinPolicy::Auto, ..Policy::default() }
}

fn credentials() -> Credentials {
    Credentials { cluster: CLUSTER, lineage: None, version: 3 }
}

fn witness(number: u8) -> NewWitness {
    NewWitness {
        dc: dc(40 + number),
        server: ServerId([200 + number; 16]),
        name: name(&format!("witness-{number}")),
        address: address("witness"),
        credentials: credentials(),
    }
}

/// A list of decisions, and its config.
struct List {
    config: Config,
    decided: Vec<Proposal>,
}

impl List {
    /// The list of a cluster with these founders.
    fn of(founders: u8) -> List {
        let mut list = List { config: Config::default(), decided: Vec::new() };
        list.decide(Command::Found(founding(founders)));
        list
    }

    /// The same, with the policy `auto`.
    fn auto(founders: u8) -> List {
        let mut list = List::of(founders);
        list.decide(Command::SetPolicy(auto()));
        list
    }

    fn try_decide(&mut self, command: Command) -> Result<Applied, Refused> {
        let proposal = Proposal { checked: self.config.revision(), command };
        self.decided.push(proposal.clone());
        self.config.apply(self.config.index().next(), &proposal)
    }

    fn decide(&mut self, command: Command) -> Applied {
        let shown = format!("{command:?}");
        self.try_decide(command).unwrap_or_else(|refused| panic!("{shown}: {refused}"))
    }

    /// Decides a command that is refused, and changes nothing but the number of decisions.
    fn refused(&mut self, command: Command) -> Refused {
        let shown = format!("{command:?}");
        let mut before = self.config.clone();
        before.numbers.index = self.config.index().next();
        let refused = self.try_decide(command).expect_err(&shown);
        assert_eq!(self.config, before, "{shown} changed something");
        refused
    }

    /// The admission of a new server to the slot, with founder 0 as sponsor.
    fn admission(&self, id: u8) -> Admission {
        let generation = self.config.slots().next_generation(dc(id)).expect("a free slot");
        let mut server = [100 + id; 16];
        server[..2].copy_from_slice(&generation.0.to_le_bytes());
        Admission {
            dc: dc(id),
            generation,
            server: ServerId(server),
            name: name(&format!("joiner-{id}")),
            address: address(&format!("joiner-{id}")),
            sponsor: dc(0),
            votes: true,
            credentials: credentials(),
        }
    }

    fn admit(&mut self, id: u8) -> Applied {
        self.decide(Command::Admit(self.admission(id)))
    }

    fn settle(&mut self, id: u8) {
        let generation = self.config.slots().generation(dc(id)).expect("a member");
        self.decide(Command::Settled { dc: dc(id), generation });
    }

    fn eviction<const N: usize>(&self, ids: [u8; N], vouch: Vouch) -> Command {
        let generation = |id| self.config.slots().generation(dc(id)).unwrap_or_default();
        let members = ids.map(|id| Evictee {
            dc: dc(id),
            generation: generation(id),
            last_heard: Timestamp::from_raw(1),
        });
        Command::Begin(Eviction { members: members.into(), vouch, recut: None })
    }

    /// Begins an eviction by an operator.
    fn begin<const N: usize>(&mut self, ids: [u8; N]) -> AttemptId {
        self.decide(self.eviction(ids, Vouch::Operator));
        self.config.attempt().expect("it has begun").id
    }

    /// Returns the report of a member about the attempt under way.
    fn have<const N: usize>(&self, id: u8, seqs: [(u8, u64); N]) -> Command {
        let attempt = self.config.attempt().expect("one is under way").id;
        let generation = self.config.slots().generation(dc(id)).unwrap_or_default();
        Command::Have { attempt, by: Voter::Member { dc: dc(id), generation }, vector: vector(seqs) }
    }

    /// Evicts a member as operator; nobody has any entry.
    fn evict(&mut self, id: u8) -> Applied {
        let attempt = self.begin([id]);
        for other in self.config.slots().member_set().difference(set([id])).iter() {
            self.decide(self.have(other.get(), []));
        }
        self.decide(Command::End { attempt })
    }

    fn leaving(&self, id: u8) -> Command {
        Command::Leaving {
            dc: dc(id),
            generation: self.config.slots().generation(dc(id)).unwrap_or_default(),
        }
    }

    fn cancel_leave(&self, id: u8) -> Command {
        Command::CancelLeave {
            dc: dc(id),
            generation: self.config.slots().generation(dc(id)).unwrap_or_default(),
        }
    }

    fn left(&self, id: u8, count: u64) -> Command {
        let generation = self.config.slots().generation(dc(id)).unwrap_or_default();
        Command::Left { dc: dc(id), generation, cut: generation.base() + count }
    }

    fn vote(&self, id: u8, votes: bool) -> Command {
        let generation = self.config.slots().generation(dc(id)).unwrap_or_default();
        Command::Vote { dc: dc(id), generation, votes }
    }

    fn members_at(&self, epoch: Epoch) -> Vec<(u8, u16)> {
        self.config.slots().members_at(epoch).map(|(dc, generation)| (dc.get(), generation.0)).collect()
    }
}

#[test]
fn only_founding_is_possible_before_there_are_members() {
    let mut list = List { config: Config::default(), decided: Vec::new() };
    let command = Command::Settled { dc: dc(0), generation: Generation(0) };
    assert_eq!(list.refused(command), Refused::NotFounded);
    assert!(list.config.slots().member_set().is_empty() && list.config.voters().voters.is_empty());
    list.decide(Command::Found(founding(3)));
    assert_eq!(list.config.slots().member_set(), set([0, 1, 2]));
    assert_eq!(list.refused(Command::Found(founding(3))), Refused::AlreadyFounded);
}

#[test]
fn founders_are_the_members_of_epoch_0() {
    let list = List::of(9);
    let config = &list.config;
    assert_eq!((config.index(), config.revision(), config.epoch()), (Index(1), Revision(1), Epoch(0)));
    assert_eq!((config.lineage(), config.version(), config.fence()), (Lineage(0), 3, 16));
    assert_eq!(list.members_at(Epoch(0)).len(), 9);
    assert_eq!(config.voters().members(), set([0, 1, 2, 3, 4, 5, 6]));
    assert!(
        config
            .slots()
            .members()
            .all(|(dc, _)| config.slots().is_settled(dc) && config.slots().sponsor(dc) == Some(dc))
    );
    assert_eq!(
        (config.slots().generation(dc(8)), config.slots().is_over(dc(8), Generation(0))),
        (Some(Generation(0)), false)
    );
}

#[test]
fn founders_differ_and_vote() {
    let refused = |change: fn(&mut Founding)| {
        let mut founding = founding(3);
        change(&mut founding);
        let mut list = List { config: Config::default(), decided: Vec::new() };
        list.refused(Command::Found(founding)).to_string()
    };
    assert!(refused(|it| it.founders.clear()).contains("not by 0 of which 0 do"));
    assert!(refused(|it| it.founders.iter_mut().for_each(|it| it.votes = false)).contains("of which 0 do"));
    let eight = |it: &mut Founding| {
        it.founders = founding(8).founders;
        it.founders[7].votes = true;
    };
    assert!(refused(eight).contains("not by 8 of which 8 do"));
    assert!(refused(|it| it.founders[1].dc = dc(0)).contains("founder dc0 is named twice"));
    assert!(
        refused(|it| it.founders[1].server = ServerId([0; 16])).contains("founder dc1 has the server id")
    );
    assert!(refused(|it| it.founders[2].name = name("founder-0")).contains("founder dc2 has the name"));
    assert!(refused(|it| it.policy.max_lease_ttl_ms = 0).contains("max_lease_ttl is 0 ms"));
    assert!(refused(|it| it.options.heartbeat_ms = 1).contains("heartbeat_interval is 1 ms"));
}

#[test]
fn a_command_that_was_checked_before_a_change_has_no_effect() {
    let mut list = List::of(3);
    let admission = list.admission(3);
    let checked = list.config.revision();
    list.admit(4);
    let proposal = Proposal { checked, command: Command::Admit(admission) };
    let refused = list.config.apply(Index(3), &proposal).expect_err("it was checked before the other one");
    assert_eq!(refused, Refused::Changed { checked: Revision(1), now: Revision(2) });
    assert_eq!((list.config.index(), list.config.revision()), (Index(3), Revision(2)));
}

#[test]
#[should_panic = "in their order, without gaps"]
fn a_decision_cannot_be_left_out() {
    let mut list = List::of(1);
    let proposal = Proposal { checked: Revision(1), command: Command::Version { version: 9 } };
    let _ = list.config.apply(Index(3), &proposal);
}
