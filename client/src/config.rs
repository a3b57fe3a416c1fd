//! The settings that a client needs before it can connect.

use std::path::Path;
use std::time::Duration;

use super::error::ClientError;
use super::token::ClientToken;
use geolock_api::names::MAX_LABEL;
use geolock_api::proto;

/// Longest attempt to connect to one endpoint.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// How a [`Client`](super::Client) connects. [`ClientConfig::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Endpoints of ONE datacenter, as `HOST:PORT`, `ADDRESS:PORT` or `[IPV6]:PORT`; at least one. The client
    /// tries them in this order, again and again. All must lead to the same datacenter, since a lease is
    /// valid in one datacenter only.
    pub endpoints: Vec<String>,
    /// The certificate of the client, and the authority that it trusts.
    pub tls: ClientTls,
    /// An access token that authenticates the client. If the client also has a certificate, the server uses
    /// the token. Default: none.
    pub token: Option<ClientToken>,
    /// Time to live of the lease without a renewal: 1 s to the server's `max_lease_ttl` (60 s unless
    /// configured). Short: the locks of a client that died are free sooner. Long: the client survives longer
    /// network failures. Default: 10 s, or the server's limit if that is shorter.
    pub ttl: Option<Duration>,
    /// Action of the server on the locks when the connection breaks. Default [`OnDisconnect::Keep`].
    pub on_disconnect: OnDisconnect,
    /// Name of the client, for the server's log and for requests without a label. At most 256 bytes. Default:
    /// empty.
    pub name: String,
    /// Protocol of the calls. Default [`Transport::Native`]: over gRPC, half of the cost of a call is gRPC
    /// itself.
    pub transport: Transport,
    /// Bound on one attempt to connect to one endpoint, and on the time that a timed acquire may take beyond
    /// its own wait when no endpoint answers. At most 1 h. Default 5 s.
    pub connect_timeout: Duration,
}

impl ClientConfig {
    /// Returns the defaults, for a datacenter that listens at `endpoints`.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>, tls: ClientTls) -> ClientConfig {
        ClientConfig {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls,
            token: None,
            ttl: None,
            on_disconnect: OnDisconnect::Keep,
            name: String::new(),
            transport: Transport::default(),
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// Refuses settings that no server accepts. The server itself checks the bounds of `ttl`.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        let wrong = |what| Err(ClientError::Config(what));
        if self.endpoints.is_empty() {
            return wrong("`endpoints`: name at least one HOST:PORT".into());
        }
        if self.name.len() > MAX_LABEL {
            return wrong(format!("`name`: at most {MAX_LABEL} bytes, this has {}", self.name.len()));
        }
        if self.connect_timeout.is_zero() || self.connect_timeout > MAX_CONNECT_TIMEOUT {
            let here = self.connect_timeout;
            return wrong(format!("`connect_timeout`: above zero and at most 1 h, here it is {here:?}"));
        }
        Ok(())
    }
}

/// The protocol that carries a client's calls. Reads, watches and the calls of operators use gRPC in both
/// cases, on a connection that is made when it is first needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// The native protocol on a connection of its own, if the server speaks it; gRPC otherwise.
    #[default]
    Native,
    /// gRPC, as programs in other languages use it.
    Grpc,
}

/// The action of the server on a lease whose connection breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// The server waits for the client to reconnect, until the lease expires.
    #[default]
    Keep,
    /// The server ends the lease, so other clients get the locks at once. The client counts the locks as
    /// lost.
    Release,
}

impl From<OnDisconnect> for proto::OnDisconnect {
    fn from(on_disconnect: OnDisconnect) -> proto::OnDisconnect {
        match on_disconnect {
            OnDisconnect::Keep => proto::OnDisconnect::Keep,
            OnDisconnect::Release => proto::OnDisconnect::Release,
        }
    }
}

/// Certificates, as PEM.
#[derive(Clone)]
pub struct ClientTls {
    /// The authority of the cluster.
    pub ca_pem: String,
    /// The certificate that the client presents. None for a client that has a [token](ClientConfig::token),
    /// or that is anonymous.
    pub certificate: Option<ClientCertificate>,
}

/// A client's certificate, as PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The certificate, followed by the chain to the authority.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl ClientTls {
    /// Reads `ca.pem`, `cert.pem` and `key.pem` of a folder, as `geolock ca issue` writes them. In the folder
    /// of a client without a certificate, `ca.pem` is alone.
    pub fn from_dir(dir: impl AsRef<Path>) -> Result<ClientTls, ClientError> {
        let read = |name| {
            let file = dir.as_ref().join(name);
            std::fs::read_to_string(&file).map_err(|source| ClientError::TlsFile { file, source })
        };
        let ca_pem = read("ca.pem")?;
        if ["cert.pem", "key.pem"].iter().all(|name| !dir.as_ref().join(name).exists()) {
            return Ok(ClientTls { ca_pem, certificate: None });
        }
        let certificate = ClientCertificate { cert_pem: read("cert.pem")?, key_pem: read("key.pem")? };
        Ok(ClientTls { ca_pem, certificate: Some(certificate) })
    }
}

/// Does not print the key.
impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("client certificates")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_timeout_has_bounds() {
        let tls = ClientTls { ca_pem: String::new(), certificate: None };
        let of = |connect_timeout| {
            let config = ClientConfig { connect_timeout, ..ClientConfig::new(["a:1"], tls.clone()) };
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(of(MAX_CONNECT_TIMEOUT), Ok(()));
        for wrong in [Duration::ZERO, Duration::MAX] {
            let error = of(wrong).expect_err("it is out of its bounds");
            assert!(error.contains("at most 1 h"), "{error}");
        }
    }
}
