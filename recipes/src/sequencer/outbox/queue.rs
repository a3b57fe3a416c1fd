//! The messages and heartbeats that wait for a commit, and those of the commit under way.
//!
//! A heartbeat is the whole state of a coordinator, so a newer one supersedes those before it: of each key at
//! most one waits. One that is superseded while its commit has to be made again is left out of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use geolock_client::{Batch, Key, Update};
use tokio::time::Instant;

use crate::sequencer_state::{Beat, Content, Envelope, MAX_ENVELOPE, Message};

/// Most bytes that wait.
const MAX_WAITING: usize = 8 << 20;
/// Most bytes of a transaction: below the largest step that a server takes.
const MAX_STEP: usize = 1_800_000;
/// The key and the head of an envelope, in bytes.
const AROUND: usize = 400;
/// A commit of messages that can wait comes so long after the one before: long beside a commit without
/// distances, so that they seldom keep a question for an assembly waiting, and short beside a block.
const PACE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// When entries that can wait have to go.
    due: Option<Instant>,
    /// When the last commit was taken.
    taken: Option<Instant>,
    pub is_closed: bool,
    /// Keys of heartbeats that were superseded, or withdrawn, since the last commit was taken.
    outdated: BTreeSet<Key>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    content: One,
    bytes: usize,
}

#[derive(Debug)]
pub(super) enum One {
    Message(Message),
    Beat(Beat),
}

/// The time at which an entry goes, unless another one takes it along before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Haste {
    /// At once.
    Now,
    /// [`PACE`] after the last commit, so at once if there was none for so long.
    Paced,
    /// So long after it was entered.
    Within(Duration),
}

/// The next thing for the task to do.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Commit(Vec<(Key, Content)>),
    /// Wait, until that time if there is one. `is_empty`: nothing is there to wait for.
    Wait {
        until: Option<Instant>,
        is_empty: bool,
    },
    /// The outbox is closed, and empty.
    End,
}

impl Queue {
    /// Enters one. Returns false if there is no room.
    pub fn push(&mut self, key: &Key, content: One, bytes: usize, haste: Haste) -> bool {
        if let One::Beat(_) = content {
            self.withdraw_beat(key);
        }
        if self.bytes + bytes + AROUND > MAX_WAITING {
            return false;
        }
        let now = Instant::now();
        let by = match haste {
            Haste::Now => now,
            Haste::Paced => self.taken.map_or(now, |taken| taken + PACE),
            Haste::Within(within) => now + within,
        };
        self.due = Some(self.due.map_or(by, |at| at.min(by)));
        self.bytes += bytes + AROUND;
        self.entries.push_back(Entry { key: key.clone(), content, bytes });
        true
    }

    /// Removes the heartbeat of a key: a newer one comes, or the coordinator is gone.
    pub fn withdraw_beat(&mut self, key: &Key) {
        let bytes = &mut self.bytes;
        self.entries.retain(|entry| {
            let is_it = matches!(entry.content, One::Beat(_)) && entry.key == *key;
            if is_it {
                *bytes -= entry.bytes + AROUND;
            }
            !is_it
        });
        self.outdated.insert(key.clone());
        self.rest_if_empty();
    }

    /// Lets everything go at once.
    pub fn hurry(&mut self) {
        self.due = Some(Instant::now());
    }

    pub fn next(&mut self, now: Instant) -> Next {
        self.rest_if_empty();
        let is_due = self.is_closed || self.due.is_some_and(|at| at <= now);
        match self.entries.is_empty() {
            true if self.is_closed => Next::End,
            true => Next::Wait { until: None, is_empty: true },
            false if is_due => {
                self.taken = Some(now);
                Next::Commit(self.take())
            }
            false => Next::Wait { until: self.due, is_empty: false },
        }
    }

    fn rest_if_empty(&mut self) {
        if self.entries.is_empty() {
            self.due = None;
        }
    }

    /// Takes as many entries as one transaction can have, in order. Messages to one receiver share an
    /// envelope, unless a heartbeat was sent in between: it says less than the message after it.
    fn take(&mut self) -> Vec<(Key, Content)> {
        self.outdated.clear();
        let mut some: Vec<(Key, Content)> = Vec::new();
        let mut sizes: BTreeMap<Key, usize> = BTreeMap::new();
        let mut closed: BTreeSet<Key> = BTreeSet::new();
        let mut total = 0;
        while let Some(entry) = self.entries.front() {
            let of_key = sizes.get(&entry.key).copied().unwrap_or_default();
            let is_full = total + entry.bytes + AROUND > MAX_STEP || of_key + entry.bytes > MAX_ENVELOPE;
            if (is_full || closed.contains(&entry.key)) && !some.is_empty() {
                break;
            }
            let Some(Entry { key, content, bytes }) = self.entries.pop_front() else { break };
            self.bytes -= bytes + AROUND;
            total += bytes + AROUND;
            *sizes.entry(key.clone()).or_default() += bytes;
            match content {
                One::Beat(beat) => {
                    closed.extend(some.iter().map(|(key, _)| key.clone()));
                    closed.insert(key.clone());
                    some.push((key, Content::Beat(beat)));
                }
                One::Message(message) => match some.iter_mut().find(|(of, _)| *of == key) {
                    Some((_, Content::Messages(messages))) => messages.push(message),
                    _ => some.push((key, Content::Messages(vec![message]))),
                },
            }
        }
        self.rest_if_empty();
        some
    }

    /// Returns the keys of heartbeats that are not to be sent any more, since the last commit was taken.
    pub fn outdated(&self) -> &BTreeSet<Key> {
        &self.outdated
    }

    #[cfg(test)]
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, &One)> {
        self.entries.iter().map(|entry| (&entry.key, &entry.content))
    }
}

/// The number of the last envelope of each key.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    boot: u64,
    last: BTreeMap<Key, u64>,
}

/// The commit under way: the same one again until its outcome is known.
#[derive(Debug)]
pub(super) struct Commit {
    envelopes: Vec<(Key, Envelope)>,
    /// An attempt has an unknown outcome.
    may_be_there: bool,
}

impl Numbers {
    pub fn new(boot: u64) -> Numbers {
        Numbers { boot, last: BTreeMap::new() }
    }

    pub fn commit(&mut self, some: Vec<(Key, Content)>) -> Commit {
        let envelopes = some.into_iter().map(|(key, content)| {
            let number = self.last.entry(key.clone()).or_default();
            *number += 1;
            let envelope = Envelope { boot: self.boot, number: *number, content };
            (key, envelope)
        });
        Commit { envelopes: envelopes.collect(), may_be_there: false }
    }
}

impl Commit {
    pub fn is_empty(&self) -> bool {
        self.envelopes.is_empty()
    }

    pub fn batch(&self) -> Batch {
        self.envelopes.iter().fold(Batch::new(), |batch, (key, envelope)| {
            batch.update(key, Update::register(envelope.encode()))
        })
    }

    pub fn has_unknown_outcome(&mut self) {
        self.may_be_there = true;
    }

    /// Leaves out the heartbeats that are not to be sent any more. A number that nobody can have seen is used
    /// again: the receivers take a gap for a loss.
    pub fn leave_out(&mut self, outdated: &BTreeSet<Key>, numbers: &mut Numbers) {
        let may_be_there = self.may_be_there;
        self.envelopes.retain(|(key, envelope)| {
            let is_outdated = matches!(envelope.content, Content::Beat(_)) && outdated.contains(key);
            if is_outdated && !may_be_there {
                numbers.last.insert(key.clone(), envelope.number - 1);
            }
            !is_outdated
        });
    }
}

#[cfg(test)]
mod tests;
