//! One token that payments in three datacenters want.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use geolock_client::{Client, DcId};
use geolock_recipes::selector::{Pool, Selection, SqliteSource, Token, TokenSelector, TxId};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::playground::Playground;
use crate::{Failed, clients, ids, median, millis, pool, quantile, replica, token, tx};

/// Turns, each in another datacenter than the one before.
const TURNS: usize = 45;
/// How long each has the token: the requests of the others have arrived everywhere.
const HOLD: Duration = Duration::from_millis(250);

pub async fn measure(playground: &Playground, folder: &Path) -> Result<(), Failed> {
    let source = SqliteSource::open(folder.join("wanted.sqlite")).await?;
    let clients = clients(playground).await?;
    let one_way = one_way(&clients).await?;
    for ((from, to), delay) in one_way.iter().filter(|((from, to), _)| from < to) {
        println!("  half a round trip of the link, dc{from} to dc{to}: {delay:.1} ms");
    }
    println!("  one token wanted in three datacenters, each has it for {} ms", HOLD.as_millis());
    for end in [End::Release, End::Spent, End::SpentThere] {
        let took = turns(&clients, &source, end).await?;
        let delays: Vec<f64> = took.iter().map(|(from, to, took)| took / one_way[&(*from, *to)]).collect();
        let over: Vec<f64> = took.iter().map(|(from, to, took)| took - one_way[&(*from, *to)]).collect();
        println!(
            "    from {} to the next selection: p50 {:.2} one-way delays, p90 {:.2} ({} turns, p50 {:.1} ms \
             more than the delay)",
            end.name(),
            median(&delays),
            quantile(&delays, 0.9),
            took.len(),
            median(&over)
        );
    }
    Ok(())
}

/// The end of a turn.
#[derive(Clone, Copy)]
enum End {
    Release,
    /// With change of the same amount, homed where it is made.
    Spent,
    /// With change of the same amount, homed where the selector says.
    SpentThere,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Release => "`release`",
            End::Spent => "`spent`, change at home",
            End::SpentThere => "`spent`, change at `home_for_change`",
        }
    }
}

/// Returns half of the round trip of each link, in ms, by its ends.
async fn one_way(clients: &[Client]) -> Result<BTreeMap<(u8, u8), f64>, Failed> {
    let mut delays = BTreeMap::new();
    for (from, client) in (0..).zip(clients) {
        for peer in client.status().await?.peers {
            delays.insert((from, u8::try_from(peer.dc)?), peer.rtt_us as f64 / 2_000.0);
        }
    }
    Ok(delays)
}

/// Both datacenters, and the time from the end of the one's turn to the selection of the other, in ms.
type Turn = (u8, u8, f64);

#[derive(Default)]
struct Turns {
    /// Where and when the latest turn ended.
    ended: Option<(u8, Instant)>,
    all: Vec<Turn>,
}

async fn turns(clients: &[Client], source: &SqliteSource, end: End) -> Result<Vec<Turn>, Failed> {
    let pool = pool(end.name());
    source.insert(&pool, &[token(format!("{}, first", end.name()), 1, Some(0))], "the beginning").await?;
    let (turns, mut payers) = (watch::Sender::new(Turns::default()), JoinSet::new());
    for (dc, client) in (0..).zip(clients) {
        let selector = replica(client, source, end.name())?;
        let payer =
            Payer { dc, selector, source: source.clone(), pool: pool.clone(), turns: turns.clone(), end };
        payers.spawn(payer.take_turns());
    }
    let mut seen = turns.subscribe();
    tokio::select! {
        turns = seen.wait_for(|turns| turns.all.len() >= TURNS) => Ok(turns?.all.clone()),
        Some(ended) = payers.join_next() => Err(ended?.err().unwrap_or("a payer has ended".into())),
    }
}

struct Payer {
    dc: u8,
    selector: TokenSelector<SqliteSource>,
    source: SqliteSource,
    pool: Pool,
    turns: watch::Sender<Turns>,
    end: End,
}

impl Payer {
    async fn take_turns(self) -> Result<(), Failed> {
        for turn in 0.. {
            let tx = tx(format!("{}-{turn}", self.dc));
            let picked = self.selector.select(&tx, &self.pool, 1).await?;
            self.turns.send_modify(|turns| {
                if let Some((from, ended)) = turns.ended.take() {
                    turns.all.push((from, self.dc, millis(ended.elapsed())));
                }
            });
            sleep(HOLD).await;
            let change = match self.end {
                End::Release => None,
                End::Spent => Some(self.apply(&tx, &picked, DcId::new(self.dc)).await?),
                End::SpentThere => {
                    let home = self.selector.home_for_change(&picked).await;
                    Some(self.apply(&tx, &picked, home).await?)
                }
            };
            let mut turns = self.turns.subscribe();
            self.turns.send_modify(|turns| turns.ended = Some((self.dc, Instant::now())));
            match &change {
                None => self.selector.release(&tx).await?,
                Some(change) => self.selector.spent(&tx, std::slice::from_ref(change)).await?,
            }
            // Another datacenter has it next.
            turns.wait_for(|turns| turns.ended.is_none()).await?;
        }
        Ok(())
    }

    /// Applies a payment that only makes change.
    async fn apply(&self, tx: &TxId, picked: &Selection, home: Option<DcId>) -> Result<Token, Failed> {
        self.selector.reserve(tx).await?;
        let change =
            Token { home, ..token(format!("{}, change of {tx}", self.end.name()), 1, Some(self.dc)) };
        let (fence, outputs) = (picked.fence().0, [(self.pool.clone(), change.clone())]);
        self.source
            .apply(format!("{}, {tx}", self.end.name()), &self.pool, &ids(picked), fence, &outputs)
            .await?;
        Ok(change)
    }
}
