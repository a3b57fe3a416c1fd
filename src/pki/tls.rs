//! The TLS settings of every kind of connection: between datacenters, and between clients and datacenters.
//!
//! TLS 1.3 only, no early data and no resumption: every connection presents its certificates again, so no
//! ticket prolongs an expired one. Datacenters always present theirs; a client of the API may have none if
//! the server accepts tokens or anonymous clients.

use std::sync::Arc;

use geolock_api::native::{NATIVE_PROTOCOL, NATIVE_PROTOCOL_1};
use rustls::client::Resumption;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use super::credentials::{Credentials, provider};
use super::error::PkiError;
use super::identity::{Identity, Role};
use super::verify::{AcceptVerifier, ClientCertificates, DialVerifier, HostName, WantedRole};
use geolock_api::names::DcId;

/// The application protocol between datacenters (ALPN).
const DC_PROTOCOL: &[u8] = b"geolock-dc";
/// The application protocol between clients and datacenters (ALPN): HTTP/2, for gRPC.
const API_PROTOCOL: &[u8] = b"h2";

impl Credentials {
    /// Returns the settings with which datacenter `me` accepts other datacenters of its cluster: checks chain
    /// and identity.
    pub fn accept_dcs(&self) -> Result<ServerConfig, PkiError> {
        let me = self.my_dc()?;
        self.server(WantedRole::OtherDcThan(me), ClientCertificates::Demanded, &[DC_PROTOCOL])
    }

    /// Returns the settings with which a datacenter dials `peer`: the other side must be exactly that
    /// datacenter. Its host name does not matter.
    pub fn dial_dc(&self, peer: DcId) -> Result<ClientConfig, PkiError> {
        self.my_dc()?;
        self.client(DialVerifier::new(self, WantedRole::Dc(peer), HostName::Ignored)?, DC_PROTOCOL)
    }

    /// As [`Credentials::dial_dc`], to any other datacenter: which one, its certificate says.
    pub fn dial_other_dc(&self) -> Result<ClientConfig, PkiError> {
        let role = WantedRole::OtherDcThan(self.my_dc()?);
        self.client(DialVerifier::new(self, role, HostName::Ignored)?, DC_PROTOCOL)
    }

    /// Returns the settings with which a datacenter serves clients: those that present a certificate must be
    /// clients of its cluster. A client that offers both protocols gets the native one.
    pub fn accept_clients(&self, certificates: ClientCertificates) -> Result<ServerConfig, PkiError> {
        self.my_dc()?;
        self.server(WantedRole::AnyClient, certificates, &[NATIVE_PROTOCOL, NATIVE_PROTOCOL_1, API_PROTOCOL])
    }

    /// Returns the settings with which a client dials a datacenter: it must be a datacenter of the client's
    /// cluster, and its certificate must be valid for the host name or address dialled.
    pub fn dial_api(&self) -> Result<ClientConfig, PkiError> {
        self.client(DialVerifier::new(self, WantedRole::AnyDc, HostName::Checked)?, API_PROTOCOL)
    }

    fn my_dc(&self) -> Result<DcId, PkiError> {
        match &self.identity().role {
            Role::Dc(dc) => Ok(*dc),
            Role::Client(_) => Err(PkiError::WrongIdentity {
                file: super::files::CERT_FILE.into(),
                found: self.identity().to_string(),
                needed: "a datacenter".into(),
            }),
        }
    }

    fn server(
        &self,
        role: WantedRole,
        certificates: ClientCertificates,
        protocols: &[&[u8]],
    ) -> Result<ServerConfig, PkiError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(AcceptVerifier::new(self, role, certificates)?)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn client(&self, verifier: Arc<DialVerifier>, protocol: &[u8]) -> Result<ClientConfig, PkiError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Returns the identity of the other end of a connection after its handshake, from the certificates it
/// presented.
pub fn peer_identity(chain: &[rustls::pki_types::CertificateDer<'_>]) -> Option<Identity> {
    Identity::of_certificate(chain.first()?).ok()
}
