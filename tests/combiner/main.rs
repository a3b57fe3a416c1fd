//! The combiner of production (`src/lock_server/combiner.rs`) in all executions of small models that loom
//! finds: all schedules, and all values that the memory model lets a read return. Each deliberate bug must be
//! caught.
//!
//! Loom treats sequentially consistent accesses as acquire and release, and sequentially consistent fences
//! as what they are; the combiner relies on fences only. Loom does not explore that a later write overtakes
//! an earlier read.

#[path = "../../src/lock_server/combiner.rs"]
mod combiner;
mod sync;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use combiner::{Backlog, Combine, Combined, Combiner};
use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use sync::{Bug, Notify};

/// Most inputs in a model.
const PLACES: usize = 4;

/// The mailbox, with the accesses of tokio's channel: a thread claims a place, fills it, and marks it as
/// ready. The thread that takes inputs out stops at the first place that is not ready.
struct Mailbox {
    claimed: AtomicUsize,
    ready: [AtomicBool; PLACES],
}

impl Mailbox {
    fn new() -> Mailbox {
        Mailbox { claimed: AtomicUsize::new(0), ready: std::array::from_fn(|_| AtomicBool::new(false)) }
    }

    fn put(&self) {
        let place = self.claimed.fetch_add(1, Ordering::Acquire);
        self.ready[place].store(true, Ordering::Release);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Works,
    Fails,
    Panics,
}

/// An engine that counts the inputs that it handles.
struct Engine {
    mailbox: Arc<Mailbox>,
    handled: usize,
    /// Most inputs in a batch.
    batch: usize,
    /// The result of a batch.
    step: Step,
    has_failed: bool,
}

impl Engine {
    fn step(&mut self, step: Step) -> Result<(), &'static str> {
        assert!(!self.has_failed, "a step was made after one that failed");
        self.has_failed = step != Step::Works;
        match step {
            Step::Works => Ok(()),
            Step::Fails => Err("a step fails"),
            // Without the message that a panic prints.
            Step::Panics => resume_unwind(Box::new("a step panics")),
        }
    }
}

impl Combined for Engine {
    type Error = &'static str;

    fn run_pending(&mut self) -> Result<Backlog, &'static str> {
        sync::begin_batch();
        self.step(self.step)?;
        for _ in 0..self.batch {
            if self.handled == PLACES || !self.mailbox.ready[self.handled].load(Ordering::Acquire) {
                return Ok(Backlog::Empty);
            }
            self.handled += 1;
        }
        Ok(Backlog::Possible)
    }

    fn is_due_sooner(&self) -> bool {
        false
    }
}

/// A model: submitting threads beside the actor.
#[derive(Clone, Copy)]
struct Model {
    submitters: usize,
    /// Inputs of each submitter.
    inputs: usize,
    batch: usize,
    /// The results of batches, and of the step of the actor.
    steps: Step,
    actors_step: Step,
    /// Most preemptions in an execution; `None`: no limit.
    preemptions: Option<usize>,
}

const MODEL: Model = Model {
    submitters: 2,
    inputs: 1,
    batch: PLACES,
    steps: Step::Works,
    actors_step: Step::Works,
    preemptions: Some(3),
};

/// A combiner in a model.
struct World {
    combiner: Arc<Combiner<Engine>>,
    mailbox: Arc<Mailbox>,
    wake: Arc<Notify>,
    submitters: Vec<thread::JoinHandle<()>>,
}

impl World {
    fn start(model: Model) -> World {
        let (mailbox, wake) = (Arc::new(Mailbox::new()), Arc::new(Notify::default()));
        let Model { batch, steps: step, .. } = model;
        let engine = Engine { mailbox: Arc::clone(&mailbox), handled: 0, batch, step, has_failed: false };
        let combiner = Arc::new(Combiner::new(engine, Arc::clone(&wake)));
        let mut world = World { combiner, mailbox, wake, submitters: Vec::new() };
        for _ in 0..model.submitters {
            let submit = world.submitter(model.inputs);
            world.submitters.push(thread::spawn(submit));
        }
        world
    }

    /// Returns the work of a submitting thread.
    fn submitter(&self, inputs: usize) -> impl FnOnce() + 'static {
        let (mailbox, combiner) = (Arc::clone(&self.mailbox), Arc::clone(&self.combiner) as Arc<dyn Combine>);
        move || {
            for _ in 0..inputs {
                mailbox.put();
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| combiner.notify_submitted())) {
                    expect_panic_of_step(panic);
                }
            }
        }
    }

    /// Waits until all threads are idle: the submitters have returned, and no wake-up is left for the actor.
    /// Returns false if the actor has seen that a step has failed.
    fn settle(&mut self) -> bool {
        for submitter in self.submitters.drain(..) {
            submitter.join().expect("a submitter ends");
        }
        while self.wake.take() {
            if self.combiner.with_engine(|engine| engine.step(Step::Works)).is_none() {
                return false;
            }
        }
        true
    }
}

