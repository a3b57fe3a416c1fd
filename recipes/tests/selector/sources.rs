//! The databases over which payments run.

#[cfg(feature = "tokens-postgres")]
use geolock_recipes::selector::PostgresSource;
#[cfg(feature = "tokens-sqlite")]
use geolock_recipes::selector::SqliteSource;

/// Makes the tests of a story over databases.
#[macro_export]
macro_rules! over_databases {
    ($story:ident) => {
        mod $story {
            #[cfg(feature = "tokens-sqlite")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_sqlite() {
                let (_folder, source) = $crate::sources::sqlite().await;
                super::$story(source).await;
            }

            #[cfg(feature = "tokens-postgres")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_postgres() {
                if let Some((_server, source)) = $crate::sources::postgres().await {
                    super::$story(source).await;
                }
            }
        }
    };
}

#[cfg(feature = "tokens-sqlite")]
pub async fn sqlite() -> (tempfile::TempDir, SqliteSource) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = SqliteSource::open(folder.path().join("tokens")).await.expect("it can be made");
    (folder, source)
}

/// Returns `None`, and says so, where PostgreSQL is not installed.
#[cfg(feature = "tokens-postgres")]
pub async fn postgres() -> Option<(crate::postgres::PostgresServer, PostgresSource)> {
    let server = crate::postgres::PostgresServer::start().expect("it starts")?;
    let url = server.database("tokens").await.expect("it can be made");
    let source = PostgresSource::open(&url).await.expect("it answers");
    Some((server, source))
}
