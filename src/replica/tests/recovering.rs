//! Stories about survivors that go on without a lost majority.

use super::cluster::{Cluster, dc, founding, name};
use super::store_cluster::{change, key, step};
use crate::base::bugs::Bug;
use crate::membership::{Command, Index, Lineage, MemberName, Proposal, RecoveryPlan, Refused};
use crate::replica::call::store::Then;
use crate::replica::{Event, Message, RecoveryMessage};
use geolock_api::names::DcSet;
use geolock_api::value::Op;

/// Long enough for everybody to notice who is silent.
const SILENT: u64 = 30_000;

fn set(ids: impl IntoIterator<Item = u8>) -> DcSet {
    ids.into_iter().map(dc).collect()
}

/// Five founders, of which dc0 and dc1 survive.
struct Story {
    c: Cluster,
    plan: RecoveryPlan,
}

impl Story {
    /// The survivors are linked with each other, and the lost ones with each other. dc1 alone has the last
    /// entry of dc4.
    fn new(bug: Option<Bug>) -> Story {
        let mut c = Cluster::with_old(5, Default::default(), bug);
        c.pass(1_000);
        for id in 0..5 {
            let proposal = Proposal { checked: Default::default(), command: Command::Found(founding(5)) };
            c.handle(id, Event::Decided { lineage: Lineage(0), index: Index(1), proposal: proposal.into() });
        }
        c.use_lock(4, "moved");
        c.run();
        for other in [0, 2, 3] {
            c.cut(other, 4);
        }
        c.cut(0, 1);
        c.lock(4, "hot");
        c.sync(4);
        while c.deliver(4, 1) {}
        for id in 2..5 {
            (0..2).for_each(|survivor| c.cut(survivor, id));
        }
        c.link(0, 1);
        c.late = |message| matches!(message, Message::Entries(entries) if entries[0].dc.get() == 4);
        c.pass(SILENT);
        let plan = RecoveryPlan { lineage: Lineage(1), survivors: set([0, 1]), lost: set(2..5) };
        Story { c, plan }
    }

    /// dc4 lives after all, and goes on.
    fn write_at_4(&mut self) {
        self.c.open_lease(4, std::time::Duration::from_secs(10));
        self.c.lock(4, "more");
        self.c.sync(4);
    }

    fn ask(&mut self, at: u8) {
        self.c.handle(at, Event::Recover { plan: self.plan });
    }

    /// Everything arrives.
    fn go_on(&mut self) {
        self.c.late = |_| false;
        self.c.run();
        self.c.pass(10_000);
    }

    fn has(&self, id: u8) -> u64 {
        self.c.inspect(usize::from(id)).applied().get(dc(4))
    }

    fn lineage(&self, id: u8) -> Lineage {
        self.c.inspect(usize::from(id)).decided_members().expect("it is founded").lineage()
    }

    fn refused(&self, id: u8) -> Option<Refused> {
        self.c.inspect(usize::from(id)).recovery().refused
    }

    /// Both survivors go on as one cluster, with all that either had.
    fn assert_recovered(&mut self, cut: u64) {
        for id in [0, 1] {
            assert_eq!((self.lineage(id), self.has(id)), (Lineage(1), cut), "dc{id}");
            let inspect = self.c.inspect(usize::from(id));
            assert_eq!(inspect.entered_by(dc(id)), inspect.decided_members().expect("decided").epoch());
            let [report] = inspect.losses() else { panic!("one report, not {:?}", inspect.losses()) };
            let lost = report.lost.last().expect("three are lost");
            assert_eq!((lost.dc, lost.last_entry, report.locks), (dc(4), cut, 2), "of dc{id}");
            assert_eq!(lost.stamp.map(|stamp| stamp.millis() < 1_700_000_000_000 + SILENT), Some(true));
        }
        let ours = self.c.inspect(0).decided_members().cloned();
        assert_eq!(ours, self.c.inspect(1).decided_members().cloned());
        let mut last = 0;
        for id in [0, 1, 0] {
            self.c.open_lease(id, std::time::Duration::from_secs(10));
            let tag = self.c.lock(id, "moved");
            self.c.run();
            let grant = self.c.granted(id, tag);
            assert!(grant.token.0 >> 54 == 32 && grant.token.0 > last, "it is above all of before");
            last = grant.token.0;
            self.c.release(id, grant.request);
            self.c.run();
        }
    }
}

