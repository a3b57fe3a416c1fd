//! Sequencer: the members of a contract submit intents, one of them coordinates, and each intent is confirmed
//! by the ledger once. `docs/recipes/sequencer.md` explains it to users.
//!
//! | file | job |
//! |---|---|
//! | `application.rs` | the parts that the application brings: domain, ledger, database |
//! | `node.rs`, `outbox.rs`, `outbox/` | a node, and the messages that it sends for all its contracts |
//! | `inbox.rs`, `keys.rs` | the messages that it receives for one |
//! | `lock.rs` | the contract's lock |
//! | `follow.rs`, `ask.rs` | the ledger and the domain, as the driver uses them |
//! | `sqlite/` | a database and a ledger in SQLite |
//! | `driver.rs`, `driver/` | news into the machine, and its effects out of it |
//! | `errors.rs` | reasons to stop, and warnings |

mod application;
mod ask;
mod driver;
mod errors;
mod follow;
mod inbox;
mod keys;
mod lock;
mod node;
mod outbox;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedMutexGuard, broadcast, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

pub use crate::sequencer_state::{
    Assembly, AssemblyHash, Committee, CommitteeError, Contract, End, Epoch, Failure, Grant, Intent,
    IntentId, LedgerView, Node, NotAssembled, Notice, Outcome, Owner, Phase, Placement, Record, Restored,
    Revert, SequencerConfigError, SequencerOptions, Solo, Speculation, StartError, StateId, Stickiness,
    SubmitError, Threshold, Transaction,
};
use crate::sequencer_state::{Config, MAX_NAME, Machine};
pub use application::{Block, Domain, Ledger, NodeStore};
use driver::{Call, Channels, Driver, DriverState};
pub use errors::{SequencerError, Warning};
use inbox::Inbox;
use keys::Keys;
use lock::{LockPlace, LockTask};
pub use node::SequencerNode;

/// The bucket of all messages, heartbeats and handovers.
const BUCKET: &str = "geolock.seq";
/// Longest content of an intent, in bytes.
const MAX_CONTENT: usize = 1 << 20;
/// Calls of the application that wait, and transactions on their way to the ledger.
const CALLS: usize = 64;
/// News that wait. While there is no room, the watch and the ledger are not read.
const INPUTS: usize = 256;
/// Time for the last messages of a node that leaves.
const CLOSING: Duration = Duration::from_secs(2);
/// Warnings and ends that are kept for a slow reader.
const KEPT: usize = 1_024;

/// The parts of a sequencer that the application brings.
#[derive(Debug)]
pub struct Parts<D, L, S> {
    /// The rules of the contract.
    pub domain: D,
    /// This node's view of the ledger.
    pub ledger: L,
    /// This node's database for the contract.
    pub store: S,
}

/// A member of a contract: it submits intents, endorses those of others, and coordinates when it is its turn.
///
/// ```no_run
/// # use geolock_recipes::sequencer::*;
/// # async fn example(
/// #     client: geolock_client::Client,
/// #     domain: impl Domain,
/// #     ledger: impl Ledger,
/// #     store: impl NodeStore,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let node = SequencerNode::new(&client, "bank-a")?;
/// let parts = Parts { domain, ledger, store };
/// let sequencer = Sequencer::start(&node, "payments", parts, SequencerOptions::default()).await?;
/// // It is in this node's database when this returns, and is not forgotten any more.
/// let intent = sequencer.submit("pay-17", "ten to bob").await?;
/// match intent.ended().await? {
///     End::Confirmed => println!("it is on the ledger"),
///     End::Failed(why) => println!("it is not, and never will be: {why}"),
/// }
/// sequencer.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// If this is dropped, the node leaves as with [`Sequencer::close`], and nobody waits for it.
#[derive(Debug)]
pub struct Sequencer {
    me: Node,
    calls: mpsc::Sender<Call>,
    task: JoinHandle<Result<(), SequencerError>>,
    stopped: Arc<OnceLock<SequencerError>>,
    warnings: Feed<Warning>,
    ends: Feed<(IntentId, End)>,
}

