//! The guard of a command: a process that kills the command's group when geolock is gone and has not said
//! that the group is empty, as after `SIGKILL`. So nothing of the command runs when the lease is over.
//!
//! It is this program once more, with [`ARGUMENT`] alone, and hears of geolock by a pipe: first the number of
//! the group, then a word that ends it, or the end of the pipe, which comes when geolock is gone, however
//! that happened. A signal at the death of the parent (`PR_SET_PDEATHSIG`) needs unsafe code here, is sent
//! when a thread of the parent ends, too, and reaches one process, not the group.

use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitCode, Stdio};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process_group};

/// The argument that makes this program a guard.
const ARGUMENT: &str = "guard-of-a-command";
/// The line that tells the guard that its group is empty.
const DISMISSED: &str = "dismissed";

/// A guard that runs. It is reaped as any other child when it has ended.
pub(super) struct Guard(ChildStdin);

impl Guard {
    /// Starts a guard. It has a group of its own, so no key of the terminal ends it, and keeps nothing open.
    pub(super) fn start() -> io::Result<Guard> {
        let mut command = Command::new(this_program()?);
        command.arg0("geolock-guard").arg(ARGUMENT).env_clear().current_dir("/").process_group(0);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Guard(pipe))
    }

    /// From now on it watches over this group.
    pub(super) fn watch(&mut self, group: Pid) -> io::Result<()> {
        writeln!(self.0, "{}", group.as_raw_nonzero())
    }

    /// The group is empty: its number may be that of another one soon.
    pub(super) fn dismiss(mut self) {
        // If it has ended, there is nothing to end.
        let _ = writeln!(self.0, "{DISMISSED}");
    }
}

/// Returns the program of this process, also if its file was replaced.
fn this_program() -> io::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { std::env::current_exe() }
}

/// Runs the guard if this process was started as one, to its end.
pub fn run_as_guard() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let is_guard = arguments.next().as_deref() == Some(OsStr::new(ARGUMENT)) && arguments.next().is_none();
    is_guard.then(|| {
        // It always ends with geolock, and not before, also if a signal goes to all of a service.
        let _ = SigSet::all().thread_block();
        if let Some(group) = group_left(&mut io::stdin().lock()) {
            // It may be empty.
            let _ = kill_process_group(group, Signal::KILL);
        }
        ExitCode::SUCCESS
    })
}

/// Returns the group that is to end, once the pipe has ended; `None` if the guard is dismissed.
fn group_left(pipe: &mut impl BufRead) -> Option<Pid> {
    let mut lines = pipe.lines().map_while(Result::ok);
    let group = lines.next()?.parse().ok().filter(|group| *group > 1).and_then(Pid::from_raw)?;
    let is_dismissed = lines.next().is_some_and(|line| line == DISMISSED);
    (!is_dismissed).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_ends_unless_its_guard_is_dismissed() {
        let left = |pipe: &str| group_left(&mut pipe.as_bytes()).map(Pid::as_raw_pid);
        assert_eq!(left("77\n"), Some(77));
        assert_eq!(left("77\ndismissed\n"), None);
        assert_eq!(left("77\ndismi"), Some(77), "geolock was killed while it wrote");
        for nothing in ["", "\n", "0\n", "1\n", "-77\n", "x\n"] {
            assert_eq!(left(nothing), None, "{nothing:?} is no group of a command");
        }
    }
}