#[test]
fn survivors_go_on_with_all_that_one_of_them_had() {
    for at in [0, 1] {
        let mut s = Story::new(None);
        let cut = s.has(1);
        assert!(s.has(0) < cut, "only dc1 has the last entry of dc4");
        s.ask(at);
        s.go_on();
        assert_eq!(s.refused(at), None);
        s.assert_recovered(cut);
    }
}

#[test]
fn two_that_recover_at_once_go_on_as_one() {
    let mut s = Story::new(None);
    let cut = s.has(1);
    s.ask(0);
    s.ask(1);
    s.go_on();
    s.ask(0);
    s.go_on();
    s.assert_recovered(cut);
}

#[test]
fn who_has_promised_takes_nothing_of_the_lost_and_no_decision_of_the_old_group() {
    let mut s = Story::new(None);
    s.c.late = |message| matches!(message, Message::Recovery(it) if matches!(**it, RecoveryMessage::Promised { .. }));
    let before = s.has(1);
    s.ask(0);
    s.c.run();
    assert_eq!(s.lineage(0), Lineage(0), "it waits for the promise of dc1");
    // dc4 and the majority live after all.
    s.write_at_4();
    s.c.link(1, 4);
    s.c.run();
    assert_eq!(s.has(1), before, "it is held back");
    let config = s.c.inspect(1).decided_members().expect("it is founded").clone();
    let command = Command::RemoveRule { prefix: crate::membership::Prefix::new(b"a").expect("a prefix") };
    let proposal = Box::new(Proposal { checked: config.revision(), command });
    s.c.handle(1, Event::Decided { lineage: Lineage(0), index: config.index().next(), proposal });
    assert_eq!(s.c.inspect(1).decided_members().map(|config| config.index()), Some(config.index()));
    // dc0 learns that dc1 hears dc4, and gives up: the promise is void.
    s.c.pass(1_000);
    let refused = s.refused(0);
    assert!(matches!(refused, Some(Refused::StillHeard { .. } | Refused::NoPromise { .. })), "{refused:?}");
    s.go_on();
    assert!(s.has(1) > before && s.lineage(1) == Lineage(0));
}

/// dc1 reports, crashes, hears a lost one that lives, and learns that it has promised to take nothing more.
fn crashed_after_its_report(bug: Option<Bug>) -> Story {
    let mut s = Story::new(bug);
    s.ask(0);
    s.c.sync(0);
    s.c.late = |_| false;
    // dc1 has not synced its promise.
    while s.c.deliver(0, 1) || s.c.deliver(1, 0) {}
    let on_disk = s.c.nodes[1]
        .records
        .iter()
        .position(|(_, record)| matches!(record, crate::replica::Record::RecoveryPromised(_)));
    s.c.crash(1, on_disk.expect("it has promised"));
    s.write_at_4();
    s.c.link(1, 4);
    s.c.pass(1_000);
    s.c.cut(1, 4);
    s
}

#[test]
fn a_report_stands_on_a_promise_that_is_on_disk() {
    let mut s = crashed_after_its_report(None);
    assert_eq!(s.lineage(0), Lineage(0), "nothing was reported");
    s.c.link(0, 1);
    s.c.pass(SILENT);
    let cut = s.has(1);
    s.ask(0);
    s.go_on();
    s.assert_recovered(cut);
}

#[test]
#[should_panic(expected = "ends at")]
fn a_report_before_the_promise_is_on_disk_is_noticed() {
    let mut s = crashed_after_its_report(Some(Bug::ReportBeforePromise));
    assert_eq!(s.lineage(0), Lineage(1));
    s.c.link(0, 1);
    s.go_on();
}

#[test]
fn a_survivor_that_crashes_before_it_decides_gives_up() {
    let mut s = Story::new(None);
    s.c.late = |message| matches!(message, Message::Recovery(it) if matches!(**it, RecoveryMessage::Promised { .. }));
    s.ask(0);
    s.c.run();
    s.c.restart(0);
    s.c.link(0, 1);
    s.go_on();
    assert_eq!((s.lineage(0), s.lineage(1)), (Lineage(0), Lineage(0)));
    // The promise of dc1 is void: it takes what dc4 has made meanwhile.
    let before = s.has(1);
    s.write_at_4();
    s.c.link(1, 4);
    s.go_on();
    assert!(s.has(1) > before);
}

