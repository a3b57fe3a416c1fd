//! Selection of tokens that no other payment has taken: any replica of a wallet service, in any datacenter,
//! selects unspent tokens of a pool that reach an amount. docs/recipes/selector.md explains it to users.
//!
//! | file | job |
//! |---|---|
//! | `source.rs` | the application's database |
//! | `memory.rs`, `sql/`, `apply.rs` | sources in memory and in SQL databases |
//! | `errors.rs`, `keys.rs`, `store.rs` | errors, names, reads and writes |
//! | `flight.rs`, `wait.rs` | a selection that is being made, and its request |
//! | `opened.rs` | a selection that was made |
//! | `describe.rs` | who holds and who waits for the locks of tokens |
//! | `query.rs`, `follow.rs` | queries, housekeeping, watches |
//! | `shared.rs` | what they share |

mod apply;
mod describe;
mod errors;
mod flight;
mod follow;
mod keys;
mod memory;
mod opened;
mod query;
mod shared;
mod source;
#[cfg(any(feature = "tokens-sqlite", feature = "tokens-postgres"))]
mod sql;
mod store;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use geolock_client::{Client, DcId, FencingToken, LockName, LostReason};
use tokio::sync::oneshot;

pub use crate::selector_state::{
    Backoff, HeldBy, Holder, Limit, MAX_AMOUNT, MAX_TOKEN_ID, MAX_TX, Pool, SelectorConfigError,
    SelectorOptions, Token, TokenError, TokenId, TxId, TxIdError,
};
pub use apply::ApplyError;
pub use errors::{ClientFailure, SelectError};
use flight::Flight;
use keys::Keys;
pub use memory::{Gate, MemorySource, Queries};
use opened::{Handle, Message};
use shared::Shared;
pub use source::{SourceError, TokenSource};
#[cfg(feature = "tokens-postgres")]
pub use sql::PostgresSource;
#[cfg(feature = "tokens-sqlite")]
pub use sql::SqliteSource;
#[cfg(any(feature = "tokens-sqlite", feature = "tokens-postgres"))]
pub use sql::{SqlError, SqlSource};
use store::{Store, Subject};

use crate::random::random;
use crate::selector_state::{Ask, Call, Stage};

/// Most tokens that one commit tells of.
const MAX_NEWS: usize = 500;

/// Selects tokens that no other payment has taken. Clones share one cache.
///
/// ```no_run
/// # use geolock_recipes::selector::{Pool, Token, TokenSelector, TokenSource, TxId, SelectorOptions};
/// # async fn example(client: geolock_client::Client, source: impl TokenSource, change: Vec<Token>)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let selector = TokenSelector::new(client, source, SelectorOptions::default())?;
/// let (tx, pool) = (TxId::new("payment-7")?, Pool::new("alice", "EUR"));
/// let picked = selector.select(&tx, &pool, 40).await?;
/// selector.reserve(&tx).await?; // before the ledger hears of it
/// let home = selector.home_for_change(&picked).await; // of the tokens in `change`
/// // submit to the ledger; one transaction of the database: picked.tokens() out, change in
/// selector.spent(&tx, &change).await?;
/// # Ok(())
/// # }
/// ```
pub struct TokenSelector<S: TokenSource> {
    shared: Arc<Shared<S>>,
    _owner: Arc<Owner<S>>,
}

/// Ends the tasks when the last clone is dropped.
struct Owner<S: TokenSource>(Arc<Shared<S>>);

impl<S: TokenSource> Drop for Owner<S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<S: TokenSource> Clone for TokenSelector<S> {
    fn clone(&self) -> TokenSelector<S> {
        TokenSelector { shared: Arc::clone(&self.shared), _owner: Arc::clone(&self._owner) }
    }
}

impl<S: TokenSource> TokenSelector<S> {
    /// Prepares a selector, with a cache of its own. Needs a Tokio runtime.
    pub fn new(client: Client, source: S, options: SelectorOptions) -> Result<Self, SelectorConfigError> {
        options.check(client.ttl())?;
        let keys = Keys::new(&options.space);
        let shared = Shared::new(Store { client, keys }, source, options, random());
        let weak = Arc::downgrade(&shared);
        shared.keep(tokio::spawn(follow::keys(weak.clone())).abort_handle());
        shared.keep(tokio::spawn(follow::locks(weak.clone())).abort_handle());
        shared.keep(tokio::spawn(query::keep_house(weak)).abort_handle());
        let owner = Arc::new(Owner(Arc::clone(&shared)));
        Ok(TokenSelector { shared, _owner: owner })
    }

