//! The terminal as a screen: its alternate page, without cursor and echo. Its state is restored in every
//! case: on drop, on a panic, and while the process is stopped by Ctrl-Z.

use std::fs::File;
use std::future::pending;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic;

use rustix::fs::OFlags;
use rustix::process::{Signal as Sent, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::view::Size;

/// The alternate page, no cursor, long lines truncated.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Size for terminals that do not report theirs.
const USUAL: Size = Size { width: 80, height: 24 };

/// The terminal as a screen, until it is dropped.
pub(super) struct Terminal {
    /// The source of keys; `None` if there is none.
    keys: Option<AsyncFd<File>>,
    before: Before,
    stop: Signal,
}

/// The reason why [`Terminal::ended`] returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The user typed `q`, or the terminal is gone.
    Quit,
    /// The process was stopped and continued, and has an empty screen.
    Stopped,
}

/// The settings before.
#[derive(Clone)]
struct Before(Option<Termios>);

impl Before {
    fn put_back(&self) {
        let mut out = io::stdout().lock();
        // A terminal that is gone needs no restoring.
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        if let Some(modes) = &self.0 {
            let _ = open().map(|device| tcsetattr(&device, OptionalActions::Now, modes));
        }
    }
}

/// Opens the terminal again, so that non-blocking mode does not affect other processes.
fn open() -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).write(true).custom_flags(flags.bits() as i32).open("/dev/tty")
}

#[allow(
    deprecated,
    reason = "what takes its place is unsafe, and a `File` keeps its descriptor as that demands"
)]
fn events(device: File) -> Option<AsyncFd<File>> {
    AsyncFd::new(device).ok()
}

impl Terminal {
    /// Takes over the terminal. Standard output must be one.
    pub fn enter() -> io::Result<Terminal> {
        let device = open().ok();
        let before = Before(device.as_ref().and_then(|device| tcgetattr(device).ok()));
        let keys = device.and_then(events);
        let stop = signal(SignalKind::from_raw(nix::sys::signal::Signal::SIGTSTP as i32))?;
        let terminal = Terminal { keys, before, stop };
        let before = terminal.before.clone();
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before.put_back();
            report(info);
        }));
        terminal.set_up()?;
        Ok(terminal)
    }

    fn set_up(&self) -> io::Result<()> {
        if let (Some(keys), Some(modes)) = (&self.keys, &self.before.0) {
            let mut modes = modes.clone();
            // Ctrl-C and Ctrl-Z still make signals.
            modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(keys.get_ref(), OptionalActions::Now, &modes)?;
        }
        write(ENTER)
    }

    pub fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { width: size.ws_col.into(), height: size.ws_row.into() }
            }
            _ => USUAL,
        }
    }

    /// Shows these lines and nothing else.
    pub fn show(&self, lines: &[String]) -> io::Result<()> {
        // Overwrites the lines in place, so that nothing flickers.
        write(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }

    /// Waits until the user ends the program, or the process was stopped and continued. Cancel-safe.
    pub async fn ended(&mut self) -> io::Result<Ended> {
        tokio::select! {
            quit = quit(&self.keys) => quit.map(|()| Ended::Quit),
            _ = self.stop.recv() => {
                self.before.put_back();
                kill_process(getpid(), Sent::STOP)?;
                self.set_up()?;
                Ok(Ended::Stopped)
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.before.put_back();
        // Nothing is left to be restored; during a panic the hook does it.
        if !std::thread::panicking() {
            let _ = panic::take_hook();
        }
    }
}

async fn quit(keys: &Option<AsyncFd<File>>) -> io::Result<()> {
    let Some(keys) = keys else { return pending().await };
    let mut typed = [0; 64];
    loop {
        let mut ready = keys.readable().await?;
        match ready.try_io(|keys| keys.get_ref().read(&mut typed)) {
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(count)) if typed[..count].iter().any(|key| matches!(key, b'q' | b'Q')) => return Ok(()),
            Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            // It was another key, or none.
            Ok(_) | Err(_) => {}
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
