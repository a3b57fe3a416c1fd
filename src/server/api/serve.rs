//! The servers of gRPC and of native connections: their services, bounds and shutdown.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

use super::accept::Acceptor;
use super::door::Door;
use super::locks::LocksService;
use super::native;
use super::options::{ApiOptions, MAX_HEALTH_MESSAGE, MAX_MESSAGE};
use super::server_info::ServerInfo;
use super::shares::Shares;
use crate::access::{Access, LogLimit};
use crate::lock_server::{LockServerHandle, Stage};
use crate::telemetry::Places;
use geolock_api::proto::locks_server::LocksServer;

/// Connections whose handshake is done and that wait to be served; they are taken at once.
const READY: usize = 16;
/// HTTP/2 windows, in bytes: enough for requests that fill a loopback or a network of one site, some 60 MB/s
/// at half a millisecond. They also bound the bytes that clients have sent and the server has not read. In an
/// overloaded server those form a queue in front of every call, and use memory.
const STREAM_WINDOW: u32 = 32 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// The reason why the API stopped before its lock server did.
#[derive(Debug, thiserror::Error)]
#[error("the client API failed: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves clients on `listener` until the lock server has stopped.
///
/// `tls` checks clients' certificates and offers HTTP/2 and the native protocol; it may change, for new
/// connections. `access` authorizes every call. The standard health service reports `SERVING`, for the whole
/// server and for `geolock.v1.Locks`, from the start until the server drains; `Check` needs no
/// authentication, `Watch` does.
pub async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    access: Arc<Access>,
    server: LockServerHandle,
    info: ServerInfo,
    options: ApiOptions,
) -> Result<(), ServeError> {
    let (reporter, health) = health_reporter();
    let stage = server.stage();
    let places = Arc::new(Semaphore::new(options.max_connections));
    server.board().show_places(Places {
        name: "connections",
        help: "Connections of clients, including handshakes",
        free: Arc::clone(&places),
        most: options.max_connections,
    });
    let shares = Arc::new(Shares::new(&options, &server));
    let service = Arc::new(LocksService {
        server,
        access,
        info: Arc::new(info),
        gather_budget: Arc::default(),
        shares,
    });
    let locks = LocksServer::from_arc(Arc::clone(&service)).max_decoding_message_size(MAX_MESSAGE);
    let locks = Door { inner: locks, service: Arc::clone(&service) };
    // A health check contains one name and needs no authentication. A watch of the health does.
    let health = health.max_decoding_message_size(MAX_HEALTH_MESSAGE);
    let health = Door { inner: health, service: Arc::clone(&service) };
    let (ready, connections) = mpsc::channel(READY);
    let (native, native_connections) = mpsc::channel(READY);
    let serving_native = native::serve(native_connections, service, stage.clone(), options.clone());
    let serving = Server::builder()
        .max_concurrent_streams(options.max_streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(options.keep_alive))
        .http2_keepalive_timeout(Some(options.keep_alive))
        .add_service(locks)
        .add_service(health)
        .serve_with_incoming_shutdown(
            ReceiverStream::new(connections),
            reached(stage.clone(), Stage::Stopped),
        );
    let goodbye = options.goodbye;
    let accepting =
        Acceptor { listener, tls, ready, native, options, places, failures: LogLimit::default() }.run();
    let limited = async {
        let serving = async { tokio::join!(serving, serving_native).0 };
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served,
            () = reached(stage.clone(), Stage::Stopped) => {
                // A client may hold a stream open for ever, such as a watch of the health.
                timeout(goodbye, serving).await.unwrap_or(Ok(()))
            }
        }
    };
    let beside = async {
        tokio::join!(accepting, report_health(reporter, stage.clone()));
        pending::<Infallible>().await
    };
    tokio::select! {
        served = limited => Ok(served?),
        never = beside => match never {},
    }
}

/// Waits until the lock server has reached a stage.
pub(super) async fn reached(mut stage: watch::Receiver<Stage>, wanted: Stage) {
    // An error means that the actor has ended without a message: it has stopped all the same.
    stage.wait_for(|stage| *stage >= wanted).await.ok();
}

async fn report_health(reporter: HealthReporter, stage: watch::Receiver<Stage>) {
    reporter.set_serving::<LocksServer<LocksService>>().await;
    reached(stage, Stage::Draining).await;
    reporter.set_service_status("", ServingStatus::NotServing).await;
    reporter.set_not_serving::<LocksServer<LocksService>>().await;
}