/// dc0 decides, and crashes before that is on disk.
#[test]
fn a_decision_that_is_lost_in_a_crash_is_made_again() {
    let mut s = Story::new(None);
    let cut = s.has(1);
    s.ask(0);
    s.c.sync(0);
    s.c.late = |_| false;
    while s.c.deliver(0, 1) || s.c.deliver(1, 0) {}
    s.c.sync(1);
    while s.c.deliver(0, 1) || s.c.deliver(1, 0) {}
    assert_eq!((s.lineage(0), s.lineage(1)), (Lineage(1), Lineage(0)), "it is not told before it is on disk");
    let is_decision = |record: &crate::replica::Record| {
        let crate::replica::Record::Decided { proposal, .. } = record else { return false };
        matches!(proposal.command, Command::Recover(_))
    };
    let on_disk = s.c.nodes[0].records.iter().position(|(_, record)| is_decision(record));
    s.c.crash(0, on_disk.expect("it was decided"));
    s.c.link(0, 1);
    s.c.pass(SILENT);
    assert_eq!(s.lineage(0), Lineage(0));
    // The operator repeats it at the other one.
    s.ask(1);
    s.go_on();
    s.assert_recovered(cut);
}

#[test]
fn a_majority_that_is_up_is_not_given_up() {
    let mut s = Story::new(None);
    s.plan = RecoveryPlan { survivors: set([0, 1, 2]), lost: set([3, 4]), ..s.plan };
    s.ask(0);
    assert!(matches!(s.refused(0), Some(Refused::MajorityUp { .. })), "{:?}", s.refused(0));
    s.plan = RecoveryPlan { survivors: set([0]), lost: set(1..5), ..s.plan };
    s.ask(0);
    assert!(matches!(s.refused(0), Some(Refused::StillHeard { .. })), "{:?}", s.refused(0));
    s.c.cut(0, 1);
    s.c.pass(SILENT);
    s.plan = RecoveryPlan { survivors: set([0, 1]), lost: set(2..5), ..s.plan };
    s.ask(0);
    assert_eq!(s.refused(0), Some(Refused::SurvivorAway { members: set([1]) }));
    s.go_on();
    assert_eq!((s.lineage(0), s.lineage(1)), (Lineage(0), Lineage(0)));
}

#[test]
fn nobody_is_asked_before_the_ballot_is_on_disk() {
    let mut s = Story::new(None);
    s.ask(0);
    let is_ask = |message: &Message| matches!(message, Message::Recovery(_));
    assert!(!s.c.wires[&(dc(0), dc(1))].iter().any(is_ask), "a crash could take the ballot back");
    s.c.sync(0);
    assert!(s.c.wires[&(dc(0), dc(1))].iter().any(is_ask));
}

/// dc1 has promised to dc0, which may have decided.
#[test]
fn a_promise_is_kept_until_the_one_that_asked_gives_it_up() {
    let mut s = Story::new(None);
    s.c.late = |message| matches!(message, Message::Recovery(it) if matches!(**it, RecoveryMessage::Promised { .. }));
    s.ask(0);
    s.c.run();
    s.c.cut(0, 1);
    // The operator finds dc2, which was not lost.
    s.c.late = |_| false;
    s.c.link(1, 2);
    s.c.pass(SILENT);
    let all = s.plan;
    s.plan = RecoveryPlan { survivors: set([1, 2]), lost: set([0, 3, 4]), ..all };
    s.c.cut(2, 3);
    s.c.cut(2, 4);
    s.c.pass(SILENT);
    s.ask(1);
    assert!(matches!(s.refused(1), Some(Refused::RecoveryElsewhere { .. })), "{:?}", s.refused(1));
    // Alone it may go on: that keeps what it has promised.
    s.c.isolate(1);
    s.c.pass(SILENT);
    s.plan = RecoveryPlan { survivors: set([1]), lost: set([0, 2, 3, 4]), ..all };
    s.ask(1);
    s.go_on();
    assert_eq!((s.refused(1), s.lineage(1)), (None, Lineage(1)));
}

