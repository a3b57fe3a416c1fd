//! The promises of the selector, over many seeds.

use super::super::options::Backoff;
use super::plan::{MS, Plan, calm, trouble};
use super::world::{World, ends};

fn run(seed: u64, plan: Plan) -> World {
    let mut world = World::new(seed, plan);
    world.run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    world
}

#[test]
fn without_trouble_all_that_can_be_paid_is_paid() {
    for seed in 0..100 {
        let world = run(seed, Plan { tokens: vec![100, 5, 5], all_pay: true, ..calm() });
        assert_eq!(world.paid, 24, "seed {seed}");
    }
}

#[test]
fn payments_chain_through_one_token() {
    for seed in 0..100 {
        let world = run(seed, Plan { tokens: vec![24], most: 1, all_pay: true, ..calm() });
        assert_eq!(world.paid, 24, "seed {seed}");
    }
}

#[test]
fn of_three_that_want_two_tokens_one_has_too_little() {
    for seed in 0..300 {
        let plan = Plan { payments: 3, replicas: 3, tokens: vec![1, 1], most: 1, ..calm() };
        let world = run(seed, plan);
        assert_eq!((ends(&world)["picked"], ends(&world)["insufficient"]), (2, 1), "seed {seed}");
    }
}

#[test]
fn trouble_breaks_no_promise() {
    let (mut losses, mut deaths, mut marked, mut recovered, mut paid) = (0, 0, 0, 0, 0);
    for seed in 0..300 {
        let world = run(seed, trouble());
        (losses, deaths, marked) = (losses + world.losses, deaths + world.deaths, marked + world.marked);
        (recovered, paid) = (recovered + world.recovered, paid + world.paid);
    }
    assert!(losses > 250 && deaths > 100 && marked > 20, "{losses} {deaths} {marked}");
    assert!(recovered > 25 && paid > 1_500, "{recovered} {paid}");
}

#[test]
fn what_others_add_without_a_word_is_found() {
    for seed in 0..200 {
        run(seed, Plan { tokens: vec![3, 3], most: 9, inserted: 12, ..calm() });
    }
}

#[test]
fn who_backs_off_breaks_no_promise_either() {
    let backoff = Backoff::Random { max: 500 * MS, retries: 3 };
    for seed in 0..100 {
        run(seed, Plan { backoff, ..calm() });
        run(seed, Plan { backoff, ..trouble() });
    }
}
