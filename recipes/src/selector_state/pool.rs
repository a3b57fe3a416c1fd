//! The cache of one pool: its listing, which of its tokens are free, and when it is to be read again.
//!
//! A listing is replaced in one step, so nobody ever sees it empty or half. It serves while it is at most
//! twice as old as [`SelectorOptions::freshness`]; older, it could list tokens of which the marks have
//! expired, so a selection then waits for the query that is under way.
//!
//! [`SelectorOptions::freshness`]: crate::selector::SelectorOptions::freshness

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::fit::{Free, Rank, Ranks, order_of, reach};
use crate::selector_state::token::{Token, TokenId};

/// Changes of candidates that are kept for selections that wait.
const LOG: usize = 4_096;

/// The knowledge of a replica about a listed token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// No mark is known.
    pub is_open: bool,
    /// It is open, and nobody is known to hold it or about to.
    pub is_free: bool,
    /// Its lock can be had without asking another datacenter.
    pub is_here: bool,
}

#[derive(Debug)]
struct Listed {
    token: Token,
    order: u64,
    status: Status,
    /// When it was heard of, if no listing had it yet.
    news_at: Option<Duration>,
}

/// The settings of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freshness {
    pub lasts: Duration,
    pub soft_after: u32,
}

/// The cache of a pool.
#[derive(Debug)]
pub(crate) struct Cache {
    seed: u64,
    freshness: Freshness,
    listed: BTreeMap<TokenId, Listed>,
    here: Ranks,
    elsewhere: Ranks,
    open: Ranks,
    all: Ranks,
    total: u128,
    /// The sum when the listing came.
    listed_total: u128,
    is_cut: bool,
    /// When the query of this listing began.
    content: Option<Duration>,
    /// When the query that is under way began.
    under_way: Option<Duration>,
    is_wanted: bool,
    /// When the latest query that failed began.
    failed: Option<Duration>,
    served: u32,
    used_at: Duration,
    changes: VecDeque<TokenId>,
    changed: u64,
}

impl Cache {
    pub fn new(seed: u64, freshness: Freshness) -> Cache {
        Cache {
            seed,
            freshness,
            listed: BTreeMap::new(),
            here: Ranks::default(),
            elsewhere: Ranks::default(),
            open: Ranks::default(),
            all: Ranks::default(),
            total: 0,
            listed_total: 0,
            is_cut: false,
            content: None,
            under_way: None,
            is_wanted: false,
            failed: None,
            served: 0,
            used_at: Duration::ZERO,
            changes: VecDeque::new(),
            changed: 0,
        }
    }

    /// Notes that a selection uses the cache, and has it read again if it is due.
    pub fn serve(&mut self, now: Duration) {
        self.touch(now);
        self.served = self.served.saturating_add(1);
        let is_fresh = self.content.is_some_and(|at| now <= at + self.freshness.lasts);
        if !is_fresh || self.served > self.freshness.soft_after {
            self.is_wanted |= self.under_way.is_none();
        }
    }

    /// Notes that a selection waits for the pool.
    pub fn touch(&mut self, now: Duration) {
        self.used_at = now;
    }

    pub fn used_at(&self) -> Duration {
        self.used_at
    }

    /// Returns true if the listing can serve.
    pub fn is_usable(&self, now: Duration) -> bool {
        self.content.is_some_and(|at| now <= at + 2 * self.freshness.lasts)
    }

    /// Returns true if the listing is of that time or later.
    pub fn is_since(&self, at: Duration) -> bool {
        self.content.is_some_and(|content| content >= at)
    }

    /// Returns true if a query of that time or later has failed.
    pub fn has_failed_since(&self, at: Duration) -> bool {
        self.failed.is_some_and(|failed| failed >= at)
    }

    /// Returns when the query that is under way began.
    pub fn under_way(&self) -> Option<Duration> {
        self.under_way
    }

    /// Has the pool read by a query that begins at `at` or later.
    pub fn demand(&mut self, at: Duration) {
        self.is_wanted |= self.under_way.is_none_or(|began| began < at);
    }

    /// Begins a query, if one is wanted and none is under way.
    pub fn begin(&mut self, now: Duration) -> bool {
        let begins = self.is_wanted && self.under_way.is_none();
        if begins {
            (self.is_wanted, self.under_way) = (false, Some(now));
        }
        begins
    }

    /// The query has failed: the listing stays.
    pub fn on_failed(&mut self) {
        self.failed = self.under_way.take();
    }

