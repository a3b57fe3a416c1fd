//! A ledger for examples and tests: blocks, a mempool by signer and nonce, states that are spent once, and
//! the rules of the intent and of the epoch.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::super::application::{Block, Ledger};
use super::ledger_rows::{TABLES, blocks, height, mine, outcomes, submit, unspent, view};
use super::{Shared, SqliteError};
use crate::sequencer_state::{Assembly, Epoch, IntentId, LedgerView, Node, Revert, StateId, Transaction};

/// Most blocks that are read at a time.
const SOME: u64 = 100;
/// A reader looks for a block so often in the time of one.
const LOOKS: u32 = 8;

/// A rule of a contract: an error is the reason of a revert.
pub type SimRule = fn(&Assembly) -> Result<(), String>;

/// The options of a [`SimLedger`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimLedgerOptions {
    /// Time between two blocks: 100 ms to 5 s. All processes have to name the same one. Default 1 s.
    pub block: Duration,
    /// Blocks by which this view is late. Default 0.
    pub lag: u64,
    /// States that the contract has at first: `genesis-0`, `genesis-1` ... Default 16.
    pub states: u64,
    /// The contract's own rule. An error is the reason of a revert. Default: none.
    pub rule: Option<SimRule>,
}

impl Default for SimLedgerOptions {
    fn default() -> SimLedgerOptions {
        SimLedgerOptions { block: Duration::from_secs(1), lag: 0, states: 16, rule: None }
    }
}

/// A view of a ledger with one contract, in a file that several processes of one machine can share. There is
/// no other process for it: whichever reader sees that a block is due makes it.
#[derive(Clone, Debug)]
pub struct SimLedger {
    db: Shared,
    options: SimLedgerOptions,
}

/// A transaction that the ledger has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimOutcome {
    /// The height of its block.
    pub height: u64,
    /// Its intent.
    pub intent: IntentId,
    /// The coordinator that dispatched it.
    pub signer: Node,
    /// The epoch of that.
    pub epoch: Epoch,
    /// Confirmed, or the reason why not.
    pub result: Result<(), Revert>,
    /// When it was submitted first, in ms since the Unix epoch.
    pub submitted_ms: u64,
    /// When the block was made.
    pub decided_ms: u64,
}

impl SimLedger {
    /// Opens the file, or makes it.
    pub fn open(path: impl AsRef<Path>, options: SimLedgerOptions) -> Result<SimLedger, SqliteError> {
        let block = options.block.clamp(Duration::from_millis(100), Duration::from_secs(5));
        let genesis = format!(
            "insert or ignore into states with recursive n(i) as (select 0 union all select i + 1 from n) \
             select 'genesis-' || i, 0, null from n limit {}",
            options.states
        );
        // A crash of the machine may lose blocks; one of a process does not.
        let db = Shared::open(path.as_ref(), "NORMAL", &format!("{TABLES}{genesis};"))?;
        Ok(SimLedger { db, options: SimLedgerOptions { block, ..options } })
    }

    /// Returns the states that nobody has consumed, in this view.
    pub async fn unspent(&self) -> Result<Vec<StateId>, SqliteError> {
        let lag = self.options.lag;
        self.db.read(move |db| unspent(db, height(db, lag)?)).await
    }

    /// Returns all decided transactions above a height, in order, whatever the lag of this view is.
    pub async fn outcomes(&self, above: u64) -> Result<Vec<SimOutcome>, SqliteError> {
        self.db.read(move |db| outcomes(db, above)).await
    }

    /// Makes a block, if it is time.
    async fn mine_if_due(&self) -> Result<(), SqliteError> {
        let (block, rule) = (self.options.block, self.options.rule);
        self.db.call(move |db| mine(db, now_ms(), block, rule)).await
    }
}

impl Ledger for SimLedger {
    type Error = SqliteError;

    async fn view(&self, intents: Vec<IntentId>) -> Result<LedgerView, SqliteError> {
        let lag = self.options.lag;
        self.db.read(move |db| view(db, height(db, lag)?, intents)).await
    }

    async fn submit(&self, transaction: &Transaction) -> Result<(), SqliteError> {
        let transaction = transaction.clone();
        self.db.call(move |db| submit(db, &transaction, now_ms())).await
    }

    async fn blocks(&self, above: u64) -> Result<Vec<Block>, SqliteError> {
        let lag = self.options.lag;
        loop {
            let found =
                self.db.read(move |db| blocks(db, above, height(db, lag)?.min(above.saturating_add(SOME))));
            let found = found.await?;
            if !found.is_empty() {
                return Ok(found);
            }
            self.mine_if_due().await?;
            // Nothing tells a process that another one has written to the file.
            sleep(self.options.block / LOOKS).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "processes of one machine make blocks in turn")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
