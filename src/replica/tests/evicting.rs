//! Stories about members that are lost and evicted.

use std::time::Duration;

use super::cluster::{Cluster, dc, founding};
use super::store_cluster::{add, step};
use crate::base::bugs::Bug;
use crate::base::time::Timestamp;
use crate::base::wire::PROTOCOL_VERSION;
use crate::causal_log::{Entry, EntryFault, Violation};
use crate::crdt::VersionVector;
use crate::membership::{
    Address, Admission, AttemptId, Command, Config, Credentials, Epoch, EvictPolicy, Evictee, Eviction,
    Generation, Index, Lineage, MemberName, Policy, Proposal, Revision, ServerId, Voter, Vouch,
};
use crate::replica::call::Phase;
use crate::replica::call::store::{Durability, Durable, Step, Then};
use crate::replica::{Event, Message};
use geolock_api::names::{ClusterId, DcId, DcSet};

/// A cluster with a list of decisions, which every member that is up learns at once.
pub(super) struct Story {
    pub(super) c: Cluster,
    pub(super) config: Config,
    pub(super) up: Vec<u8>,
}

impl Story {
    pub(super) fn new(size: u8, bug: Option<Bug>) -> Story {
        let mut c = Cluster::with_old(size, Default::default(), bug);
        // Heartbeats tell who is heard.
        c.pass(1_000);
        let mut story = Story { c, config: Config::default(), up: (0..size).collect() };
        story.decide(Command::Found(founding(size)));
        story
    }

    pub(super) fn decide(&mut self, command: Command) {
        let proposal = Proposal { checked: self.config.revision(), command };
        let index = self.config.index().next();
        self.config.apply(index, &proposal).expect("it is possible");
        for id in self.up.clone() {
            self.c.handle(
                id,
                Event::Decided { lineage: Lineage(0), index, proposal: Box::new(proposal.clone()) },
            );
        }
    }

    /// dc2 makes an entry that only dc0 gets, and is lost. Nobody relays it yet.
    pub(super) fn lose_dc2(&mut self) {
        self.c.cut(1, 2);
        self.c.run();
        self.c.late = |message| matches!(message, Message::Entries(entries) if entries[0].dc.get() == 2);
        self.c.lock(2, "hot");
        self.c.sync(2);
        self.c.late = |_| false;
        while self.c.deliver(2, 0) {}
        self.c.cut(0, 2);
        self.up.retain(|id| *id != 2);
    }

    pub(super) fn begin(&mut self) -> AttemptId {
        let members =
            vec![Evictee { dc: dc(2), generation: Generation(0), last_heard: Timestamp::default() }];
        self.decide(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }));
        AttemptId(self.config.index().0)
    }

    /// Every member that is up reports what it has, and the eviction ends.
    pub(super) fn end(&mut self, attempt: AttemptId, reports: &[(u8, VersionVector)]) {
        for (id, vector) in reports {
            let by = Voter::Member { dc: dc(*id), generation: Generation(0) };
            self.decide(Command::Have { attempt, by, vector: vector.clone() });
        }
        self.decide(Command::End { attempt });
    }

    /// dc0 and dc1 evict dc2, which they do not hear.
    pub(super) fn evict_dc2(&mut self) {
        self.c.isolate(2);
        self.up.retain(|id| *id != 2);
        let attempt = self.begin();
        let reports = [(0, self.vector(0)), (1, self.vector(1))];
        self.end(attempt, &reports);
        self.c.run();
    }

    /// A server joins with this id; dc0 gives it its state.
    pub(super) fn admit(&mut self, dc: DcId, generation: Generation) {
        self.admit_by(dc, generation, super::cluster::dc(0));
    }

    fn admit_by(&mut self, dc: DcId, generation: Generation, sponsor: DcId) {
        let name = MemberName::new(&format!("dc{}", dc.get())).expect("a short name");
        let address = Address::new(&format!("{name}:7402")).expect("a host and a port");
        let cluster = self.config.cluster().expect("it is founded");
        self.decide(Command::Invite { name: name.clone(), sponsor: None });
        self.decide(Command::Admit(Admission {
            dc,
            generation,
            server: ServerId([90 + dc.get(); 16]),
            name,
            address,
            sponsor,
            votes: false,
            credentials: Credentials { cluster, lineage: None, version: PROTOCOL_VERSION },
        }));
    }

    pub(super) fn has_entered(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).entered_by(dc(id)) == self.config.epoch()
    }

    /// Returns the highest bits of the token of a lock whose parts dc2 owned.
    fn fence_of_a_grant(&mut self) -> u64 {
        let moved = self.c.lock(1, "moved");
        self.c.run();
        self.c.granted(1, moved).token.0 >> 54
    }

    pub(super) fn serves(&self, id: u8) -> bool {
        self.c.inspect(usize::from(id)).phase() == Phase::Serving
    }

    fn has(&self, id: u8) -> u64 {
        self.c.inspect(usize::from(id)).applied().get(dc(2))
    }

    pub(super) fn vector(&self, id: u8) -> VersionVector {
        self.c.inspect(usize::from(id)).applied().clone()
    }
}

