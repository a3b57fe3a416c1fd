//! Stories about options that must be equal in the cluster: both sides of a link compare them.

use super::cluster::{Cluster, dc};
use crate::base::access_digests::AccessDigests;
use crate::base::wire::LEASES_VERSION;
use crate::causal_log::Violation;
use crate::replica::{Event, Message, Report, Terms};
use geolock_api::names::DcSet;

/// Returns true if it reports that two datacenters differ.
pub fn is_difference(report: &Report) -> bool {
    let of_data = matches!(report, Report::DigestsDiffer { .. } | Report::SumsDiffer { .. });
    of_data || matches!(report, Report::OptionDiffers { .. } | Report::AccessDiffers { .. })
}

impl Cluster {
    /// Links both anew, and changes the terms of dc1 in flight.
    fn link_with(&mut self, change: fn(&mut Terms)) {
        self.cut(0, 1);
        self.link(0, 1);
        self.sync(1);
        let wire = self.wires.get_mut(&(dc(1), dc(0))).expect("they are linked");
        for message in wire {
            if let Message::Heartbeat(heartbeat) = message {
                change(&mut heartbeat.terms);
            }
        }
        self.run();
    }
}

#[test]
fn a_peer_with_other_members_is_refused_and_both_sets_are_named() {
    let mut c = Cluster::new(2, 0, 0);
    c.link_with(|terms| terms.members.insert(dc(2)));
    let [violation @ Violation::Members { theirs, ours }] = &c.nodes[0].violations[..] else {
        panic!("{:?}", c.nodes[0].violations)
    };
    assert_eq!((*theirs, *ours), ((0..3).map(dc).collect(), (0..2).map(dc).collect::<DcSet>()));
    let said = violation.to_string();
    assert!(said.contains("members {dc0, dc1, dc2}, ours {dc0, dc1}"), "{said}");
}

/// The refused peer reports a member that the others do not know.
#[test]
fn a_peer_that_is_refused_does_not_part_the_others() {
    let mut c = Cluster::new(3, 0, 0);
    c.cut(0, 1);
    c.link(0, 1);
    c.sync(1);
    for message in c.wires.get_mut(&(dc(1), dc(0))).expect("they are linked") {
        if let Message::Heartbeat(heartbeat) = message {
            heartbeat.terms.members.insert(dc(3));
            heartbeat.speaks.push((dc(3), 2));
        }
    }
    c.run();
    c.pass(2_000);
    assert!(matches!(c.nodes[0].violations[..], [Violation::Members { .. }]));
    assert!(c.nodes[2].violations.is_empty(), "{:?}", c.nodes[2].violations);
}

#[test]
fn an_option_that_differs_is_named_once_with_both_values_and_stops_nothing() {
    let mut c = Cluster::new(2, 0, 0);
    c.link_with(|terms| terms.max_clock_skew_ms = 9_000);
    let differs =
        Report::OptionDiffers { peer: dc(1), option: "cluster.max_clock_skew", ours: 5_000, theirs: 9_000 };
    assert_eq!(c.reports, [differs]);
    assert!(c.nodes.iter().all(|node| node.violations.is_empty()));
    c.use_lock(0, "a");
}

fn rules(n: u8) -> AccessDigests {
    AccessDigests { rules: Some([n; 32]), tokens: None }
}

fn differing(c: &Cluster, id: usize) -> Vec<&'static str> {
    c.inspect(id).status().peers[0].differing.clone()
}

#[test]
fn access_rules_that_differ_are_named_until_they_are_the_same() {
    let mut c = Cluster::new(2, 0, 0);
    c.version = LEASES_VERSION;
    c.cut(0, 1);
    c.link(0, 1);
    c.handle(0, Event::AccessRules { digests: rules(1) });
    c.pass(1_000);
    assert!(differing(&c, 0).is_empty() && differing(&c, 1).is_empty(), "dc1 has not read its files yet");
    c.handle(1, Event::AccessRules { digests: AccessDigests::default() });
    c.pass(1_000);
    assert_eq!((differing(&c, 0), differing(&c, 1)), (vec!["api.acl"], vec!["api.acl"]));
    let only_in =
        |peer, ours| Report::AccessDiffers { peer: dc(peer), option: "api.acl", ours, theirs: !ours };
    assert_eq!(c.reports, [only_in(0, false), only_in(1, true)]);
    // An operator gives dc1 the same file, and has it read again.
    c.handle(1, Event::AccessRules { digests: rules(1) });
    c.pass(1_000);
    assert!(differing(&c, 0).is_empty() && differing(&c, 1).is_empty());
    assert_eq!(c.reports.len(), 2);
    // It counts as long as the link: on the next one it is told again.
    c.handle(1, Event::AccessRules { digests: rules(2) });
    c.cut(0, 1);
    assert_eq!(c.reports.len(), 3, "dc1 compares at once: {:?}", c.reports);
    c.link(0, 1);
    c.pass(1_000);
    assert_eq!((differing(&c, 0), c.reports.len()), (vec!["api.acl"], 5));
}

#[test]
fn a_peer_of_before_is_told_no_access_rules() {
    let mut c = Cluster::new(2, 0, 0);
    c.version = LEASES_VERSION - 1;
    c.cut(0, 1);
    c.link(0, 1);
    for id in [0, 1] {
        c.handle(id, Event::AccessRules { digests: rules(id) });
        c.pass(1_000);
    }
    assert!(differing(&c, 0).is_empty() && c.reports.is_empty());
}
