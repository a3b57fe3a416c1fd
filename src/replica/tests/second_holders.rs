//! Stories about a second holder: a server that was evicted, or may have been, and clients that rely on it.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, founding};
use super::evicting::Story;
use crate::base::bugs::Bug;
use crate::base::wire::LEASES_VERSION;
use crate::leases::Proof;
use crate::membership::{
    Command, EvictPolicy, Evictee, Eviction, Generation, Index, Lineage, Policy, Proposal, Revision, Vouch,
};
use crate::replica::call::{Call, OnDisconnect, Phase, Refusal, Reply};
use crate::replica::{Event, MAX_LEASE_TTL, Notice};

fn policy(evict: EvictPolicy) -> Command {
    Command::SetPolicy(Policy { evict, ..Policy::default() })
}

/// dc2 knows the policy `wait` and is stopped; an operator changes it and evicts dc2, which is started again
/// without any link.
fn evicted_under_another_policy(bug: Option<Bug>) -> Story {
    let mut s = Story::new(3, bug);
    s.decide(policy(EvictPolicy::Wait));
    s.c.run();
    s.c.isolate(2);
    s.up.retain(|id| *id != 2);
    s.c.pass(5_000);
    s.decide(policy(EvictPolicy::Operator));
    s.evict_dc2();
    s.c.restart(2);
    s.c.pass(30_000);
    s
}

#[test]
fn a_started_server_asks_whatever_policy_it_knows() {
    let mut s = evicted_under_another_policy(None);
    assert!(!s.serves(2), "it does not know that it may be evicted");
    s.c.link(1, 2);
    s.c.run();
    assert!(s.c.inspect(2).is_over() && !s.serves(2));
    assert!(evicted_under_another_policy(Some(Bug::TrustsPolicy)).serves(2));
}

/// Three founders that take part in a control group.
fn with_control_group() -> Cluster {
    let mut c = Cluster::new(3, 0, 0);
    c.has_control_group = true;
    (0..3).for_each(|id| c.restart(id));
    (0..3).for_each(|id| c.link_again(id));
    c.pass(20_000);
    c
}

/// dc2 is started again; the others may have decided
/// something meanwhile.
fn founder_started_again(is_founded: bool) -> Cluster {
    let mut c = with_control_group();
    c.isolate(2);
    if is_founded {
        let proposal = Proposal { checked: Revision(0), command: Command::Found(founding(3)) };
        for id in [0, 1] {
            let (lineage, index) = (Lineage(0), Index(1));
            c.handle(id, Event::Decided { lineage, index, proposal: Box::new(proposal.clone()) });
        }
    }
    c.restart(2);
    c.pass(30_000);
    c
}

#[test]
fn a_started_founder_that_knows_no_decision_asks_if_there_are_some() {
    for is_founded in [false, true] {
        let mut c = founder_started_again(is_founded);
        assert_ne!(c.inspect(2).phase(), Phase::Serving, "the others may have evicted it");
        c.link(1, 2);
        c.pass(2_000);
        assert_eq!(c.inspect(2).phase(), Phase::Serving, "dc1 and itself are a majority");
    }
}

#[test]
fn a_started_founder_among_servers_of_a_release_without_decisions_waits_for_nobody_to_tell_any() {
    let mut c = with_control_group();
    c.restart(2);
    c.version = 3;
    c.link(1, 2);
    c.pass(30_000);
    assert_eq!(c.inspect(2).phase(), Phase::Serving);
}

/// dc2 is down, and an operator vouches for that. dc2 is started, linked to dc1 for less time than a started
/// server needs until it sends heartbeats, and cut off again. Returns true if it serves, and is evicted.
fn linked_for_a_moment(bug: Option<Bug>) -> (bool, bool) {
    let mut s = Story::new(3, bug);
    s.c.run();
    s.c.isolate(2);
    s.up.retain(|id| *id != 2);
    s.c.pass(5_000);
    let last_heard = s.c.inspect(0).last_clocks()[&dc(2)];
    s.c.restart(2);
    s.c.link(1, 2);
    s.c.run();
    s.c.pass(100);
    s.c.isolate(2);
    s.c.pass(30_000);
    s.c.proposed.clear();
    let members = vec![Evictee { dc: dc(2), generation: Generation(0), last_heard }];
    s.decide(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }));
    s.c.run();
    let reports = s.c.proposed.iter().any(|proposal| matches!(proposal.command, Command::Have { .. }));
    (s.serves(2), reports)
}

#[test]
fn a_started_server_is_confirmed_only_by_voters_that_hear_it() {
    assert_eq!(linked_for_a_moment(None), (false, true));
    assert_eq!(linked_for_a_moment(Some(Bug::ConfirmedUnheard)), (true, true), "two holders");
}

