//! Figures of the token selector: `cargo bench -p geolock-recipes --features tokens-sqlite,tokens-postgres
//! --bench selector [-- FIGURE..]`; the figures are `home`, `hot`, `chain` and `wanted`.
//!
//! The replicas are clients of servers of `geolock dev`, all in one process. Each figure has its baseline
//! from the same run beside it.

mod baseline;
mod chain;
mod home;
mod hot;
#[path = "../../examples/sequencer/playground.rs"]
#[expect(dead_code, reason = "the example does more with it")]
mod playground;
#[path = "../../tests/support/postgres.rs"]
mod postgres;
mod wanted;

use std::time::Duration;

use geolock_client::{Client, DcId};
use geolock_recipes::selector::{
    Pool, Selection, SelectorOptions, Token, TokenId, TokenSelector, TokenSource, TxId,
};

use playground::{Playground, connect};
use postgres::PostgresServer;

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_asked = |figure: &str| asked.is_empty() || asked.iter().any(|it| it == figure);
    // It says so where there is none.
    let postgres = match is_asked("home") || is_asked("hot") {
        true => PostgresServer::start()?,
        false => None,
    };
    for wan in ["zero", "world"] {
        let folder = tempfile::tempdir()?;
        let playground = Playground::start(&folder.path().join("playground"), wan).await?;
        println!("{wan}");
        if let Some(postgres) = &postgres {
            if is_asked("home") && wan == "zero" {
                home::measure(&playground, postgres).await?;
            }
            if is_asked("hot") {
                hot::measure(&playground, postgres, wan).await?;
            }
        }
        if is_asked("chain") && wan == "world" {
            chain::measure(&playground, folder.path()).await?;
        }
        if is_asked("wanted") && wan == "world" {
            wanted::measure(&playground, folder.path()).await?;
        }
        playground.stop().await;
    }
    Ok(())
}

fn tx(id: String) -> TxId {
    TxId::new(id).expect("a short name")
}

fn token(id: String, amount: u64, home: Option<u8>) -> Token {
    let id = TokenId::new(id).expect("a short name");
    Token { id, amount, home: home.and_then(DcId::new) }
}

/// Returns a client in each datacenter.
async fn clients(playground: &Playground) -> Result<Vec<Client>, Failed> {
    let mut clients = Vec::new();
    for dc in 0..3 {
        clients.push(connect(playground.base, &playground.tls(), dc, "bench").await?);
    }
    Ok(clients)
}

/// A replica with the default options.
fn replica<S: TokenSource + Clone>(
    client: &Client,
    source: &S,
    space: &str,
) -> Result<TokenSelector<S>, Failed> {
    let mut options = SelectorOptions::default();
    options.space = space.to_owned();
    Ok(TokenSelector::new(client.clone(), source.clone(), options)?)
}

/// A pool of a figure.
fn pool(wallet: impl Into<String>) -> Pool {
    Pool::new(wallet, "EUR")
}

fn ids(picked: &Selection) -> Vec<TokenId> {
    picked.tokens().iter().map(|token| token.id.clone()).collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Returns the value below which that part of them is.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() as f64 * part) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}
