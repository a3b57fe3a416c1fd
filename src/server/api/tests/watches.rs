//! Watches over the wire, with a real datacenter behind it.

use bytes::Bytes;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::site::{Caller, Site, counted};
use super::unary::reason;
use crate::lock_server::LockServerOptions;
use crate::replica::LocalConfig;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::watch_response::Event;
use geolock_api::proto::{self, Reason, Snapshot, Then, change, update};

const BUCKET: Bytes = Bytes::from_static(b"test");

fn prefix(text: &'static str) -> proto::WatchPrefix {
    proto::WatchPrefix { bucket: BUCKET, prefix: Bytes::from_static(text.as_bytes()) }
}

fn put(name: &str, value: &'static str) -> proto::Change {
    let op = Some(update::Op::LwwRegister(Bytes::from_static(value.as_bytes())));
    change_of(name, change::Action::Update(proto::Update { path: vec![], op }))
}

fn removal(name: &str) -> proto::Change {
    change_of(name, change::Action::Remove(proto::Remove {}))
}

fn change_of(name: &str, action: change::Action) -> proto::Change {
    let name = Bytes::copy_from_slice(name.as_bytes());
    proto::Change { key: Some(proto::Key { bucket: BUCKET, name }), action: Some(action) }
}

/// Changes keys.
impl Caller {
    async fn commits(&mut self, changes: Vec<proto::Change>) -> Snapshot {
        let step = proto::Step { changes, reads: vec![], then: Then::Commit.into(), ..Default::default() };
        let begin = proto::BeginRequest {
            lease: self.lease.lease,
            secret: self.lease.secret.clone(),
            idempotency_key: self.key(),
            step: Some(step),
            ..Default::default()
        };
        let done = self.client.transact(begin).await.expect("it is well formed").into_inner();
        done.commit.expect("it committed")
    }
}

/// A watch of a client, with the snapshot from which to resume.
struct Watcher {
    responses: Streaming<proto::WatchResponse>,
    position: Snapshot,
}

