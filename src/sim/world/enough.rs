//! Requests for enough of many locks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::causal_log::Wants;
use crate::replica::call::{AnyOf, IdempotencyKey};
use crate::sim::client::{Amended, Client, Order, State, Timer};
use crate::sim::world::{Action, World};
use geolock_api::names::{LockName, Mode};

/// The largest amount. A published request with more than a thousand locks counts as more work than a step
/// may do: other datacenters apply it whole.
const LARGEST: u64 = 400;

impl World {
    /// A client acquires these locks, or enough of others.
    pub(super) fn acquire_some(&mut self, number: usize, order: Order) -> IdempotencyKey {
        let any_of = self.random_any_of();
        let is_any = any_of.is_some();
        let key = self.with_client(number, |client, now, out| match any_of {
            Some((wants, of)) => client.acquire_enough(now, (Order { wants, ..order }, of), out),
            None => client.acquire(now, order, out),
        });
        if is_any {
            self.plan_amendment(number, key);
        }
        key
    }

    /// Decides if a client amends its request, and when.
    fn plan_amendment(&mut self, client: usize, key: IdempotencyKey) {
        let percent = self.plan.habits.amend_percent;
        if percent > 0 && self.chance.others.percent(percent) {
            let at = self.now + self.chance.others.duration(Duration::ZERO, self.plan.load.hold * 2);
            self.queue.push(at, Action::Client { client, timer: Timer::Amend(key) });
        }
    }

    /// A client amends a request that still waits, and perhaps again later. Clients whose calls have no order
    /// do not: their amendments would overtake each other.
    pub(super) fn amend_some(&mut self, number: usize, key: IdempotencyKey) {
        let client = &self.clients[number];
        let Some(of) = amendable(client, key).cloned() else { return };
        let rng = &mut self.chance.others;
        let drop: Vec<LockName> = of.names().filter(|_| rng.percent(40)).cloned().collect();
        let (dropped, known): (BTreeSet<&LockName>, BTreeSet<&LockName>) =
            (drop.iter().collect(), of.names().collect());
        let is_other = |name: &&LockName| dropped.contains(name) || !known.contains(name);
        let others: Vec<&LockName> = self.locks.hot.iter().filter(is_other).collect();
        let others = others.into_iter().filter(|_| rng.percent(50)).cloned().collect::<Vec<_>>();
        let add: Vec<(LockName, u64)> = others.into_iter().map(|name| (name, rng.between(1, 3))).collect();
        let of = of.amended(&add, &drop).ok().map(Arc::new);
        self.tally.amended += u64::from(of.is_some());
        self.with_client(number, |client, _, out| client.amend(key, Amended { add, drop, of }, out));
        self.plan_amendment(number, key);
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
        let amount = rng.between(1, reach.min(LARGEST));
        let all = candidates.iter().map(|(name, _)| (name.clone(), Mode::Exclusive)).collect();
        let of = AnyOf::new(amount, most, candidates).expect("they reach the amount");
        Some((Wants::all(all).expect("some short names"), Arc::new(of)))
    }
}

/// Returns the list of a request that its client may amend.
fn amendable(client: &Client, key: IdempotencyKey) -> Option<&Arc<AnyOf>> {
    let request = client.requests().get(&key).filter(|request| request.state == State::Waiting)?;
    let lists = request.lists.as_ref().filter(|_| !client.manner.behaviour.unary)?;
    Some(lists.known().0)
}
