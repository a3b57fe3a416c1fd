//! Tests through a real socket.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::Histogram;
use crate::crdt::VersionVector;
use crate::journal::{Figures, LastCheckpoint};
use crate::replica::call::{Acquires, AtStake, Counts, MembersStatus, PeerStatus, Phase, Status};
use geolock_api::names::{DcId, DcSet};

use super::http::MAX_CONNECTIONS;
use super::{Board, CertificateFigures, LinkFigures, Places, Snapshot, serve};

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("small")
}

fn took(micros: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    micros.iter().for_each(|micros| histogram.record(Duration::from_micros(*micros)));
    histogram
}

fn snapshot(phase: Phase, draining: bool) -> Snapshot {
    let peer = PeerStatus {
        dc: dc(1),
        connected: true,
        reachable: false,
        acknowledged: VersionVector::default(),
        unacked_entries: 12,
        lag_ms: 2_500,
        missing_entries: 4,
        too_far_behind: false,
        clock_ahead_ms: -250,
        paused_by_skew: false,
        not_serving: None,
        differing: vec!["api.acl"],
        at_stake: AtStake { away_locks: 6, waiting: 2, heard_ms: Some(1_500), silent: DcSet::only(dc(0)) },
    };
    let status = Status {
        dc: dc(0),
        phase,
        draining,
        clock_skew: false,
        clock_behind_ms: 0,
        backed_for_ms: Some(9_500),
        unknown_leases_ms: 0,
        disk_space: DiskSpace::default(),
        load: Load::TooMuch,
        applied: [(dc(1), 9)].into_iter().collect(),
        durable: VersionVector::default(),
        members: MembersStatus { decision: 9, epoch: 7, only_here: Some(3), ..MembersStatus::default() },
        peers: vec![peer],
        witnesses: Vec::new(),
        counts: Counts { grants: 5, held: 3, calls_shed: 9, ..Counts::default() },
        acquires: Acquires { remote: took(&[3, 70, 70_000]), ..Acquires::default() },
        majority_waits: took(&[80_000]),
    };
    let link = LinkFigures {
        peer: dc(2),
        messages_sent: 7,
        messages_received: 8,
        bytes_sent: 900,
        bytes_received: 1000,
        queued: 1,
        connects: 2,
        rtt: Some(Duration::from_millis(80)),
    };
    let journal = Figures {
        durable: 44,
        backlog_bytes: 120,
        write_time: Duration::from_millis(1500),
        disk_space: DiskSpace::Low,
        free_bytes: Some(77),
        last_checkpoint: Some(LastCheckpoint { position: 40, bytes: 5, made: None }),
        ..Figures::default()
    };
    let (sync_times, mailbox_delays) = (took(&[900]), took(&[200_000_000]));
    Snapshot {
        status,
        journal,
        sync_times,
        mailbox_delays,
        mailbox_bytes: 11,
        links: vec![link],
        links_failed: false,
    }
}

struct Server {
    address: SocketAddr,
    board: Arc<Board>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn start() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let board = Arc::new(Board::default());
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        stopped.await.expect("the test stops it");
    };
    let task = tokio::spawn(serve(listener, Arc::clone(&board), shutdown));
    Server { address, board, stop, task }
}

impl Server {
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        stream.write_all(bytes).await.expect("it reads");
        stream
    }

    /// Returns status and body, requested as Prometheus does.
    async fn get(&self, path: &str) -> (u16, String) {
        self.get_as(path, "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3").await
    }

    async fn get_as(&self, path: &str, accept: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\naccept: {accept}\r\n\r\n");
        answer(self.send(request.as_bytes()).await).await
    }

    async fn stop(self) {
        self.stop.send(()).expect("it runs");
        self.task.await.expect("it ends well");
        assert!(TcpStream::connect(self.address).await.is_err(), "nobody listens any more");
    }
}

async fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("an answer");
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[tokio::test]
async fn a_server_is_ready_only_while_it_serves() {
    let server = start().await;
    assert_eq!(server.get("/livez").await, (200, "ok\n".into()));
    let (status, reason) = server.get("/readyz").await;
    assert!(status == 503 && reason.starts_with("starting"), "{reason}");
    for (phase, draining, word) in [
        (Phase::Starting, false, "starting"),
        (Phase::ReadOnly, false, "read only"),
        (Phase::Grace { leases: 3 }, false, "3 leases"),
        (Phase::Serving, true, "draining"),
    ] {
        server.board.publish(snapshot(phase, draining));
        let (status, reason) = server.get("/readyz").await;
        assert!(status == 503 && reason.contains(word), "{reason}");
        assert_eq!(server.get("/livez").await.0, 200);
        assert!(server.get("/metrics").await.1.contains("geolock_ready 0\n"));
    }
    let mut full = snapshot(Phase::Serving, false);
    full.status.disk_space = DiskSpace::Low;
    server.board.publish(full);
    let (status, reason) = server.get("/readyz").await;
    assert!(status == 503 && reason.contains("disk full"), "{reason}");
    server.board.publish(snapshot(Phase::Serving, false));
    assert_eq!(server.get("/readyz").await, (200, "ok\n".into()));
    assert!(server.get("/metrics").await.1.contains("geolock_ready 1\n"));
    server.stop().await;
}

