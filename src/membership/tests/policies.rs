//! Policies, options, the version, and rules of prefixes.

use super::*;

fn prefix(text: &str) -> Prefix {
    Prefix::new(text.as_bytes()).expect("a prefix")
}

fn at_home(home: u8) -> PrefixRule {
    PrefixRule { home: Some(dc(home)), operator_evicts: false }
}

fn rule(text: &str, rule: PrefixRule) -> Command {
    Command::SetRule { prefix: prefix(text), rule }
}

#[test]
fn policies_are_logged_in_words() {
    let said = "the policy is: evict operator, join operator, rejoin operator, fence after 10.0 s, evict after 30.0 s, \
                longest lease 15.0 s";
    assert_eq!(Command::SetPolicy(Policy::default()).to_string(), said);
    let said =
        "the options of all members are: heartbeat interval 500 ms, peer timeout 3.0 s, max clock skew 5.0 s";
    assert_eq!(Command::SetOptions(AgreedOptions::default()).to_string(), said);
}

#[test]
fn times_of_auto_do_not_contradict_each_other() {
    let mut list = List::of(3);
    let least = |fence_after_ms, max_lease_ttl_ms| {
        Policy { fence_after_ms, max_lease_ttl_ms, ..auto() }.min_evict_after_ms()
    };
    assert_eq!((least(10_000, 15_000), least(10_000, 17_884), least(1_001, 1_000)), (27_000, 30_000, 3_082));
    let wrong = Policy { evict_after_ms: 26_999, ..auto() };
    let refused = list.refused(Command::SetPolicy(wrong));
    assert_eq!(
        refused.to_string(),
        "with fence_after 10000 ms and max_lease_ttl 15000 ms, evict_after has to be at least 27000 ms, and is \
         26999 ms: raise it, or lower one of the others"
    );
    list.decide(Command::SetPolicy(Policy { evict: EvictPolicy::Operator, ..wrong }));
    list.decide(Command::SetPolicy(Policy { evict_after_ms: 27_000, ..auto() }));
    for (change, shown) in [
        (Policy { fence_after_ms: 999, ..auto() }, "fence_after is 999 ms; it has to be 1000 to 3600000 ms"),
        (Policy { evict_after_ms: 86_400_001, ..auto() }, "evict_after is 86400001 ms"),
        (Policy { max_lease_ttl_ms: 0, ..auto() }, "max_lease_ttl is 0 ms"),
    ] {
        assert!(list.refused(Command::SetPolicy(change)).to_string().contains(shown));
    }
}

#[test]
fn auto_is_an_epoch_and_so_are_its_times() {
    let mut list = List::of(3);
    let mut epoch = |policy| list.decide(Command::SetPolicy(policy)).epoch.is_some();
    assert!(!epoch(Policy { evict: EvictPolicy::Wait, ..Policy::default() }));
    assert!(epoch(auto()));
    assert!(!epoch(Policy { rejoin: JoinPolicy::Operator, ..auto() }), "joins concern no lock");
    assert!(epoch(Policy { fence_after_ms: 9_000, ..auto() }));
    assert!(!epoch(Policy::default()));
    assert_eq!(list.config.policy_epoch(), list.config.epoch());
    let same = Command::SetPolicy(*list.config.policy());
    assert!(list.refused(same).to_string().contains("the policy is so already"));
}

#[test]
fn options_have_bounds() {
    let mut list = List::of(1);
    let slow = AgreedOptions { heartbeat_ms: 2_000, peer_timeout_ms: 6_000, ..AgreedOptions::default() };
    list.decide(Command::SetOptions(slow));
    assert_eq!(list.config.options(), &slow);
    assert!(list.refused(Command::SetOptions(slow)).to_string().contains("these options is so already"));
    let mut refused = |options| list.refused(Command::SetOptions(options)).to_string();
    let shown = refused(AgreedOptions { peer_timeout_ms: 5_999, ..slow });
    assert_eq!(shown, "peer_timeout is 5999 ms; it has to be 6000 to 3600000 ms");
    assert!(refused(AgreedOptions { heartbeat_ms: u32::MAX, ..slow }).contains("heartbeat_interval"));
    assert!(refused(AgreedOptions { max_clock_skew_ms: 99, ..slow }).contains("max_clock_skew"));
}

#[test]
fn the_version_rises() {
    let mut list = List::of(1);
    list.decide(Command::Version { version: 4 });
    assert_eq!(list.config.version(), 4);
    for version in [3, 4] {
        let refused = list.refused(Command::Version { version });
        assert_eq!(refused, Refused::VersionNotAbove { asked: version, now: 4 });
    }
    let admission = list.admission(5);
    assert_eq!(list.refused(Command::Admit(admission)), Refused::OldVersion { theirs: 3, ours: 4 });
}

