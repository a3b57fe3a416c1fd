//! The options by which every client subcommand finds its server.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::failure::{Code, Failure, OrFail as _};
use super::state_dir;
use geolock_client::{
    AdminClient, Client, ClientConfig, ClientError, ClientTls, ClientToken, ReadClient, Reason, Transport,
};

/// Without these options, clients talk to the first datacenter of the playground that `geolock dev` starts.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ConnectArgs {
    /// Endpoints of the server of your datacenter, tried in turn [default: the first of the playground, or
    /// 127.0.0.1:7400]
    #[arg(long, global = true, help_heading = HEADING, env = "GEOLOCK_CONNECT", value_name = "HOST:PORT,..", value_delimiter = ',', value_parser = endpoint)]
    connect: Vec<String>,
    /// Folder with ca.pem, cert.pem and key.pem, as `geolock ca issue` makes them; ca.pem alone if there is a
    /// token [default: that of the playground]
    #[arg(long, global = true, help_heading = HEADING, env = "GEOLOCK_TLS", value_name = "DIR")]
    tls: Option<PathBuf>,
    /// File with a token, as `geolock token new` makes it: authenticates the client instead of a certificate
    #[arg(long, global = true, help_heading = HEADING, env = "GEOLOCK_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Datacenters to connect to, one server of each.
#[derive(clap::Args, Clone, Debug)]
pub struct Places {
    /// Endpoint of a server of each datacenter; the order numbers the datacenters
    #[arg(long, help_heading = HEADING, value_name = "HOST:PORT,..", value_delimiter = ',', value_parser = endpoint, conflicts_with = "shape")]
    connect: Vec<String>,
    /// Folder with ca.pem, cert.pem and key.pem, as `geolock ca issue` makes them; ca.pem alone if there is a
    /// token [default: the one in GEOLOCK_TLS, or that of the playground]
    #[arg(long, help_heading = HEADING, value_name = "DIR", requires = "connect")]
    tls: Option<PathBuf>,
    /// File with a token, as `geolock token new` makes it: authenticates the client instead of a certificate
    #[arg(long, help_heading = HEADING, value_name = "FILE", requires = "connect")]
    token_file: Option<PathBuf>,
}

impl Places {
    /// Returns true if none was named.
    pub fn is_empty(&self) -> bool {
        self.connect.is_empty()
    }

    /// Returns a client of each, in their order.
    pub async fn connect_all(&self, transport: Transport) -> Result<Vec<Client>, Failure> {
        let mut clients = Vec::new();
        for place in &self.connect {
            let args = ConnectArgs {
                connect: vec![place.clone()],
                tls: self.tls.clone().or_else(|| std::env::var_os("GEOLOCK_TLS").map(PathBuf::from)),
                token_file: self.token_file.clone(),
            };
            clients.push(args.connect(|config| config.transport = transport).await?);
        }
        Ok(clients)
    }
}

