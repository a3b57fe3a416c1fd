//! Payers in three datacenters want the same tokens, until all are spent.

use std::sync::Arc;
use std::time::Duration;

use geolock_recipes::selector::{ApplyError, Pool, PostgresSource, SelectError, Stats, Token, TokenSelector};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::baseline::{Baseline, BaselineError};
use crate::playground::Playground;
use crate::postgres::PostgresServer;
use crate::{Failed, clients, ids, pool, replica, token, tx};

const TOKENS: usize = 300;
/// In each datacenter.
const PAYERS: usize = 25;
/// How long a payment has its token before it is applied.
const PAYING: Duration = Duration::from_millis(20);
/// The number of datacenters in which tokens are homed.
const HOMES: [(&str, usize); 2] = [("homes-in-turn", 3), ("all-homed-in-dc0", 1)];

pub async fn measure(playground: &Playground, postgres: &PostgresServer, wan: &str) -> Result<(), Failed> {
    let url = postgres.database(&format!("hot-{wan}")).await?;
    let source = PostgresSource::open(&url).await?;
    println!(
        "  {TOKENS} equal tokens, {PAYERS} payers in each of three datacenters, {} ms for each payment",
        PAYING.as_millis()
    );
    for (name, homes) in HOMES {
        let pool = fill(&source, name, homes).await?;
        let began = Instant::now();
        let stats = of_selector(playground, &source, &pool).await?;
        let attempts = stats.locks_granted + stats.refused;
        println!(
            "    selector, {name}: {:.3} attempts for each token ({} locks granted, {} given back; of {} requests {} \
             refused, {} withdrawn; {} queries) in {:.1} s",
            attempts as f64 / stats.spent as f64,
            stats.locks_granted,
            stats.given_back,
            stats.requests,
            stats.refused,
            // They waited when the last token was spent.
            stats.requests - stats.granted - stats.refused,
            stats.queries,
            began.elapsed().as_secs_f64()
        );
    }
    let pool = fill(&source, "baseline", 1).await?;
    let began = Instant::now();
    let [attempts, spent_before, in_vain] = of_baseline(&url, &source, &pool).await?;
    println!(
        "    a row for each lock, no distances: {:.2} attempts for each token ({attempts}; {spent_before} payments with \
         spent tokens, {in_vain} selections in vain) in {:.1} s",
        attempts as f64 / TOKENS as f64,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn fill(source: &PostgresSource, wallet: &str, homes: usize) -> Result<Pool, Failed> {
    let pool = pool(wallet);
    let equal = |number| token(format!("{wallet}-{number}"), 1, u8::try_from(number % homes).ok());
    let tokens: Vec<Token> = (0..TOKENS).map(equal).collect();
    source.insert(&pool, &tokens, "the beginning").await?;
    Ok(pool)
}

/// Returns the counters of all replicas together.
async fn of_selector(playground: &Playground, source: &PostgresSource, pool: &Pool) -> Result<Stats, Failed> {
    let clients = clients(playground).await?;
    let replicas = clients.iter().map(|client| replica(client, source, &pool.wallet));
    let replicas = replicas.collect::<Result<Vec<_>, _>>()?;
    let mut payers = JoinSet::new();
    for (dc, selector) in replicas.iter().enumerate() {
        for payer in 0..PAYERS {
            let (selector, source, pool) = (selector.clone(), source.clone(), pool.clone());
            payers.spawn(async move {
                for number in 0.. {
                    let tx = tx(format!("{dc}-{payer}-{number}"));
                    let picked = match selector.select(&tx, &pool, 1).await {
                        Ok(picked) => picked,
                        Err(SelectError::Insufficient { .. }) => break,
                        Err(error) => return Err(error.into()),
                    };
                    selector.reserve(&tx).await?;
                    sleep(PAYING).await;
                    source.apply(tx.as_str(), &pool, &ids(&picked), picked.fence().0, &[]).await?;
                    selector.spent(&tx, &[]).await?;
                }
                Ok::<(), Failed>(())
            });
        }
    }
    while let Some(paid) = payers.join_next().await {
        paid??;
    }
    let mut sum = Stats::default();
    for stats in replicas.iter().map(TokenSelector::stats) {
        sum.requests += stats.requests;
        sum.granted += stats.granted;
        sum.locks_granted += stats.locks_granted;
        sum.given_back += stats.given_back;
        sum.refused += stats.refused;
        sum.spent += stats.spent;
        sum.queries += stats.queries;
    }
    Ok(sum)
}

/// Returns the attempts, the payments whose token was spent before, and the selections in vain.
async fn of_baseline(url: &str, source: &PostgresSource, pool: &Pool) -> Result<[u64; 3], Failed> {
    let mut replicas = Vec::new();
    for seed in 0..3 {
        replicas.push(Arc::new(Baseline::open(url, seed).await?));
    }
    let mut payers = JoinSet::new();
    for (dc, baseline) in replicas.iter().enumerate() {
        for payer in 0..PAYERS {
            let (baseline, source, pool) = (Arc::clone(baseline), source.clone(), pool.clone());
            payers.spawn(async move {
                let [mut spent_before, mut in_vain] = [0, 0];
                for number in 0.. {
                    let tx = format!("baseline-{dc}-{payer}-{number}");
                    let picked = match baseline.select(&tx, &pool, 1).await {
                        Ok(picked) => picked,
                        Err(BaselineError::Insufficient { .. }) => break,
                        Err(BaselineError::Locked) => {
                            in_vain += 1;
                            continue;
                        }
                        Err(error) => return Err(error.into()),
                    };
                    sleep(PAYING).await;
                    let inputs: Vec<_> = picked.into_iter().map(|token| token.id).collect();
                    match source.apply(&tx, &pool, &inputs, 1, &[]).await {
                        Ok(()) => {}
                        Err(ApplyError::Spent { .. }) => spent_before += 1,
                        Err(error) => return Err(error.into()),
                    }
                    baseline.release(&tx).await?;
                }
                Ok::<_, Failed>([spent_before, in_vain])
            });
        }
    }
    let [mut spent_before, mut in_vain] = [0, 0];
    while let Some(paid) = payers.join_next().await {
        let [one, other] = paid??;
        (spent_before, in_vain) = (spent_before + one, in_vain + other);
    }
    Ok([replicas.iter().map(|it| it.attempts()).sum(), spent_before, in_vain])
}