#[test]
fn who_has_promised_takes_nothing_more_of_one_that_is_evicted_until_that_is_given_up() {
    let mut s = Story::new(3, None);
    s.lose_dc2();
    let (ahead, behind) = (s.has(0), s.has(1));
    assert!(ahead > behind, "only dc0 has the last entry of dc2");
    let attempt = s.begin();
    s.c.run();
    assert_eq!(s.has(1), behind, "it is held back");
    s.decide(Command::Abort { attempt });
    s.c.run();
    s.c.pass(10);
    assert_eq!(s.has(1), ahead);
}

#[test]
fn a_promise_that_is_not_kept_is_noticed() {
    let mut s = Story::new(3, Some(Bug::PromiseBroken));
    s.lose_dc2();
    s.begin();
    s.c.run();
    assert_eq!(s.has(1), s.has(0), "it was taken after the promise");
}

/// The end of dc2 is decided, and dc0 alone has the entry of the cut. Returns the story and the cut.
fn ended(bug: Option<Bug>) -> (Story, u64) {
    ends(Story::new(3, bug))
}

/// The same in a story that has begun.
fn ends(mut s: Story) -> (Story, u64) {
    // All parts of a lock are at dc2.
    s.c.use_lock(2, "moved");
    s.c.run();
    s.lose_dc2();
    let cut = s.has(0);
    let attempt = s.begin();
    let reports = [(0, s.vector(0)), (1, s.vector(1))];
    s.c.cut(0, 1);
    s.end(attempt, &reports);
    s.c.run();
    assert!(s.has(1) < cut, "dc1 lacks the entry of the cut");
    (s, cut)
}

#[test]
fn an_end_is_entered_with_all_entries_up_to_the_cut_and_what_the_evicted_owned_is_home() {
    let (mut s, cut) = ended(None);
    assert!(!s.has_entered(1), "dc1 does not enter the end yet");
    s.c.link(0, 1);
    s.c.run();
    s.c.pass(1_000);
    for id in [0, 1] {
        assert_eq!(s.has(id), cut);
        assert!(s.has_entered(id));
    }
    assert_eq!(s.fence_of_a_grant(), 17, "a token after the first eviction is above all of before");
}

/// dc1 starts again from a checkpoint of when the end of dc2 was decided and not entered.
#[test]
fn what_is_lacking_before_the_cut_is_taken_after_a_restart_too() {
    let mut s = Story::new(3, None);
    s.decide(Command::SetPolicy(Policy { evict: EvictPolicy::Auto, ..Policy::default() }));
    s.c.pass(60_000);
    (0..3).for_each(|id| s.c.open_lease(id, Duration::from_secs(15)));
    let (mut s, cut) = ends(s);
    let entered = s.c.inspect(1).entered_by(dc(2));
    assert!(entered > Epoch(0) && !s.has_entered(1), "{entered:?}");
    s.c.restart_from_checkpoint(1);
    assert_eq!(s.c.inspect(1).entered_by(dc(2)), entered);
    s.c.link(0, 1);
    // Long enough for all that waits after a start.
    s.c.pass(20_000);
    assert_eq!(s.c.nodes[1].violations, []);
    assert_eq!(s.has(1), cut);
    assert!(s.has_entered(1));
}

