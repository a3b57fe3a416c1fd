//! Stories about eviction by time: who is backed by a majority of the voters, and who is silent about whom.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, founding};
use super::store_cluster::{add, step};
use crate::base::bugs::Bug;
use crate::base::time::Timestamp;
use crate::leases::{OnDisconnect, Proof};
use crate::membership::{
    Command, Config, EvictPolicy, Evictee, Eviction, Generation, Lineage, Policy, Prefix, PrefixRule,
    Proposal, Vouch,
};
use crate::replica::call::store::{Then, TxnRefusal, TxnState};
use crate::replica::call::{Call, Phase, Refusal, Reply};
use crate::replica::{Event, Message, NotServing, Record};
use geolock_api::names::Mode;

/// Datacenters that evict by time (fenced after 10 s, evicted after 30 s, leases of 15 s), and the config of
/// their control group, whose decisions all that are up learn at once.
struct Story {
    c: Cluster,
    config: Config,
    up: Vec<u8>,
}

impl Story {
    fn new(bug: Option<Bug>) -> Story {
        Story::of(3, bug)
    }

    /// They do not evict by time yet.
    fn founded(size: u8, bug: Option<Bug>) -> Story {
        let mut c = Cluster::with_old(size, Default::default(), bug);
        c.pass(1_000);
        let mut s = Story { c, config: Config::default(), up: (0..size).collect() };
        s.decide_command(Command::Found(founding(size)));
        s
    }

    fn set_auto(&mut self) {
        self.decide_command(Command::SetPolicy(Policy { evict: EvictPolicy::Auto, ..Policy::default() }));
    }

    fn of(size: u8, bug: Option<Bug>) -> Story {
        let mut s = Story::founded(size, bug);
        s.set_auto();
        s.pass(50_000);
        assert!((0..size).all(|id| s.serves(id) && s.has_entered(id)));
        for id in 0..size {
            s.c.open_lease(id, Duration::from_secs(15));
        }
        s
    }

    fn decide_command(&mut self, command: Command) {
        self.decide(Proposal { checked: self.config.revision(), command });
    }

    /// The control group orders a proposal.
    fn decide(&mut self, proposal: Proposal) {
        let index = self.config.index().next();
        // A refused command is a decision without effect.
        let _applied = self.config.apply(index, &proposal);
        for id in self.up.clone() {
            self.c.handle(
                id,
                Event::Decided { lineage: Lineage(0), index, proposal: Box::new(proposal.clone()) },
            );
        }
        self.c.run();
    }

    /// Time passes, clients renew their leases, and what is proposed is decided.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 500 {
            self.c.pass(500);
            let proposed = std::mem::take(&mut self.c.proposed);
            proposed.into_iter().for_each(|proposal| self.decide(proposal));
        }
    }

    /// The same, and the clients of these renew their leases.
    fn pass_with(&mut self, ids: &[u8], millis: u64) {
        for _ in 0..millis / 1_000 {
            for id in ids {
                let _valid_for = self.renew(*id);
            }
            self.pass(1_000);
        }
    }

    fn renew(&mut self, id: u8) -> Option<Duration> {
        let lease = self.c.lease(id);
        let tag = self.c.call(id, Call::KeepAlive { lease, proof: Proof::Attached });
        match self.c.reply(id, tag) {
            Some(Reply::Renewed { ttl }) => Some(ttl),
            _ => None,
        }
    }

    fn serves(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).phase() == Phase::Serving
    }

    fn has_entered(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).epoch() == self.config.epoch()
    }

    fn is_member(&self, id: u8) -> bool {
        self.config.slots().member(dc(id)).is_some()
    }

    /// Returns true if a voter has recorded that it is silent about some member.
    fn is_silent(&self, id: u8) -> bool {
        let records = &self.c.nodes[usize::from(id)].records;
        records.iter().any(|(_, record)| matches!(record, Record::Silent { .. }))
    }

    /// Returns true if a shared request, for which the part that is there suffices, is granted at once.
    fn grants(&mut self, id: u8) -> bool {
        let tag = self.c.share(id, "shared");
        self.c.sync(id);
        matches!(self.c.reply(id, tag), Some(Reply::Granted(_)))
    }
}

#[test]
fn a_member_that_nobody_acknowledges_grants_nothing_before_it_can_be_evicted() {
    let mut s = Story::new(None);
    s.c.isolate(2);
    s.pass_with(&[2], 9_000);
    assert!(s.grants(2), "it is backed for 10 s");
    s.pass(2_000);
    assert!(!s.grants(2));
    assert!(s.grants(0), "the others are backed");
    s.pass(15_000);
    assert!(s.is_member(2), "its clients may believe in their leases");
    s.pass(8_000);
    assert!(!s.is_member(2));
    s.c.link_again(2);
    s.pass(2_000);
    assert!(s.c.inspect(2).is_over(), "it learns of its end");
}

