//! What a client needs to know before it can connect.

use std::path::Path;
use std::time::Duration;

use super::error::ClientError;
use super::token::ClientToken;
use crate::names::MAX_LABEL;
use crate::proto;

/// How a [`Client`](super::Client) connects. [`ClientConfig::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where ONE datacenter answers, as `HOST:PORT`, `ADDRESS:PORT` or `[IPV6]:PORT`; at least one. Tried in this
    /// order, again and again; they must lead to the same datacenter, since a lease means nothing in another.
    pub endpoints: Vec<String>,
    /// Who the client is and whom it trusts.
    pub tls: ClientTls,
    /// How it shows who it is, if not by a certificate; the server counts this more than a certificate. Default: none.
    pub token: Option<ClientToken>,
    /// How long the lease lives without being renewed: 1 s to what the server allows (60 s unless configured).
    /// Short: locks of a client that died are free sooner. Long: the client survives longer cuts. Default 10 s.
    pub ttl: Duration,
    /// What the server does with the locks when the connection breaks. Default [`OnDisconnect::Keep`].
    pub on_disconnect: OnDisconnect,
    /// Who this is, for the server's log and for requests without a label. At most 256 bytes. Default: empty.
    pub name: String,
    /// How to talk to the server. Default [`Transport::Native`]: half of what a call costs over gRPC is gRPC.
    pub transport: Transport,
    /// How long one attempt to reach one endpoint may take, and how much longer than its own wait a timed acquire
    /// may take when no endpoint answers. Default 5 s.
    pub connect_timeout: Duration,
}

impl ClientConfig {
    /// The defaults, for a datacenter that answers at `endpoints`.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>, tls: ClientTls) -> ClientConfig {
        ClientConfig {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls,
            token: None,
            ttl: Duration::from_secs(10),
            on_disconnect: OnDisconnect::Keep,
            name: String::new(),
            transport: Transport::default(),
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// Refuses what no server would take. The bounds of `ttl` are the server's to check.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        let wrong = |what| Err(ClientError::Config(what));
        if self.endpoints.is_empty() {
            return wrong("`endpoints`: name at least one HOST:PORT".into());
        }
        if self.name.len() > MAX_LABEL {
            return wrong(format!("`name`: at most {MAX_LABEL} bytes, this has {}", self.name.len()));
        }
        if self.connect_timeout.is_zero() {
            return wrong("`connect_timeout`: above zero".into());
        }
        Ok(())
    }
}

/// How a client's calls travel. Looking, watching and what operators do goes over gRPC either way, on a connection that is
/// made when it is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over a connection that carries nothing else, where the server speaks that; over gRPC where it does not.
    #[default]
    Native,
    /// Over gRPC, as programs in other languages.
    Grpc,
}

/// What the server does with a lease whose connection breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// It waits for the client to come back, for as long as the lease lives.
    #[default]
    Keep,
    /// It ends the lease, so others get the locks at once; the client counts them as lost.
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
    /// What the client shows. None for a client that has a [token](ClientConfig::token), or that is anonymous.
    pub certificate: Option<ClientCertificate>,
}

/// A client's certificate, as PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The certificate, and what leads from it to the authority.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl ClientTls {
    /// Reads `ca.pem`, `cert.pem` and `key.pem` of a folder, as `geolock ca issue` writes them. A folder with `ca.pem` alone
    /// is that of a client without a certificate.
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

/// Without the key.
impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("client certificates")
    }
}
