//! Fields that a server of an earlier release does not understand are not sent to it.
//!
//! A server drops the fields that it does not know and acts without them: it would grant the plain lock
//! instead of the one with a home, and commit although the guards were lost. So it says in its welcome which
//! fields it knows, and a call that needs another one is refused here, as by a server that refuses before it
//! looks up the call.

use super::Session;
use crate::error::not_understood;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, Feature};

impl Session {
    /// Returns the refusal of a call that the server does not understand.
    pub(super) fn not_understood(&self, call: &Call) -> Option<proto::Error> {
        let feature = needed(call).find(|feature| !self.understands.contains(&i32::from(*feature)))?;
        Some(not_understood(feature))
    }
}

/// Returns the features that a call needs.
fn needed(call: &Call) -> impl Iterator<Item = Feature> {
    let has_home = match call {
        Call::Acquire(acquire) => {
            let mut candidates = acquire.enough.iter().flat_map(|enough| &enough.candidates);
            acquire.locks.iter().any(|lock| lock.home.is_some()) || candidates.any(|it| it.home.is_some())
        }
        Call::Amend(amend) => amend.add.iter().chain(&amend.drop).any(|candidate| candidate.home.is_some()),
        Call::Begin(begin) => {
            let mut locks = begin.locks.iter().flat_map(|begin| &begin.locks);
            locks.any(|lock| lock.home.is_some())
        }
        _ => false,
    };
    let is_guarded = matches!(call, Call::Begin(begin) if !begin.under.is_empty());
    [(has_home, Feature::Home), (is_guarded, Feature::Under)]
        .into_iter()
        .filter_map(|(needs, feature)| needs.then_some(feature))
}
