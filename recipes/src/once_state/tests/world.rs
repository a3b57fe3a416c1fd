//! A world of instances: a lock server that keeps its promises, a store that delivers commits late, and a
//! job whose effects are fenced.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::super::events::{Effect, Event, NotWritten, Verdict, Write};
use super::super::machine::Machine;
use super::super::options::Takeover;
use super::super::record::{Content, Record, RunState};
use super::plan::{MS, Plan, options};
use crate::dice::{Agenda, Dice};

/// Most events of a run: a loop that never ends fails.
const MOST_EVENTS: u64 = 200_000;

/// A broken promise.
pub type Broken = String;

struct Instance {
    machine: Machine,
    alive: bool,
    began: Duration,
    /// The token of its lock, as the server sees it.
    holds: Option<u64>,
    /// It is in the queue of the lock.
    waits: bool,
    /// The token of the section that runs.
    runs: Option<u64>,
    /// Its process does not run until then: its lease ends meanwhile.
    stopped_until: Duration,
    verdict: Option<Verdict>,
    /// Counts sections and waits, so that what belongs to an earlier one is ignored.
    epoch: u64,
}

enum Action {
    Begin(usize),
    Time(usize),
    /// The answer to a question, with what the job was when it was asked.
    Needed(usize, bool),
    News(usize, Content),
    Granted(usize, u64),
    Read(usize, u64),
    ReadAnswer(usize, Option<Content>),
    Write(usize, u64, Write),
    WriteAnswer(usize, Result<(), NotWritten>),
    JobEnds(usize, u64, u64, bool),
    Lost(usize, u64),
    LeaseOver(usize, u64),
    Dies(usize, u64),
    Expire,
}

