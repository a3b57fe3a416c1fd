//! Servers, and replicas of a wallet service.

use std::time::Duration;

use geolock_client::{AdminClient, Client, ClientConfig, ClientTls};
use geolock_recipes::selector::{
    MemorySource, Pool, SelectError, Selection, SelectorOptions, Token, TokenId, TokenSelector, TokenSource,
    TxId,
};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::open::Source;
use crate::playground::{Playground, connect};

/// The end of everything that a test waits for.
const HANGS: Duration = Duration::from_secs(120);

/// Waits for a future that has to end.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(HANGS, future).await.expect("it ends")
}

pub fn tx(id: impl Into<String>) -> TxId {
    TxId::new(id).expect("it is an id")
}

pub fn pool() -> Pool {
    Pool::new("ann", "EUR")
}

pub fn token(id: &str, amount: u64, home: u8) -> Token {
    crate::open::token(id, amount, Some(home))
}

/// Returns equal tokens, with homes in turn.
pub fn equal(count: u8, amount: u64) -> Vec<Token> {
    (0..count).map(|number| token(&format!("token-{number:03}"), amount, number % 3)).collect()
}

pub fn options(change: impl FnOnce(&mut SelectorOptions)) -> SelectorOptions {
    let mut options = SelectorOptions::default();
    change(&mut options);
    options
}

/// Puts tokens into a source.
pub async fn filled<S: Source>(source: S, tokens: &[Token]) -> S {
    source.insert(&pool(), tokens, "mint").await.expect("they are new");
    source
}

pub async fn in_memory(tokens: &[Token]) -> MemorySource {
    filled(MemorySource::new(), tokens).await
}

pub async fn balance(source: &impl TokenSource) -> u64 {
    let all = source.unspent(&pool(), None, 1_000).await.expect("it answers");
    all.iter().map(|token| token.amount).sum()
}

/// Three datacenters.
pub struct Servers {
    pub playground: Playground,
    _folder: TempDir,
}

impl Servers {
    pub async fn start() -> Servers {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let playground = Playground::start(&folder.path().join("playground"), "zero").await;
        Servers { playground: playground.expect("the servers start"), _folder: folder }
    }

    pub async fn client(&self, dc: u8) -> Client {
        within(connect(self.playground.base, &self.playground.tls(), dc, "wallet")).await.expect("it serves")
    }

    pub async fn operator(&self, dc: u8) -> AdminClient {
        let tls = ClientTls::from_dir(self.playground.tls()).expect("it has certificates");
        let endpoint = format!("127.0.0.1:{}", self.playground.base + 10 * u16::from(dc));
        AdminClient::connect(ClientConfig::new([endpoint], tls)).await.expect("it serves")
    }

    pub async fn replica<S: Source>(&self, dc: u8, source: &S) -> Replica<S> {
        self.replica_with(dc, source, SelectorOptions::default()).await
    }

    pub async fn replica_with<S: Source>(&self, dc: u8, source: &S, options: SelectorOptions) -> Replica<S> {
        let client = self.client(dc).await;
        let selector = TokenSelector::new(client.clone(), source.clone(), options).expect("they fit");
        Replica { dc, client, selector, source: source.clone(), pool: pool() }
    }

    /// Returns one in each datacenter.
    pub async fn replicas<S: Source>(&self, source: &S) -> Vec<Replica<S>> {
        let mut all = Vec::new();
        for dc in 0..3 {
            all.push(self.replica(dc, source).await);
        }
        all
    }
}

/// A replica of the service.
#[derive(Clone)]
pub struct Replica<S: Source> {
    pub dc: u8,
    pub client: Client,
    pub selector: TokenSelector<S>,
    pub source: S,
    pub pool: Pool,
}

impl<S: Source> Replica<S> {
    pub async fn select(&self, id: &str, amount: u64) -> Result<Selection, SelectError> {
        within(self.selector.select(&tx(id), &self.pool, amount)).await
    }

    /// Pays: the change is made here.
    pub async fn pay(&self, id: &str, amount: u64) -> Result<(), SelectError> {
        let picked = self.select(id, amount).await?;
        within(self.selector.reserve(&tx(id))).await?;
        let change = self.apply(&picked).await;
        within(self.selector.spent(&tx(id), &change)).await
    }

    /// Does as the application does when the ledger has the payment. Fails if a token is spent.
    pub async fn apply(&self, picked: &Selection) -> Vec<Token> {
        let name = format!("{}-change", picked.tx());
        let change = (picked.change() > 0).then(|| token(&name, picked.change(), self.dc));
        let change: Vec<Token> = change.into_iter().collect();
        let inputs: Vec<TokenId> = picked.tokens().iter().map(|token| token.id.clone()).collect();
        let outputs: Vec<_> = change.iter().map(|token| (self.pool.clone(), token.clone())).collect();
        let fence = picked.fence().0;
        let applied = self.source.apply(picked.tx().as_str(), &self.pool, &inputs, fence, &outputs);
        within(applied).await.expect("its tokens are unspent");
        change
    }

    /// Ends at once: the lease is closed, and with it all its locks.
    pub async fn die(self) {
        drop(self.selector);
        within(self.client.close()).await.expect("the server is there");
    }
}