    /// The query has answered. `statuses`: of its tokens. Returns the tokens that are no longer listed.
    pub fn on_listing(&mut self, listing: Vec<(Token, Status)>, is_cut: bool) -> Vec<TokenId> {
        let began = self.under_way.take().unwrap_or_default();
        let ids: BTreeSet<&TokenId> = listing.iter().map(|(token, _)| &token.id).collect();
        // A listing may lag behind what was heard.
        let is_new = |listed: &Listed| listed.news_at.is_some_and(|at| at + self.freshness.lasts >= began);
        let gone = self.listed.iter().filter(|(id, listed)| !ids.contains(id) && !is_new(listed));
        let gone: Vec<TokenId> = gone.map(|(id, _)| id.clone()).collect();
        gone.iter().for_each(|id| self.remove(id));
        for (token, status) in listing {
            self.insert(token, status, None);
        }
        (self.is_cut, self.content, self.served) = (is_cut, Some(began), 0);
        self.listed_total = self.total;
        gone
    }

    /// Adds a token, or updates it.
    pub fn insert(&mut self, token: Token, status: Status, news_at: Option<Duration>) {
        if let Some(listed) = self.listed.get_mut(&token.id) {
            if news_at.is_none() {
                listed.news_at = None;
            }
            let id = token.id;
            return self.set(&id, status);
        }
        let (id, order) = (token.id.clone(), order_of(self.seed, &token.id));
        self.total += u128::from(token.amount);
        let rank = Rank { amount: token.amount, order, id: id.clone() };
        self.all.set(&rank, true);
        self.listed.insert(id.clone(), Listed { token, order, status: Status::default(), news_at });
        self.set(&id, status);
    }

    pub fn remove(&mut self, id: &TokenId) {
        self.set(id, Status::default());
        if let Some(listed) = self.listed.remove(id) {
            let Token { id, amount, .. } = listed.token;
            self.total -= u128::from(amount);
            self.all.set(&Rank { amount, order: listed.order, id }, false);
        }
    }

    pub fn set(&mut self, id: &TokenId, status: Status) {
        let Some(listed) = self.listed.get_mut(id) else { return };
        if listed.status == status {
            return;
        }
        let was_open = std::mem::replace(&mut listed.status, status).is_open;
        let rank = Rank { amount: listed.token.amount, order: listed.order, id: id.clone() };
        self.here.set(&rank, status.is_free && status.is_here);
        self.elsewhere.set(&rank, status.is_free && !status.is_here);
        self.open.set(&rank, status.is_open);
        if was_open != status.is_open {
            self.changed += 1;
            self.changes.push_back(id.clone());
            if self.changes.len() > LOG {
                self.changes.pop_front();
            }
        }
    }