/// dc2 is evicted, then dc3, which had entered the end of dc2. dc0 was away meanwhile, and needs the entries
/// that dc3 made after that.
#[test]
fn of_two_ends_the_first_is_entered_before_the_last_entries_of_the_second_are_taken() {
    let mut s = Story::new(4, None);
    s.c.run();
    s.c.isolate(2);
    s.c.isolate(0);
    s.up.retain(|id| *id == 1 || *id == 3);
    let attempt = s.begin();
    let vectors = [0, 1, 3].map(|id| (id, s.vector(id)));
    s.end(attempt, &vectors);
    let first = s.config.epoch();
    s.c.run();
    assert!(s.has_entered(1) && s.has_entered(3));
    s.c.lock(3, "wanted");
    s.c.run();
    s.c.isolate(3);
    s.up.retain(|id| *id == 1);
    let members = vec![Evictee { dc: dc(3), generation: Generation(0), last_heard: Timestamp::default() }];
    s.decide(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: Some(first) }));
    let vectors = [0, 1].map(|id| (id, s.vector(id)));
    s.end(AttemptId(s.config.index().0), &vectors);
    let cut = s.vector(1).get(dc(3));
    assert!(s.vector(0).get(dc(3)) < cut, "dc0 lacks what dc3 did after the first end");
    s.c.link(0, 1);
    s.c.run();
    s.c.pass(1_000);
    assert!(s.has_entered(0) && s.has_entered(1));
    assert_eq!(s.vector(0).get(dc(3)), cut);
}

#[test]
fn an_end_that_is_entered_without_its_cut_is_noticed() {
    let (s, _) = ended(Some(Bug::EndWithoutCut));
    assert!(s.has_entered(1));
}

#[test]
fn tokens_without_a_fence_are_noticed() {
    let (mut s, _) = ended(Some(Bug::TokensUnfenced));
    s.c.link(0, 1);
    s.c.run();
    s.c.pass(1_000);
    assert!(s.fence_of_a_grant() < 16, "it is a plain reading");
}

#[test]
fn entries_beyond_the_cut_never_count() {
    let mut s = Story::new(3, None);
    s.lose_dc2();
    // dc0 does not know of it yet: its report is that of before.
    let attempt = s.begin();
    let short: VersionVector = s.vector(1);
    s.end(attempt, &[(0, s.vector(0)), (1, short)]);
    s.c.run();
    s.c.pass(1_000);
    let cut = s.has(0);
    // dc2 lives after all, and goes on.
    s.c.lock(2, "more");
    s.c.sync(2);
    s.c.link(1, 2);
    s.c.run();
    s.c.pass(1_000);
    assert_eq!((s.has(0), s.has(1)), (cut, cut));
    assert!(s.c.inspect(2).is_over(), "it has learnt that it was evicted");
}

#[test]
fn an_eviction_is_given_up_when_the_lost_one_is_heard() {
    let mut s = Story::new(3, None);
    s.begin();
    s.c.pass(1_000);
    let abort = s.c.proposed.iter().any(|proposal| matches!(proposal.command, Command::Abort { .. }));
    assert!(abort, "{:?}", s.c.proposed);
}

/// dc2 is down when it is evicted, and starts again without any link. Returns the story, with dc2 up.
fn started_again(bug: Option<Bug>) -> Story {
    let mut s = Story::new(3, bug);
    s.c.run();
    s.lose_dc2();
    let attempt = s.begin();
    let reports = [(0, s.vector(0)), (1, s.vector(1))];
    s.end(attempt, &reports);
    s.c.run();
    s.c.restart(2);
    s.c.pass(30_000);
    s
}

