//! The words of the protocol: names, assemblies, transactions, and the messages between nodes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::hash::Hasher;

/// Longest name of a node, a contract or an intent, in bytes.
pub(crate) const MAX_NAME: usize = 100;
/// Longest name of a state, in bytes.
pub(crate) const MAX_STATE: usize = 256;

/// Longest reason of a refusal, in bytes.
pub(crate) const MAX_REASON: usize = 1_024;

/// A name that is cheap to copy.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: &str) -> $name {
                $name(text.into())
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            pub(super) fn as_bytes(&self) -> &[u8] {
                self.as_str().as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A contract on the ledger, which has one sequence of transactions.
    Contract
}
name! {
    /// A member of a committee. It is a sender, an endorser, and a coordinator when it is its turn; it signs
    /// transactions under its name.
    Node
}
name! {
    /// A state of the contract that a transaction consumes or makes.
    StateId
}

/// The name of an intent: unique in the contract, chosen by its sender.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IntentId {
    /// The node that answers for it.
    pub sender: Node,
    /// The name that the sender's application gave it.
    pub name: Arc<str>,
}

impl IntentId {
    /// Names an intent of a sender.
    pub fn new(sender: &Node, name: &str) -> IntentId {
        IntentId { sender: sender.clone(), name: name.into() }
    }
}

impl fmt::Debug for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.sender, self.name)
    }
}

/// Something that a sender wants to happen once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Its name.
    pub id: IntentId,
    /// Its content, for the domain.
    pub content: Bytes,
}

/// The token of the lock under which a coordinator dispatches. The ledger refuses one that is below the
/// highest that it has seen, except [`Epoch::SOLO`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a coordinator that goes on behind a partition, without the lock.
    pub const SOLO: Epoch = Epoch(0);
}

/// The hash of an assembly and its intent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssemblyHash(pub u128);

impl fmt::Debug for AssemblyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:08x}", self.0 as u32)
    }
}

/// An intent made concrete by its sender: the states that it consumes and makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The intent.
    pub intent: IntentId,
    /// States that it consumes.
    pub inputs: Vec<StateId>,
    /// States that it makes.
    pub outputs: Vec<StateId>,
    /// The domain's, with the sender's signature.
    pub payload: Bytes,
}

impl Assembly {
    /// Returns the hash of all of it.
    pub fn hash(&self) -> AssemblyHash {
        let named =
            Hasher::new("assembly").field(self.intent.sender.as_bytes()).field(self.intent.name.as_bytes());
        let states = [&self.inputs, &self.outputs].into_iter().fold(named, |hash, states| {
            states.iter().fold(hash.number(states.len() as u64), |hash, state| hash.field(state.as_bytes()))
        });
        AssemblyHash(states.field(&self.payload).finish())
    }
}

/// An assembly on its way to the ledger. Its signer submits it again, unchanged, until the ledger has decided
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The assembly.
    pub assembly: Assembly,
    /// Its hash.
    pub hash: AssemblyHash,
    /// The epoch of the coordinator that dispatched it.
    pub epoch: Epoch,
    /// That coordinator.
    pub signer: Node,
    /// The number of the transaction among those of its signer, from 1, without gaps.
    pub nonce: u64,
}

impl Transaction {
    /// Returns the intent.
    pub fn intent(&self) -> &IntentId {
        &self.assembly.intent
    }
}

/// The effect of assemblies that are not on the ledger of every node yet: a sender adds it to the states that
/// it knows as confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// States that one of them consumes.
    pub spent: BTreeSet<StateId>,
    /// States that one of them makes, and none consumes.
    pub created: BTreeSet<StateId>,
}

impl Speculation {
    /// Adds the effect of an assembly that rests on those before it.
    pub(crate) fn add(&mut self, assembly: &Assembly) {
        let Speculation { spent, created } = self;
        spent.extend(assembly.inputs.iter().cloned());
        created.extend(assembly.outputs.iter().filter(|state| !spent.contains(state)).cloned());
        assembly.inputs.iter().for_each(|state| {
            created.remove(state);
        });
    }
}