/// Lines of the page, examples of each kind.
const METRICS: [&str; 49] = [
    "geolock_members_decision 9",
    "geolock_members_epoch 7",
    "geolock_entries_only_here 3",
    "geolock_peer_away_locks{peer=\"dc1\"} 6.0",
    "geolock_peer_awaited_requests{peer=\"dc1\"} 2.0",
    "geolock_peer_silence_seconds{peer=\"dc1\"} 1.5",
    "geolock_peer_silent_voters{peer=\"dc1\"} 1.0",
    "geolock_grants_total 5",
    "geolock_requests_held 3",
    "geolock_journal_position 44",
    "geolock_journal_backlog_bytes 120.0",
    "# UNIT geolock_journal_write_seconds seconds",
    "geolock_journal_write_seconds_total 1.5",
    "geolock_peer_reachable{peer=\"dc1\"} 0.0",
    "geolock_peer_unacked_entries{peer=\"dc1\"} 12.0",
    "geolock_peer_lag_seconds{peer=\"dc1\"} 2.5",
    "geolock_peer_missing_entries{peer=\"dc1\"} 4.0",
    "geolock_log_applied{dc=\"dc1\",generation=\"0\"} 9",
    "geolock_values_bytes 0.0",
    "geolock_sessions 7",
    "geolock_sessions_limit 10",
    "geolock_mailbox_bytes 11.0",
    "geolock_disk_pressure 1",
    "geolock_overloaded 1",
    "geolock_calls_shed_total 9",
    "geolock_disk_free_bytes 77.0",
    "geolock_checkpoint_position 40",
    "geolock_peer_clock_ahead_seconds{peer=\"dc1\"} -0.25",
    "geolock_peer_options_differ{peer=\"dc1\"} 1.0",
    "geolock_link_messages_sent_total{peer=\"dc2\"} 7.0",
    "geolock_link_sent_bytes_total{peer=\"dc2\"} 900.0",
    "geolock_certificate_expiry_seconds{certificate=\"tls.dc\"} 0.0",
    "geolock_certificate_refused{certificate=\"tls.dc\"} 1",
    "geolock_access_denied_total{action=\"acquire-shared\"} 0",
    "geolock_access_unauthenticated_total 0",
    "geolock_link_round_trip_seconds{peer=\"dc2\"} 0.08",
    "# TYPE geolock_acquire_seconds histogram",
    "# UNIT geolock_acquire_seconds seconds",
    "geolock_acquire_seconds_count{origin=\"local\"} 0",
    "geolock_acquire_seconds_count{origin=\"remote\"} 3",
    "geolock_acquire_seconds_sum{origin=\"remote\"} 0.070073",
    "geolock_acquire_seconds_bucket{le=\"0.000008\",origin=\"remote\"} 1",
    "geolock_acquire_seconds_bucket{le=\"0.000128\",origin=\"remote\"} 2",
    "geolock_acquire_seconds_bucket{le=\"0.131072\",origin=\"remote\"} 3",
    "geolock_majority_wait_seconds_bucket{le=\"0.131072\"} 1",
    "geolock_journal_sync_seconds_bucket{le=\"0.001024\"} 1",
    "geolock_mailbox_delay_seconds_bucket{le=\"134.217728\"} 0",
    "geolock_mailbox_delay_seconds_bucket{le=\"+Inf\"} 1",
    "# EOF",
];

#[tokio::test]
async fn metrics_have_names_help_units_and_labels() {
    let server = start().await;
    let (status, page) = server.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(page.contains("geolock_log_lines_lost_total 0\n") && page.ends_with("# EOF\n"), "{page}");
    server.board.publish(snapshot(Phase::Serving, false));
    server.board.publish_certificates(vec![CertificateFigures {
        name: "tls.dc",
        expires: SystemTime::UNIX_EPOCH,
        expires_soon: true,
        failure: Some("torn".into()),
    }]);
    server.board.show_access(Arc::default());
    for name in ["sessions", "connections"] {
        let free = Arc::new(Semaphore::new(3));
        server.board.show_places(Places { name, help: "Some", free, most: 10 });
    }
    let (status, page) = server.get("/metrics").await;
    assert_eq!(status, 200);
    for line in METRICS {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    let mut names = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).expect("a name");
        assert!(name.starts_with("geolock_") && names.insert(name.to_owned()), "{name} twice");
        assert!(page.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    assert!(names.len() > 40, "{} metrics", names.len());
    let (_, plain) = server.get_as("/metrics", "text/plain").await;
    described_in_order(&plain);
    let samples = |page: &str| page.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples(&plain), samples(&page));
    server.stop().await;
    explained(&page);
}

