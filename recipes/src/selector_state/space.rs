//! Everything that a replica knows of the tokens of its space: marks, holders in its datacenter, locks that
//! are away from home, its own claims, needs of others, and the caches of its pools.
//!
//! All of it is advice about what is worth an attempt. That no two transactions have one token follows from
//! the locks, and from the marks that are read under them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use geolock_client::{DcId, RequestId};

use super::options::SelectorOptions;
use super::pool::{Cache, Freshness, Status};
use super::record::{Mark, MarkState, Need, TxId};
use super::verdict::{HeldBy, Holder};
use crate::selector_state::token::{Pool, Token, TokenId};

/// How long a need counts, if its end is not heard of. It is renewed more often.
pub(crate) const NEED_LASTS: Duration = Duration::from_secs(10);
/// A cache that nobody uses for so long is dropped.
const POOL_LASTS: Duration = Duration::from_secs(60);
/// Locks away from home that are remembered. More are taken to be at home, which costs an attempt.
const MAX_AWAY: usize = 100_000;
/// Most holders that an error lists.
const MAX_TOLD: usize = 100;

/// A change of the keys of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Marked(TokenId, Mark),
    /// Its mark cannot be read.
    Unreadable(TokenId),
    Unmarked(TokenId),
    New(Pool, Vec<Token>),
    Needed(Pool, TxId, Need),
    NoNeed(Pool, TxId),
}

#[derive(Clone, Debug)]
struct Marked {
    /// `None`: it cannot be read.
    mark: Option<Mark>,
    seen: Duration,
}

/// The knowledge of a replica.
#[derive(Debug)]
pub(crate) struct Space {
    seed: u64,
    freshness: Freshness,
    reserve_for: Duration,
    /// A mark that was not heard of for so long has ended unheard.
    marks_last: Duration,
    /// The datacenter of the client, once it is known.
    me: Option<DcId>,
    pools: BTreeMap<Pool, Cache>,
    /// Pools that may want a query.
    touched: Vec<Pool>,
    /// The pool of each listed token.
    index: BTreeMap<TokenId, Arc<Pool>>,
    marks: BTreeMap<TokenId, Marked>,
    /// The number of marks of each transaction.
    marked_by: BTreeMap<TxId, usize>,
    holders: BTreeMap<TokenId, (RequestId, String)>,
    away: BTreeMap<TokenId, DcId>,
    /// Tokens that a selection of this replica has, or is about to ask for.
    claims: BTreeMap<TokenId, TxId>,
    /// The number of tokens that selections of this replica have, by pool.
    locked: BTreeMap<Pool, usize>,
    needs: BTreeMap<(Pool, TxId), (Need, Duration)>,
}

impl Space {
    /// `seed`: for the order of equal tokens, another one in each replica.
    pub fn new(options: &SelectorOptions, seed: u64) -> Space {
        Space {
            seed,
            freshness: Freshness { lasts: options.freshness, soft_after: options.soft_after },
            reserve_for: options.reserve_for,
            marks_last: 2 * options.reserve_for.max(options.spent_keep),
            me: None,
            pools: BTreeMap::new(),
            touched: Vec::new(),
            index: BTreeMap::new(),
            marks: BTreeMap::new(),
            marked_by: BTreeMap::new(),
            holders: BTreeMap::new(),
            away: BTreeMap::new(),
            claims: BTreeMap::new(),
            locked: BTreeMap::new(),
            needs: BTreeMap::new(),
        }
    }

    /// Returns the cache of a pool, a new one if there is none.
    pub fn pool(&mut self, pool: &Pool) -> &mut Cache {
        if self.touched.last() != Some(pool) {
            self.touched.push(pool.clone());
        }
        if !self.pools.contains_key(pool) {
            self.pools.insert(pool.clone(), Cache::new(self.seed, self.freshness));
        }
        self.pools.get_mut(pool).expect("it was just made")
    }