pub struct World {
    plan: Plan,
    now: Duration,
    dice: Dice,
    agenda: Agenda<Duration, Action>,
    instances: Vec<Instance>,
    /// The lock.
    holder: Option<usize>,
    waiters: VecDeque<usize>,
    token: u64,
    /// The store.
    record: Option<(Record, Duration)>,
    live_until: Duration,
    pause_until: Duration,
    pause_of: Option<usize>,
    /// The job: its fence, and whether it is done.
    fence: u64,
    pub done_at: Option<Duration>,
    undone: u32,
    /// It was done by a run whose lease was over: nobody else could know.
    done_late: bool,
    /// Sections that ended well.
    pub runs: u32,
    pub started: u32,
    pub failed: u32,
    last_finish: Duration,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let instances = (0..plan.instances).map(|number| Instance {
            machine: Machine::new(options(&plan), seed ^ number as u64, None).with_bug(plan.bug),
            alive: true,
            began: Duration::ZERO,
            holds: None,
            waits: false,
            runs: None,
            stopped_until: Duration::ZERO,
            verdict: None,
            epoch: 0,
        });
        let mut world = World {
            instances: instances.collect(),
            now: Duration::ZERO,
            dice: Dice::new(seed),
            agenda: Agenda::default(),
            holder: None,
            waiters: VecDeque::new(),
            token: 0,
            record: None,
            live_until: Duration::ZERO,
            pause_until: Duration::ZERO,
            pause_of: None,
            fence: 0,
            done_at: None,
            undone: plan.in_vain,
            done_late: false,
            runs: 0,
            started: 0,
            failed: 0,
            last_finish: Duration::ZERO,
            plan,
        };
        for number in 0..world.instances.len() {
            let at = world.random(world.plan.begin_within);
            world.at(at, Action::Begin(number));
        }
        world
    }

    fn below(&mut self, most: u64) -> u64 {
        self.dice.below(most)
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.dice.percent(percent)
    }

    fn random(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as u64 + 1))
    }

    fn at(&mut self, at: Duration, action: Action) {
        self.agenda.enter(at, action);
    }

    fn soon(&mut self, action: Action) {
        let delay = self.random(self.plan.delay);
        self.at(self.now + delay, action);
    }

    /// Runs to the end. Returns the outcomes of the instances that live.
    pub fn run(&mut self) -> Result<Vec<Verdict>, Broken> {
        for _ in 0..MOST_EVENTS {
            let Some((at, action)) = self.agenda.next() else { return self.judge() };
            self.now = at;
            self.perform(action)?;
        }
        Err("it goes on for ever".to_owned())
    }

    fn judge(&mut self) -> Result<Vec<Verdict>, Broken> {
        let mut verdicts = Vec::new();
        for (number, instance) in self.instances.iter().enumerate().filter(|(_, it)| it.alive) {
            let Some(verdict) = &instance.verdict else {
                return Err(format!("instance {number} waits for ever"));
            };
            let is_fine = match verdict {
                Verdict::NotNeeded { .. } | Verdict::Ran { .. } => {
                    self.done_at.is_some() || self.plan.in_vain > 0
                }
                Verdict::GaveUp { .. } => true,
                Verdict::Refused(_) => false,
            };
            if !is_fine {
                return Err(format!("instance {number} says {verdict:?}, and the job is not done"));
            }
            if matches!(verdict, Verdict::NotNeeded { .. }) && self.done_at.is_none() {
                return Err(format!("instance {number} says {verdict:?}, and the job is not done"));
            }
            verdicts.push(verdict.clone());
        }
        Ok(verdicts)
    }

    fn content(&self) -> Content {
        let record = self.record.as_ref().filter(|(_, until)| *until > self.now);
        Content {
            record: record.map(|(record, _)| record.clone()),
            live: self.live_until > self.now,
            pause: self.pause_until > self.now,
        }
    }

    fn perform(&mut self, action: Action) -> Result<(), Broken> {
        if let Some(number) = of(&action) {
            let instance = &self.instances[number];
            if !instance.alive {
                return Ok(());
            }
            if instance.stopped_until > self.now && !matches!(action, Action::Dies(..) | Action::Read(..)) {
                let until = instance.stopped_until;
                self.at(until, action);
                return Ok(());
            }
        }
        match action {
            Action::Begin(number) => {
                self.instances[number].began = self.now;
                self.effects(number)
            }
            Action::Time(number) => {
                let due = self.due(number);
                if due.is_some_and(|due| due <= self.now) { self.handle(number, Event::Time) } else { Ok(()) }
            }
            Action::Needed(number, needed) => self.handle(number, Event::Needed(needed)),
            Action::News(number, content) => self.handle(number, Event::News(content)),
            Action::Granted(number, token) if self.instances[number].holds == Some(token) => {
                if self.percent(self.plan.dies_early) {
                    return self.die(number);
                }
                self.handle(number, Event::Granted { token })
            }
            Action::Read(number, token) => {
                let content = (self.instances[number].holds == Some(token)).then(|| self.content());
                self.soon(Action::ReadAnswer(number, content));
                Ok(())
            }
            Action::ReadAnswer(number, content) => {
                self.handle(number, content.map_or(Event::NotRead, Event::Read))
            }
            Action::Write(number, token, write) => self.write(number, token, write),
            Action::WriteAnswer(number, answer) => {
                self.handle(number, answer.map_or_else(Event::NotWritten, |()| Event::Written))
            }
            Action::JobEnds(number, epoch, token, fails) => self.job_ends(number, epoch, token, fails),
            Action::Lost(number, token) if self.instances[number].holds == Some(token) => {
                // The client hears of it before the lease can end at the server.
                let margin = self.random(10 * MS) + MS;
                self.at(self.now + margin, Action::LeaseOver(number, token));
                self.handle(number, Event::Lost)
            }
            Action::LeaseOver(number, token) if self.instances[number].holds == Some(token) => {
                self.free(number);
                Ok(())
            }
            Action::Dies(number, token) if self.instances[number].holds == Some(token) => self.die(number),
            Action::Granted(..) | Action::Lost(..) | Action::LeaseOver(..) | Action::Dies(..) => Ok(()),
            Action::Expire => {
                self.publish();
                Ok(())
            }
        }
    }

    fn die(&mut self, number: usize) -> Result<(), Broken> {
        let instance = &mut self.instances[number];
        instance.alive = false;
        instance.runs = None;
        self.waiters.retain(|waiter| *waiter != number);
        // Its lease ends later.
        if self.holder == Some(number) {
            self.holder = None;
            self.grant_next_at(self.now + 100 * MS);
        }
        Ok(())
    }

    /// The server lets the lock of this instance go.
    fn free(&mut self, number: usize) {
        self.instances[number].holds = None;
        if self.holder == Some(number) {
            self.holder = None;
            self.grant_next_at(self.now);
        }
    }

    fn grant_next_at(&mut self, at: Duration) {
        if self.holder.is_some() {
            return;
        }
        let Some(next) = self.waiters.pop_front() else { return };
        self.token += 1;
        self.holder = Some(next);
        self.instances[next].holds = Some(self.token);
        self.instances[next].waits = false;
        let delay = self.random(self.plan.delay);
        self.at(at + delay, Action::Granted(next, self.token));
    }

    fn due(&self, number: usize) -> Option<Duration> {
        let instance = &self.instances[number];
        instance.machine.deadline().map(|due| instance.began + due)
    }

    fn handle(&mut self, number: usize, event: Event) -> Result<(), Broken> {
        if self.instances[number].verdict.is_some() {
            return Ok(());
        }
        let now = self.now - self.instances[number].began;
        self.instances[number].machine.handle(now, event);
        self.effects(number)
    }

    fn effects(&mut self, number: usize) -> Result<(), Broken> {
        while let Some(effect) = self.instances[number].machine.poll_effect() {
            match effect {
                Effect::AskNeeded => {
                    let needed = self.done_at.is_none();
                    self.soon(Action::Needed(number, needed));
                }
                Effect::Acquire => {
                    self.waiters.push_back(number);
                    self.instances[number].waits = true;
                    self.grant_next_at(self.now);
                }
                Effect::Leave => {
                    self.waiters.retain(|waiter| *waiter != number);
                    self.instances[number].waits = false;
                    self.free(number);
                }
                Effect::Read => {
                    let token = self.instances[number].holds.unwrap_or_default();
                    self.soon(Action::Read(number, token));
                }
                Effect::Write(write) => {
                    let token = self.instances[number].holds.unwrap_or_default();
                    self.soon(Action::Write(number, token, write));
                }
                Effect::Start { token } => self.start(number, token)?,
                Effect::Stop => {
                    let instance = &mut self.instances[number];
                    instance.epoch += 1;
                    instance.runs = None;
                }
                Effect::Tell(_) => {}
                Effect::Finish(verdict) => self.finish(number, verdict),
            }
        }
        if let Some(due) = self.due(number) {
            self.at(due.max(self.now), Action::Time(number));
        }
        Ok(())
    }

    fn finish(&mut self, number: usize, verdict: Verdict) {
        self.waiters.retain(|waiter| *waiter != number);
        self.free(number);
        self.last_finish = self.now;
        self.instances[number].verdict = Some(verdict);
    }

    /// Returns when the last instance was back.
    pub fn last_finish(&self) -> Duration {
        self.last_finish
    }

    /// At any moment at most one run is not told to stop.
    fn start(&mut self, number: usize, token: u64) -> Result<(), Broken> {
        self.started += 1;
        // A section begins with that.
        self.fence = self.fence.max(token);
        let now = self.now;
        let rival =
            self.instances.iter().position(|it| it.alive && it.runs.is_some() && it.stopped_until <= now);
        if let Some(rival) = rival {
            return Err(format!("instances {rival} and {number} run at {now:?}"));
        }
        let instance = &mut self.instances[number];
        instance.epoch += 1;
        instance.runs = Some(token);
        let epoch = instance.epoch;
        let (job, fails) = (self.random(self.plan.job) + MS, self.percent(self.plan.fails));
        self.at(self.now + job, Action::JobEnds(number, epoch, token, fails));
        let middle = self.now + self.random(job);
        if self.percent(self.plan.dies) {
            self.at(middle, Action::Dies(number, token));
        } else if self.percent(self.plan.loses) {
            self.at(middle, Action::Lost(number, token));
        } else if self.percent(self.plan.stops) {
            self.instances[number].stopped_until = middle + 500 * MS;
            self.at(middle + 100 * MS, Action::LeaseOver(number, token));
            self.at(middle + 501 * MS, Action::Lost(number, token));
        }
        Ok(())
    }

    fn job_ends(&mut self, number: usize, epoch: u64, token: u64, fails: bool) -> Result<(), Broken> {
        if self.instances[number].epoch != epoch || self.instances[number].runs != Some(token) {
            return Ok(());
        }
        self.instances[number].runs = None;
        if fails {
            self.failed += 1;
            return self.handle(number, Event::Ended(Err("no disk".to_owned())));
        }
        // The effect is fenced.
        if token >= self.fence {
            if self.done_at.is_some() && !self.done_late {
                return Err(format!("run {token} does what is done"));
            }
            self.runs += 1;
            match self.undone {
                0 => {
                    self.done_at.get_or_insert(self.now);
                    self.done_late = self.instances[number].holds != Some(token);
                }
                _ => self.undone -= 1,
            }
        }
        if self.percent(self.plan.dies_late) {
            return self.die(number);
        }
        self.handle(number, Event::Ended(Ok(())))
    }

    fn write(&mut self, number: usize, token: u64, write: Write) -> Result<(), Broken> {
        let is_held = self.instances[number].holds == Some(token) && token > 0;
        let is_renewal = write == Write::Renew;
        if !is_held && !self.plan.without_guards {
            if !is_renewal {
                self.soon(Action::WriteAnswer(number, Err(NotWritten::Lost)));
            }
            return Ok(());
        }
        let options = options(&self.plan);
        let before = self.content().record;
        match write {
            Write::Started(record) => {
                if self.pause_until > self.now && self.pause_of != Some(number) {
                    return Err(format!("instance {number} starts within the back-off of another"));
                }
                if self.plan.takeover == Takeover::Watermark && self.live_until > self.now {
                    let is_started = before.is_some_and(|before| before.state == RunState::Started);
                    if is_started {
                        return Err(format!("instance {number} overtakes within the watermark"));
                    }
                }
                self.record = Some((record, self.now + options.staleness));
                self.live_until = self.now + options.watermark;
            }
            Write::Renew => self.live_until = self.now + options.watermark,
            Write::Done(record) => {
                self.check_completes(before, &record)?;
                self.record = Some((record, self.now + options.staleness));
            }
            Write::Failed { record, pause } => {
                self.check_completes(before, &record)?;
                self.record = Some((record, self.now + options.staleness));
                (self.pause_until, self.pause_of) = (self.pause_until.max(self.now + pause), Some(number));
            }
        }
        if !is_renewal {
            self.soon(Action::WriteAnswer(number, Ok(())));
        }
        self.at(self.live_until + MS, Action::Expire);
        self.at(self.pause_until.max(self.now) + MS, Action::Expire);
        self.publish();
        Ok(())
    }

    /// A run is completed once, by the run that started.
    fn check_completes(&self, before: Option<Record>, record: &Record) -> Result<(), Broken> {
        match before {
            Some(Record { run, state: RunState::Started, .. }) if run == record.run => Ok(()),
            before => Err(format!("{record:?} completes {before:?}")),
        }
    }

    /// Tells all instances what is in the store, each after a delay of its own.
    fn publish(&mut self) {
        let living: BTreeSet<usize> =
            (0..self.instances.len()).filter(|number| self.instances[*number].verdict.is_none()).collect();
        for number in living {
            let content = self.content();
            self.soon(Action::News(number, content));
        }
    }
}

fn of(action: &Action) -> Option<usize> {
    match action {
        Action::Begin(number)
        | Action::Time(number)
        | Action::Needed(number, _)
        | Action::News(number, _)
        | Action::Granted(number, _)
        | Action::Read(number, _)
        | Action::ReadAnswer(number, _)
        | Action::WriteAnswer(number, _)
        | Action::JobEnds(number, ..)
        | Action::Lost(number, _)
        | Action::Dies(number, _) => Some(*number),
        // They happen at the server, whatever became of the instance.
        Action::Write(..) | Action::LeaseOver(..) | Action::Expire => None,
    }
}
