//! Properties that must hold in every state, and states that must be reachable.

use stateright::{Model, Property};

use crate::protocol::{Action, Protocol, locks_of};
use crate::state::{BELOW, Broken, Client, DCS, Dc, LOCKS, Mode, Parts, State, covers};

pub const ONE_OWNER: &str = "a part has at most one owner in the eyes of the owners";
pub const EXCLUSION: &str = "no two hold a lock in conflict";
pub const TOKENS_GROW: &str = "tokens of conflicting grants grow";
pub const TOLD_IS_KEPT: &str = "what others were told is there after a crash";
pub const SAME_VECTOR_SAME_STATE: &str = "a state is what its vector says";
pub const NOBODY_ACCUSED: &str = "no correct peer is accused";
pub const RECLAIMED: &str = "who comes back in time keeps its locks";
pub const NOBODY_STUCK: &str = "when nothing more can happen everybody was served";

pub const ALL_SERVED: &str = "everybody was served";
pub const TWO_READ: &str = "two read one lock";
pub const HELD_OVER_RESTART: &str = "a lock is held over a restart that lost a tail";
pub const SERVED_IN_SPITE: &str = "everybody is served although a tail was lost";

pub const REHOMED: &str = "all read all parts at the home of the last rule";
pub const KEPT: &str = "a part is kept where it is used, and all have given";

pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ONE_OWNER, one_owner),
        Property::always(EXCLUSION, exclusion),
        Property::always(TOKENS_GROW, |_, state: &State| state.broken != Some(Broken::TokenDidNotGrow)),
        Property::always(TOLD_IS_KEPT, |_, state: &State| {
            state.sites.iter().all(|site| covers(&site.applied, &site.told))
        }),
        Property::always(SAME_VECTOR_SAME_STATE, |_, state: &State| {
            state.broken != Some(Broken::StateDiffers)
        }),
        Property::always(NOBODY_ACCUSED, |_, state: &State| state.broken != Some(Broken::CorrectPeerAccused)),
        Property::always(RECLAIMED, |_, state: &State| state.broken != Some(Broken::ReclaimRefused)),
        Property::always(NOBODY_STUCK, nobody_stuck),
        Property::sometimes(ALL_SERVED, |model: &Protocol, state: &State| {
            (0..DCS).all(|dc| model.wants(state, dc).is_none())
        }),
        Property::sometimes(
            "somebody holds both locks alone that were used elsewhere",
            |model: &Protocol, state: &State| (0..DCS).any(|dc| holds_all_after_others(model, state, dc)),
        ),
        Property::sometimes(REHOMED, |model: &Protocol, state: &State| {
            let home = model.rules.iter().flatten().last().copied().flatten();
            home.is_some_and(|home| {
                let at_home = |dc: Dc| state.sites[dc].view.parts_of(BELOW, home.into());
                (0..DCS).all(|dc| at_home(dc) == Parts::needed(dc, Mode::Exclusive))
            })
        }),
        Property::sometimes(KEPT, |_, state: &State| {
            state.sites.iter().all(|site| {
                let is_kept = |dc: Dc| site.view.registers[BELOW][dc].version > 0;
                site.view.homes.have_given(0) && (0..DCS).any(is_kept)
            })
        }),
        Property::sometimes(TWO_READ, |model: &Protocol, state: &State| {
            (0..LOCKS).any(|lock| holders(model, state, lock).filter(|(_, m)| *m == Mode::Shared).count() > 1)
        }),
        Property::sometimes(HELD_OVER_RESTART, |_, state: &State| {
            state.lost_a_tail
                && state.sites.iter().any(|site| matches!(site.client, Client::Holds { known: false, .. }))
        }),
        Property::sometimes(SERVED_IN_SPITE, |model: &Protocol, state: &State| {
            state.lost_a_tail && (0..DCS).all(|dc| model.wants(state, dc).is_none())
        }),
    ]
}

fn one_owner(_: &Protocol, state: &State) -> bool {
    (0..LOCKS).all(|lock| {
        let owned = (0..DCS).map(|dc| state.sites[dc].view.parts_of(lock, dc).0);
        owned.fold((true, 0), |(fine, seen), parts| (fine && seen & parts == 0, seen | parts)).0
    })
}

/// Returns the clients that believe they hold a lock.
fn holders<'a>(model: &'a Protocol, state: &'a State, lock: usize) -> impl Iterator<Item = (Dc, Mode)> {
    (0..DCS).filter_map(move |dc| match state.sites[dc].client {
        Client::Holds { .. } => Some((dc, model.wants(state, dc)?[lock]?)),
        Client::Idle | Client::Waiting { .. } | Client::Granted { .. } => None,
    })
}

fn exclusion(model: &Protocol, state: &State) -> bool {
    (0..LOCKS).all(|lock| {
        let alone = holders(model, state, lock).all(|(_, mode)| mode == Mode::Shared);
        alone || holders(model, state, lock).count() == 1
    })
}

fn holds_all_after_others(model: &Protocol, state: &State, dc: Dc) -> bool {
    let Client::Holds { .. } = state.sites[dc].client else { return false };
    let locks = || model.wants(state, dc).into_iter().flat_map(locks_of);
    let moved =
        |lock: usize| state.sites[dc].view.registers[lock].iter().any(|register| register.version > 1);
    locks().count() == LOCKS && locks().all(|(lock, mode)| mode == Mode::Exclusive && moved(lock))
}

fn nobody_stuck(model: &Protocol, state: &State) -> bool {
    let may_be_over = state.broken.is_none()
        && state
            .sites
            .iter()
            .all(|site| site.tail.is_empty() && matches!(site.client, Client::Idle | Client::Waiting { .. }));
    if !may_be_over {
        return true;
    }
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    let goes_on = |action: &Action| {
        !matches!(action, Action::Crash { .. }) && model.next_state(state, *action).is_some()
    };
    actions.iter().any(goes_on) || (0..DCS).all(|dc| model.wants(state, dc).is_none())
}
