//! Members that were evicted: a line of the log and a count for each.

use std::sync::Arc;

use tokio::sync::watch;

use crate::lock_server::MembersView;
use crate::membership::{Config, EndCause, Index, Past};
use crate::telemetry::{Board, EvictionCause};
use geolock_api::names::DcId;

/// Logs and counts the evictions of other members, until the server has stopped. The first decisions that are
/// known here are of before: they count for none. `me`: this datacenter, which logs its own end.
pub(super) async fn follow(me: DcId, mut view: watch::Receiver<MembersView>, board: Arc<Board>) {
    let mut known = Config::default();
    loop {
        let now = view.borrow_and_update().config.clone();
        for (dc, past) in evicted(&known, &now).filter(|(dc, _)| *dc != me) {
            let name = known.slots().member(dc).map_or("", |member| member.name.as_str());
            let generation = past.generation.0;
            match past.cause {
                EndCause::EvictedBySilence => {
                    board.count_eviction(EvictionCause::Silence);
                    tracing::warn!(
                        %dc, name, generation,
                        "the members have evicted {dc}: no majority of the voters heard it for the time of the policy \
                         (evict_after). Commits that it sent to no other member are lost, unless its data directory is kept"
                    );
                }
                EndCause::Evicted => {
                    board.count_eviction(EvictionCause::Operator);
                    tracing::info!(%dc, name, generation, "{dc} was evicted");
                }
                EndCause::Left | EndCause::Lost => {}
            }
        }
        known = now;
        if view.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the generations that are over `now` and were not before; none if no decision was known before.
fn evicted<'a>(before: &'a Config, now: &'a Config) -> impl Iterator<Item = (DcId, &'a Past)> {
    let is_first = before.index() == Index::default();
    let pasts = now.slots().iter().flat_map(|(dc, slot)| slot.past.iter().map(move |past| (dc, past)));
    pasts.filter(move |(dc, past)| !is_first && before.slots().past(*dc, past.generation).is_none())
}
