//! One caller selects tokens at home, from pools of different sizes.

use std::time::Duration;

use geolock_client::Client;
use geolock_recipes::selector::{Pool, PostgresSource, SelectorOptions, Token, TokenSelector};
use tokio::time::Instant;

use crate::baseline::Baseline;
use crate::playground::{Playground, connect};
use crate::postgres::PostgresServer;
use crate::{Failed, median, millis, pool, quantile, token, tx};

/// Tokens in the pool, and selections of the baseline, which lists all of them each time.
const SIZES: [(usize, usize); 3] = [(100, 300), (10_000, 60), (100_000, 20)];
const WARM_UP: usize = 100;
const SELECTIONS: usize = 2_000;
/// Tokens of one statement.
const AT_ONCE: usize = 10_000;

pub async fn measure(playground: &Playground, postgres: &PostgresServer) -> Result<(), Failed> {
    let url = postgres.database("home").await?;
    let source = PostgresSource::open(&url).await?;
    let baseline = Baseline::open(&url, 1).await?;
    let client = connect(playground.base, &playground.tls(), 0, "home").await?;
    let SelectorOptions { max_examined, freshness, soft_after, .. } = SelectorOptions::default();
    println!(
        "  select of one of equal tokens at home, one caller, then release; at most {max_examined} tokens are examined, \
         and listed again after {} ms or {soft_after} selections",
        freshness.as_millis()
    );
    for (size, selections) in SIZES {
        let pool = pool(format!("of-{size}"));
        let tokens: Vec<Token> = (0..size).map(|it| token(format!("{size}-{it:06}"), 1, Some(0))).collect();
        for some in tokens.chunks(AT_ONCE) {
            source.insert(&pool, some, "the beginning").await?;
        }
        let run = Run { client: &client, source: &source, pool: &pool, size };
        let by_default = run.selector("default", SelectorOptions::default()).await?;
        let mut seldom = SelectorOptions::default();
        seldom.soft_after = u32::MAX;
        let seldom = run.selector("seldom", seldom).await?;
        let took = of_baseline(&baseline, &pool, selections).await?;
        println!(
            "  {size:6} tokens: {by_default}; listed again by time only: {seldom}; a row for each lock: {}",
            shown(&took)
        );
    }
    Ok(())
}

struct Run<'a> {
    client: &'a Client,
    source: &'a PostgresSource,
    pool: &'a Pool,
    size: usize,
}

impl Run<'_> {
    async fn selector(&self, name: &str, mut options: SelectorOptions) -> Result<String, Failed> {
        options.space = name.to_owned();
        let selector = TokenSelector::new(self.client.clone(), self.source.clone(), options)?;
        let mut took = Vec::new();
        let mut before = selector.stats();
        for number in 0..WARM_UP + SELECTIONS {
            if number == WARM_UP {
                before = selector.stats();
            }
            let tx = tx(format!("{}-{number}", self.size));
            let began = Instant::now();
            let picked = selector.select(&tx, self.pool, 1).await?;
            let selected = began.elapsed();
            if number >= WARM_UP {
                took.push(millis(selected));
            }
            selector.release(picked.tx()).await?;
        }
        let queries = selector.stats().queries - before.queries;
        Ok(format!("{} with {queries} queries in {SELECTIONS}", shown(&took)))
    }
}

async fn of_baseline(baseline: &Baseline, pool: &Pool, selections: usize) -> Result<Vec<f64>, Failed> {
    let mut took = Vec::new();
    for number in 0..selections + selections / 10 {
        let tx = format!("baseline-{number}");
        let began = Instant::now();
        baseline.select(&tx, pool, 1).await?;
        let selected: Duration = began.elapsed();
        if number >= selections / 10 {
            took.push(millis(selected));
        }
        baseline.release(&tx).await?;
    }
    Ok(took)
}

fn shown(took: &[f64]) -> String {
    format!("p50 {:.2} ms, p99 {:.1} ms", median(took), quantile(took, 0.99))
}
