//! Attempts of many instances in simulation: one lock, and one mark that expires.

use super::*;
use crate::dice::{Agenda, Dice};

/// The time that the datacenters take beyond that of a mark at most.
const LATE: u64 = 50;

#[derive(Clone, Copy)]
struct Plan {
    /// The period of the job, and the end of all attempts.
    every: u64,
    until: u64,
    /// Each attempt begins a whole number of periods after the beginning, and no lease ends.
    by_timer: bool,
    again_after_failure: bool,
    bug: Option<Bug>,
    without_guards: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        let (again_after_failure, bug, without_guards) = (false, None, false);
        Plan { every: 1_000, until: 30_000, by_timer: false, again_after_failure, bug, without_guards }
    }
}

impl Plan {
    fn mark_lasts(&self) -> u64 {
        let every = Duration::from_millis(self.every);
        (every - usual_slack(every)).as_millis() as u64
    }
}

enum Action {
    Begin(usize),
    Hears(usize, u64, Event),
    Write(usize, u64, u64),
    Remove(usize, u64, u64),
    LeaseOver(usize, u64),
}

struct Instance {
    attempt: Attempt,
    /// Counts attempts.
    number: u64,
    holds: Option<u64>,
    runs: bool,
}

/// Instances that try again and again, one lock, and one mark that expires.
struct World {
    plan: Plan,
    now: u64,
    dice: Dice,
    agenda: Agenda<u64, Action>,
    instances: Vec<Instance>,
    holder: Option<usize>,
    token: u64,
    mark: Option<(Mark, u64)>,
    marked_at: Vec<u64>,
    skipped: u32,
}

impl World {
    fn new(seed: u64, plan: Plan) -> World {
        let attempt = || Attempt::new(plan.again_after_failure).with_bug(plan.bug);
        let instance = |_| Instance { attempt: attempt(), number: 0, holds: None, runs: false };
        let mut world = World {
            plan,
            now: 0,
            dice: Dice::new(seed),
            agenda: Agenda::default(),
            instances: (0..9).map(instance).collect(),
            holder: None,
            token: 0,
            mark: None,
            marked_at: Vec::new(),
            skipped: 0,
        };
        match plan.by_timer {
            true => (0..9).for_each(|number| world.agenda.enter(0, Action::Begin(number))),
            false => (0..9).for_each(|number| world.after(300, Action::Begin(number))),
        }
        world
    }

    fn below(&mut self, most: u64) -> u64 {
        self.dice.below(most)
    }

    fn after(&mut self, most: u64, action: Action) {
        let at = self.now + 1 + self.below(most);
        self.agenda.enter(at, action);
    }

    fn run(mut self) -> Result<World, String> {
        while let Some((at, action)) = self.agenda.next() {
            self.now = at;
            match action {
                Action::Begin(_) if at > self.plan.until => {}
                Action::Begin(number) => {
                    let attempt = Attempt::new(self.plan.again_after_failure).with_bug(self.plan.bug);
                    self.instances[number].attempt = attempt;
                    self.instances[number].number += 1;
                    self.effects(number)?;
                }
                Action::Hears(number, attempt, event) if self.instances[number].number == attempt => {
                    if matches!(event, Event::Ended(_)) {
                        self.instances[number].runs = false;
                    }
                    self.instances[number].attempt.handle(event);
                    self.effects(number)?;
                }
                Action::Hears(..) => {}
                Action::Write(number, attempt, token) => {
                    let is_held = self.instances[number].holds == Some(token) || self.plan.without_guards;
                    if is_held {
                        self.note_mark(token)?;
                    }
                    self.after(40, Action::Hears(number, attempt, Event::Written(is_held)));
                }
                Action::Remove(number, attempt, token) => {
                    let is_held = self.instances[number].holds == Some(token) || self.plan.without_guards;
                    if is_held {
                        self.mark = None;
                        self.marked_at.pop();
                    }
                    self.after(40, Action::Hears(number, attempt, Event::Written(is_held)));
                }
                Action::LeaseOver(number, token) => {
                    if self.instances[number].holds == Some(token) {
                        // The client hears of it before.
                        self.instances[number].attempt.handle(Event::Lost);
                        self.effects(number)?;
                        self.free(number);
                    }
                }
            }
        }
        Ok(self)
    }

    /// Marks are at least a period apart, less the slack.
    fn note_mark(&mut self, token: u64) -> Result<(), String> {
        let lasts = self.plan.mark_lasts();
        if self.marked_at.last().is_some_and(|before| self.now < before + lasts) {
            return Err(format!("marked at {:?} and at {}", self.marked_at.last(), self.now));
        }
        self.marked_at.push(self.now);
        let until = self.now + lasts + self.below(LATE);
        self.mark = Some((Mark { run: token, who: String::new() }, until));
        Ok(())
    }

    fn free(&mut self, number: usize) {
        self.instances[number].holds = None;
        if self.holder == Some(number) {
            self.holder = None;
        }
    }

