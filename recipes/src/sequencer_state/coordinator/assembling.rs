//! The pipeline of a coordinator: one intent at a time is assembled by its sender and endorsed by the
//! committee; assemblies that are endorsed wait, in order, for the permission to dispatch.
//!
//! Each assembly rests on all before it: on what is dispatched, and on what is ready. When one of them falls
//! out, those behind it that need its outputs go back to the pool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::super::shared::Shared;
use super::super::words::{
    Assembly, AssemblyHash, Endorsement, Epoch, IntentId, Message, Node, Speculation, StateId,
};

/// The intent whose turn it is.
#[derive(Debug)]
pub(super) struct Work {
    pub intent: IntentId,
    pub round: u64,
    pub step: Step,
    /// It is in this step since then.
    since: Duration,
    /// The time at which those that have not answered are asked again.
    again_at: Duration,
    asked_again: bool,
}

#[derive(Debug)]
pub(super) enum Step {
    Assembling { speculation: Speculation },
    Endorsing { assembly: Assembly, answers: BTreeMap<Node, Endorsement> },
}

/// The outcome of an answer, or of time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waits,
    /// The committee agrees.
    Endorsed(Assembly),
    /// Too many members refuse.
    Denied(String),
    /// The sender does not answer.
    SenderSilent,
    /// It takes too long: others are to have their turn.
    TooLong,
}

impl Work {
    /// Asks the sender for an assembly.
    pub fn begin(
        now: Duration,
        shared: &mut Shared,
        intent: IntentId,
        round: u64,
        speculation: Speculation,
    ) -> Work {
        let step = Step::Assembling { speculation };
        let again_at = now + shared.options().request_timeout;
        let work = Work { intent, round, step, since: now, again_at, asked_again: false };
        work.ask(shared, None);
        work
    }

    /// Asks for the endorsements of an assembly.
    pub fn endorse(&mut self, now: Duration, shared: &mut Shared, assembly: Assembly, epoch: Option<Epoch>) {
        self.step = Step::Endorsing { assembly, answers: BTreeMap::new() };
        (self.since, self.asked_again) = (now, false);
        self.again_at = now + shared.options().request_timeout;
        self.ask(shared, epoch);
    }

    /// Asks all that have not answered.
    fn ask(&self, shared: &mut Shared, epoch: Option<Epoch>) {
        let round = self.round;
        match &self.step {
            Step::Assembling { speculation } => {
                let (intent, speculation) = (self.intent.clone(), speculation.clone());
                shared.send(&self.intent.sender, Message::Assemble { intent, round, speculation });
            }
            Step::Endorsing { assembly, answers } => {
                let open = |node: &&Node| {
                    matches!(answers.get(node), None | Some(Endorsement::WrongCoordinator { .. }))
                };
                let asked: Vec<Node> = shared.members().iter().filter(open).cloned().collect();
                for node in asked {
                    let (height, skipped) = (shared.chain.height(), shared.presence.silent().clone());
                    let assembly = assembly.clone();
                    shared.send(&node, Message::Endorse { round, height, epoch, skipped, assembly });
                }
            }
        }
    }

    pub fn on_endorsed(
        &mut self,
        now: Duration,
        shared: &Shared,
        from: &Node,
        answer: Endorsement,
    ) -> Progress {
        let Step::Endorsing { assembly, answers } = &mut self.step else { return Progress::Waits };
        if matches!(answer, Endorsement::WrongCoordinator { .. }) {
            self.again_at = self.again_at.min(now + shared.options().retry);
        }
        // An endorsement stands; a later answer to a question that was repeated does not take it back.
        if answers.get(from) != Some(&Endorsement::Given) {
            answers.insert(from.clone(), answer);
        }
        let members = shared.members().len();
        let needed = shared.options().endorsements(members);
        let given = answers.values().filter(|it| **it == Endorsement::Given).count();
        if given >= needed {
            return Progress::Endorsed(assembly.clone());
        }
        match denials(answers).nth(members - needed) {
            Some(why) => Progress::Denied(why.clone()),
            None => Progress::Waits,
        }
    }

    /// Asks again, or gives up.
    pub fn step(&mut self, now: Duration, shared: &mut Shared, epoch: Option<Epoch>) -> Progress {
        let options = shared.options();
        if self.since + options.state_timeout <= now {
            return match &self.step {
                Step::Assembling { .. } => Progress::SenderSilent,
                // With those that are away it might be endorsed; the sender decides how often it tries.
                Step::Endorsing { answers, .. } => {
                    denials(answers).next().cloned().map_or(Progress::TooLong, Progress::Denied)
                }
            };
        }
        if self.again_at > now {
            return Progress::Waits;
        }
        match &self.step {
            Step::Assembling { .. } if self.asked_again => return Progress::SenderSilent,
            Step::Assembling { .. } => self.again_at = now + options.request_timeout,
            // Those that were at another height are asked until they are not.
            Step::Endorsing { answers, .. } => {
                let is_other = |it: &Endorsement| matches!(it, Endorsement::WrongCoordinator { .. });
                let any = answers.values().any(is_other);
                self.again_at = now + if any { options.retry } else { options.request_timeout };
            }
        }
        self.asked_again = true;
        self.ask(shared, epoch);
        Progress::Waits
    }

