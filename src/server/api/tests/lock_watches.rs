//! Watches of locks over the wire, with a real datacenter behind it.

use bytes::Bytes;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::site::{Caller, Site, acquire, counted, exclusive};
use super::unary::reason;
use crate::replica::LocalConfig;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::watch_locks_response::Event;
use geolock_api::proto::{self, LocksHeld, Mode, Reason, Snapshot, WatchLocksRequest};

fn names(names: &[&'static str]) -> Vec<Bytes> {
    names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect()
}

/// Acquires and releases locks.
impl Caller {
    async fn acquires(&mut self, name: &str) -> proto::AcquireResponse {
        self.acquires_all(vec![exclusive(name)]).await
    }

    async fn acquires_all(&mut self, locks: Vec<proto::LockMode>) -> proto::AcquireResponse {
        let (secret, key) = (self.lease.secret.clone(), self.key());
        let ask = proto::AcquireRequest { secret, locks, ..acquire(self.lease.lease, key, "") };
        self.client.acquire(ask).await.expect("it is free").into_inner()
    }

    async fn releases(&mut self, request: Option<proto::RequestId>) {
        let target = request.map(proto::release_request::Target::Request);
        let (lease, secret) = (self.lease.lease, self.lease.secret.clone());
        let release = proto::ReleaseRequest { lease, secret, target };
        self.client.release(release).await.expect("it is held");
    }
}

async fn begin(
    client: &mut LocksClient<Channel>,
    request: WatchLocksRequest,
) -> Streaming<proto::WatchLocksResponse> {
    let mut responses = client.watch_locks(request).await.expect("it can begin").into_inner();
    assert!(matches!(next(&mut responses).await, Event::Created(_)), "a watch says first where it begins");
    responses
}

async fn next(responses: &mut Streaming<proto::WatchLocksResponse>) -> Event {
    let response = responses.message().await.expect("it lives").expect("it goes on");
    response.event.expect("every response says something")
}

/// Returns the locks that were granted or released.
fn locks(held: LocksHeld) -> Vec<(Bytes, Mode)> {
    assert!(held.token > 0 && held.request.is_some(), "{held:?}");
    held.locks.into_iter().map(|lock| (lock.name.clone(), lock.mode())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_locks_hears_who_holds_them() {
    let (_site, running, mut client) = Site::running().await;
    let mut holder = Caller::new(client.clone()).await;
    let first = holder.acquires("a").await;
    holder.acquires("c/1").await;
    holder.acquires("ab").await;
    let request =
        WatchLocksRequest { names: names(&["a", "b"]), prefixes: names(&["c/"]), ..Default::default() };
    let mut watch = begin(&mut client, request).await;
    assert!(matches!(next(&mut watch).await, Event::HoldersReset(_)));
    for name in ["a", "c/1"] {
        match next(&mut watch).await {
            Event::Granted(held) => {
                assert_eq!(held.label, "test");
                assert_eq!(locks(held), [(Bytes::from(name), Mode::Exclusive)]);
            }
            other => panic!("{name} is held, this is {other:?}"),
        }
    }
    assert!(matches!(next(&mut watch).await, Event::HoldersSynced(_)));
    holder.releases(first.request).await;
    match next(&mut watch).await {
        Event::Released(held) => {
            assert_eq!((held.request, held.token), (first.request, first.token));
            assert_eq!(locks(held), [(Bytes::from("a"), Mode::Exclusive)]);
        }
        other => panic!("a was released, this is {other:?}"),
    }
    let second = holder.acquires("b").await;
    match next(&mut watch).await {
        Event::Granted(held) => assert_eq!((held.request, held.token), (second.request, second.token)),
        other => panic!("b was granted, this is {other:?}"),
    }
    drop((watch, holder, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_followed_is_refused() {
    let (_site, running, mut client) = Site::running().await;
    let from = |seqs| Some(Snapshot { seqs });
    let of = |names: Vec<Bytes>, prefixes: Vec<Bytes>, from| WatchLocksRequest {
        names,
        prefixes,
        from_snapshot: from,
        homed: vec![],
    };
    let a = || names(&["a"]);
    let refused = [
        (of(vec![], vec![], None), Reason::Malformed, Code::InvalidArgument),
        (
            of(vec![a()[0].clone(); 60], vec![a()[0].clone(); 41], None),
            Reason::Malformed,
            Code::InvalidArgument,
        ),
        (of(names(&[""]), vec![], None), Reason::LockNameEmpty, Code::InvalidArgument),
        (of(vec![vec![0; 1_025].into()], vec![], None), Reason::LockNameTooLong, Code::InvalidArgument),
        (of(vec![], vec![vec![0; 1_025].into()], None), Reason::LockNameTooLong, Code::InvalidArgument),
        (of(a(), vec![], from(vec![0, 1])), Reason::UnknownDc, Code::InvalidArgument),
        (of(a(), vec![], from(vec![1_000])), Reason::SnapshotAhead, Code::OutOfRange),
    ];
    for (request, because, code) in refused {
        assert_eq!(reason(client.watch_locks(request.clone()).await), (because, code), "{request:?}");
    }
    begin(&mut client, of(vec![], names(&[""]), None)).await;
    let local = LocalConfig { max_watch_bytes: 1_000, ..LocalConfig::default() };
    let full = Site::new();
    let small = full.start_configured(|config| config.replica.local = local).await;
    let mut client_of_small = full.client(&small).await;
    let request = of(vec![vec![0; 1_000].into()], vec![], None);
    let refusal = client_of_small.watch_locks(request).await;
    assert_eq!(reason(refusal), (Reason::ResourceExhausted, Code::ResourceExhausted));
    drop((client, client_of_small));
    running.stop().await;
    small.stop().await;
}

/// More events occur than a client may leave unread: it is not disconnected, and when it reads again it gets
/// the present holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_grants_begins_anew() {
    let (site, running, mut client) = Site::running().await;
    let mut holder = Caller::new(client.clone()).await;
    let kept = holder.acquires("kept").await;
    // On a connection of its own, because its unread responses fill the window of that connection.
    let all = WatchLocksRequest { prefixes: names(&[""]), ..Default::default() };
    let mut deaf = begin(&mut site.client(&running).await, all).await;
    let many: Vec<_> = (0..800).map(|i| exclusive(format!("{i:01000}"))).collect();
    while counted(&mut client, "watch_events_dropped_total").await == 0 {
        let grant = holder.acquires_all(many.clone()).await;
        holder.releases(grant.request).await;
    }
    let mut anew = 0;
    let mut held = std::collections::BTreeSet::new();
    loop {
        match next(&mut deaf).await {
            Event::HoldersReset(_) => {
                anew += 1;
                held.clear();
            }
            Event::Granted(granted) => drop(held.insert(granted.token)),
            Event::Released(released) => drop(held.remove(&released.token)),
            Event::HoldersSynced(_) if anew >= 2 => break,
            Event::HoldersSynced(_) => {}
            other => panic!("nothing moves, this is {other:?}"),
        }
    }
    assert_eq!(anew, 2, "it keeps up again");
    assert_eq!(held, [kept.token].into());
    drop((deaf, holder, client));
    running.stop().await;
}
