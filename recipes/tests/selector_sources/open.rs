//! The interface of a source that the stories need.

use geolock_client::DcId;
use geolock_recipes::selector::{ApplyError, MemorySource, Pool, SourceError, Token, TokenId, TokenSource};

/// A source that can be written.
pub trait Source: TokenSource + Clone {
    fn insert(
        &self,
        pool: &Pool,
        tokens: &[Token],
        created_by: &str,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    fn balance(&self, currency: &str) -> impl Future<Output = Result<u64, SourceError>> + Send;

    fn apply(
        &self,
        tx: &str,
        pool: &Pool,
        inputs: &[TokenId],
        fence: u64,
        outputs: &[(Pool, Token)],
    ) -> impl Future<Output = Result<(), ApplyError>> + Send;
}

macro_rules! source {
    ($source:ty) => {
        impl Source for $source {
            async fn insert(&self, pool: &Pool, tokens: &[Token], by: &str) -> Result<(), SourceError> {
                <$source>::insert(self, pool, tokens, by).await
            }

            async fn balance(&self, currency: &str) -> Result<u64, SourceError> {
                <$source>::balance(self, currency).await
            }

            async fn apply(
                &self,
                tx: &str,
                pool: &Pool,
                inputs: &[TokenId],
                fence: u64,
                outputs: &[(Pool, Token)],
            ) -> Result<(), ApplyError> {
                <$source>::apply(self, tx, pool, inputs, fence, outputs).await
            }
        }
    };
}

source!(MemorySource);
#[cfg(feature = "tokens-sqlite")]
source!(geolock_recipes::selector::SqliteSource);
#[cfg(feature = "tokens-postgres")]
source!(geolock_recipes::selector::PostgresSource);

pub fn id(id: &str) -> TokenId {
    TokenId::new(id.to_owned()).expect("it is short")
}

pub fn token(name: &str, amount: u64, home: Option<u8>) -> Token {
    Token { id: id(name), amount, home: home.map(|home| DcId::new(home).expect("it is small")) }
}

/// The names of tokens.
pub fn names(tokens: &[Token]) -> Vec<String> {
    tokens.iter().map(|token| token.id.to_string()).collect()
}
