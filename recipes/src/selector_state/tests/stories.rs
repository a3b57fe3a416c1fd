//! One selection, step by step.

use std::time::Duration;

use bytes::Bytes;
use geolock_client::{DcId, RequestId};

use super::super::options::{Backoff, SelectorOptions};
use super::super::record::{Mark, MarkState, Need, Record, TxId};
use super::super::select::{Ask, Effect, Event, MarkRead, Select, Wait};
use super::super::space::{Change, Space};
use super::super::verdict::{HeldBy, Holder, Limit, Verdict};
use super::outside::{pool, token};
use crate::selector_state::token::Token;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(10);

struct Story {
    space: Space,
    select: Select,
    now: Duration,
}

fn tx(id: &str) -> TxId {
    TxId::new(id).expect("it is an id")
}

fn mark(by: &str, state: MarkState) -> Mark {
    Mark { tx: tx(by), fence: 1, state }
}

impl Story {
    /// A selection of that amount from a pool that has these tokens here.
    fn of(amount: u64, tokens: &[(&'static str, u64)], change: impl FnOnce(&mut SelectorOptions)) -> Story {
        let mut options = SelectorOptions::default();
        change(&mut options);
        let mut space = Space::new(&options, 5);
        space.on_home(DcId::new(0));
        let ask = Ask { tx: tx("t"), pool: pool(), amount };
        let select = Select::new(Duration::ZERO, ask, &options, TTL, 5);
        let mut story = Story { space, select, now: Duration::ZERO };
        assert_eq!(story.after(Event::News), []);
        assert_eq!(story.space.begin_queries(Duration::ZERO), [pool()]);
        story.list(tokens);
        story
    }

    fn list(&mut self, tokens: &[(&'static str, u64)]) {
        self.space.on_listing(
            &pool(),
            tokens.iter().map(|(id, amount)| token(id, *amount, 0)).collect(),
            false,
        );
    }

    fn after(&mut self, event: Event) -> Vec<Effect> {
        self.select.handle(self.now, &mut self.space, event);
        std::iter::from_fn(|| self.select.poll_effect()).collect()
    }

    fn at(&mut self, seconds: u32) -> Vec<Effect> {
        self.now = SECOND * seconds;
        self.after(Event::News)
    }

    fn change(&mut self, change: Change) {
        self.space.on_change(self.now, change);
    }
}

fn request(tokens: &[(&'static str, u64)], wait: Wait) -> Effect {
    let tokens = tokens.iter().map(|(id, amount)| token(id, *amount, 0)).collect();
    Effect::Request { tokens, most: 256, wait }
}

fn granted(chosen: &[usize]) -> Event {
    Event::Granted { chosen: chosen.to_vec(), fence: 7 }
}

fn a() -> Token {
    token("a", 3, 0)
}

#[test]
fn what_is_free_here_takes_two_steps() {
    let mut story = Story::of(3, &[("a", 3), ("b", 9)], |_| {});
    assert_eq!(story.after(Event::News), [request(&[("a", 3), ("b", 9)], Wait::Try)]);
    assert_eq!(story.after(granted(&[0])), [Effect::ReadMarks(vec![a().id])]);
    let picked = Verdict::Picked { tokens: vec![a()], fence: 7 };
    assert_eq!(story.after(Event::Marks(Some((vec![MarkRead::None], None)))), [Effect::Finish(picked)]);
    assert!(
        story.space.pool(&pool()).free().fit(3, 1).is_some_and(|fit| fit[0].amount == 9),
        "it is claimed"
    );
}

#[test]
fn a_marked_token_is_given_back_and_left_out() {
    let mut story = Story::of(3, &[("a", 3), ("b", 9)], |_| {});
    story.after(Event::News);
    story.after(granted(&[0]));
    let reserved = MarkRead::Other(Change::Marked(a().id, mark("o", MarkState::Reserved)));
    let again = [Effect::GiveBack, request(&[("b", 9)], Wait::Try)];
    assert_eq!(story.after(Event::Marks(Some((vec![reserved], None)))), again);
}

#[test]
fn what_another_replica_has_selected_for_it_is_adopted() {
    let mut story = Story::of(3, &[("a", 3)], |_| {});
    let pool = Bytes::from_static(b"w/c");
    let record = Record { amount: 3, fence: 4, state: MarkState::Reserved, pool, tokens: vec![a()] };
    let adopted = Effect::Finish(Verdict::Adopted(record.clone()));
    story.change(Change::Marked(a().id, mark("t", MarkState::Reserved)));
    assert_eq!(story.after(Event::News), [Effect::ReadRecord]);
    assert_eq!(story.after(Event::Record(Some(record.clone()))), std::slice::from_ref(&adopted));
    let mut story = Story::of(3, &[("a", 3)], |_| {});
    story.after(Event::News);
    story.after(granted(&[0]));
    let read = Event::Marks(Some((vec![MarkRead::Own], Some(record))));
    assert_eq!(story.after(read), [Effect::GiveBack, adopted]);
}

/// The record was on its way here when it was read, and not when the marks were heard of.
#[test]
fn what_is_reserved_for_it_while_it_waits_is_adopted() {
    let mut story = Story::of(3, &[("a", 3)], |_| {});
    let holder = RequestId { dc: DcId::new(1).expect("it is an id"), n: 1 };
    story.space.on_granted(holder, "t", vec![a().id]);
    assert_eq!(story.after(Event::News), [Effect::ReadRecord]);
    let asked = story.after(Event::Record(None));
    assert!(matches!(&asked[..], [Effect::Request { wait: Wait::AtMost(_), .. }]), "{asked:?}");
    story.change(Change::Marked(a().id, mark("t", MarkState::Reserved)));
    assert_eq!(story.after(Event::News), [Effect::Cancel, Effect::ReadRecord]);
    // The record ends with its marks: if it is not there, it is not asked for again and again.
    assert_eq!(story.after(Event::Record(None)), []);
    assert_eq!(story.after(Event::News), []);

    let mut story = Story::of(3, &[("a", 3)], |_| {});
    story.space.on_granted(holder, "t", vec![a().id]);
    story.after(Event::News);
    story.after(Event::Record(None));
    story.change(Change::Marked(a().id, mark("t", MarkState::Reserved)));
    story.after(Event::News);
    let pool = Bytes::from_static(b"w/c");
    let record = Record { amount: 3, fence: 4, state: MarkState::Reserved, pool, tokens: vec![a()] };
    let adopted = Effect::Finish(Verdict::Adopted(record.clone()));
    assert_eq!(story.after(Event::Record(Some(record))), [adopted]);
    assert!(story.space.has_mark_of(&tx("t")));
    story.change(Change::Unmarked(a().id));
    assert!(!story.space.has_mark_of(&tx("t")));
}

#[test]
fn who_waits_amends_announces_and_withdraws() {
    let mut story = Story::of(5, &[("a", 3), ("b", 3)], |_| {});
    let holder = RequestId { dc: DcId::new(0).expect("it is an id"), n: 1 };
    story.space.on_granted(holder, "o", vec![a().id]);
    assert_eq!(story.after(Event::News), [Effect::ReadRecord]);
    let asked = story.after(Event::Record(None));
    assert!(
        matches!(&asked[..], [Effect::Request { tokens, wait: Wait::AtMost(_), .. }] if tokens.len() == 2)
    );
    // The tokens are spent, and their change is new.
    story.change(Change::Marked(a().id, mark("o", MarkState::Spent)));
    story.change(Change::New(pool(), vec![token("c", 2, 0)]));
    let amend = Effect::Amend { add: vec![token("c", 2, 0)], drop: vec![a()] };
    assert_eq!(story.after(Event::News), [amend]);
    assert_eq!(story.at(1), []);
    assert_eq!(story.at(2), [Effect::Announce]);
    assert_eq!(story.at(5), []);
    assert_eq!(story.at(6), [Effect::Announce]);
    // Places count what it ever named.
    let both = [token("b", 3, 0), token("c", 2, 0)];
    let ids = both.iter().map(|token| token.id.clone()).collect();
    let places = match &asked[0] {
        Effect::Request { tokens, .. } if tokens[0] == both[0] => [0, 2],
        _ => [1, 2],
    };
    assert_eq!(story.after(granted(&places)), [Effect::ReadMarks(ids)]);
    let read = Event::Marks(Some((vec![MarkRead::None; 2], None)));
    let picked = Verdict::Picked { tokens: both.to_vec(), fence: 7 };
    assert_eq!(story.after(read), [Effect::Withdraw, Effect::Finish(picked)]);
}

#[test]
fn a_later_selection_waits_behind_a_need() {
    let mut story = Story::of(3, &[("a", 3)], |_| {});
    let need = Need { amount: 100, dc: None };
    story.change(Change::Needed(pool(), tx("large"), need.clone()));
    assert_eq!(story.after(Event::News), []);
    story.change(Change::NoNeed(pool(), tx("large")));
    assert_eq!(story.after(Event::News), [request(&[("a", 3)], Wait::Try)]);
    // One whose end is not heard of ends by itself.
    let mut story = Story::of(3, &[("a", 3)], |_| {});
    story.change(Change::Needed(pool(), tx("large"), need));
    assert_eq!(story.after(Event::News), []);
    assert_eq!(story.select.deadline(story.now, &story.space), Some(SECOND * 10));
    // By then the listing is too old.
    story.now = SECOND * 10;
    assert_eq!(story.after(Event::News), []);
    story.space.pool(&pool()).demand(story.now);
    assert_eq!(story.space.begin_queries(story.now), [pool()]);
    story.list(&[("a", 3)]);
    assert_eq!(story.after(Event::News), [request(&[("a", 3)], Wait::Try)]);
}

#[test]
fn the_end_of_a_wait_tells_who_holds_and_when_that_can_end() {
    let mut story = Story::of(5, &[("a", 3), ("b", 3)], |_| {});
    let holder = RequestId { dc: DcId::new(0).expect("it is an id"), n: 1 };
    story.space.on_granted(holder, "o", vec![a().id]);
    story.after(Event::News);
    story.after(Event::Record(None));
    story.now = SECOND * 30;
    let unreachable = Holder::Unreachable { dc: DcId::new(2).expect("it is an id") };
    let told = vec![
        HeldBy { token: Some(a().id), by: Holder::Locked { tx: "o".to_owned() } },
        HeldBy { token: Some(token("b", 3, 0).id), by: unreachable },
    ];
    let locked = Verdict::Locked { free: 3, by: told.clone(), retry_after: TTL };
    assert_eq!(story.after(Event::TimedOut { by: told, free: None }), [Effect::Finish(locked)]);
    // All are reserved: it waits without a request.
    let mut story = Story::of(3, &[("a", 3)], |_| {});
    story.change(Change::Marked(a().id, mark("o", MarkState::Reserved)));
    assert_eq!(story.after(Event::News), [Effect::ReadRecord]);
    assert_eq!(story.after(Event::Record(None)), []);
    let by = vec![HeldBy { token: Some(a().id), by: Holder::Reserved { tx: "o".to_owned() } }];
    let locked = Verdict::Locked { free: 0, by, retry_after: SECOND * 150 };
    assert_eq!(story.at(30), [Effect::Finish(locked)]);
}

#[test]
fn too_little_is_said_after_a_fresh_read_only() {
    let mut story = Story::of(9, &[("a", 3)], |_| {});
    assert_eq!(story.after(Event::News), [Effect::ReadRecord]);
    let little = |have| Effect::Finish(Verdict::Insufficient { have });
    assert_eq!(story.after(Event::Record(None)), [little(3)]);
    // It becomes too little while it waits: the listing is of before.
    let mut story = Story::of(3, &[("a", 3)], |_| {});
    story.change(Change::Marked(a().id, mark("o", MarkState::Reserved)));
    story.after(Event::News);
    story.after(Event::Record(None));
    story.now = SECOND;
    story.change(Change::Marked(a().id, mark("o", MarkState::Spent)));
    assert_eq!(story.after(Event::News), []);
    assert_eq!(story.space.begin_queries(story.now), [pool()]);
    story.space.on_query_failed(&pool());
    assert_eq!(story.after(Event::News), [Effect::Finish(Verdict::SourceUnavailable)]);
}

#[test]
fn limits_are_told_apart() {
    let limit = |which, most| Effect::Finish(Verdict::Limit { which, most });
    let mut story = Story::of(3, &[("a", 1), ("b", 1), ("c", 1)], |it| it.max_inputs = 2);
    story.after(Event::News);
    assert_eq!(story.after(Event::Record(None)), [limit(Limit::Inputs, 2)]);
    let mut story = Story::of(3, &[("a", 3)], |it| it.max_locked = 2);
    story.space.count_locked(&pool(), 2, 0);
    assert_eq!(story.after(Event::News), [limit(Limit::Locked, 2)]);
    let mut story = Story::of(3, &[("a", 1), ("b", 1), ("c", 1)], |it| it.max_locked = 4);
    story.space.count_locked(&pool(), 2, 0);
    assert_eq!(story.after(Event::News), [limit(Limit::Locked, 4)]);
    let mut story = Story::of(3, &[], |it| (it.max_inputs, it.max_examined) = (1, 1));
    story.space.pool(&pool()).demand(SECOND);
    story.now = SECOND;
    assert_eq!(story.space.begin_queries(SECOND), [pool()]);
    story.space.on_listing(&pool(), vec![token("a", 1, 0)], true);
    story.after(Event::News);
    assert_eq!(story.after(Event::Record(None)), [limit(Limit::Examined, 1)]);
}

#[test]
fn who_backs_off_pauses_and_tries_again_so_many_times() {
    let backoff = Backoff::Random { max: SECOND, retries: 2 };
    let mut story = Story::of(3, &[("a", 3)], |it| it.backoff = backoff);
    assert_eq!(story.after(Event::News), [request(&[("a", 3)], Wait::Try)]);
    assert_eq!(story.after(Event::NotFree), [Effect::ReadRecord]);
    assert_eq!(story.after(Event::Record(None)), []);
    for _ in 0..2 {
        story.now = story.select.deadline(story.now, &story.space).expect("it pauses");
        assert!(story.now < SECOND * 2);
        assert_eq!(story.after(Event::News), [request(&[("a", 3)], Wait::Try)]);
        story.after(Event::NotFree);
    }
    assert!(story.select.deadline(story.now, &story.space).is_none(), "it is over");
}

#[test]
fn a_wait_that_ends_in_a_pause_says_who_has_the_tokens() {
    let backoff = Backoff::Random { max: SECOND * 100, retries: 9 };
    let mut story = Story::of(3, &[("a", 3)], |it| it.backoff = backoff);
    let holder = RequestId { dc: DcId::new(0).expect("it is an id"), n: 1 };
    story.space.on_granted(holder, "o", vec![a().id]);
    story.after(Event::News);
    assert_eq!(story.after(Event::Record(None)), [], "it pauses");
    let by = vec![HeldBy { token: Some(a().id), by: Holder::Locked { tx: "o".to_owned() } }];
    let verdict = Verdict::Locked { free: 0, by, retry_after: TTL };
    assert_eq!(story.at(30), [Effect::Finish(verdict)]);
}

/// Another replica selects for it, too, and holds one of the tokens.
#[test]
fn a_transaction_is_not_named_as_its_own_obstacle() {
    let mut story = Story::of(5, &[("a", 3), ("b", 3)], |_| {});
    let holder = |n| RequestId { dc: DcId::new(0).expect("it is an id"), n };
    story.space.on_granted(holder(1), "t", vec![a().id]);
    story.space.on_granted(holder(2), "o", vec![token("b", 3, 0).id]);
    story.after(Event::News);
    story.after(Event::Record(None));
    let held = |id: &'static str, tx: &str| HeldBy {
        token: Some(token(id, 3, 0).id),
        by: Holder::Locked { tx: tx.to_owned() },
    };
    story.now = SECOND * 30;
    let effects = story.after(Event::TimedOut { by: vec![held("a", "t"), held("b", "o")], free: Some(0) });
    let Some(Effect::Finish(Verdict::Locked { by, .. })) = effects.last() else { panic!("{effects:?}") };
    assert_eq!(*by, [held("b", "o")]);
}

#[test]
fn a_server_that_says_nothing_ends_it_too() {
    let mut story = Story::of(5, &[("a", 3), ("b", 3)], |_| {});
    let holder = RequestId { dc: DcId::new(0).expect("it is an id"), n: 1 };
    story.space.on_granted(holder, "o", vec![a().id]);
    story.after(Event::News);
    story.after(Event::Record(None));
    assert_eq!(story.at(31), []);
    assert_eq!(story.at(32), [Effect::Cancel, Effect::Finish(Verdict::Timeout)]);
}
