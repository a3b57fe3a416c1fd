//! Replicas that die, and sources that are away, slow or behind.

use std::sync::Arc;
use std::time::Duration;

use geolock_client::{Batch, ForceReason, Key, TxnRequest, Update};
use geolock_recipes::selector::{
    HeldBy, Holder, Pool, SelectError, SelectorConfigError, SelectorOptions, SourceError, Token, TokenId,
    TokenSelector, TokenSource,
};
use tokio::task::JoinSet;

use crate::fixture::{Replica, Servers, balance, equal, in_memory, options, pool, token, tx, within};

fn impatient(options: &mut SelectorOptions) {
    (options.wait, options.patience) = (Duration::from_secs(2), Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_before_it_is_reserved_is_free_again() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    drop(first.select("tx-0", 3).await.expect("it is free"));
    let _picked = second.select("tx-1", 3).await.expect("it is free again");
    assert!(first.selector.locked().is_empty());
    second.die().await;
    first.pay("tx-2", 3).await.expect("it is free again");
    assert_eq!(balance(&source).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_reserved_stays_so_when_its_replica_dies() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0)]).await;
    let first = servers.replica(0, &source).await;
    let second = servers.replica_with(1, &source, options(impatient)).await;
    let _picked = first.select("tx-0", 3).await.expect("it is free");
    within(first.selector.reserve(&tx("tx-0"))).await.expect("it holds it");
    assert!(first.selector.locked()[0].is_reserved);
    first.die().await;
    let locked = second.select("tx-1", 3).await.expect_err("the ledger may have it");
    let SelectError::Locked { free: 0, by, retry_after } = locked else { panic!("{locked}") };
    let reserved = Holder::Reserved { tx: "tx-0".to_owned() };
    assert!(by.contains(&HeldBy { token: Some(token("a", 3, 0).id), by: reserved }), "{by:?}");
    assert!(retry_after > Duration::from_secs(100), "{retry_after:?}");
    // Any replica can give it back.
    within(second.selector.release(&tx("tx-0"))).await.expect("it takes the lock again");
    second.pay("tx-1", 3).await.expect("it is free");
    assert_eq!(balance(&source).await, 0);
}

/// The steps of a payment after which a replica stops without a word, as its process would.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum After {
    Start,
    Select,
    Reserve,
    Apply,
}