impl Watcher {
    async fn begin(client: &mut LocksClient<Channel>, prefixes: &[&'static str]) -> Watcher {
        Watcher::begin_from(client, prefixes, None).await
    }

    async fn begin_from(
        client: &mut LocksClient<Channel>,
        prefixes: &[&'static str],
        from: Option<Snapshot>,
    ) -> Watcher {
        let prefixes = prefixes.iter().map(|text| prefix(text)).collect();
        Watcher::begin_with(client, proto::WatchRequest { prefixes, from_snapshot: from, keys: vec![] }).await
    }

    async fn begin_with(client: &mut LocksClient<Channel>, request: proto::WatchRequest) -> Watcher {
        let mut responses = client.watch(request).await.expect("it can begin").into_inner();
        match responses.message().await.expect("it lives").and_then(|response| response.event) {
            Some(Event::Created(begun)) => {
                Watcher { responses, position: begun.snapshot.expect("it is set") }
            }
            other => panic!("a watch says first where it begins, this is {other:?}"),
        }
    }

    /// Returns the changes of the next commit.
    async fn hears(&mut self) -> Vec<proto::Change> {
        loop {
            match self.next().await {
                Event::Changed(proto::WatchChanged { dc, seq, changes }) => {
                    let dc = usize::try_from(dc).expect("there are few datacenters");
                    if self.position.seqs.len() <= dc {
                        self.position.seqs.resize(dc + 1, 0);
                    }
                    assert!(seq > self.position.seqs[dc], "once, and in order");
                    self.position.seqs[dc] = seq;
                    return changes;
                }
                Event::Progress(reached) => self.position = reached.snapshot.expect("it is set"),
                Event::Created(_) => panic!("a watch begins once"),
            }
        }
    }

    async fn next(&mut self) -> Event {
        let response = self.responses.message().await.expect("it lives").expect("it goes on");
        response.event.expect("every response says something")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_watch_hears_of_its_keys_once_and_in_order() {
    let (_site, running, mut client) = Site::running().await;
    let mut writer = Caller::new(client.clone()).await;
    writer.commits(vec![put("a/0", "before anybody watched")]).await;
    let mut one = Watcher::begin(&mut client, &["a/"]).await;
    let mut other = Watcher::begin(&mut client, &["b/", "a/2"]).await;
    writer.commits(vec![put("a/1", "x"), put("b/1", "y"), put("c", "nobody's")]).await;
    writer.commits(vec![put("c", "nobody's")]).await;
    let last = writer.commits(vec![put("a/2", "z"), removal("a/1")]).await;
    assert_eq!(one.hears().await, [put("a/1", "x")]);
    assert_eq!(one.hears().await, [put("a/2", "z"), removal("a/1")]);
    assert_eq!(other.hears().await, [put("b/1", "y")]);
    assert_eq!(other.hears().await, [put("a/2", "z")]);
    assert_eq!((&one.position, &other.position), (&last, &last));
    drop((one, other, writer, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_from_what_it_was_told_and_its_session_closes_with_it() {
    let (_site, running, mut client) = Site::running().await;
    let mut writer = Caller::new(client.clone()).await;
    let mut watcher = Watcher::begin(&mut client, &[""]).await;
    writer.commits(vec![put("k", "1")]).await;
    assert_eq!(watcher.hears().await, [put("k", "1")]);
    let position = watcher.position.clone();
    drop(watcher);
    // The server learns soon after that the stream is over; its status shows it.
    while counted(&mut client, "watches").await != 0 {
        tokio::task::yield_now().await;
    }
    writer.commits(vec![put("k", "2")]).await;
    writer.commits(vec![put("k", "3")]).await;
    let mut again = Watcher::begin_from(&mut client, &[""], Some(position.clone())).await;
    assert_eq!(again.position, position);
    assert_eq!(again.hears().await, [put("k", "2")]);
    assert_eq!(again.hears().await, [put("k", "3")]);
    drop((again, writer, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_over_a_restart() {
    let (site, running, mut client) = Site::running().await;
    let mut writer = Caller::new(client.clone()).await;
    let position = writer.commits(vec![put("k", "1")]).await;
    let mut watcher = Watcher::begin(&mut client, &["k"]).await;
    writer.commits(vec![put("k", "2")]).await;
    assert_eq!(watcher.hears().await, [put("k", "2")]);
    drop((writer, client));
    running.node.handle().drain();
    running.node.ended().await.expect("nothing went wrong");
    let (ended, code) = reason(watcher.responses.message().await);
    assert_eq!((ended, code), (Reason::Unavailable, Code::Unavailable));

    let running = site.start().await;
    let mut client = site.client(&running).await;
    // One watch has missed an event, the other one none.
    let mut behind = Watcher::begin_from(&mut client, &["k"], Some(position)).await;
    assert_eq!(behind.hears().await, [put("k", "2")]);
    let mut watcher = Watcher::begin_from(&mut client, &["k"], Some(watcher.position)).await;
    let mut writer = Caller::new(client.clone()).await;
    writer.commits(vec![put("k", "3")]).await;
    assert_eq!(watcher.hears().await, [put("k", "3")]);
    assert_eq!(behind.hears().await, [put("k", "3")]);
    drop((watcher, behind, writer, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_watch_hears_how_far_it_is_and_one_that_stayed_behind_is_too_old() {
    let (_site, running, mut client) = Site::running().await;
    let mut writer = Caller::new(client.clone()).await;
    let mut quiet = Watcher::begin(&mut client, &["quiet"]).await;
    let begun = quiet.position.clone();
    let value = "x".repeat(900_000).leak();
    for _ in 0..6 {
        writer.commits(vec![put("large", value)]).await;
    }
    while quiet.position.seqs.first().is_none_or(|seq| *seq < 5) {
        match quiet.next().await {
            Event::Progress(reached) => quiet.position = reached.snapshot.expect("it is set"),
            other => panic!("nothing that it follows was changed, this is {other:?}"),
        }
    }
    let watch =
        |from| proto::WatchRequest { prefixes: vec![prefix("quiet")], from_snapshot: from, keys: vec![] };
    let too_old = client.watch(watch(Some(begun))).await;
    assert_eq!(reason(too_old), (Reason::WatchTooOld, Code::OutOfRange));
    let mut again = Watcher::begin_from(&mut client, &["quiet"], Some(quiet.position.clone())).await;
    writer.commits(vec![put("quiet", "1")]).await;
    assert_eq!(again.hears().await, [put("quiet", "1")]);
    drop((quiet, again, writer, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_followed_alone() {
    let (_site, running, mut client) = Site::running().await;
    let mut writer = Caller::new(client.clone()).await;
    let keys = vec![proto::Key { bucket: BUCKET, name: Bytes::from_static(b"k") }];
    let request = proto::WatchRequest { keys, ..Default::default() };
    let mut watcher = Watcher::begin_with(&mut client, request).await;
    writer.commits(vec![put("k", "1"), put("kk", "2")]).await;
    assert_eq!(watcher.hears().await, [put("k", "1")]);
    drop((watcher, writer, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_watched_is_refused_before_anything_is_told() {
    let (_site, running, mut client) = Site::running().await;
    let bare = |bucket: Vec<u8>, prefix: Vec<u8>| {
        vec![proto::WatchPrefix { bucket: bucket.into(), prefix: prefix.into() }]
    };
    let from = |seqs| Some(Snapshot { seqs });
    let refused = [
        (vec![], None, Reason::Malformed, Code::InvalidArgument),
        (vec![prefix("a"); 101], None, Reason::Malformed, Code::InvalidArgument),
        (bare(vec![], vec![]), None, Reason::InvalidKey, Code::InvalidArgument),
        (bare(vec![0; 256], vec![]), None, Reason::InvalidKey, Code::InvalidArgument),
        (bare(vec![0], vec![0; 1_025]), None, Reason::InvalidKey, Code::InvalidArgument),
        (vec![prefix("a")], from(vec![0, 1]), Reason::UnknownDc, Code::InvalidArgument),
        (vec![prefix("a")], from(vec![1_000]), Reason::SnapshotAhead, Code::OutOfRange),
        (vec![prefix("a")], from(vec![0; 65]), Reason::Malformed, Code::InvalidArgument),
    ];
    for (prefixes, from, because, code) in refused {
        let request = proto::WatchRequest { prefixes, from_snapshot: from, keys: vec![] };
        assert_eq!(reason(client.watch(request.clone()).await), (because, code), "{request:?}");
    }
    let most = [vec![prefix("a"); 99], bare(vec![0xff; 255], vec![0xff; 1_024])].concat();
    client
        .watch(proto::WatchRequest { prefixes: most, ..Default::default() })
        .await
        .expect("that is allowed");
    drop(client);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_cut_off_and_others_go_on() {
    let site = Site::new();
    let options = LockServerOptions { session_backlog: 1 << 20, ..LockServerOptions::default() };
    let running = site.start_with(LocalConfig::default(), options).await;
    let mut client = site.client(&running).await;
    let mut writer = Caller::new(client.clone()).await;
    // On a connection of its own, because its unread responses fill the window of that connection.
    let mut deaf = Watcher::begin(&mut site.client(&running).await, &["large"]).await;
    let mut reader = Watcher::begin(&mut client, &["small"]).await;
    let value = "x".repeat(500_000).leak();
    while counted(&mut client, "watches").await == 2 {
        writer.commits(vec![put("large", value), put("small", "1")]).await;
        assert_eq!(reader.hears().await, [put("small", "1")]);
    }
    let end = loop {
        if let Err(end) = deaf.responses.message().await {
            break end;
        }
    };
    assert_eq!(reason(Err::<(), _>(end)), (Reason::SlowReader, Code::ResourceExhausted));
    drop((deaf, reader, writer, client));
    running.stop().await;
}
