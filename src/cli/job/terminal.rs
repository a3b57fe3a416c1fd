//! The controlling terminal: lent to the command, and taken back.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal of this process.
pub(super) struct Terminal {
    device: File,
    /// Its settings when geolock started.
    modes: Termios,
    lent: bool,
}

impl Terminal {
    /// Returns `None` if there is none, as under cron.
    pub(super) fn open() -> Option<Terminal> {
        let device = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&device).ok()?;
        Some(Terminal { device, modes, lent: false })
    }

    /// Returns true if this process does not share the terminal with other processes of a pipeline, which
    /// need it too (`geolock lock x -- make | less`).
    pub(super) fn is_all_ours() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Makes `group` the foreground group, if geolock owns the terminal. Returns true if the group has it
    /// now.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        let Ok(now) = tcgetpgrp(&self.device) else { return false };
        let lent = now == group || (now == getpgrp() && tcsetpgrp(&self.device, group).is_ok());
        self.lent |= lent;
        lent
    }

    /// Makes geolock the foreground group again, if the terminal was lent.
    pub(super) fn take_back(&mut self) {
        if self.lent {
            self.lent = false;
            // It fails when the terminal is gone, and then it is not needed.
            let _ = without_being_stopped(|| tcsetpgrp(&self.device, getpgrp()));
        }
    }

    /// Undoes the changes of a command that was killed, such as switching off the echo.
    pub(super) fn restore_modes(&self) {
        if tcgetpgrp(&self.device).is_ok_and(|group| group == getpgrp()) {
            // As above.
            let _ = without_being_stopped(|| tcsetattr(&self.device, OptionalActions::Drain, &self.modes));
        }
    }
}

/// A process in the background that touches the terminal is stopped by `SIGTTOU`, unless it blocks that
/// signal. If a handler caught it instead, the call would be restarted for ever.
fn without_being_stopped<T>(act: impl FnOnce() -> T) -> T {
    let ttou = SigSet::from_iter([Signal::SIGTTOU]);
    let before = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = act();
    if let Ok(before) = before {
        // The earlier mask was valid, so it can be set again.
        let _ = before.thread_set_mask();
    }
    done
}
