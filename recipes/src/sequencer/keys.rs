//! The keys of a contract in the store, and its lock.

use geolock_client::{Key, LockName};

use super::{BUCKET, SequencerError};
use crate::sequencer_state::{Contract, MAX_NAME, Node};

/// The keys of a contract, for one node. Names have no slash in them, so no key is another one's.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    contract: Contract,
    me: Node,
    lock: LockName,
    handover: Key,
    beat: Key,
}

/// A key that another node writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Its messages to this node.
    ToMe(Node),
    Beat(Node),
}

impl Place {
    pub fn sender(&self) -> &Node {
        match self {
            Place::ToMe(node) | Place::Beat(node) => node,
        }
    }
}

impl Keys {
    pub fn new(contract: &Contract, me: &Node) -> Result<Keys, SequencerError> {
        check("contract", contract.as_str())?;
        let key = |name: String| Key::new(BUCKET.as_bytes(), name.as_bytes()).map_err(refused);
        Ok(Keys {
            lock: LockName::new(format!("seq/{contract}").as_bytes())
                .map_err(|error| SequencerError::Refused(error.to_string()))?,
            handover: key(format!("{contract}/handover"))?,
            beat: key(format!("{contract}/beat/{me}"))?,
            contract: contract.clone(),
            me: me.clone(),
        })
    }

    pub fn me(&self) -> &Node {
        &self.me
    }

    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    pub fn lock(&self) -> &LockName {
        &self.lock
    }

    pub fn handover(&self) -> &Key {
        &self.handover
    }

    pub fn beat(&self) -> &Key {
        &self.beat
    }

    /// Returns the key of this node's messages to another one.
    pub fn to(&self, receiver: &Node) -> Result<Key, SequencerError> {
        let name = format!("{}/to/{receiver}/{}", self.contract, self.me);
        Key::new(BUCKET.as_bytes(), name.as_bytes()).map_err(refused)
    }

    /// Returns the beginning of all keys of messages to this node.
    pub fn to_me(&self) -> String {
        format!("{}/to/{}/", self.contract, self.me)
    }

    /// Returns the beginning of all keys of heartbeats.
    pub fn beats(&self) -> String {
        format!("{}/beat/", self.contract)
    }

    pub fn place_of(&self, key: &Key) -> Option<Place> {
        let name = std::str::from_utf8(key.name()).ok()?;
        match name.strip_prefix(&self.to_me()) {
            Some(sender) => Some(Place::ToMe(Node::new(sender))),
            None => name.strip_prefix(&self.beats()).map(|node| Place::Beat(Node::new(node))),
        }
    }
}

/// Checks the name of a node or a contract.
pub(super) fn check(what: &'static str, name: &str) -> Result<(), SequencerError> {
    let is_good = (1..=MAX_NAME).contains(&name.len()) && !name.contains('/');
    is_good.then_some(()).ok_or_else(|| SequencerError::Name { what, name: name.to_owned() })
}

fn refused(error: impl std::fmt::Display) -> SequencerError {
    SequencerError::Refused(error.to_string())
}
