//! A command that runs while locks are held.
//!
//! It gets a process group of its own, so that all of it can be ended at once, and that makes geolock a small shell:
//!
//! - **Terminal.** Only one group may read the keyboard. When geolock has the terminal to itself, the command's
//!   group gets it at the start, as from a shell. In a pipeline (`geolock lock x -- make | less`) the others need
//!   it, too; there the command gets it when it asks, that is, when it is stopped for touching it (`SIGTTIN`,
//!   `SIGTTOU`). A shell sets the group in the child before the command starts, which needs unsafe code here;
//!   so the command may touch the terminal a moment too early. It is stopped for it, and continued.
//! - **Ctrl-Z** stops the command, hence geolock: the shell that waits for geolock has to get its prompt. While both
//!   are stopped nobody renews the lease, so the locks are lost when they stay so for longer than its time to live.
//!   Nothing of the group runs meanwhile, and nothing of it goes on before it is known whether the locks are still
//!   there ([`Event::Stopped`]).
//! - **Signals** to geolock are passed on: to the whole group those that a terminal would send to all of it, and
//!   `SIGTERM`; to the command alone `SIGUSR1` and `SIGUSR2`.
//! - **The end.** When the command has ended, what is left of its group gets `SIGTERM`, then `SIGKILL`; only then
//!   are the locks released. Whoever wants to outlive the locks has to leave the group (`setsid`).
//!
//! What remains: when geolock itself gets `SIGKILL`, the command runs on, and the locks are free when the lease ends.
//! Against that, let what the locks protect check the fencing token.

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

pub use signals::Signals;
use terminal::Terminal;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Killed(i32),
}

impl Ended {
    /// As shells have it: 128 and the number of the signal that killed it.
    pub fn exit_code(self) -> u8 {
        match self {
            Ended::Exited(code) => code as u8,
            Ended::Killed(signal) => (128 + signal) as u8,
        }
    }
}

/// What happened to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Ended(Ended),
    /// It was stopped, as by Ctrl-Z. Call [`Job::stop_along`].
    Stopped,
}

/// A running command and its process group. See the top of this file.
pub struct Job {
    leader: Pid,
    signals: Signals,
    terminal: Option<Terminal>,
    /// A `SIGTSTP` that we sent to our own group has yet to arrive here.
    own_tstp: bool,
}

/// How long members of the group may take to vanish after `SIGKILL`.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// Members of the group that are not our children vanish without a signal to us.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Job {
    /// Starts the command in a group of its own.
    pub fn start(command: &mut Command, signals: Signals) -> io::Result<Job> {
        adopt_orphans();
        let child = command.process_group(0).spawn()?;
        let leader = Pid::from_child(&child);
        let mut terminal = Terminal::open();
        if Terminal::is_all_ours()
            && let Some(terminal) = &mut terminal
        {
            terminal.lend(leader);
        }
        let job = Job { leader, signals, terminal, own_tstp: false };
        // It may have been stopped for touching the terminal before it had it.
        job.tell_group(Signal::CONT);
        Ok(job)
    }

    /// The next thing that happens to the command; signals are passed on meanwhile. May be dropped while it waits.
    pub async fn next(&mut self) -> io::Result<Event> {
        loop {
            if let Some(event) = self.look()? {
                return Ok(event);
            }
            match self.signals.next().await {
                Signal::CHILD => {}
                Signal::TSTP if std::mem::take(&mut self.own_tstp) => {}
                signal @ (Signal::USR1 | Signal::USR2) => {
                    // It may have ended this very moment.
                    let _ = kill_process(self.leader, signal);
                }
                signal => self.tell_group(signal),
            }
        }
    }

    /// Once the command has ended: somebody wants this process to end, too. What had been said before was said to both.
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

    /// Stops this process too, with everything in the command's group, until somebody continues it. If nobody could
    /// (no shell above us) it does not stop. The command stands still until [`Job::go_on`].
    pub fn stop_along(&mut self) {
        if !somebody_can_continue_us() {
            return;
        }
        self.tell_group(Signal::STOP);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        // The rest of a pipeline that we are part of: the shell waits until all of it has stopped.
        self.own_tstp = kill_current_process_group(Signal::TSTP).is_ok();
        signals::stop_this_process();
    }

    /// Continues the command, in the foreground if we are there.
    pub fn go_on(&mut self) {
        self.lend_terminal();
        self.tell_group(Signal::CONT);
    }

    /// Ends everything in the group: `SIGTERM`, after `grace` `SIGKILL`; without any grace `SIGKILL` at once. Returns
    /// when the group is empty (or cannot be emptied, as when the kernel holds on to a process), and takes the terminal
    /// back. Given up while it waits, it can be called again.
    pub async fn end(&mut self, grace: Duration) {
        if !grace.is_zero() {
            self.tell_group(Signal::TERM);
            // Who is stopped would not hear it.
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

    /// Puts the terminal into the state in which the command found it.
    pub fn tidy_terminal(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            terminal.restore_modes();
        }
    }

    async fn empty_by(&mut self, deadline: Instant) -> bool {
        loop {
            // What becomes of the command does not matter any more; reaped it has to be.
            let _ = self.look();
            if test_kill_process_group(self.leader) == Err(Errno::SRCH) {
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

    /// Takes note of children that ended or stopped.
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

    /// There may be nobody left in it.
    fn tell_group(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }
}

/// Whether there is a shell with job control above us: the leader of our session is in another group than we are.
/// A group without one above is not stopped by the kernel either.
fn somebody_can_continue_us() -> bool {
    getsid(None).and_then(|leader| getpgid(Some(leader))).is_ok_and(|group| group != getpgrp())
}

/// Makes descendants whose parents end our children, so that none stays behind as a zombie where process 1 does not
/// care for them.
fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Without it everything works but in containers without a proper process 1.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}
