//! The control group after a forced recovery: all survivors begin it from the decision that recovered the
//! cluster, each by itself (`docs/algorithm/membership.md#7-forced-recovery`).

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch;

use super::decisions::DecisionList;
use crate::base::wire;
use crate::control::{MemberId, ServerId, Succession};
use crate::lock_server::MembersView;
use crate::membership::{Config, Generation, Index, Lineage, Voter};
use geolock_api::names::DcId;

/// Waits until the cluster was recovered by force since the group of `lineage` began, with this member among
/// the survivors. Returns the beginning of the group that takes its place; `None` if the server stops.
pub(super) async fn succession(
    mut view: watch::Receiver<MembersView>,
    me: MemberId,
    lineage: Lineage,
) -> Option<Succession<DecisionList>> {
    let is_me = |config: &Config| config.slots().generation(me.dc) == Some(Generation(me.generation));
    let is_due =
        |view: &MembersView| view.recovered.as_ref().is_some_and(|it| it.lineage() > lineage && is_me(it));
    let view = view.wait_for(is_due).await.ok()?;
    view.recovered.as_ref().map(beginning)
}

/// Returns the beginning of the group of a recovery. It is a function of the decision: all survivors have
/// the same.
pub(super) fn beginning(config: &Config) -> Succession<DecisionList> {
    let (cluster, lineage, index) = (config.cluster(), config.lineage(), config.index());
    // A name that no directory had before: the voters of the former group know others.
    let name = |dc: DcId, half: u8| wire::hash("survivor", &(cluster, lineage, config, dc, half));
    let server = |dc: DcId| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&name(dc, 0).to_be_bytes());
        id[8..].copy_from_slice(&name(dc, 1).to_be_bytes());
        ServerId::from_bytes(id)
    };
    let member = |dc: DcId, generation: Generation| MemberId { dc, generation: generation.0 };
    let members: BTreeMap<MemberId, ServerId> =
        config.slots().members().map(|(dc, it)| (member(dc, it.generation), server(dc))).collect();
    let voters: BTreeSet<MemberId> = config
        .voters()
        .voters
        .iter()
        .filter_map(|voter| match voter {
            Voter::Member { dc, generation } => Some(member(*dc, *generation)),
            Voter::Witness(_) => None,
        })
        .collect();
    let Index(decided) = index;
    let former = format!("control-{}.redb", lineage.0.saturating_sub(1));
    Succession { members, voters, decided, state: DecisionList(config.clone()), former }
}
