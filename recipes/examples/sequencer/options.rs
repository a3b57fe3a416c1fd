//! The command line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::coins::MEMBERS;

pub const USAGE: &str = "\
Four members of a contract with coins, in three datacenters: a and d in dc0, b in dc1, c in dc2.

  --intents N        intents of each node (15)
  --every MS         time between two of them (600)
  --block MS         time between two blocks (500)
  --range BLOCKS     blocks with one coordinator (12)
  --wan DISTANCES    as for `geolock dev` (world)
  --processes        one process for each node
  --kill             kill -9 the node that coordinates, in the middle; it is started again after 4 s
  --partition        switch dc2 off, in the middle, for 8 s: node c is cut off
  --lag NODE=BLOCKS  that node sees the ledger so many blocks late; repeatable
  --solo MS          a coordinator that cannot have the lock goes on without it after that time (30 000)
  --data DIR --base-port PORT  use the playground that runs there, instead of one of its own
  --folder DIR       keep the databases there

The server is $GEOLOCK_BIN, or the binary geolock beside this one, or in the path.";

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub intents: u32,
    pub every: Duration,
    pub block: Duration,
    pub range: u64,
    pub wan: String,
    pub processes: bool,
    pub kill: bool,
    pub partition: bool,
    pub lags: BTreeMap<String, u64>,
    pub solo: Duration,
    pub playground: Option<(PathBuf, u16)>,
    pub folder: Option<PathBuf>,
    /// This process is that node.
    pub node: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            intents: 15,
            every: Duration::from_millis(600),
            block: Duration::from_millis(500),
            range: 12,
            wan: "world".to_owned(),
            processes: false,
            kill: false,
            partition: false,
            lags: BTreeMap::new(),
            solo: Duration::from_secs(30),
            playground: None,
            folder: None,
            node: None,
        }
    }
}

impl Options {
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        let (mut data, mut base) = (None, None);
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match &*arg {
                "--processes" => options.processes = true,
                "--kill" => (options.kill, options.processes) = (true, true),
                "--partition" => options.partition = true,
                "--intents" => options.intents = number(&value()?)?,
                "--every" => options.every = Duration::from_millis(number(&value()?)?),
                "--block" => options.block = Duration::from_millis(number(&value()?)?),
                "--solo" => options.solo = Duration::from_millis(number(&value()?)?),
                "--range" => options.range = number(&value()?)?,
                "--wan" => options.wan = value()?,
                "--data" => data = Some(PathBuf::from(value()?)),
                "--base-port" => base = Some(number(&value()?)?),
                "--folder" => options.folder = Some(value()?.into()),
                "--node" => {
                    let node = value()?;
                    is_member(&node)?;
                    options.node = Some(node);
                }
                "--lag" => {
                    let value = value()?;
                    let (node, blocks) = value.split_once('=').ok_or("--lag needs NODE=BLOCKS")?;
                    is_member(node)?;
                    options.lags.insert(node.to_owned(), number(blocks)?);
                }
                _ => return Err(format!("{arg} is not known\n\n{USAGE}")),
            }
        }
        for (name, is_zero) in [
            ("--range", options.range == 0),
            ("--every", options.every.is_zero()),
            ("--block", options.block.is_zero()),
        ] {
            if is_zero {
                return Err(format!("{name} is above 0"));
            }
        }
        options.playground = match (data, base) {
            (Some(data), Some(base)) => Some((data, base)),
            (None, None) => None,
            _ => return Err("--data and --base-port come together".to_owned()),
        };
        Ok(options)
    }

    /// Returns the command line of a process that is one of the nodes.
    pub fn of_node(&self, name: &str) -> Vec<String> {
        let millis = |time: Duration| time.as_millis().to_string();
        let mut args = vec!["--node".to_owned(), name.to_owned()];
        let mut push = |name: &str, value: String| args.extend([name.to_owned(), value]);
        push("--intents", self.intents.to_string());
        push("--every", millis(self.every));
        push("--block", millis(self.block));
        push("--solo", millis(self.solo));
        push("--range", self.range.to_string());
        self.lags.iter().for_each(|(node, blocks)| push("--lag", format!("{node}={blocks}")));
        args
    }
}

fn is_member(node: &str) -> Result<(), String> {
    let is_it = MEMBERS.iter().any(|(name, _)| *name == node);
    is_it.then_some(()).ok_or_else(|| format!("{node:?} is none of the nodes"))
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is no number that fits"))
}
