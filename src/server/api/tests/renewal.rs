//! Replacement of certificates while clients are connected.

use std::fs;
use std::time::{Duration, SystemTime};

use super::site::{Running, Site, Talk, dial};
use crate::lock_server::fakes::dc;
use crate::pki::{Authority, Existing, Leaf, Role, Validity, playground};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, StatusResponse};

fn issue(site: &Site, existing: Existing, validity: Validity) {
    let authority = Authority::load(&site.folder("ca")).expect("the playground made it");
    let leaf = Leaf { role: Role::Dc(dc(0)), hosts: vec!["localhost".into()], validity };
    authority.issue(&site.folder("tls/dc0"), &leaf, existing).expect("it is issued");
}

async fn status(running: &Running, site: &Site) -> StatusResponse {
    let channel = dial(running.address, &site.folder("client")).await.expect("it is let in");
    LocksClient::new(channel).status(proto::StatusRequest {}).await.expect("it is up").into_inner()
}

async fn alive(talk: &mut Talk, lease: u64) {
    let keep = proto::KeepAliveRequest { lease, secret: bytes::Bytes::new() };
    assert!(matches!(talk.ask(Call::KeepAlive(keep)).await, Answer::KeptAlive(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_shown_to_new_connections_and_drops_none() {
    let site = Site::new();
    let running = site.start().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;

    // A new authority: a client that trusts only the new one is served only after the change.
    fs::remove_dir_all(site.folder("ca")).expect("it was there");
    playground(site.folder("").as_path(), "test", [dc(0)]).expect("it mends the rest");
    assert!(dial(running.address, &site.folder("client")).await.is_err(), "the old certificate");
    assert!(running.node.reloader().reload().await.is_empty());
    let shown = status(&running, &site).await;
    let names: Vec<_> = shown.certificates.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["tls.dc", "tls.api"]);
    assert!(shown.certificates.iter().all(|one| !one.expires_soon && one.failure.is_empty()));
    alive(&mut talk, lease).await;
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_leaves_the_old_certificate_and_is_said() {
    let site = Site::new();
    let running = site.start().await;
    let folder = site.folder("tls/dc0");
    let (key, cert) = (folder.join("key.pem"), folder.join("cert.pem"));
    let good_key = fs::read(&key).expect("the playground made it");
    fs::copy(site.folder("client").join("key.pem"), &key).expect("it is written");
    let failures = running.node.reloader().reload().await;
    assert_eq!(failures.len(), 2, "one folder, used twice: {failures:?}");
    assert!(failures.iter().all(|failure| failure.to_string().contains("is not the key of")));
    let shown = status(&running, &site).await;
    assert!(shown.certificates.iter().all(|one| one.failure.contains("key.pem") && one.expires_in_ms > 0));

    fs::copy(site.folder("client").join("cert.pem"), &cert).expect("it is written");
    let failures = running.node.reloader().reload().await;
    assert!(failures[0].to_string().contains("geolock://test/client/playground"), "{failures:?}");
    status(&running, &site).await;

    fs::write(&key, good_key).expect("it is written");
    issue(&site, Existing::Replace, Validity::days(30));
    assert!(running.node.reloader().reload().await.is_empty());
    let shown = status(&running, &site).await;
    let days_29 = 29 * 24 * 3_600_000;
    assert!(shown.certificates.iter().all(|one| one.failure.is_empty() && one.expires_in_ms > days_29));
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_expires_soon_says_so_until_it_is_renewed() {
    let site = Site::new();
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 3_600);
    let old = Validity { from: now - 300 * day, until: now + 6 * day };
    issue(&site, Existing::Replace, old);
    let running = site.start().await;
    assert!(running.node.reloader().reload().await.is_empty());
    let shown = status(&running, &site).await;
    assert!(shown.certificates.iter().all(|one| one.expires_soon), "{:?}", shown.certificates);
    // For a certificate that lives for seven days, six remaining days are enough.
    issue(&site, Existing::Replace, Validity { from: now - day, until: now + 6 * day });
    assert!(running.node.reloader().reload().await.is_empty());
    let shown = status(&running, &site).await;
    assert!(shown.certificates.iter().all(|one| !one.expires_soon), "{:?}", shown.certificates);
    running.node.handle().drain();
}