/// Its lease ends, its reservations end, and what the ledger has stays paid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_had_that_stopped_without_a_word_is_free_in_the_end_or_paid() {
    let servers = Arc::new(Servers::start().await);
    for step in [After::Start, After::Select, After::Reserve, After::Apply] {
        let source = in_memory(&[]).await;
        let pool = Pool::new(format!("{step:?}"), "EUR");
        let tokens = ["a", "b", "c"].map(|name| token(&format!("{name}-{step:?}"), 3, 0));
        source.insert(&pool, &tokens, "mint").await.expect("they are new");
        let brief = |it: &mut SelectorOptions| it.reserve_for = Duration::from_secs(3);
        let survivor = servers.replica_with(1, &source, options(brief)).await;
        let survivor = Replica { pool: pool.clone(), ..survivor };
        // All that it is ends with its runtime: nothing is released, nothing closed.
        let process = tokio::runtime::Runtime::new().expect("there are threads");
        let (its_servers, its_source) = (Arc::clone(&servers), source.clone());
        let runs = process.spawn(async move {
            let replica = its_servers.replica_with(0, &its_source, options(brief)).await;
            let (replica, id) = (Replica { pool, ..replica }, format!("dies-{step:?}"));
            if step == After::Start {
                return (replica, None);
            }
            let picked = replica.select(&id, 7).await.expect("it is free");
            if step >= After::Reserve {
                within(replica.selector.reserve(&tx(&id))).await.expect("it holds them");
            }
            if step >= After::Apply {
                replica.apply(&picked).await;
            }
            (replica, Some(picked))
        });
        let had = within(runs).await.expect("it does not fail");
        process.shutdown_background();
        let paid = survivor.pay(&format!("lives-{step:?}"), 7).await;
        let rest: u64 = source
            .unspent(&survivor.pool, None, 9)
            .await
            .expect("it answers")
            .iter()
            .map(|it| it.amount)
            .sum();
        match step {
            After::Apply => {
                assert!(matches!(paid, Err(SelectError::Insufficient { have: 2, .. })), "{paid:?}");
            }
            _ => paid.unwrap_or_else(|error| panic!("{step:?}: {error}")),
        }
        assert_eq!(rest, 2, "{step:?}: paid once");
        drop(had);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_dies_before_it_says_spent_is_finished_by_another() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0)]).await;
    let first = servers.replica(0, &source).await;
    // It waits for so long for what it has not heard of.
    let brief = |it: &mut SelectorOptions| it.linger = Duration::from_secs(1);
    let second = servers.replica_with(1, &source, options(brief)).await;
    let picked = first.select("tx-0", 2).await.expect("it is free");
    within(first.selector.reserve(&tx("tx-0"))).await.expect("it holds it");
    let change = first.apply(&picked).await;
    first.die().await;
    within(second.selector.spent(&tx("tx-0"), &change)).await.expect("it takes the lock again");
    second.pay("tx-1", 1).await.expect("the change is free");
    let little = second.select("tx-2", 1).await.expect_err("nothing is left");
    assert!(matches!(little, SelectError::Insufficient { have: 0, .. }), "{little}");
    let unknown = within(second.selector.spent(&tx("tx-3"), &[])).await.expect_err("it has selected nothing");
    assert!(matches!(unknown, SelectError::Unknown { .. }), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_lost_the_locks_cannot_reserve() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    let picked = first.select("tx-0", 3).await.expect("it is free");
    let lock = first.selector.lock_of(&picked.tokens()[0]);
    let reason = ForceReason::new("a test").expect("it has a text");
    servers.operator(0).await.force_release(&lock, &reason).await.expect("it is held there");
    within(picked.lost()).await;
    let other = second.select("tx-1", 3).await.expect("it is free");
    let fenced = within(first.selector.reserve(&tx("tx-0"))).await.expect_err("it is another one's");
    assert!(matches!(fenced, SelectError::Fenced { .. }), "{fenced}");
    assert!(other.fence() > picked.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_wins_over_a_listing_that_lags() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0), token("b", 3, 1)]).await;
    let first = servers.replica_with(0, &source, options(|it| it.linger = Duration::ZERO)).await;
    source.set_lagging(true);
    first.pay("tx-0", 3).await.expect("it is free");
    // A replica that has heard of nothing.
    let second = servers.replica(0, &source).await;
    second.pay("tx-1", 3).await.expect("the other one is free");
    source.set_lagging(false);
    assert_eq!(balance(&source).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_source_says_is_spent_is_given_back() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0), token("b", 5, 0)]).await;
    // The shortest reservation has the shortest rounds of the housekeeping.
    let quick = |it: &mut SelectorOptions| it.reserve_for = Duration::from_secs(6);
    let replica = servers.replica_with(0, &source, options(quick)).await;
    let reserved = replica.select("tx-0", 3).await.expect("it is free");
    within(replica.selector.reserve(&tx("tx-0"))).await.expect("it holds it");
    replica.apply(&reserved).await;
    let unpaid = replica.select("tx-1", 5).await.expect("it is free");
    // Nobody ever says that it is spent.
    within(async {
        while replica.selector.locked().len() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(replica.selector.locked()[0].tx, tx("tx-1"));
    drop(unpaid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_cannot_be_read_is_told_with_its_key() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0), token("b", 3, 0)]).await;
    let replica = servers.replica_with(0, &source, options(impatient)).await;
    let key = Key::new(b"geolock.tokens", b"default/mark/a").expect("it is short");
    let batch = Batch::new().update(&key, Update::register("nonsense"));
    within(replica.client.transact(TxnRequest::new(), batch)).await.expect("it is written");
    let other = replica.select("tx-0", 3).await.expect("the other one is free");
    assert_eq!(other.tokens(), [token("b", 3, 0)]);
    let locked = replica.select("tx-1", 3).await.expect_err("nobody can say whose it is");
    assert!(locked.to_string().contains("token a: its mark cannot be read"), "{locked}");
    let record = Key::new(b"geolock.tokens", b"default/tx/tx-2").expect("it is short");
    let batch = Batch::new().update(&record, Update::register("nonsense"));
    within(replica.client.transact(TxnRequest::new(), batch)).await.expect("it is written");
    let unreadable = within(replica.selector.release(&tx("tx-2"))).await.expect_err("it is nonsense");
    assert!(
        matches!(&unreadable, SelectError::Unreadable { key } if key == "default/tx/tx-2"),
        "{unreadable}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_home_of_a_token_others_are_chosen_or_it_is_told() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 2), token("b", 200, 0)]).await;
    let replica = servers.replica_with(0, &source, options(impatient)).await;
    servers.playground.switch(2, false).await.expect("it is on");
    let gone = async || {
        let status = replica.client.status().await.expect("it serves");
        status.peers.iter().any(|peer| peer.dc == 2 && !peer.reachable)
    };
    within(async { while !gone().await {} }).await;
    // A small one would be preferred, and is there.
    let other = replica.select("tx-0", 3).await.expect("the large one is here");
    assert_eq!(other.tokens(), [token("b", 200, 0)]);
    let locked = replica.select("tx-1", 3).await.expect_err("it cannot be had");
    let SelectError::Locked { by, .. } = locked else { panic!("{locked}") };
    let unreachable = Holder::Unreachable { dc: geolock_client::DcId::new(2).expect("it is small") };
    assert!(by.contains(&HeldBy { token: Some(token("a", 3, 2).id), by: unreachable }), "{by:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_away_is_told_from_a_pool_that_is_empty() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0)]).await;
    let replica = servers.replica(0, &source).await;
    source.set_unavailable(true);
    let away = replica.select("tx-0", 1).await.expect_err("nothing is known");
    assert!(matches!(away, SelectError::SourceUnavailable(_)), "{away}");
    source.set_unavailable(false);
    let small = replica.select("tx-1", 9).await.expect_err("it is too small");
    assert!(matches!(small, SelectError::Insufficient { have: 3, asked: 9 }), "{small}");
    // The cache serves while it is fresh.
    source.set_unavailable(true);
    let cached = replica.select("tx-2", 3).await.expect("it is cached");
    assert_eq!(cached.sum(), 3);
}

/// A source that lists these.
struct Lists(Vec<Token>);

impl TokenSource for Lists {
    async fn unspent(&self, _: &Pool, _: Option<&Token>, _: usize) -> Result<Vec<Token>, SourceError> {
        Ok(self.0.clone())
    }

    async fn still_unspent(&self, ids: &[TokenId]) -> Result<Vec<bool>, SourceError> {
        Ok(vec![true; ids.len()])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused() {
    let servers = Servers::start().await;
    let client = servers.client(0).await;
    let over = 1 << 63;
    for (tokens, why) in [
        (vec![token("a", 0, 0)], "that of a is 0"),
        (vec![token("a", over, 0)], "that of a is 9223372036854775808"),
        (vec![token("a", 1, 0), token("a", 1, 0)], "lists token a twice"),
    ] {
        let selector = TokenSelector::new(client.clone(), Lists(tokens), SelectorOptions::default());
        let selected = within(selector.expect("they fit").select(&tx("tx"), &pool(), 1)).await;
        let error = selected.expect_err("it cannot be");
        assert!(matches!(error, SelectError::Token(_)) && error.to_string().contains(why), "{error}");
    }
    let selector = TokenSelector::new(client.clone(), Lists(vec![]), SelectorOptions::default());
    let selector = selector.expect("they fit");
    let zero = within(selector.select(&tx("tx"), &pool(), 0)).await.expect_err("it is nothing");
    assert!(matches!(zero, SelectError::Amount), "{zero}");
    let long = Pool::new("w".repeat(1_100), "EUR");
    let long = within(selector.select(&tx("tx"), &long, 1)).await.expect_err("its key is too long");
    assert!(matches!(long, SelectError::Pool { .. }), "{long}");
    let twice = within(selector.added(&pool(), &[token("a", 1, 0), token("a", 1, 0)])).await;
    assert!(matches!(twice, Err(SelectError::Token(_))), "{twice:?}");
    let short = options(|it| it.reserve_for = client.ttl() - Duration::from_millis(1));
    let refused = TokenSelector::new(client, Lists(vec![]), short).expect_err("it is below the TTL");
    assert!(matches!(refused, SelectorConfigError::ReserveFor { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_stale_cache_cost_one_query_and_none_of_them_waits() {
    let servers = Servers::start().await;
    let source = in_memory(&equal(100, 1)).await;
    let often = |it: &mut SelectorOptions| (it.freshness, it.soft_after) = (Duration::from_secs(20), 1);
    let replica = servers.replica_with(0, &source, options(often)).await;
    drop(replica.select("first", 1).await.expect("they are free"));
    assert_eq!(source.queries().unspent, 1);
    // From now on a query does not answer, and each selection finds that the cache was used too often.
    let _gate = source.close_gate();
    let mut selecting = JoinSet::new();
    for number in 0..10 {
        let replica = replica.clone();
        selecting.spawn(async move { replica.select(&format!("tx-{number}"), 1).await });
    }
    let all = within(selecting.join_all()).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(source.queries().unspent, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_readers_of_a_pool_that_nobody_has_read_cost_one_query() {
    let servers = Servers::start().await;
    let source = in_memory(&equal(100, 1)).await;
    let replica = servers.replica(0, &source).await;
    let gate = source.close_gate();
    let mut selecting = JoinSet::new();
    for number in 0..10 {
        let replica = replica.clone();
        selecting.spawn(async move { replica.select(&format!("tx-{number}"), 1).await });
    }
    within(gate.waiting(1)).await;
    while replica.selector.stats().selections < 10 {
        tokio::task::yield_now().await;
    }
    gate.open();
    let all = within(selecting.join_all()).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(source.queries().unspent, 1);
}
