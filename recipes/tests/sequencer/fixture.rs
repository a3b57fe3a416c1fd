//! Servers, and nodes in processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use geolock_recipes::sequencer::Ledger as _;
use geolock_recipes::sequencer::sqlite::{SimLedger, SimOutcome};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use crate::coins::MEMBERS;
use crate::node::{self, NodeConfig};
use crate::options::Options;
use crate::playground::Playground;

/// The end of everything that a test waits for.
const HANGS: Duration = Duration::from_secs(120);
/// Marks the lines of a node in the output of the test harness.
const MARK: &str = "node> ";
/// The settings of a node that is a process.
const SETTINGS: &str = "SEQUENCER_TEST_NODE";

/// Waits for a future that has to end.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(HANGS, future).await.expect("it ends")
}

/// Returns options for nodes of one machine.
pub fn quick(intents: u32) -> Options {
    let millis = Duration::from_millis;
    Options { intents, every: millis(100), block: millis(100), range: 40, ..Options::default() }
}

/// Three datacenters, a ledger, and nodes of a contract.
pub struct Contract {
    pub playground: Playground,
    pub folder: TempDir,
    pub options: Options,
    pub ledger: SimLedger,
    pub nodes: BTreeMap<&'static str, NodeProcess>,
    said: mpsc::UnboundedReceiver<(&'static str, String)>,
    says: mpsc::UnboundedSender<(&'static str, String)>,
    pub submitted: BTreeSet<String>,
    pub ended: BTreeSet<String>,
    pub outcomes: Vec<SimOutcome>,
    height: u64,
    statuses: BTreeMap<&'static str, String>,
    /// The end of everything that the test waits for.
    until: Instant,
}

/// A node that runs. Killed when dropped.
pub struct NodeProcess {
    child: Child,
    input: Option<ChildStdin>,
}

impl Contract {
    /// Starts servers, and no node.
    pub async fn prepare(options: Options) -> Contract {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let playground = Playground::start(&folder.path().join("playground"), "zero").await;
        let playground = playground.expect("the servers start");
        let ledger = node::ledger(&config(&folder, &playground, &options, "")).expect("it can be made");
        let (says, said) = mpsc::unbounded_channel();
        Contract {
            playground,
            folder,
            options,
            ledger,
            nodes: BTreeMap::new(),
            said,
            says,
            submitted: BTreeSet::new(),
            ended: BTreeSet::new(),
            outcomes: Vec::new(),
            height: 0,
            statuses: BTreeMap::new(),
            until: Instant::now() + HANGS,
        }
    }

    /// Starts servers and all nodes.
    pub async fn start(options: Options) -> Contract {
        let mut contract = Contract::prepare(options).await;
        MEMBERS.iter().for_each(|(name, _)| contract.start_node(name));
        contract
    }

    /// Starts a node: a process that runs the test `a_node` of this binary.
    pub fn start_node(&mut self, name: &'static str) {
        let own = std::env::current_exe().expect("the test runs");
        let mut command = Command::new(own);
        command.args(["--exact", "fixture::a_node", "--nocapture", "--quiet"]);
        let base = self.playground.base.to_string();
        let settings = [name, self.folder.path().to_str().expect("it is text"), &base];
        command.env(SETTINGS, settings.join("\n"));
        let options = self.options.of_node(name);
        command.env(format!("{SETTINGS}_OPTIONS"), options.join("\n"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the test can run itself");
        let output = child.stdout.take().expect("it is piped");
        let says = self.says.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, line)) = line.split_once(MARK) {
                    // The test may have ended.
                    let _ = says.send((name, line.to_owned()));
                }
            }
        });
        let input = child.stdin.take();
        self.nodes.insert(name, NodeProcess { child, input });
    }

    /// Kills a node as by `kill -9`.
    pub async fn kill(&mut self, name: &str) {
        let mut node = self.nodes.remove(name).expect("it runs");
        node.child.kill().await.expect("it runs");
    }

    /// Waits until a node says something, or for a block.
    pub async fn step(&mut self) {
        let step = async {
            tokio::select! {
                Some((node, line)) = self.said.recv() => match line.split_once(' ') {
                    Some(("submitted", name)) => drop(self.submitted.insert(format!("{node}/{name}"))),
                    Some(("confirmed", name)) => drop(self.ended.insert(format!("{node}/{name}"))),
                    Some(("status", status)) => drop(self.statuses.insert(node, status.to_owned())),
                    _ => eprintln!("{node}: {line}"),
                },
                blocks = self.ledger.blocks(self.height) => {
                    let blocks = blocks.expect("it is readable");
                    let last = self.outcomes.last().map_or(0, |outcome| outcome.height);
                    self.height = blocks.last().expect("it waits for a block").height;
                    self.outcomes.extend(self.ledger.outcomes(last).await.expect("it is readable"));
                }
            }
        };
        if timeout_at(self.until, step).await.is_err() {
            let open: Vec<&String> = self.submitted.difference(&self.ended).collect();
            panic!("it does not end; open: {open:?}, {:#?}", self.statuses);
        }
    }

    /// Waits until so many intents are confirmed on the ledger.
    pub async fn confirmed(&mut self, count: usize) {
        while self.confirmed_now().len() < count {
            self.step().await;
        }
    }

    pub fn confirmed_now(&self) -> Vec<String> {
        let confirmed = self.outcomes.iter().filter(|outcome| outcome.result.is_ok());
        confirmed.map(|outcome| format!("{:?}", outcome.intent)).collect()
    }

    /// Returns the node that dispatched last.
    pub fn coordinator(&self) -> &'static str {
        let last = self.outcomes.iter().max_by_key(|outcome| outcome.submitted_ms).expect("there is one");
        let is_it = |(name, _): &&(&str, u8)| *name == last.signer.as_str();
        MEMBERS.iter().find(is_it).expect("it is a member").0
    }

    /// Waits for the end of all intents, and checks that each is confirmed once.
    pub async fn all_are_confirmed_once(&mut self) {
        let all = MEMBERS.len() * self.options.intents as usize;
        while self.ended.len() < all || self.confirmed_now().len() < all {
            self.step().await;
        }
        let confirmed = self.confirmed_now();
        let distinct: BTreeSet<String> = confirmed.iter().cloned().collect();
        assert_eq!(confirmed.len(), distinct.len(), "none twice: {confirmed:?}");
        assert_eq!(distinct, self.submitted);
        assert_eq!(distinct, self.ended);
    }

    /// Lets all nodes leave.
    pub async fn leave(&mut self) {
        for (name, mut node) in std::mem::take(&mut self.nodes) {
            drop(node.input.take());
            let status = within(node.child.wait()).await.expect("it can be waited for");
            assert!(status.success(), "{name}: {status}");
        }
    }
}

