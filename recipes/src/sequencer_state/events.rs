//! The words between the machine and its driver.

use std::collections::{BTreeMap, BTreeSet};

use super::options::SequencerConfigError;
use super::words::{
    Assembly, AssemblyHash, Beat, Contract, Endorsement, Epoch, Handover, Intent, IntentId, Message, Node,
    Notice, Speculation, Transaction,
};

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The application submits an intent; [`Effect::Submitted`] answers.
    Submit(Intent),
    /// A message of another node.
    Message { from: Node, message: Message },
    /// A heartbeat of another node.
    Beat { from: Node, beat: Beat },
    /// News of the contract's lock.
    Lock(LockEvent),
    /// The next block that this node's view of the ledger has, with its transactions of the contract.
    Block { height: u64, outcomes: Vec<Outcome> },
    /// The domain's answer to [`Effect::Assemble`], with its words.
    Assembled { to: Node, round: u64, intent: IntentId, answer: Result<Assembly, NotAssembled> },
    /// The domain's answer to [`Effect::Endorse`], with its words.
    Endorsed { to: Node, round: u64, intent: IntentId, answer: Result<(), String> },
    /// The ledger did not take the transaction with that nonce, for a reason that passes.
    NotSubmitted { nonce: u64 },
    /// The node's database, and its view of the ledger at the height of the last block, read again beside the
    /// work: what memory lacks is taken up.
    Resumed { restored: Restored, view: LedgerView },
    /// The deadline has come.
    Time,
}

/// The reason why a domain did not assemble an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAssembled {
    /// For now: it waits for an input or for another intent.
    Parked,
    /// It failed; it is given up when it has failed often enough.
    Invalid(String),
}

/// News of the contract's lock.
#[derive(Clone, Debug)]
pub(crate) enum LockEvent {
    /// It is held, and its token is the epoch. `handover`: as it stands in the snapshot of the grant.
    Granted { epoch: Epoch, handover: Option<Handover> },
    /// It cannot be had now: a datacenter that owns a part of it is not reachable.
    Blocked,
    /// It can be had again.
    Unblocked,
    /// [`LockEffect::WriteHandover`] is done.
    HandoverWritten,
    /// It is lost, or the request for it has ended. Told before anybody else can have it.
    Lost,
}

/// A transaction of the contract in a block, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The transaction, as its signer submitted it.
    pub transaction: Transaction,
    /// It is confirmed, or reverted for this reason.
    pub result: Result<(), Revert>,
}

/// The reason why a ledger reverted a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revert {
    /// An input is not there, or not any more.
    Spent,
    /// The intent is confirmed already.
    DuplicateIntent,
    /// A higher epoch has been seen.
    StaleEpoch,
    /// The contract's own reason.
    Contract(String),
}

/// Something for the driver to do. Effects are performed in order; nothing after [`Effect::Persist`] is
/// performed before it is durable. Several in a row may share one commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Persist(Record),
    Send {
        to: Node,
        message: Message,
    },
    Beat(Beat),
    Lock(LockEffect),
    /// Submit it to the ledger. It may be there already.
    SubmitToLedger(Transaction),
    /// Ask the domain to assemble it on top of `speculation`.
    Assemble {
        to: Node,
        round: u64,
        intent: Intent,
        speculation: Speculation,
    },
    /// Ask the domain for this node's endorsement.
    Endorse {
        to: Node,
        round: u64,
        assembly: Assembly,
    },
    /// Answer the caller that submitted the intent.
    Submitted {
        intent: IntentId,
        answer: Result<(), SubmitError>,
    },
    /// Tell the application how an intent ended. Told again if the process ends at that moment.
    Finished {
        intent: IntentId,
        end: End,
    },
}

impl Effect {
    /// Returns true if it may say what a record before it says: it is performed after that is written. The
    /// others rest on memory alone, which a crash loses together with all that came of them: they are
    /// performed at once, and no assembly waits for the disk.
    pub fn rests_on_records(&self) -> bool {
        match self {
            Effect::Assemble { .. } | Effect::Endorse { .. } => false,
            Effect::Send { message, .. } => message.rests_on_records(),
            Effect::Persist(_)
            | Effect::Beat(_)
            | Effect::Lock(_)
            | Effect::SubmitToLedger(_)
            | Effect::Submitted { .. }
            | Effect::Finished { .. } => true,
        }
    }
}

/// The contract's lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LockEffect {
    /// Queue for it.
    Acquire,
    /// Commit the handover, under the lock.
    WriteHandover(Handover),
    /// Leave the queue, or release it.
    Release,
}

/// A change of the node's own database. Those of a node are written in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first one: the node and the contract that the database is for.
    Owner(Owner),
    /// Before the answer to `submit`.
    Intent(Intent),
    /// Before the sender tells the coordinator that it may dispatch.
    Grant(Grant),
    /// Before the submission to the ledger, and before the sender hears of it. The highest nonce stays when
    /// the row goes.
    Dispatch(Transaction),
    /// The ledger has decided the transaction with that nonce: its row may go.
    DispatchOver {
        /// Its nonce.
        nonce: u64,
    },
    /// Before the coordinator hears that its sender knows of a dispatch.
    Notice {
        /// The coordinator.
        signer: Node,
        /// The dispatch.
        notice: Notice,
    },
    /// Before the application hears of the end: the grants and notices of the intent may go. The intent and
    /// its end stay, or the application could submit it once more.
    Ended {
        /// The intent.
        intent: IntentId,
        /// How it ended.
        end: End,
    },
}