#[test]
fn of_two_neither_is_evicted_so_neither_stops() {
    let mut s = Story::of(2, None);
    s.c.isolate(1);
    s.pass_with(&[0, 1], 60_000);
    assert!(s.is_member(0) && s.is_member(1));
    assert!(s.grants(0) && s.grants(1), "each needs its own part only");
    assert_eq!(s.c.inspect(1).status().backed_for_ms, None);
}

/// All other changes wait for it: joins, leaves, and evictions of a dead member.
#[test]
fn a_policy_waits_for_leases_that_are_there_and_not_for_those_that_may_be() {
    let mut s = Story::founded(3, None);
    s.c.open_lease(0, Duration::from_secs(15));
    s.c.open_lease(1, Duration::from_secs(20));
    s.set_auto();
    s.pass(2_000);
    assert!(
        s.has_entered(0) && s.has_entered(2),
        "no lease is longer than the policy permits, or none is there"
    );
    assert!(!s.has_entered(1), "its client counts on its locks for 18 s");
    // Renewed for 15 s.
    s.pass_with(&[1], 4_000);
    assert!(s.has_entered(1));
}

#[test]
fn a_client_does_not_outlive_the_eviction_of_its_datacenter() {
    // How long the client of dc2 counts on its lock, and dc2 is a member.
    let story = |bug| {
        let mut s = Story::founded(3, bug);
        s.c.open_lease(2, Duration::from_secs(60));
        s.set_auto();
        s.pass(2_000);
        s.c.isolate(2);
        s.pass(56_000);
        s.is_member(2)
    };
    assert!(story(None), "it counts on its lease for 2 s more");
    assert!(!story(Some(Bug::LeasesOutlivePolicy)));
}

#[test]
fn times_told_before_a_restart_count() {
    // Also without any lease: its disk may be an old copy.
    for lease in [true, false] {
        let mut s = Story::founded(3, None);
        if lease {
            s.c.open_lease(2, Duration::from_secs(60));
        }
        s.c.restart(2);
        s.c.link_again(2);
        s.set_auto();
        s.pass(42_000);
        assert!(s.has_entered(0) && !s.has_entered(2), "it may have renewed a lease a moment before");
        s.pass(6_000);
        assert!(s.has_entered(2));
    }
}

#[test]
fn nobody_stops_granting_because_the_policy_changes() {
    let mut s = Story::new(None);
    let policy = *s.config.policy();
    s.decide_command(Command::SetPolicy(Policy { evict: EvictPolicy::Operator, ..policy }));
    s.decide_command(Command::SetPolicy(policy));
    assert!((0..3).all(|id| s.grants(id)));
    s.pass_with(&[0, 1, 2], 50_000);
    assert!((0..3).all(|id| s.has_entered(id) && s.grants(id)));
}

#[test]
fn a_policy_that_is_taken_back_before_it_is_entered_holds_up_no_other_change() {
    let mut s = Story::new(None);
    let policy = *s.config.policy();
    s.c.isolate(2);
    s.pass(11_000);
    s.decide_command(Command::SetPolicy(Policy { evict_after_ms: 40_000, ..policy }));
    assert!(!s.has_entered(2), "it waits to be acknowledged");
    s.decide_command(Command::SetPolicy(Policy { evict: EvictPolicy::Operator, ..policy }));
    s.pass(1_000);
    assert!((0..3).all(|id| s.has_entered(id)));
}

#[test]
fn one_that_is_acknowledged_again_goes_on() {
    let mut s = Story::new(None);
    s.c.isolate(2);
    s.pass_with(&[2], 12_000);
    assert!(!s.grants(2));
    assert_eq!(s.c.inspect(2).status().backed_for_ms, Some(0));
    s.c.link_again(2);
    s.pass(1_000);
    s.c.open_lease(2, Duration::from_secs(15));
    assert!(s.grants(2));
    s.pass(60_000);
    assert!(s.is_member(2));
}

#[test]
fn a_lease_is_not_renewed_unbacked_and_its_client_is_told_what_is_left() {
    let told = |bug| {
        let mut s = Story::new(bug);
        s.c.isolate(2);
        s.pass_with(&[2], 9_000);
        let before = s.renew(2);
        s.pass(4_000);
        (before, s.renew(2))
    };
    let secs = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(told(None), (secs(15), secs(11)));
    assert_eq!(told(Some(Bug::RenewsUnbacked)), (secs(15), secs(15)));
}

