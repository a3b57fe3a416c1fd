//! The list of decisions as the control group keeps it: the config that it makes.

use serde::{Deserialize, Serialize};

use crate::base::wire;
use crate::control::{Fold, MAX_STATE};
use crate::membership::{Config, Index, MAX_CONFIG, Proposal, ServerId};
use geolock_api::names::{ClusterId, DcId};

const _: () = assert!(MAX_CONFIG <= MAX_STATE, "a snapshot of every config can be made");

/// The state after the decisions so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecisionList(pub Config);

impl Fold for DecisionList {
    type Command = Proposal;

    fn apply(&mut self, index: u64, proposal: &Proposal) {
        // A command that is refused is a decision without effect.
        let _applied = self.0.apply(Index(index), proposal);
    }
}

/// Returns the server id under which a founder is a member.
///
/// It follows from the slot, unlike that of a server that joined: a founder that has lost its disk gets its
/// log back from the others and serves again, as before there was a control group. Its vote is lost all the
/// same: the control group knows each directory by a random name of its own.
pub fn founder_id(cluster: ClusterId, dc: DcId) -> ServerId {
    let half = |half: u8| wire::hash("founder", &(cluster, dc, half)).to_be_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&half(0));
    id[8..].copy_from_slice(&half(1));
    ServerId(id)
}
