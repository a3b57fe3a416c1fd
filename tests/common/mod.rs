//! Real `geolock` processes for the tests: servers on free ports of this machine, with certificates and
//! disks.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "tests are edges")]

pub mod backup;
pub mod bank;
mod basics;
pub mod calls;
pub mod history;
pub mod lists;
pub mod mounted;
pub mod relay;
pub mod said;
pub mod trouble;
pub mod wan;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use basics::{HANGS, key, lock, within};
use geolock::client::{Client, ClientConfig, ClientTls};
use geolock::names::DcId;
use geolock::pki;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Polls until there is a result. Each attempt queries a process, which takes some time.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < HANGS, "there never is {what}");
    }
}

/// Waits for the end of that process. A process that hangs is killed, and fails the test.
fn ended<T>(id: Pid, wait: impl FnOnce() -> T) -> T {
    let (tell, told) = channel::<()>();
    let watch = thread::spawn(move || {
        let hangs = told.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout);
        // The id is not reused before the process was waited for.
        hangs && kill_process(id, Signal::KILL).is_ok()
    });
    let end = wait();
    drop(tell);
    let was_killed = watch.join().expect("it cannot panic");
    assert!(!was_killed || thread::panicking(), "process {} did not end", id.as_raw_nonzero());
    end
}

/// Returns a `geolock` command that ignores servers, playgrounds and configuration of the environment.
pub fn geolock(home: &Path) -> Command {
    geolock_by(&[], home)
}

/// As [`geolock`], run by another program, which is the beginning of the command line.
fn geolock_by(runner: &[String], home: &Path) -> Command {
    let mut line = runner.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_geolock")]);
    let mut command = Command::new(line.next().expect("at least the binary"));
    command.args(line);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GEOLOCK_") {
            command.env_remove(name);
        }
    }
    command.env("XDG_STATE_HOME", home).stdin(Stdio::null());
    command
}

/// Returns the first of `count` tens of ports, of which the first three each are free.
///
/// The ports are below the range that the system gives to clients, so that no client gets one by accident.
/// Tests that run in parallel, in this process or another, start searching in different places.
pub fn free_ports(count: u16) -> u16 {
    const FIRST: u16 = 10_000;
    const TENS: u16 = 2_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 97) as u16 * 20;
    for _ in 0..TENS {
        let place = start.wrapping_add(NEXT.fetch_add(count, Ordering::Relaxed)) % (TENS - count);
        let base = FIRST + 10 * place;
        if (0..count).all(|i| (0..3).all(|offset| is_free(base + 10 * i + offset))) {
            return base;
        }
    }
    panic!("no free ports on this machine");
}

fn is_free(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port);
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}

/// A process whose output is read line by line. Killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// Lines that were read while another one was awaited.
    pub seen: Vec<String>,
}

/// The output of a process to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Stdout,
    Stderr,
}

impl Running {
    pub fn start(command: &mut Command, output: Output) -> Running {
        Running::start_if_there(command, output).expect("the binary is there")
    }

