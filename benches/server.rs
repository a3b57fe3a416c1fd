//! The cost of a lock for a client of this datacenter: acquire + release pairs over loopback gRPC with TLS,
//! 1, 16 and 64 in flight on one stream; beside an echo over the same kind of stream in the same run, the
//! cost of transport, TLS and encoding alone.
//!
//! `cargo bench --bench server`. Client and server share the machine and the process. Rounds alternate, so
//! that a busy machine affects both alike; medians count.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod rounds;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use geolock::pki::playground;
use geolock::server::config::Config;
use geolock::server::node::{Node, Sockets};
use geolock_api::names::DcId;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::locks_server::{Locks, LocksServer};
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage, ServerMessage, acquire_request, release_request};
use hdrhistogram::Histogram;
use rounds::{AnyError, Round, median_of};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

const CLUSTER: &str = "bench";
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];

fn main() -> Result<(), AnyError> {
    let dir = tempfile::tempdir()?;
    playground(dir.path(), CLUSTER, [DC])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(dir.path()))
}

const DC: DcId = match DcId::new(0) {
    Some(dc) => dc,
    None => panic!("0 is the id of a datacenter"),
};

async fn run(dir: &Path) -> Result<(), AnyError> {
    let config = Config::alone(CLUSTER, DC, dir);
    let sockets = Sockets::bind(&config.listen)?;
    let locks = sockets.grpc()?;
    let node = Node::start(sockets, config, None).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let echo = listener.local_addr()?;
    let echoing = tokio::spawn(serve_echo(listener, server_tls(dir)?));

    println!("pairs of acquire and release, medians of {ROUNDS} rounds of {ROUND:?}");
    println!(
        "{:>9} {:>12} {:>10} {:>10} {:>12} {:>10} {:>7}",
        "in flight", "pairs/s", "p50 us", "p99 us", "echo pairs/s", "p50 us", "ratio"
    );
    for in_flight in IN_FLIGHT {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(round(dial(locks, dir).await?, in_flight).await?);
            theirs.push(round(dial(echo, dir).await?, in_flight).await?);
        }
        let (pairs, echoes) = (median_of(&ours, |r| r.per_second), median_of(&theirs, |r| r.per_second));
        println!(
            "{in_flight:>9} {pairs:>12.0} {:>10.1} {:>10.1} {echoes:>12.0} {:>10.1} {:>7.2}",
            median_of(&ours, |r| r.p50),
            median_of(&ours, |r| r.p99),
            median_of(&theirs, |r| r.p50),
            pairs / echoes,
        );
    }
    node.handle().drain();
    node.ended().await?;
    echoing.abort();
    Ok(())
}

/// Keeps `in_flight` pairs in progress on one stream, each on its own lock. Measures acquires.
async fn round(mut client: LocksClient<Channel>, in_flight: usize) -> Result<Round, AnyError> {
    let (calls, stream) = mpsc::channel(2 * in_flight + 2);
    let mut answers = client.session(ReceiverStream::new(stream)).await?.into_inner();
    let send = async |tag, call| calls.send(ClientMessage { tag, call: Some(call) }).await;
    send(1, Call::Hello(proto::Hello { revision: 1, client: "bench".into() })).await?;
    send(2, Call::OpenLease(proto::OpenLeaseRequest::default())).await?;
    let lease = loop {
        match answers.message().await?.ok_or("the stream ended")?.answer {
            Some(Answer::LeaseOpened(opened)) => break opened.lease,
            Some(Answer::Welcome(_)) => {}
            other => return Err(format!("a lease was expected, this is {other:?}").into()),
        }
    };
    let mut latencies = Histogram::<u64>::new(3)?;
    let mut asked = vec![Instant::now(); in_flight];
    // Tags identify the pair in flight; idempotency keys only grow.
    let tag = |slot: usize| slot as u64 + 3;
    let mut key = 0;
    for slot in 0..in_flight {
        key += 1;
        send(tag(slot), acquire(lease, key, slot)).await?;
    }
    let mut keys: Vec<u64> = (1..=in_flight as u64).collect();
    let (start, mut pairs) = (Instant::now(), 0_u64);
    while start.elapsed() < ROUND {
        let message = answers.message().await?.ok_or("the stream ended")?;
        let slot = message.tag as usize - 3;
        match message.answer {
            Some(Answer::Acquired(_)) => {
                latencies.record(asked[slot].elapsed().as_nanos() as u64)?;
                send(tag(slot), release(lease, keys[slot])).await?;
            }
            Some(Answer::Released(_)) => {
                pairs += 1;
                key += 1;
                keys[slot] = key;
                asked[slot] = Instant::now();
                send(tag(slot), acquire(lease, key, slot)).await?;
            }
            other => return Err(format!("this is no answer to a pair: {other:?}").into()),
        }
    }
    let time = start.elapsed();
    // The next round uses the same locks.
    send(1, Call::CloseLease(proto::CloseLeaseRequest { lease, secret: Bytes::new() })).await?;
    while answers.message().await?.ok_or("the stream ended")?.tag != 1 {}
    Ok(Round::new(pairs, time, &latencies))
}

