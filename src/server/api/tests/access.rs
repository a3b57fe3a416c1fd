//! Authentication and the access rules: over TLS, with a real datacenter behind it.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::site::{Running, Site, Talk, acquire, dial, exclusive, release, try_acquire};
use super::unary::{list_keys, reason};
use crate::access::NewToken;
use crate::lock_server::fakes::dc;
use crate::pki::{Authority, Existing, Leaf, Role, Validity};
use crate::server::config::Config;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Mode, Reason, Then, change, update};

pub(super) const DENIED: (Reason, Code) = (Reason::PermissionDenied, Code::PermissionDenied);
const UNKNOWN: (Reason, Code) = (Reason::Unauthenticated, Code::Unauthenticated);

/// Files of rules and tokens in the folder of a site.
pub(super) struct Files<'a>(pub &'a Site);

impl Files<'_> {
    pub(super) fn acl(&self, rules: &str) -> PathBuf {
        self.write("acl.toml", rules)
    }

    fn tokens(&self, lines: &[&str]) -> PathBuf {
        self.write("tokens", &lines.join("\n"))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.folder(name);
        fs::write(&path, text).expect("it is written");
        path
    }
}

/// Issues a certificate of the site's authority.
fn issue(site: &Site, folder: &str, role: Role) -> PathBuf {
    let authority = Authority::load(&site.folder("ca")).expect("the playground made it");
    let leaf = Leaf { hosts: vec!["localhost".into()], role, validity: Validity::days(1) };
    authority.issue(&site.folder(folder), &leaf, Existing::Refuse).expect("it is issued");
    site.folder(folder)
}

pub(super) fn issue_client(site: &Site, name: &str) -> PathBuf {
    issue(site, name, Role::Client(name.into()))
}

/// Returns the folder of a client without a certificate.
pub(super) fn without(site: &Site) -> PathBuf {
    let folder = site.folder("without");
    fs::create_dir_all(&folder).expect("it is made");
    fs::copy(site.folder("client").join("ca.pem"), folder.join("ca.pem")).expect("the playground made it");
    folder
}

#[derive(Clone)]
struct Bearer(String);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.parse().expect("plain text"));
        Ok(request)
    }
}

type WithToken = LocksClient<InterceptedService<Channel, Bearer>>;

pub(super) async fn client(running: &Running, folder: &Path) -> LocksClient<Channel> {
    LocksClient::new(dial(running.address, folder).await.expect("it is let in"))
}

async fn with_token(running: &Running, folder: &Path, token: &str) -> WithToken {
    let channel = dial(running.address, folder).await.expect("it is let in");
    LocksClient::with_interceptor(channel, Bearer(format!("Bearer {token}")))
}

/// Returns true if the metrics have that line.
pub(super) async fn metric(running: &Running, line: &str) -> bool {
    let mut stream = TcpStream::connect(running.http).await.expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).await.expect("it answers");
    page.lines().any(|found| found == line)
}

fn key(bucket: &str, name: &str) -> proto::Key {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    proto::Key { bucket: bytes(bucket), name: bytes(name) }
}

fn put(bucket: &str, name: &str) -> proto::Change {
    let op = Some(update::Op::LwwRegister(Bytes::from_static(b"v")));
    let update = proto::Update { path: vec![], op };
    proto::Change { key: Some(key(bucket, name)), action: Some(change::Action::Update(update)) }
}

fn step(changes: Vec<proto::Change>, reads: Vec<proto::Key>, then: Then) -> Option<proto::Step> {
    Some(proto::Step { changes, reads, then: then.into(), ..Default::default() })
}

fn prefix(bucket: &str, prefix: &str) -> proto::WatchPrefix {
    let proto::Key { bucket, name } = key(bucket, prefix);
    proto::WatchPrefix { bucket, prefix: name }
}

fn watch(prefixes: &[proto::WatchPrefix], keys: &[proto::Key]) -> proto::WatchRequest {
    proto::WatchRequest { prefixes: prefixes.to_vec(), keys: keys.to_vec(), from_snapshot: None }
}

