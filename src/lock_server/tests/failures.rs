//! Tests of the ways in which a step fails: an error or a panic, in a submitting thread or in the actor. Each
//! time no further step is made, every caller is told, and the server ends with the reason.

use tokio::time::timeout;

use super::*;
use crate::lock_server::fakes::BUGGY_PEER;

/// Far longer than anything here takes: a test that hangs fails.
const LONG: Duration = Duration::from_secs(60);

/// Callers that wait for an answer when the server fails.
struct Waiting {
    session: Session,
    unary: tokio::task::JoinHandle<Result<Reply, Stopped>>,
}

impl Waiting {
    async fn start(rig: &Rig) -> Waiting {
        let handle = rig.server.handle();
        let mut session = handle.open_session().await.expect("there is room");
        session.call(1, acquire("wait")).await.expect("the server runs");
        let unary = tokio::spawn(async move { handle.call(acquire("wait too")).await });
        rig.settle(|seen| seen.events.len() >= 2).await;
        Waiting { session, unary }
    }

    async fn are_told(mut self) {
        let told = async {
            assert_eq!(self.session.next().await, Err(End::Stopped));
            assert_eq!(self.unary.await.expect("it does not panic"), Err(Stopped));
        };
        timeout(LONG, told).await.expect("nobody waits for ever");
    }
}

#[tokio::test]
async fn an_error_in_a_submitting_thread_stops_the_server() {
    let rig = started(Syncs::AtOnce);
    let (handle, seen) = (rig.server.handle(), rig.watch());
    let waiting = Waiting::start(&rig).await;
    assert_eq!(handle.call(acquire("too large")).await, Err(Stopped));
    // Until the actor has taken the engine out, this may still find the mailbox open.
    assert_eq!(handle.call(acquire("a")).await, Err(Stopped));
    waiting.are_told().await;
    let ended = rig.server.stopped().await;
    assert!(matches!(ended, Err(StopError::Encode(_))), "{ended:?}");
    assert_eq!(*handle.stage().borrow(), Stage::Stopped);
    let seen = seen.lock().expect("nobody panicked");
    assert_eq!(seen.events.len(), 3, "no step is made after the one that failed: {:?}", seen.events);
    assert!(seen.store_closed && seen.links_shut_down);
}

#[tokio::test]
async fn an_error_in_the_actor_stops_the_server() {
    let rig = started(Syncs::WhenTold);
    let (handle, seen) = (rig.server.handle(), rig.watch());
    let waiting = Waiting::start(&rig).await;
    let mut session = handle.open_session().await.expect("there is room");
    session.call(1, open_lease()).await.expect("the server runs");
    rig.settle(|seen| seen.events.len() == 3).await;
    rig.journal.put(JournalEvent::Failed(JournalError::Stopped));
    assert_eq!(session.next().await, Err(End::Stopped), "and no answer to what is not durable");
    waiting.are_told().await;
    assert!(matches!(rig.server.stopped().await, Err(StopError::Journal(JournalError::Stopped))));
    assert_eq!(*handle.stage().borrow(), Stage::Stopped);
    assert_eq!(seen.lock().expect("nobody panicked").events.len(), 3);
}

#[tokio::test]
#[should_panic(expected = "a step of the lock server has panicked")]
async fn a_panic_in_a_submitting_thread_ends_the_server_loudly() {
    let mut attempts = 0;
    let (rig, waiting) = loop {
        attempts += 1;
        assert!(attempts < 1_000, "a thread that submits a call makes the step");
        let rig = started(Syncs::AtOnce);
        let waiting = Waiting::start(&rig).await;
        let handle = rig.server.handle();
        let step = tokio::spawn(async move { handle.call(Call::Describe { lock: name("a") }).await });
        // If the actor's thread makes a step at this moment, that one makes this step, too.
        if step.await.is_err_and(|error| error.is_panic()) {
            break (rig, waiting);
        }
    };
    waiting.are_told().await;
    assert_eq!(rig.server.handle().call(acquire("a")).await, Err(Stopped));
    rig.server.stopped().await.expect("it panics");
}

#[tokio::test]
#[should_panic(expected = "this machine knows no such peer")]
async fn a_panic_in_the_actor_ends_the_server_loudly() {
    let rig = started(Syncs::AtOnce);
    let waiting = Waiting::start(&rig).await;
    rig.links.send(LinkInput::Up { peer: dc(BUGGY_PEER), version: 2 }).await.expect("the server runs");
    waiting.are_told().await;
    assert_eq!(rig.server.handle().call(acquire("a")).await, Err(Stopped));
    rig.server.stopped().await.expect("it panics");
}