    pub fn token(&self, id: &TokenId) -> Option<&Token> {
        self.listed.get(id).map(|listed| &listed.token)
    }

    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.listed.values().map(|listed| &listed.token)
    }

    pub fn is_open(&self, id: &TokenId) -> bool {
        self.listed.get(id).is_some_and(|listed| listed.status.is_open)
    }

    pub fn is_free(&self, id: &TokenId) -> bool {
        self.listed.get(id).is_some_and(|listed| listed.status.is_free)
    }

    pub fn is_here(&self, id: &TokenId) -> bool {
        self.listed.get(id).is_some_and(|listed| listed.status.is_here)
    }

    /// Returns the free tokens.
    pub fn free(&self) -> Free<'_> {
        Free { here: &self.here, elsewhere: &self.elsewhere }
    }

    /// Returns the free tokens that are here.
    pub fn here(&self) -> &Ranks {
        &self.here
    }

    /// Returns the tokens without a mark, held or not.
    pub fn open(&self) -> &Ranks {
        &self.open
    }

    /// Returns the sum of what is listed, free or not.
    pub fn total(&self) -> u128 {
        self.total
    }

    /// Returns the sum of what was listed when the latest query answered.
    pub fn listed_total(&self) -> u128 {
        self.listed_total
    }

    /// Returns the sum of what is free.
    pub fn free_total(&self) -> u128 {
        reach(&self.here, usize::MAX) + reach(&self.elsewhere, usize::MAX)
    }

    /// Returns the largest sum of so many listed tokens.
    pub fn reach(&self, most: usize) -> u128 {
        reach(&self.all, most)
    }

    /// Returns true if the pool has more tokens than are examined.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the position after the latest change of a candidate.
    pub fn position(&self) -> u64 {
        self.changed
    }

    /// Returns the tokens that became candidates, or no longer are, after that position; `None` if it is too
    /// old.
    pub fn changes_since(&self, position: u64) -> Option<impl Iterator<Item = &TokenId>> {
        let missed = usize::try_from(self.changed.checked_sub(position)?).ok()?;
        let first = self.changes.len().checked_sub(missed)?;
        Some(self.changes.range(first..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const FREE: Status = Status { is_open: true, is_free: true, is_here: true };

    fn token(name: &'static str, amount: u64) -> Token {
        Token { id: TokenId::new(name.as_bytes()).expect("it is an id"), amount, home: None }
    }

    fn cache() -> Cache {
        Cache::new(3, Freshness { lasts: SECOND, soft_after: 5 })
    }

    fn list(cache: &mut Cache, names: &[(&'static str, u64)]) {
        let listing = names.iter().map(|(name, amount)| (token(name, *amount), FREE)).collect();
        cache.on_listing(listing, false);
    }

    #[test]
    fn readers_of_a_stale_cache_cost_one_query_and_see_the_old_one() {
        let mut cache = cache();
        assert!(!cache.is_usable(Duration::ZERO));
        cache.serve(Duration::ZERO);
        assert!(cache.begin(Duration::ZERO));
        list(&mut cache, &[("a", 3)]);
        let stale = SECOND * 3 / 2;
        let begun = (0..10).filter(|_| {
            cache.serve(stale);
            assert_eq!((cache.is_usable(stale), cache.total()), (true, 3));
            cache.begin(stale)
        });
        assert_eq!(begun.count(), 1);
        cache.on_failed();
        assert_eq!((cache.total(), cache.is_usable(SECOND * 2)), (3, true), "a failed refresh keeps it");
        assert!(!cache.is_usable(SECOND * 2 + Duration::from_millis(1)));
        assert!(cache.has_failed_since(stale) && !cache.has_failed_since(SECOND * 2));
    }

    #[test]
    fn a_fresh_cache_is_read_again_after_some_selections() {
        let mut cache = cache();
        cache.demand(Duration::ZERO);
        assert!(cache.begin(Duration::ZERO));
        list(&mut cache, &[]);
        let begun: Vec<bool> = (0..6)
            .map(|_| {
                cache.serve(SECOND / 2);
                cache.begin(SECOND / 2)
            })
            .collect();
        assert_eq!(begun, [false, false, false, false, false, true]);
    }

    #[test]
    fn a_demand_is_met_by_a_later_query_only() {
        let mut cache = cache();
        cache.demand(Duration::ZERO);
        assert!(cache.begin(Duration::ZERO));
        cache.demand(SECOND);
        assert!(!cache.begin(SECOND), "one is under way");
        list(&mut cache, &[]);
        assert!(!cache.is_since(SECOND) && cache.begin(SECOND));
        cache.demand(SECOND);
        list(&mut cache, &[]);
        assert!(cache.is_since(SECOND) && !cache.begin(SECOND));
    }

    #[test]
    fn a_token_that_was_heard_of_outlives_a_listing_that_lags() {
        let mut cache = cache();
        cache.demand(Duration::ZERO);
        assert!(cache.begin(Duration::ZERO));
        cache.insert(token("new", 5), FREE, Some(SECOND));
        list(&mut cache, &[("a", 3)]);
        assert_eq!(cache.total(), 8);
        cache.demand(SECOND * 3);
        assert!(cache.begin(SECOND * 3));
        list(&mut cache, &[("a", 3)]);
        assert_eq!(cache.total(), 3);
    }

    #[test]
    fn changes_of_candidates_are_told_while_they_are_kept() {
        let mut cache = cache();
        cache.insert(token("a", 3), FREE, None);
        let position = cache.position();
        cache.set(&token("a", 3).id, Status { is_free: false, ..FREE });
        assert_eq!(cache.changes_since(position).map(Iterator::count), Some(0), "a holder may let go");
        cache.set(&token("a", 3).id, Status::default());
        assert_eq!(cache.changes_since(position).map(Iterator::count), Some(1));
        for _ in 0..LOG {
            cache.set(&token("a", 3).id, FREE);
            cache.set(&token("a", 3).id, Status::default());
        }
        assert!(cache.changes_since(position).is_none());
    }
}
