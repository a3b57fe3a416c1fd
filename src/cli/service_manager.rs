//! Notifications to systemd, or another service manager with its protocol, about the server that it started:
//! ready, alive, stopping.
//!
//! They are datagrams to the socket in `NOTIFY_SOCKET`; without it nothing is sent. See sd_notify(3).

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use tokio::time::interval;

use crate::lock_server::LockServerHandle;

/// The service manager, if there is one.
pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// How often it expects a sign that the server is alive.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Returns the one that started this process.
    pub(super) fn of_environment() -> ServiceManager {
        let variable = |name| std::env::var(name).ok();
        let socket = variable("NOTIFY_SOCKET").and_then(|address| {
            let connected = connect(&address);
            connected
                .inspect_err(|error| tracing::warn!(address, %error, "the service manager is not notified"))
                .ok()
        });
        let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = variable("WATCHDOG_USEC").filter(|_| is_ours).and_then(|micros| micros.parse().ok());
        ServiceManager { socket, watchdog: watchdog.filter(|micros| *micros > 0).map(Duration::from_micros) }
    }

    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Reports that the server is alive, as long as `/livez` would.
    pub(super) async fn say_alive(self: std::sync::Arc<Self>, server: LockServerHandle) {
        let Some(watchdog) = self.watchdog else { return };
        let mut tick = interval(watchdog / 2);
        loop {
            tick.tick().await;
            if server.board().alive(Instant::now()).is_ok() {
                self.tell("WATCHDOG=1");
            }
        }
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::debug!(%error, state, "the service manager was not notified");
        }
    }
}

fn connect(address: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match address.strip_prefix('@') {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    Ok(socket)
}