/// dc2 is cut off; its host stops the machine, clocks and all, and lets it run on.
#[test]
fn after_its_clock_stood_still_a_member_tells_its_clients_no_time_until_it_is_backed_again() {
    let told = |bug| {
        let mut s = Story::new(bug);
        s.c.isolate(2);
        s.pass_with(&[2], 9_000);
        s.c.ahead.insert(2, 13_000);
        s.c.handle(2, Event::Tick);
        let unbacked = s.renew(2);
        s.c.link_again(2);
        s.pass(1_500);
        (unbacked, s.renew(2))
    };
    let all = Some(Duration::from_secs(15));
    assert_eq!(told(None), (None, all));
    let (unbacked, _) = told(Some(Bug::TellsStoppedClock));
    assert!(unbacked > Some(Duration::from_secs(13)), "{unbacked:?}: others may have the lock before that");
}

#[test]
fn unbacked_no_lease_is_opened_and_a_lease_of_an_earlier_run_is_not_attached() {
    let mut s = Story::new(None);
    s.c.isolate(2);
    s.c.restart(2);
    s.c.pass(1_000);
    let lease = s.c.lease(2);
    let attach = s.c.call(2, Call::AttachLease { lease, secret: SECRET });
    assert!(matches!(s.c.refused(2, attach), Refusal::NotBacked { .. }));
    let open = Call::OpenLease {
        secret: SECRET,
        ttl: Some(Duration::from_secs(5)),
        on_disconnect: OnDisconnect::Keep,
    };
    let open = s.c.call(2, open);
    assert!(matches!(s.c.refused(2, open), Refusal::NotBacked { .. }));
}

#[test]
fn leases_are_no_longer_than_the_policy_permits() {
    let mut s = Story::new(None);
    let open = Call::OpenLease {
        secret: SECRET,
        ttl: Some(Duration::from_secs(16)),
        on_disconnect: OnDisconnect::Keep,
    };
    let open = s.c.call(0, open);
    let max = Duration::from_secs(15);
    assert!(matches!(s.c.refused(0, open), Refusal::TtlOutOfRange { max: most, .. } if most == max));
}

#[test]
fn a_voter_that_crashes_after_it_was_silent_acknowledges_nothing_before_that_is_taken_back() {
    let acknowledges = |bug| {
        let mut s = Story::new(bug);
        s.c.isolate(2);
        s.pass_with(&[0, 1], 29_500);
        // dc1 is silent about dc2, and its proposal is under way.
        while !s.is_silent(1) {
            s.c.pass(100);
            if bug == Some(Bug::SilenceNotOnDisk) && !s.c.proposed.is_empty() {
                break;
            }
        }
        s.c.proposed.clear();
        s.c.isolate(1);
        s.c.restart(1);
        s.c.restart(2);
        s.c.link(1, 2);
        s.c.pass(3_000);
        s.c.inspect(2).status().backed_for_ms > Some(0)
    };
    assert!(!acknowledges(None));
    assert!(acknowledges(Some(Bug::SilenceNotOnDisk)), "it has forgotten it");
}

#[test]
fn a_voter_that_has_just_started_is_silent_about_nobody() {
    let is_silent = |bug| {
        let mut s = Story::new(bug);
        s.c.isolate(2);
        // Nobody reports it any more.
        s.pass(4_000);
        s.c.restart(1);
        s.c.link(0, 1);
        s.pass(5_000);
        s.is_silent(1)
    };
    assert!(!is_silent(None));
    assert!(is_silent(Some(Bug::SilenceFromBefore)), "it may have acknowledged dc2 a moment ago");
}

#[test]
fn a_silent_voter_acknowledges_nothing() {
    let is_backed = |bug| {
        let mut s = Story::new(bug);
        s.c.isolate(2);
        s.pass_with(&[0, 1], 29_500);
        while !s.is_silent(1) {
            s.c.pass(100);
        }
        // Nothing that it proposes now is decided.
        s.c.link(1, 2);
        s.c.pass(5_000);
        s.c.inspect(2).status().backed_for_ms > Some(0)
    };
    assert!(!is_backed(None));
    assert!(is_backed(Some(Bug::AcknowledgesSilent)));
}

#[test]
fn a_machine_that_stood_still_with_its_clock_is_not_backed() {
    let mut s = Story::new(None);
    s.c.isolate(2);
    assert!(s.grants(2));
    s.c.ahead.insert(2, 20_000);
    s.c.handle(2, Event::Tick);
    assert!(!s.grants(2), "20 s may have passed since the others have acknowledged it");
}

