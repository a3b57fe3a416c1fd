//! The messages that a node sends, for all its contracts: commits to the store.
//!
//! One task commits, one transaction after the other; messages that come meanwhile share the next one.
//! Messages that no assembly waits for share it, too, or are at least some milliseconds apart: a node with
//! much to do makes a commit for many of them. A heartbeat that only says that nothing has changed waits for
//! such a transaction, or for half a beat: so the beats of all contracts of a node go in one commit.
//!
//! While no server answers, a bounded number of bytes waits here. Messages beyond that are lost, and the
//! protocol repairs it.

mod queue;

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use geolock_client::{Client, CommitError, Key, TxnRequest};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use self::queue::{Commit, Haste, Next, Numbers, One, Queue};
use super::{CLOSING, SequencerError};
use crate::retry::{PAUSE, txn_passes};
use crate::sequencer_state::{Beat, MAX_ENVELOPE, Message, message_len};

/// The way out of a node. When this is dropped, the task sends what waits if a server answers soon, and ends.
#[derive(Debug)]
pub(super) struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    pushed: Notify,
    closed: Notify,
    /// Nothing waits, and nothing is under way.
    is_idle: watch::Sender<bool>,
    failed: watch::Sender<Option<SequencerError>>,
    /// A commit is under way since then.
    under_way: Mutex<Option<Instant>>,
}

impl Outbox {
    pub fn start(client: &Client, boot: u64) -> Outbox {
        let outbox = Outbox::without_task();
        let (client, shared) = (client.clone(), Arc::clone(&outbox.shared));
        tokio::spawn(Task { client, numbers: Numbers::new(boot), shared }.run());
        outbox
    }

    /// An outbox that sends nothing.
    pub fn without_task() -> Outbox {
        let shared = Shared {
            queue: Mutex::default(),
            pushed: Notify::new(),
            closed: Notify::new(),
            is_idle: watch::Sender::new(true),
            failed: watch::Sender::new(None),
            under_way: Mutex::default(),
        };
        Outbox { shared: Arc::new(shared) }
    }

    /// Sends a message. Returns false if it is lost: it is too long, or too much waits.
    pub fn send(&self, key: &Key, message: Message) -> bool {
        let bytes = message_len(&message);
        let haste = if message.can_wait() { Haste::Paced } else { Haste::Now };
        bytes < MAX_ENVELOPE && self.push(key, One::Message(message), bytes, haste)
    }

    /// Sends a heartbeat, in place of one that waits. `within`: the time that it may wait for company.
    pub fn beat(&self, key: &Key, beat: Beat, within: Option<Duration>) -> bool {
        /// Longest encoding of an intent's name in a heartbeat.
        const NAME: usize = 220;
        let bytes = beat.coordinates.len() * NAME;
        self.push(key, One::Beat(beat), bytes, within.map_or(Haste::Now, Haste::Within))
    }

    /// Takes a heartbeat back that was not sent: its coordinator is gone.
    pub fn withdraw_beat(&self, key: &Key) {
        self.shared.queue().withdraw_beat(key);
        self.shared.pushed.notify_one();
    }

    fn push(&self, key: &Key, content: One, bytes: usize, haste: Haste) -> bool {
        let mut queue = self.shared.queue();
        let is_pushed = queue.push(key, content, bytes, haste);
        if is_pushed {
            self.shared.is_idle.send_replace(false);
        }
        drop(queue);
        self.shared.pushed.notify_one();
        is_pushed
    }

    /// Waits until everything is committed.
    pub async fn flushed(&self) {
        self.shared.queue().hurry();
        self.shared.pushed.notify_one();
        // The sender is there as long as this is.
        let _ = self.shared.is_idle.subscribe().wait_for(|is_idle| *is_idle).await;
    }

    /// Returns the error when the server has refused a commit for good.
    pub fn failed(&self) -> watch::Receiver<Option<SequencerError>> {
        self.shared.failed.subscribe()
    }

    /// Returns for how long the commit under way has been attempted.
    pub fn waits_for(&self) -> Duration {
        self.shared.under_way().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Pretends that a commit is under way for so long.
    #[cfg(test)]
    pub fn wait_since(&self, since: Option<Instant>) {
        *self.shared.under_way() = since;
    }

    #[cfg(test)]
    pub fn fail(&self, error: SequencerError) {
        self.shared.failed.send_replace(Some(error));
    }

    /// Returns how many messages and heartbeats wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.shared.queue().waiting().count()
    }

    #[cfg(test)]
    pub fn has_beat(&self, key: &Key) -> bool {
        self.shared.queue().waiting().any(|(of, one)| matches!(one, One::Beat(_)) && of == key)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.pushed.notify_one();
        self.shared.closed.notify_one();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics while it holds this")
    }

    fn under_way(&self) -> MutexGuard<'_, Option<Instant>> {
        self.under_way.lock().expect("nothing panics while it holds this")
    }
}

struct Task {
    client: Client,
    numbers: Numbers,
    shared: Arc<Shared>,
}

impl Task {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let abandoned = async {
            shared.closed.notified().await;
            sleep(CLOSING).await;
        };
        tokio::select! {
            () = self.send_all() => {}
            () = abandoned => {}
        }
        shared.is_idle.send_replace(true);
    }

    async fn send_all(&mut self) {
        while let Some(commit) = self.next().await {
            *self.shared.under_way() = Some(Instant::now());
            let committed = self.commit(commit).await;
            *self.shared.under_way() = None;
            if let Err(error) = committed {
                self.shared.failed.send_replace(Some(error));
                return;
            }
        }
    }

    /// Waits for the next transaction; `None` when the outbox is closed and empty.
    async fn next(&mut self) -> Option<Commit> {
        loop {
            let until = {
                let mut queue = self.shared.queue();
                match queue.next(Instant::now()) {
                    Next::Commit(some) => return Some(self.numbers.commit(some)),
                    Next::Wait { until, is_empty } => {
                        if is_empty {
                            self.shared.is_idle.send_replace(true);
                        }
                        until
                    }
                    Next::End => return None,
                }
            };
            let due = async {
                match until {
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

    /// Commits, again until it is known. Twice is harmless: the number is the same.
    async fn commit(&mut self, mut commit: Commit) -> Result<(), SequencerError> {
        while !commit.is_empty() {
            match self.client.transact(TxnRequest::new(), commit.batch()).await {
                Ok(_) | Err(CommitError::NotAtMajority(_)) => return Ok(()),
                Err(CommitError::OutcomeUnknown(_)) => commit.has_unknown_outcome(),
                Err(CommitError::NotCommitted(error)) if txn_passes(&error) => {}
                Err(error) => return Err(SequencerError::Refused(error.to_string())),
            }
            sleep(PAUSE).await;
            commit.leave_out(self.shared.queue().outdated(), &mut self.numbers);
        }
        Ok(())
    }
}