#[test]
fn the_locks_and_counters_of_the_lost_are_named_also_after_a_restart() {
    let mut c = Cluster::with_old(3, Default::default(), None);
    c.pass(1_000);
    for id in 0..3 {
        let proposal = Proposal { checked: Default::default(), command: Command::Found(founding(3)) };
        c.handle(id, Event::Decided { lineage: Lineage(0), index: Index(1), proposal: proposal.into() });
    }
    c.use_lock(2, "moved");
    c.use_lock(0, "elsewhere");
    c.use_lock(2, "carried");
    let changes = ["stock", "bonds"].map(|key| change(key, Op::BoundedCounter(10)));
    c.begin(2, 1, None, step(changes.into(), &[], Then::Commit));
    c.run();
    [1, 2].into_iter().for_each(|id| c.isolate(id));
    c.pass(SILENT);
    let plan = RecoveryPlan { lineage: Lineage(1), survivors: set([0]), lost: set([1, 2]) };
    c.handle(0, Event::Recover { plan });
    c.run();
    c.pass(1_000);
    let is_named = |c: &Cluster| {
        let [fallen] = c.inspect(0).fallen() else { panic!("one end, not {:?}", c.inspect(0).fallen()) };
        assert_eq!((fallen.epoch.0, fallen.members, fallen.locks), (2, set([1, 2]), 2));
        assert_eq!((&fallen.names[..], fallen.more_counters), (&["carried", "moved"].map(name)[..], false));
        assert_eq!(fallen.counters, ["bonds", "stock"].map(|counter| (key(counter), 10)));
    };
    is_named(&c);
    c.restart(0);
    is_named(&c);
    c.pass(30_000);
    c.handle(0, Event::Checkpoint);
    c.pass(1_000);
    let checkpoint = c.nodes[0].checkpoint.clone().expect("it is asked for");
    c.restart_from(0, checkpoint);
    is_named(&c);
}

/// dc1 alone learnt the last decision of the group before. A recovery without it would be another decision of
/// the same number.
#[test]
fn a_decision_that_only_one_survivor_knows_is_known_before_the_recovery() {
    for at in [0, 1] {
        let mut s = Story::new(None);
        let cut = s.has(1);
        s.c.cut(0, 1);
        let invite = Command::Invite { name: MemberName::new("late").expect("a short name"), sponsor: None };
        let revision = s.c.inspect(1).decided_members().expect("it is founded").revision();
        let proposal = Proposal { checked: revision, command: invite };
        s.c.handle(1, Event::Decided { lineage: Lineage(0), index: Index(2), proposal: proposal.into() });
        s.c.sync(1);
        // It is told late how many decisions dc1 knows.
        s.c.late = |message| matches!(message, Message::KnowsDecisions { .. } | Message::Entries(_));
        s.c.link(0, 1);
        s.c.pass(1_000);
        s.ask(at);
        s.c.pass(2_000);
        s.go_on();
        assert_eq!(s.refused(at), None);
        s.assert_recovered(cut);
        let invited = s.c.inspect(0).decided_members().expect("decided").invitations().count();
        assert_eq!(invited, 1, "the decision counts");
    }
}

/// A crash would take it back, and another survivor would act by it.
#[test]
fn the_decision_of_a_recovery_is_told_when_it_is_on_disk() {
    let mut s = Story::new(None);
    let cut = s.has(1);
    s.c.late = |message| matches!(message, Message::Recovery(it) if matches!(**it, RecoveryMessage::Promised { .. }));
    s.ask(0);
    s.c.pass(2_000);
    s.c.nodes[0].disk_is_stuck = true;
    s.c.late = |_| false;
    s.c.run();
    assert_eq!(
        (s.lineage(0), s.lineage(1)),
        (Lineage(1), Lineage(0)),
        "dc0 has decided, and not on its disk"
    );
    s.c.cut(0, 1);
    s.c.link(0, 1);
    s.c.run();
    assert_eq!(s.lineage(1), Lineage(0));
    s.c.nodes[0].disk_is_stuck = false;
    s.c.sync(0);
    s.go_on();
    s.assert_recovered(cut);
}
