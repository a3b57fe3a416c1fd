//! The rules about homes: entering one, and giving by it (`docs/algorithm/ownership.md#16-homes-by-prefix`).

use crate::protocol::{Mutation, Protocol, append};
use crate::state::{BELOW, Client, DCS, Dc, Given, Op, Parts, State};

impl Protocol {
    /// A rule is decided when a member sees that all have entered the one before, and entered when all have
    /// given by that.
    pub fn may_enter(&self, state: &State, dc: Dc) -> bool {
        let homes = &state.sites[dc].view.homes;
        let next = homes.entered[dc];
        let is_rule = usize::from(next) < self.rules.len() && self.rules[usize::from(next)].is_some();
        if !is_rule || next == 0 {
            return is_rule;
        }
        let is_decided =
            state.sites.iter().any(|site| site.view.homes.entered.iter().all(|entered| *entered >= next));
        is_decided && homes.have_given(next - 1)
    }

    pub fn enter(&self, state: &mut State, dc: Dc) {
        let rule = state.sites[dc].view.homes.entered[dc];
        let gives = (!self.is_in_grace(state, dc)).then(|| self.given(state, dc));
        append(state, dc, Op::Enter { rule, gives });
        if self.is(Mutation::RuleAtOnce) {
            state.sites[dc].view.homes.given[usize::from(rule)] = [1; DCS];
        }
        self.publish(state, dc);
    }

    /// After a restart nobody seems to hold anything before its client has reclaimed.
    pub fn is_in_grace(&self, state: &State, dc: Dc) -> bool {
        matches!(state.sites[dc].client, Client::Holds { known: false, .. })
            && !self.is(Mutation::GivesInGrace)
    }

    pub fn may_give(&self, state: &State, dc: Dc) -> bool {
        let homes = &state.sites[dc].view.homes;
        let Some(rule) = homes.entered[dc].checked_sub(1) else { return false };
        homes.given[usize::from(rule)][dc] == 0 && !self.is_in_grace(state, dc)
    }

    pub fn give(&self, state: &mut State, dc: Dc) {
        let rule = state.sites[dc].view.homes.entered[dc] - 1;
        let gives = self.given(state, dc);
        append(state, dc, Op::Give { rule, gives });
        self.publish(state, dc);
    }

    /// Parts that it owns by default of a lock that is held stay; all others are the next owner's.
    pub fn given(&self, state: &State, dc: Dc) -> Given {
        let held = match state.sites[dc].client {
            Client::Granted { .. } | Client::Holds { known: true, .. } => self.wants(state, dc),
            Client::Idle | Client::Waiting { .. } | Client::Holds { known: false, .. } => None,
        };
        let is_held = held.is_some_and(|wants| wants[BELOW].is_some()) && !self.is(Mutation::RehomedInUse);
        Given { kept: if is_held { state.sites[dc].view.owned_by_default(dc) } else { Parts::NONE } }
    }
}
