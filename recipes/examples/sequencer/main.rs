//! Four nodes in three datacenters coordinate a contract in turn: `--help` says how.
//!
//! It starts `geolock dev` with simulated distances, runs the nodes, and prints what the ledger says about
//! them. At the end every intent is confirmed once, or the exit code is 1.

mod coins;
mod node;
mod options;
mod playground;
mod report;
mod running;
mod trouble;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use geolock_recipes::sequencer::Ledger as _;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use coins::MEMBERS;
use node::NodeConfig;
use options::{Options, USAGE};
use playground::Playground;
use report::Report;
use running::Scene;
use trouble::Trouble;

/// A run that has not ended by then has failed.
const TOO_LONG: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let ran = async {
        let options = Options::parse(args)?;
        match &options.node {
            Some(_) => be_a_node(options).await.map(|()| true),
            None => play(options).await,
        }
    };
    match ran.await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sequencer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// This process is one of the nodes: it leaves when its input ends.
async fn be_a_node(options: Options) -> Result<(), String> {
    let (data, base) = options.playground.clone().ok_or("a node needs a playground")?;
    let folder = options.folder.clone().ok_or("a node needs a folder")?;
    let name = options.node.clone().unwrap_or_default();
    let config = NodeConfig { name, folder, base, tls: data.join("client"), options };
    let leave = async {
        let mut rest = Vec::new();
        // Nothing is ever written to it.
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    };
    node::run(config, leave, |line| println!("{line}")).await
}

async fn play(options: Options) -> Result<bool, String> {
    let own = std::env::temp_dir().join(format!("geolock-sequencer-{}", std::process::id()));
    let folder = options.folder.clone().unwrap_or(own.clone());
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let data = options.playground.clone().map_or(folder.join("playground"), |(data, _)| data);
    let playground = match &options.playground {
        Some((data, base)) => Playground::running(data, *base),
        None => Playground::start(&data, &options.wan).await?,
    };
    let played = timeout(TOO_LONG, run(&options, &folder, &data, &playground)).await;
    playground.stop().await;
    if options.folder.is_none() {
        // It is a temporary one.
        let _ = std::fs::remove_dir_all(&own);
    }
    played.map_err(|_| "it took too long".to_owned())?
}

async fn run(options: &Options, folder: &Path, data: &Path, playground: &Playground) -> Result<bool, String> {
    let (lines, mut said) = mpsc::unbounded_channel();
    let config = |name: &str| NodeConfig {
        name: name.to_owned(),
        folder: folder.to_owned(),
        base: playground.base,
        tls: playground.tls(),
        options: options.clone(),
    };
    let ledger = node::ledger(&config(""))?;
    let scene = Scene { data, lines: &lines, playground };
    let mut nodes = Vec::new();
    for (name, _) in MEMBERS {
        nodes.push(scene.start(config(name))?);
    }
    let all = MEMBERS.len() * options.intents as usize;
    let (mut report, mut submitted, mut ended) = (Report::default(), BTreeSet::new(), BTreeSet::new());
    let mut trouble = Trouble::new(options);
    let began = Instant::now();
    let mut height = 0;
    while ended.len() < all {
        tokio::select! {
            line = said.recv() => {
                let Some((node, line)) = line else { break };
                match line.split_once(' ') {
                    Some(("submitted", name)) => drop(submitted.insert(format!("{node}/{name}"))),
                    Some(("confirmed", name)) => drop(ended.insert(format!("{node}/{name}"))),
                    Some(("status", _)) => {}
                    _ => println!("{node}: {line}"),
                }
            }
            blocks = ledger.blocks(height) => {
                let blocks = blocks.map_err(|error| error.to_string())?;
                height = blocks.last().map_or(height, |block| block.height);
                report.take(ledger.outcomes(report.height()).await.map_err(|error| error.to_string())?);
                report.tell(options.range, height);
                let is_middle = report.confirmed().len() * 3 > all;
                trouble.step(is_middle, &report, &mut nodes, &scene).await?;
            }
        }
    }
    let took = began.elapsed();
    report.take(ledger.outcomes(report.height()).await.map_err(|error| error.to_string())?);
    report.tell(options.range, u64::MAX / options.range * options.range);
    trouble.end(&mut nodes, &scene).await?;
    for node in nodes {
        node.leave().await?;
    }
    let (confirmed, duplicates) = (report.confirmed(), report.duplicates());
    println!(
        "submitted {}, confirmed {}, duplicates {duplicates}, in {:.1} s",
        submitted.len(),
        confirmed.len(),
        took.as_secs_f64()
    );
    report.tell_shares();
    Ok(submitted.len() == all && submitted == confirmed && ended == confirmed && duplicates == 0)
}