    /// Selects tokens of the pool that reach the amount, and locks them: all at once, or none.
    ///
    /// The same transaction gets the same selection again, also concurrently, and at another replica once it
    /// is reserved. Dropping the future gives up, unless another caller waits for the transaction.
    pub async fn select(&self, tx: &TxId, pool: &Pool, amount: u64) -> Result<Selection, SelectError> {
        if amount == 0 {
            return Err(SelectError::Amount);
        }
        self.shared.store.keys.check(pool, tx)?;
        let ask = Ask { tx: tx.clone(), pool: pool.clone(), amount };
        let flight = {
            let mut state = self.shared.lock();
            if let Some(opened) = state.opened.get_mut(tx) {
                let (of, selection) = (Arc::clone(&opened.of), opened.attach());
                if let Some(selection) = selection {
                    check_same(tx, (&of.pool, of.amount), &ask)?;
                    return Ok(selection);
                }
            }
            match state.flights.get(tx).and_then(std::sync::Weak::upgrade) {
                Some(flight) => {
                    check_same(tx, (&flight.ask.pool, flight.ask.amount), &ask)?;
                    flight
                }
                None => {
                    let flight = Arc::new(Flight::begin(&self.shared, ask));
                    state.flights.insert(tx.clone(), Arc::downgrade(&flight));
                    flight
                }
            }
        };
        let outcome = flight.outcome().await;
        // Later callers begin again, or find what was opened.
        let mut state = self.shared.lock();
        if state.flights.get(tx).is_some_and(|known| known.as_ptr() == Arc::as_ptr(&flight)) {
            state.flights.remove(tx);
        }
        if outcome.is_err() {
            state.note_gone(tx.clone());
        }
        outcome
    }

    /// Reserves the tokens of the transaction: from then on no other transaction gets them, also if this
    /// replica dies, for [`SelectorOptions::reserve_for`], or for as long as its [`Selection`] is kept. Call
    /// it before the ledger hears of the transaction.
    pub async fn reserve(&self, tx: &TxId) -> Result<(), SelectError> {
        self.call(tx, Call::Reserve).await
    }

    /// The tokens of the transaction are spent, and `change` are new tokens of the pool. Returns once that is
    /// written. Works at any replica, once the transaction is reserved.
    ///
    /// A transaction that is not heard of within [`SelectorOptions::linger`] is [`SelectError::Unknown`].
    pub async fn spent(&self, tx: &TxId, change: &[Token]) -> Result<(), SelectError> {
        check_tokens(change)?;
        self.call(tx, Call::Spent(change.to_vec())).await
    }

    /// Gives the tokens of the transaction back. A transaction without tokens is no error. Works at any
    /// replica, once the transaction is reserved; for one that is unknown there it takes up to
    /// [`SelectorOptions::linger`], in which the reservation would have been heard of.
    pub async fn release(&self, tx: &TxId) -> Result<(), SelectError> {
        match self.call(tx, Call::Release).await {
            Err(SelectError::Unknown { .. }) => Ok(()),
            result => result,
        }
    }

    /// Returns the best home for change that this transaction makes: the datacenter whose selection has
    /// waited for longest for one of its tokens (of the first 8), else that of this replica, if it is known.
    ///
    /// A selection elsewhere gets change that is homed there as soon as it hears of it: after one one-way
    /// delay instead of three. It is advice, at the cost of one round trip to the server of this datacenter.
    pub async fn home_for_change(&self, picked: &Selection) -> Option<DcId> {
        let locks = describe::describe(&self.shared.store, picked.tokens()).await;
        describe::first_waiting(&locks).or_else(|| self.shared.lock().space.home())
    }

    /// Tells all replicas of new tokens that come from elsewhere. Without this they are found by the next
    /// query.
    pub async fn added(&self, pool: &Pool, tokens: &[Token]) -> Result<(), SelectError> {
        check_tokens(tokens)?;
        let tx = TxId::new("-").expect("it has one byte");
        self.shared.store.keys.check(pool, &tx)?;
        for some in tokens.chunks(MAX_NEWS) {
            self.shared.store.added(pool, some, &self.shared.options).await?;
            let change = crate::selector_state::Change::New(pool.clone(), some.to_vec());
            self.shared.change(|state, now| state.space.on_change(now, change));
        }
        Ok(())
    }

    /// Returns what this replica has selected and not yet spent or released.
    pub fn locked(&self) -> Vec<Locked> {
        let state = self.shared.lock();
        let opened = state.opened.values().filter(|opened| !opened.is_spent());
        let locked = opened.map(|opened| Locked {
            tx: opened.of.tx.clone(),
            pool: opened.of.pool.clone(),
            tokens: opened.of.tokens.clone(),
            is_reserved: matches!(opened.stage(), Stage::Reserved { .. }),
        });
        locked.collect()
    }

