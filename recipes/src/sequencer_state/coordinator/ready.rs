//! Assemblies that are endorsed and wait, in order, for the permission to dispatch.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::shared::Shared;
use super::super::words::{Assembly, AssemblyHash, Epoch, IntentId, Message, Node};

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
