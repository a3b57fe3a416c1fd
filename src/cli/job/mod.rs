//! A command that runs while locks are held.
//!
//! It gets a process group of its own, so that all of it can be ended at once. This makes geolock a small
//! shell:
//!
//! - **Terminal.** Only one group may read the keyboard. When geolock has the terminal to itself, the
//!   command's group gets it at the start, as from a shell. In a pipeline (`geolock lock x -- make | less`)
//!   the others need it, too; there the command gets it when it asks, that is, when it is stopped for
//!   touching it (`SIGTTIN`, `SIGTTOU`). A shell sets the group in the child before the command starts, which
//!   needs unsafe code here; so the command may touch the terminal a moment too early. It is then stopped,
//!   and continued.
//! - **Ctrl-Z** stops the command, and then geolock: the shell that waits for geolock has to get its prompt.
//!   While both are stopped, nothing renews the lease, so the locks are lost if they stay stopped for longer
//!   than its time to live. No process of the group runs meanwhile, and none is continued before it is known
//!   that the locks are still held ([`Event::Stopped`]).
//! - **Signals** to geolock are passed on: all that would end or stop it, to the whole group; `SIGUSR1` and
//!   `SIGUSR2` to the command alone. So none of them ends geolock while its command runs.
//! - **The end.** When the command has ended, the rest of its group gets `SIGTERM`, then `SIGKILL`; only then
//!   are the locks released. A process that must outlive the locks has to leave the group (`setsid`).
//!
//! - **A guard** ([`guard`]), a process of its own, kills the group when geolock is gone all the same: it got
//!   `SIGKILL`, or a signal that tells of a fault in it (`SIGSEGV`, `SIGBUS`).
//!
//! That leaves three cases: both are killed at once, geolock is stopped while its lease ends, or the machine
//! hangs. Against them, let the protected resource check the fencing token.

mod guard;
mod signals;
mod terminal;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, getpgrp, getsid, kill_current_process_group, kill_process,
    kill_process_group, test_kill_process_group, wait,
};
use tokio::time::{Instant, sleep_until};

use guard::Guard;
pub use guard::run_as_guard;
pub use signals::Signals;
use terminal::Terminal;

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Killed(i32),
}

impl Ended {
    /// Returns the exit code. For a command killed by a signal: 128 and the number of the signal, as in
    /// shells.
    pub fn exit_code(self) -> u8 {
        match self {
            Ended::Exited(code) => code as u8,
            Ended::Killed(signal) => (128 + signal) as u8,
        }
    }
}

/// An event of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Ended(Ended),
    /// It was stopped, as by Ctrl-Z. Call [`Job::stop_along`].
    Stopped,
}

/// A running command and its process group.
pub struct Job {
    leader: Pid,
    /// Until the group is empty.
    guard: Option<Guard>,
    signals: Signals,
    terminal: Option<Terminal>,
    /// A `SIGTSTP` that geolock sent to its own group has yet to arrive here.
    own_tstp: bool,
}

