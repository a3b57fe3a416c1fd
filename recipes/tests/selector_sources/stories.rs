//! The stories, and the sources that they are told to.

use geolock_recipes::selector::{ApplyError, MAX_AMOUNT, MAX_TOKEN_ID, Pool, Token, TokenId};

use super::open::{Source, id, names, token};

fn euros() -> Pool {
    Pool::new("alice", "EUR")
}

/// Returns all unspent tokens of a pool, by pages of so many.
async fn pages(source: &impl Source, pool: &Pool, most: usize) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    loop {
        let page = source.unspent(pool, tokens.last(), most).await.expect("it is there");
        assert!(page.len() <= most, "{page:?}");
        let last = page.len() < most;
        tokens.extend(page);
        assert!(tokens.len() < 1_000, "pages repeat: {tokens:?}");
        if last {
            return tokens;
        }
    }
}

async fn unspent(source: &impl Source) -> Vec<String> {
    names(&source.unspent(&euros(), None, 100).await.expect("it is there"))
}

/// Pages have the largest amounts first, equal amounts by id, and only tokens of the pool.
async fn pages_are_in_order(source: impl Source) {
    let mut tokens: Vec<Token> = (0..25).map(|n| token(&format!("five-{n:02}"), 5, None)).collect();
    tokens.insert(0, token("most", MAX_AMOUNT, Some(63)));
    tokens.insert(1, token("nine", 9, Some(0)));
    tokens.push(token("four", 4, None));
    tokens.push(token("one", 1, None));
    // Bytes decide, not letters: an id may have any. It is after the others as text, and not as signed bytes.
    tokens.push(Token {
        id: TokenId::new(vec![0xFF; MAX_TOKEN_ID]).expect("it fits"),
        amount: 1,
        home: None,
    });
    let mut mixed = tokens.clone();
    mixed.reverse();
    source.insert(&euros(), &mixed, "genesis").await.expect("they are new");
    for (n, pool) in [Pool::new("alice", "USD"), Pool::new("bob", "EUR")].iter().enumerate() {
        source.insert(pool, &[token(&format!("other-{n}"), 5, None)], "genesis").await.expect("it is new");
    }
    for most in [1, 2, 5, 7, 30, 31, 1_000] {
        assert_eq!(pages(&source, &euros(), most).await, tokens, "pages of {most}");
    }
    assert_eq!(names(&pages(&source, &Pool::new("bob", "EUR"), 3).await), ["other-1"]);
    assert_eq!(pages(&source, &Pool::new("bob", "USD"), 3).await, []);
    assert_eq!(source.unspent(&euros(), None, 0).await.expect("it is there"), []);
    // A place in the order that no token has.
    let place = token("five-11x", 5, None);
    let page = source.unspent(&euros(), Some(&place), 2).await.expect("it is there");
    assert_eq!(names(&page), ["five-12", "five-13"]);
}

/// A transaction takes its inputs away and adds its outputs, also to other pools.
async fn a_transaction_is_applied(source: impl Source) {
    let tokens = [token("a", 5, Some(1)), token("b", 3, None), token("c", 1, None)];
    source.insert(&euros(), &tokens, "genesis").await.expect("they are new");
    let bob = Pool::new("bob", "EUR");
    let (paid, change) = (token("paid", 6, None), token("change", 2, Some(2)));
    let outputs = [(bob.clone(), paid.clone()), (euros(), change.clone())];
    source.apply("t1", &euros(), &[id("a"), id("b")], 10, &outputs).await.expect("both are unspent");
    assert_eq!(source.balance("EUR").await.expect("it is there"), 9);
    assert_eq!(source.balance("USD").await.expect("it is there"), 0);
    assert_eq!(pages(&source, &euros(), 10).await, [change, token("c", 1, None)]);
    assert_eq!(pages(&source, &bob, 10).await, [paid]);
    let ids = [id("b"), id("c"), id("paid"), id("a"), id("unknown"), id("c")];
    let answer = source.still_unspent(&ids).await.expect("it is there");
    assert_eq!(answer, [false, true, true, false, false, true]);
    assert_eq!(source.still_unspent(&[]).await.expect("it is there"), []);
}

/// A caller whose answer was lost applies its transaction again, also when its outputs are spent already.
async fn a_transaction_is_applied_once(source: impl Source) {
    source.insert(&euros(), &[token("a", 5, None)], "genesis").await.expect("it is new");
    let outputs = [(euros(), token("b", 5, None))];
    for _ in 0..2 {
        source.apply("t1", &euros(), &[id("a")], 10, &outputs).await.expect("it is its own");
    }
    source.apply("t2", &euros(), &[id("b")], 11, &[]).await.expect("it is unspent");
    source.apply("t1", &euros(), &[id("a")], 10, &outputs).await.expect("it is its own");
    assert_eq!(unspent(&source).await, [""; 0]);
}