const HEADING: &str = "Connection";
/// Time limit of each attempt to connect to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl ConnectArgs {
    /// Connects a client that can hold locks. `change`: the differences of this subcommand from the default
    /// configuration.
    pub async fn connect(&self, change: impl FnOnce(&mut ClientConfig)) -> Result<Client, Failure> {
        let mut config = self.config()?;
        change(&mut config);
        Client::connect(config).await.map_err(|error| self.explain(error))
    }

    /// Connects a client that only reads.
    pub async fn read_client(&self) -> Result<ReadClient, Failure> {
        ReadClient::connect(self.config()?).await.map_err(|error| self.explain(error))
    }

    /// Connects an operator's client, for force releases, their list, and the members.
    pub async fn admin_client(&self) -> Result<AdminClient, Failure> {
        AdminClient::connect(self.config()?).await.map_err(|error| self.explain(error))
    }

    fn config(&self) -> Result<ClientConfig, Failure> {
        let tls = self.tls()?;
        // The folder `client` is in that of its playground, which knows the port.
        let folder = match &self.tls {
            Some(dir) => dir.parent().map(Path::to_owned),
            None => state_dir::default_playground(),
        };
        let port = folder.map_or(state_dir::BASE_PORT, |folder| state_dir::port(&folder));
        let playground = format!("127.0.0.1:{port}");
        let endpoints = if self.connect.is_empty() { vec![playground] } else { self.connect.clone() };
        let mut config = ClientConfig::new(endpoints, tls);
        let token = self.token_file.as_ref().map(ClientToken::from_file);
        config.token = token.transpose().map_err(failure)?;
        config.connect_timeout = CONNECT_TIMEOUT;
        config.name = concat!("geolock ", env!("CARGO_PKG_VERSION")).into();
        Ok(config)
    }

    fn tls(&self) -> Result<ClientTls, Failure> {
        if let Some(dir) = &self.tls {
            return read(dir).or_fail(Code::Usage);
        }
        let playground = state_dir::default_playground().map(|data| data.join("client"));
        match playground.filter(|dir| dir.exists()) {
            Some(dir) => read(&dir).or_fail(Code::Usage),
            None => Err(Failure::new(
                Code::Unreachable,
                anyhow!(
                    "no playground is running: start one with `geolock dev`, or say which server with \
                     --connect HOST:PORT and --tls DIR"
                ),
            )),
        }
    }

    fn explain(&self, error: ClientError) -> Failure {
        let code = code(&error);
        let error = readable(&error);
        if code == Code::Unreachable && self.connect.is_empty() && self.tls.is_none() {
            let text =
                "the playground does not answer: does `geolock dev` run? (another server: --connect, --tls)";
            return Failure::new(code, error.context(text));
        }
        Failure::new(code, error)
    }
}

/// Returns the error and its deepest cause; those between are gRPC's layers and add nothing.
fn readable(error: &ClientError) -> anyhow::Error {
    let (text, cause) = (error.to_string(), deepest(error).to_string());
    if text.contains(&cause) { anyhow!(text) } else { anyhow!("{text}: {cause}") }
}

fn deepest<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    error.source().map_or(error, deepest)
}

/// Returns the exit code for a client's error.
fn code(error: &ClientError) -> Code {
    match error {
        ClientError::Config(_)
        | ClientError::TlsFile { .. }
        | ClientError::TokenFile { .. }
        | ClientError::NoToken { .. }
        | ClientError::Tls(_) => Code::Usage,
        ClientError::Unreachable { source, .. } if source.is_refused_certificate() => Code::NotAllowed,
        ClientError::Unreachable { .. } => Code::Unreachable,
        ClientError::LeaseLost(_) => Code::LockLost,
        ClientError::Refused(reason, _) => refused(*reason),
        _ => Code::Failed,
    }
}

/// Returns the exit code for a server's refusal.
pub fn refused(reason: Reason) -> Code {
    match reason {
        Reason::Draining
        | Reason::Unavailable
        | Reason::CannotCommit
        | Reason::HoldersUnknown
        | Reason::NotYet => Code::Unreachable,
        Reason::ResourceExhausted | Reason::TimedOut | Reason::NotFree | Reason::SnapshotNotReached => {
            Code::NotAcquired
        }
        Reason::LabelTooLong
        | Reason::NamesTooLong
        | Reason::TooManyLocks
        | Reason::LockNameEmpty
        | Reason::LockNameTooLong
        | Reason::TtlOutOfRange
        | Reason::InvalidKey
        | Reason::ExpiryOutOfRange
        | Reason::ChangeTooLarge
        | Reason::TransactionTooLarge
        | Reason::TooManyReads
        | Reason::SnapshotAhead
        | Reason::UnknownDc => Code::Usage,
        Reason::DiskFull => Code::DiskFull,
        Reason::PermissionDenied | Reason::Unauthenticated => Code::NotAllowed,
        _ => Code::Failed,
    }
}

/// Returns the failure of the subcommand.
pub fn failure(error: ClientError) -> Failure {
    Failure::new(code(&error), readable(&error))
}

fn read(dir: &Path) -> anyhow::Result<ClientTls> {
    ClientTls::from_dir(dir).with_context(|| format!("no certificates of a client in {}", dir.display()))
}

fn endpoint(text: &str) -> Result<String, &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("an endpoint is HOST:PORT")?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err("an endpoint is HOST:PORT");
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err("an IPv6 address stands in [ ] before its port: [fd77::10]:7400");
    }
    Ok(text.into())
}
