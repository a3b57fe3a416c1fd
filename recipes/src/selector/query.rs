//! Queries of the source, and the housekeeping.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::opened::Message;
use super::shared::{Shared, count};
use super::{MAX_AMOUNT, Pool, SelectError, Token, TokenError, TokenId, TokenSource, TxId};

/// Most tokens of a page.
const PAGE: usize = 1_000;
/// Bounds of the pause between rounds of the housekeeping.
const ROUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Reads a pool, and passes the listing on.
pub(super) async fn run<S: TokenSource>(shared: Arc<Shared<S>>, pool: Pool) {
    count(&shared.counters.queries, 1);
    let mut query = Query { shared, pool, outcome: Err(SelectError::Closed) };
    let listing = timeout(query.shared.options.wait, list(&*query.shared, &query.pool)).await;
    query.outcome = listing.unwrap_or(Err(SelectError::Timeout));
}

/// A query that is under way. It has an end, even if the source panics.
struct Query<S: TokenSource> {
    shared: Arc<Shared<S>>,
    pool: Pool,
    outcome: Result<(Vec<Token>, bool), SelectError>,
}

impl<S: TokenSource> Drop for Query<S> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Err(SelectError::Closed));
        self.shared.change(|state, _| match outcome {
            Ok((tokens, is_cut)) => {
                state.failures.remove(&self.pool);
                state.space.on_listing(&self.pool, tokens, is_cut);
            }
            Err(error) => {
                state.failures.insert(self.pool.clone(), error);
                state.space.on_query_failed(&self.pool);
            }
        });
    }
}

/// Returns the tokens of a pool, and true if there may be more than are examined.
async fn list<S: TokenSource>(shared: &Shared<S>, pool: &Pool) -> Result<(Vec<Token>, bool), SelectError> {
    let most = shared.options.max_examined;
    let mut all: Vec<Token> = Vec::new();
    let mut ids: BTreeSet<TokenId> = BTreeSet::new();
    loop {
        let page = PAGE.min(most - all.len());
        let read = shared.source.unspent(pool, all.last(), page).await;
        let read = read.map_err(|error| SelectError::SourceUnavailable(Arc::new(error)))?;
        let is_last = read.len() < page;
        for token in read {
            if !(1..=MAX_AMOUNT).contains(&token.amount) {
                return Err(TokenError::Amount { id: token.id, amount: token.amount }.into());
            }
            if !ids.insert(token.id.clone()) {
                return Err(TokenError::Twice { id: token.id }.into());
            }
            all.push(token);
        }
        if is_last || all.len() >= most {
            all.truncate(most);
            return Ok((all, !is_last));
        }
    }
}

/// Gives back what the source says is spent, and drops caches that nobody uses.
pub(super) async fn keep_house<S: TokenSource>(shared: Weak<Shared<S>>) {
    let mut suspects: BTreeMap<TxId, u32> = BTreeMap::new();
    loop {
        let Some(pause) = shared.upgrade().map(|it| (it.options.reserve_for / 6).clamp(ROUNDS.0, ROUNDS.1))
        else {
            return;
        };
        sleep(pause).await;
        let Some(shared) = shared.upgrade() else { return };
        let opened: Vec<(TxId, Vec<TokenId>)> = shared.step(|state, now| {
            state.space.drop_unused(now);
            state.failures.retain(|pool, _| state.space.is_cached(pool));
            state.flights.retain(|_, flight| flight.strong_count() > 0);
            let is_settled = |tx: &TxId| !state.opened[tx].is_spent();
            state
                .opened
                .keys()
                .filter(|tx| is_settled(tx))
                .map(|tx| (tx.clone(), state.opened[tx].ids()))
                .collect()
        });
        let mut denied: BTreeMap<TxId, u32> = BTreeMap::new();
        for (tx, ids) in opened {
            // A source that is away denies nothing.
            let Ok(unspent) = shared.source.still_unspent(&ids).await else { continue };
            if unspent.contains(&false) {
                let rounds = suspects.get(&tx).copied().unwrap_or_default() + 1;
                // At first the application may be about to say so itself.
                if rounds > 1
                    && let Some(opened) = shared.lock().opened.get(&tx)
                {
                    opened.tell(Message::Denied);
                }
                denied.insert(tx, rounds);
            }
        }
        suspects = denied;
    }
}