fn expect_panic_of_step(panic: Box<dyn Any + Send>) {
    if panic.downcast_ref() != Some(&"a step panics") {
        resume_unwind(panic);
    }
}

/// The actor makes a step at some time. When all threads are idle, every input is handled. The first thread
/// is one of the submitters: it runs first, so this takes the fewest preemptions.
fn nothing_is_lost(model: Model) {
    let mut world = World::start(Model { submitters: model.submitters - 1, ..model });
    let combiner = Arc::clone(&world.combiner);
    let actor = thread::spawn(move || combiner.with_engine(|engine| engine.step(Step::Works)));
    world.submitter(model.inputs)();
    assert_eq!(actor.join().expect("the actor ends"), Some(()));
    assert!(world.settle());
    let (engine, ended) = world.combiner.close();
    assert_eq!(ended, Ok(()));
    assert_eq!(engine.handled, model.submitters * model.inputs, "an input was lost");
}

/// A step fails. When all threads are idle, the actor knows of it and finds the reason, or, after a panic,
/// the engine is dropped.
fn a_failure_ends_it(model: Model) {
    let mut world = World::start(model);
    let step = || world.combiner.with_engine(|engine| engine.step(model.actors_step));
    let panics = match catch_unwind(AssertUnwindSafe(step)) {
        Ok(stepped) => {
            let runs = world.settle();
            assert!(stepped.is_none() || !runs, "the actor does not know of a failure");
            model.steps == Step::Panics
        }
        Err(panic) => {
            expect_panic_of_step(panic);
            world.combiner.abandon();
            world.settle();
            true
        }
    };
    if panics {
        assert_eq!(Arc::strong_count(&world.mailbox), 1, "an engine that panicked is kept");
    } else {
        assert_eq!(world.combiner.close().1, Err("a step fails"));
    }
}

/// Runs all executions of a model. Returns their number, or the first failure.
fn check(bug: Option<Bug>, model: Model, run: fn(Model)) -> Result<usize, String> {
    sync::choose(bug);
    let executions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    let mut builder = Builder::new();
    builder.preemption_bound = model.preemptions;
    let all = move || {
        sync::begin();
        counted.fetch_add(1, Ordering::Relaxed);
        run(model);
    };
    let result = catch_unwind(AssertUnwindSafe(|| builder.check(all)));
    let executions = executions.load(Ordering::Relaxed);
    println!("{bug:?}: {executions} executions");
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or_else(String::new, |text| (*text).to_owned()),
    };
    result.map(|()| executions).map_err(text)
}

fn expect_caught(bug: Bug, model: Model, run: fn(Model), as_: &str) {
    let caught = check(Some(bug), model, run).expect_err("a bug is caught");
    assert!(caught.contains(as_), "{bug:?} is caught as {caught}");
}

/// One submitter beside the actor, in all executions.
const TWO: Model = Model { submitters: 1, preemptions: None, ..MODEL };

/// The submitters go on submitting, and a batch never empties the mailbox.
const BUSY: Model = Model { inputs: 2, batch: 1, preemptions: Some(2), ..MODEL };

/// In every execution nothing is lost, and no thread that passes a fence after the actor's begins a batch. So
/// each submitter begins one batch at most while the actor waits. The last figure is the most that is seen.
#[test]
fn no_input_is_lost_and_the_actor_is_not_starved() {
    for (model, most) in [(TWO, 1), (MODEL, 2), (BUSY, 2)] {
        check(None, model, nothing_is_lost).expect("the combiner is correct");
        assert_eq!(sync::most_batches(), most, "the bound is reached");
    }
}

#[test]
fn a_lost_input_is_caught() {
    for bug in
        [Bug::NoFence, Bug::ClearedAfterBatch, Bug::SetAfterTryLock, Bug::RelaxedSwaps, Bug::PlainStores]
    {
        expect_caught(bug, MODEL, nothing_is_lost, "an input was lost");
    }
}

#[test]
fn a_starved_actor_is_caught() {
    for bug in [Bug::ActorWaitsUnset, Bug::NoFenceOfActor] {
        expect_caught(bug, BUSY, nothing_is_lost, "a batch began although the actor waits");
    }
}

const FAILURES: [(Step, Step); 4] = [
    (Step::Fails, Step::Works),
    (Step::Works, Step::Fails),
    (Step::Panics, Step::Works),
    (Step::Works, Step::Panics),
];

#[test]
fn every_failure_reaches_the_actor() {
    for (steps, actors_step) in FAILURES {
        let model = Model { steps, actors_step, ..MODEL };
        check(None, model, a_failure_ends_it).expect("the combiner is correct");
    }
}

#[test]
fn a_failure_that_does_not_wake_the_actor_is_caught() {
    for steps in [Step::Fails, Step::Panics] {
        let model = Model { steps, ..MODEL };
        expect_caught(Bug::NoWake, model, a_failure_ends_it, "the actor does not know of a failure");
    }
}
