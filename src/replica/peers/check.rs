//! The invariants of what is known of the other datacenters.

use super::Peers;
use crate::causal_log::Log;
use crate::replica::lifecycle::Lifecycle;
use geolock_api::names::DcSet;

impl Peers {
    /// Asserts them. `may_apply`: entries are applied, so those that wait for the clock are looked at again.
    pub fn check(&self, peers: DcSet, log: &Log, lifecycle: &Lifecycle, may_apply: bool) {
        self.reachability.check();
        let all = peers.union(log.peers().linked());
        for peer in all.iter() {
            let is_linked = log.peer(peer).is_linked();
            assert!(!is_linked || !self.links.is_closing(peer), "the link to {peer} is up and closes");
            assert!(is_linked || !self.inbox.holds_of(peer), "entries of {peer} wait, which has no link");
            let waits = may_apply
                && self.links.is_paused(peer)
                && self.inbox.holds_of(peer)
                && !self.awaits_heads(peer, lifecycle);
            assert!(!waits || self.links.retry_at().is_some(), "entries of {peer} are looked at again");
        }
    }
}
