//! Assemblies that are endorsed and wait for the permission to dispatch. Their senders are asked for all of
//! them at a time, and they are dispatched in order: each rests on those before it.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::shared::Shared;
use super::super::words::{Assembly, AssemblyHash, Epoch, IntentId, Message, Node};

/// Assemblies that are endorsed.
#[derive(Debug, Default)]
pub(super) struct Ready {
    queue: VecDeque<One>,
}

#[derive(Debug)]
struct One {
    assembly: Assembly,
    hash: AssemblyHash,
    permission: Permission,
}

/// The answer of the sender, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    NotAsked,
    Asked { again_at: Duration, is_again: bool },
    Granted,
}

impl One {
    /// Returns true if it is that assembly, and its sender was asked.
    fn is_asked(&self, intent: &IntentId, hash: AssemblyHash) -> bool {
        let is_it = self.assembly.intent == *intent && self.hash == hash;
        is_it && self.permission != Permission::NotAsked
    }
}

impl Ready {
    pub fn push(&mut self, assembly: Assembly) {
        let hash = assembly.hash();
        self.queue.push_back(One { assembly, hash, permission: Permission::NotAsked });
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn assemblies(&self) -> impl Iterator<Item = &Assembly> {
        self.queue.iter().map(|one| &one.assembly)
    }

    pub fn contains(&self, intent: &IntentId) -> bool {
        self.assemblies().any(|it| it.intent == *intent)
    }

    /// Asks for the permissions that are not granted, when it is time. Returns the first sender that does not
    /// answer.
    pub fn ask(&mut self, now: Duration, shared: &mut Shared, epoch: Epoch) -> Option<Node> {
        for One { assembly, hash, permission } in &mut self.queue {
            let is_again = match *permission {
                Permission::NotAsked => false,
                Permission::Asked { again_at, is_again } if again_at <= now => {
                    if is_again {
                        return Some(assembly.intent.sender.clone());
                    }
                    true
                }
                Permission::Asked { .. } | Permission::Granted => continue,
            };
            *permission = Permission::Asked { again_at: now + shared.options().request_timeout, is_again };
            let (intent, hash) = (assembly.intent.clone(), *hash);
            shared.send(&assembly.intent.sender, Message::AskDispatch { intent, epoch, hash });
        }
        None
    }

    /// Forgets all questions and answers: the epoch is another one.
    pub fn unask(&mut self) {
        self.queue.iter_mut().for_each(|one| one.permission = Permission::NotAsked);
    }

    /// Notes the permission of one that was asked for.
    pub fn grant(&mut self, intent: &IntentId, hash: AssemblyHash) {
        if let Some(one) = self.queue.iter_mut().find(|one| one.is_asked(intent, hash)) {
            one.permission = Permission::Granted;
        }
    }

    /// Removes the first assembly, if it may be dispatched.
    pub fn pop_granted(&mut self) -> Option<Assembly> {
        self.queue.front().filter(|one| one.permission == Permission::Granted)?;
        self.queue.pop_front().map(|one| one.assembly)
    }

    /// Removes one that was asked for, and is refused.
    pub fn refuse(&mut self, intent: &IntentId, hash: AssemblyHash) -> Option<Assembly> {
        let place = self.queue.iter().position(|one| one.is_asked(intent, hash))?;
        self.queue.remove(place).map(|one| one.assembly)
    }

    /// Removes those that `keep` does not want, in order. Returns them.
    pub fn sieve(&mut self, mut keep: impl FnMut(&Assembly) -> bool) -> Vec<Assembly> {
        let mut removed = Vec::new();
        for one in std::mem::take(&mut self.queue) {
            match keep(&one.assembly) {
                true => self.queue.push_back(one),
                false => removed.push(one.assembly),
            }
        }
        removed
    }

    pub fn deadline(&self) -> Option<Duration> {
        let asked = self.queue.iter().filter_map(|one| match one.permission {
            Permission::Asked { again_at, .. } => Some(again_at),
            Permission::NotAsked | Permission::Granted => None,
        });
        asked.min()
    }
}
