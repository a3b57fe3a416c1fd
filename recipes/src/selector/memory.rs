//! A source of tokens in memory, for tests and examples.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::apply::{ApplyError, Transaction, check_amount};
use super::source::{SourceError, TokenSource};
use crate::selector_state::{Pool, Token, TokenId};

/// A source of tokens in memory. All clones share the tokens, as replicas share a database.
///
/// A test can count its queries, and give it faults: [`set_unavailable`](MemorySource::set_unavailable),
/// [`set_lagging`](MemorySource::set_lagging) and [`close_gate`](MemorySource::close_gate).
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    shared: Arc<Shared>,
}

/// The queries that a [`MemorySource`] has begun to answer, also those that failed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Queries {
    /// Pages of unspent tokens.
    pub unspent: u64,
    /// Calls of `still_unspent`.
    pub still_unspent: u64,
    /// Calls of `apply`.
    pub apply: u64,
}

/// While it exists, all queries of a [`MemorySource`] wait. See [`MemorySource::close_gate`].
#[derive(Debug)]
#[must_use = "dropping it opens the gate"]
pub struct Gate {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Gates that exist.
    gates: watch::Sender<usize>,
    /// Queries that wait for them.
    waiting: watch::Sender<usize>,
}

/// The tokens of each pool, in the order of the pages.
type Pools = BTreeMap<Pool, BTreeMap<(Reverse<u64>, TokenId), Token>>;

#[derive(Debug, Default)]
struct State {
    pools: Pools,
    /// All unspent tokens.
    unspent: BTreeMap<TokenId, (Pool, u64)>,
    fences: BTreeMap<TokenId, u64>,
    /// The contents of the transactions that were applied, by their ids.
    applied: BTreeMap<Vec<u8>, [u8; 16]>,
    queries: Queries,
    unavailable: bool,
    /// The pools as they were when the listing began to lag.
    lagging: Option<Pools>,
}

#[derive(Debug, thiserror::Error)]
#[error("the test has made the source unavailable")]
struct Unavailable;

impl MemorySource {
    /// Returns a source without tokens.
    pub fn new() -> MemorySource {
        MemorySource::default()
    }

    /// Adds tokens to a pool: all, or none. The transaction that made them is not kept.
    pub async fn insert(
        &self,
        pool: &Pool,
        tokens: &[Token],
        _created_by: impl AsRef<[u8]>,
    ) -> Result<(), SourceError> {
        let mut state = self.state();
        state.check_available()?;
        let mut new = BTreeSet::new();
        for token in tokens {
            check_amount(token).map_err(boxed)?;
            if state.unspent.contains_key(&token.id) || !new.insert(&token.id) {
                return Err(boxed(ApplyError::Exists { id: token.id.clone() }));
            }
        }
        tokens.iter().for_each(|token| state.add(pool, token));
        Ok(())
    }

    /// Applies a transaction: its inputs, all of one pool, are spent, and its outputs are added. Both happen,
    /// or neither. `fence` is that of the selection; a transaction with a fence below the one under which an
    /// input was spent is refused. Applying a transaction again, by its id, changes nothing and succeeds.
    pub async fn apply(
        &self,
        tx: impl AsRef<[u8]>,
        pool: &Pool,
        inputs: &[TokenId],
        fence: u64,
        outputs: &[(Pool, Token)],
    ) -> Result<(), ApplyError> {
        let mut state = self.state();
        state.queries.apply += 1;
        state.check_available()?;
        state.apply(&Transaction { id: tx.as_ref(), pool, inputs, fence, outputs })
    }

    /// Returns the sum of the unspent tokens of all wallets in a currency.
    pub async fn balance(&self, currency: &str) -> Result<u64, SourceError> {
        let state = self.state();
        state.check_available()?;
        let of_currency = state.unspent.values().filter(|(pool, _)| pool.currency == currency);
        Ok(of_currency.fold(0, |sum, (_, amount)| sum.saturating_add(*amount)))
    }

    /// Returns the queries that all clones were asked so far.
    pub fn queries(&self) -> Queries {
        self.state().queries
    }

    /// Makes all calls fail, or ends that.
    pub fn set_unavailable(&self, unavailable: bool) {
        self.state().unavailable = unavailable;
    }

    /// Makes the pages of unspent tokens lag, or ends that. While they lag, they are as they were when this
    /// was called, with tokens that were spent meanwhile and without new ones. `still_unspent` does not lag.
    pub fn set_lagging(&self, lagging: bool) {
        let mut state = self.state();
        state.lagging = lagging.then(|| state.pools.clone());
    }

