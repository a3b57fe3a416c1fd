//! Accepted intents that wait for their turn: those of a sender in its order, senders in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::super::words::{IntentId, Node};

#[derive(Debug, Default)]
pub(super) struct Pool {
    queues: BTreeMap<Node, VecDeque<Waiting>>,
    /// All of them.
    known: BTreeSet<IntentId>,
    /// The sender that had the last turn.
    last: Option<Node>,
}

#[derive(Debug)]
struct Waiting {
    intent: IntentId,
    /// It was put back, and is passed over until then.
    until: Duration,
}

impl Pool {
    /// Returns true if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub fn len_of(&self, sender: &Node) -> usize {
        self.queues.get(sender).map_or(0, VecDeque::len)
    }

    pub fn contains(&self, intent: &IntentId) -> bool {
        self.known.contains(intent)
    }

    pub fn intents(&self) -> impl Iterator<Item = &IntentId> {
        self.known.iter()
    }

    pub fn push(&mut self, intent: IntentId) {
        self.known.insert(intent.clone());
        let queue = self.queues.entry(intent.sender.clone()).or_default();
        queue.push_back(Waiting { intent, until: Duration::ZERO });
    }

    /// Puts an intent before all others of its sender. It is passed over until that time.
    pub fn put_back(&mut self, intent: IntentId, until: Duration) {
        self.known.insert(intent.clone());
        let queue = self.queues.entry(intent.sender.clone()).or_default();
        queue.push_front(Waiting { intent, until });
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&IntentId) -> bool) {
        let Pool { queues, known, .. } = self;
        let before = known.len();
        known.retain(&mut keep);
        if known.len() == before {
            return;
        }
        queues.retain(|_, queue| {
            queue.retain(|it| known.contains(&it.intent));
            !queue.is_empty()
        });
    }

    /// Takes the next intents of the sender whose turn it is, in its order, of those that do not wait: at
    /// most so many.
    pub fn take(&mut self, now: Duration, most: usize) -> Option<(Node, VecDeque<IntentId>)> {
        if most == 0 {
            return None;
        }
        let is_ready = |(_, queue): &(&Node, &VecDeque<Waiting>)| queue.iter().any(|it| it.until <= now);
        let after = |sender: &Node| self.last.as_ref().is_none_or(|last| sender > last);
        let mut in_turn = self.queues.iter().filter(|(sender, _)| after(sender)).filter(is_ready);
        let (sender, _) = in_turn.next().or_else(|| self.queues.iter().find(is_ready))?;
        let sender = sender.clone();
        let queue = self.queues.get_mut(&sender).expect("the sender is one of its keys");
        let mut taken = VecDeque::new();
        queue.retain(|it| {
            let is_taken = it.until <= now && taken.len() < most;
            if is_taken {
                taken.push_back(it.intent.clone());
            }
            !is_taken
        });
        if queue.is_empty() {
            self.queues.remove(&sender);
        }
        taken.iter().for_each(|intent| {
            self.known.remove(intent);
        });
        self.last = Some(sender.clone());
        Some((sender, taken))
    }

    /// Returns when the next one that was put back may be taken.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        self.queues.values().flatten().map(|it| it.until).filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_take_turns_and_each_keeps_its_order() {
        let id = |sender: &str, name: &str| IntentId::new(&Node::new(sender), name);
        let mut pool = Pool::default();
        for name in ["1", "2", "3"] {
            pool.push(id("a", name));
        }
        pool.push(id("b", "1"));
        pool.push(id("c", "1"));
        let second = Duration::from_secs(1);
        pool.put_back(id("b", "0"), second);
        let mut take = |at, most| pool.take(at, most).map(|(_, taken)| Vec::from(taken));
        assert_eq!(take(Duration::ZERO, 0), None);
        let turns: Vec<_> = std::iter::from_fn(|| take(Duration::ZERO, 2)).collect();
        assert_eq!(
            turns,
            [vec![id("a", "1"), id("a", "2")], vec![id("b", "1")], vec![id("c", "1")], vec![id("a", "3")]]
        );
        assert_eq!(take(second, 2), Some(vec![id("b", "0")]));
        pool.put_back(id("b", "0"), second);
        assert_eq!(pool.deadline(Duration::ZERO), Some(second));
        pool.retain(|_| false);
        assert!(pool.is_empty());
    }
}
