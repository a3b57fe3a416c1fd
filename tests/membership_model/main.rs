//! A seeded model of membership: how datacenters join, leave, are evicted and come back, and who owns the
//! parts of locks meanwhile. The protocol stands here before it stands in the core.
//!
//! `tests/model` checks all paths of a small world with fixed members. The world of this model is too large
//! for that (five slots, up to five founders, three locks, entries, states, decisions), so it draws random
//! schedules: [`schedule`] lets sites, links, disks, clients and the operator do what they like for 2 000
//! operations, then ends all faults and demands that everything comes to its end. Every rule is broken on
//! purpose, too ([`bugs`]), and must then be caught within stated seeds.
//!
//! **Terms.** A *slot* is the place of a member; each server that has it is a *generation*, and numbers of
//! entries carry the generation. The *decisions* of a control group are one list; the number of one that
//! changes the members is an *epoch*. A site has *entered* an epoch when its log says `Enter`. A new member's
//! part of every lock goes with the part of its *sponsor*, until the sponsor has `Split` it off, all members of
//! that time have said `Done`, and it is `Settled`. The last entry of a generation that counts is its *cut*.
//!
//! **Modelled**: journals that lose their unsynced tail, disks that are lost, links that break, messages that
//! come late, twice, out of order, from anybody, or never; the list of decisions with proposals that are
//! decided late, twice or never, or are void because the epoch changed; states for new and for lagging
//! members; transfers by rule with versions and `Home`; holders, shared and exclusive, over restarts; eviction
//! of dead members and of living ones that were cut off; attempts that are given up, and attempts over an end
//! that not all could enter.
//!
//! **Left open**: which parts an owner gives to whom, so every policy and every order of requests is covered;
//! when a site takes a step that it may take. Any site may propose, and any proposal may be decided: no
//! majority is asked, which is more than the control group can do.
//! **Not modelled**: time, so neither the policy `auto` with its member leases, nor the rule that a restarted
//! datacenter asks first: holders at an evicted member are excused, as the operator vouches for them. Fencing
//! tokens, truncation, requests and parking, witnesses, votes, data.
//!
//! **Rules that the model added** to the first design, each with the bug that breaks it:
//!
//! | bug | trace | rule |
//! |---|---|---|
//! | `OldWordsCount` | a sponsor's `Split` for a generation that was evicted meanwhile reached a site that had entered the next admission to the slot, and split off a part whose new sponsor had not | `Split` and `Done` mean the generation at the entry's epoch, as transfers do; they are ignored if it is over |
//! | `ServerAdmittedTwice` | a joiner was evicted with its sponsor before it had a state, and admitted again under the same server id; neither knew. It took a state of the evicted sponsor, later saw that generation over, and emptied its disk: the admitted server did not exist any more | an id is admitted once; a server that sees its admission ended makes a new one even if it never took a state |
//! | `StatelessJoinerStays` | a member lost its disk before it entered an admission. The joiner gets no state without that member's `Enter`, and the member cannot be evicted before the joiner has entered | an attempt takes in every joiner that has not entered |
//! | `OldCutNotFrozen` | an attempt over an end that not all have entered makes its cut anew, from reports; a survivor took entries up to the old cut after its report | a promise covers the members of the earlier end, too; both ends are entered in one step |
//! | `NoStateOfLeaver` | a leaving member had entries of a lost one within a state only, and had left in an earlier epoch; a state of an earlier epoch was refused | such a state is taken, with the own entries on top, among them the own `Enter` |
//! | `HomeBeforeSplit` | a part was sent home to a joiner that had no state: nobody could get it back until it had one | before the split the part goes with the sponsor's, by name; only afterwards home |
//!
//! Also: no other change of members is decided while an attempt is under way. `HomeBeforeSplit` has one
//! exception that remains: a part that was given to a member which had left falls home all the same.
//!
//! **Rules without which nothing failed**: that an end is entered only after the last `Enter` of all who
//! remain (`EntersBeforeOthersDid`), and that a leaving member has seen that of all (`LeavesUnseen`). Both follow from `Done`:
//! its maker has applied every member's `Enter` of the admission, so whoever has all `Done` of a joiner has
//! all that was done without knowing it.

mod bugs;
mod checks;
mod decisions;
mod locks;
mod owners;
mod parts;
mod rng;
mod schedule;
mod slots;
mod state;
mod state_transfer;
mod steps;
mod stories;
mod world;

use std::ops::Range;

use bugs::Bug;
use checks::Kind;
use schedule::{run, trace};
use world::Counts;

/// Lines of the trace that a failure shows.
const TRACE_LINES: usize = 60;

/// Runs seeds without a bug, and returns how much happened in them.
fn pass(seeds: Range<u64>) -> Counts {
    let mut sum = Counts::default();
    for seed in seeds {
        match run(seed, None) {
            Ok(counts) => sum.add(&counts),
            Err(broken) => panic!(
                "seed {seed}: {:?}: {}\n{}\nagain: GEOLOCK_MODEL_SEEDS={seed}..{} cargo test --test \
                 membership_model -- --ignored",
                broken.kind,
                broken.text,
                trace(seed, None, TRACE_LINES),
                seed + 1
            ),
        }
    }
    sum
}

#[test]
fn members_come_and_go_and_nothing_breaks() {
    let counts = pass(0..1_000);
    println!("{counts:?}");
    let least = [
        counts.joins,
        counts.returns,
        counts.leaves,
        counts.evictions,
        counts.evicted_living,
        counts.evicted_two,
        counts.aborts,
        counts.crashes,
        counts.lost_tails,
        counts.lost_disks,
        counts.states,
        counts.merges,
        counts.transfers,
        counts.grants,
        counts.orphans,
        counts.void,
    ];
    assert!(least.iter().all(|count| *count > 100), "too little happened: {counts:?}");
    assert!(counts.lowered > 0, "no attempt began over an end that not all had entered");
}

/// `GEOLOCK_MODEL_SEEDS=1000..60000 cargo test --release --test membership_model -- --ignored --nocapture`
#[test]
#[ignore = "minutes: for a change of the protocol, with --release"]
fn more_seeds() {
    let seeds = std::env::var("GEOLOCK_MODEL_SEEDS").unwrap_or_else(|_| "1000..60000".to_owned());
    let (from, to) = seeds.split_once("..").expect("GEOLOCK_MODEL_SEEDS is FROM..TO");
    let number = |text: &str| text.parse::<u64>().expect("GEOLOCK_MODEL_SEEDS is FROM..TO, two numbers");
    println!("{seeds}: {:?}", pass(number(from)..number(to)));
}

/// `cargo test --release --test membership_model -- --ignored --nocapture how_often`
#[test]
#[ignore = "minutes: how many of 1 500 seeds catch each bug"]
fn how_often_bugs_are_caught() {
    for bug in bugs::ALL {
        let mut kinds = std::collections::BTreeMap::<Kind, Vec<u64>>::new();
        for seed in 0..1_500 {
            if let Err(broken) = run(seed, Some(bug)) {
                kinds.entry(broken.kind).or_default().push(seed);
            }
        }
        let shown: Vec<_> =
            kinds.iter().map(|(kind, seeds)| (kind, seeds.len(), &seeds[..seeds.len().min(4)])).collect();
        println!("{bug:?}: {shown:?}");
    }
}
#[test]
fn zz_trace() {
    let seed: u64 = std::env::var("TRACE").unwrap().parse().unwrap();
    std::fs::write("/tmp/w/memmodel/trace.txt", trace(seed, None, 100_000)).unwrap();
    println!("{:?}", run(seed, None));
}
