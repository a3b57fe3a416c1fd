//! The promises of the loop, over many seeds.

use std::time::Duration;

use super::super::events::{LastSeen, Verdict};
use super::super::options::Takeover;
use super::plan::{MS, Plan, lost, ran};
use super::world::World;

pub fn calm() -> Plan {
    Plan { instances: 20, begin_within: 300 * MS, delay: 100 * MS, job: 400 * MS, ..Plan::default() }
}

pub fn trouble() -> Plan {
    Plan { fails: 30, dies: 20, loses: 20, stops: 20, dies_early: 10, dies_late: 10, ..calm() }
}

#[test]
fn of_many_that_start_at_once_one_runs() {
    for seed in 0..300 {
        let mut world = World::new(seed, calm());
        let verdicts = world.run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        assert_eq!((world.runs, world.started, ran(&verdicts)), (1, 1, 1), "seed {seed}: {verdicts:?}");
        let others = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::NotNeeded { .. })).count();
        assert_eq!(others, 19, "seed {seed}: {verdicts:?}");
    }
}

#[test]
fn trouble_breaks_no_promise() {
    let (mut failed, mut takeovers, mut losses) = (0, 0, 0);
    for seed in 0..2_000 {
        for takeover in [Takeover::Lease, Takeover::Watermark] {
            let mut world = World::new(seed, Plan { takeover, ..trouble() });
            let verdicts = world.run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
            (failed, losses) = (failed + world.failed, losses + lost(&verdicts));
            takeovers += world.started - world.runs.min(world.started) - world.failed.min(world.started);
        }
    }
    assert!(failed > 500 && takeovers > 500 && losses > 500, "{failed} {takeovers} {losses}");
}

#[test]
fn a_done_of_another_is_not_believed() {
    for seed in 0..300 {
        let mut world = World::new(seed, Plan { in_vain: 2, ..calm() });
        let verdicts = world.run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        // The runners believe themselves; all others went on until it was done, or gave up.
        assert!(world.runs >= 1, "seed {seed}");
        let told = |verdict: &&Verdict| matches!(verdict, Verdict::NotNeeded { .. });
        assert!(world.done_at.is_some() || verdicts.iter().all(|verdict| !told(&verdict)), "seed {seed}");
    }
}

#[test]
fn a_section_that_always_fails_is_given_up_with_its_error() {
    let mut world = World::new(7, Plan { instances: 3, fails: 100, ..calm() });
    let verdicts = world.run().expect("no promise is broken");
    assert_eq!(verdicts.len(), 3);
    for verdict in verdicts {
        let Verdict::GaveUp { attempts: 50, last: LastSeen::Run(record) } = verdict else {
            panic!("{verdict:?}")
        };
        assert!(record.attempts > 5, "{record:?}");
    }
    assert!(world.failed > 10, "the back-off grows to a minute, and the loop is bounded: {}", world.failed);
}

#[test]
fn all_are_back_soon_after_it_is_done() {
    for seed in 0..100 {
        let plan = Plan { instances: 100, ..calm() };
        let delay = plan.delay;
        let mut world = World::new(seed, plan);
        world.run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        let done = world.done_at.expect("it ran");
        // The write of `Done`, its news, the question if it is needed, and its answer.
        assert!(world.last_finish() <= done + 4 * delay + Duration::from_millis(1), "seed {seed}");
    }
}
