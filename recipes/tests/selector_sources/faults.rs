//! Sources that fail, and what they say.

use std::time::Duration;

use geolock_recipes::selector::{ApplyError, MemorySource, Pool, TokenSource as _};

use tokio::time::timeout;

use super::open::{id, names, token};

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future).await.expect("it does not hang")
}

fn euros() -> Pool {
    Pool::new("alice", "EUR")
}

async fn memory() -> MemorySource {
    let source = MemorySource::new();
    source
        .insert(&euros(), &[token("a", 5, None), token("b", 3, None)], "genesis")
        .await
        .expect("they are new");
    source
}

#[tokio::test]
async fn a_source_in_memory_counts_queries_and_can_be_unavailable() {
    let source = memory().await;
    let replica = source.clone();
    replica.set_unavailable(true);
    source.unspent(&euros(), None, 10).await.expect_err("it is unavailable");
    source.still_unspent(&[id("a")]).await.expect_err("it is unavailable");
    let failed = source.apply("t1", &euros(), &[id("a")], 1, &[]).await;
    assert!(matches!(failed, Err(ApplyError::Source(_))), "{failed:?}");
    source.insert(&euros(), &[token("c", 1, None)], "genesis").await.expect_err("it is unavailable");
    replica.set_unavailable(false);
    assert_eq!(names(&replica.unspent(&euros(), None, 10).await.expect("it is there")), ["a", "b"]);
    let queries = replica.queries();
    assert_eq!((queries.unspent, queries.still_unspent, queries.apply), (2, 1, 1));
}

#[tokio::test]
async fn a_source_in_memory_can_list_tokens_that_are_spent() {
    let source = memory().await;
    source.set_lagging(true);
    source
        .apply("t1", &euros(), &[id("a")], 1, &[(euros(), token("c", 5, None))])
        .await
        .expect("it is unspent");
    assert_eq!(names(&source.unspent(&euros(), None, 10).await.expect("it is there")), ["a", "b"]);
    assert_eq!(source.still_unspent(&[id("a"), id("c")]).await.expect("it is there"), [false, true]);
    source.set_lagging(false);
    assert_eq!(names(&source.unspent(&euros(), None, 10).await.expect("it is there")), ["c", "b"]);
}

#[tokio::test]
async fn queries_of_a_source_in_memory_wait_at_its_gate() {
    let source = memory().await;
    let gate = source.close_gate();
    let query = |source: MemorySource| async move { source.unspent(&euros(), None, 10).await };
    let (one, other) = (tokio::spawn(query(source.clone())), tokio::spawn(query(source.clone())));
    within(gate.waiting(2)).await;
    // A caller that gives up does not wait.
    other.abort();
    assert!(other.await.expect_err("it was stopped").is_cancelled());
    timeout(Duration::ZERO, gate.waiting(2)).await.expect_err("one waits");
    let third = tokio::spawn(query(source.clone()));
    within(gate.waiting(2)).await;
    // A token that is spent meanwhile is not in the answer: the source was slow, and does not lag.
    source.apply("t1", &euros(), &[id("a")], 1, &[]).await.expect("it is unspent");
    assert!(!one.is_finished() && !third.is_finished());
    gate.open();
    for answer in [one, third] {
        let tokens = answer.await.expect("it goes on").expect("it is there");
        assert_eq!(names(&tokens), ["b"]);
    }
    assert_eq!(source.queries().unspent, 3);
    query(source).await.expect("no gate is closed");
}

#[cfg(feature = "tokens-sqlite")]
mod sqlite {
    use std::path::Path;

    use geolock_recipes::selector::{SqliteSource, Token, TokenSource as _};
    use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
    use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
    use tempfile::TempDir;

    use super::{euros, id, names, token};

    async fn open(folder: &TempDir) -> SqliteSource {
        SqliteSource::open(folder.path().join("tokens")).await.expect("it can be made")
    }