impl Sequencer {
    /// Takes part in a contract, of which the name has 1 to 100 bytes and no slash: continues with what the
    /// database has. Reads the ledger, and waits until a server tells the messages of the others.
    ///
    /// If the node took part in the contract before, and that [`Sequencer`] has stopped or was dropped, this
    /// waits until it has left. While it works, this is refused.
    pub async fn start<D: Domain, L: Ledger, S: NodeStore>(
        node: &SequencerNode,
        contract: &str,
        parts: Parts<D, L, S>,
        options: SequencerOptions,
    ) -> Result<Sequencer, SequencerError> {
        let Parts { domain, ledger, mut store } = parts;
        let (me, contract) = (node.name().clone(), Contract::new(contract));
        let keys = Arc::new(Keys::new(&contract, &me)?);
        let committee = Committee::new(domain.committee(), &me)?;
        committee.members().iter().try_for_each(|member| keys::check("node", member.as_str()))?;
        let options = SequencerOptions { threshold: domain.threshold(), ..options };
        options.check(committee.members().len()).map_err(StartError::Options)?;
        options.placement.check(&committee)?;
        let (calls, called) = mpsc::channel(CALLS);
        // Nobody writes to the database any more.
        let place = node.places().take(&contract, &calls).await?;
        let restored = load(&mut store, &me, &contract).await?;
        let intents = restored.intents.iter().map(|intent| intent.id.clone()).collect();
        let view = ledger.view(intents).await.map_err(|error| SequencerError::Ledger(error.to_string()))?;

        let (inputs, input) = mpsc::channel(INPUTS);
        let inbox = Inbox::begin(node.client(), &keys, committee.members(), inputs.clone()).await?;
        let config = Config { me: me.clone(), contract, committee, options: options.clone(), bug: None };
        let machine = Machine::new(config, &restored, &view)?;
        let (lock, commands) = mpsc::unbounded_channel();
        let (lock_news, lock_events) = mpsc::unbounded_channel();
        let (to_ledger, transactions) = mpsc::channel(CALLS + options.max_ahead);
        let ((warnings, warned), (ends, ended)) = (Feed::new(), Feed::new());
        // The first reader gets it.
        let _ = behind(&restored, &view, &me).map(|warning| warned.send(warning));
        let ledger = Arc::new(ledger);
        let mut tasks = JoinSet::new();
        tasks.spawn(inbox.run());
        tasks.spawn(follow::submit(Arc::clone(&ledger), transactions, inputs.downgrade()));
        tasks.spawn(follow::follow(Arc::clone(&ledger), view.height, inputs));
        let lock_place = LockPlace {
            client: node.client().clone(),
            keys: Arc::clone(&keys),
            asks_every: options.beat,
            events: lock_news,
        };
        let lock_task = LockTask { place: lock_place, commands };
        let lock_ended = tokio::spawn(lock_task.run());
        let stopped = Arc::new(OnceLock::new());
        let driver = Driver {
            outbox: Arc::clone(node.outbox()),
            keys,
            machine,
            domain: Arc::new(domain),
            ledger,
            store,
            max_undecided: options.max_undecided,
            beat: options.beat,
            unheard: options.flush_timeout,
            channels: Channels {
                calls: called,
                lock_events,
                inputs: input,
                lock,
                to_ledger,
                warnings: warned,
                ends: ended,
            },
            tasks,
            stopped: Arc::clone(&stopped),
            state: DriverState::new(),
        };
        let task = tokio::spawn(run(driver, lock_ended, place));
        Ok(Sequencer { me, calls, task, stopped, warnings, ends })
    }

    /// Submits an intent of this node. When it returns, the intent is in the node's database, and will be
    /// confirmed once or finally fail, whatever happens meanwhile. The name is the intent's for ever: the
    /// same one with the same content is the same intent, also after it has ended. Names have 1 to 100
    /// bytes, contents up to 1 MiB.
    ///
    /// Dropping the future leaves open if the intent is taken.
    pub async fn submit(
        &self,
        name: &str,
        content: impl Into<Bytes>,
    ) -> Result<SubmittedIntent, SubmitError> {
        let (id, content) = (IntentId::new(&self.me, name), content.into());
        if !(1..=MAX_NAME).contains(&name.len()) {
            return Err(SubmitError::Name { len: name.len(), most: MAX_NAME });
        }
        if content.len() > MAX_CONTENT {
            return Err(SubmitError::Content { len: content.len(), most: MAX_CONTENT });
        }
        let (answer, answered) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let stopped = || SubmitError::Stopped(self.reason().to_string());
        let call = Call::Submit(Intent { id: id.clone(), content }, answer, end);
        self.calls.send(call).await.map_err(|_| stopped())?;
        answered.await.unwrap_or_else(|_| Err(stopped()))?;
        Ok(SubmittedIntent { id, ended, stopped: Arc::clone(&self.stopped) })
    }

    /// Returns the state of this node.
    pub async fn status(&self) -> Result<SequencerStatus, SequencerError> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call::Status(answer)).await.map_err(|_| self.reason())?;
        answered.await.map_err(|_| self.reason())
    }

    /// Returns the ends of all intents of this node, also of those that were submitted before its start: the
    /// first call those since the start, another one those from then on.
    pub fn ends(&self) -> Ends {
        Ends(self.ends.subscribe())
    }

    /// Returns everything noteworthy, for a log: the first call since the start, another one from then on.
    pub fn warnings(&self) -> Warnings {
        Warnings(self.warnings.subscribe())
    }

    /// Leaves: releases the lock, and waits until that is done. Undecided intents stay in the database, and
    /// are continued after the next start. Returns the error if the node has stopped before.
    pub async fn close(self) -> Result<(), SequencerError> {
        // If it has stopped, it says why.
        let _ = self.calls.send(Call::Close).await;
        self.task.await.unwrap_or(Err(SequencerError::Closed))
    }

    fn reason(&self) -> SequencerError {
        self.stopped.get().cloned().unwrap_or(SequencerError::Closed)
    }
}

