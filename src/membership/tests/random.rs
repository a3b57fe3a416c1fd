//! Random lists of decisions.

use proptest::prelude::*;

use super::*;
use crate::base::time::Timestamp;
use crate::base::wire::{decode, encode};

/// Numbers from which a command is made that has a chance of being possible.
type Seed = (u8, u8, u8, u64);

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    proptest::collection::vec((0_u8..25, 0_u8..6, 0_u8..6, 0_u64..40), 1..120)
}

/// Returns the mark of a voter about a member, by default the next one.
fn mark(list: &List, by: u8, of: u8, number: u64) -> Mark {
    let voters = &list.config.voters().voters;
    let by = voters.iter().nth(usize::from(by) % voters.len()).copied().expect("somebody votes");
    let last = list.config.silence(by, dc(of)).map_or(0, |mark| mark.number);
    let of_generation = list.config.slots().generation(dc(of)).unwrap_or_default();
    Mark { by, of: dc(of), of_generation, number: if number < 36 { last + 1 } else { number } }
}

/// Returns the eviction of one or two members, with their joiners.
fn eviction(list: &List, a: u8, b: u8, number: u64) -> Command {
    let two = if number.is_multiple_of(4) { set([a, b]) } else { set([a]) };
    let members = list.config.slots().with_joiners(two).iter().map(|dc| Evictee {
        dc,
        generation: list.config.slots().generation(dc).unwrap_or_default(),
        last_heard: Timestamp::from_raw(number),
    });
    let vouch = [Vouch::Operator, Vouch::Replacement, Vouch::Silence][usize::from(a + b) % 3];
    let recut = list.config.last_end().map(|last| last.epoch).filter(|_| number.is_multiple_of(3));
    Command::Begin(Eviction { members: members.collect(), vouch, recut })
}

/// Returns a report of a member, or of a voter, about the attempt under way.
fn report(list: &List, a: u8, b: u8, number: u64) -> Command {
    let attempt = list.config.attempt().map(|it| it.id).unwrap_or_default();
    let generation = |id: u8| list.config.slots().generation(dc(id)).unwrap_or_default();
    let witness = list.config.witnesses().iter().map(|(id, _)| Voter::Witness(id)).nth(usize::from(b));
    let by = Voter::Member { dc: dc(a), generation: generation(a) };
    let by = if number.is_multiple_of(4) { witness.unwrap_or(by) } else { by };
    let members = list.config.slots().members().map(|(dc, member)| (dc, member.generation.base() + number));
    Command::Have { attempt, by, vector: members.collect() }
}

fn policy(a: u8, b: u8, number: u64) -> Policy {
    let joins = [JoinPolicy::Auto, JoinPolicy::Operator];
    Policy {
        evict: [EvictPolicy::Auto, EvictPolicy::Auto, EvictPolicy::Operator, EvictPolicy::Wait]
            [usize::from(a) % 4],
        join: joins[usize::from(b / 5)],
        rejoin: joins[usize::from(b / 4)],
        evict_after_ms: 25_000 + 1_000 * number as u32,
        ..Policy::default()
    }
}

