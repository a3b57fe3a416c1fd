//! One node: submits its intents, some after the others, and stays until it is told to leave.

use std::path::PathBuf;
use std::time::Duration;

use geolock_recipes::sequencer::sqlite::{SimLedger, SimLedgerOptions, SqliteStore};
use geolock_recipes::sequencer::{
    End, Parts, Sequencer, SequencerError, SequencerNode, SequencerOptions, Solo, SubmittedIntent, Threshold,
};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::coins::{Coins, MEMBERS};
use super::options::Options;
use super::playground::connect;

/// A node tells its status this often.
const STATUS: Duration = Duration::from_secs(5);

/// Everything that a node needs to know.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub name: String,
    pub folder: PathBuf,
    pub base: u16,
    pub tls: PathBuf,
    pub options: Options,
}

pub fn ledger(config: &NodeConfig) -> Result<SimLedger, String> {
    let mut options = SimLedgerOptions::default();
    options.block = config.options.block;
    options.lag = config.options.lags.get(&config.name).copied().unwrap_or_default();
    SimLedger::open(config.folder.join("ledger.db"), options).map_err(|error| error.to_string())
}

/// Runs a node until `leave` ends. `tell` gets one line for each thing that happens.
pub async fn run(
    config: NodeConfig,
    leave: impl Future<Output = ()>,
    tell: impl Fn(String) + Clone + Send + 'static,
) -> Result<(), String> {
    let said = |error: SequencerError| error.to_string();
    let name = &config.name;
    let dc = MEMBERS.iter().find(|(member, _)| member == name).map(|(_, dc)| *dc);
    let client = connect(config.base, &config.tls, dc.ok_or("it is no member")?, name).await?;
    let store = SqliteStore::open(config.folder.join(format!("{name}.db")));
    let ledger = ledger(&config)?;
    let parts = Parts {
        // With one member away the others go on.
        domain: Coins { ledger: ledger.clone(), threshold: Threshold::AtLeast(MEMBERS.len() - 1) },
        ledger,
        store: store.map_err(|error| error.to_string())?,
    };
    let mut options = SequencerOptions::default();
    options.block_range = config.options.range;
    options.solo = Solo::After(config.options.solo);
    options.flush_timeout = config.options.block * 20;
    let node = SequencerNode::new(&client, name).map_err(said)?;
    let sequencer = Sequencer::start(&node, "coins", parts, options).await.map_err(said)?;
    let mut warnings = sequencer.warnings();
    let log = tell.clone();
    tokio::spawn(async move {
        while let Some(warning) = warnings.next().await {
            log(format!("warning {warning}"));
        }
    });
    tokio::select! {
        worked = work(&sequencer, &config.options, &tell) => worked?,
        () = leave => {}
    }
    sequencer.close().await.map_err(said)?;
    client.close().await.map_err(|error| error.to_string())
}

/// Submits all intents; never returns but with an error. After a restart it begins again: what is there
/// already is taken as it is.
async fn work(sequencer: &Sequencer, options: &Options, tell: &impl Fn(String)) -> Result<(), String> {
    let mut ticks = interval(options.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut open: JoinSet<(String, Result<End, SequencerError>)> = JoinSet::new();
    let mut next = 0;
    let mut state = interval(STATUS);
    loop {
        tokio::select! {
            _ = state.tick() => {
                let status = sequencer.status().await.map_err(|error| error.to_string())?;
                tell(format!("status {status:?}"));
            }
            _ = ticks.tick(), if next < options.intents => {
                let name = format!("{next}");
                let taken = sequencer.submit(&name, "a coin").await.map_err(|error| error.to_string())?;
                tell(format!("submitted {name}"));
                open.spawn(ended(name, taken));
                next += 1;
            }
            Some(Ok((name, end))) = open.join_next() => match end.map_err(|error| error.to_string())? {
                End::Confirmed => tell(format!("confirmed {name}")),
                End::Failed(why) => tell(format!("failed {name} {why}")),
            },
        }
    }
}

async fn ended(name: String, intent: SubmittedIntent) -> (String, Result<End, SequencerError>) {
    (name, intent.ended().await)
}