fn acquire(lease: u64, key: u64, slot: usize) -> Call {
    let name = Bytes::from(format!("accounts/{slot}"));
    Call::Acquire(proto::AcquireRequest {
        lease,
        secret: Bytes::new(),
        locks: vec![proto::LockMode { name, mode: proto::Mode::Exclusive.into(), home: None }],
        wait: Some(acquire_request::Wait::WaitForever(proto::WaitForever {})),
        idempotency_key: key,
        label: String::new(),
        enough: None,
    })
}

fn release(lease: u64, key: u64) -> Call {
    let target = Some(release_request::Target::IdempotencyKey(key));
    Call::Release(proto::ReleaseRequest { lease, secret: Bytes::new(), target })
}

async fn dial(address: SocketAddr, dir: &Path) -> Result<LocksClient<Channel>, AnyError> {
    let read = |file: &str| fs::read(dir.join("client").join(file));
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.pem")?))
        .identity(Identity::from_pem(read("cert.pem")?, read("key.pem")?))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?.tcp_nodelay(true);
    Ok(LocksClient::new(endpoint.tls_config(tls)?.connect().await?))
}

// ---- the baseline -----------------------------------------------------------------------------------------

fn server_tls(dir: &Path) -> Result<ServerTlsConfig, AnyError> {
    let read = |file: &str| fs::read(dir.join("tls/dc0").join(file));
    Ok(ServerTlsConfig::new()
        .identity(Identity::from_pem(read("cert.pem")?, read("key.pem")?))
        .client_ca_root(Certificate::from_pem(read("ca.pem")?)))
}

async fn serve_echo(listener: TcpListener, tls: ServerTlsConfig) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .tls_config(tls)?
        .add_service(LocksServer::new(Echo))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
}

/// Answers everything at once.
struct Echo;

struct Echoes(Streaming<ClientMessage>);

impl Stream for Echoes {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let answer = |message: ClientMessage| {
            let answer = match message.call {
                Some(Call::Acquire(_)) => Answer::Acquired(proto::AcquireResponse {
                    request: Some(proto::RequestId { dc: 0, n: message.tag }),
                    token: 1 << 60,
                    snapshot: Some(proto::Snapshot::default()),
                    chosen: Vec::new(),
                    revision: 0,
                }),
                Some(Call::OpenLease(_)) => Answer::LeaseOpened(proto::OpenLeaseResponse::default()),
                Some(Call::Hello(_)) => Answer::Welcome(proto::Welcome::default()),
                _ => Answer::Released(proto::ReleaseResponse {}),
            };
            ServerMessage { tag: message.tag, answer: Some(answer) }
        };
        Pin::new(&mut self.0).poll_next(cx).map(|message| message.map(|message| message.map(answer)))
    }
}

macro_rules! only_echo {
    ($($call:ident: $request:ident -> $response:ident),* $(,)?) => {
        #[tonic::async_trait]
        impl Locks for Echo {
            type SessionStream = Echoes;
            type WatchStream = tokio_stream::Empty<Result<proto::WatchResponse, Status>>;
            type WatchLocksStream = tokio_stream::Empty<Result<proto::WatchLocksResponse, Status>>;

            async fn session(
                &self,
                request: Request<Streaming<ClientMessage>>,
            ) -> Result<Response<Echoes>, Status> {
                Ok(Response::new(Echoes(request.into_inner())))
            }

            async fn watch(
                &self,
                _: Request<proto::WatchRequest>,
            ) -> Result<Response<Self::WatchStream>, Status> {
                Err(Status::unimplemented("an echo has only the stream"))
            }

            async fn watch_locks(
                &self,
                _: Request<proto::WatchLocksRequest>,
            ) -> Result<Response<Self::WatchLocksStream>, Status> {
                Err(Status::unimplemented("an echo has only the stream"))
            }

            $(async fn $call(
                &self,
                _: Request<proto::$request>,
            ) -> Result<Response<proto::$response>, Status> {
                Err(Status::unimplemented("an echo has only the stream"))
            })*
        }
    };
}

only_echo! {
    open_lease: OpenLeaseRequest -> OpenLeaseResponse,
    keep_alive: KeepAliveRequest -> KeepAliveResponse,
    close_lease: CloseLeaseRequest -> CloseLeaseResponse,
    acquire: AcquireRequest -> AcquireResponse,
    release: ReleaseRequest -> ReleaseResponse,
    downgrade: DowngradeRequest -> DowngradeResponse,
    amend: AmendRequest -> AmendResponse,
    cancel: CancelRequest -> CancelResponse,
    reclaim: ReclaimRequest -> ReclaimResponse,
    transact: BeginRequest -> StepResponse,
    read: ReadRequest -> StepResponse,
    list_keys: ListKeysRequest -> ListKeysResponse,
    status: StatusRequest -> StatusResponse,
    list_locks: ListLocksRequest -> ListLocksResponse,
    describe_lock: DescribeLockRequest -> DescribeLockResponse,
    top_locks: TopLocksRequest -> TopLocksResponse,
    force_release: ForceReleaseRequest -> ForceReleaseResponse,
    audit: AuditRequest -> AuditResponse,
    list_members: ListMembersRequest -> ListMembersResponse,
    add_member: AddMemberRequest -> AddMemberResponse,
    remove_member: RemoveMemberRequest -> RemoveMemberResponse,
    evict_members: EvictMembersRequest -> EvictMembersResponse,
    recover: RecoverRequest -> RecoverResponse,
    set_policy: SetPolicyRequest -> SetPolicyResponse,
    set_home: SetHomeRequest -> SetHomeResponse,
}
