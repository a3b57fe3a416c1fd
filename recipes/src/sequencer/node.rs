//! A node: its name, and the way out that all its contracts share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use geolock_client::Client;
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::SequencerError;
use super::driver::Call;
use super::keys::check;
use super::outbox::Outbox;
use crate::random::random;
use crate::sequencer_state::{Contract, Node};

/// A node that takes part in contracts. Cheap to clone. All contracts of a process should share one: their
/// messages then share commits.
#[derive(Clone, Debug)]
pub struct SequencerNode {
    client: Client,
    name: Node,
    outbox: Arc<Outbox>,
    places: Arc<Places>,
}

impl SequencerNode {
    /// Names a node: 1 to 100 bytes, without a slash. It signs transactions under this name, and no other
    /// process uses it at the same time.
    ///
    /// The time to live of the client's lease is that of the contract's lock: when a coordinator dies, the
    /// next one has to wait for so long. Recommended: 3 s; no server gives less than 1 s. Must be called
    /// within a tokio runtime.
    pub fn new(client: &Client, name: &str) -> Result<SequencerNode, SequencerError> {
        check("node", name)?;
        let boot = random();
        let outbox = Arc::new(Outbox::start(client, boot));
        Ok(SequencerNode { client: client.clone(), name: Node::new(name), outbox, places: Arc::default() })
    }

    /// Returns its name.
    pub fn name(&self) -> &Node {
        &self.name
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }
}

/// The node's places in contracts. A sequencer that was dropped works on until it has left: one that began
/// meanwhile would read a database to which the other one still writes permissions.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<BTreeMap<Contract, Taken>>);

/// A place that was taken. It is kept: contracts are few.
#[derive(Debug)]
struct Taken {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Of the sequencer that has it, or waits for it.
    calls: mpsc::WeakSender<Call>,
}

impl Places {
    /// Waits until the sequencer of that contract which has stopped, or was dropped, is gone. Refuses if one
    /// works.
    pub async fn take(
        &self,
        contract: &Contract,
        calls: &mpsc::Sender<Call>,
    ) -> Result<OwnedMutexGuard<()>, SequencerError> {
        let turn = {
            let mut places = self.0.lock().expect("nothing panics while it holds this");
            let new = || Taken { turn: Arc::default(), calls: mpsc::Sender::downgrade(calls) };
            let taken = places.entry(contract.clone()).or_insert_with(new);
            let is_other = |it: &mpsc::Sender<Call>| !it.is_closed() && !it.same_channel(calls);
            if taken.calls.upgrade().as_ref().is_some_and(is_other) {
                return Err(SequencerError::Running(contract.clone()));
            }
            taken.calls = calls.downgrade();
            Arc::clone(&taken.turn)
        };
        Ok(turn.lock_owned().await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn a_place_is_taken_once_and_free_when_the_sequencer_before_is_gone() {
        let (places, contract) = (Places::default(), Contract::new("c"));
        let (first, first_called) = mpsc::channel(1);
        let (second, _called) = mpsc::channel(1);
        let turn = places.take(&contract, &first).await.expect("it is free");
        let refused = places.take(&contract, &second).await.map(drop);
        assert_eq!(refused, Err(SequencerError::Running(contract.clone())));
        places.take(&Contract::new("d"), &second).await.map(drop).expect("it is another one");
        // It was dropped, and works on.
        drop(first);
        let mut waits = pin!(places.take(&contract, &second));
        let is_ready = poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_ready())).await;
        assert!(!is_ready, "the other one still writes");
        drop((turn, first_called));
        waits.await.map(drop).expect("it is free");
    }
}