    async fn other_program(file: &Path) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        options.connect().await.expect("it can be made")
    }

    /// The application has made the table itself, without the checks of this package.
    #[tokio::test]
    async fn rows_that_cannot_be_are_named() {
        let folder = tempfile::tempdir().expect("there is room");
        let mut application = other_program(&folder.path().join("tokens")).await;
        let table = "create table tokens(id primary key, wallet, currency, amount, home, created_by)";
        application.execute(table).await.expect("it is new");
        let source = open(&folder).await;
        for (row, says) in [
            ("x'6161', 'alice', 'EUR', 0, null", "row aa of the table tokens has amount 0"),
            ("x'6161', 'alice', 'EUR', -7, null", "row aa of the table tokens has amount -7"),
            (
                "x'6161', 'alice', 'EUR', 'seven', null",
                "row aa of the table tokens has an amount that cannot be read",
            ),
            ("x'6161', 'alice', 'EUR', null, null", "row aa of the table tokens has no amount"),
            ("x'6161', 'alice', 'EUR', 1, -1", "row aa of the table tokens has home -1"),
            ("x'6161', 'alice', 'EUR', 1, 64", "row aa of the table tokens has home 64"),
            (
                "x'6161', 'alice', 'EUR', 1, 'here'",
                "row aa of the table tokens has a home that cannot be read",
            ),
            ("x'', 'alice', 'EUR', 1, null", "row .. of the table tokens has an id of 0 bytes"),
            ("zeroblob(901), 'alice', 'EUR', 1, null", "has an id of 901 bytes"),
            ("'aa', 'alice', 'EUR', 1, null", "the id of row aa is TEXT, not BLOB"),
        ] {
            let insert = format!("delete from tokens; insert into tokens values ({row}, '')");
            application.execute(AssertSqlSafe(insert)).await.expect("the table takes all");
            let error = source.unspent(&euros(), None, 10).await.expect_err(row).to_string();
            assert!(error.contains(says), "{row}: {error}");
        }
        application.close().await.expect("it is open");
    }

    #[tokio::test]
    async fn tokens_stay_and_are_shared() {
        let folder = tempfile::tempdir().expect("there is room");
        let source = open(&folder).await;
        let tokens = [token("a", 5, Some(1)), token("b", 3, None)];
        source.insert(&euros(), &tokens, "genesis").await.expect("they are new");
        source.apply("t1", &euros(), &[id("b")], 9, &[]).await.expect("it is unspent");
        drop(source);
        let (source, other) = (open(&folder).await, open(&folder).await);
        assert_eq!(source.unspent(&euros(), None, 10).await.expect("it is there"), [token("a", 5, Some(1))]);
        source.apply("t1", &euros(), &[id("b")], 9, &[]).await.expect("it was applied");
        other
            .apply("t2", &euros(), &[id("a")], 9, &[(euros(), token("c", 5, None))])
            .await
            .expect("it is unspent");
        assert_eq!(names(&source.unspent(&euros(), None, 10).await.expect("it is there")), ["c"]);
    }

    /// Several processes that start at the same time make one file, and write in turn.
    #[tokio::test(flavor = "multi_thread")]
    async fn processes_share_a_file_from_its_first_moment() {
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("tokens");
        let mut processes = tokio::task::JoinSet::new();
        for n in 0..8 {
            let file = file.clone();
            processes.spawn(async move {
                let source = SqliteSource::open(file).await.expect("it can be made");
                for k in 0..5 {
                    let name = format!("{n}-{k}");
                    let outputs = [(euros(), token(&format!("{name}-change"), 1, None))];
                    source.insert(&euros(), &[token(&name, 2, None)], "genesis").await.expect("it is new");
                    source.apply(&name, &euros(), &[id(&name)], 1, &outputs).await.expect("it is unspent");
                }
            });
        }
        processes.join_all().await;
        let tokens: Vec<Token> = open(&folder).await.unspent(&euros(), None, 100).await.expect("it is there");
        assert_eq!(tokens.len(), 40);
        assert!(tokens.iter().all(|token| token.amount == 1), "{tokens:?}");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_is_named_by_the_operation() {
        let folder = tempfile::tempdir().expect("there is room");
        let error = SqliteSource::open(folder.path()).await.expect_err("it is a folder").to_string();
        assert!(error.contains("SQLite could not open the database"), "{error}");
        let source = open(&folder).await;
        let mut application = other_program(&folder.path().join("tokens")).await;
        application.execute("drop table tokens").await.expect("it is there");
        let error = source.still_unspent(&[id("a")]).await.expect_err("it is gone").to_string();
        assert!(error.contains("SQLite could not check which tokens are unspent"), "{error}");
        let error =
            source.apply("t1", &euros(), &[id("a")], 1, &[]).await.expect_err("it is gone").to_string();
        assert!(error.contains("SQLite could not lock the inputs"), "{error}");
    }
}

