//! A model of how the parts of locks move between datacenters, checked state by state (`stateright`).
//!
//! The simulator runs the real code along some paths of an endless tree; this model checks all paths of a
//! small one. It is the place to try a change of the protocol, such as other members, before there is code
//! for it.
//!
//! **Modelled**: three datacenters, two locks with a part for each of them, which may have a home, one client
//! in each datacenter that wants one set of locks after the other. A step is: a client asks, is granted,
//! releases; an owner transfers parts to the request whose turn it is; a datacenter syncs its journal,
//! receives an entry, crashes and restarts with any prefix of the records that were not durable; after that a
//! client reclaims the locks it holds, or its lease has run out.
//!
//! **The network** is the set of all messages ever sent. Any of them may arrive at any datacenter at any
//! time: never (it was lost), late, out of order, repeatedly, and from any datacenter that had it (it was
//! passed on). A datacenter announces entries and vectors as soon as they are durable: earlier is a mutation,
//! and later is the same as a slow message. For the same reason a datacenter that will not crash any more is
//! durable at once: that reduces the number of states, not the observable behaviour.
//!
//! **Homes**: a lock may have one in its name, or get one by a rule about a prefix while it is used, and
//! another one after that, or none again. Each datacenter enters the rule in its own log, keeps what it owns
//! by default of a lock that is held there, and gives the rest; that is one entry here, or two if it has to
//! wait for a client of before its restart. Idle returns are not modelled, so what is kept stays until
//! somebody asks.
//!
//! **Left open**: when an owner transfers parts that are due (the hold policy), so all policies are covered.
//! **Not modelled**: parking and cuts as such (they only delay), state transfer, truncation, the wall clock
//! (a reading is the last one plus one), more than one client per datacenter; the simulator has all of them.
//!
//! **Relation to the code**:
//!
//! | here | there |
//! |---|---|
//! | `View::initial` | `src/crdt/default_owner.rs` |
//! | `View::registers`, `View::apply` of a transfer | `src/crdt/ownership.rs`, `src/lock_state/owners.rs` |
//! | `HomeRules`, `View::give` | `src/crdt/home_rules.rs` |
//! | `Protocol::may_enter`, `Protocol::given` | `src/replica/members/rehoming.rs` |
//! | `View::table` | `src/lock_state/queue.rs`, `RequestRow` |
//! | `Protocol::publish` | `Schedule::publish` (`src/lock_state/schedule/publish.rs`) |
//! | `Protocol::can_serve`, `is_earlier_wanted` | `serve_remote` (`src/lock_state/schedule/hand_over.rs`) |
//! | `Protocol::grant`, `has_fresh_parts` | `src/lock_state/lock_table.rs`, `src/replica/output_commit.rs` |
//! | `Protocol::takes` | `Replica::admit` (`src/replica/entries.rs`), `src/causal_log/inbox.rs` |
//! | `Protocol::receive` | `Replica::take_in` (`src/replica/entries.rs`) |
//! | `State::is_sent`, `Site::told` | `Log::next_batch`, `Log::note_announced` (`src/causal_log/log.rs`) |
//! | `Protocol::crash` | `src/replica/recover.rs`, `src/leases/table.rs` |
//! | `Protocol::reclaim` | `src/leases/table.rs`, `src/replica/lease_calls.rs` |
//!
//! The checker identifies states by 64 bits of their hash: with a million states, the chance that it confuses
//! two of them is about 1 in 30 million.

mod homes;
mod properties;
mod protocol;
mod state;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use properties::{
    EXCLUSION, NOBODY_STUCK, ONE_OWNER, RECLAIMED, SAME_VECTOR_SAME_STATE, TOKENS_GROW, TOLD_IS_KEPT,
};
use protocol::{Mutation, Protocol};
use state::{DCS, Homes, Mode, Rules, Wants};