/// Reads the database of a node, or begins it.
async fn load<S: NodeStore>(
    store: &mut S,
    me: &Node,
    contract: &Contract,
) -> Result<Restored, SequencerError> {
    let restored = store.load().await.map_err(SequencerError::store)?;
    restored.check(me, contract)?;
    if restored.owner.is_none() {
        let owner = Owner { node: me.clone(), contract: contract.clone() };
        store.write(vec![Record::Owner(owner)]).await.map_err(SequencerError::store)?;
    }
    Ok(restored)
}

/// Returns the warning if the database does not know what the ledger has decided of this node.
fn behind(restored: &Restored, view: &LedgerView, me: &Node) -> Option<Warning> {
    let decided = view.decided_nonces.get(me).copied().unwrap_or_default();
    Warning::if_behind(restored.last_nonce, decided)
}

/// Runs the driver, and waits for the end of the lock. The place is another one's after that.
async fn run<D: Domain, L: Ledger, S: NodeStore>(
    driver: Driver<D, L, S>,
    lock: JoinHandle<()>,
    _place: OwnedMutexGuard<()>,
) -> Result<(), SequencerError> {
    let ended = driver.run().await;
    // It may have been stopped with the runtime.
    let _ = lock.await;
    ended
}

/// An intent that was taken.
#[derive(Debug)]
pub struct SubmittedIntent {
    id: IntentId,
    ended: oneshot::Receiver<End>,
    stopped: Arc<OnceLock<SequencerError>>,
}

impl SubmittedIntent {
    /// Returns its name.
    pub fn id(&self) -> &IntentId {
        &self.id
    }

    /// Waits until it is confirmed or has finally failed. An error: the node has stopped before; the intent
    /// goes on after its next start.
    pub async fn ended(self) -> Result<End, SequencerError> {
        let SubmittedIntent { ended, stopped, .. } = self;
        ended.await.map_err(|_| stopped.get().cloned().unwrap_or(SequencerError::Closed))
    }
}

/// The state of a node, as it sees it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequencerStatus {
    /// The node.
    pub node: Node,
    /// Its state as a coordinator.
    pub phase: Phase,
    /// The epoch under which it may dispatch: it holds the lock, or goes on alone.
    pub epoch: Option<Epoch>,
    /// The height of its view of the ledger.
    pub height: u64,
    /// The node that is to coordinate.
    pub coordinator: Node,
    /// The committee in the order of this range.
    pub rank: Vec<Node>,
    /// The node that it delegates to, if it has undecided intents.
    pub delegate: Option<Node>,
    /// Nodes that have not given a sign which they owed.
    pub silent: Vec<Node>,
    /// The number of its undecided intents.
    pub undecided: usize,
}

/// The ends of a node's intents. A reader that is more than 1 024 behind misses some; the database has them.
#[derive(Debug)]
pub struct Ends(broadcast::Receiver<(IntentId, End)>);

impl Ends {
    /// Waits for the next one; `None` when the node has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<(IntentId, End)> {
        next(&mut self.0).await
    }
}

/// Things that a person may want to know. A reader that is more than 1 024 behind misses some.
#[derive(Debug)]
pub struct Warnings(broadcast::Receiver<Warning>);

impl Warnings {
    /// Waits for the next one; `None` when the node has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Warning> {
        next(&mut self.0).await
    }
}

/// Events of the driver, which ends them when it stops.
#[derive(Debug)]
struct Feed<T> {
    source: broadcast::WeakSender<T>,
    /// All events since the start, for the first subscriber.
    first: Mutex<Option<broadcast::Receiver<T>>>,
}

impl<T: Clone> Feed<T> {
    fn new() -> (Feed<T>, broadcast::Sender<T>) {
        let (source, first) = broadcast::channel(KEPT);
        (Feed { source: source.downgrade(), first: Mutex::new(Some(first)) }, source)
    }

    fn subscribe(&self) -> broadcast::Receiver<T> {
        let first = self.first.lock().expect("nothing panics while it holds this").take();
        let ended = || broadcast::channel(1).1;
        first.or_else(|| self.source.upgrade().map(|it| it.subscribe())).unwrap_or_else(ended)
    }
}

async fn next<T: Clone>(receiver: &mut broadcast::Receiver<T>) -> Option<T> {
    loop {
        match receiver.recv().await {
            Ok(next) => return Some(next),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}
