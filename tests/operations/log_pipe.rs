//! A server whose log is not read continues to serve.

use std::io::{ErrorKind, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::fixture::calls::acquire;
use crate::fixture::history::serving_at;
use crate::fixture::{Cluster, lock, servers, until, within};
use geolock::client::AcquireRequest;
use rustix::process::{Pid, Signal, kill_process};

/// The capacity of a pipe, in bytes.
const FULL_PIPE: usize = 64 << 10;

/// A server that logs into a pipe of the test. Killed when dropped.
struct Logging {
    server: Child,
    log: Option<PipeReader>,
}

impl Drop for Logging {
    fn drop(&mut self) {
        // Both fail when it has been waited for.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Starts the server of a cluster of one, with its log in that pipe. Returns when it listens.
fn start(cluster: &Cluster, (log, stderr): (PipeReader, PipeWriter)) -> Logging {
    let mut command = cluster.server_command(0);
    let server = command.stdout(Stdio::null()).stderr(stderr).spawn().expect("the binary is there");
    let logging = Logging { server, log: Some(log) };
    let address = cluster.endpoint(0);
    until("a listening server", || TcpStream::connect(&address).ok());
    logging
}

/// Opens a connection that is not TLS: it causes a log line at any level.
fn say_nonsense(cluster: &Cluster) {
    let mut stranger = TcpStream::connect(cluster.endpoint(0)).expect("it listens");
    stranger.write_all(&[b'?'; 64]).expect("it reads");
    // Until the server closes it, so that the line has been logged.
    match stranger.read_to_end(&mut Vec::new()) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => {}
    }
}

fn lines_lost(cluster: &Cluster) -> u64 {
    let page = cluster.page(0, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix("geolock_log_lines_lost_total "));
    line.expect("it counts them").parse().expect("a number")
}

async fn grants(cluster: &Cluster, name: &str) {
    let client = within(serving_at(cluster, 0)).await;
    let guard = acquire(&client, AcquireRequest::exclusive(lock(name))).await;
    within(guard.release()).await.expect("it is held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_serves_on_when_the_reader_of_its_log_has_ended() {
    let cluster = servers(1).with("[log]\nfilter = \"debug\"\n").prepared();
    let mut logging = start(&cluster, pipe().expect("a pipe"));
    grants(&cluster, "before").await;
    drop(logging.log.take());
    for _ in 0..10 {
        say_nonsense(&cluster);
    }
    grants(&cluster, "after").await;
    assert!(until("a lost line", || Some(lines_lost(&cluster)).filter(|lost| *lost > 0)) > 0);
    assert!(logging.server.try_wait().expect("it can be asked").is_none(), "it runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_serves_and_ends_when_nobody_reads_its_log() {
    let cluster = servers(1).with("[log]\nfilter = \"trace\"\n").prepared();
    let (log, mut stderr) = pipe().expect("a pipe");
    stderr.write_all(&[b'.'; FULL_PIPE]).expect("it takes that much");
    let mut logging = start(&cluster, (log, stderr));
    for _ in 0..10 {
        say_nonsense(&cluster);
        grants(&cluster, "unseen").await;
    }
    // Its last lines are not read either.
    kill_process(Pid::from_child(&logging.server), Signal::TERM).expect("it runs");
    let status = logging.server.wait().expect("it can be waited for");
    assert!(status.success(), "{status}");
}
