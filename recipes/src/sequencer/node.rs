//! A node: its name, and the way out that all its contracts share.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use geolock_client::Client;

use super::SequencerError;
use super::keys::check;
use super::outbox::Outbox;
use crate::sequencer_state::Node;

/// A node that takes part in contracts. Cheap to clone. All contracts of a process should share one: their
/// messages then share commits.
#[derive(Clone, Debug)]
pub struct SequencerNode {
    client: Client,
    name: Node,
    outbox: Arc<Outbox>,
}

impl SequencerNode {
    /// Names a node: 1 to 100 bytes, without a slash. It signs transactions under this name, and no other
    /// process uses it at the same time.
    ///
    /// The time to live of the client's lease is that of the contract's lock: when a coordinator dies, the
    /// next one has to wait for so long. Recommended: 3 s. Must be called within a tokio runtime.
    pub fn new(client: &Client, name: &str) -> Result<SequencerNode, SequencerError> {
        check("node", name)?;
        // The hash tables of the standard library are seeded by the operating system.
        let boot = RandomState::new().hash_one(0_u8);
        let outbox = Arc::new(Outbox::start(client, boot));
        Ok(SequencerNode { client: client.clone(), name: Node::new(name), outbox })
    }

    /// Returns its name.
    pub fn name(&self) -> &Node {
        &self.name
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }
}