#[cfg(feature = "tokens-postgres")]
mod postgres {
    use geolock_recipes::selector::{PostgresSource, TokenSource as _};
    use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

    use super::{euros, id};
    use crate::postgres::PostgresServer;

    /// The application has made the table itself, without the checks of this package.
    #[tokio::test(flavor = "multi_thread")]
    async fn rows_that_cannot_be_are_named_and_a_server_that_is_down() {
        let Some(server) = PostgresServer::start().expect("it can start") else { return };
        let address = server.database("tokens").await.expect("it is new");
        let mut application = PgConnection::connect(&address).await.expect("it is there");
        let table = "create table tokens(id bytea primary key, wallet text, currency text, amount bigint, \
             home integer, created_by bytea)";
        application.execute(table).await.expect("it is new");
        // Replicas that start at the same time make the other tables once.
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let address = address.clone();
            opening.spawn(async move { PostgresSource::open(&address).await.expect("it is there") });
        }
        let source = opening.join_all().await.pop().expect("there are eight");
        for (row, says) in [
            ("'aa', 'alice', 'EUR', 0, null", "row aa of the table tokens has amount 0"),
            ("'aa', 'alice', 'EUR', -7, null", "row aa of the table tokens has amount -7"),
            ("'aa', 'alice', 'EUR', null, null", "row aa of the table tokens has no amount"),
            ("'aa', 'alice', 'EUR', 1, -1", "row aa of the table tokens has home -1"),
            ("'aa', 'alice', 'EUR', 1, 64", "row aa of the table tokens has home 64"),
            ("'', 'alice', 'EUR', 1, null", "row .. of the table tokens has an id of 0 bytes"),
            ("repeat('a', 901)::bytea, 'alice', 'EUR', 1, null", "has an id of 901 bytes"),
        ] {
            let insert = format!("delete from tokens; insert into tokens values ({row}, '')");
            application.execute(AssertSqlSafe(insert)).await.expect("the table takes all");
            let error = source.unspent(&euros(), None, 10).await.expect_err(row).to_string();
            assert!(error.contains(says), "{row}: {error}");
        }
        application.close().await.expect("it is open");
        drop(server);
        let error = source.unspent(&euros(), None, 10).await.expect_err("it is down").to_string();
        assert!(error.contains("PostgreSQL could not list the unspent tokens of a pool"), "{error}");
        let error =
            source.apply("t1", &euros(), &[id("a")], 1, &[]).await.expect_err("it is down").to_string();
        assert!(error.contains("PostgreSQL could not begin a transaction"), "{error}");
        let error = PostgresSource::open(&address).await.expect_err("it is down").to_string();
        assert!(error.contains("PostgreSQL could not open the database"), "{error}");
        let error = PostgresSource::open("here").await.expect_err("it is no address").to_string();
        assert!(error.contains("PostgreSQL could not understand the address"), "{error}");
    }
}