fn watch_locks(prefix: &'static str) -> proto::WatchLocksRequest {
    proto::WatchLocksRequest { prefixes: vec![prefix.into()], ..Default::default() }
}

fn top(prefix: &'static str) -> proto::TopLocksRequest {
    proto::TopLocksRequest { prefix: prefix.into(), limit: 0 }
}

fn list(prefix: &'static str) -> proto::ListLocksRequest {
    proto::ListLocksRequest { prefix: prefix.into(), ..Default::default() }
}

/// Returns the text of a rule.
pub(super) fn rule(who: &str, allow: &[&str], on: &str) -> String {
    format!("[[rule]]\nwho = [\"{who}\"]\nallow = {allow:?}\n{on}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_lets_in_who_shows_no_certificate() {
    let site = Site::new();
    let (good, other) =
        (NewToken::generate("ci").expect("random"), NewToken::generate("ci").expect("random"));
    let tokens = Files(&site).tokens(&[good.line()]);
    let running = site.start_configured(|config| config.access.tokens = Some(tokens)).await;
    let folder = without(&site);
    let status = proto::StatusRequest {};

    let mut ci = with_token(&running, &folder, good.token()).await;
    assert!(ci.status(status).await.is_ok());
    let lease = ci.open_lease(proto::OpenLeaseRequest::default()).await.expect("no rules").into_inner();
    let ask = proto::AcquireRequest { secret: lease.secret, ..acquire(lease.lease, 1, "a") };
    assert!(ci.acquire(ask).await.is_ok());

    assert_eq!(reason(client(&running, &folder).await.status(status).await), UNKNOWN);
    let mut wrong = with_token(&running, &folder, other.token()).await;
    assert_eq!(reason(wrong.status(status).await), UNKNOWN);
    let opened = wrong.session(tokio_stream::empty()).await;
    assert_eq!(reason(opened.map(|_| ())), UNKNOWN);
    // The certificate alone is still accepted, but not beside an invalid token.
    assert!(site.client(&running).await.status(status).await.is_ok());
    let mut both = with_token(&running, &site.folder("client"), other.token()).await;
    assert_eq!(reason(both.status(status).await), UNKNOWN);
    // The health service reports only if the server serves, and does so to every client.
    let channel = dial(running.address, &folder).await.expect("it is let in");
    assert!(HealthClient::new(channel).check(HealthCheckRequest::default()).await.is_ok());
    assert!(metric(&running, "geolock_access_unauthenticated_total 4").await);

    Files(&site).tokens(&[other.line()]);
    assert!(running.node.reloader().reload().await.is_empty());
    assert!(wrong.status(status).await.is_ok());
    assert_eq!(reason(ci.status(status).await), UNKNOWN, "withdrawn");
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_a_certificate_is_demanded_in_the_handshake() {
    let site = Site::new();
    let running = site.start().await;
    if let Ok(channel) = dial(running.address, &without(&site)).await {
        let refused = LocksClient::new(channel).status(proto::StatusRequest {}).await;
        let refused = refused.expect_err("it is not let in");
        assert!(refused.metadata().get_bin(proto::ERROR_METADATA).is_none(), "no call came through");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datacenters_certificate_is_no_clients_even_where_none_is_needed() {
    let site = Site::new();
    let made = NewToken::generate("ci").expect("random");
    let tokens = Files(&site).tokens(&[made.line()]);
    let anonymous = |config: &mut Config| {
        config.access.anonymous = true;
        config.access.tokens = Some(tokens);
    };
    let running = site.start_configured(anonymous).await;
    let peer = issue(&site, "peer", Role::Dc(dc(1)));
    for folder in [site.folder("tls/dc0"), peer] {
        // TLS 1.3: the client's side of the handshake is complete before its certificate is refused.
        if let Ok(channel) = dial(running.address, &folder).await {
            let token = Bearer(format!("Bearer {}", made.token()));
            let refused = LocksClient::with_interceptor(channel, token).status(proto::StatusRequest {}).await;
            let refused = refused.expect_err("it is not let in");
            assert!(refused.metadata().get_bin(proto::ERROR_METADATA).is_none(), "no call came through");
        }
    }
    let mut nobody = client(&running, &without(&site)).await;
    assert!(nobody.status(proto::StatusRequest {}).await.is_ok(), "anonymous");
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_leave_room_for_certificates() {
    let site = Site::new();
    let two = |config: &mut Config| {
        config.access.anonymous = true;
        config.api.max_connections = 2;
    };
    let running = site.start_configured(two).await;
    let (folder, status) = (without(&site), proto::StatusRequest {});
    let mut first = client(&running, &folder).await;
    assert!(first.status(status).await.is_ok());
    if let Ok(channel) = dial(running.address, &folder).await {
        assert!(LocksClient::new(channel).status(status).await.is_err(), "half of two is one");
    }
    assert!(site.client(&running).await.status(status).await.is_ok());
    assert!(first.status(status).await.is_ok());
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_rule_can_take_nothing() {
    let site = Site::new();
    let acl = Files(&site).acl(&rule("client:other", &["describe"], "locks = [\"\"]"));
    let running = site.start_configured(|config| config.access.acl = Some(acl)).await;
    let mut app = client(&running, &issue_client(&site, "app")).await;
    let secret = Bytes::from_static(&[7; 16]);
    let lease = 3;

    assert_eq!(reason(app.open_lease(proto::OpenLeaseRequest::default()).await), DENIED);
    let ask = proto::AcquireRequest { secret: secret.clone(), ..acquire(lease, 1, "a") };
    assert_eq!(reason(app.acquire(ask).await), DENIED);
    let begin = |step| proto::BeginRequest {
        lease,
        secret: secret.clone(),
        idempotency_key: 1,
        step,
        ..Default::default()
    };
    let write = begin(step(vec![put("b", "k")], vec![], Then::Commit));
    assert_eq!(reason(app.transact(write).await), DENIED);
    let read = begin(step(vec![], vec![key("b", "k")], Then::Commit));
    assert_eq!(reason(app.transact(read).await), DENIED);
    let read = proto::ReadRequest { keys: vec![key("b", "k")], at_least: None };
    assert_eq!(reason(app.read(read).await), DENIED);
    assert_eq!(reason(app.watch(watch(&[prefix("b", "")], &[])).await.map(|_| ())), DENIED);
    assert_eq!(reason(app.watch(watch(&[], &[key("b", "k")])).await.map(|_| ())), DENIED);
    assert_eq!(reason(app.watch_locks(watch_locks("")).await.map(|_| ())), DENIED);
    assert_eq!(reason(app.list_locks(list("")).await), DENIED);
    assert_eq!(reason(app.top_locks(top("")).await), DENIED);
    assert_eq!(
        reason(app.describe_lock(proto::DescribeLockRequest { name: "a".into(), home: None }).await),
        DENIED
    );
    // Calls that return something need only the lease and its secret.
    let unknown = (Reason::UnknownLease, Code::NotFound);
    let keep = proto::KeepAliveRequest { lease, secret: secret.clone() };
    assert_eq!(reason(app.keep_alive(keep).await), unknown);
    let give = proto::ReleaseRequest { secret: secret.clone(), ..release(lease, 1) };
    assert_eq!(reason(app.release(give).await), unknown);
    let target = Some(proto::cancel_request::Target::IdempotencyKey(1));
    let cancel = proto::CancelRequest { lease, secret: secret.clone(), target };
    assert_eq!(reason(app.cancel(cancel).await), unknown);
    assert_eq!(reason(app.close_lease(proto::CloseLeaseRequest { lease, secret }).await), unknown);
    let status = app.status(proto::StatusRequest {}).await.expect("all may see it").into_inner();
    assert_eq!((status.counts["keys"], status.counts["leases"]), (0, 0), "nothing was done");

    let mut other = client(&running, &issue_client(&site, "other")).await;
    assert!(other.list_locks(list("")).await.is_ok());
    for line in [
        "geolock_access_denied_total{action=\"acquire-exclusive\"} 1",
        "geolock_access_denied_total{action=\"read\"} 4",
        "geolock_access_denied_total{action=\"write\"} 1",
        "geolock_access_denied_total{action=\"describe\"} 4",
        "geolock_access_leases_denied_total 1",
    ] {
        assert!(metric(&running, line).await, "{line}");
    }
    running.node.handle().drain();
}

/// Returns the rules for client `app` in the tests below.
fn some() -> String {
    [
        rule("client:app", &["acquire-shared"], "locks = [\"s/\"]"),
        rule("client:app", &["acquire-exclusive", "describe"], "locks = [\"x/\"]"),
        rule("client:app", &["read"], "keys = [{ bucket = \"b\", prefix = \"r\" }]"),
        rule("client:app", &["write"], "keys = [{ bucket = \"b\", prefix = \"w\" }]"),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_on_a_stream_is_judged_by_what_it_names() {
    let site = Site::new();
    let acl = Files(&site).acl(&some());
    let running = site.start_configured(|config| config.access.acl = Some(acl)).await;
    let mut app = client(&running, &issue_client(&site, "app")).await;
    let mut talk = Talk::open(&mut app).await;
    let lease = talk.open_lease().await.lease;
    let mode = Mode::Shared.into();
    let shared = |name: &'static str| proto::LockMode { name: name.into(), mode, home: None };
    let asking = |key, locks| Call::Acquire(proto::AcquireRequest { locks, ..try_acquire(lease, key, "") });
    for (index, (locks, allowed)) in [
        (vec![shared("s/1")], true),
        (vec![exclusive("s/1")], false),
        (vec![exclusive("x/1")], true),
        (vec![shared("x/2")], false),
        (vec![shared("s/2"), exclusive("x/3")], true),
        (vec![shared("s/3"), exclusive("y")], false),
        // For a lock that is named twice, the stronger mode counts.
        (vec![shared("s/4"), exclusive("s/4")], false),
        (vec![exclusive("x")], false),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = talk.ask(asking(index as u64 + 1, locks.clone())).await;
        match answer {
            Answer::Acquired(_) if allowed => {}
            Answer::Error(error) if !allowed => {
                assert_eq!(error.reason(), Reason::PermissionDenied, "{locks:?}");
                assert!(error.message.starts_with("client app may not acquire-"), "{}", error.message);
            }
            other => panic!("{locks:?}: {other:?}"),
        }
    }
    let call = super::enough::ask(lease, 50, super::enough::enough(1, 0, &[("x/8", 1), ("y", 1)]));
    assert_eq!(talk.refused(call).await, Reason::PermissionDenied, "each candidate is judged");
    transactions_are_judged_by_locks_and_keys(&mut talk, lease).await;
    assert!(app.list_locks(list("x/")).await.is_ok() && app.list_locks(list("x/1")).await.is_ok());
    assert_eq!(reason(app.list_locks(list("x")).await), DENIED, "wider than the rule");
    assert!(app.top_locks(top("x/")).await.is_ok() && app.watch_locks(watch_locks("x/")).await.is_ok());
    assert_eq!(reason(app.top_locks(top("x")).await), DENIED, "wider than the rule");
    assert!(app.list_keys(list_keys("b", "r")).await.is_ok());
    assert_eq!(reason(app.list_keys(list_keys("b", "")).await), DENIED, "wider than the rule");
    assert_eq!(reason(app.watch_locks(watch_locks("")).await.map(|_| ())), DENIED);
    assert!(app.watch(watch(&[prefix("b", "r")], &[key("b", "r1")])).await.is_ok());
    for wider in [watch(&[prefix("b", "")], &[]), watch(&[prefix("b", "r")], &[key("b", "w")])] {
        assert_eq!(reason(app.watch(wider).await.map(|_| ())), DENIED);
    }
    running.node.handle().drain();
}

async fn transactions_are_judged_by_locks_and_keys(talk: &mut Talk, lease: u64) {
    let read = |name: &str| Call::Read(proto::ReadRequest { keys: vec![key("b", name)], at_least: None });
    assert!(matches!(talk.ask(read("r1")).await, Answer::Stepped(_)));
    assert_eq!(talk.refused(read("w1")).await, Reason::PermissionDenied);
    let begin = |key, locks: Option<&str>, step| {
        let wait = Some(proto::begin_locks::Wait::TryOnce(proto::TryOnce {}));
        let locks =
            locks.map(|name| proto::BeginLocks { locks: vec![exclusive(name)], wait, ..Default::default() });
        Call::Begin(proto::BeginRequest { lease, idempotency_key: key, locks, step, ..Default::default() })
    };
    let nothing = || step(vec![], vec![], Then::Continue);
    assert_eq!(talk.refused(begin(20, Some("s/9"), nothing())).await, Reason::PermissionDenied);
    let both = step(vec![put("b", "w1")], vec![key("b", "w1")], Then::Continue);
    assert_eq!(talk.refused(begin(21, None, both)).await, Reason::PermissionDenied);
    assert!(matches!(talk.ask(begin(22, Some("x/9"), nothing())).await, Answer::Stepped(_)));
    let next_step = |after, step| {
        Call::Step(proto::StepRequest {
            lease,
            secret: Bytes::new(),
            idempotency_key: 22,
            applied_changes: after,
            step,
        })
    };
    let wrong = step(vec![put("b", "w1"), put("c", "w1")], vec![], Then::Commit);
    assert_eq!(talk.refused(next_step(0, wrong)).await, Reason::PermissionDenied);
    // The transaction is still open, and has none of the refused changes.
    let right = step(vec![put("b", "w1")], vec![key("b", "r1")], Then::Commit);
    match talk.ask(next_step(0, right)).await {
        Answer::Stepped(stepped) => assert!(stepped.commit.is_some()),
        other => panic!("it should commit: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_open_is_judged_by_new_rules_from_its_next_call_on() {
    let site = Site::new();
    let acl = Files(&site).acl(&some());
    let running = site.start_configured(|config| config.access.acl = Some(acl)).await;
    let mut app = client(&running, &issue_client(&site, "app")).await;
    let mut talk = Talk::open(&mut app).await;
    let lease = talk.open_lease().await.lease;
    assert!(matches!(talk.ask(Call::Acquire(try_acquire(lease, 1, "x/1"))).await, Answer::Acquired(_)));
    let mut watching = app.watch_locks(watch_locks("x/")).await.expect("allowed").into_inner();

    let changed = rule("client:app", &["acquire-exclusive"], "locks = [\"y/\"]");
    Files(&site).acl(&changed);
    assert!(running.node.reloader().reload().await.is_empty());
    assert_eq!(talk.refused(Call::Acquire(try_acquire(lease, 2, "x/2"))).await, Reason::PermissionDenied);
    assert!(matches!(talk.ask(Call::Acquire(try_acquire(lease, 3, "y/1"))).await, Answer::Acquired(_)));
    // The client may keep and return its locks.
    let keep = proto::KeepAliveRequest { lease, secret: Bytes::new() };
    assert!(matches!(talk.ask(Call::KeepAlive(keep)).await, Answer::KeptAlive(_)));
    assert!(matches!(talk.ask(Call::Release(release(lease, 1))).await, Answer::Released(_)));
    // The watch has sent the earlier events; the event of the release is not sent any more.
    let ended = loop {
        match watching.message().await {
            Ok(Some(told)) => {
                use proto::watch_locks_response::Event::Released;
                assert!(!matches!(told.event, Some(Released(_))), "{told:?}");
            }
            ended => break ended,
        }
    };
    assert_eq!(reason(ended), DENIED);

    Files(&site).acl("[[rule]]\nwho = [\"client:app\"]\nallow = [\"acquire-exlusive\"]\nlocks = [\"\"]");
    let failures = running.node.reloader().reload().await;
    assert!(failures[0].to_string().contains("acquire-exlusive") && failures.len() == 1, "{failures:?}");
    assert!(matches!(talk.ask(Call::Acquire(try_acquire(lease, 4, "y/2"))).await, Answer::Acquired(_)));
    assert_eq!(talk.refused(Call::Acquire(try_acquire(lease, 5, "x/3"))).await, Reason::PermissionDenied);
    assert!(metric(&running, "geolock_access_reloads_failed_total 1").await);
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_do_nothing_any_more_comes_back_for_what_it_has() {
    let site = Site::new();
    let acl = Files(&site).acl(&some());
    let running = site.start_configured(|config| config.access.acl = Some(acl)).await;
    let mut app = client(&running, &issue_client(&site, "app")).await;
    let mut talk = Talk::open(&mut app).await;
    let lease = talk.open_lease().await;
    assert!(matches!(talk.ask(Call::Acquire(try_acquire(lease.lease, 1, "x/1"))).await, Answer::Acquired(_)));
    Files(&site).acl(&rule("client:other", &["describe"], "locks = [\"\"]"));
    assert!(running.node.reloader().reload().await.is_empty());
    drop(talk);

    let mut talk = Talk::open(&mut app).await;
    let attach = proto::AttachLeaseRequest { lease: lease.lease, secret: lease.secret };
    assert!(matches!(talk.ask(Call::AttachLease(attach)).await, Answer::LeaseAttached(_)));
    let keep = proto::KeepAliveRequest { lease: lease.lease, secret: Bytes::new() };
    assert!(matches!(talk.ask(Call::KeepAlive(keep)).await, Answer::KeptAlive(_)));
    assert_eq!(
        talk.refused(Call::Acquire(try_acquire(lease.lease, 2, "x/2"))).await,
        Reason::PermissionDenied
    );
    assert!(matches!(talk.ask(Call::Release(release(lease.lease, 1))).await, Answer::Released(_)));
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reclaim_takes_no_more_than_the_rules_allow() {
    let site = Site::new();
    let all = Files(&site).acl(&rule("client:app", &["acquire-exclusive"], "locks = [\"\"]"));
    let configured = |acl: PathBuf| {
        move |config: &mut Config| {
            config.access.acl = Some(acl);
        }
    };
    let folder = issue_client(&site, "app");
    let running = site.start_configured(configured(all)).await;
    let mut talk = Talk::open(&mut client(&running, &folder).await).await;
    let lease = talk.open_lease().await;
    let mut held = Vec::new();
    for (key, name) in [(1, "keep"), (2, "lose")] {
        let Answer::Acquired(grant) = talk.ask(Call::Acquire(try_acquire(lease.lease, key, name))).await
        else {
            panic!("the lock is free");
        };
        let (request, locks) = (grant.request, vec![exclusive(name)]);
        held.push(proto::HeldLocks {
            request,
            idempotency_key: key,
            locks,
            token: grant.token,
            label: String::new(),
        });
    }
    running.stop().await;

    let some = Files(&site).acl(&rule("client:app", &["acquire-exclusive"], "locks = [\"keep\"]"));
    let running = site.start_configured(configured(some)).await;
    let mut talk = Talk::open(&mut client(&running, &folder).await).await;
    let attach = proto::AttachLeaseRequest { lease: lease.lease, secret: lease.secret };
    assert!(matches!(talk.ask(Call::AttachLease(attach)).await, Answer::LeaseAttached(_)));
    let ids: Vec<_> = held.iter().filter_map(|held| held.request).collect();
    let reclaim = proto::ReclaimRequest { lease: lease.lease, secret: Bytes::new(), held, more: false };
    match talk.ask(Call::Reclaim(reclaim)).await {
        Answer::Reclaimed(outcome) => assert_eq!((outcome.kept, outcome.lost), (vec![ids[0]], vec![ids[1]])),
        other => panic!("it should be reclaimed, this is {other:?}"),
    }
    running.node.handle().drain();
}
