//! A section that is needed again although it was done.

use std::time::Duration;

use super::super::events::{Effect, Event, Write};
use super::super::machine::Machine;
use super::super::options::OnceOptions;
use super::super::record::{Content, Record, RunState};

/// Returns what an instance does that finds the section needed and run 5 done. `mine`: its own latest run.
fn decides(mine: Option<u64>) -> Effect {
    let mut machine = Machine::new(OnceOptions::default(), 0, mine);
    let mut next = |event| {
        machine.handle(Duration::ZERO, event);
        std::iter::from_fn(|| machine.poll_effect()).last().expect("it does something")
    };
    assert_eq!(next(Event::Needed(true)), Effect::Acquire);
    assert_eq!(next(Event::Granted { token: 9 }), Effect::Read);
    let record = Record { run: 5, state: RunState::Done, who: String::new(), attempts: 0, at_ms: 0 };
    next(Event::Read(Content { record: Some(record), live: false, pause: false }))
}

#[test]
fn a_client_that_has_done_it_and_needs_it_again_claims_and_others_ask() {
    let is_claim = |effect: Effect| matches!(effect, Effect::Write(Write::Started(it)) if it.run == 9);
    assert!(is_claim(decides(Some(5))));
    for mine in [None, Some(4)] {
        assert_eq!(decides(mine), Effect::AskNeeded, "{mine:?}");
    }
}
