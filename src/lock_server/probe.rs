//! How long a call waits, found out by one that does nothing: it waits for its turn on the threads that serve clients as
//! their connections do, then in the mailbox. With connections that all have something to do the first wait is the long one:
//! who brings a call works it off, so the mailbox fills only while somebody else is at it.

use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

use super::handle::Input;

/// Sends probes.
pub(super) struct Probes {
    /// Into the mailbox; keeps it open for nobody.
    mailbox: mpsc::WeakSender<Input>,
    /// Where clients are served, if the server was started there.
    threads: Option<Handle>,
    /// The actor's, which takes it out.
    call: Arc<Notify>,
}

impl Probes {
    /// Of the runtime that this is called on.
    pub(super) fn new(mailbox: mpsc::WeakSender<Input>, call: Arc<Notify>) -> Probes {
        Probes { mailbox, threads: Handle::try_current().ok(), call }
    }

    /// Sends one on its way. Whether it is.
    pub(super) fn send(&self) -> bool {
        let (mailbox, call) = (self.mailbox.clone(), Arc::clone(&self.call));
        let mut probe = Probe { mailbox, call, has_arrived: false };
        match &self.threads {
            Some(threads) => {
                // Comes back as a probe in the mailbox, and nobody waits for it otherwise.
                drop(threads.spawn(probe.travel()));
                true
            }
            None => probe.arrive(),
        }
    }
}

/// One on its way. Comes to the mailbox also when its runtime ends before it had its turn.
struct Probe {
    mailbox: mpsc::WeakSender<Input>,
    call: Arc<Notify>,
    has_arrived: bool,
}

impl Probe {
    async fn travel(mut self) {
        let mut has_waited = false;
        // Woken by itself, a task goes behind all others of its thread; a new one may overtake them.
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
            self.call.notify_one();
        }
    }

    /// At once, if there is room.
    fn arrive(&mut self) -> bool {
        let mailbox = self.mailbox.upgrade();
        self.has_arrived |= mailbox.is_some_and(|mailbox| mailbox.try_send(Input::Probe).is_ok());
        self.call.notify_one();
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