    pub fn start_if_there(command: &mut Command, output: Output) -> Option<Running> {
        match output {
            Output::Stdout => command.stdout(Stdio::piped()),
            Output::Stderr => command.stderr(Stdio::piped()),
        };
        let mut child = command.spawn().ok()?;
        let pipe: Box<dyn Read + Send> = match output {
            Output::Stdout => Box::new(child.stdout.take().expect("it is piped")),
            Output::Stderr => Box::new(child.stderr.take().expect("it is piped")),
        };
        let (tell, lines) = channel();
        // Ends with the pipe; reads to its end so that the process never blocks.
        thread::spawn(move || {
            BufReader::new(pipe).lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)))
        });
        Some(Running { child, lines, seen: Vec::new() })
    }

    /// Waits for a line that contains that text.
    pub fn line(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(HANGS) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => self.seen.push(line),
                Err(_) => panic!("no line with {text:?}; there was {:#?}", self.seen),
            }
        }
    }

    /// Waits for a line that contains that text, unless it was read before: the order of some lines varies.
    pub fn says(&mut self, text: &str) {
        if !self.seen.iter().any(|line| line.contains(text)) {
            let line = self.line(text);
            self.seen.push(line);
        }
    }

    /// Returns the next line; `None` at the end of the output.
    pub fn any_line(&mut self) -> Option<String> {
        self.lines.recv_timeout(HANGS).ok()
    }

    /// Returns the lines that have arrived and that no test has waited for.
    pub fn drain(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.seen);
        lines.extend(self.lines.try_iter());
        lines
    }

    /// Repeats the action until the process has written this line. Each time it pauses for a moment: a
    /// process that receives signals as fast as they can be sent does nothing else.
    pub fn line_after(&mut self, text: &str, mut act: impl FnMut(&Running)) {
        const MOMENT: Duration = Duration::from_millis(50);
        let start = Instant::now();
        while start.elapsed() < HANGS {
            act(self);
            let next = Instant::now() + MOMENT;
            while let Ok(line) = self.lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
                if line.contains(text) {
                    return;
                }
                self.seen.push(line);
            }
        }
        panic!("it does not say {text:?}; it said {:#?}", self.seen);
    }

    /// Returns the rest of the output, until no process has the pipe any more.
    pub fn rest(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(HANGS) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("its output does not end after {lines:#?}"),
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it was not waited for");
    }

    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("it is piped")
    }

    /// Returns the exit code; for a process killed by a signal, the negative signal number.
    pub fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let id = Pid::from_child(&self.child);
        let status = ended(id, || self.child.wait()).expect("it can be waited for");
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Servers, one per datacenter, each a process.
pub struct Cluster {
    dir: TempDir,
    base: u16,
    pub servers: Vec<Option<Running>>,
    /// By datacenter: the program that runs its server, and its first arguments. Usually empty.
    pub runners: Vec<Vec<String>>,
}

impl Cluster {
    /// Starts all servers, and waits until they listen.
    pub fn start(dcs: u8) -> Cluster {
        Cluster::start_with(dcs, "")
    }

    /// The same, with these tables in their configuration.
    pub fn start_with(dcs: u8, more: &str) -> Cluster {
        let mut cluster = Cluster::prepare(dcs);
        cluster.configure(more);
        cluster.start_all();
        cluster
    }