    /// Returns true if the pool has a cache.
    pub fn is_cached(&self, pool: &Pool) -> bool {
        self.pools.contains_key(pool)
    }

    /// Returns the pools whose queries are to begin now.
    pub fn begin_queries(&mut self, now: Duration) -> Vec<Pool> {
        let touched = std::mem::take(&mut self.touched).into_iter();
        touched.filter(|pool| self.pools.get_mut(pool).is_some_and(|cache| cache.begin(now))).collect()
    }

    /// A query has answered.
    pub fn on_listing(&mut self, pool: &Pool, tokens: Vec<Token>, is_cut: bool) {
        // The mark wins.
        let listed = tokens.into_iter().filter(|token| !self.is_spent(&token.id));
        let listed: Vec<(Token, Status)> = listed.map(|token| (token.clone(), self.status(&token))).collect();
        let of = Arc::new(pool.clone());
        for (token, _) in &listed {
            if !self.index.contains_key(&token.id) {
                self.index.insert(token.id.clone(), Arc::clone(&of));
            }
        }
        for id in self.pool(pool).on_listing(listed, is_cut) {
            self.index.remove(&id);
        }
    }

    pub fn on_query_failed(&mut self, pool: &Pool) {
        self.pool(pool).on_failed();
    }

    /// Drops the caches that nobody uses.
    pub fn drop_unused(&mut self, now: Duration) {
        self.pools.retain(|_, cache| cache.used_at() + POOL_LASTS > now);
        let Space { pools, index, .. } = self;
        index.retain(|_, pool| pools.contains_key(pool));
        let over: Vec<TokenId> = (self.marks.iter())
            .filter(|(_, marked)| marked.seen + self.marks_last <= now)
            .map(|(id, _)| id.clone())
            .collect();
        over.into_iter().for_each(|id| self.on_change(now, Change::Unmarked(id)));
        self.needs.retain(|_, (_, seen)| *seen + 2 * NEED_LASTS > now);
    }

    /// Returns the datacenter of the client, if it is known.
    pub fn home(&self) -> Option<DcId> {
        self.me
    }

    /// The client has a datacenter, or another one.
    pub fn on_home(&mut self, me: Option<DcId>) {
        if self.me != me {
            self.me = me;
            self.look_at_all();
        }
    }

    /// Everything that was heard of keys may have changed.
    pub fn forget_keys(&mut self) {
        self.marks.clear();
        self.marked_by.clear();
        self.needs.clear();
        self.look_at_all();
    }

    /// Everything that was heard of holders may have changed.
    pub fn forget_holders(&mut self) {
        self.holders.clear();
        self.look_at_all();
    }

    fn set_mark(&mut self, id: &TokenId, marked: Option<Marked>) {
        let by = |marked: &Marked| marked.mark.as_ref().map(|mark| mark.tx.clone());
        if let Some(tx) = marked.as_ref().and_then(by) {
            *self.marked_by.entry(tx).or_default() += 1;
        }
        let before = match marked {
            Some(marked) => self.marks.insert(id.clone(), marked),
            None => self.marks.remove(id),
        };
        if let Some(tx) = before.as_ref().and_then(by)
            && let Some(count) = self.marked_by.get_mut(&tx)
        {
            *count -= 1;
            if *count == 0 {
                self.marked_by.remove(&tx);
            }
        }
    }

    /// Returns true if a token has a mark of this transaction.
    pub fn has_mark_of(&self, tx: &TxId) -> bool {
        self.marked_by.contains_key(tx)
    }

