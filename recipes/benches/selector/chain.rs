//! Payments in one datacenter, each with the change of the one before.

use std::path::Path;

use geolock_client::Client;
use geolock_recipes::selector::{Pool, SqliteSource, TokenSelector};
use tokio::time::Instant;

use crate::playground::Playground;
use crate::{Failed, clients, ids, median, millis, pool, replica, token, tx};

/// The amount of the one token, and payments of 1.
const AMOUNT: u64 = 100;
/// Of the baseline: each takes a round trip to the farthest datacenter.
const OF_BASELINE: u64 = 30;
/// Counters of a server, and gauges.
const COUNTS: [&str; 4] =
    ["grants_total", "grants_local_total", "part_transfers_sent_total", "entries_made_total"];
const STEPS: [&str; 4] = ["select", "reserve", "apply", "spent"];

pub async fn measure(playground: &Playground, folder: &Path) -> Result<(), Failed> {
    let source = SqliteSource::open(folder.join("chain.sqlite")).await?;
    let clients = clients(playground).await?;
    println!(
        "  payments of 1 from a token of {AMOUNT}, each from the change of the one before, in dc0, with SQLite"
    );
    let chain = Chain { clients: &clients, source: &source };
    chain.measure("tokens at home", Some(0), AMOUNT).await?;
    chain.measure("without a home", None, OF_BASELINE).await?;
    Ok(())
}

struct Chain<'a> {
    clients: &'a [Client],
    source: &'a SqliteSource,
}

impl Chain<'_> {
    async fn measure(&self, name: &str, home: Option<u8>, payments: u64) -> Result<(), Failed> {
        let pool = pool(name.replace(' ', "-"));
        self.source.insert(&pool, &[token(format!("{pool}"), AMOUNT, home)], "the beginning").await?;
        let selector = replica(&self.clients[0], self.source, &pool.wallet)?;
        let before = self.counts().await?;
        let (mut steps, mut sums) = ([const { Vec::new() }; 4], Vec::new());
        for number in 0..payments {
            let took = self.pay(&selector, &pool, number, home).await?;
            sums.push(took.iter().sum::<f64>());
            steps.iter_mut().zip(took).for_each(|(step, took)| step.push(took));
        }
        let after = self.counts().await?;
        let [grants, local, parts, entries] = std::array::from_fn(|at| after[at] - before[at]);
        let each: Vec<String> =
            STEPS.iter().zip(&steps).map(|(step, took)| format!("{step} {:.2}", median(took))).collect();
        println!(
            "    {name}: p50 {:.2} ms of {payments} payments ({}); of {grants} grants {} asked another datacenter, {parts} \
             parts moved, {entries} log entries",
            median(&sums),
            each.join(", "),
            grants - local
        );
        Ok(())
    }

    /// Returns the time of each step in ms.
    async fn pay(
        &self,
        selector: &TokenSelector<SqliteSource>,
        pool: &Pool,
        number: u64,
        home: Option<u8>,
    ) -> Result<[f64; 4], Failed> {
        let tx = tx(format!("{}-{number}", pool.wallet));
        let began = Instant::now();
        let picked = selector.select(&tx, pool, 1).await?;
        let selected = Instant::now();
        selector.reserve(&tx).await?;
        let reserved = Instant::now();
        let change = (picked.change() > 0).then(|| token(format!("{tx}-change"), picked.change(), home));
        let outputs: Vec<_> = change.iter().map(|token| (pool.clone(), token.clone())).collect();
        self.source.apply(tx.as_str(), pool, &ids(&picked), picked.fence().0, &outputs).await?;
        let applied = Instant::now();
        selector.spent(&tx, change.as_slice()).await?;
        let ends = [began, selected, reserved, applied, Instant::now()];
        Ok(std::array::from_fn(|step| millis(ends[step + 1] - ends[step])))
    }

    /// Returns [`COUNTS`] of all datacenters together.
    async fn counts(&self) -> Result<[u64; COUNTS.len()], Failed> {
        let mut sums = [0; COUNTS.len()];
        for client in self.clients {
            let counts = client.status().await?.counts;
            for (sum, name) in sums.iter_mut().zip(COUNTS) {
                *sum += counts.get(name).ok_or_else(|| format!("the server has no counter {name}"))?;
            }
        }
        Ok(sums)
    }
}