    /// Creates certificates and ports. Nothing runs, and there is no configuration.
    pub fn prepare(dcs: u8) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let base = free_ports(dcs.into());
        let ids = (0..dcs).map(|id| DcId::new(id).expect("few datacenters"));
        pki::playground(dir.path(), "test", ids).expect("certificates can be made");
        let runners = vec![Vec::new(); dcs.into()];
        Cluster { dir, base, servers: (0..dcs).map(|_| None).collect(), runners }
    }

    /// Writes the configuration of all servers, linked to each other. `more` is appended: tables.
    pub fn configure(&self, more: &str) {
        let dcs = self.servers.len() as u8;
        (0..dcs).for_each(|dc| self.write_config(dc, |member| self.quic_address(member), more));
    }

    /// Starts all prepared servers, and waits until they listen.
    pub fn start_all(&mut self) {
        let dcs = self.servers.len() as u8;
        (0..dcs).for_each(|dc| self.launch(dc));
        (0..dcs).for_each(|dc| self.listening(dc));
    }

    /// Starts a server that was killed or stopped.
    pub fn restart(&mut self, dc: u8) {
        self.launch(dc);
        self.listening(dc);
    }

    /// Kills a server as by `kill -9`.
    pub fn kill(&mut self, dc: u8) {
        let mut server = self.servers[usize::from(dc)].take().expect("it runs");
        server.signal(Signal::KILL);
        server.wait();
    }

    pub fn server(&mut self, dc: u8) -> &mut Running {
        self.servers[usize::from(dc)].as_mut().expect("it runs")
    }

    pub fn config_file(&self, dc: u8) -> PathBuf {
        self.dir.path().join(format!("dc{dc}.toml"))
    }

    /// Returns the path of its fault script: read at its start if it exists, in builds with the feature
    /// `faults`.
    pub fn fault_script(&self, dc: u8) -> PathBuf {
        self.dir.path().join(format!("dc{dc}.faults.toml"))
    }

    /// Writes the fault script for its next start.
    pub fn write_faults(&self, dc: u8, script: &str) {
        std::fs::write(self.fault_script(dc), script).expect("the folder is writable");
    }

    /// Makes a running server, which was started with a script, use this one from now on.
    pub fn befall(&mut self, dc: u8, script: &str) {
        self.write_faults(dc, script);
        let server = self.server(dc);
        server.signal(Signal::USR2);
        server.line("faults are armed");
    }

    pub fn endpoint(&self, dc: u8) -> String {
        format!("127.0.0.1:{}", self.base + 10 * u16::from(dc))
    }

    /// Returns the address of its metrics and probes.
    fn http(&self, dc: u8) -> (Ipv4Addr, u16) {
        (Ipv4Addr::LOCALHOST, self.base + 10 * u16::from(dc) + 2)
    }

    pub fn http_endpoint(&self, dc: u8) -> String {
        let (address, port) = self.http(dc);
        format!("{address}:{port}")
    }

    /// Returns a page of its metrics port: status line, headers and body.
    pub fn page(&self, dc: u8, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http(dc)).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("it answers");
        page
    }

    /// Returns true if its metrics port accepts connections.
    pub fn is_alive(&self, dc: u8) -> bool {
        TcpStream::connect(self.http(dc)).is_ok()
    }

    pub fn data_dir(&self, dc: u8) -> PathBuf {
        self.dir.path().join(format!("data{dc}"))
    }

    pub fn has_checkpoint(&self, dc: u8) -> bool {
        let mut files = std::fs::read_dir(self.data_dir(dc)).expect("it is there");
        files.any(|file| file.is_ok_and(|file| file.path().extension() == Some("checkpoint".as_ref())))
    }

    /// Returns the resident memory of that server's process.
    pub fn resident_bytes(&self, dc: u8) -> u64 {
        let id = self.servers[usize::from(dc)].as_ref().expect("it runs").id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kilobytes << 10
    }

    /// Returns the size of that server's data directory. A file that disappears meanwhile counts nothing.
    pub fn disk_bytes(&self, dc: u8) -> u64 {
        let files = std::fs::read_dir(self.data_dir(dc)).expect("it is there").flatten();
        files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
    }

    pub fn tls(&self) -> PathBuf {
        self.dir.path().join("client")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a client subcommand that connects to that datacenter.
    pub fn command<S: AsRef<OsStr>>(&self, dc: u8, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = geolock(&self.dir.path().join("home"));
        command.env("GEOLOCK_CONNECT", self.endpoint(dc)).env("GEOLOCK_TLS", self.tls()).args(args);
        command
    }

    pub async fn client(&self, dc: u8) -> Client {
        Client::connect(self.client_config(dc)).await.expect("the server listens")
    }

    pub fn client_config(&self, dc: u8) -> ClientConfig {
        let tls = ClientTls::from_dir(self.tls()).expect("the certificates were just made");
        ClientConfig::new([self.endpoint(dc)], tls)
    }

    /// Returns the command that starts that server.
    pub fn server_command(&self, dc: u8) -> Command {
        let mut command = geolock_by(&self.runners[usize::from(dc)], &self.dir.path().join("home"));
        command.arg("server").arg("--config").arg(self.config_file(dc));
        let faults = self.fault_script(dc);
        if faults.exists() {
            command.arg("--faults").arg(faults);
        }
        command
    }

    fn launch(&mut self, dc: u8) {
        let running = Running::start(&mut self.server_command(dc), Output::Stderr);
        self.servers[usize::from(dc)] = Some(running);
    }

    fn listening(&mut self, dc: u8) {
        self.server(dc).line("listening");
    }

    /// Returns the address on which that server listens to the others.
    pub fn quic_address(&self, dc: u8) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port(dc, 1)).into()
    }

    fn port(&self, dc: u8, offset: u16) -> u16 {
        self.base + 10 * u16::from(dc) + offset
    }

    /// Writes the configuration of a server that reaches each member at that address. `more` is appended:
    /// tables.
    pub fn write_config(&self, dc: u8, address: impl Fn(u8) -> SocketAddr, more: &str) {
        let dir = self.dir.path().display();
        let mut text = format!(
            "cluster = \"test\"\ndc = {dc}\ndata_dir = \"{dir}/data{dc}\"\ndrain_timeout = \"5 s\"\n"
        );
        for member in 0..self.servers.len() as u8 {
            let address = address(member);
            text += &format!("[[member]]\nid = {member}\nname = \"city{member}\"\naddress = \"{address}\"\n");
        }
        text += &format!(
            "[tls]\ndc = \"{dir}/tls/dc{dc}\"\n[listen]\ngrpc = \"127.0.0.1:{}\"\nquic = \"127.0.0.1:{}\"\n\
             http = \"127.0.0.1:{}\"\n{more}",
            self.port(dc, 0),
            self.port(dc, 1),
            self.port(dc, 2)
        );
        std::fs::write(self.config_file(dc), text).expect("the folder is writable");
    }
}