    pub fn on_change(&mut self, now: Duration, change: Change) {
        match change {
            Change::Marked(id, mark) => {
                let is_spent = mark.state == MarkState::Spent;
                self.set_mark(&id, Some(Marked { mark: Some(mark), seen: now }));
                match is_spent {
                    true => self.unlist(&id),
                    false => self.look_at(&id),
                }
            }
            Change::Unreadable(id) => {
                self.set_mark(&id, Some(Marked { mark: None, seen: now }));
                self.look_at(&id);
            }
            Change::Unmarked(id) => {
                self.set_mark(&id, None);
                self.look_at(&id);
            }
            Change::New(pool, tokens) => {
                // A pool that nobody uses is read when it is used.
                if self.pools.contains_key(&pool) {
                    tokens.into_iter().for_each(|token| self.on_new(now, &pool, token));
                }
            }
            Change::Needed(pool, tx, need) => drop(self.needs.insert((pool, tx), (need, now))),
            Change::NoNeed(pool, tx) => drop(self.needs.remove(&(pool, tx))),
        }
    }

    fn on_new(&mut self, now: Duration, pool: &Pool, token: Token) {
        if self.is_spent(&token.id) {
            return;
        }
        let status = self.status(&token);
        self.index.insert(token.id.clone(), Arc::new(pool.clone()));
        self.pool(pool).insert(token, status, Some(now));
    }

    fn unlist(&mut self, id: &TokenId) {
        self.away.remove(id);
        if let Some(pool) = self.index.remove(id)
            && let Some(cache) = self.pools.get_mut(&pool)
        {
            cache.remove(id);
        }
    }

    /// A request of this datacenter has the locks of these tokens.
    pub fn on_granted(&mut self, request: RequestId, label: &str, ids: Vec<TokenId>) {
        for id in ids {
            self.holders.insert(id.clone(), (request, label.to_owned()));
            // A lock without a home stays where it was used.
            if let (Some(me), Some(None)) = (self.me, self.token(&id).map(|token| token.home)) {
                self.put_away(&id, me);
            }
            self.look_at(&id);
        }
    }

    pub fn on_released(&mut self, request: RequestId, ids: Vec<TokenId>) {
        for id in ids {
            if self.holders.get(&id).is_some_and(|(holder, _)| *holder == request) {
                self.holders.remove(&id);
                self.look_at(&id);
            }
        }
    }

    /// Parts of the lock of a token have moved. `home`: that of the lock.
    pub fn on_moved(&mut self, id: &TokenId, home: Option<DcId>, to: DcId) {
        match home == Some(to) {
            true => drop(self.away.remove(id)),
            false => self.put_away(id, to),
        }
        self.look_at(id);
    }

    fn put_away(&mut self, id: &TokenId, to: DcId) {
        if self.away.len() >= MAX_AWAY {
            self.away.clear();
        }
        self.away.insert(id.clone(), to);
    }

    /// A selection of this replica is about to ask for these tokens, or has them.
    pub fn claim(&mut self, tx: &TxId, ids: impl IntoIterator<Item = TokenId>) {
        for id in ids {
            self.claims.insert(id.clone(), tx.clone());
            self.look_at(&id);
        }
    }

    /// The selection does not have them any more.
    pub fn unclaim(&mut self, tx: &TxId, ids: impl IntoIterator<Item = TokenId>) {
        for id in ids {
            if self.claims.get(&id) == Some(tx) {
                self.claims.remove(&id);
                self.look_at(&id);
            }
        }
    }

    /// Counts tokens that selections of this replica have.
    pub fn count_locked(&mut self, pool: &Pool, more: usize, fewer: usize) {
        let count = self.locked.entry(pool.clone()).or_default();
        *count = (*count + more).saturating_sub(fewer);
        if *count == 0 {
            self.locked.remove(pool);
        }
    }

    pub fn locked(&self, pool: &Pool) -> usize {
        self.locked.get(pool).copied().unwrap_or_default()
    }

    /// Returns true if another selection has waited for so long that it goes first.
    pub fn has_need(&self, now: Duration, pool: &Pool, tx: &TxId) -> bool {
        self.first_need(now, pool, tx).is_some()
    }

    fn first_need(&self, now: Duration, pool: &Pool, tx: &TxId) -> Option<&TxId> {
        let counts = |seen: Duration| seen + NEED_LASTS > now;
        let mut needs =
            self.needs.iter().filter(|((of, by), (_, seen))| of == pool && by != tx && counts(*seen));
        needs.next().map(|((_, by), _)| by)
    }

