//! The record of one key: its content at the floor, and the effects after it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::causal_log::{Action, Commit, Entry, Op};
use crate::crdt::value::{At, Dot};
use crate::store_state::content::Content;
use crate::store_state::tombstones::{Fate, Lifetime, Tombstones};
use geolock_api::keys::Key;
use geolock_api::names::Position;
use geolock_api::value::Type;

/// If more effects than this are between the floor and a reader, they are applied once, to a copy that is
/// kept.
const REPLAYED: usize = 8;

/// The record of one key.
#[derive(Debug)]
pub(super) struct Record {
    pub key: Key,
    /// At the floor, or at the last change before it.
    pub content: Content,
    /// After `content`, in the order of application.
    effects: VecDeque<Effect>,
    /// The weights of the updates among `effects`.
    unfolded: usize,
    /// The content at a later position, so that readers need not apply many effects again and again.
    ahead: Option<Box<(Position, Content)>>,
    /// The tombstones after all effects, while some effect may change them.
    newest_tombstones: Option<Tombstones>,
    /// Number of its elements in the store's list of changes to compact.
    pub uncompacted: u32,
    /// Number of the stable vector at which its content was compacted, with nothing folded since; 0 if none.
    pub compacted_at: u64,
    /// Number of the stable vector at which its content is being compacted, and the last element that was
    /// compacted.
    pub compacting: Option<Box<(u64, Bytes)>>,
}

/// An applied change, as part of its entry.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub position: Position,
    entry: Arc<Entry>,
    /// Index of the commit among the operations of the entry, and of the change in the commit.
    op: u32,
    index: u32,
}

impl Effect {
    pub fn new(position: Position, entry: &Arc<Entry>, op: usize, index: usize) -> Effect {
        Effect { position, entry: entry.clone(), op: op as u32, index: index as u32 }
    }

    fn commit(&self) -> &Commit {
        match &self.entry.ops[self.op as usize] {
            Op::Commit(commit) => commit,
            other => unreachable!("the effect of {other:?} is that of a commit"),
        }
    }

    pub fn action(&self) -> &Action {
        &self.commit().changes[self.index as usize].action
    }

    pub fn at(&self) -> At<'_> {
        At {
            dot: Dot { dc: self.entry.dc, seq: self.entry.seq },
            index: self.index,
            stamp: self.entry.at,
            seen: &self.commit().seen,
        }
    }

    /// Returns the most by which its update makes the reading of the value larger.
    fn weight(&self) -> usize {
        match self.action() {
            Action::Update(update) => update.weight(),
            Action::Remove | Action::Expire(_) | Action::Expired => 0,
        }
    }

    fn apply_to(&self, content: &mut Content) {
        content.apply(self.action(), &self.at());
    }
}

impl Record {
    pub fn new(key: Key, content: Content) -> Record {
        Record {
            key,
            content,
            effects: VecDeque::new(),
            unfolded: 0,
            ahead: None,
            newest_tombstones: None,
            uncompacted: 0,
            compacted_at: 0,
            compacting: None,
        }
    }

    /// Appends an effect. Returns the effect of its change on the key; for an update always [`Fate::In`],
    /// which is not checked.
    pub fn push(&mut self, effect: Effect) -> Fate {
        debug_assert!(
            self.effects.back().is_none_or(|last| last.position <= effect.position),
            "effects of {} are in the order of the journal",
            self.key
        );
        let fate = match effect.action() {
            Action::Update(_) => Fate::In,
            action => {
                let tombstones =
                    self.newest_tombstones.get_or_insert_with(|| self.content.tombstones.clone());
                tombstones.apply(action, &effect.at())
            }
        };
        self.unfolded += effect.weight();
        self.effects.push_back(effect);
        fate
    }

    /// Returns the tombstones with all effects.
    pub fn newest_tombstones(&self) -> &Tombstones {
        self.newest_tombstones.as_ref().unwrap_or(&self.content.tombstones)
    }

    /// Returns the lifetimes with all effects.
    pub fn lifetimes(&self) -> &[Lifetime] {
        self.newest_tombstones().lifetimes()
    }

    /// Returns the lifetime that counts, with all effects; its datacenter writes the end.
    pub fn standing(&self) -> Option<&Lifetime> {
        self.newest_tombstones().standing()
    }

