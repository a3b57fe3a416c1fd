//! Replicas that die, and sources that are away, slow or behind.

use std::time::Duration;

use geolock_recipes::selector::{HeldBy, Holder, SelectError, SelectorOptions};
use tokio::task::JoinSet;

use crate::fixture::{Servers, Table, token, tx, within};

fn options(change: impl FnOnce(&mut SelectorOptions)) -> SelectorOptions {
    let mut options = SelectorOptions::default();
    change(&mut options);
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_before_it_is_reserved_is_free_again() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 3, 0)]);
    let (first, second) = (servers.replica(0, &table).await, servers.replica(1, &table).await);
    drop(first.select("tx-0", 3).await.expect("it is free"));
    let picked = second.select("tx-1", 3).await.expect("it is free again");
    assert!(first.selector.locked().is_empty());
    // The replica dies.
    drop(picked);
    drop(second.selector);
    within(second.client.close()).await.expect("the server is there");
    first.pay("tx-2", 3).await.expect("it is free again");
    assert_eq!(table.payments(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_reserved_stays_so_when_its_replica_dies() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 3, 0)]);
    let short = |it: &mut SelectorOptions| {
        it.wait = Duration::from_secs(2);
        it.patience = Duration::from_secs(1);
    };
    let (first, second) =
        (servers.replica(0, &table).await, servers.replica_with(1, &table, options(short)).await);
    let picked = first.select("tx-0", 3).await.expect("it is free");
    within(first.selector.reserve(&tx("tx-0"))).await.expect("it holds it");
    drop(picked);
    drop(first.selector);
    within(first.client.close()).await.expect("the server is there");
    let locked = second.select("tx-1", 3).await.expect_err("the ledger may have it");
    let SelectError::Locked { free: 0, by, retry_after } = locked else { panic!("{locked}") };
    let reserved = Holder::Reserved { tx: "tx-0".to_owned() };
    assert!(by.contains(&HeldBy { token: Some(token("a", 3, 0).id), by: reserved }), "{by:?}");
    assert!(retry_after > Duration::from_secs(100), "{retry_after:?}");
    // Any replica can give it back.
    within(second.selector.release(&tx("tx-0"))).await.expect("it takes the lock again");
    second.pay("tx-1", 3).await.expect("it is free");
    assert_eq!(table.payments(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_wins_over_a_listing_that_lags() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 3, 0), token("b", 3, 1)]);
    let first = servers.replica_with(0, &table, options(|it| it.linger = Duration::ZERO)).await;
    table.lag();
    first.pay("tx-0", 3).await.expect("it is free");
    // A replica that has heard of nothing.
    let second = servers.replica(1, &table).await;
    second.pay("tx-1", 3).await.expect("the other one is free");
    assert_eq!((table.balance(), table.payments()), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_away_is_told_from_a_pool_that_is_empty() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 3, 0)]);
    let replica = servers.replica(0, &table).await;
    table.set_away(true);
    let away = replica.select("tx-0", 1).await.expect_err("nothing is known");
    assert!(matches!(away, SelectError::SourceUnavailable(_)), "{away}");
    assert!(away.to_string().contains("the table is away"), "{away}");
    table.set_away(false);
    let small = replica.select("tx-1", 9).await.expect_err("it is too small");
    assert!(matches!(small, SelectError::Insufficient { have: 3, asked: 9 }), "{small}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_lists_what_cannot_be_is_an_error() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 0, 0)]);
    let replica = servers.replica(0, &table).await;
    let error = replica.select("tx-0", 1).await.expect_err("it has amount 0");
    assert!(
        matches!(error, SelectError::Token(_)) && error.to_string().contains("that of a is 0"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_stale_cache_cost_one_query_and_none_of_them_waits() {
    let servers = Servers::start("zero").await;
    let table = Table::equal(100, 1, |_| 0);
    let lasts = Duration::from_secs(20);
    let replica =
        servers.replica_with(0, &table, options(|it| (it.freshness, it.soft_after) = (lasts, 1))).await;
    drop(replica.select("first", 1).await.expect("they are free"));
    assert_eq!(table.queries(), 1);
    // From now on a query does not answer, and each selection finds that the cache was used too often.
    table.set_open(false);
    let mut selecting = JoinSet::new();
    for number in 0..10 {
        let replica = replica.clone();
        selecting.spawn(async move { replica.select(&format!("tx-{number}"), 1).await });
    }
    let all: Vec<_> =
        within(selecting.join_all()).await.into_iter().map(|it| it.expect("it is free")).collect();
    assert_eq!((all.len(), table.queries()), (10, 2));
    table.set_open(true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_readers_of_a_pool_that_nobody_has_read_cost_one_query() {
    let servers = Servers::start("zero").await;
    let table = Table::equal(100, 1, |_| 0);
    let replica = servers.replica(0, &table).await;
    table.set_open(false);
    let mut selecting = JoinSet::new();
    for number in 0..10 {
        let replica = replica.clone();
        selecting.spawn(async move { replica.select(&format!("tx-{number}"), 1).await });
    }
    while table.queries() == 0 || replica.selector.stats().selections < 10 {
        tokio::task::yield_now().await;
    }
    table.set_open(true);
    let all: Vec<_> =
        within(selecting.join_all()).await.into_iter().map(|it| it.expect("it is free")).collect();
    assert_eq!((all.len(), table.queries()), (10, 1));
}