const X: Option<Mode> = Some(Mode::Exclusive);
const S: Option<Mode> = Some(Mode::Shared);
const NOT: Option<Mode> = None;

/// No crash, or one crash of any datacenter.
const NO_CRASH: [u8; DCS] = [0; DCS];
const ONE_CRASH: [[u8; DCS]; 3] = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];

/// Both locks have plain names.
const NO_HOMES: Homes = [None, None];
/// The home of the first lock is a datacenter that wants nothing, or one that does; the second is plain.
const HOMES: [Homes; 2] = [[Some(2), None], [Some(0), None]];

/// No rule about the home of the first lock.
const NO_RULES: Rules = [None, None];
/// Its home becomes a datacenter that wants nothing, or one that wants the lock.
const RULES: [Rules; 2] = [[Some(Some(2)), None], [Some(Some(0)), None]];
/// Its home becomes dc2, and then dc1, or none again.
const TWO_RULES: [Rules; 2] = [[Some(Some(2)), Some(Some(1))], [Some(Some(2)), Some(None)]];

type Scenario = [Vec<Wants>; DCS];

fn one_writer() -> Scenario {
    [vec![[X, NOT]], vec![], vec![]]
}

fn a_reader() -> Scenario {
    [vec![], vec![[S, NOT]], vec![]]
}

/// Two datacenters want one lock; the third, which wants nothing, has to give its part.
fn two_writers() -> Scenario {
    [vec![[X, NOT]], vec![[X, NOT]], vec![]]
}

fn a_reader_and_a_writer() -> Scenario {
    [vec![[S, NOT]], vec![[X, NOT]], vec![]]
}

fn readers_and_a_writer() -> Scenario {
    [vec![[S, NOT]], vec![[X, NOT]], vec![[S, NOT]]]
}

/// All or nothing: a request that waits for one lock must not keep the other lock from the first request.
fn both_locks_twice() -> Scenario {
    [vec![[X, X]], vec![[X, X]], vec![]]
}

fn everybody_something_else() -> Scenario {
    [vec![[X, X]], vec![[X, NOT]], vec![[S, X]]]
}

/// Checks all states up to a depth, or all of them; the `seen` properties must be reachable.
fn check(name: &str, model: Protocol, depth: Option<usize>, seen: &[&str]) {
    let builder = model.checker().finish_when(HasDiscoveries::AnyFailures);
    let builder = depth.into_iter().fold(builder, |builder, depth| builder.target_max_depth(depth + 1));
    let checker = builder.spawn_bfs().join();
    // The checker counts the state before the first step.
    let (states, steps) = (checker.unique_state_count(), checker.max_depth() - 1);
    let extent = if depth.is_some() { "all within" } else { "all there are, within" };
    println!("{name}: {states} states, {extent} {steps} steps");
    for property in checker.model().properties() {
        let found = checker.discovery(property.name).map(|path| path.into_actions());
        match property.expectation {
            Expectation::Sometimes if seen.contains(&property.name) => {
                assert!(found.is_some(), "{name}: never: {}", property.name);
            }
            Expectation::Sometimes => {}
            _ => assert!(found.is_none(), "{name}: not so: {}\n{found:#?}", property.name),
        }
    }
}

fn protocol(scenarios: Vec<Scenario>, crashes: &[[u8; DCS]]) -> Protocol {
    Protocol { scenarios, crashes: crashes.to_vec(), homes: NO_HOMES, rules: NO_RULES, mutation: None }
}

#[test]
fn two_requests_for_one_lock_in_all_orders() {
    let model = protocol(vec![two_writers(), a_reader_and_a_writer()], &[NO_CRASH]);
    check("two requests, no crash", model, None, &[properties::ALL_SERVED]);
}

