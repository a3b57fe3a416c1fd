//! The baseline of the bench: it has to be right before it is measured.

use std::collections::BTreeSet;

use geolock_recipes::selector::{Pool, PostgresSource, Token, TokenId};

use super::baseline::{Baseline, BaselineError};
use super::open::token;
use super::postgres::PostgresServer;

fn ids(tokens: &[Token]) -> Vec<TokenId> {
    tokens.iter().map(|token| token.id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_baseline_locks_each_token_once() {
    let Some(server) = PostgresServer::start().expect("it can start") else { return };
    let address = server.database("baseline").await.expect("it is new");
    let pool = Pool::new("alice", "EUR");
    let source = PostgresSource::open(&address).await.expect("it is there");
    let tokens: Vec<Token> = (0..40).map(|n| token(&format!("{n:02}"), 5, None)).collect();
    source.insert(&pool, &tokens, "genesis").await.expect("they are new");
    let (one, other) = tokio::join!(Baseline::open(&address, 1), Baseline::open(&address, 2));
    let (one, other) = (one.expect("it is there"), other.expect("it is there"));

    let refused = one.select("t0", &pool, 201).await;
    assert!(matches!(refused, Err(BaselineError::Insufficient { have: 200, asked: 201 })), "{refused:?}");
    assert_eq!(one.attempts(), 40);

    // Both at a time, 20 tokens each: none is left, and each attempt of one that failed is of the other.
    let (its, others) = tokio::join!(one.select("t1", &pool, 96), other.select("t2", &pool, 100));
    let (its, others) = (ids(&its.expect("there is enough")), ids(&others.expect("there is enough")));
    assert_eq!((its.len(), others.len()), (20, 20));
    assert_eq!(its.iter().chain(&others).collect::<BTreeSet<_>>().len(), 40);
    assert!(one.attempts() >= 60 && other.attempts() >= 20);

    // The first attempt and three more, of all tokens each.
    let before = one.attempts();
    let refused = one.select("t3", &pool, 5).await;
    assert!(matches!(refused, Err(BaselineError::Locked)), "{refused:?}");
    assert_eq!(one.attempts() - before, 4 * 40);

    // A payment, and then a selection that was released: the other's tokens are free, and only they.
    source.apply("t1", &pool, &its, 1, &[]).await.expect("all are unspent");
    one.release("t1").await.expect("it is there");
    other.release("t2").await.expect("it is there");
    let all = one.select("t4", &pool, 100).await.expect("there is enough");
    assert_eq!(ids(&all).iter().collect::<BTreeSet<_>>(), others.iter().collect());
}
