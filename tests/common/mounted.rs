//! File systems for tests, where the machine permits mounts.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use super::{Cluster, Output, Running};

/// A file system mounted at a data directory, and the process that keeps it while the server is dead.
pub struct Mounted {
    /// Its path from outside its mount namespace.
    pub path: PathBuf,
    _keeper: Running,
}

impl Mounted {
    /// Mounts a `tmpfs` with these options for a datacenter that has not started. Returns `None`, with a
    /// message, where mounting is not permitted.
    pub fn at_data_of(cluster: &mut Cluster, dc: u8, options: &str) -> Option<Mounted> {
        let mounted = Mounted::try_at_data_of(cluster, dc, options);
        if mounted.is_none() {
            skip("no file system can be mounted here");
        }
        mounted
    }

    fn try_at_data_of(cluster: &mut Cluster, dc: u8, options: &str) -> Option<Mounted> {
        let dir = cluster.data_dir(dc);
        fs::create_dir(&dir).expect("the folder is writable");
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs -o \"$1\" tmpfs \"$0\" && echo mounted || echo not; exec sleep 600";
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(&dir).arg(options);
        let mut keeper = Running::start_if_there(&mut command, Output::Stdout)?;
        keeper.any_line().filter(|line| line == "mounted")?;
        let id = keeper.id().to_string();
        let runner = ["nsenter", "--target", &id, "--user", "--mount", "--preserve-credentials"];
        cluster.runners[usize::from(dc)] = runner.map(String::from).to_vec();
        let inside = dir.strip_prefix("/").expect("it is absolute");
        Some(Mounted { path: PathBuf::from(format!("/proc/{id}/root")).join(inside), _keeper: keeper })
    }
}

/// Writes a message to the terminal, also if the output of tests is captured.
pub fn skip(why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").expect("standard error is open");
}