#[test]
fn unbacked_nothing_is_committed_under_locks_and_the_rest_is() {
    let mut s = Story::new(None);
    let locked = s.c.begin(2, 1, Some("mine"), step(vec![], &[], Then::Continue));
    s.c.run();
    assert_eq!(s.c.stepped(2, locked).state, TxnState::Open);
    s.c.isolate(2);
    s.pass_with(&[2], 9_000);
    s.pass(3_000);
    let refused = s.c.next_step(2, 1, step(vec![add("a", 1)], &[], Then::Commit));
    assert!(matches!(s.c.txn_refused(2, refused), TxnRefusal::CannotCommit(_)));
    let unlocked = s.c.begin(2, 2, None, step(vec![add("a", 1)], &[], Then::Commit));
    s.c.sync(2);
    s.c.committed(2, unlocked);
}

#[test]
fn a_member_that_one_other_reaches_is_backed_by_all() {
    let mut s = Story::new(None);
    s.c.cut(0, 2);
    s.pass(40_000);
    assert!(s.is_member(2), "dc1 passes its heartbeats on to dc0, and back what dc0 acknowledges");
    assert!(s.c.inspect(2).status().backed_for_ms > Some(0));
}

#[test]
fn others_see_that_a_member_is_not_backed() {
    let mut s = Story::new(None);
    // Heartbeats arrive, and acknowledgements do not.
    s.c.late = |message| matches!(message, Message::HeartbeatAcks { .. });
    s.pass(12_000);
    assert_eq!(s.c.why(1, 2), Some(NotServing::Unbacked));
    s.c.late = |_| false;
    s.pass(1_000);
    assert_eq!(s.c.why(1, 2), None);
}

/// Two groups that do not reach each other; decisions come to both. Each member renews no more than it may.
fn parted(s: &mut Story, of: [u8; 2]) {
    for a in of {
        (0..5).filter(|b| !of.contains(b)).for_each(|b| s.c.cut(a, b));
    }
}

/// It has not entered the last voters: those of before may decide, too.
#[test]
fn a_member_is_backed_by_each_set_of_voters_that_may_count() {
    let mut s = Story::of(5, None);
    parted(&mut s, [0, 2]);
    let prefix = Prefix::new(b"x").expect("a short prefix");
    for home in [0, 2] {
        // The second rule waits until dc2 knows that all have given by the first one.
        let rule = PrefixRule { home: Some(dc(home)), operator_evicts: false };
        s.decide_command(Command::SetRule { prefix: prefix.clone(), rule });
    }
    for id in [3, 4] {
        s.decide_command(Command::Vote { dc: dc(id), generation: Generation(0), votes: false });
    }
    assert!(!s.has_entered(2) && s.grants(2), "it is backed for 10 s");
    // dc0 and dc2 are two of three voters of now, and two of five of before.
    (0..12).for_each(|_| s.c.pass(1_000));
    assert!(!s.grants(2), "three voters of before may evict it");
}

/// An eviction is under way: once the others are over, fewer voters decide.
#[test]
fn a_member_is_backed_by_the_voters_that_remain_after_an_eviction() {
    let mut s = Story::of(5, None);
    parted(&mut s, [0, 1]);
    let evictee = |id| Evictee { dc: dc(id), generation: Generation(0), last_heard: Timestamp::default() };
    let members = vec![evictee(3), evictee(4)];
    s.decide_command(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }));
    assert!(s.grants(2), "it is backed for 10 s");
    // dc2, dc3 and dc4 are three of five; of those that remain dc2 is one of three.
    (0..12).for_each(|_| s.c.pass(1_000));
    assert!(!s.grants(2), "dc0 and dc1 decide without it, once the eviction is over");
}

/// A reclaim renews its lease, and the others may evict this member meanwhile.
#[test]
fn a_reclaim_waits_until_the_member_is_backed() {
    let mut s = Story::new(None);
    let grant = s.c.acquired(2, "a", Mode::Shared);
    s.c.isolate(2);
    s.c.restart(2);
    s.c.pass(4_500);
    let reclaim = s.c.reclaims_early(2, &[("a", Mode::Shared, &grant)]);
    s.c.pass(2_000);
    assert!(!s.c.is_answered(2, reclaim), "it has asked everybody for long enough, and nobody backs it");
    s.c.link_again(2);
    s.c.pass(2_000);
    s.c.assert_kept(2, reclaim, &[&grant]);
}
