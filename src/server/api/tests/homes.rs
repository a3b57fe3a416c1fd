//! Locks with a home over the wire, with a real datacenter behind it.

use tonic::Code;

use super::access::{Files, client, issue_client, rule};
use super::site::{Site, Talk, acquire, exclusive};
use super::unary::reason;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::watch_locks_response::Event;
use geolock_api::proto::{self, Reason};

const UNKNOWN: (Reason, Code) = (Reason::UnknownDc, Code::InvalidArgument);

fn homed(home: u32, name: &str) -> proto::LockMode {
    proto::LockMode { home: Some(home), ..exclusive(name) }
}

fn ask(lease: u64, key: u64, locks: Vec<proto::LockMode>) -> Call {
    Call::Acquire(proto::AcquireRequest { locks, ..acquire(lease, key, "") })
}

fn describe(name: &'static str, home: Option<u32>) -> proto::DescribeLockRequest {
    proto::DescribeLockRequest { name: name.into(), home }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_a_lock_is_named_its_home_is() {
    let (site, running, mut operator) = Site::running().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    // Both at once: two locks.
    let both = ask(lease, 1, vec![exclusive("a"), homed(0, "a")]);
    assert!(matches!(talk.ask(both).await, Answer::Acquired(_)));
    for home in [None, Some(0)] {
        let lock = operator.describe_lock(describe("a", home)).await.expect("it is up").into_inner().lock;
        let lock = lock.expect("described");
        assert_eq!((lock.home, lock.holders.len()), (home, 1));
    }
    let list = proto::ListLocksRequest { prefix: "a".into(), ..Default::default() };
    let listed = operator.list_locks(list).await.expect("it is up").into_inner().locks;
    let mut homes: Vec<Option<u32>> = listed.iter().map(|lock| lock.home).collect();
    homes.sort_unstable();
    assert_eq!(homes, [None, Some(0)]);

    let watch = |names: Vec<&'static str>, homes: Vec<u32>, prefixes: Vec<&'static str>| {
        let homed = homes.into_iter().map(|home| proto::HomedName { name: "a".into(), home });
        proto::WatchLocksRequest {
            names: names.into_iter().map(Into::into).collect(),
            prefixes: prefixes.into_iter().map(Into::into).collect(),
            homed: homed.collect(),
            from_snapshot: None,
        }
    };
    let follows = [
        (watch(vec!["a"], vec![], vec![]), vec![None]),
        (watch(vec![], vec![0], vec![]), vec![Some(0)]),
        (watch(vec![], vec![], vec![""]), vec![None, Some(0)]),
    ];
    for (request, expected) in follows {
        let mut events = operator.watch_locks(request).await.expect("it can begin").into_inner();
        let mut homes = Vec::new();
        loop {
            match events.message().await.expect("it lives").and_then(|response| response.event) {
                Some(Event::Granted(held)) => homes.extend(held.locks.iter().map(|lock| lock.home)),
                Some(Event::HoldersSynced(_)) => break,
                _ => {}
            }
        }
        homes.sort_unstable();
        assert_eq!(homes, expected);
    }

    let force = |home| proto::ForceReleaseRequest { name: "a".into(), reason: "it hangs".into(), home };
    let none = operator.force_release(force(None)).await.expect("allowed").into_inner().released;
    assert_eq!((none.len(), none[0].home), (1, None), "the request lost both");
    assert!(matches!(talk.hear().await, Ok(Some((0, Answer::LockLost(_))))));
    assert!(matches!(talk.ask(ask(lease, 2, vec![homed(0, "a")])).await, Answer::Acquired(_)));
    let plain = operator.force_release(force(None)).await.expect("allowed").into_inner().released;
    assert!(plain.is_empty(), "that is another lock");
    let taken = operator.force_release(force(Some(0))).await.expect("allowed").into_inner();
    assert_eq!((taken.released[0].home, taken.lock.expect("described").home), (Some(0), Some(0)));
    let audit = operator.audit(proto::AuditRequest {}).await.expect("allowed").into_inner().records;
    assert_eq!(audit.iter().map(|record| record.home).collect::<Vec<_>>(), [None, Some(0)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_that_is_no_member_is_refused_everywhere() {
    let (site, running, mut operator) = Site::running().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    for (key, home) in [(1, 1), (2, 63), (3, 64), (4, u32::MAX)] {
        let both = ask(lease, 2 * key, vec![exclusive("a"), homed(home, "a")]);
        assert_eq!(talk.refused(both).await, Reason::UnknownDc);
        let wait = Some(proto::begin_locks::Wait::TryOnce(proto::TryOnce {}));
        let begin = proto::BeginRequest {
            lease,
            idempotency_key: 2 * key + 1,
            locks: Some(proto::BeginLocks { locks: vec![homed(home, "a")], wait, label: String::new() }),
            step: Some(proto::Step { then: proto::Then::Commit.into(), ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(talk.refused(Call::Begin(begin)).await, Reason::UnknownDc);
        let described = operator.describe_lock(describe("a", Some(home))).await;
        assert_eq!(reason(described), UNKNOWN);
        let (name, why) = ("a".into(), "it hangs".into());
        let force = proto::ForceReleaseRequest { name, reason: why, home: Some(home) };
        assert_eq!(reason(operator.force_release(force).await), UNKNOWN);
        let watched = vec![proto::HomedName { name: "a".into(), home }];
        let watch = proto::WatchLocksRequest { homed: watched, ..Default::default() };
        assert_eq!(reason(operator.watch_locks(watch).await), UNKNOWN);
    }
    // Nothing is held or waits.
    assert!(matches!(talk.ask(ask(lease, 20, vec![exclusive("a")])).await, Answer::Acquired(_)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_rules_match_the_bytes_whatever_the_home() {
    let site = Site::new();
    let rules = rule("client:app", &["acquire-exclusive"], "locks = [\"jobs/\"]");
    let acl = Files(&site).acl(&rules);
    let running = site.start_configured(|config| config.access.acl = Some(acl)).await;
    let mut app = client(&running, &issue_client(&site, "app")).await;
    let mut talk = Talk::open(&mut app).await;
    let lease = talk.open_lease().await.lease;
    assert!(matches!(talk.ask(ask(lease, 1, vec![homed(0, "jobs/a")])).await, Answer::Acquired(_)));
    assert_eq!(talk.refused(ask(lease, 2, vec![homed(0, "a")])).await, Reason::PermissionDenied);
    running.stop().await;
}