    /// Returns the content that a snapshot shows; the snapshot is not before the floor.
    pub fn read(&mut self, at: Position) -> Cow<'_, Content> {
        let end = self.effects.partition_point(|effect| effect.position <= at);
        if end == 0 {
            return Cow::Borrowed(&self.content);
        }
        let usable = self.ahead.as_ref().is_some_and(|ahead| ahead.0 <= at);
        let start = match &self.ahead {
            Some(ahead) if usable => self.effects.partition_point(|effect| effect.position <= ahead.0),
            _ => 0,
        };
        // A reader of an older snapshot than the copy's does not take the copy away from the others.
        if end - start > REPLAYED && (usable || self.ahead.is_none()) {
            let mut ahead =
                self.ahead.take().unwrap_or_else(|| Box::new((Position::default(), self.content.clone())));
            self.effects.range(start..end).for_each(|effect| effect.apply_to(&mut ahead.1));
            ahead.0 = self.effects[end - 1].position;
            debug_assert!(ahead.0 <= at, "a copy is ahead of what is folded, not of its readers");
            return Cow::Borrowed(&self.ahead.insert(ahead).1);
        }
        let near = self.ahead.as_ref().filter(|_| usable).map_or(&self.content, |ahead| &ahead.1);
        if start == end {
            return Cow::Borrowed(near);
        }
        let mut content = near.clone();
        self.effects.range(start..end).for_each(|effect| effect.apply_to(&mut content));
        Cow::Owned(content)
    }

    /// Returns the content with all effects.
    pub fn newest(&self) -> Content {
        let mut content = self.content.clone();
        self.effects.iter().for_each(|effect| effect.apply_to(&mut content));
        content
    }

    /// Returns a bound of the weight of the newest reading, at no cost.
    pub fn weight_bound(&self) -> usize {
        self.content.slots.weight().unwrap_or(0) + self.unfolded
    }

    /// Returns the type of the newest value, without building the value where that is possible.
    pub fn newest_type(&mut self) -> Option<Type> {
        match self.effects.back().map(Effect::action) {
            Some(Action::Update(update)) => Some(update.root_type()),
            Some(Action::Remove | Action::Expired) => None,
            Some(Action::Expire(_)) => self.read(Position(u64::MAX)).slots.value_type(),
            None => self.content.slots.value_type(),
        }
    }

    pub fn effects_len(&self) -> usize {
        self.effects.len()
    }

    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Folds the next effect into the content; calls `around` with the content before and after it. Returns
    /// true if there was one.
    pub fn fold_next(&mut self, floor: Position, mut around: impl FnMut(&Content, &Effect, Side)) -> bool {
        if self.effects.front().is_none_or(|effect| effect.position > floor) {
            return false;
        }
        let effect = self.effects.pop_front().expect("there is a first one");
        self.unfolded -= effect.weight();
        around(&self.content, &effect, Side::Before);
        effect.apply_to(&mut self.content);
        self.compacted_at = 0;
        self.compacting = None;
        around(&self.content, &effect, Side::After);
        if self.effects.is_empty() || self.ahead.as_ref().is_some_and(|ahead| ahead.0 < effect.position) {
            self.ahead = None;
        }
        if self.effects.is_empty() {
            debug_assert!(
                self.newest_tombstones.as_ref().is_none_or(|newest| *newest == self.content.tombstones),
                "without effects the newest tombstones of {} are those of its content",
                self.key
            );
            self.newest_tombstones = None;
        }
        true
    }

    /// Drops an end before it is stable: a deliberate bug.
    #[cfg(test)]
    pub fn forget_end(&mut self, dot: crate::crdt::value::Dot) {
        if !self.has_effects() {
            self.content.compact(&[(dot.dc, dot.seq)].into_iter().collect());
        }
    }

    /// Asserts that the data kept beside the effects equals the result of the effects.
    pub fn check(&self) {
        assert_eq!(*self.newest_tombstones(), self.newest().tombstones, "the newest marks of {}", self.key);
    }

    /// Returns true if the record can be removed.
    pub fn is_over(&self) -> bool {
        self.effects.is_empty() && self.uncompacted == 0 && self.content.is_empty()
    }
}

/// Before or after an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Before,
    After,
}
