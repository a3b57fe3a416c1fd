//! The messages that a node sends, for all its contracts: commits to the store.
//!
//! One task commits, one transaction after the other; messages that come meanwhile share the next one. A
//! heartbeat that only says that nothing has changed waits for such a transaction, or for half a beat: so the
//! beats of all contracts of a node go in one commit.
//!
//! While no server answers, a bounded number of bytes waits here. Messages beyond that are lost, and the
//! protocol repairs it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use geolock_client::{Batch, Client, CommitError, Key, TxnRequest, Update};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::SequencerError;
use crate::retry::{PAUSE, txn_passes};
use crate::sequencer_state::{Beat, Content, Envelope, MAX_ENVELOPE, Message, message_len};

/// Most bytes that wait.
const MAX_WAITING: usize = 8 << 20;
/// Most bytes of a transaction: below the largest step that a server takes.
const MAX_STEP: usize = 1_800_000;

/// The way out of a node. The task ends when this is dropped.
#[derive(Debug)]
pub(super) struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    pushed: Notify,
    /// Nothing waits, and nothing is under way.
    is_idle: watch::Sender<bool>,
    failed: watch::Sender<Option<SequencerError>>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// When a heartbeat that can wait has to go.
    beat_by: Option<Instant>,
    is_urgent: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    content: One,
    bytes: usize,
}

#[derive(Debug)]
enum One {
    Message(Message),
    Beat(Beat),
}

impl Outbox {
    pub fn start(client: &Client, boot: u64) -> Outbox {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            pushed: Notify::new(),
            is_idle: watch::Sender::new(true),
            failed: watch::Sender::new(None),
        });
        let task =
            Task { client: client.clone(), boot, numbers: BTreeMap::new(), shared: Arc::clone(&shared) };
        tokio::spawn(task.run());
        Outbox { shared }
    }

    /// Sends a message. Returns false if it is lost: it is too long, or too much waits.
    pub fn send(&self, key: &Key, message: Message) -> bool {
        let bytes = message_len(&message);
        bytes < MAX_ENVELOPE && self.push(key, One::Message(message), bytes, None)
    }

    /// Sends a heartbeat. `within`: the time that it may wait for company.
    pub fn beat(&self, key: &Key, beat: Beat, within: Option<Duration>) -> bool {
        /// Longest encoding of an intent's name in a heartbeat.
        const NAME: usize = 220;
        let bytes = beat.coordinates.len() * NAME;
        self.push(key, One::Beat(beat), bytes, within)
    }

    fn push(&self, key: &Key, content: One, bytes: usize, within: Option<Duration>) -> bool {
        let mut queue = self.shared.queue();
        if queue.bytes + bytes > MAX_WAITING {
            return false;
        }
        match within {
            Some(within) => {
                let by = Instant::now() + within;
                queue.beat_by = Some(queue.beat_by.map_or(by, |at| at.min(by)));
            }
            None => queue.is_urgent = true,
        }
        queue.bytes += bytes;
        queue.entries.push_back(Entry { key: key.clone(), content, bytes });
        self.shared.is_idle.send_replace(false);
        drop(queue);
        self.shared.pushed.notify_one();
        true
    }

    /// Waits until everything is committed.
    pub async fn flushed(&self) {
        self.shared.queue().is_urgent = true;
        self.shared.pushed.notify_one();
        // The sender is there as long as this is.
        let _ = self.shared.is_idle.subscribe().wait_for(|is_idle| *is_idle).await;
    }

    /// Returns a receiver that is told when the server refuses a commit for good.
    pub fn failed(&self) -> watch::Receiver<Option<SequencerError>> {
        self.shared.failed.subscribe()
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.pushed.notify_one();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics while it holds this")
    }
}

struct Task {
    client: Client,
    boot: u64,
    /// The number of the last envelope of each key.
    numbers: BTreeMap<Key, u64>,
    shared: Arc<Shared>,
}

impl Task {
    async fn run(mut self) {
        while let Some(batch) = self.next().await {
            if let Err(error) = self.commit(batch).await {
                self.shared.failed.send_replace(Some(error));
                break;
            }
            let queue = self.shared.queue();
            if queue.entries.is_empty() {
                self.shared.is_idle.send_replace(true);
            }
        }
        self.shared.is_idle.send_replace(true);
    }