/// The second one would be taken for applied, and its payment never be made.
async fn an_id_is_of_one_transaction(source: impl Source) {
    let tokens = [token("a", 5, None), token("b", 5, None)];
    source.insert(&euros(), &tokens, "genesis").await.expect("they are new");
    let output = |home| [(euros(), token("c", 5, home))];
    source.apply("t1", &euros(), &[id("a")], 10, &output(None)).await.expect("it is unspent");
    let bob = Pool::new("bob", "EUR");
    let others = [
        ("b", output(None).to_vec()),
        ("a", Vec::new()),
        ("a", output(Some(1)).to_vec()),
        ("a", vec![(bob, token("c", 5, None))]),
    ];
    for (input, outputs) in others {
        let refused = source.apply("t1", &euros(), &[id(input)], 10, &outputs).await;
        assert!(matches!(&refused, Err(ApplyError::OtherContent { tx }) if tx == "t1"), "{refused:?}");
    }
    assert_eq!(unspent(&source).await, ["b", "c"]);
    // Also by a replica that goes on with it under a later grant.
    source.apply("t1", &euros(), &[id("a")], 12, &output(None)).await.expect("it is the same");
}

/// A transaction that is refused has changed nothing.
async fn nothing_is_applied_in_part(source: impl Source) {
    let tokens = [token("a", 5, None), token("b", 3, None)];
    source.insert(&euros(), &tokens, "genesis").await.expect("they are new");
    let bob = Pool::new("bob", "EUR");
    source.insert(&bob, &[token("his", 5, None)], "genesis").await.expect("it is new");
    let outputs = [(euros(), token("c", 8, None))];
    for gone in ["gone", "his", "a"] {
        let refused = source.apply("t1", &euros(), &[id("a"), id(gone)], 10, &outputs).await;
        assert!(matches!(refused, Err(ApplyError::Spent { id: spent }) if spent == id(gone)), "{gone}");
    }
    for exists in ["b", "a", "his"] {
        let outputs = [(euros(), token("c", 1, None)), (euros(), token(exists, 4, None))];
        let refused = source.apply("t1", &euros(), &[id("a")], 10, &outputs).await;
        assert!(
            matches!(refused, Err(ApplyError::Exists { id: double }) if double == id(exists)),
            "{exists}"
        );
    }
    let twice = [(euros(), token("c", 1, None)), (bob.clone(), token("c", 4, None))];
    let refused = source.apply("t1", &euros(), &[id("a")], 10, &twice).await;
    assert!(matches!(refused, Err(ApplyError::Exists { .. })), "{refused:?}");
    for amount in [0, MAX_AMOUNT + 1, u64::MAX] {
        let outputs = [(euros(), token("c", amount, None))];
        let refused = source.apply("t1", &euros(), &[id("a")], 10, &outputs).await;
        assert!(matches!(refused, Err(ApplyError::Token(_))), "{refused:?}");
    }
    assert_eq!(unspent(&source).await, ["a", "b"]);
    assert_eq!(source.still_unspent(&[id("his"), id("c")]).await.expect("it is there"), [true, false]);
    // None of these has left a fence, or was recorded as applied.
    source.apply("t1", &euros(), &[id("a"), id("b")], 1, &outputs).await.expect("both are unspent");
    assert_eq!(unspent(&source).await, ["c"]);
}

/// A token that came back is not spent by a replica that had lost it.
async fn an_old_fence_is_refused(source: impl Source) {
    let tokens = [token("a", 5, None), token("b", 3, None)];
    source.insert(&euros(), &tokens, "genesis").await.expect("they are new");
    // Fencing tokens use all 64 bits.
    let high = u64::MAX - 1;
    source.apply("t0", &euros(), &[id("a")], 3, &[]).await.expect("it is unspent");
    source.insert(&euros(), &[token("a", 5, None)], "t0").await.expect("the ledger gave it back");
    source.apply("t1", &euros(), &[id("a")], high, &[]).await.expect("it is unspent");
    let late = source.apply("t2", &euros(), &[id("b"), id("a")], 7, &[]).await;
    let is_fenced = |refused: Result<(), ApplyError>, late: u64| {
        let Err(ApplyError::Fenced { id: of, fence, known }) = refused else { panic!("{refused:?}") };
        assert_eq!((of, fence, known), (id("a"), late, high));
    };
    is_fenced(late, 7);
    source.insert(&euros(), &[token("a", 5, None)], "t1").await.expect("the ledger gave it back");
    is_fenced(source.apply("t2", &euros(), &[id("b"), id("a")], high - 1, &[]).await, high - 1);
    assert_eq!(unspent(&source).await, ["a", "b"]);
    source.apply("t3", &euros(), &[id("b"), id("a")], high, &[]).await.expect("it is the same grant");
    assert_eq!(unspent(&source).await, [""; 0]);
}