    /// Returns the counters of this replica.
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats()
    }

    /// Returns the latest keys that no selector can have written. Their tokens are not selected until the
    /// keys are removed.
    pub fn unreadable(&self) -> Vec<String> {
        self.shared.lock().unreadable().into_iter().collect()
    }

    /// Returns the lock of a token, to describe it or release it by force.
    pub fn lock_of(&self, token: &Token) -> LockName {
        self.shared.store.keys.lock(token)
    }

    async fn call(&self, tx: &TxId, call: Call) -> Result<(), SelectError> {
        let calls = self.shared.lock().opened.get(tx).map(opened::Opened::calls);
        let calls = match calls {
            Some(calls) => calls,
            None => {
                // After a crash, or of another replica. The handle is dropped: it is for this call only.
                let unknown = || SelectError::Unknown { tx: tx.clone() };
                if call == Call::Release && self.shared.lock().is_gone(tx) {
                    return Err(unknown());
                }
                let wait = self.shared.options.linger;
                let record = self.shared.store.record_within(tx, wait).await?.ok_or_else(unknown)?;
                let of = Subject::of_record(tx, &record).ok_or_else(unknown)?;
                let _selection = opened::open(&self.shared, of, opened::Begin::Recovered(record))?;
                self.shared.lock().opened.get(tx).map(opened::Opened::calls).ok_or(SelectError::Closed)?
            }
        };
        let (reply, answer) = oneshot::channel();
        let over = || SelectError::Unknown { tx: tx.clone() };
        calls.send(Message::Call(call, reply)).await.map_err(|_| over())?;
        answer.await.unwrap_or_else(|_| Err(over()))
    }
}

fn check_same(tx: &TxId, of: (&Pool, u64), ask: &Ask) -> Result<(), SelectError> {
    if of == (&ask.pool, ask.amount) {
        return Ok(());
    }
    Err(SelectError::OtherRequest { tx: tx.clone(), pool: of.0.clone(), amount: of.1 })
}

fn check_tokens(tokens: &[Token]) -> Result<(), SelectError> {
    let mut ids = std::collections::BTreeSet::new();
    for token in tokens {
        if !(1..=MAX_AMOUNT).contains(&token.amount) {
            return Err(TokenError::Amount { id: token.id.clone(), amount: token.amount }.into());
        }
        if !ids.insert(&token.id) {
            return Err(TokenError::Twice { id: token.id.clone() }.into());
        }
    }
    Ok(())
}

impl<S: TokenSource> fmt::Debug for TokenSelector<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSelector").field("space", &self.shared.options.space).finish_non_exhaustive()
    }
}

/// Tokens that a transaction has. Clones are handles of one selection.
///
/// Until it is reserved, dropping the last handle releases the tokens. A reservation is prolonged while there
/// is a handle, and after that lasts for [`SelectorOptions::reserve_for`].
#[derive(Clone)]
#[must_use = "the tokens are released when this is dropped before they are reserved"]
pub struct Selection {
    handle: Arc<Handle>,
}

impl Selection {
    /// Returns the transaction.
    pub fn tx(&self) -> &TxId {
        &self.handle.of.tx
    }

    /// Returns the tokens.
    pub fn tokens(&self) -> &[Token] {
        &self.handle.of.tokens
    }

    /// Returns the sum of the tokens: at least the amount that was asked.
    pub fn sum(&self) -> u128 {
        self.tokens().iter().map(|token| u128::from(token.amount)).sum()
    }

    /// Returns what is left of the sum.
    pub fn change(&self) -> u64 {
        let change = self.sum().saturating_sub(self.handle.of.amount.into());
        u64::try_from(change).unwrap_or(u64::MAX)
    }

    /// Returns the fencing token: above that of every earlier transaction that had one of the tokens. Pass
    /// it on with the payment; whoever applies it refuses one that is below the highest it has seen of a
    /// token.
    pub fn fence(&self) -> FencingToken {
        FencingToken(self.handle.seen.fence.load(Ordering::Relaxed))
    }

    /// Resolves when the locks of the tokens are lost. If they were not reserved by then, they are not this
    /// transaction's any more.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let mut lost = self.handle.seen.lost.subscribe();
        async move {
            match lost.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or(LostReason::Released),
                Err(_) => LostReason::Released,
            }
        }
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection")
            .field("tx", self.tx())
            .field("tokens", &self.tokens())
            .finish_non_exhaustive()
    }
}

/// Tokens that this replica has selected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Locked {
    /// The transaction.
    pub tx: TxId,
    /// Its pool.
    pub pool: Pool,
    /// Its tokens.
    pub tokens: Vec<Token>,
    /// They are reserved.
    pub is_reserved: bool,
}

/// Counters of a replica, since it began. Attempts per token that had an answer: (`granted` + `refused`) /
/// `spent`. Further `requests` were withdrawn before their answer, when other tokens became free, or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Selections that were begun.
    pub selections: u64,
    /// Requests for locks.
    pub requests: u64,
    /// Those that waited for tokens that others had, or that are elsewhere.
    pub waits: u64,
    /// Requests that were granted.
    pub granted: u64,
    /// Requests that were refused, or not granted in time.
    pub refused: u64,
    /// Locks that were granted.
    pub locks_granted: u64,
    /// Locks that were given back because their tokens were another transaction's.
    pub given_back: u64,
    /// Tokens that were spent.
    pub spent: u64,
    /// Queries of the source.
    pub queries: u64,
}
