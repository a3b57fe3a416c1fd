//! A story about clients of a member that was evicted, whose server has returned with an empty disk.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc};
use super::evicting::Story;
use super::store_cluster::{begin_elsewhere, put, step};
use crate::leases::Proof;
use crate::membership::{Command, Generation, ServerId};
use crate::replica::call::store::{Then, TxnRefusal};
use crate::replica::call::{Call, Refusal};
use crate::replica::{AgreedConfig, LocalConfig, Replica, ReplicaConfig};
use geolock_api::names::{ClusterId, DcSet, LeaseId};

/// Starts another server in the place of dc2, with an empty disk, to join.
pub(super) fn replace_dc2(c: &mut Cluster) {
    c.isolate(2);
    let agreed = AgreedConfig::new(ClusterId::of("stories"), DcSet::only(dc(2)));
    let mut config = ReplicaConfig::new(dc(2), agreed, LocalConfig::default());
    (config.server, config.joins) = (ServerId([92; 16]), true);
    let node = &mut c.nodes[2];
    (node.lease, node.records) = (None, Vec::new());
    node.replies.clear();
    c.nodes[2].replica = Replica::recover(config, c.clock(2), None, []).expect("its disk is empty");
}

/// A client asks for the outcome of a commit that it sent under this lease, or makes another step.
fn asks(c: &mut Cluster, lease: LeaseId, then: Then) -> Refusal {
    let begin = begin_elsewhere(lease, step(vec![put("k", "new")], &[], then));
    let tag = c.call(2, Call::Begin(begin));
    c.run();
    c.pass(100);
    c.refused(2, tag)
}

/// The commit counts, because the others have it. The new server knows neither the lease nor the commit.
#[test]
fn nobody_is_told_that_a_commit_failed_that_the_member_before_may_have_made() {
    let mut s = Story::new(3, None);
    let lease = s.c.lease(2);
    let tag = s.c.begin(2, 1, None, step(vec![put("k", "new")], &[], Then::Commit));
    s.c.run();
    s.c.committed(2, tag);
    s.evict_dc2();
    s.c.pass(2_000);

    replace_dc2(&mut s.c);
    let unknown = Refusal::Transaction(TxnRefusal::OutcomeUnknown(1));
    s.c.pass(5_000);
    assert_eq!(asks(&mut s.c, lease, Then::Commit), unknown, "it has no state yet");
    s.admit(dc(2), Generation(1));
    s.c.link_again(2);
    s.c.pass(10_000);
    let settles = |command: &Command| matches!(command, Command::Settled { .. });
    let settled = s.c.proposed.iter().map(|proposal| proposal.command.clone()).find(settles);
    s.decide(settled.expect("it has its state, and all are done"));
    s.c.run();
    s.c.pass(10_000);
    assert!(s.serves(2));
    assert_eq!(s.c.inspect(2).applied().get(dc(2)) >> 48, 1, "it is the next member with that id");
    assert_eq!(asks(&mut s.c, lease, Then::Commit), unknown);
    assert_eq!(asks(&mut s.c, lease, Then::Continue), Refusal::UnknownLease(lease), "it commits nothing");

    // Of its own leases it knows all commits.
    s.c.open_lease(2, Duration::from_secs(10));
    let lease = s.c.lease(2);
    s.c.call(2, Call::CloseLease { lease, proof: Proof::Secret(SECRET) });
    s.c.run();
    assert_eq!(asks(&mut s.c, lease, Then::Commit), Refusal::UnknownLease(lease));
}