/// Returns the command of these numbers. `salt` makes names and servers new.
fn command(list: &List, (kind, a, b, number): Seed, salt: u8) -> Command {
    let generation = list.config.slots().generation(dc(a)).unwrap_or_default();
    let attempt = list.config.attempt().map(|it| it.id).unwrap_or_default();
    let policy_epoch = list.config.policy_epoch();
    match kind {
        0 => Command::Found(founding(a + 1)),
        1 => Command::Invite { name: name(&format!("joiner-{a}")), sponsor: (number < 9).then(|| dc(b)) },
        2 => Command::CancelInvitation { name: name(&format!("joiner-{a}")) },
        3..=5 => Command::Admit(Admission {
            dc: dc(a),
            generation: list.config.slots().next_generation(dc(a)).unwrap_or_default(),
            server: ServerId([salt; 16]),
            name: name(&format!("joiner-{a}")),
            address: address("joiner"),
            sponsor: dc(b),
            votes: number % 2 == 0,
            credentials: Credentials { version: 3 + (number / 8) as u16, ..credentials() },
        }),
        6 => Command::Settled { dc: dc(a), generation },
        7 | 8 => eviction(list, a, b, number),
        9..=11 => report(list, a, b, number),
        12 => Command::End { attempt },
        13 if number < 10 => Command::Abort { attempt },
        13 | 14 => Command::Leaving { dc: dc(a), generation },
        15 => Command::Left { dc: dc(a), generation, cut: generation.base() + number },
        16 | 17 => Command::Silent { mark: mark(list, b, a, number), policy: policy_epoch },
        18 => Command::Heard { mark: mark(list, b, a, number) },
        19 if number < 30 => Command::SetPolicy(policy(a, b, number)),
        19 => Command::Version { version: list.config.version() + u16::from(a / 5) },
        20 if number < 20 => {
            let (dc, server) = (dc(salt % 64), ServerId([salt; 16]));
            Command::AddWitness(NewWitness { dc, server, ..witness(a) })
        }
        20 => {
            let id = list.config.witnesses().iter().map(|(id, _)| id).nth(usize::from(a)).unwrap_or_default();
            Command::RemoveWitness { id }
        }
        21 => Command::Vote { dc: dc(a), generation, votes: number % 2 == 0 },
        22 if number < 30 => Command::SetRule {
            prefix: Prefix::new(&b"abcdef"[..1 + usize::from(b)]).expect("a prefix"),
            rule: PrefixRule { home: Some(dc(a)), operator_evicts: number % 2 == 0 },
        },
        22 => {
            Command::RemoveRule { prefix: Prefix::new(&b"abcdef"[..1 + usize::from(b)]).expect("a prefix") }
        }
        24 => Command::CancelLeave { dc: dc(a), generation },
        _ if number < 10 => Command::ConfirmDead { dc: dc(a), generation },
        _ if number < 20 => {
            Command::SetOptions(AgreedOptions { heartbeat_ms: 20, ..AgreedOptions::default() })
        }
        _ => {
            let survivors = set([a, b]).iter().map(|dc| (dc, vector([(a, number)])));
            let lineage = Lineage(list.config.lineage().0 + 1);
            Command::Recover(Recovery { lineage, survivors: survivors.collect() })
        }
    }
}

/// Decides the commands, and checks each step. Returns the list with the number of effects per kind.
fn run(seeds: Vec<Seed>) -> (List, [u32; 25]) {
    let mut list = List::of(1 + seeds[0].1);
    let mut effects = [0; 25];
    let mut epochs = vec![(Epoch(0), list.members_at(Epoch(0)))];
    for (salt, seed) in (10..).zip(seeds) {
        let command = command(&list, seed, salt);
        let before = list.config.clone();
        match list.try_decide(command) {
            Ok(applied) => {
                effects[usize::from(seed.0)] += 1;
                step_is_sound(&before, &list, &applied);
                epochs.extend(applied.epoch.map(|epoch| (epoch, list.members_at(epoch))));
            }
            Err(refused) => {
                let mut expected = before;
                expected.numbers.index = list.config.index();
                assert_eq!(list.config, expected, "{refused}");
                assert!(refused.to_string().len() > 10);
            }
        }
    }
    for (epoch, members) in epochs {
        assert_eq!(list.members_at(epoch), members, "the members of {epoch:?} are remembered");
    }
    (list, effects)
}

