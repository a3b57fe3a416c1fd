//! Many payments at once.

use std::time::Duration;

use geolock_client::{DcId, LockDescription};
use geolock_recipes::selector::{MemorySource, Pool, SelectError, Token};
use tokio::task::JoinSet;

use crate::fixture::{Replica, Servers, balance, equal, filled, in_memory, token, tx, within};
use crate::open::Source;
use crate::over_databases;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_that_want_two_tokens_one_has_too_little() {
    three_and_two(MemorySource::new()).await;
}

over_databases!(three_and_two);

async fn three_and_two<S: Source>(source: S) {
    let servers = Servers::start().await;
    let source = filled(source, &[token("a", 1, 0), token("b", 1, 1)]).await;
    let mut paying = JoinSet::new();
    for replica in servers.replicas(&source).await {
        paying.spawn(async move { replica.pay(&format!("tx-{}", replica.dc), 1).await });
    }
    let outcomes = within(paying.join_all()).await;
    let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(matches!(errors[..], [SelectError::Insufficient { have: 0, asked: 1 }]), "{errors:?}");
    assert_eq!(balance(&source).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_replicas_use_a_hundred_tokens_up() {
    twenty_and_a_hundred(MemorySource::new()).await;
}

over_databases!(twenty_and_a_hundred);

async fn twenty_and_a_hundred<S: Source>(source: S) {
    let servers = Servers::start().await;
    let source = filled(source, &equal(100, 1)).await;
    let mut replicas = Vec::new();
    for number in 0..20_u8 {
        replicas.push(servers.replica(number % 3, &source).await);
    }
    let mut paying = JoinSet::new();
    for (number, replica) in replicas.iter().cloned().enumerate() {
        paying.spawn(async move { replica.pay(&format!("tx-{number}"), 5).await });
    }
    for outcome in within(paying.join_all()).await {
        outcome.expect("there is enough for all");
    }
    assert_eq!(balance(&source).await, 0);
    let spent: u64 = replicas.iter().map(|replica| replica.selector.stats().spent).sum();
    assert_eq!(spent, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_payments_chain_through_the_change_of_one_token() {
    hundred_of_one(MemorySource::new()).await;
}

over_databases!(hundred_of_one);

async fn hundred_of_one<S: Source>(source: S) {
    let servers = Servers::start().await;
    let source = filled(source, &[token("hundred", 100, 0)]).await;
    let replicas = servers.replicas(&source).await;
    let mut paying = JoinSet::new();
    for number in 0..100 {
        let replica = replicas[number % 3].clone();
        paying.spawn(async move { replica.pay(&format!("tx-{number}"), 1).await });
    }
    for outcome in within(paying.join_all()).await {
        outcome.expect("there is enough for all");
    }
    assert_eq!(balance(&source).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_want_both_tokens_one_hears_the_truth() {
    two_and_two(MemorySource::new()).await;
}

over_databases!(two_and_two);

async fn two_and_two<S: Source>(source: S) {
    let servers = Servers::start().await;
    let source = filled(source, &[token("a", 3, 0), token("b", 3, 1)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    let (one, other) = tokio::join!(first.pay("tx-0", 4), second.pay("tx-1", 4));
    let errors: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert!(matches!(errors[..], [SelectError::Insufficient { have: 2, asked: 4 }]), "{errors:?}");
    assert_eq!(balance(&source).await, 2);
}

/// Each time in a pool of its own, and with other delays between the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_times_one_of_two_gets_both_tokens_and_the_other_hears_the_truth() {
    const ROUNDS: u64 = 1_000;
    const AT_A_TIME: u64 = 20;
    let servers = Servers::start().await;
    let source = MemorySource::new();
    let replicas = servers.replicas(&source).await;
    for first in (0..ROUNDS).step_by(AT_A_TIME as usize) {
        let mut rounds = JoinSet::new();
        for round in first..first + AT_A_TIME {
            let pool = Pool::new(format!("wallet-{round}"), "EUR");
            let tokens = ["a", "b"].map(|name| token(&format!("{name}-{round}"), 3, (round % 3) as u8));
            source.insert(&pool, &tokens, "mint").await.expect("they are new");
            let one_of = |turn: u64| Replica { pool: pool.clone(), ..replicas[(turn % 3) as usize].clone() };
            let (one, other) = (one_of(round), one_of(round + 1 + round / 3 % 2));
            rounds.spawn(async move {
                // Up to 10 ms, another one each time: the first attempt of one meets each step of the other.
                let delay = Duration::from_micros(round.wrapping_mul(2_654_435_761) % 10_000);
                let (early, late) = (format!("early-{round}"), format!("late-{round}"));
                let later = async {
                    tokio::time::sleep(delay).await;
                    other.pay(&late, 4).await
                };
                let (one, other) = tokio::join!(one.pay(&early, 4), later);
                (round, one, other)
            });
        }
        for (round, one, other) in within(rounds.join_all()).await {
            let errors: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
            let is_true = matches!(errors[..], [SelectError::Insufficient { have: 2, asked: 4 }]);
            assert!(is_true, "round {round}: {errors:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_what_is_given_back() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0), token("b", 3, 1)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    let held = first.select("tx-0", 4).await.expect("both are free");
    assert_eq!(held.tokens().len(), 2);
    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.select("tx-1", 4).await }
    });
    let described = when_awaited(&first, &held.tokens()[0]).await;
    assert_eq!(described.holders.first().map(|holder| holder.label.as_str()), Some("tx-0"));
    drop(held);
    let picked = within(waits).await.expect("it runs").expect("both are free again");
    assert_eq!((picked.sum(), picked.change()), (6, 2));
}

/// Waits until another selection waits for the token, and this replica's datacenter knows.
async fn when_awaited<S: Source>(replica: &Replica<S>, token: &Token) -> LockDescription {
    let lock = replica.selector.lock_of(token);
    within(async {
        loop {
            let described = replica.client.describe_lock(&lock).await.expect("it is there");
            if described.waiting > 0 {
                return described;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_is_best_homed_where_a_selection_waits_for_it() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    let picked = first.select("tx-0", 1).await.expect("it is free");
    assert_eq!(within(first.selector.home_for_change(&picked)).await, DcId::new(0), "nobody waits");
    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.select("tx-1", 2).await }
    });
    when_awaited(&first, &picked.tokens()[0]).await;
    let home = within(first.selector.home_for_change(&picked)).await;
    assert_eq!(home, DcId::new(1), "the other one waits");
    within(first.selector.reserve(&tx("tx-0"))).await.expect("it is picked");
    // The change is made with that home.
    let there = Replica { dc: 1, ..first.clone() };
    let change = there.apply(&picked).await;
    within(first.selector.spent(&tx("tx-0"), &change)).await.expect("it is reserved");
    let next = within(waits).await.expect("it runs").expect("there is change");
    assert_eq!((next.tokens(), next.tokens()[0].home), (&change[..], DcId::new(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_token_is_left_alone_while_a_small_one_is_free() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("large", 200, 0), token("small", 1, 1)]).await;
    let replica = servers.replica(0, &source).await;
    let small = replica.select("tx-0", 1).await.expect("it is free");
    assert_eq!(small.tokens(), [token("small", 1, 1)]);
    let large = replica.select("tx-1", 1).await.expect("the large one is free");
    assert_eq!((large.tokens(), large.change()), (&[token("large", 200, 0)][..], 199));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_tokens_are_known_everywhere_before_the_next_query() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 1, 0)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    let held = first.select("tx-0", 1).await.expect("it is free");
    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.select("tx-1", 1).await }
    });
    let lock = first.selector.lock_of(&held.tokens()[0]);
    within(async { while first.client.describe_lock(&lock).await.expect("it is there").waiting == 0 {} })
        .await;
    let queries = source.queries().unspent;
    within(first.selector.added(&crate::fixture::pool(), &[token("b", 1, 2)])).await.expect("it is written");
    let picked = within(waits).await.expect("it runs").expect("there is a new one");
    assert_eq!(picked.tokens(), [token("b", 1, 2)]);
    assert_eq!(source.queries().unspent, queries);
}
