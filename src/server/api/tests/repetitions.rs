//! An acquire that is sent again under its key, because no answer came, after the rules have changed.
//!
//! Guarantees: docs/guarantees.md#not-promised.

use super::access::{Files, client, issue_client, rule};
use super::site::{Site, Talk, try_acquire};
use geolock_api::proto::cancel_request::Target;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_repetition_says_nothing_about_the_first_call_and_a_cancel_ends_it() {
    let site = Site::new();
    let allow = |who: &str| rule(who, &["acquire-exclusive"], "locks = [\"\"]");
    let acl = Files(&site).acl(&(allow("client:app") + &allow("client:other")));
    let running = site.start_configured(|config| config.access.acl = Some(acl)).await;
    let mut app = Talk::open(&mut client(&running, &issue_client(&site, "app")).await).await;
    let mut other = Talk::open(&mut client(&running, &issue_client(&site, "other")).await).await;
    let (lease, others) = (app.open_lease().await, other.open_lease().await);
    let first = try_acquire(lease.lease, 1, "x");
    assert!(matches!(app.ask(Call::Acquire(first.clone())).await, Answer::Acquired(_)));

    Files(&site).acl(&allow("client:other"));
    assert!(running.node.reloader().reload().await.is_empty());
    assert_eq!(app.refused(Call::Acquire(first)).await, Reason::PermissionDenied);
    // Refused, and it holds the lock.
    assert_eq!(other.refused(Call::Acquire(try_acquire(others.lease, 1, "x"))).await, Reason::NotFree);

    let target = Some(Target::IdempotencyKey(1));
    let cancel = proto::CancelRequest { lease: lease.lease, secret: lease.secret, target };
    assert!(matches!(app.ask(Call::Cancel(cancel)).await, Answer::Cancelled(_)));
    let again = other.ask(Call::Acquire(try_acquire(others.lease, 2, "x"))).await;
    assert!(matches!(again, Answer::Acquired(_)), "{again:?}");
    running.node.handle().drain();
}