/// The node and the contract that a database is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The node.
    pub node: Node,
    /// The contract.
    pub contract: Contract,
}

/// A permission to dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The intent.
    pub intent: IntentId,
    /// The coordinator that may dispatch it.
    pub to: Node,
    /// The epoch in which it may.
    pub epoch: Epoch,
    /// The hash of the assembly that it may dispatch.
    pub hash: AssemblyHash,
}

/// How an intent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The ledger has it.
    Confirmed,
    /// The ledger does not have it, and never will.
    Failed(Failure),
}

/// The reason why an intent was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The sender's domain cannot assemble it.
    #[error("it cannot be assembled: {0}")]
    Assembly(String),
    /// Too few members endorse it.
    #[error("it is not endorsed: {0}")]
    Endorsement(String),
    /// The ledger reverts it, for its own reason: not because it rested on another one that reverts.
    #[error("the ledger reverts it: {0}")]
    Reverted(String),
}

/// An intent that is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// There is an undecided intent of that name that wants something else.
    #[error("{0:?} is there already, with other content")]
    OtherContent(IntentId),
    /// The intent names another node as its sender.
    #[error("{0:?} is an intent of another node")]
    NotOurs(IntentId),
    /// The name has a length out of its bounds.
    #[error("an intent has a name of 1 to {most} bytes, this one has {len}")]
    Name {
        /// Its length in bytes.
        len: usize,
        /// The longest name, in bytes.
        most: usize,
    },
    /// The content is too long.
    #[error("an intent has a content of at most {most} bytes, this one has {len}")]
    Content {
        /// Its length in bytes.
        len: usize,
        /// The longest content, in bytes.
        most: usize,
    },
    /// [`SequencerOptions::max_undecided`](super::SequencerOptions::max_undecided) is reached: submit it
    /// again when another one has ended.
    #[error("{0} intents of this node are undecided, and it takes no more")]
    TooMany(usize),
    /// The sequencer has stopped, for this reason. The intent may have been taken.
    #[error("the sequencer has stopped: {0}")]
    Stopped(String),
}

/// The content of a node's database.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The node and the contract that it is for; `None` while it is empty.
    pub owner: Option<Owner>,
    /// Undecided intents, in the order in which they were submitted.
    pub intents: Vec<Intent>,
    /// Grants of these.
    pub grants: Vec<Grant>,
    /// Notices of these.
    pub notices: Vec<(Node, Notice)>,
    /// Transactions that this node dispatched and has not seen decided, in the order of nonces.
    pub dispatches: Vec<Transaction>,
    /// The highest nonce that this node ever used.
    pub last_nonce: u64,
}

/// A node that cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The options cannot be used.
    #[error(transparent)]
    Options(#[from] SequencerConfigError),
    /// The database has intents or transactions of another node.
    #[error("the database is that of {found}, this node is {me}")]
    OtherDatabase {
        /// The node whose database it is.
        found: Node,
        /// This node.
        me: Node,
    },
    /// The database is that of another contract.
    #[error("the database is for the contract {found}, this one is {contract}")]
    OtherContract {
        /// The contract whose database it is.
        found: Contract,
        /// This contract.
        contract: Contract,
    },
}

impl Restored {
    /// Checks that the database is that of this node and contract.
    pub(crate) fn check(&self, me: &Node, contract: &Contract) -> Result<(), StartError> {
        if let Some(found) = self.owner.as_ref().map(|owner| &owner.contract).filter(|it| *it != contract) {
            return Err(StartError::OtherContract { found: found.clone(), contract: contract.clone() });
        }
        let owner = self.owner.iter().map(|owner| &owner.node);
        let senders = self.intents.iter().map(|intent| &intent.id.sender);
        let signers = self.dispatches.iter().map(|transaction| &transaction.signer);
        match owner.chain(senders).chain(signers).find(|node| *node != me) {
            Some(found) => Err(StartError::OtherDatabase { found: found.clone(), me: me.clone() }),
            None => Ok(()),
        }
    }
}

/// A node's view of the ledger at one height.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerView {
    /// The number of the last block in it.
    pub height: u64,
    /// The highest epoch of a confirmed transaction.
    pub epoch: Option<Epoch>,
    /// Nonces that are decided, per signer: up to this one.
    pub decided_nonces: BTreeMap<Node, u64>,
    /// The confirmed ones of the intents that were asked for.
    pub confirmed: BTreeSet<IntentId>,
}

/// For the answer of an endorser's domain.
impl From<Result<(), String>> for Endorsement {
    fn from(answer: Result<(), String>) -> Endorsement {
        answer.map_or_else(Endorsement::Denied, |()| Endorsement::Given)
    }
}