/// Returns the answer to a client of dc2 that wants to keep its lease.
fn kept_alive(c: &mut Cluster) -> Result<Duration, Refusal> {
    let lease = c.lease(2);
    let tag = c.call(2, Call::KeepAlive { lease, proof: Proof::Attached });
    c.sync(2);
    match c.reply(2, tag) {
        Some(Reply::Renewed { ttl }) => Ok(ttl),
        Some(Reply::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_started_server_that_may_have_been_evicted_renews_no_lease() {
    let mut s = Story::new(3, None);
    s.c.isolate(2);
    s.c.restart(2);
    s.c.pass(1_000);
    let lease = s.c.lease(2);
    let attach = s.c.call(2, Call::AttachLease { lease, secret: SECRET });
    assert!(matches!(s.c.refused(2, attach), Refusal::NotBacked { .. }), "its client holds on to a lock");
    s.c.link(1, 2);
    s.c.pass(2_000);
    let attach = s.c.call(2, Call::AttachLease { lease, secret: SECRET });
    assert!(matches!(s.c.reply(2, attach), Some(Reply::LeaseAttached { .. })));
}

/// dc2 holds a lock for a client and is evicted while it is cut off. Returns the answer to that client once
/// dc2 knows of it, and whether the client was told that its lease is over.
fn renewed_by_an_evicted_server(bug: Option<Bug>) -> (Result<Duration, Refusal>, bool) {
    let mut s = Story::new(3, bug);
    s.c.use_lock(2, "held");
    s.evict_dc2();
    assert!(kept_alive(&mut s.c).is_ok(), "it does not know of it");
    s.c.link(1, 2);
    s.c.run();
    assert!(s.c.inspect(2).is_over());
    let answer = kept_alive(&mut s.c);
    let ended = |notice: &Notice| matches!(notice, Notice::LeaseEnded { .. });
    (answer, s.c.nodes[2].notices.iter().any(ended))
}

#[test]
fn a_server_that_knows_of_its_eviction_ends_all_leases_at_once() {
    let (answer, was_told) = renewed_by_an_evicted_server(None);
    assert!(matches!(answer, Err(Refusal::UnknownLease(_))) && was_told, "{answer:?}");
    assert!(renewed_by_an_evicted_server(Some(Bug::EvictedRenews)).0.is_ok());
}

/// The members that refuse its links tell it, not the decisions.
#[test]
fn a_server_that_is_told_of_its_end_from_outside_ends_all_leases() {
    let mut s = Story::new(3, None);
    let held = s.c.lock(2, "held");
    s.c.run();
    let granted = s.c.granted(2, held).request;
    s.c.isolate(2);
    s.c.handle(2, Event::Ended);
    s.c.handle(2, Event::Tick);
    s.c.sync(2);
    assert!(!s.serves(2) && s.c.inspect(2).status().counts.held == 0);
    assert!(matches!(kept_alive(&mut s.c), Err(Refusal::UnknownLease(_))));
    let release = s.c.release(2, granted);
    assert!(matches!(s.c.reply(2, release), Some(Reply::Refused(_))), "its lease is gone");
}

/// Each server has a limit of its own: dc2 the longest. All take part in a control group, on links of this
/// version.
fn with_limits(version: u16, bug: Option<Bug>) -> Cluster {
    let mut c = Cluster::new(3, 0, 0);
    (c.has_control_group, c.version, c.bug) = (true, version, bug);
    for id in 0..3 {
        c.local.max_lease_ttl = Duration::from_secs(10 * (u64::from(id) + 1));
        c.restart(id);
        c.link_again(id);
    }
    let proposal = Proposal { checked: Revision(0), command: Command::Found(founding(3)) };
    for id in 0..3 {
        let (lineage, index) = (Lineage(0), Index(1));
        c.handle(id, Event::Decided { lineage, index, proposal: Box::new(proposal.clone()) });
    }
    c.pass(20_000);
    c
}

#[test]
fn a_lease_without_a_time_to_live_is_no_longer_than_the_limit() {
    let mut c = Cluster::new(1, 0, 0);
    let mut opened = |longest| {
        c.local.max_lease_ttl = Duration::from_secs(longest);
        c.restart(0);
        c.pass(2_000);
        let open = Call::OpenLease { secret: SECRET, ttl: None, on_disconnect: OnDisconnect::Keep };
        let tag = c.call(0, open);
        c.sync(0);
        match c.reply(0, tag) {
            Some(Reply::LeaseOpened { ttl, .. }) => ttl,
            other => panic!("a lease is opened, not {other:?}"),
        }
    };
    assert_eq!([opened(60), opened(4)], [Duration::from_secs(10), Duration::from_secs(4)]);
}

#[test]
fn the_longest_lease_of_a_lost_datacenter_is_known_also_after_a_restart() {
    let mut c = with_limits(LEASES_VERSION, None);
    let of_dc2 = |c: &Cluster| c.inspect(0).lease_limits()[&dc(2)];
    assert_eq!(of_dc2(&c), Duration::from_secs(30), "its own, not that of dc0");
    let unheard = with_limits(LEASES_VERSION, Some(Bug::LeaseLimitsUnheard));
    assert_eq!(of_dc2(&unheard), Duration::from_secs(10), "dc2 has clients for 20 s more");
    c.isolate(2);
    c.local.max_lease_ttl = Duration::from_secs(10);
    c.restart(0);
    assert_eq!(of_dc2(&c), MAX_LEASE_TTL, "nobody has told it");
    c.link(0, 1);
    c.pass(5_000);
    assert_eq!(of_dc2(&c), Duration::from_secs(30), "dc1 knows it");
}

#[test]
fn of_a_server_that_does_not_tell_the_longest_possible_lease_is_assumed() {
    let c = with_limits(LEASES_VERSION - 1, None);
    assert_eq!(c.inspect(0).lease_limits()[&dc(2)], MAX_LEASE_TTL);
    assert_eq!(c.inspect(0).lease_limits()[&dc(0)], Duration::from_secs(10));
}