    /// Returns when the next need is over, if its end is not heard of.
    pub fn need_ends(&self, now: Duration, pool: &Pool) -> Option<Duration> {
        let ends =
            self.needs.iter().filter(|((of, _), _)| of == pool).map(|(_, (_, seen))| *seen + NEED_LASTS);
        ends.filter(|ends| *ends > now).min()
    }

    /// Returns who has the tokens of a pool, as far as it is known, and the shortest time after which one of
    /// them can be free. `ttl`: that of a lease.
    pub fn blockers(&self, now: Duration, pool: &Pool, tx: &TxId, ttl: Duration) -> (Vec<HeldBy>, Duration) {
        let (mut by, mut after) = (Vec::new(), None::<Duration>);
        let tokens = self.pools.get(pool).into_iter().flat_map(Cache::tokens);
        for id in tokens.map(|token| &token.id) {
            let (holder, ends) = match (self.marks.get(id), self.holders.get(id), self.claims.get(id)) {
                (Some(Marked { mark: None, .. }), ..) => (Holder::UnreadableMark, ttl),
                (Some(Marked { mark: Some(mark), seen }), ..) => {
                    let ends = (*seen + self.reserve_for).saturating_sub(now);
                    (Holder::Reserved { tx: mark.tx.to_string() }, ends)
                }
                (None, Some((_, label)), _) => (Holder::Locked { tx: label.clone() }, ttl),
                (None, None, Some(tx)) => (Holder::Locked { tx: tx.to_string() }, ttl),
                (None, None, None) => continue,
            };
            let held = HeldBy { token: Some(id.clone()), by: holder };
            if held.is_of(tx) {
                continue;
            }
            after = Some(after.map_or(ends, |after| after.min(ends)));
            if by.len() < MAX_TOLD {
                by.push(held);
            }
        }
        if let Some(need) = self.first_need(now, pool, tx) {
            by.push(HeldBy { token: None, by: Holder::Need { tx: need.to_string() } });
        }
        (by, after.unwrap_or(ttl))
    }

    /// Returns tokens of a pool that seem to be free in another datacenter, at most so many. Who holds them
    /// there is not known here.
    pub fn elsewhere(&self, pool: &Pool, most: usize) -> Vec<Token> {
        let is_elsewhere = |token: &&Token| {
            let status = self.status(token);
            status.is_free && !status.is_here
        };
        let tokens = self.pools.get(pool).into_iter().flat_map(Cache::tokens);
        tokens.filter(is_elsewhere).take(most).cloned().collect()
    }

    fn token(&self, id: &TokenId) -> Option<&Token> {
        self.pools.get(self.index.get(id)?)?.token(id)
    }

    fn is_spent(&self, id: &TokenId) -> bool {
        let mark = self.marks.get(id).and_then(|marked| marked.mark.as_ref());
        mark.is_some_and(|mark| mark.state == MarkState::Spent)
    }

    fn status(&self, token: &Token) -> Status {
        let is_open = !self.marks.contains_key(&token.id);
        let is_taken = self.holders.contains_key(&token.id) || self.claims.contains_key(&token.id);
        let at = self.away.get(&token.id).copied().or(token.home);
        Status { is_open, is_free: is_open && !is_taken, is_here: at.is_some() && at == self.me }
    }

    fn look_at(&mut self, id: &TokenId) {
        let Some(token) = self.token(id) else { return };
        let status = self.status(token);
        if let Some(cache) = self.index.get(id).and_then(|pool| self.pools.get_mut(pool)) {
            cache.set(id, status);
        }
    }

    fn look_at_all(&mut self) {
        let all: BTreeSet<TokenId> = self.index.keys().cloned().collect();
        all.iter().for_each(|id| self.look_at(id));
    }
}
