//! A run, as its section sees it, and the section's future.

use std::any::Any;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Weak;
use std::task::Poll;

use geolock_client::{FencingToken, LockGuard, LostReason};
use tokio::sync::watch;

/// A run of the section in this instance.
#[derive(Clone, Debug)]
pub struct Run {
    token: FencingToken,
    guard: Weak<LockGuard>,
    over: watch::Receiver<()>,
}

/// Tells the clones of a [`Run`] that it is over, when it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    _over: watch::Sender<()>,
}

impl Run {
    pub(crate) fn new(token: FencingToken, guard: Weak<LockGuard>) -> (Running, Run) {
        let (sender, over) = watch::channel(());
        (Running { _over: sender }, Run { token, guard, over })
    }

    /// Returns the number of the run, which is the fencing token of its lock: above that of every run before.
    /// Effects outside of the store carry it, so that the changed resource can refuse a lower one.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the reason of the loss if the lock is lost, `None` while it is held. For work that was stopped
    /// and continues.
    pub fn lost(&self) -> Option<LostReason> {
        match self.guard.upgrade() {
            Some(guard) => guard.is_lost(),
            None => Some(LostReason::Released),
        }
    }

    /// Resolves when the run is over: its section has ended, or was cancelled because its lock is lost or it
    /// took too long. For work that the section gave to other tasks; its own future is dropped by then.
    pub async fn cancelled(&self) {
        let mut over = self.over.clone();
        // Nothing is ever sent: an error says that the run is over.
        while over.changed().await.is_ok() {}
    }
}

/// Runs a section, and turns its error or panic into text.
pub(crate) async fn caught<E: Display>(section: impl Future<Output = Result<(), E>>) -> Result<(), String> {
    let mut section = pin!(section);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| section.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(outcome)) => Poll::Ready(outcome.map_err(|error| error.to_string())),
        Err(panic) => Poll::Ready(Err(text(&*panic))),
    })
    .await
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_and_panics_become_text() {
        assert_eq!(caught(async { Ok::<(), String>(()) }).await, Ok(()));
        assert_eq!(caught(async { Err::<(), _>("no disk") }).await, Err("no disk".to_owned()));
        let panics = async { if true { panic!("number {}", 7) } else { Ok::<(), String>(()) } };
        assert_eq!(caught(panics).await, Err("it panicked: number 7".to_owned()));
    }

    #[tokio::test]
    async fn a_run_that_is_over_says_so_to_all_who_have_it() {
        let (running, run) = Run::new(FencingToken(7), Weak::new());
        assert_eq!(run.lost(), Some(LostReason::Released));
        let elsewhere = tokio::spawn({
            let run = run.clone();
            async move { run.cancelled().await }
        });
        drop(running);
        run.cancelled().await;
        elsewhere.await.expect("it ends");
    }
}