#[test]
fn a_member_that_was_down_asks_before_it_serves_whether_it_was_evicted() {
    let mut s = started_again(None);
    assert!(!s.serves(2), "nobody has told it that it is a member");
    s.c.link(1, 2);
    s.c.run();
    assert!(s.c.inspect(2).is_over() && !s.serves(2));
}

#[test]
fn a_member_that_was_down_serves_when_it_is_told_that_it_is_one() {
    let mut s = Story::new(3, None);
    s.c.isolate(1);
    s.c.restart(1);
    s.c.pass(30_000);
    assert!(!s.serves(1));
    s.c.link(0, 1);
    s.c.run();
    s.c.pass(1_000);
    assert!(s.serves(1), "dc0 and itself are a majority");
}

#[test]
fn one_that_does_not_ask_serves_what_is_not_its_own_any_more() {
    assert!(started_again(Some(Bug::ServesUnasked)).serves(2));
}

/// dc1 gives the parts of a lock to dc2, and dc0 does not hear of that before all act by the end of dc2.
/// Returns the story before the entries of dc1 reach dc0.
fn given_to_one_that_is_lost(bug: Option<Bug>) -> Story {
    let mut s = Story::new(3, bug);
    s.c.use_lock(1, "moved");
    s.c.run();
    s.c.cut(0, 1);
    s.c.lock(2, "moved");
    s.c.sync(2);
    while s.c.deliver(2, 0) || s.c.deliver(2, 1) {}
    s.c.isolate(2);
    s.up.retain(|id| *id != 2);
    let attempt = s.begin();
    let reports = [(0, s.vector(0)), (1, s.vector(1))];
    s.end(attempt, &reports);
    s.c.run();
    s.c.pass(1_000);
    assert!(s.has_entered(0) && s.has_entered(1));
    s
}

/// Returns true if a member says that nothing is still to come that names dc2.
fn has_freed(s: &Story, id: u8) -> bool {
    s.c.inspect(usize::from(id)).freed().get(&dc(2)).is_some_and(|freed| freed.contains(dc(id)))
}

#[test]
fn a_slot_is_free_when_everybody_has_seen_all_others_enter_its_end() {
    let mut s = given_to_one_that_is_lost(None);
    assert!(!has_freed(&s, 0), "what dc1 did before it entered the end is still to come");
    s.c.link(0, 1);
    s.c.run();
    s.c.pass(1_000);
    assert!(has_freed(&s, 0) && has_freed(&s, 1));
}

#[test]
fn a_slot_that_is_given_out_too_soon_gets_what_was_given_to_the_one_before() {
    let mut s = given_to_one_that_is_lost(Some(Bug::FreedUnseen));
    assert!(has_freed(&s, 0));
    s.admit(dc(2), Generation(1));
    s.c.link(0, 1);
    s.c.run();
    s.c.pass(1_000);
    let owner = |id: usize| s.c.inspect(id).owner_of(&super::cluster::name("moved"), dc(1));
    assert_ne!(owner(0), owner(1), "dc0 gave it to the server that has the slot now");
}

/// With a list of decisions and without: its number would be one that no log reaches.
#[test]
fn an_entry_of_a_generation_that_nobody_admitted_closes_the_link() {
    for (is_founded, generation) in [(false, 1), (false, u64::from(u16::MAX)), (true, 1)] {
        let mut c = Cluster::new(3, 0, 0);
        if is_founded {
            let command = Command::Found(founding(3));
            let proposal = Box::new(Proposal { checked: Revision(0), command });
            c.handle(0, Event::Decided { lineage: Lineage(0), index: Index(1), proposal });
        }
        let deps = c.inspect(0).status().applied;
        let (cluster, seq) = (ClusterId::of("stories"), (generation << 48) + 1);
        let at = crate::base::time::Timestamp::from_millis(1_700_000_001_001);
        let entry =
            Entry { cluster, epoch: 0, prev: 0, lead_ms: 0, dc: dc(1), seq, at, deps, ops: Vec::new() };
        c.handle(0, Event::Received { peer: dc(1), message: Message::Entries(vec![entry.into()]) });
        let fault = EntryFault::Generation { epoch: 0 };
        assert_eq!(c.nodes[0].violations, [Violation::Entry { dc: dc(1), seq, fault }]);
    }
}