/// Checks the page as `promtool check metrics` does: of each metric its help, then its type, then its samples
/// and no others; counters, and only those, end in `_total`.
fn described_in_order(plain: &str) {
    let mut names = BTreeSet::new();
    let mut lines = plain.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, text) = help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).expect(help);
        assert!(!text.is_empty() && names.insert(name), "{help}");
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect(name);
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
        while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
            let of = sample.split(['{', ' ']).next().expect("a name");
            let part = of.strip_prefix(name).expect(sample);
            let fits = if kind == "histogram" {
                matches!(part, "_bucket" | "_sum" | "_count")
            } else {
                part.is_empty()
            };
            assert!(fits, "{sample} is not of {name}");
        }
    }
}

/// Each metric is documented for operators, and every alarm uses one of them.
fn explained(page: &str) {
    let of_repository = |path| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let samples: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let manual = of_repository("docs/operations.md");
    // A histogram has samples of three names, and is documented once.
    let whole = |name: &str| {
        let mut parts = ["_bucket", "_sum", "_count"].into_iter().filter_map(|part| name.strip_suffix(part));
        let of = parts.find(|name| page.contains(&format!("# TYPE {name} histogram")));
        of.unwrap_or(name)["geolock_".len()..].to_owned()
    };
    let unexplained: Vec<&&str> =
        samples.iter().filter(|name| !manual.contains(&format!("`{}`", whole(name)))).collect();
    assert_eq!(unexplained, Vec::<&&str>::new(), "docs/operations.md does not say what they are");
    let alerts = of_repository("deploy/alerts.yml");
    let expressions: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    let mut used = 0;
    for word in expressions.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_')) {
        if word.starts_with("geolock_") {
            used += 1;
            assert!(samples.contains(word), "deploy/alerts.yml uses {word}, which no server shows");
        }
    }
    assert!(used >= expressions.len() && used > 5, "every alarm is about something: {expressions:?}");
}

#[test]
fn each_alert_has_a_row_in_the_manual_and_each_row_an_alert() {
    let alerts = include_str!("../../deploy/alerts.yml");
    let there: BTreeSet<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let rows = include_str!("../../docs/operations.md").lines();
    let told: BTreeSet<&str> = rows
        .filter_map(|line| line.strip_prefix("| `Geolock")?.split_once("` |"))
        .map(|(name, _)| name)
        .collect();
    let there: BTreeSet<&str> = there.iter().filter_map(|name| name.strip_prefix("Geolock")).collect();
    assert_eq!(there, told);
    assert!(there.len() > 10, "{there:?}");
}

#[tokio::test]
async fn other_requests_are_refused() {
    let server = start().await;
    assert_eq!(server.get("/").await.0, 404);
    let post = server.send(b"POST /metrics HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(answer(post).await.0, 405);
    assert_eq!(answer(server.send(b"what is this\r\n\r\n").await).await.0, 400);
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000));
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    // The server may close before it has read all of that.
    if stream.write_all(long.as_bytes()).await.is_ok() {
        let mut bytes = Vec::new();
        if stream.read_to_end(&mut bytes).await.is_ok() {
            assert!(!bytes.starts_with(b"HTTP/1.1 200"));
        }
    }
    assert_eq!(server.get("/livez").await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn silent_connections_are_bounded_and_delay_neither_a_probe_nor_a_shutdown() {
    let server = start().await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS + 20 {
        silent.push(server.send(b"").await);
    }
    assert_eq!(server.get("/livez").await.0, 200, "all others are still open");
    let mut oldest = silent.remove(0);
    assert_eq!(oldest.read(&mut [0]).await.expect("it was ended in order"), 0);
    server.stop().await;
    drop(silent);
}

#[test]
fn an_actor_that_says_nothing_is_not_alive() {
    let board = Board::default();
    let later = |secs| Instant::now() + Duration::from_secs(secs);
    assert!(board.alive(later(1_000)).is_ok(), "it may recover for long");
    board.publish(snapshot(Phase::Serving, false));
    assert!(board.alive(later(1)).is_ok());
    assert!(board.alive(later(60)).expect_err("it hangs").contains("nothing for"));
}