#[test]
fn a_homed_lock_in_all_orders_and_with_a_crash_of_anybody() {
    for homes in HOMES {
        let scenarios = vec![two_writers(), a_reader_and_a_writer()];
        let model = Protocol { homes, ..protocol(scenarios, &[NO_CRASH]) };
        check("a homed lock, no crash", model, None, &[properties::ALL_SERVED]);
        let scenarios = vec![readers_and_a_writer(), everybody_something_else()];
        let model = Protocol { homes, ..protocol(scenarios, &ONE_CRASH) };
        check("a homed lock, one crash", model, Some(DEPTH), &[properties::HELD_OVER_RESTART]);
    }
}

#[test]
fn a_lock_gets_a_home_while_it_is_used_in_all_orders() {
    for rules in RULES {
        let model = Protocol { rules, ..protocol(vec![one_writer(), a_reader()], &[NO_CRASH]) };
        let seen = [properties::ALL_SERVED, properties::REHOMED, properties::KEPT];
        check("a lock gets a home, no crash", model, None, &seen);
        let scenarios = vec![two_writers(), a_reader_and_a_writer()];
        let model = Protocol { rules, ..protocol(scenarios, &ONE_CRASH) };
        check("a lock gets a home, one crash", model, Some(RULE_DEPTH), &[]);
    }
}

#[test]
fn a_lock_gets_another_home_and_none_again() {
    for rules in TWO_RULES {
        let model = Protocol { rules, ..protocol(vec![one_writer()], &[NO_CRASH]) };
        check("two rules, no crash", model, Some(TWO_RULES_DEPTH), &[]);
    }
}

/// The depths of the tests above.
const RULE_DEPTH: usize = 7;
const TWO_RULES_DEPTH: usize = 12;

#[test]
fn two_locks_and_a_crash_of_anybody() {
    let scenarios = vec![both_locks_twice(), everybody_something_else(), readers_and_a_writer()];
    check(
        "two locks, one crash",
        protocol(scenarios, &ONE_CRASH),
        Some(DEPTH),
        &[properties::HELD_OVER_RESTART],
    );
}

/// The depth of the test above. `cargo test --release --test model -- --ignored` checks all states where it
/// can.
const DEPTH: usize = 9;

#[test]
#[ignore = "minutes: for a change of the protocol, with --release"]
fn to_the_end() {
    let served = [properties::ALL_SERVED];
    let in_spite = [properties::ALL_SERVED, properties::SERVED_IN_SPITE, properties::HELD_OVER_RESTART];
    check(
        "readers and a writer",
        protocol(vec![readers_and_a_writer()], &[NO_CRASH]),
        None,
        &[properties::TWO_READ],
    );
    check("both locks twice", protocol(vec![both_locks_twice()], &[NO_CRASH]), None, &served);
    check(
        "a reader and a writer, one crash",
        protocol(vec![a_reader_and_a_writer()], &ONE_CRASH),
        None,
        &in_spite,
    );
    check("two writers, one crash", protocol(vec![two_writers()], &ONE_CRASH), None, &in_spite);
    let both = protocol(vec![both_locks_twice(), everybody_something_else()], &ONE_CRASH);
    check("two locks, one crash", both, Some(14), &[]);
}

/// Checks that a deliberate bug violates the expected property.
fn catch(mutation: Mutation, scenario: Scenario, crashes: &[[u8; DCS]], expected: &'static str) {
    catch_with(mutation, (scenario, NO_HOMES), crashes, expected);
}

fn catch_with(
    mutation: Mutation,
    (scenario, homes): (Scenario, Homes),
    crashes: &[[u8; DCS]],
    expected: &'static str,
) {
    let (scenarios, crashes) = (vec![scenario], crashes.to_vec());
    let model = Protocol { scenarios, crashes, homes, rules: NO_RULES, mutation: Some(mutation) };
    caught(model, expected);
}

/// Checks that a deliberate bug about the rules of homes violates the expected property.
fn catch_rule(
    mutation: Mutation,
    (scenario, rules): (Scenario, Rules),
    crashes: &[[u8; DCS]],
    expected: &'static str,
) {
    let model = Protocol { rules, mutation: Some(mutation), ..protocol(vec![scenario], crashes) };
    caught(model, expected);
}

