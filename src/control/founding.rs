//! Entering the group: founding it on the first start, or waiting for the admission.
//!
//! All founders ask each other for their directories. Once all have answered, have the same list of founders,
//! and none is in a group, the first of them writes the list of voters as the first entry of the log; the
//! others get it from there. Only one writes it: two first entries would have the same position and term and
//! could differ in a directory, if one was lost in between, and Raft could not tell them apart.
//!
//! A member that follows the founders asks them, too, so that it tells a list that differs and a directory
//! that was lost. It founds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openraft::async_runtime::WatchReceiver;
use tokio::sync::watch;
use tokio::time::sleep;

use super::fold::Fold;
use super::group::Core;
use super::member::{MemberId, ServerId};
use super::message::{Answer, Identity, Request};

/// The way of a member into the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Founding {
    /// Not in a group yet: founders were not reached yet, or no member has admitted this one.
    Waiting,
    /// In a group, or was.
    Done,
    /// That founder's configuration has other founders, or none. The group is not founded: make the lists
    /// equal.
    OtherFounders { at: MemberId },
    /// There is a group without this member: let it join.
    NotAMember { at: MemberId },
    /// The group knows this member with another directory, which was lost or exchanged. It takes no part, as
    /// it may have forgotten its vote: admit the member again, as the next generation of its slot.
    OtherDirectory { known: ServerId },
}

/// Watches over the way into the group, until this member is in it or shuts down.
pub(super) async fn found<F: Fold>(core: Arc<Core<F>>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = enter(&core) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn enter<F: Fold>(core: &Core<F>) {
    while !core.is_in_group() {
        if let Some(founders) = &core.founders {
            match identify(core, founders).await {
                Ok(servers) if founders.first() == Some(&core.caller.me) => {
                    if let Err(error) = core.raft.initialize(servers).await {
                        // It was admitted meanwhile, or has stopped.
                        tracing::warn!(%error, "the control group was not founded here");
                    }
                }
                Ok(_) => {}
                Err(state) => note(core, state),
            }
        }
        let mut metrics = core.raft.metrics();
        let entered = async {
            while metrics.borrow_watched().membership_config.membership().nodes().next().is_none() {
                if metrics.changed().await.is_err() {
                    // It has stopped: the group will not be entered.
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = entered => {}
            () = sleep(core.timing().election()) => {}
        }
    }
    if let Some(founders) = &core.founders {
        let voters: BTreeSet<_> = core.status().voters;
        if voters != *founders {
            tracing::warn!(
                ?founders,
                ?voters,
                "the configured founders are not the voters: the group's list counts"
            );
        }
    }
    core.founding.send_replace(Founding::Done);
}

/// Notes the progress of entering the group, and logs it for operators.
pub(super) fn note<F: Fold>(core: &Core<F>, state: Founding) {
    let changed = core.founding.send_if_modified(|known| {
        // A leader that looks for another directory is the last word.
        let news = *known != state && !matches!(known, Founding::OtherDirectory { .. });
        if news {
            *known = state.clone();
        }
        news
    });
    if changed && state != Founding::Waiting {
        tracing::error!(?state, "this member cannot found the control group");
    }
}

/// Returns the directories of all founders and of this member, if they can found a group.
async fn identify<F: Fold>(
    core: &Core<F>,
    founders: &BTreeSet<MemberId>,
) -> Result<BTreeMap<MemberId, ServerId>, Founding> {
    let mut servers = BTreeMap::from([(core.caller.me, core.caller.server)]);
    for &founder in founders.iter().filter(|founder| **founder != core.caller.me) {
        let identity = core.identity_of(founder, founders.clone()).await.ok_or(Founding::Waiting)?;
        let Identity { server, founders: theirs, in_group, knows_you_as } = identity;
        match knows_you_as {
            Some(known) if known != core.caller.server => return Err(Founding::OtherDirectory { known }),
            // It has the list; its leader will send it.
            Some(_) => return Err(Founding::Waiting),
            None if in_group && founders.contains(&core.caller.me) => {
                return Err(Founding::NotAMember { at: founder });
            }
            None if theirs.as_ref() != Some(founders) => return Err(Founding::OtherFounders { at: founder }),
            // The leader takes it in.
            None if in_group => return Err(Founding::Waiting),
            None => servers.insert(founder, server),
        };
    }
    Ok(servers)
}

impl<F: Fold> Core<F> {
    /// Asks a member for its directory, and what it knows of the group. `None` if it does not answer now.
    pub(super) async fn identity_of(
        &self,
        member: MemberId,
        founders: BTreeSet<MemberId>,
    ) -> Option<Identity> {
        let request = Request::Identify { founders };
        match self.caller.ask(member, None, request, self.timing().election()).await {
            Ok(Answer::Identity(identity)) => Some(identity),
            _ => None,
        }
    }
}
