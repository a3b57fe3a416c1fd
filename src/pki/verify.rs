//! The certificate checks of a handshake: chain and dates by webpki as ever, then who the peer is.
//!
//! Two verifiers, one for each side of a connection. Both end in [`Wanted::check`], the only place that says
//! who may talk to whom.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, SignatureScheme,
};

use super::credentials::{Credentials, provider};
use super::error::PkiError;
use super::identity::{Identity, Role};
use crate::names::DcId;

/// Whom one side of a connection expects on the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub cluster: String,
    pub role: WantedRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedRole {
    /// This datacenter: the one that was dialled.
    Dc(DcId),
    /// Any datacenter but oneself: whoever dials in.
    OtherDcThan(DcId),
    AnyDc,
    AnyClient,
}

impl Wanted {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let found = Identity::of_certificate(certificate).map_err(|error| refused(error.to_string()))?;
        let fits = found.cluster == self.cluster
            && match (self.role, &found.role) {
                (WantedRole::Dc(wanted), Role::Dc(dc)) => wanted == *dc,
                (WantedRole::OtherDcThan(me), Role::Dc(dc)) => me != *dc,
                (WantedRole::AnyDc, Role::Dc(_)) | (WantedRole::AnyClient, Role::Client(_)) => true,
                _ => false,
            };
        if fits {
            Ok(())
        } else {
            Err(refused(format!("the certificate is that of {found}, but this must be {self}")))
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            WantedRole::Dc(dc) => write!(f, "datacenter {dc}")?,
            WantedRole::OtherDcThan(me) => write!(f, "a datacenter other than {me}")?,
            WantedRole::AnyDc => f.write_str("a datacenter")?,
            WantedRole::AnyClient => f.write_str("a client")?,
        }
        write!(f, " of cluster {}", self.cluster)
    }
}

/// Why a certificate with a good chain is refused. Its debug form is prose: that is what rustls prints, and what
/// QUIC tells the other side.
struct Refusal(String);

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn refused(reason: String) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(Refusal(reason)))).into()
}

/// Whether the first of `chain` is signed by `roots` and good now, for whichever purpose.
pub(super) fn check_chain(roots: &RootCertStore, chain: &[CertificateDer<'static>]) -> Result<(), PkiError> {
    check_with(&*chain_verifier(&Arc::new(roots.clone()), &[])?, chain)
}

/// The same, by a [`chain_verifier`].
pub(super) fn check_with(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'static>],
) -> Result<(), PkiError> {
    verifier.verify_client_cert(&chain[0], &chain[1..], UnixTime::now())?;
    Ok(())
}

/// Whether a certificate is signed by `roots`, good now, and not among those withdrawn, for whichever purpose: the
/// certificates of datacenters are good for both sides of a connection. An authority without a list has withdrawn nothing,
/// and a list does not expire: one that cannot be renewed must not stop everybody.
pub(super) fn chain_verifier(
    roots: &Arc<RootCertStore>,
    crls: &[CertificateRevocationListDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider());
    if !crls.is_empty() {
        builder = builder
            .with_crls(crls.iter().cloned())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    Ok(builder.build().map_err(|error| rustls::Error::General(error.to_string()))?)
}

/// Whether the dialling side also compares the certificate with the host name it dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostName {
    Checked,
    /// The identity alone decides.
    Ignored,
}

/// The dialling side's check of the side dialled.
#[derive(Debug)]
pub(super) struct DialVerifier {
    wanted: Wanted,
    host_name: HostName,
    roots: Arc<RootCertStore>,
    /// If something was withdrawn.
    withdrawn: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl DialVerifier {
    pub(super) fn new(
        credentials: &Credentials,
        role: WantedRole,
        host_name: HostName,
    ) -> Result<Arc<DialVerifier>, PkiError> {
        let wanted = Wanted { cluster: credentials.identity().cluster.clone(), role };
        let (roots, crls) = (credentials.roots.clone(), &credentials.crls);
        let withdrawn = (!crls.is_empty()).then(|| chain_verifier(&roots, crls)).transpose()?;
        Ok(Arc::new(DialVerifier { wanted, host_name, roots, withdrawn, provider: provider() }))
    }
}

impl ServerCertVerifier for DialVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        if self.host_name == HostName::Checked {
            verify_server_name(&parsed, server_name)?;
        }
        if let Some(withdrawn) = &self.withdrawn {
            withdrawn.verify_client_cert(end_entity, intermediates, now)?;
        }
        self.wanted.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether the side that dials in may come without a certificate. One that it shows must be right in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    Demanded,
    /// Who comes without is known by something else, or by nothing.
    Optional,
}

/// The accepting side's check of the side that dialled in.
#[derive(Debug)]
pub(super) struct AcceptVerifier {
    wanted: Wanted,
    certificates: ClientCertificates,
    chain: Arc<dyn ClientCertVerifier>,
}

impl AcceptVerifier {
    pub(super) fn new(
        credentials: &Credentials,
        role: WantedRole,
        certificates: ClientCertificates,
    ) -> Result<Arc<AcceptVerifier>, PkiError> {
        let wanted = Wanted { cluster: credentials.identity().cluster.clone(), role };
        let chain = chain_verifier(&credentials.roots, &credentials.crls)?;
        Ok(Arc::new(AcceptVerifier { wanted, certificates, chain }))
    }
}

impl ClientCertVerifier for AcceptVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.certificates == ClientCertificates::Demanded
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        self.wanted.check(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