/// A message between two nodes of a contract. It may be lost, and it may come twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Sender to coordinator: coordinate these. All of the sender's undecided intents, in order, but those
    /// that it knows to be dispatched. `skipped`: nodes that are silent for the sender.
    Delegate { height: u64, skipped: BTreeSet<Node>, intents: Vec<IntentId> },
    /// The answer: `accepted`, also those that were there already; `dispatched`, which are on their way to
    /// the ledger, or there; `full`, for which there is no room now.
    Delegated { accepted: Vec<IntentId>, dispatched: Vec<IntentId>, full: Vec<IntentId> },
    /// The other answer: none is accepted.
    Rejected(Rejection),
    /// Coordinator to sender: assemble these, in order, each on top of those before it. `round` comes back in
    /// the answers.
    Assemble { intents: Vec<IntentId>, round: u64, speculation: Speculation },
    /// The answer for one of them.
    Assembled { intent: IntentId, round: u64, answer: Assembled },
    /// Coordinator to endorser. `skipped`: nodes that are silent for the coordinator.
    Endorse { round: u64, height: u64, epoch: Option<Epoch>, skipped: BTreeSet<Node>, assembly: Assembly },
    /// The answer.
    Endorsed { intent: IntentId, round: u64, answer: Endorsement },
    /// Coordinator to sender: may I dispatch it?
    AskDispatch { intent: IntentId, epoch: Epoch, hash: AssemblyHash },
    /// The answer: yes. It is in the sender's database.
    Granted { intent: IntentId, epoch: Epoch, hash: AssemblyHash },
    /// The answer: no.
    Refused { intent: IntentId, epoch: Epoch, hash: AssemblyHash, why: Refusal },
    /// Coordinator to sender: it is in the coordinator's database, and on its way to the ledger.
    Dispatched(Notice),
    /// The answer: it is in the sender's database.
    DispatchedAck(Notice),
    /// Sender to a node that was granted an intent which the sender wants to give up: it is not to use the
    /// permission any more. If it has used it, it answers with [`Message::Dispatched`].
    Revoke { intent: IntentId, epoch: Epoch, hash: AssemblyHash },
    /// The other answer: it has nothing on its way to the ledger by that permission, and never will. What it
    /// had is decided at that height.
    Revoked { intent: IntentId, epoch: Epoch, hash: AssemblyHash, height: u64 },
    /// Coordinator to sender: these are given back, not dispatched. `why`: an endorser's reason.
    Returned { intents: Vec<IntentId>, why: Option<String> },
}

impl Message {
    /// Returns true if it may say what a record says. The others rest on memory alone.
    pub(crate) fn rests_on_records(&self) -> bool {
        !matches!(
            self,
            Message::Assemble { .. }
                | Message::Assembled { .. }
                | Message::Endorse { .. }
                | Message::Endorsed { .. }
                | Message::AskDispatch { .. }
        )
    }

    /// Returns true if no assembly waits for it: it may come some milliseconds later, with others.
    pub(crate) fn can_wait(&self) -> bool {
        match self {
            Message::Delegate { .. }
            | Message::Delegated { .. }
            | Message::Endorse { .. }
            | Message::Endorsed { .. }
            | Message::AskDispatch { .. }
            | Message::Granted { .. }
            | Message::Dispatched(_)
            | Message::DispatchedAck(_) => true,
            Message::Rejected(_)
            | Message::Assemble { .. }
            | Message::Assembled { .. }
            | Message::Refused { .. }
            | Message::Revoke { .. }
            | Message::Revoked { .. }
            | Message::Returned { .. } => false,
        }
    }
}

/// A dispatch, as its sender hears of it. The signer is the coordinator that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The intent.
    pub intent: IntentId,
    /// The epoch of the coordinator.
    pub epoch: Epoch,
    /// The hash of the assembly.
    pub hash: AssemblyHash,
    /// The nonce of the transaction.
    pub nonce: u64,
}

/// The reason why a delegation is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The receiver's height is in another range.
    WrongRange { height: u64 },
    /// The receiver hears, or prefers, another.
    NotCoordinator { who: Node },
    /// The receiver is giving up, and takes nothing meanwhile.
    Flushing,
}

/// The answer to [`Message::Assemble`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assembled {
    /// It can be done.
    Done(Assembly),
    /// It waits for an input or for another intent.
    Parked,
    /// It cannot be done.
    Invalid(String),
    /// It is not the asking node's: it was delegated to another one, or it is decided.
    NotYours,
}

/// The answer to [`Message::Endorse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endorsement {
    /// The domain agrees.
    Given,
    /// By the endorser's height the asking node is not the coordinator.
    WrongCoordinator { height: u64 },
    /// The domain refuses it.
    Denied(String),
}

/// The reason why a dispatch is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is delegated to another coordinator.
    NotYours,
    /// It is decided, or was never the sender's.
    Unknown,
    /// The sender assembled it anew since, or has forgotten the assembly by a restart.
    OtherAssembly,
    /// Another coordinator was granted it, and this epoch does not fence that one.
    OlderEpoch,
}

/// The state of a coordinator, as the other nodes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It coordinates, and does not dispatch yet.
    Electing,
    /// It coordinates and dispatches.
    Active,
    /// It has given up, and waits for what it has dispatched.
    Flushing,
    /// It has given up.
    Closing,
    /// It has nothing to do.
    Idle,
}

impl Phase {
    /// Returns true if senders may delegate to it.
    pub fn coordinates(self) -> bool {
        matches!(self, Phase::Electing | Phase::Active)
    }
}

/// A heartbeat. All nodes hear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    pub phase: Phase,
    /// The epoch of the lock, if it is held.
    pub epoch: Option<Epoch>,
    pub height: u64,
    /// All intents that it coordinates, also those that it has dispatched and the ledger has not decided.
    pub coordinates: BTreeSet<IntentId>,
}

/// A transaction that a coordinator hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOver {
    pub transaction: Transaction,
    /// The time for which coordinators have waited for it that had it handed over, each by its own clock. If
    /// its signer is gone for ever, the wait for it ends once, and not once in each range.
    pub waited: Duration,
}

/// A coordinator's legacy to the next one, written under the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The epoch of the coordinator that leaves.
    pub epoch: Epoch,
    /// Transactions that it has not seen decided: its own, and those that were handed over to it.
    pub dispatched: Vec<HandedOver>,
    /// The hash of the last assembly that it dispatched in its epoch.
    pub last: Option<AssemblyHash>,
}