    /// Waits for the next transaction; `None` when the outbox is closed and empty.
    async fn next(&mut self) -> Option<Batch> {
        loop {
            let due = {
                let mut queue = self.shared.queue();
                let is_due = queue.beat_by.is_some_and(|at| at <= Instant::now());
                if !queue.entries.is_empty() && (queue.is_urgent || is_due || queue.is_closed) {
                    let some = take(&mut queue);
                    drop(queue);
                    return Some(self.encode(some));
                }
                queue.is_urgent = false;
                if queue.is_closed {
                    return None;
                }
                queue.beat_by
            };
            let due = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.shared.pushed.notified() => {}
                () = due => {}
            }
        }
    }

    fn encode(&mut self, some: Vec<(Key, Content)>) -> Batch {
        some.into_iter().fold(Batch::new(), |batch, (key, content)| {
            let number = self.numbers.entry(key.clone()).or_default();
            *number += 1;
            let envelope = Envelope { boot: self.boot, number: *number, content };
            batch.update(&key, Update::register(envelope.encode()))
        })
    }

    /// Commits, again until it is known. Twice is harmless: the number is the same.
    async fn commit(&self, batch: Batch) -> Result<(), SequencerError> {
        loop {
            match self.client.transact(TxnRequest::new(), batch.clone()).await {
                Ok(_) | Err(CommitError::NotAtMajority(_)) => return Ok(()),
                Err(CommitError::OutcomeUnknown(_)) => {}
                Err(CommitError::NotCommitted(error)) if txn_passes(&error) => {}
                Err(error) => return Err(SequencerError::Refused(error.to_string())),
            }
            sleep(PAUSE).await;
        }
    }
}

/// Takes as many entries as one transaction can have, in order. Messages to one receiver share an envelope,
/// unless a heartbeat was sent in between: it says less than the message after it.
fn take(queue: &mut Queue) -> Vec<(Key, Content)> {
    let mut some: Vec<(Key, Content)> = Vec::new();
    let mut sizes: BTreeMap<Key, usize> = BTreeMap::new();
    let mut closed: BTreeSet<Key> = BTreeSet::new();
    let mut total = 0;
    while let Some(entry) = queue.entries.front() {
        let of_key = sizes.get(&entry.key).copied().unwrap_or_default();
        let is_full = total + entry.bytes > MAX_STEP || of_key + entry.bytes > MAX_ENVELOPE;
        if (is_full || closed.contains(&entry.key)) && !some.is_empty() {
            break;
        }
        let Some(Entry { key, content, bytes }) = queue.entries.pop_front() else { break };
        queue.bytes -= bytes;
        total += bytes;
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
    if queue.entries.is_empty() {
        (queue.is_urgent, queue.beat_by) = (false, None);
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequencer_state::{IntentId, Node, Phase};

    fn key(name: &str) -> Key {
        Key::new(b"b", name.as_bytes()).expect("a test name is a key")
    }

    fn message(number: u32) -> Message {
        let intents = vec![IntentId::new(&Node::new("a"), &number.to_string())];
        Message::Returned { intents, why: None }
    }

    fn beat() -> Beat {
        Beat { phase: Phase::Active, epoch: None, height: 1, coordinates: BTreeSet::new() }
    }

    fn queue(entries: impl IntoIterator<Item = (&'static str, One, usize)>) -> Queue {
        let mut queue = Queue::default();
        for (name, content, bytes) in entries {
            queue.bytes += bytes;
            queue.entries.push_back(Entry { key: key(name), content, bytes });
        }
        queue
    }

    #[test]
    fn messages_to_one_receiver_share_an_envelope_and_contracts_share_a_commit() {
        let mut queue = queue([
            ("c/to/b/a", One::Message(message(1)), 10),
            ("c/to/d/a", One::Message(message(2)), 10),
            ("c/to/b/a", One::Message(message(3)), 10),
            ("c/beat/a", One::Beat(beat()), 10),
            ("other/beat/a", One::Beat(beat()), 10),
        ]);
        let expected = vec![
            (key("c/to/b/a"), Content::Messages(vec![message(1), message(3)])),
            (key("c/to/d/a"), Content::Messages(vec![message(2)])),
            (key("c/beat/a"), Content::Beat(beat())),
            (key("other/beat/a"), Content::Beat(beat())),
        ];
        assert_eq!(take(&mut queue), expected);
        assert_eq!((queue.entries.len(), queue.bytes), (0, 0));
    }

    /// A heartbeat that says less than a message must not come after it.
    #[test]
    fn a_message_after_a_heartbeat_stays_after_it() {
        let mut queue = queue([
            ("c/to/b/a", One::Message(message(1)), 10),
            ("c/beat/a", One::Beat(beat()), 10),
            ("c/to/b/a", One::Message(message(2)), 10),
        ]);
        let first = take(&mut queue);
        assert_eq!(first.len(), 2, "{first:?}");
        assert_eq!(take(&mut queue), [(key("c/to/b/a"), Content::Messages(vec![message(2)]))]);
    }

    #[test]
    fn a_commit_has_a_bounded_size() {
        let half = MAX_ENVELOPE / 2 + 1;
        let mut one = queue([("a", One::Message(message(1)), half), ("a", One::Message(message(2)), half)]);
        assert_eq!(take(&mut one).len(), 1);
        assert_eq!(one.entries.len(), 1, "an envelope fits into a change");
        let many = (0..5)
            .map(|number| (["a", "b", "c", "d", "e"][number as usize], One::Message(message(number)), half));
        let mut many = queue(many);
        assert_eq!(take(&mut many).len(), 3, "all of it fits into a step");
    }
}
