//! The plans of the statements: no page reads more of the table than two pages. Those may be sorted.

use super::dialect::Dialect;

fn statements<D: Dialect>() -> [(&'static str, &'static str); 2] {
    [("first_page", D::STATEMENTS.first_page), ("next_page", D::STATEMENTS.next_page)]
}

#[cfg(feature = "tokens-sqlite")]
#[tokio::test]
async fn sqlite_reads_pages_from_the_index() {
    use super::SqliteSource;
    use super::sqlite::Sqlite;
    use sqlx::{AssertSqlSafe, Row as _};

    let folder = tempfile::tempdir().expect("there is room");
    let source = SqliteSource::open(folder.path().join("tokens")).await.expect("it can be made");
    for (name, statement) in statements::<Sqlite>() {
        let explain = sqlx::query(AssertSqlSafe(format!("explain query plan {statement}")));
        let rows = explain.fetch_all(&source.readers).await.expect("it is a statement");
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        let uses = "SEARCH tokens USING COVERING INDEX tokens_by_amount (wallet=? AND currency=?";
        let of_table = plan.iter().filter(|step| step.contains(" tokens")).count();
        assert!(of_table > 0, "{name}: {plan:#?}");
        assert_eq!(of_table, plan.iter().filter(|step| step.starts_with(uses)).count(), "{name}: {plan:#?}");
        let sorts = |steps: &[String]| steps[0].starts_with(uses) && steps[1].contains("TEMP B-TREE");
        assert!(!plan.windows(2).any(sorts), "{name}: {plan:#?}");
    }
}

/// A transaction that was applied is on disk.
#[cfg(feature = "tokens-sqlite")]
#[tokio::test]
async fn sqlite_writes_to_disk() {
    use super::SqliteSource;

    let folder = tempfile::tempdir().expect("there is room");
    let source = SqliteSource::open(folder.path().join("tokens")).await.expect("it can be made");
    let mode: String =
        sqlx::query_scalar("pragma journal_mode").fetch_one(&source.writers).await.expect("it has one");
    let synchronous: i64 =
        sqlx::query_scalar("pragma synchronous").fetch_one(&source.writers).await.expect("it has one");
    assert_eq!((mode.as_str(), synchronous), ("wal", 2));
}

/// Statements with lists of ids look each of them up.
#[cfg(feature = "tokens-sqlite")]
#[tokio::test]
async fn sqlite_looks_ids_up() {
    use super::SqliteSource;
    use super::sqlite::Sqlite;
    use sqlx::{AssertSqlSafe, Row as _};

    let folder = tempfile::tempdir().expect("there is room");
    let source = SqliteSource::open(folder.path().join("tokens")).await.expect("it can be made");
    let statements = Sqlite::STATEMENTS;
    for statement in [statements.unspent, statements.lock, statements.fences, statements.delete] {
        let explain = sqlx::query(AssertSqlSafe(format!("explain query plan {statement}")));
        let rows = explain.fetch_all(&source.readers).await.expect("it is a statement");
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        assert!(plan[0].starts_with("SEARCH ") && plan[0].ends_with("(id=?)"), "{statement}: {plan:#?}");
    }
}

/// The plan tells how many rows each step had.
#[cfg(feature = "tokens-postgres")]
#[tokio::test]
async fn postgres_reads_pages_from_the_index() {
    use super::PostgresSource;
    use super::postgres::Postgres;
    use sqlx::{AssertSqlSafe, Executor as _, Row as _};

    let Some(server) = server::PostgresServer::start().expect("it can start") else { return };
    let address = server.database("plans").await.expect("it is new");
    let source = PostgresSource::open(&address).await.expect("it is there");
    // Some pools, of 20 000 tokens each, most of them of one amount.
    let fill = "insert into tokens(id, wallet, currency, amount, home, created_by) \
        select decode(md5(n::text), 'hex'), 'wallet-' || n % 3, 'EUR', \
            case when n % 10 < 8 then 5 else n end, null, '' from generate_series(1, 60000) as n";
    source.writers.execute(fill).await.expect("they are new");
    source.writers.execute("vacuum analyze tokens").await.expect("it is a table");
    for (name, statement) in statements::<Postgres>() {
        let explain = sqlx::query(AssertSqlSafe(format!("explain (analyze, timing off) {statement}")));
        let explain = explain.bind("wallet-1").bind("EUR");
        let explain = match name {
            "first_page" => explain.bind(100_i64),
            _ => explain.bind(5_i64).bind(&[0x80_u8][..]).bind(100_i64),
        };
        let rows = explain.fetch_all(&source.readers).await.expect("it is a statement");
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        let scans: Vec<&str> = plan.lines().filter(|step| step.contains(" on tokens")).collect();
        assert!(!scans.is_empty(), "{name}:\n{plan}");
        for scan in scans {
            assert!(scan.contains("Index Only Scan using tokens_by_amount"), "{name}:\n{plan}");
            let rows = scan.split_once("actual rows=").expect("it was run").1;
            let rows: u32 = rows.split(' ').next().expect("there is one").parse().expect("it is a number");
            assert!(rows <= 100, "{name}:\n{plan}");
        }
        assert!(!plan.contains("Rows Removed"), "{name}:\n{plan}");
    }
}

#[cfg(feature = "tokens-postgres")]
#[path = "../../../tests/support/postgres.rs"]
mod server;