/// Checks what holds between any two configs in a row. The invariants of each are checked by `apply`.
fn step_is_sound(before: &Config, list: &List, applied: &Applied) {
    let config = &list.config;
    assert!(config.fence() >= before.fence() && config.epoch() >= before.epoch());
    assert_eq!(applied.epoch.is_some(), config.epoch() != before.epoch());
    let (old, new) = (&before.voters().voters, &config.voters().voters);
    let changes = old.symmetric_difference(new).count();
    let ended = applied.cuts.iter().any(|cut| before.slots().member(cut.dc).is_some());
    assert!(changes <= 1 || ended && new.is_subset(old) || config.lineage() != before.lineage());
    assert!(changes == 0 || applied.epoch.is_some(), "a change of the voters is an epoch");
    for (dc, slot) in before.slots().iter() {
        for past in &slot.past {
            let now = config.slots().cut(dc, past.generation).unwrap_or(past.cut);
            let anew = applied.cuts.iter().any(|cut| (cut.dc, cut.generation) == (dc, past.generation));
            assert!(now == past.cut || anew && now < past.cut, "a cut stays, or is set anew and lower");
        }
    }
    for cut in &applied.cuts {
        assert!(config.slots().is_over(cut.dc, cut.generation));
        assert_eq!(config.slots().cut(cut.dc, cut.generation), Some(cut.seq));
    }
}

proptest! {
    #[test]
    fn random_lists_keep_the_invariants_and_are_the_same_everywhere(seeds in seeds(), at in 0_usize..120) {
        let (mut list, _) = run(seeds);
        // Another replica: takes a config from a peer in the middle, as bytes, and the rest one by one.
        let mut replica = Config::default();
        for (number, proposal) in list.decided.iter().enumerate() {
            if number == at {
                let bytes = encode("config", &replica).expect("it fits a frame");
                replica = decode("config", &bytes).expect("its invariants hold");
            }
            let bytes = encode("proposal", proposal).expect("it fits a frame");
            let proposal: Proposal = decode("proposal", &bytes).expect("its own bytes");
            let _ = replica.apply(replica.index().next(), &proposal);
        }
        prop_assert_eq!(&replica, &list.config);
        // Proposals that come a second time, however late, change nothing.
        for proposal in std::mem::take(&mut list.decided) {
            let before = list.config.clone();
            let again = list.config.apply(before.index().next(), &proposal);
            prop_assert!(again.is_err() || proposal_was_refused_before(&proposal, &replica), "{:?}", proposal);
            if again.is_ok() {
                let index = list.config.index();
                list.config = before;
                list.config.numbers.index = index;
            }
        }
    }
}

/// A fact that was refused because it came too early, as silence before the policy `auto`, may come true
/// later, and so may an eviction that rests on silence.
fn proposal_was_refused_before(proposal: &Proposal, replica: &Config) -> bool {
    match &proposal.command {
        Command::Silent { mark, .. } | Command::Heard { mark } => {
            replica.silence(mark.by, mark.of).is_none_or(|last| last.number < mark.number)
        }
        // Silence is a fact: it changes no revision.
        Command::Begin(eviction) => eviction.vouch == Vouch::Silence,
        Command::Settled { dc, .. } => !replica.slots().is_settled(*dc),
        Command::Have { attempt, by, .. } => {
            replica.attempt().is_some_and(|it| it.id == *attempt && !it.promised.contains(by))
        }
        Command::End { attempt } | Command::Abort { attempt } => {
            replica.attempt().is_some_and(|it| it.id == *attempt)
        }
        _ => false,
    }
}

#[test]
fn random_lists_reach_every_kind_of_command() {
    let mut effects = [0_u32; 25];
    let mut rng = crate::base::rng::Rng::new(1, 0);
    for _ in 0..400 {
        let mut seeds = Vec::new();
        for _ in 0..120 {
            let mut below = |bound: u64| rng.below(bound);
            seeds.push((below(25) as u8, below(6) as u8, below(6) as u8, below(40)));
        }
        run(seeds).1.iter().zip(&mut effects).for_each(|(once, all)| *all += once);
    }
    // Founding is refused, as the cluster is founded.
    let never: Vec<usize> = (1..25).filter(|kind| effects[*kind] == 0).collect();
    assert!(effects[0] == 0 && never.is_empty(), "no effect of {never:?}: {effects:?}");
}
