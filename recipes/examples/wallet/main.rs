//! Three replicas of a wallet service pay with the same tokens: `--help` says how.
//!
//! It starts `geolock dev` with simulated distances and the replicas, and prints a line each second. At the
//! end the balance is that of the beginning, or the exit code is 1.

mod database;
mod options;
#[path = "../sequencer/playground.rs"]
#[expect(dead_code, reason = "the example of the sequencer does more with it")]
mod playground;
mod replica;
mod report;

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use geolock_client::DcId;
use geolock_recipes::selector::{Pool, Token, TokenId};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};

use database::Wallets;
use options::{Options, USAGE};
use playground::Playground;
use replica::Replica;
use report::{Report, Told};

const DCS: u8 = 3;
const CURRENCY: &str = "EUR";
/// Each wallet begins with tokens of these amounts, as often in each datacenter.
const AMOUNTS: [u64; 4] = [50, 20, 10, 5];
const OF_EACH: u64 = 10;
/// A replica is killed every so many seconds, and started again so many later.
const KILL_EVERY: u64 = 4;
const START_AGAIN: u64 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let ran = async {
        let options = Options::parse(args)?;
        match options.replica {
            Some((dc, boot)) => be_a_replica(options, dc, boot).await.map(|()| true),
            None => play(options).await,
        }
    };
    match ran.await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("wallet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wallets() -> Vec<Pool> {
    ["alice", "bob", "carol"].map(|wallet| Pool::new(wallet, CURRENCY)).to_vec()
}

/// This process is one of the replicas: it leaves when its input ends.
async fn be_a_replica(options: Options, dc: u8, boot: u32) -> Result<(), String> {
    let place = options.place()?;
    let (data, base) = options.playground.ok_or("a replica needs a playground")?;
    let replica = Replica { dc, boot, payers: options.payers, base, tls: data.join("client"), place };
    let leave = async {
        let mut rest = Vec::new();
        // Nothing is ever written to it.
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    };
    replica.run(leave).await
}

async fn play(mut options: Options) -> Result<bool, String> {
    let folder = std::env::temp_dir().join(format!("geolock-wallet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if options.postgres.is_none() {
        options.sqlite = Some(folder.join("wallets.sqlite"));
    }
    let data = options.playground.clone().map_or(folder.join("playground"), |(data, _)| data);
    let playground = match &options.playground {
        Some((data, base)) => Playground::running(data, *base),
        None => Playground::start(&data, &options.wan).await?,
    };
    let played = run(&options, &data, &playground).await;
    playground.stop().await;
    // It is a temporary one.
    let _ = std::fs::remove_dir_all(&folder);
    played
}

/// Fills the wallets. Returns their balance.
async fn fill(wallets: &Wallets) -> Result<u64, String> {
    // Names that no earlier run has used: hash tables are seeded at random.
    let run = RandomState::new().hash_one(0_u8);
    for pool in crate::wallets() {
        for dc in 0..DCS {
            let token = |number: u64, amount: u64| Token {
                id: TokenId::new(format!("{pool}-{run:x}-{dc}-{amount}-{number}")).expect("a short name"),
                amount,
                home: DcId::new(dc),
            };
            let tokens: Vec<Token> = AMOUNTS
                .iter()
                .flat_map(|amount| (0..OF_EACH).map(move |number| token(number, *amount)))
                .collect();
            wallets.insert(&pool, &tokens).await.map_err(|error| error.to_string())?;
        }
    }
    wallets.balance(CURRENCY).await.map_err(|error| error.to_string())
}

/// A replica that runs.
struct Running {
    dc: u8,
    boot: u32,
    /// `None`: it was killed, and is started again in that second.
    child: Result<Child, u64>,
}

type Lines = mpsc::UnboundedSender<((u8, u32), Told)>;

fn start(
    options: &Options,
    data: &Path,
    base: u16,
    (dc, boot): (u8, u32),
    lines: &Lines,
) -> Result<Child, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.args(["--replica", &format!("{dc}/{boot}"), "--payers", &options.payers.to_string()]);
    command.arg("--data").arg(data).args(["--base-port", &base.to_string()]);
    match (&options.postgres, &options.sqlite) {
        (Some(url), _) => command.args(["--postgres", url]),
        (None, path) => command.arg("--sqlite").args(path),
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (output, lines) = (child.stdout.take().ok_or("its output is piped")?, lines.clone());
    tokio::spawn(async move {
        let mut output = BufReader::new(output).lines();
        while let Ok(Some(line)) = output.next_line().await {
            let is_heard = Told::parse(&line).is_none_or(|told| lines.send(((dc, boot), told)).is_ok());
            if !is_heard {
                return;
            }
        }
    });
    Ok(child)
}

async fn run(options: &Options, data: &Path, playground: &Playground) -> Result<bool, String> {
    let wallets = Wallets::open(&options.place()?).await.map_err(|error| error.to_string())?;
    let balance = fill(&wallets).await?;
    let (lines, mut said) = mpsc::unbounded_channel();
    let begin = |id| start(options, data, playground.base, id, &lines);
    let mut replicas = Vec::new();
    for dc in 0..DCS {
        replicas.push(Running { dc, boot: 0, child: Ok(begin((dc, 0))?) });
    }
    println!("the balance is {balance}");
    let (mut report, began, mut kills) = (Report::default(), Instant::now(), 0);
    let mut seconds = interval(Duration::from_secs(1));
    let mut has_changed = false;
    while began.elapsed() < options.time {
        tokio::select! {
            Some((replica, told)) = said.recv() => report.take(replica, told),
            _ = seconds.tick() => {
                let second = began.elapsed().as_secs();
                for replica in &mut replicas {
                    if matches!(replica.child, Err(at) if at <= second) {
                        replica.boot += 1;
                        replica.child = Ok(begin((replica.dc, replica.boot))?);
                    }
                }
                if options.kill && second > 0 && second % KILL_EVERY == 0 {
                    let victim = &mut replicas[kills % usize::from(DCS)];
                    if let Ok(child) = &mut victim.child {
                        child.kill().await.map_err(|error| error.to_string())?;
                        victim.child = Err(second + START_AGAIN);
                        println!("        the replica in dc{} is killed", victim.dc);
                    }
                    kills += 1;
                }
                let now = wallets.balance(CURRENCY).await.map_err(|error| error.to_string())?;
                has_changed |= now != balance;
                let run = replicas.iter().filter(|replica| replica.child.is_ok()).count();
                println!("{}", report.line(second, run, now));
            }
        }
    }
    for replica in replicas {
        let Ok(mut child) = replica.child else { continue };
        drop(child.stdin.take());
        let status = child.wait().await.map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("the replica in dc{} ended with {status}", replica.dc));
        }
    }
    drop(lines);
    while let Some((replica, told)) = said.recv().await {
        report.take(replica, told);
    }
    let (sum, after) = (report.sum(), wallets.balance(CURRENCY).await.map_err(|error| error.to_string())?);
    println!(
        "{} payments in {} s, {} in vain, {:.2} attempts per token; the balance is {after}",
        sum.payments,
        options.time.as_secs(),
        sum.in_vain,
        sum.attempts as f64 / sum.spent.max(1) as f64
    );
    Ok(!has_changed && after == balance && sum.payments > 0)
}
