//! Requests for enough of many locks.

use std::sync::Arc;

use crate::causal_log::Wants;
use crate::replica::call::{AnyOf, IdempotencyKey};
use crate::sim::client::Order;
use crate::sim::world::World;
use geolock_api::names::{LockName, Mode};

impl World {
    /// A client acquires these locks, or enough of others.
    pub(super) fn acquire_some(&mut self, number: usize, order: Order) -> IdempotencyKey {
        let any_of = self.random_any_of();
        self.with_client(number, |client, now, out| match any_of {
            Some((wants, of)) => client.acquire_enough(now, (Order { wants, ..order }, of), out),
            None => client.acquire(now, order, out),
        })
    }

    /// Decides if a request is one for enough of some hot locks. Returns all of its candidates.
    fn random_any_of(&mut self) -> Option<(Wants, Arc<AnyOf>)> {
        if self.plan.habits.enough_percent == 0
            || !self.chance.others.percent(self.plan.habits.enough_percent)
        {
            return None;
        }
        let rng = &mut self.chance.others;
        let mut names: Vec<LockName> = self.locks.hot.clone();
        let count = rng.between(1, names.len() as u64) as usize;
        while names.len() > count {
            names.swap_remove(rng.index(names.len()));
        }
        let heaviest = *rng.pick(&[1, 1, 3]);
        let candidates: Vec<(LockName, u64)> =
            names.into_iter().map(|name| (name, rng.between(1, heaviest))).collect();
        let most = if rng.percent(30) { rng.between(1, count as u64) as u32 } else { 0 };
        let bound = if most == 0 { count } else { most as usize };
        let mut weights: Vec<u64> = candidates.iter().map(|(_, weight)| *weight).collect();
        weights.sort_unstable_by(|a, b| b.cmp(a));
        let reach: u64 = weights.iter().take(bound).sum();
        let amount = rng.between(1, reach);
        let all = candidates.iter().map(|(name, _)| (name.clone(), Mode::Exclusive)).collect();
        let of = AnyOf::new(amount, most, candidates).expect("they reach the amount");
        Some((Wants::all(all).expect("some short names"), Arc::new(of)))
    }
}