    fn effects(&mut self, number: usize) -> Result<(), String> {
        while let Some(effect) = self.instances[number].attempt.poll_effect() {
            let attempt = self.instances[number].number;
            let token = self.instances[number].holds.unwrap_or_default();
            let marked =
                self.mark.as_ref().filter(|(_, until)| *until > self.now).map(|(mark, _)| mark.clone());
            match effect {
                Effect::Look => self.after(40, Action::Hears(number, attempt, Event::Marked(marked))),
                Effect::Acquire => {
                    let event = match self.holder {
                        Some(_) => Event::Busy(Away::Held),
                        None => {
                            self.token += 1;
                            self.holder = Some(number);
                            self.instances[number].holds = Some(self.token);
                            Event::Granted { token: self.token }
                        }
                    };
                    self.after(40, Action::Hears(number, attempt, event));
                }
                Effect::Read => {
                    let event = if token > 0 { Event::Marked(marked) } else { Event::Lost };
                    self.after(40, Action::Hears(number, attempt, event));
                }
                Effect::Write { token } => self.after(60, Action::Write(number, attempt, token)),
                Effect::Remove => self.after(60, Action::Remove(number, attempt, token)),
                // The driver sees the loss before it begins with the job.
                Effect::Start { token: of } if token != of => {
                    self.after(1, Action::Hears(number, attempt, Event::Lost));
                }
                Effect::Start { .. } => {
                    if self.instances.iter().any(|instance| instance.runs) {
                        return Err(format!("two run at {}", self.now));
                    }
                    self.instances[number].runs = true;
                    let fails = self.below(3) == 0;
                    let ended = if fails { Err("no disk".to_owned()) } else { Ok(()) };
                    self.after(2_500, Action::Hears(number, attempt, Event::Ended(ended)));
                    if !self.plan.by_timer && self.below(3) == 0 {
                        self.after(2_000, Action::LeaseOver(number, token));
                    }
                }
                Effect::Stop => self.instances[number].runs = false,
                Effect::Leave => self.free(number),
                Effect::Finish(outcome) => {
                    self.skipped += u32::from(matches!(outcome, PeriodicOutcome::Skipped { .. }));
                    match self.plan.by_timer {
                        true => {
                            let next = self.now.next_multiple_of(self.plan.every);
                            self.agenda.enter(next, Action::Begin(number));
                        }
                        false => self.after(400, Action::Begin(number)),
                    }
                }
            }
            // A lease may end at any moment: before a write, after a read.
            if token > 0 && !self.plan.by_timer && self.below(20) == 0 {
                self.after(30, Action::LeaseOver(number, token));
            }
        }
        Ok(())
    }
}

fn first_broken(plan: Plan) -> Option<String> {
    (0..200).find_map(|seed| World::new(seed, plan).run().err())
}

#[test]
fn runs_are_at_least_a_period_apart_and_never_beside_each_other() {
    let (mut marks, mut skipped) = (0, 0);
    for seed in 0..300 {
        for again_after_failure in [false, true] {
            let plan = Plan { again_after_failure, ..Plan::default() };
            let world = World::new(seed, plan).run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
            (marks, skipped) = (marks + world.marked_at.len(), skipped + world.skipped);
        }
    }
    assert!(marks > 600 * 5 && skipped > 600 * 20, "{marks} {skipped}");
}

/// Twenty attempts exactly a period apart, of each of nine instances.
#[test]
fn a_timer_with_the_period_of_the_job_runs_it_each_time() {
    for seed in 0..100 {
        let plan = Plan { every: 10_000, until: 19 * 10_000, by_timer: true, ..Plan::default() };
        let world = World::new(seed, plan).run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        assert_eq!(world.marked_at.len(), 20, "seed {seed}: {:?}", world.marked_at);
    }
}

#[test]
fn the_slack_is_a_tenth_of_the_period_and_at_most_a_minute() {
    let slack = |seconds| usual_slack(Duration::from_secs(seconds)).as_secs_f64();
    assert_eq!([1, 600, 86_400].map(slack), [0.1, 60.0, 60.0]);
}

#[test]
fn a_lock_that_nobody_is_known_to_hold_says_nothing_about_the_period() {
    let dc = DcId::new(1).expect("it is an id");
    let end = |events: Vec<Event>| {
        let mut attempt = Attempt::new(false);
        events.into_iter().for_each(|event| attempt.handle(event));
        let mut effects = std::iter::from_fn(|| attempt.poll_effect());
        effects.find_map(|effect| match effect {
            Effect::Finish(outcome) => Some(outcome),
            _ => None,
        })
    };
    let out_of_reach = || vec![Event::Marked(None), Event::Busy(Away::OutOfReach(vec![dc]))];
    let then = |event| end(out_of_reach().into_iter().chain([event]).collect());
    assert_eq!(end(out_of_reach()), None, "it looks again");
    let unknown = |unreachable| Some(PeriodicOutcome::Unknown { unreachable });
    assert_eq!(then(Event::Marked(None)), unknown(vec![dc]));
    let mark = Mark { run: 1, who: "web1".to_owned() };
    let by = Some("web1".to_owned());
    assert_eq!(then(Event::Marked(Some(mark))), Some(PeriodicOutcome::Skipped { by }));
    let held = end(vec![Event::Marked(None), Event::Busy(Away::Held)]);
    assert_eq!(held, Some(PeriodicOutcome::Skipped { by: None }));
    assert_eq!(end(vec![Event::Marked(None), Event::Granted { token: 1 }, Event::Lost]), unknown(vec![]));
}

#[test]
fn the_checks_notice_mistakes() {
    let bug = |bug| first_broken(Plan { bug: Some(bug), ..Plan::default() }).expect("it is noticed");
    assert!(bug(Bug::Unread).starts_with("marked"));
    assert!(bug(Bug::LossIgnored).starts_with("two run"));
    let without_guards = Plan { without_guards: true, ..Plan::default() };
    assert!(first_broken(without_guards).is_some(), "a mark without a guard comes too late");
}
