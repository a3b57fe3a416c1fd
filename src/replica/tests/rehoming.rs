//! Stories about locks below a prefix that gets another home.

use super::cluster::{Cluster, dc, founding};
use crate::membership::{Command, Config, Index, Lineage, Prefix, PrefixRule, Proposal};
use crate::replica::Event;
use crate::replica::call::Phase;

/// Three members, which learn the decisions that a story makes, each when the story says so.
struct Story {
    c: Cluster,
    config: Config,
    decided: Vec<(Index, Proposal)>,
}

impl Story {
    fn new() -> Story {
        let c = Cluster::new(3, 0, 0);
        let mut story = Story { c, config: Config::default(), decided: Vec::new() };
        story.decide(Command::Found(founding(3)));
        (0..3).for_each(|id| story.learn(id));
        story
    }

    fn decide(&mut self, command: Command) {
        let proposal = Proposal { checked: self.config.revision(), command };
        let index = self.config.index().next();
        self.config.apply(index, &proposal).expect("it is possible");
        self.decided.push((index, proposal));
    }

    /// A member learns the last decision.
    fn learn(&mut self, id: u8) {
        let (index, proposal) = self.decided.last().cloned().expect("the first one is made at once");
        self.c.handle(id, Event::Decided { lineage: Lineage(0), index, proposal: Box::new(proposal) });
        self.c.sync(id);
    }

    fn set_home(&mut self, home: u8) {
        let prefix = Prefix::new(b"a").expect("a short prefix");
        self.decide(Command::SetRule {
            prefix,
            rule: PrefixRule { home: Some(dc(home)), operator_evicts: false },
        });
    }
}

#[test]
fn shared_requests_at_the_new_home_are_granted_once_the_last_member_has_given() {
    let mut s = Story::new();
    s.set_home(0);
    (0..3).for_each(|id| s.learn(id));
    s.c.run();
    s.set_home(1);
    s.learn(1);
    let requests = [s.c.share(1, "a"), s.c.share(1, "a")];
    s.c.sync(1);
    assert!(requests.iter().all(|tag| !s.c.is_answered(1, *tag)), "dc0 has not given");
    // Each gives before the requests arrive, so nobody has a part to send.
    for id in [0, 2] {
        s.learn(id);
    }
    s.c.run();
    for tag in requests {
        s.c.granted(1, tag);
    }
}

/// Seed 49 of profile `ruled-disks`: the entry of an epoch waited until the epoch was entered, and the epoch
/// was to be entered by that entry.
#[test]
fn a_disk_of_before_a_change_gets_the_entries_back_by_which_it_has_entered_it() {
    let mut s = Story::new();
    s.c.use_lock(0, "a");
    let copy = s.c.nodes[0].records.len();
    for home in [0, 1] {
        s.set_home(home);
        (0..3).for_each(|id| s.learn(id));
        s.c.run();
    }
    s.c.use_lock(0, "b");
    s.c.use_lock(1, "a");
    s.c.crash(0, copy);
    s.c.link_again(0);
    s.c.pass(1_000);
    assert_eq!(s.c.inspect(0).applied(), s.c.inspect(1).applied());
    // It does not know the leases of its clients: they may live.
    s.c.pass(65_000);
    for id in 0..3 {
        assert_eq!(s.c.inspect(id).phase(), Phase::Serving, "dc{id}");
    }
    s.c.assert_no_violations();
    s.c.open_lease(0, std::time::Duration::from_secs(10));
    for lock in ["a", "b"] {
        let asked = s.c.lock(0, lock);
        s.c.run();
        s.c.granted(0, asked);
    }
}
