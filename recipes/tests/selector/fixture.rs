//! Servers, replicas of a wallet service, and a table of tokens that refuses to spend one twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use geolock_client::{Client, DcId};
use geolock_recipes::selector::{
    Pool, SelectError, Selection, SelectorOptions, SourceError, Token, TokenId, TokenSelector, TokenSource,
    TxId,
};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

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
    Token { id: TokenId::new(id.to_owned()).expect("it is an id"), amount, home: DcId::new(home) }
}

/// Three datacenters.
pub struct Servers {
    pub playground: Playground,
    _folder: TempDir,
}

impl Servers {
    pub async fn start(wan: &str) -> Servers {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let playground = Playground::start(&folder.path().join("playground"), wan).await;
        Servers { playground: playground.expect("the servers start"), _folder: folder }
    }

    pub async fn client(&self, dc: u8) -> Client {
        within(connect(self.playground.base, &self.playground.tls(), dc, "wallet")).await.expect("it serves")
    }

    pub async fn replica(&self, dc: u8, table: &Table) -> Replica {
        self.replica_with(dc, table, SelectorOptions::default()).await
    }

    pub async fn replica_with(&self, dc: u8, table: &Table, options: SelectorOptions) -> Replica {
        let client = self.client(dc).await;
        let selector = TokenSelector::new(client.clone(), table.clone(), options).expect("they fit");
        Replica { dc, client, selector, table: table.clone() }
    }
}

/// A replica of the service.
#[derive(Clone)]
pub struct Replica {
    pub dc: u8,
    pub client: Client,
    pub selector: TokenSelector<Table>,
    pub table: Table,
}

impl Replica {
    pub async fn select(&self, id: &str, amount: u64) -> Result<Selection, SelectError> {
        within(self.selector.select(&tx(id), &pool(), amount)).await
    }

    /// Pays: the change is made here.
    pub async fn pay(&self, id: &str, amount: u64) -> Result<(), SelectError> {
        let picked = self.select(id, amount).await?;
        within(self.selector.reserve(&tx(id))).await?;
        let change = self.change(&picked, id);
        self.table.apply(&picked, &change);
        within(self.selector.spent(&tx(id), &change)).await
    }

    pub fn change(&self, picked: &Selection, id: &str) -> Vec<Token> {
        let change = picked.change();
        (change > 0).then(|| token(&format!("{id}-change"), change, self.dc)).into_iter().collect()
    }
}

#[derive(Default)]
struct Rows {
    unspent: BTreeMap<TokenId, Token>,
    fences: BTreeMap<TokenId, u64>,
    paid: BTreeMap<TokenId, String>,
    /// What a listing that lags has.
    old: Option<Vec<Token>>,
}

/// The table of tokens of one pool.
#[derive(Clone)]
pub struct Table {
    rows: Arc<Mutex<Rows>>,
    queries: Arc<AtomicUsize>,
    is_away: Arc<AtomicBool>,
    /// Queries answer while this is true.
    gate: Arc<watch::Sender<bool>>,
}

impl Table {
    pub fn new(tokens: impl IntoIterator<Item = Token>) -> Table {
        let unspent = tokens.into_iter().map(|token| (token.id.clone(), token)).collect();
        Table {
            rows: Arc::new(Mutex::new(Rows { unspent, ..Rows::default() })),
            queries: Arc::default(),
            is_away: Arc::default(),
            gate: Arc::new(watch::Sender::new(true)),
        }
    }

    pub fn equal(count: usize, amount: u64, home: impl Fn(usize) -> u8) -> Table {
        Table::new((0..count).map(|number| token(&format!("token-{number:04}"), amount, home(number))))
    }

    /// One transaction: inputs out, change in.
    pub fn apply(&self, picked: &Selection, change: &[Token]) {
        let mut rows = self.rows.lock().expect("nothing panics while it holds this");
        let (tx, fence) = (picked.tx().to_string(), picked.fence().0);
        for token in picked.tokens() {
            let id = &token.id;
            assert!(rows.unspent.remove(id).is_some(), "{id} is spent by {:?} and {tx}", rows.paid.get(id));
            let before = rows.fences.insert(id.clone(), fence).unwrap_or_default();
            assert!(before <= fence, "{id} was seen with fence {before}, and now {fence}");
            rows.paid.insert(id.clone(), tx.clone());
        }
        rows.unspent.extend(change.iter().map(|token| (token.id.clone(), token.clone())));
    }

    pub fn balance(&self) -> u64 {
        self.rows.lock().expect("nothing panics").unspent.values().map(|token| token.amount).sum()
    }

    pub fn payments(&self) -> usize {
        self.rows.lock().expect("nothing panics").paid.len()
    }

    pub fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }

    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// From now on listings are those of this moment.
    pub fn lag(&self) {
        let mut rows = self.rows.lock().expect("nothing panics");
        rows.old = Some(rows.unspent.values().cloned().collect());
    }

    pub fn set_open(&self, is_open: bool) {
        self.gate.send_replace(is_open);
    }
}

impl TokenSource for Table {
    async fn unspent(&self, _: &Pool, after: Option<&Token>, most: usize) -> Result<Vec<Token>, SourceError> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        let mut gate = self.gate.subscribe();
        gate.wait_for(|is_open| *is_open).await.expect("the table lives");
        if self.is_away.load(Ordering::SeqCst) {
            return Err(SourceError("the table is away".into()));
        }
        let rows = self.rows.lock().expect("nothing panics while it holds this");
        let mut all = rows.old.clone().unwrap_or_else(|| rows.unspent.values().cloned().collect());
        let order = |token: &Token| (std::cmp::Reverse(token.amount), token.id.clone());
        all.sort_by_key(order);
        let rest = all.into_iter().filter(|token| after.is_none_or(|after| order(after) < order(token)));
        Ok(rest.take(most).collect())
    }

    async fn still_unspent(&self, ids: &[TokenId]) -> Result<Vec<bool>, SourceError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(SourceError("the table is away".into()));
        }
        let rows = self.rows.lock().expect("nothing panics while it holds this");
        Ok(ids.iter().map(|id| rows.unspent.contains_key(id)).collect())
    }
}