    pub fn deadline(&self, shared: &Shared) -> Duration {
        self.again_at.min(self.since + shared.options().state_timeout)
    }
}

/// Returns the reasons of those that refuse.
fn denials(answers: &BTreeMap<Node, Endorsement>) -> impl Iterator<Item = &String> {
    answers.values().filter_map(|it| match it {
        Endorsement::Denied(why) => Some(why),
        Endorsement::Given | Endorsement::WrongCoordinator { .. } => None,
    })
}

/// Assemblies that are endorsed, and the question to the sender of the first one.
#[derive(Debug, Default)]
pub(super) struct Ready {
    queue: VecDeque<(Assembly, AssemblyHash)>,
    asked: Option<Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    again_at: Duration,
    is_again: bool,
}

impl Ready {
    pub fn push(&mut self, assembly: Assembly) {
        let hash = assembly.hash();
        self.queue.push_back((assembly, hash));
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn assemblies(&self) -> impl Iterator<Item = &Assembly> {
        self.queue.iter().map(|(assembly, _)| assembly)
    }

    pub fn contains(&self, intent: &IntentId) -> bool {
        self.assemblies().any(|it| it.intent == *intent)
    }

    /// Asks for the permission to dispatch the first one. Returns its sender if that does not answer.
    pub fn ask(&mut self, now: Duration, shared: &mut Shared, epoch: Epoch) -> Option<Node> {
        let (assembly, hash) = self.queue.front()?;
        let is_again = match self.asked {
            Some(Asked { again_at, .. }) if again_at > now => return None,
            Some(Asked { is_again: true, .. }) => return Some(assembly.intent.sender.clone()),
            Some(_) => true,
            None => false,
        };
        self.asked = Some(Asked { again_at: now + shared.options().request_timeout, is_again });
        let (intent, hash) = (assembly.intent.clone(), *hash);
        shared.send(&assembly.intent.sender, Message::AskDispatch { intent, epoch, hash });
        None
    }

    /// Forgets the question: the epoch is another one.
    pub fn unask(&mut self) {
        self.asked = None;
    }

    /// Returns true if the first one is that assembly, and its sender was asked.
    pub fn is_asked(&self, intent: &IntentId, hash: AssemblyHash) -> bool {
        let is_first = |(assembly, of): &(Assembly, AssemblyHash)| assembly.intent == *intent && *of == hash;
        self.asked.is_some() && self.queue.front().is_some_and(is_first)
    }

    pub fn pop(&mut self) -> Option<Assembly> {
        self.asked = None;
        self.queue.pop_front().map(|(assembly, _)| assembly)
    }

    /// Removes those that `keep` does not want, in order. Returns them.
    pub fn sieve(&mut self, mut keep: impl FnMut(&Assembly) -> bool) -> Vec<Assembly> {
        let first = self.queue.front().map(|(_, hash)| *hash);
        let mut removed = Vec::new();
        for (assembly, hash) in std::mem::take(&mut self.queue) {
            match keep(&assembly) {
                true => self.queue.push_back((assembly, hash)),
                false => removed.push(assembly),
            }
        }
        if self.queue.front().map(|(_, hash)| *hash) != first {
            self.asked = None;
        }
        removed
    }

    pub fn deadline(&self) -> Option<Duration> {
        self.asked.map(|asked| asked.again_at)
    }
}

/// Adds up assemblies, in order, and finds those that cannot stand on the ones before.
#[derive(Debug, Default)]
pub(super) struct Footing {
    speculation: Speculation,
    /// Outputs that will not be there.
    broken: BTreeSet<StateId>,
}

impl Footing {
    /// `broken`: outputs of assemblies that the ledger has reverted.
    pub fn new(broken: BTreeSet<StateId>) -> Footing {
        Footing { speculation: Speculation::default(), broken }
    }

    pub fn add(&mut self, assembly: &Assembly) {
        let Speculation { spent, created } = &mut self.speculation;
        spent.extend(assembly.inputs.iter().cloned());
        created.extend(assembly.outputs.iter().filter(|state| !spent.contains(state)).cloned());
        assembly.inputs.iter().for_each(|state| {
            created.remove(state);
        });
    }

    /// Returns true if an assembly spends nothing that is spent, or will not be there.
    pub fn carries(&self, assembly: &Assembly) -> bool {
        let is_there =
            |state: &StateId| !self.speculation.spent.contains(state) && !self.broken.contains(state);
        assembly.inputs.iter().all(is_there)
    }

    /// Notes that an assembly falls out.
    pub fn break_off(&mut self, assembly: &Assembly) {
        self.broken.extend(assembly.outputs.iter().cloned());
    }

    pub fn speculation(self) -> Speculation {
        self.speculation
    }
}
