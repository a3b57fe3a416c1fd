//! The bytes of commands and configs: they are in logs, snapshots and messages, and stay readable for ever.

use std::fmt::{Debug, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::base::time::Timestamp;
use crate::base::wire::{decode, encode};

/// Asserts that the value encodes to these bytes, and that they decode to the value.
fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, hex: &str) {
    let bytes = encode("golden", value).expect("it fits a frame");
    let mut found = String::new();
    bytes.iter().for_each(|byte| write!(found, "{byte:02x}").expect("writing to a string"));
    assert_eq!(found, hex, "the bytes of {value:?} changed: old logs cannot be read any more");
    assert_eq!(decode::<T>("golden", &bytes).expect("its own bytes"), *value);
    for end in 0..bytes.len() {
        assert!(decode::<T>("golden", &bytes[..end]).is_err(), "a piece of a value is no value");
    }
}

/// One command of each kind, in the order of the variants.
fn commands() -> Vec<Command> {
    let generation = Generation(300);
    let attempt = AttemptId(7);
    let by = Voter::Witness(WitnessId(5));
    let mark = Mark { by: founder(1), of: dc(2), of_generation: generation, number: 9 };
    let server = ServerId([0xab; 16]);
    let credentials = Credentials { lineage: Some(Lineage(1)), ..credentials() };
    let member = Evictee { dc: dc(2), generation, last_heard: Timestamp::from_raw(4) };
    let prefix = Prefix::new(b"a/").expect("a prefix");
    let founders = vec![Founder { dc: dc(1), server, name: name("a"), address: address("h"), votes: true }];
    let (policy, options) = (auto(), AgreedOptions::default());
    vec![
        Command::Found(Founding { cluster: CLUSTER, founders, policy, options, version: 3 }),
        Command::Invite { name: name("a"), sponsor: Some(dc(1)) },
        Command::CancelInvitation { name: name("a") },
        Command::Admit(Admission {
            dc: dc(2),
            generation,
            server,
            name: name("a"),
            address: address("h"),
            sponsor: dc(1),
            votes: true,
            credentials,
        }),
        Command::Settled { dc: dc(2), generation },
        Command::Begin(Eviction { members: vec![member], vouch: Vouch::Silence, recut: Some(Epoch(6)) }),
        Command::Have { attempt, by, vector: vector([(1, 3)]) },
        Command::End { attempt },
        Command::Abort { attempt },
        Command::Leaving { dc: dc(2), generation },
        Command::Left { dc: dc(2), generation, cut: generation.base() + 1 },
        Command::Silent { mark, policy: Epoch(6) },
        Command::Heard { mark },
        Command::SetPolicy(policy),
        Command::SetOptions(options),
        Command::Version { version: 4 },
        Command::AddWitness(NewWitness {
            dc: dc(5),
            server,
            name: name("a"),
            address: address("h"),
            credentials,
        }),
        Command::RemoveWitness { id: WitnessId(5) },
        Command::Vote { dc: dc(2), generation, votes: true },
        Command::SetRule {
            prefix: prefix.clone(),
            rule: PrefixRule { home: Some(dc(1)), operator_evicts: true },
        },
        Command::RemoveRule { prefix },
        Command::ConfirmDead { dc: dc(2), generation },
        Command::Recover(Recovery { lineage: Lineage(1), survivors: vec![(dc(1), vector([(1, 3)]))] }),
        Command::CancelLeave { dc: dc(2), generation },
    ]
}

#[test]
fn bytes_of_commands() {
    let commands = commands();
    assert_eq!(commands.len(), GOLDEN_COMMANDS.len());
    for (command, hex) in commands.into_iter().zip(GOLDEN_COMMANDS) {
        golden(&Proposal { checked: Revision(300), command }, hex);
    }
}

#[test]
fn bytes_of_enums_inside_commands() {
    golden(&[Vouch::Operator, Vouch::Silence, Vouch::Replacement], "000102");
    golden(&[EvictPolicy::Wait, EvictPolicy::Operator, EvictPolicy::Auto], "000102");
    golden(&[JoinPolicy::Operator, JoinPolicy::Auto], "0001");
    golden(&[founder(1), Voter::Witness(WitnessId(5))], "0001000105");
}

/// A config in which every field has content.
fn config() -> Config {
    let mut list = List::auto(4);
    list.decide(Command::AddWitness(witness(1)));
    let rule = PrefixRule { home: Some(dc(2)), operator_evicts: true };
    list.decide(Command::SetRule { prefix: Prefix::new(b"a/").expect("a prefix"), rule });
    list.evict(3);
    list.admit(5);
    list.decide(list.leaving(1));
    list.decide(Command::Invite { name: name("next"), sponsor: Some(dc(0)) });
    let mark = Mark { by: founder(0), of: dc(2), of_generation: Generation(0), number: 3 };
    list.decide(Command::Silent { mark, policy: Epoch(2) });
    list.begin([2]);
    list.decide(list.have(0, [(2, 7)]));
    list.config
}

#[test]
fn bytes_of_a_config() {
    golden(&config(), GOLDEN_CONFIG);
    let mut list = List::of(4);
    list.evict(3);
    let end = list.config.last_end().expect("an end").clone();
    golden(&end, GOLDEN_LAST_END);
}

