//! The intents that the delegate has asked to assemble: one after the other, each on top of those before it.

use std::collections::VecDeque;

use super::super::events::{Effect, Failure, NotAssembled};
use super::super::shared::Shared;
use super::super::words::{Assembled, Assembly, IntentId, Message, Node, Speculation};
use super::Sender;
use super::task::{Made, Task};

/// The latest question of a delegate.
#[derive(Debug)]
pub(super) struct Asked {
    to: Node,
    round: u64,
    /// The one that the domain assembles.
    current: Option<IntentId>,
    /// The height of this node when the domain began with it.
    height: u64,
    rest: VecDeque<IntentId>,
    speculation: Speculation,
}

impl Sender {
    /// Begins with these, in place of those of the question before.
    pub fn on_assemble(
        &mut self,
        shared: &mut Shared,
        to: &Node,
        round: u64,
        intents: Vec<IntentId>,
        speculation: Speculation,
    ) {
        let (to, rest) = (to.clone(), intents.into());
        self.asked = Some(Asked { to, round, current: None, height: 0, rest, speculation });
        self.assemble_next(shared);
    }

    /// Asks the domain for the next one that is not assembled yet.
    fn assemble_next(&mut self, shared: &mut Shared) {
        let most = shared.options().max_failures;
        let Some(mut asked) = self.asked.take() else { return };
        while let Some(intent) = asked.rest.pop_front() {
            let is_delegate = self.is_delegate(&asked.to);
            let is_open = |task: &&mut Task| !task.is_dispatched() && !task.is_hopeless(most);
            let task = self.task(&intent).filter(|task| is_delegate && is_open(task));
            let answer = match task {
                None => Assembled::NotYours,
                Some(task) => match task.assembly_of(asked.round) {
                    Some(assembly) => Assembled::Done(assembly.clone()),
                    None => {
                        let (to, speculation) = (asked.to.clone(), asked.speculation.clone());
                        let (round, intent) = (asked.round, task.intent.clone());
                        (asked.current, asked.height) = (Some(intent.id.clone()), shared.chain.height());
                        self.asked = Some(asked);
                        return shared.effect(Effect::Assemble { to, round, intent, speculation });
                    }
                },
            };
            asked.add(&answer);
            shared.send(&asked.to, Message::Assembled { intent, round: asked.round, answer });
        }
    }

    /// The domain has assembled an intent, or not.
    pub fn on_assembled(
        &mut self,
        shared: &mut Shared,
        to: &Node,
        round: u64,
        intent: &IntentId,
        answer: Result<Assembly, NotAssembled>,
    ) {
        let is_current =
            |it: &&mut Asked| (&it.to, it.round, it.current.as_ref()) == (to, round, Some(intent));
        // One that is late began at an unknown height.
        let began = self.asked.as_mut().filter(is_current).map(|it| (it.current = None, it.height).1);
        let is_next = began.is_some();
        if !self.is_delegate(to) {
            return;
        }
        let task = self.task(intent).filter(|task| !task.is_dispatched());
        let answer = match task {
            Some(task) => task.take_assembly(round, began.unwrap_or_default(), answer),
            // It was decided meanwhile. The delegate waits for an answer before those of the next ones.
            None => Assembled::NotYours,
        };
        if is_next && let Some(asked) = &mut self.asked {
            asked.add(&answer);
        }
        shared.send(to, Message::Assembled { intent: intent.clone(), round, answer });
        self.give_up_if_hopeless(shared, intent);
        if is_next {
            self.assemble_next(shared);
        }
    }
}

impl Asked {
    /// The next ones rest on this one.
    fn add(&mut self, answer: &Assembled) {
        if let Assembled::Done(assembly) = answer {
            self.speculation.add(assembly);
        }
    }
}

impl Task {
    /// Returns the assembly for a round, if there is one.
    fn assembly_of(&self, round: u64) -> Option<&Assembly> {
        self.assembly.as_ref().filter(|made| made.round == round).map(|made| &made.assembly)
    }

    /// Takes the answer of the domain. The first assembly for a round stays: others may rest on it.
    fn take_assembly(
        &mut self,
        round: u64,
        height: u64,
        answer: Result<Assembly, NotAssembled>,
    ) -> Assembled {
        if let Some(assembly) = self.assembly_of(round) {
            return Assembled::Done(assembly.clone());
        }
        match answer {
            Ok(assembly) => {
                debug_assert_eq!(
                    assembly.intent, self.intent.id,
                    "the domain assembles what it was asked for"
                );
                self.assembly = Some(Made { round, height, assembly: assembly.clone() });
                Assembled::Done(assembly)
            }
            Err(NotAssembled::Parked) => Assembled::Parked,
            Err(NotAssembled::Invalid(why)) => {
                self.failures.count(Failure::Assembly(why.clone()));
                Assembled::Invalid(why)
            }
        }
    }
}