    /// Makes all later queries wait, until the gate is [opened](Gate::open) or dropped.
    pub fn close_gate(&self) -> Gate {
        self.shared.gates.send_modify(|gates| *gates += 1);
        Gate { shared: Arc::clone(&self.shared) }
    }

    async fn pass_gate(&self) {
        let mut gates = self.shared.gates.subscribe();
        if *gates.borrow() == 0 {
            return;
        }
        let _waits = Waits::begin(&self.shared);
        // The source has the sender.
        let _ = gates.wait_for(|gates| *gates == 0).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No panic leaves a change half made: all are checked before.
        self.shared.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl TokenSource for MemorySource {
    async fn unspent(
        &self,
        pool: &Pool,
        after: Option<&Token>,
        most: usize,
    ) -> Result<Vec<Token>, SourceError> {
        self.state().queries.unspent += 1;
        self.pass_gate().await;
        let state = self.state();
        state.check_available()?;
        let Some(tokens) = state.lagging.as_ref().unwrap_or(&state.pools).get(pool) else {
            return Ok(Vec::new());
        };
        let first = after.map_or(Bound::Unbounded, |after| Bound::Excluded(place(after)));
        Ok(tokens.range((first, Bound::Unbounded)).map(|(_, token)| token.clone()).take(most).collect())
    }

    async fn still_unspent(&self, ids: &[TokenId]) -> Result<Vec<bool>, SourceError> {
        self.state().queries.still_unspent += 1;
        self.pass_gate().await;
        let state = self.state();
        state.check_available()?;
        Ok(ids.iter().map(|id| state.unspent.contains_key(id)).collect())
    }
}

impl State {
    fn check_available(&self) -> Result<(), SourceError> {
        if self.unavailable { Err(boxed(Unavailable)) } else { Ok(()) }
    }

    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError> {
        let content = transaction.content();
        match self.applied.get(transaction.id) {
            Some(applied) if *applied == content => return Ok(()),
            Some(_) => return Err(transaction.other_content()),
            None => {}
        }
        transaction.check()?;
        let of_pool = |id: &&TokenId| self.unspent.get(*id).is_some_and(|(pool, _)| pool == transaction.pool);
        let unspent = transaction.inputs.iter().filter(of_pool).cloned().collect();
        transaction.decide(&unspent, &self.fences)?;
        if let Some((_, output)) =
            transaction.outputs.iter().find(|(_, token)| self.unspent.contains_key(&token.id))
        {
            return Err(ApplyError::Exists { id: output.id.clone() });
        }
        for id in transaction.inputs {
            self.remove(id);
            self.fences.insert(id.clone(), transaction.fence);
        }
        transaction.outputs.iter().for_each(|(pool, token)| self.add(pool, token));
        self.applied.insert(transaction.id.to_owned(), content);
        Ok(())
    }

    fn add(&mut self, pool: &Pool, token: &Token) {
        self.unspent.insert(token.id.clone(), (pool.clone(), token.amount));
        self.pools.entry(pool.clone()).or_default().insert(place(token), token.clone());
    }

    fn remove(&mut self, id: &TokenId) {
        if let Some((pool, amount)) = self.unspent.remove(id)
            && let Some(tokens) = self.pools.get_mut(&pool)
        {
            tokens.remove(&(Reverse(amount), id.clone()));
        }
    }
}

impl Gate {
    /// Lets the queries go on that wait, and all later ones.
    pub fn open(self) {}

    /// Returns when so many queries wait, or more.
    pub async fn waiting(&self, queries: usize) {
        // The gate has the sender.
        let _ = self.shared.waiting.subscribe().wait_for(|waiting| *waiting >= queries).await;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.gates.send_modify(|gates| *gates -= 1);
    }
}

/// A query that waits, also if its caller gives it up.
struct Waits<'a>(&'a Shared);

impl<'a> Waits<'a> {
    fn begin(shared: &'a Shared) -> Waits<'a> {
        shared.waiting.send_modify(|waiting| *waiting += 1);
        Waits(shared)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

/// The place of a token in the pages of its pool.
fn place(token: &Token) -> (Reverse<u64>, TokenId) {
    (Reverse(token.amount), token.id.clone())
}

fn boxed(error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
    SourceError::new(error)
}