fn config(folder: &TempDir, playground: &Playground, options: &Options, name: &str) -> NodeConfig {
    NodeConfig {
        name: name.to_owned(),
        folder: folder.path().to_owned(),
        base: playground.base,
        tls: playground.tls(),
        options: options.clone(),
    }
}

/// Not a test: the process of a node, if the environment says so. It leaves when its input ends.
#[test]
fn a_node() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    let settings: Vec<&str> = settings.lines().collect();
    let [name, folder, base] = settings[..] else { panic!("{settings:?}") };
    let options = std::env::var(format!("{SETTINGS}_OPTIONS")).expect("it has options");
    let options = Options::parse(options.lines().map(str::to_owned)).expect("they are of this test");
    let (folder, base) = (PathBuf::from(folder), base.parse().expect("it is a port"));
    let tls = Path::new(&folder).join("playground/client");
    let config = NodeConfig { name: name.to_owned(), folder, base, tls, options };
    let runtime = tokio::runtime::Runtime::new().expect("there are threads");
    let leave = async {
        let mut rest = Vec::new();
        // Nothing is ever written to it.
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    };
    let ran = runtime.block_on(node::run(config, leave, |line| println!("{MARK}{line}")));
    // A thread that waits for input would keep the runtime.
    runtime.shutdown_background();
    ran.expect("it runs until it is told to leave");
}
