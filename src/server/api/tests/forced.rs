//! Force release by an operator: over TLS, with a real datacenter behind it.

use std::time::Duration;

use bytes::Bytes;
use tonic::Code;

use super::access::{DENIED, Files, client, issue_client, metric, rule, without};
use super::site::{Site, Talk, acquire, counted, exclusive, release};
use super::unary::reason;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Mode, Reason, Then};

fn force(name: &'static str, reason: &str) -> proto::ForceReleaseRequest {
    proto::ForceReleaseRequest { name: name.into(), reason: reason.into(), home: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_victim_and_the_audit_know_who_took_it_and_why() {
    let (site, running, mut operator) = Site::running().await;
    let mut victim = site.client(&running).await;
    let mut talk = Talk::open(&mut victim).await;
    let lease = talk.open_lease().await.lease;
    let ask = proto::AcquireRequest { locks: vec![exclusive("a"), exclusive("b")], ..acquire(lease, 1, "a") };
    let Answer::Acquired(grant) = talk.ask(Call::Acquire(ask)).await else { panic!("it is free") };

    let done = operator.force_release(force("a", "it hangs")).await.expect("allowed").into_inner();
    let [taken] = &done.released[..] else { panic!("one held it: {done:?}") };
    let forced =
        Some(proto::ForceReleased { operator: "client playground".into(), reason: "it hangs".into() });
    assert!(taken.at_ms > 1_700_000_000_000);
    let expected = proto::AuditRecord {
        home: None,
        number: 1,
        at_ms: taken.at_ms,
        force_released: forced.clone(),
        name: Bytes::from_static(b"a"),
        mode: Mode::Exclusive.into(),
        request: grant.request,
        token: grant.token,
        label: "test".into(),
        lease,
        locks: 2,
    };
    assert_eq!(*taken, expected);
    assert!(done.lock.is_some_and(|lock| lock.holders.is_empty()));
    let told = talk.hear().await.expect("it is up").expect("it goes on");
    let lost = proto::LockLost { lease, request: grant.request, force_released: forced };
    assert_eq!(told, (0, Answer::LockLost(lost)));
    // The lease lives on, and a release of the lost locks names the operator.
    let Answer::Error(gone) = talk.ask(Call::Release(release(lease, 1))).await else { panic!("it is gone") };
    assert_eq!(gone.reason(), Reason::ForceReleased);
    assert!(gone.message.contains("client playground: it hangs"), "{}", gone.message);
    let Answer::Acquired(next) = talk.ask(Call::Acquire(acquire(lease, 2, "b"))).await else {
        panic!("it is free again")
    };
    assert!(next.token > grant.token);

    let none = operator.force_release(force("a", "again")).await.expect("allowed").into_inner();
    assert!(none.released.is_empty(), "nobody holds it");
    let audit = operator.audit(proto::AuditRequest {}).await.expect("allowed").into_inner();
    assert_eq!(audit.records, [expected]);
    assert_eq!(counted(&mut operator, "force_releases_total").await, 1);
    // Metrics are published from time to time.
    let published = async { while !metric(&running, "geolock_force_releases_total 1").await {} };
    tokio::time::timeout(Duration::from_secs(60), published).await.expect("it is counted");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_locks_were_taken_is_refused_with_the_reason() {
    let (site, running, mut operator) = Site::running().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    let wait = Some(proto::begin_locks::Wait::TryOnce(proto::TryOnce {}));
    let locks = Some(proto::BeginLocks { locks: vec![exclusive("a")], wait, label: "txn".into() });
    let step = |then: Then| Some(proto::Step { then: then.into(), ..Default::default() });
    let begin = proto::BeginRequest {
        lease,
        idempotency_key: 1,
        locks,
        step: step(Then::Continue),
        ..Default::default()
    };
    assert!(matches!(talk.ask(Call::Begin(begin)).await, Answer::Stepped(_)));
    let done = operator.force_release(force("a", "it hangs")).await.expect("allowed").into_inner();
    assert_eq!(done.released[0].label, "txn");
    assert!(matches!(talk.hear().await, Ok(Some((0, Answer::LockLost(_))))));
    let commit =
        proto::StepRequest { lease, idempotency_key: 1, step: step(Then::Commit), ..Default::default() };
    let Answer::Error(error) = talk.ask(Call::Step(commit)).await else { panic!("it cannot commit") };
    assert_eq!(error.reason(), Reason::ForceReleased);
    let message = error.message;
    assert!(message.contains("client playground") && message.contains("it hangs"), "{message}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_what_no_rule_lets_them_take() {
    let site = Site::new();
    let all = "locks = [\"\"]";
    let acl = [
        rule("client:holder", &["acquire-exclusive", "describe"], all),
        rule("client:night-shift", &["force-release"], "locks = [\"jobs/\"]"),
        rule("client:auditor", &["admin"], ""),
    ];
    let acl = Files(&site).acl(&acl.concat());
    let running = site.start_configured(|config| config.access.acl = Some(acl)).await;
    let mut holder = client(&running, &issue_client(&site, "holder")).await;
    let mut shift = client(&running, &issue_client(&site, "night-shift")).await;
    let mut auditor = client(&running, &issue_client(&site, "auditor")).await;
    let mut talk = Talk::open(&mut holder).await;
    let lease = talk.open_lease().await.lease;
    for (key, name) in [(1, "jobs/a"), (2, "b")] {
        assert!(matches!(talk.ask(Call::Acquire(acquire(lease, key, name))).await, Answer::Acquired(_)));
    }

    assert_eq!(reason(holder.force_release(force("jobs/a", "mine")).await), DENIED);
    assert_eq!(reason(auditor.force_release(force("jobs/a", "mine")).await), DENIED);
    assert_eq!(reason(shift.force_release(force("b", "not mine")).await), DENIED);
    assert!(metric(&running, "geolock_access_denied_total{action=\"force-release\"} 3").await);
    let done = shift.force_release(force("jobs/a", "it hangs")).await.expect("allowed").into_inner();
    assert_eq!(
        done.released[0].force_released.as_ref().map(|forced| &*forced.operator),
        Some("client night-shift")
    );

    assert_eq!(reason(shift.audit(proto::AuditRequest {}).await), DENIED);
    let audit = auditor.audit(proto::AuditRequest {}).await.expect("allowed").into_inner();
    assert_eq!(audit.records, done.released);
    running.stop().await;
}

/// The call of an operator, its caller with the action and the resource that are denied, and how often.
type Refusal<'a> = (&'a str, &'a str, &'a str, u64);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_operators_were_refused_is_in_the_audit() {
    let site = Site::new();
    let acl = Files(&site).acl(&rule("client:auditor", &["admin"], ""));
    let tokens = site.folder("tokens");
    std::fs::write(&tokens, "").expect("there is room");
    let running = site
        .start_configured(|config| {
            config.access.acl = Some(acl);
            config.access.tokens = Some(tokens);
        })
        .await;
    let mut bob = client(&running, &issue_client(&site, "bob")).await;
    let mut mallory = client(&running, &issue_client(&site, "mallory")).await;
    let mut stranger = client(&running, &without(&site)).await;
    let mut auditor = client(&running, &issue_client(&site, "auditor")).await;
    assert_eq!(reason(bob.force_release(force("a", "mine")).await), DENIED);
    // Other calls are not among them.
    assert_eq!(reason(bob.list_locks(proto::ListLocksRequest::default()).await), DENIED);
    assert_eq!(reason(bob.audit(proto::AuditRequest {}).await), DENIED);
    for _ in 0..3 {
        assert_eq!(reason(stranger.force_release(force("a", "mine")).await).0, Reason::Unauthenticated);
    }
    let evict = proto::EvictMembersRequest { dcs: vec![1], ..Default::default() };
    assert_eq!(reason(mallory.evict_members(evict).await), DENIED);
    assert_eq!(reason(mallory.set_policy(proto::SetPolicyRequest::default()).await), DENIED);
    for name in ["b", "a", "b"] {
        assert_eq!(reason(mallory.force_release(force(name, "now")).await), DENIED);
    }

    let audit = auditor.audit(proto::AuditRequest {}).await.expect("allowed").into_inner();
    let shown =
        |it: &proto::RefusalRecord| (it.call.clone(), it.caller.clone(), it.resource.clone(), it.count);
    let expected: [Refusal<'_>; 7] = [
        ("ForceRelease", "client bob", "the lock \"a\"", 1),
        ("Audit", "client bob", "this server", 1),
        ("ForceRelease", "", "", 3),
        ("EvictMembers", "client mallory", "this server", 1),
        ("SetPolicy", "client mallory", "this server", 1),
        ("ForceRelease", "client mallory", "the lock \"a\"", 1),
        ("ForceRelease", "client mallory", "the lock \"b\"", 2),
    ];
    let expected =
        expected.map(|(call, caller, on, count)| (call.to_owned(), caller.to_owned(), on.to_owned(), count));
    assert_eq!(audit.refusals.iter().map(shown).collect::<Vec<_>>(), expected);
    assert_eq!(audit.refusals_dropped, 0);
    for it in &audit.refusals {
        assert!(it.first_at_ms > 1_700_000_000_000 && it.first_at_ms <= it.last_at_ms, "{it:?}");
        assert!(it.address.starts_with("127.0.0.1:"), "{it:?}");
        let (action, why) = match (&*it.caller, &*it.call) {
            ("", _) => ("", "token"),
            (_, "ForceRelease") => ("force-release", "api.acl"),
            _ => ("admin", "api.acl"),
        };
        assert!(it.action == action && it.reason.contains(why), "{it:?}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_refused_and_takes_nothing() {
    let (site, running, mut operator) = Site::running().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    assert!(matches!(talk.ask(Call::Acquire(acquire(lease, 1, "a"))).await, Answer::Acquired(_)));
    let malformed = (Reason::Malformed, Code::InvalidArgument);
    for wrong in ["", "  ", "a\nb", &"x".repeat(257)] {
        assert_eq!(reason(operator.force_release(force("a", wrong)).await), malformed, "{wrong:?}");
    }
    let unnamed = operator.force_release(force("", "why")).await;
    assert_eq!(reason(unnamed), (Reason::LockNameEmpty, Code::InvalidArgument));
    let lock = operator.describe_lock(proto::DescribeLockRequest { name: "a".into(), home: None }).await;
    assert_eq!(lock.expect("it is up").into_inner().lock.expect("described").holders.len(), 1);
    running.stop().await;
}
