//! The rules of an endorser: it endorses only for the node that coordinates by its own height.

use std::collections::BTreeSet;

use super::bugs::Bug;
use super::options::Stickiness;
use super::shared::Shared;
use super::words::Node;

/// Returns true if `from` may be the coordinator. `height` and `skipped`: its own height, and the nodes that
/// are silent for it.
///
/// Its word that a node is silent is taken, except for this node itself, and one whose heartbeats are heard
/// here. The endorser's height decides: a coordinator that is ahead of it asks again, one that is behind has
/// to hand over at its boundary.
pub(super) fn accepts(shared: &Shared, from: &Node, height: u64, skipped: &BTreeSet<Node>) -> bool {
    if shared.options().stickiness == Stickiness::Stay || shared.has(Bug::EndorsesAnyRange) {
        return true;
    }
    let is_away = |node: &Node| {
        let is_heard = node == shared.me() || shared.presence.is_beating(node);
        !is_heard && (skipped.contains(node) || shared.presence.is_silent(node))
    };
    let in_range = shared.options().range(height) == shared.range();
    in_range && shared.rank().iter().take_while(|node| *node != from).all(is_away)
}