#[test]
fn a_config_that_breaks_an_invariant_is_not_decoded() {
    let error = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        let bytes = encode("config", &config).expect("it fits a frame");
        decode::<Config>("config", &bytes).expect_err("it breaks an invariant").to_string()
    };
    assert!(error(|it| it.numbers.epoch = Epoch(99)).contains("numbers are in order"));
    assert!(error(|it| it.cluster = None).contains("before the cluster is founded"));
    assert!(error(|it| it.numbers.index = Index(u64::MAX)).contains("numbers are in order"));
    assert!(error(|it| it.lineage = Lineage(u32::MAX)).contains("evictions have a limit"));
    assert!(error(|it| it.evictions = 1_008).contains("evictions have a limit"));
    assert!(error(|it| it.policy.evict_after_ms = 0).contains("policy and options are within bounds"));
    assert!(error(|it| it.options.heartbeat_ms = 0).contains("policy and options are within bounds"));
    assert!(error(|it| it.voters.sets.clear()).contains("somebody votes and stays"));
    assert!(error(|it| it.voters.witnesses.clear()).contains("voters are settled members"));
    let sponsor = |it: &mut Config| {
        let slot = it.slots.member_mut(dc(0));
        slot.expect("a founder").sponsor = dc(5);
    };
    assert!(error(sponsor).contains("a settled member is its own sponsor"));
    let cut = |it: &mut Config| it.slots.get_mut(dc(3)).expect("it was a member").past[0].cut = u64::MAX;
    assert!(error(cut).contains("a cut is of its generation"));
    let overlap = |it: &mut Config| {
        it.rules.set(Prefix::new(b"a/b").expect("a prefix"), PrefixRule::default());
    };
    assert!(error(overlap).contains("no rules overlap"));
    let mark = |it: &mut Config| {
        it.marks.insert((founder(9), dc(0)), Silence { number: 1, silent: true });
    };
    assert!(error(mark).contains("marks are by and about current generations"));
    let report = |it: &mut Config| {
        let attempt = it.attempt.as_mut().expect("one is under way");
        attempt.reports.insert(dc(2), vector([]));
    };
    assert!(error(report).contains("reports are of members that remain"));
}

#[test]
fn bytes_of_recoveries() {
    let survivors = set([0, 1]);
    let ballot = Ballot { round: 300, by: dc(1) };
    let plan = RecoveryPlan { lineage: Lineage(1), survivors, lost: set([2]) };
    golden(&RecoveryPromise { ballot, plan: Some(plan) }, "fb2c010101010304");
    golden(&RecoveryPromise { ballot, plan: None }, "fb2c010100");
    let stamp = Some(crate::base::time::Timestamp::from_raw(7));
    let lost = LostMember { dc: dc(2), generation: Generation(1), name: name("a"), last_entry: 300, stamp };
    let (decision, lineage) = (Index(9), Lineage(1));
    golden(
        &LossReport { decision, lineage, survivors, lost: vec![lost], locks: 5 },
        "0901030102010161fb2c01010705",
    );
}

const GOLDEN_COMMANDS: [&str; 24] = [
    "fb2c0100070101abababababababababababababababab016106683a3730303001020101fb1027fb3075fb983afbf401\
     fbb80bfb881303",
    "fb2c010101610101",
    "fb2c01020161",
    "fb2c010302fb2c01abababababababababababababababab016106683a37303030010107010103",
    "fb2c010402fb2c01",
    "fb2c01050102fb2c0104010106",
    "fb2c0106070105020003",
    "fb2c010707",
    "fb2c010807",
    "fb2c010902fb2c01",
    "fb2c010a02fb2c01fd0100000000002c01",
    "fb2c010b00010002fb2c010906",
    "fb2c010c00010002fb2c0109",
    "fb2c010d020101fb1027fb3075fb983a",
    "fb2c010efbf401fbb80bfb8813",
    "fb2c010f04",
    "fb2c011005abababababababababababababababab016106683a3730303007010103",
    "fb2c011105",
    "fb2c011202fb2c0101",
    "fb2c011302612f010101",
    "fb2c011402612f",
    "fb2c011502fb2c01",
    "fb2c0116010101020003",
    "fb2c011702fb2c01",
];
const GOLDEN_CONFIG: &str = "0107000f0e0b020301050001000000000000000000000000000000000009666f756e6465722\
     d300b686f73742d303a3730303001000001000101000101010101010101010101010101010109666f756e6465722d310\
     b686f73742d313a3730303002010001000201000202020202020202020202020202020209666f756e6465722d320b686\
     f73742d323a3730303001020001000300010003030303030303030303030303030303000900010501000000696969696\
     9696969696969696969086a6f696e65722d350d6a6f696e65722d353a3730303000000a0100010329c9c9c9c9c9c9c9c\
     9c9c9c9c9c9c9c9c9097769746e6573732d310c7769746e6573733a37303030000300040000000001000002000003000\
     30500000000010000020000030001030904000000000100000200010301046e6578740100020101fb1027fb3075fb983\
     afbf401fbb80bfb88130102612f01020101000000020301010e0102000100000100030000070100000000";
const GOLDEN_LAST_END: &str = "06010300";
