//! Accepted intents that wait for their turn: those of a sender in its order, senders in turn.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::super::words::{IntentId, Node};

#[derive(Debug, Default)]
pub(super) struct Pool {
    queues: BTreeMap<Node, VecDeque<Waiting>>,
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
        let queue = self.queues.get(&intent.sender);
        queue.is_some_and(|queue| queue.iter().any(|it| it.intent == *intent))
    }

    pub fn intents(&self) -> impl Iterator<Item = &IntentId> {
        self.queues.values().flatten().map(|it| &it.intent)
    }

    pub fn push(&mut self, intent: IntentId) {
        let queue = self.queues.entry(intent.sender.clone()).or_default();
        queue.push_back(Waiting { intent, until: Duration::ZERO });
    }

    /// Puts an intent before all others of its sender. It is passed over until that time.
    pub fn put_back(&mut self, intent: IntentId, until: Duration) {
        let queue = self.queues.entry(intent.sender.clone()).or_default();
        queue.push_front(Waiting { intent, until });
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&IntentId) -> bool) {
        self.queues.retain(|_, queue| {
            queue.retain(|it| keep(&it.intent));
            !queue.is_empty()
        });
    }

    /// Takes the next intent of the sender whose turn it is, of those that do not wait.
    pub fn take(&mut self, now: Duration) -> Option<IntentId> {
        let ready = |queue: &VecDeque<Waiting>| queue.iter().position(|it| it.until <= now);
        let has_one = |(sender, queue): (&Node, &VecDeque<Waiting>)| Some((sender.clone(), ready(queue)?));
        let after = |sender: &Node| self.last.as_ref().is_none_or(|last| sender > last);
        let mut in_turn = self.queues.iter().filter(|(sender, _)| after(sender)).filter_map(has_one);
        let (sender, place) = in_turn.next().or_else(|| self.queues.iter().find_map(has_one))?;
        let queue = self.queues.get_mut(&sender).expect("the sender is one of its keys");
        let taken = queue.remove(place).map(|it| it.intent);
        if queue.is_empty() {
            self.queues.remove(&sender);
        }
        self.last = Some(sender);
        taken
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
        let mut taken = Vec::new();
        while let Some(intent) = pool.take(Duration::ZERO) {
            taken.push(intent);
        }
        assert_eq!(taken, [id("a", "1"), id("b", "1"), id("c", "1"), id("a", "2"), id("a", "3")]);
        assert_eq!(pool.deadline(Duration::ZERO), Some(second));
        assert_eq!(pool.take(second), Some(id("b", "0")));
        assert!(pool.is_empty());
    }
}