/// It comes from somebody who has taken a state, and so lacks the entries before it.
#[test]
fn an_entry_of_a_later_epoch_waits_for_those_before_it_and_accuses_nobody() {
    let mut s = Story::new(3, None);
    s.c.isolate(1);
    s.up.retain(|id| *id != 1);
    s.admit(dc(3), Generation(0));
    s.c.pass(1_000);
    let epoch = s.config.epoch();
    let known = s.c.inspect(0).applied().clone();
    assert!(s.has_entered(0) && s.c.inspect(0).entered_by(dc(1)) < epoch, "dc0 has not seen dc1 enter");
    let mut deps = known.clone();
    deps.raise(dc(1), known.get(dc(1)) + 5);
    let (cluster, seq) = (ClusterId::of("stories"), known.get(dc(1)) + 6);
    let at = crate::base::time::Timestamp::from_millis(1_700_000_001_001);
    let entry =
        Entry { cluster, epoch: epoch.0, prev: 0, lead_ms: 0, dc: dc(1), seq, at, deps, ops: Vec::new() };
    s.c.handle(0, Event::Received { peer: dc(2), message: Message::Entries(vec![entry.into()]) });
    assert_eq!(s.c.nodes[0].violations, []);
    assert_eq!(*s.c.inspect(0).applied(), known);
}

/// dc2 is settled as its decision says, which dc0 and dc1 have not seen in the logs: they do not enter the
/// epoch of a member whose part would go along with that of dc2. Returns true if they did.
fn enters_before_the_sponsor_is_settled(bug: Option<Bug>) -> bool {
    let mut s = Story::new(2, bug);
    s.admit(dc(2), Generation(0));
    s.c.pass(1_000);
    assert!(s.has_entered(0) && s.has_entered(1), "dc2 is admitted");
    s.decide(Command::Settled { dc: dc(2), generation: Generation(0) });
    s.admit_by(dc(3), Generation(0), dc(2));
    s.c.pass(1_000);
    s.has_entered(0) || s.has_entered(1)
}

#[test]
fn nothing_goes_along_with_a_part_that_goes_along_itself() {
    assert!(!enters_before_the_sponsor_is_settled(None));
}

#[test]
#[should_panic(expected = "is settled")]
fn an_epoch_that_is_entered_before_the_sponsor_is_settled_is_caught() {
    enters_before_the_sponsor_is_settled(Some(Bug::SponsorUnsettled));
}

/// Returns true if a commit that dc1 and dc2 have is said to be at a majority, without dc0, the only voter.
fn is_at_majority_without_the_voter(bug: Option<Bug>) -> bool {
    let mut story = Story::new(3, bug);
    for id in [1, 2] {
        story.decide(Command::Vote { dc: dc(id), generation: Generation(0), votes: false });
        story.c.pass(2_000);
    }
    story.c.isolate(0);
    let durability = Durability::Majority { wait: Duration::from_secs(10) };
    let commit = Step { durability, ..step(vec![add("n", 1)], &[], Then::Commit) };
    let tag = story.c.begin(1, 1, None, commit);
    story.c.pass(5_000);
    let is_early = story.c.is_answered(1, tag);
    if !is_early {
        story.c.pass(10_000);
        let missing = DcSet::only(dc(0));
        assert_eq!(story.c.stepped(1, tag).durable, Durable::NotAtMajority { missing });
    }
    is_early
}

/// dc0 may decide alone to evict the two others, and what only they have is lost.
#[test]
fn a_majority_has_a_majority_of_the_voters_in_it() {
    assert!(!is_at_majority_without_the_voter(None));
    assert!(is_at_majority_without_the_voter(Some(Bug::VotersDoNotCount)));
}
