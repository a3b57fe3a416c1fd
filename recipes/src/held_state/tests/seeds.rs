//! Promises in simulation, and mistakes that it notices.

use std::time::Duration;

use geolock_client::FencingToken;

use super::super::holder::{Bug, Effect, Event, Holder};
use super::super::{Follower, HeldValue, News, Record, follower};
use super::world::{Plan, World};

fn trouble() -> Plan {
    Plan { fails: 20, refused: 5, loses: 30, dies: 30, ..Plan::default() }
}

/// Returns the first broken promise.
fn caught(plan: Plan) -> Option<String> {
    (0..200).find_map(|seed| World::new(seed, plan).run().err())
}

fn check(plan: Plan, expected: &str) {
    let broken = caught(plan).expect("the mistake is noticed");
    assert!(broken.contains(expected), "{broken}");
}

#[test]
fn one_leads_and_observers_see_each_in_order() {
    let cut_off = Plan { lag: 60_000, ..trouble() };
    for plan in [Plan::default(), trouble(), Plan { too_old: 5, ..trouble() }, cut_off] {
        let (mut elected, mut changes) = (0, 0);
        for seed in 0..300 {
            let world = World::new(seed, plan).run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
            (elected, changes) = (elected + world.elected.len(), changes + world.changes);
        }
        assert!(elected > 300 * 5 && changes > 300 * 20, "{elected} {changes}");
    }
}

#[test]
fn the_checks_notice_mistakes_of_holders() {
    let bug = |bug| Plan { bug: Some(bug), ..trouble() };
    check(bug(Bug::Unrenewed), "expired");
    check(bug(Bug::OldValueRenewed), "an old value is written");
    check(bug(Bug::LossIgnored), "lead");
    check(Plan { without_guards: true, ..trouble() }, "an old value is written");
}

#[test]
fn the_checks_notice_mistakes_of_followers() {
    let bug = Some(follower::Bug::ReadAheadShown);
    check(Plan { follower_bug: bug, lag: 60_000, ..trouble() }, "has left out");
}

fn record(token: u64) -> Record {
    let held = HeldValue { who: String::new(), value: "v".into(), token: FencingToken(token) };
    Record { held, ttl: None }
}

#[test]
fn a_follower_shows_no_old_record_and_no_end_of_another_one() {
    let mut follower = Follower::default();
    let shown = |token: u64| Some(Some(record(token).held));
    assert_eq!(follower.handle(News::Begun(None)), Some(None));
    assert_eq!(follower.handle(News::Begun(None)), None, "it is no change");
    assert_eq!(follower.handle(News::Wrote(record(7))), shown(7));
    assert_eq!(follower.handle(News::Wrote(record(6))), None, "an old one");
    assert_eq!(follower.handle(News::ReadAgain(Some(record(7)))), None, "it has not ended");
    assert_eq!(follower.handle(News::ReadAgain(Some(record(9)))), Some(None), "8 may come between");
    assert_eq!(follower.handle(News::Wrote(record(8))), shown(8));
}

#[test]
fn a_refused_value_leaves_the_one_before() {
    let (at, ttl) = (Duration::from_secs, Duration::from_secs(10));
    let mut holder = Holder::new("a".into(), Some(ttl));
    let effects = |holder: &mut Holder| std::iter::from_fn(|| holder.poll_effect()).collect::<Vec<_>>();
    assert_eq!(effects(&mut holder), [Effect::Write("a".into())]);
    holder.handle(at(0), Event::Written);
    assert_eq!(effects(&mut holder), [Effect::Answer(Ok(()))]);
    holder.handle(at(1), Event::Set("b".into()));
    assert_eq!(effects(&mut holder), [Effect::Write("b".into())]);
    holder.handle(at(1), Event::NotWritten);
    assert_eq!((effects(&mut holder), holder.deadline()), (vec![], Some(at(2))));
    holder.handle(at(2), Event::Time);
    assert_eq!(effects(&mut holder), [Effect::Write("b".into())]);
    holder.handle(at(2), Event::Refused);
    let refused = Effect::Answer(Err(super::super::Denied::Refused));
    assert_eq!((effects(&mut holder), holder.deadline()), (vec![refused], Some(at(12))));
    holder.handle(at(12), Event::Time);
    assert_eq!(effects(&mut holder), [Effect::Write("a".into())], "as it was");
    holder.handle(at(13), Event::Leave);
    assert_eq!(effects(&mut holder), [Effect::Clear]);
    holder.handle(at(13), Event::NotWritten);
    assert_eq!(effects(&mut holder), [Effect::Release], "it expires by itself");
}