#[test]
fn a_rule_is_for_the_locks_below_its_prefix() {
    let mut list = List::of(3);
    list.decide(rule("jobs/", at_home(1)));
    list.decide(rule("jobs-old/", at_home(2)));
    list.decide(rule("k", PrefixRule { home: None, operator_evicts: true }));
    let home = |list: &List, lock: &str| list.config.home(lock.as_bytes()).map(DcId::get);
    assert_eq!(["jobs/7", "jobs/", "jobs-old/7"].map(|lock| home(&list, lock)), [Some(1), Some(1), Some(2)]);
    assert_eq!(["jobs", "a", "k/1", "z"].map(|lock| home(&list, lock)), [None; 4]);
    assert!(list.config.rules().of(b"k/1").is_some_and(|rule| rule.operator_evicts));
    list.decide(rule("jobs/", at_home(0)));
    assert_eq!((home(&list, "jobs/7"), list.config.rules().len()), (Some(0), 3), "a rule is replaced");
    list.decide(Command::RemoveRule { prefix: prefix("jobs/") });
    assert_eq!(home(&list, "jobs/7"), None);
    let none = Refused::NoRule { prefix: prefix("jobs/") };
    assert_eq!(list.refused(Command::RemoveRule { prefix: prefix("jobs/") }), none);
}

#[test]
fn rules_do_not_overlap_and_homes_are_members() {
    let mut list = List::of(3);
    list.decide(rule("jobs/", at_home(1)));
    for other in ["jobs/daily/", "j"] {
        let refused = list.refused(rule(other, at_home(1)));
        assert_eq!(refused, Refused::RuleOverlaps { prefix: prefix(other), other: prefix("jobs/") });
    }
    let refused = list.refused(rule("x", at_home(9)));
    assert_eq!(refused.to_string(), "the home dc9 of prefix x is no member: name a member");
    let empty = Refused::EmptyRule { prefix: prefix("x") };
    assert_eq!(list.refused(rule("x", PrefixRule::default())), empty);
    assert!(list.refused(rule("jobs/", at_home(1))).to_string().contains("the rule is so already"));
}

#[test]
fn a_rule_waits_for_the_return_of_its_home() {
    let mut list = List::auto(3);
    list.decide(rule("jobs/", at_home(2)));
    list.evict(2);
    assert_eq!(list.config.home(b"jobs/7"), None);
    list.admit(2);
    assert_eq!(list.config.home(b"jobs/7"), None, "another server has its slot");
    assert!(list.config.rules().is_empty());
}

#[test]
fn rules_have_a_limit() {
    let mut list = List::of(1);
    (0..MAX_RULES).for_each(|n| drop(list.decide(rule(&format!("{n:04}"), at_home(0)))));
    assert_eq!(list.refused(rule("x", at_home(0))), Refused::TooManyRules);
}

#[test]
fn names_and_addresses_are_checked_where_they_are_parsed() {
    for wrong in ["", "A", "a_b", "a.b", &"a".repeat(65)] {
        assert!(MemberName::new(wrong).is_err(), "{wrong}");
    }
    assert!(["host:1", "10.0.0.1:65535", "[::1]:7000"].iter().all(|it| Address::new(it).is_ok()));
    let long = format!("{}:7000", "a".repeat(258));
    for wrong in ["", "host", ":7000", "host:0", "host:65536", "host:x", "host:+1", "ho st:1", "h\n:1", &long]
    {
        assert!(Address::new(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_change_of_the_policy_keeps_all_other_values() {
    let now = Policy { evict: EvictPolicy::Auto, fence_after_ms: 7_000, ..Policy::default() };
    let change = PolicyChange { evict_after_ms: Some(60_000), ..PolicyChange::default() };
    assert_eq!(change.of(&now), Policy { evict_after_ms: 60_000, ..now });
    assert_eq!(PolicyChange::default().of(&now), now);
    let all = PolicyChange {
        evict: Some(EvictPolicy::Wait),
        join: Some(JoinPolicy::Auto),
        rejoin: Some(JoinPolicy::Auto),
        fence_after_ms: Some(1_000),
        evict_after_ms: Some(2_000),
        max_lease_ttl_ms: Some(3_000),
    };
    let after = Policy {
        evict: EvictPolicy::Wait,
        join: JoinPolicy::Auto,
        rejoin: JoinPolicy::Auto,
        fence_after_ms: 1_000,
        evict_after_ms: 2_000,
        max_lease_ttl_ms: 3_000,
    };
    assert_eq!(all.of(&now), after);
}
