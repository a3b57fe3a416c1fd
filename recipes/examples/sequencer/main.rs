//! Four nodes in three datacenters coordinate a contract in turn: `--help` says how.
//!
//! It starts `geolock dev` with simulated distances, runs the nodes, and prints what the ledger says about
//! them. At the end every intent is confirmed once, or the exit code is 1.

mod coins;
mod node;
mod options;
mod playground;
mod report;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use geolock_recipes::sequencer::Ledger as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use coins::MEMBERS;
use node::NodeConfig;
use options::{Options, USAGE};
use playground::Playground;
use report::Report;

/// A run that has not ended by then has failed.
const TOO_LONG: Duration = Duration::from_secs(300);
/// A node that was killed is started again after this.
const DOWN: Duration = Duration::from_secs(4);
/// A datacenter that was switched off is switched on again after this.
const OFF: Duration = Duration::from_secs(8);

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

/// A node that runs.
struct Running {
    config: NodeConfig,
    is: Is,
}

enum Is {
    Process(Child, Option<ChildStdin>),
    Task(JoinHandle<Result<(), String>>, Option<oneshot::Sender<()>>),
}

type Lines = mpsc::UnboundedSender<(String, String)>;

fn start(config: NodeConfig, data: &Path, lines: &Lines) -> Result<Running, String> {
    let (name, lines) = (config.name.clone(), lines.clone());
    if !config.options.processes {
        let (leave, left) = oneshot::channel();
        // The receiver is there as long as the run.
        let tell = move |line| drop(lines.send((name.clone(), line)));
        let left = async {
            let _ = left.await;
        };
        let task = tokio::spawn(node::run(config.clone(), left, tell));
        return Ok(Running { config, is: Is::Task(task, Some(leave)) });
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.args(config.options.of_node(&name));
    command.arg("--data").arg(data).args(["--base-port", &config.base.to_string()]);
    command.arg("--folder").arg(&config.folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("its output is piped")?);
    tokio::spawn(async move {
        let mut output = BufReader::new(output).lines();
        while let Ok(Some(line)) = output.next_line().await {
            if lines.send((name.clone(), line)).is_err() {
                return;
            }
        }
    });
    Ok(Running { config, is: Is::Process(child, input) })
}

impl Running {
    /// Kills it as by `kill -9`.
    async fn kill(&mut self) {
        match &mut self.is {
            // It has ended, then.
            Is::Process(child, _) => drop(child.kill().await),
            Is::Task(task, _) => task.abort(),
        }
    }

    /// Lets it leave.
    async fn leave(self) -> Result<(), String> {
        match self.is {
            Is::Process(mut child, input) => {
                drop(input);
                let status = child.wait().await.map_err(|error| error.to_string())?;
                status.success().then_some(()).ok_or_else(|| format!("{}: {status}", self.config.name))
            }
            Is::Task(task, leave) => {
                drop(leave);
                task.await.map_err(|error| error.to_string())?
            }
        }
    }
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
    let mut nodes = Vec::new();
    for (name, _) in MEMBERS {
        nodes.push(start(config(name), data, &lines)?);
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
                    _ => println!("{node}: {line}"),
                }
            }
            blocks = ledger.blocks(height) => {
                let blocks = blocks.map_err(|error| error.to_string())?;
                height = blocks.last().map_or(height, |block| block.height);
                report.take(ledger.outcomes(report.height()).await.map_err(|error| error.to_string())?);
                report.tell(options.range, height);
                let is_middle = report.confirmed().len() * 3 > all;
                trouble.step(is_middle, &report, &mut nodes, data, &lines, playground).await?;
            }
        }
    }
    let took = began.elapsed();
    report.take(ledger.outcomes(report.height()).await.map_err(|error| error.to_string())?);
    report.tell(options.range, u64::MAX / options.range * options.range);
    trouble.end(&mut nodes, data, &lines, playground).await?;
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

/// The trouble in the middle of a run.
struct Trouble {
    kill: Stage,
    partition: Stage,
}

enum Stage {
    Never,
    Waits,
    /// The node that was killed, or nothing.
    Since(Instant, usize),
    Over,
}

impl Trouble {
    fn new(options: &Options) -> Trouble {
        let stage = |is_wanted: bool| if is_wanted { Stage::Waits } else { Stage::Never };
        Trouble { kill: stage(options.kill), partition: stage(options.partition) }
    }

    /// Called with each block.
    async fn step(
        &mut self,
        is_middle: bool,
        report: &Report,
        nodes: &mut [Running],
        data: &Path,
        lines: &Lines,
        playground: &Playground,
    ) -> Result<(), String> {
        match self.kill {
            Stage::Waits if is_middle => {
                let coordinator = report.coordinator().unwrap_or_default();
                let place = nodes.iter().position(|node| node.config.name == coordinator).unwrap_or(0);
                nodes[place].kill().await;
                println!("killed {}, which coordinated", nodes[place].config.name);
                self.kill = Stage::Since(Instant::now(), place);
            }
            Stage::Since(at, place) if at.elapsed() >= DOWN => {
                nodes[place] = start(nodes[place].config.clone(), data, lines)?;
                println!("started {} again", nodes[place].config.name);
                self.kill = Stage::Over;
            }
            _ => {}
        }
        match self.partition {
            Stage::Waits if is_middle => {
                playground.switch(2, false).await?;
                println!("dc2 is off: c is cut off");
                self.partition = Stage::Since(Instant::now(), 0);
            }
            Stage::Since(at, _) if at.elapsed() >= OFF => {
                playground.switch(2, true).await?;
                println!("dc2 is on again");
                self.partition = Stage::Over;
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends what is still on its way.
    async fn end(
        &mut self,
        nodes: &mut [Running],
        data: &Path,
        lines: &Lines,
        playground: &Playground,
    ) -> Result<(), String> {
        if let Stage::Since(_, place) = self.kill {
            nodes[place] = start(nodes[place].config.clone(), data, lines)?;
        }
        if let Stage::Since(at, _) = self.partition {
            sleep(OFF.saturating_sub(at.elapsed())).await;
            playground.switch(2, true).await?;
        }
        Ok(())
    }
}