/// Time for members of the group to vanish after `SIGKILL`.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// Members of the group that are not children of geolock vanish without a signal to it.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Job {
    /// Starts the command in a group of its own.
    pub fn start(command: &mut Command, signals: Signals) -> io::Result<Job> {
        adopt_orphans();
        let mut guard = Guard::start()?;
        let child = command.process_group(0).spawn()?;
        let leader = Pid::from_child(&child);
        if let Err(error) = guard.watch(leader) {
            // Nothing runs unguarded.
            let _ = kill_process_group(leader, Signal::KILL);
            return Err(io::Error::other(format!("its guard does not run: {error}")));
        }
        let mut terminal = Terminal::open();
        if Terminal::is_all_ours()
            && let Some(terminal) = &mut terminal
        {
            terminal.lend(leader);
        }
        let job = Job { leader, guard: Some(guard), signals, terminal, own_tstp: false };
        // It may have been stopped for touching the terminal before it had it.
        job.tell_group(Signal::CONT);
        Ok(job)
    }

    /// Returns the next event of the command; signals are passed on meanwhile. Cancel-safe.
    pub async fn next(&mut self) -> io::Result<Event> {
        loop {
            if let Some(event) = self.look()? {
                return Ok(event);
            }
            match self.signals.next().await {
                Signal::CHILD => {}
                Signal::TSTP if std::mem::take(&mut self.own_tstp) => {}
                signal @ (Signal::USR1 | Signal::USR2) => {
                    // It may have ended at this very moment.
                    let _ = kill_process(self.leader, signal);
                }
                signal => self.tell_group(signal),
            }
        }
    }

    /// After the end of the command: resolves when a signal asks this process to end, too. Earlier signals
    /// were meant for both.
    pub async fn wish_to_end(&mut self) {
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => self.own_tstp &= signal != Signal::TSTP,
                () = std::future::ready(()) => break,
            }
        }
        loop {
            match self.signals.next().await {
                Signal::CHILD | Signal::USR1 | Signal::USR2 => {}
                Signal::TSTP if std::mem::take(&mut self.own_tstp) => {}
                Signal::TSTP => signals::stop_this_process(),
                _ => return,
            }
        }
    }

    /// Stops this process too, with everything in the command's group, until another process continues it. If
    /// none could (no shell above it), it does not stop. The command stays stopped until [`Job::resume`].
    pub fn stop_along(&mut self) {
        if !somebody_can_continue_us() {
            return;
        }
        self.tell_group(Signal::STOP);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        // The rest of the pipeline: the shell waits until all of it has stopped.
        self.own_tstp = kill_current_process_group(Signal::TSTP).is_ok();
        signals::stop_this_process();
    }

    /// Continues the command, in the foreground if geolock is there.
    pub fn resume(&mut self) {
        self.lend_terminal();
        self.tell_group(Signal::CONT);
    }

    /// Ends everything in the group: `SIGTERM`, after `grace` `SIGKILL`; without grace `SIGKILL` at once.
    /// Returns when the group is empty (or cannot be emptied, as when the kernel blocks a process), and takes
    /// the terminal back. If it is cancelled, it can be called again.
    pub async fn end(&mut self, grace: Duration) {
        if !grace.is_zero() {
            self.tell_group(Signal::TERM);
            // A stopped process would not receive it.
            self.tell_group(Signal::CONT);
        }
        if grace.is_zero() || !self.empty_by(Instant::now() + grace).await {
            self.tell_group(Signal::KILL);
            self.empty_by(Instant::now() + AFTER_KILL).await;
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }

    /// Restores the state of the terminal from before the command.
    pub fn tidy_terminal(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            terminal.restore_modes();
        }
    }

    async fn empty_by(&mut self, deadline: Instant) -> bool {
        loop {
            // The outcome of the command does not matter any more, but it has to be reaped.
            let _ = self.look();
            if test_kill_process_group(self.leader) == Err(Errno::SRCH) {
                self.guard.take().into_iter().for_each(Guard::dismiss);
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            tokio::select! {
                _ = self.signals.next() => {}
                () = sleep_until(deadline.min(Instant::now() + LOOK_AGAIN)) => {}
            }
        }
    }

    /// Reaps children that ended, and notes those that stopped.
    fn look(&mut self) -> io::Result<Option<Event>> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.leader => {
                    if let Some(event) = self.event(status) {
                        return Ok(Some(event));
                    }
                }
                // An orphan of the group.
                Ok(Some(_)) => {}
                Ok(None) | Err(Errno::CHILD) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn event(&mut self, status: WaitStatus) -> Option<Event> {
        if let Some(code) = status.exit_status() {
            return Some(Event::Ended(Ended::Exited(code)));
        }
        if let Some(signal) = status.terminating_signal() {
            return Some(Event::Ended(Ended::Killed(signal)));
        }
        let wants_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).map(Some);
        if wants_terminal.contains(&status.stopping_signal()) && self.lend_terminal() {
            self.tell_group(Signal::CONT);
            return None;
        }
        status.stopped().then_some(Event::Stopped)
    }

    fn lend_terminal(&mut self) -> bool {
        self.terminal.as_mut().is_some_and(|terminal| terminal.lend(self.leader))
    }

    /// The group may be empty.
    fn tell_group(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }
}

/// Returns true if there is a shell with job control above this process: the leader of its session is in
/// another group. The kernel does not stop a group without such a parent either.
fn somebody_can_continue_us() -> bool {
    getsid(None).and_then(|leader| getpgid(Some(leader))).is_ok_and(|group| group != getpgrp())
}

/// Makes descendants whose parents end children of this process, so that none stays behind as a zombie where
/// process 1 does not reap.
fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Without it everything works except in containers without a proper process 1.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}