fn caught(model: Protocol, expected: &'static str) {
    let mutation = model.mutation.expect("a deliberate bug");
    let checker = model.checker().finish_when(HasDiscoveries::AnyOf([expected].into())).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(expected) else {
        panic!("{mutation:?} is not caught in {states} states: {expected}");
    };
    println!("{mutation:?} after {states} states: not so: {expected}: {:?}", path.into_actions());
}

#[test]
fn a_send_before_the_sync_is_caught() {
    catch(Mutation::SendBeforeSync, two_writers(), &[[1, 0, 0]], TOLD_IS_KEPT);
}

#[test]
fn an_entry_applied_twice_is_caught() {
    catch(Mutation::ApplyTwice, two_writers(), &[NO_CRASH], SAME_VECTOR_SAME_STATE);
}

#[test]
fn a_grant_by_who_is_not_the_owner_is_caught() {
    catch(Mutation::GrantWhileNotOwner, two_writers(), &[NO_CRASH], EXCLUSION);
}

#[test]
fn a_transfer_while_held_is_caught() {
    catch(Mutation::TransferWhileHeld, a_reader_and_a_writer(), &[NO_CRASH], EXCLUSION);
}

#[test]
fn a_restart_without_grace_is_caught() {
    catch(Mutation::NoGrace, a_reader_and_a_writer(), &[[1, 0, 0]], EXCLUSION);
}

#[test]
fn a_clock_that_forgets_is_caught() {
    let x = [X, NOT];
    catch(Mutation::ClockForgets, [vec![x, x, x], vec![], vec![]], &[[1, 0, 0]], TOKENS_GROW);
}

#[test]
fn a_clock_that_ignores_others_is_caught() {
    let x = [X, NOT];
    catch(Mutation::ClockIgnoresOthers, [vec![x, x], vec![x], vec![]], &[NO_CRASH], TOKENS_GROW);
}

#[test]
fn an_answer_before_the_sync_is_caught() {
    catch(Mutation::AnswerBeforeSync, [vec![[X, NOT]], vec![], vec![]], &[[1, 0, 0]], RECLAIMED);
}

#[test]
fn a_request_that_is_not_withdrawn_is_caught() {
    catch(Mutation::NotWithdrawn, two_writers(), &[NO_CRASH], NOBODY_STUCK);
}

#[test]
fn a_home_that_is_forgotten_is_caught() {
    let scenario = [vec![[X, NOT]], vec![[S, NOT]], vec![]];
    catch_with(Mutation::HomeForgotten, (scenario, [Some(0), None]), &[[0, 1, 0]], ONE_OWNER);
}

/// One that has entered the rule and one that has not read the home of the same name differently.
#[test]
fn a_rule_that_counts_before_parts_are_given_is_caught() {
    catch_rule(Mutation::RuleAtOnce, (one_writer(), RULES[0]), &[NO_CRASH], ONE_OWNER);
}

#[test]
fn a_rule_that_moves_a_lock_in_use_is_caught() {
    let used_at_home = [vec![[S, NOT]], vec![], vec![[X, NOT]]];
    catch_rule(Mutation::RehomedInUse, (used_at_home, RULES[0]), &[NO_CRASH], EXCLUSION);
}

#[test]
fn a_restarted_datacenter_that_gives_what_its_client_holds_is_caught() {
    catch_rule(Mutation::GivesInGrace, (a_reader(), RULES[0]), &[[0, 1, 0]], RECLAIMED);
}

#[test]
fn homes_that_are_judged_by_the_receiver_are_caught() {
    let scenario = a_reader_and_a_writer();
    catch_rule(Mutation::RuleJudgedHere, (scenario, RULES[0]), &[NO_CRASH], SAME_VECTOR_SAME_STATE);
}