/// Tokens are inserted all or not at all, and none twice.
async fn tokens_are_inserted_once(source: impl Source) {
    source.insert(&euros(), &[token("a", 5, None)], "genesis").await.expect("it is new");
    for tokens in [
        [token("b", 1, None), token("a", 5, None)],
        [token("b", 1, None), token("b", 1, None)],
        [token("b", 1, None), token("c", 0, None)],
        [token("b", 1, None), token("c", MAX_AMOUNT + 1, None)],
    ] {
        source.insert(&euros(), &tokens, "genesis").await.expect_err("one of them cannot be");
        source.insert(&Pool::new("bob", "EUR"), &tokens, "genesis").await.expect_err("neither");
    }
    assert_eq!(unspent(&source).await, ["a"]);
    let many: Vec<Token> = (0..5_000).map(|n| token(&format!("{n:04}"), 1, None)).collect();
    source.insert(&euros(), &many, "genesis").await.expect("they are new");
    let ids: Vec<TokenId> = many.into_iter().map(|token| token.id).collect();
    assert_eq!(source.still_unspent(&ids).await.expect("it is there"), vec![true; 5_000]);
}

/// Of many transactions at a time that share inputs, in different orders, each token is spent by one.
async fn races_have_one_winner(source: impl Source) {
    let tokens: Vec<Token> = (0..12).map(|n| token(&format!("a-{n:02}"), 1, None)).collect();
    source.insert(&euros(), &tokens, "genesis").await.expect("they are new");
    let mut races = tokio::task::JoinSet::new();
    for n in 0..24_usize {
        let source = source.clone();
        let mut inputs: Vec<TokenId> = (0..3).map(|k| tokens[(n / 2 + k * k) % 12].id.clone()).collect();
        if n % 2 == 0 {
            inputs.reverse();
        }
        races.spawn(async move {
            let outputs = [(euros(), token(&format!("b-{n}"), 3, None))];
            // Each twice at the same time, as by a caller that did not wait for the first answer.
            let (tx, pool) = (format!("t{n}"), euros());
            tokio::join!(
                source.apply(&tx, &pool, &inputs, 10, &outputs),
                source.apply(&tx, &pool, &inputs, 10, &outputs),
            )
        });
    }
    let mut applied = 0;
    for answers in races.join_all().await {
        match answers {
            (Ok(()), Ok(())) => applied += 1,
            (Err(ApplyError::Spent { .. }), Err(ApplyError::Spent { .. })) => {}
            answers => panic!("{answers:?}"),
        }
    }
    assert!(applied > 0);
    let left = unspent(&source).await;
    let (new, old): (Vec<&String>, Vec<&String>) = left.iter().partition(|name| name.starts_with("b-"));
    assert_eq!((new.len(), old.len()), (applied, 12 - 3 * applied), "{left:?}");
}

/// Tells all stories to the sources that an expression returns, each to a new one.
macro_rules! tell_all {
    ($tell:ident) => {
        $tell! {
            pages_are_in_order, a_transaction_is_applied, a_transaction_is_applied_once, an_id_is_of_one_transaction,
            nothing_is_applied_in_part, an_old_fence_is_refused, tokens_are_inserted_once,
            races_have_one_winner,
        }
    };
}

mod memory {
    use geolock_recipes::selector::MemorySource;

    macro_rules! tell {
        ($($story:ident,)*) => { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                super::$story(MemorySource::new()).await;
            }
        )* };
    }
    tell_all!(tell);
}

#[cfg(feature = "tokens-sqlite")]
mod sqlite {
    use geolock_recipes::selector::SqliteSource;

    macro_rules! tell {
        ($($story:ident,)*) => { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                let folder = tempfile::tempdir().expect("there is room");
                let source = SqliteSource::open(folder.path().join("tokens")).await.expect("it can be made");
                super::$story(source).await;
            }
        )* };
    }
    tell_all!(tell);
}

#[cfg(feature = "tokens-postgres")]
mod postgres {
    use geolock_recipes::selector::PostgresSource;

    use crate::postgres::PostgresServer;

    macro_rules! tell {
        ($($story:ident,)*) => {
            /// A server takes some seconds to start, so the stories share it.
            #[tokio::test(flavor = "multi_thread")]
            async fn all_stories() {
                let Some(server) = PostgresServer::start().expect("it can start") else { return };
                $(
                    println!("{}", stringify!($story));
                    let address = server.database(stringify!($story)).await.expect("it is new");
                    let source = PostgresSource::open(&address).await.expect("it is there");
                    super::$story(source).await;
                )*
            }
        };
    }
    tell_all!(tell);
}
