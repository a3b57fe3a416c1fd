//! Comparison of the files that say which clients may do what (`api.acl`, `api.tokens`), when two members
//! talk.
//!
//! A client may do in each datacenter what the rules of its server allow, so a server without rules lets
//! everybody in. Servers may differ while an operator changes the files of one after the other; a difference
//! that stays is a mistake. So each tells digests of its files, with the next heartbeat after a link is up or
//! the files were read again, and both sides report a difference. No promise rests on it.

use std::collections::BTreeMap;

use super::peering::Peering;
use super::told::Told;
use crate::base::access_digests::AccessDigests;
use crate::base::wire::LEASES_VERSION;
use crate::replica::effect::Report;
use crate::replica::message::Message;
use geolock_api::names::DcId;

/// Returns the files by the options that name them.
fn files(digests: &AccessDigests) -> [(&'static str, Option<[u8; 32]>); 2] {
    [("api.acl", digests.rules), ("api.tokens", digests.tokens)]
}

/// The digests of this server and of its peers.
#[derive(Default)]
pub(in crate::replica) struct AccessRules {
    own: Option<AccessDigests>,
    /// By peer, as told on the present link.
    theirs: BTreeMap<DcId, AccessDigests>,
    told: Told,
}

impl AccessRules {
    pub(in crate::replica) fn note_link_up(&mut self, peer: DcId, version: u16) {
        self.theirs.remove(&peer);
        self.told.note_link_up(peer, version >= LEASES_VERSION);
    }

    /// Returns the options whose files differ, each with true if there is a file here, and at the peer.
    pub(in crate::replica) fn differing(
        &self,
        peer: DcId,
    ) -> impl Iterator<Item = (&'static str, bool, bool)> {
        let both = self.own.as_ref().zip(self.theirs.get(&peer));
        let files = both.into_iter().flat_map(|(ours, theirs)| files(ours).into_iter().zip(files(theirs)));
        files
            .filter(|((_, ours), (_, theirs))| ours != theirs)
            .map(|((option, ours), (_, theirs))| (option, ours.is_some(), theirs.is_some()))
    }
}

impl Peering<'_> {
    /// The edge has read the files of this server.
    pub(in crate::replica) fn on_access_rules(&mut self, digests: AccessDigests) {
        let rules = &mut self.peers.access_rules;
        if rules.own != Some(digests) {
            rules.own = Some(digests);
            rules.told.renew();
            let known: Vec<DcId> = rules.theirs.keys().copied().collect();
            known.into_iter().for_each(|peer| self.report_access_rules(peer));
        }
    }

    /// With each heartbeat: tells the peers what they were not told yet.
    pub(in crate::replica) fn tell_access_rules(&mut self) {
        let rules = &mut self.peers.access_rules;
        let Some(own) = rules.own else { return };
        for peer in rules.told.take_untold(self.log.peers().linked()).iter() {
            self.out.send(self.log, peer, Message::AccessRules(own));
        }
    }

    /// A peer has told the digests of its files.
    pub(in crate::replica) fn on_access_rules_of(&mut self, peer: DcId, digests: AccessDigests) {
        if self.peers.access_rules.theirs.insert(peer, digests) != Some(digests) {
            self.report_access_rules(peer);
        }
    }

    fn report_access_rules(&mut self, peer: DcId) {
        for (option, ours, theirs) in self.peers.access_rules.differing(peer) {
            self.out.report(Report::AccessDiffers { peer, option, ours, theirs });
        }
    }
}
