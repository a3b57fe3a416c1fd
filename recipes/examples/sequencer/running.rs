//! The nodes of a run: tasks of this process, or processes of their own.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::node::{self, NodeConfig};
use super::playground::Playground;

/// A node that runs.
pub struct Running {
    pub config: NodeConfig,
    is: Is,
}

enum Is {
    Process(Box<Child>, Option<ChildStdin>),
    Task(JoinHandle<Result<(), String>>, Option<oneshot::Sender<()>>),
}

/// The lines that nodes say, each with its node.
pub type Lines = mpsc::UnboundedSender<(String, String)>;

/// The servers, and the place for what the nodes say.
pub struct Scene<'a> {
    pub data: &'a Path,
    pub lines: &'a Lines,
    pub playground: &'a Playground,
}

impl Scene<'_> {
    /// Starts a node: a task, or a process.
    pub fn start(&self, config: NodeConfig) -> Result<Running, String> {
        let (name, lines) = (config.name.clone(), self.lines.clone());
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
        command.arg("--data").arg(self.data).args(["--base-port", &config.base.to_string()]);
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
        Ok(Running { config, is: Is::Process(Box::new(child), input) })
    }
}

impl Running {
    /// Kills it as by `kill -9`.
    pub async fn kill(&mut self) {
        match &mut self.is {
            // It has ended, then.
            Is::Process(child, _) => drop(child.kill().await),
            Is::Task(task, _) => task.abort(),
        }
    }

    /// Lets it leave.
    pub async fn leave(self) -> Result<(), String> {
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
