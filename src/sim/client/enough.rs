//! A client's grants of enough of many locks.

use crate::causal_log::Wants;
use crate::replica::call::{AnyOf, Chosen, IdempotencyKey};
use crate::sim::client::{Client, Out, State};
use crate::sim::failure::FailureKind;
use crate::sim::queue::Moment;
use geolock_api::names::Mode;

/// Returns the locks that a request holds by this grant; `None` if its list has no such candidates.
pub(in crate::sim) fn chosen_wants(of: &AnyOf, chosen: &Chosen) -> Option<Wants> {
    let named = |place: &u32| {
        let (name, _) = of.candidates().get(*place as usize)?;
        Some((name.clone(), Mode::Exclusive))
    };
    Wants::all(chosen.chosen.iter().map(named).collect::<Option<_>>()?).ok()
}

impl Client {
    pub(super) fn on_chosen(&mut self, now: Moment, key: IdempotencyKey, chosen: Chosen, out: &mut Vec<Out>) {
        if let Some(request) = self.requests.get_mut(&key)
            && request.state == State::Waiting
        {
            let of = request.lists.as_ref().and_then(|lists| lists.of(chosen.revision)).cloned();
            let wants = of.as_ref().and_then(|of| chosen_wants(of, &chosen));
            let sum = of.as_ref().map_or(0, |of| of.sum_of(&chosen.chosen));
            let is_sorted = chosen.chosen.is_sorted_by(|a, b| a < b);
            let is_enough = of.is_some_and(|of| of.is_enough(&chosen.chosen));
            match wants {
                Some(wants) if is_sorted && is_enough && sum == chosen.sum => request.order.wants = wants,
                _ => {
                    let what = format!("client {} was granted {chosen:?} of request {key}", self.number);
                    return out.push(Out::Fails { kind: FailureKind::Contract, what });
                }
            }
        }
        self.on_granted(now, key, chosen.grant, out);
    }
}
