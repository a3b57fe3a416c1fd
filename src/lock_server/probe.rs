//! Measures how long a call waits with a call that does nothing. A probe waits for its turn on the threads
//! that serve clients, as their connections do, and then in the mailbox. If all connections have work, the
//! first wait is the longer one: a submitting thread handles its own call, so the mailbox fills only while
//! another thread steps the machine.

use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

use super::handle::Input;

/// Sends probes.
pub(super) struct Probes {
    /// The mailbox. The reference is weak, so that it does not keep the mailbox open.
    mailbox: mpsc::WeakSender<Input>,
    /// The runtime that serves clients, if the server was started on one.
    threads: Option<Handle>,
    /// Wakes the actor, which takes the probe out.
    wake_actor: Arc<Notify>,
}

impl Probes {
    /// Sends probes through the runtime that this is called on.
    pub(super) fn new(mailbox: mpsc::WeakSender<Input>, wake_actor: Arc<Notify>) -> Probes {
        Probes { mailbox, threads: Handle::try_current().ok(), wake_actor }
    }

    /// Sends a probe. Returns false if there was no room for it.
    pub(super) fn send(&self) -> bool {
        let (mailbox, wake_actor) = (self.mailbox.clone(), Arc::clone(&self.wake_actor));
        let mut probe = Probe { mailbox, wake_actor, has_arrived: false };
        match &self.threads {
            Some(threads) => {
                // The probe arrives in the mailbox; no other result is needed.
                drop(threads.spawn(probe.travel()));
                true
            }
            None => probe.arrive(),
        }
    }
}

/// A probe on its way. It also arrives in the mailbox if its runtime ends before the probe is polled.
struct Probe {
    mailbox: mpsc::WeakSender<Input>,
    wake_actor: Arc<Notify>,
    has_arrived: bool,
}

impl Probe {
    async fn travel(mut self) {
        let mut has_waited = false;
        // A task that wakes itself queues behind all others of its thread; a new task may overtake them.
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        if let Some(mailbox) = self.mailbox.upgrade()
            && let Ok(room) = mailbox.reserve().await
        {
            room.send(Input::Probe);
            self.has_arrived = true;
            self.wake_actor.notify_one();
        }
    }

    /// Puts the probe into the mailbox, if there is room.
    fn arrive(&mut self) -> bool {
        let mailbox = self.mailbox.upgrade();
        self.has_arrived |= mailbox.is_some_and(|mailbox| mailbox.try_send(Input::Probe).is_ok());
        self.wake_actor.notify_one();
        self.has_arrived
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.has_arrived {
            self.arrive();
        }
    }
}
