//! The certificate checks of a handshake: chain and dates by webpki as usual, then the identity of the peer.
//!
//! There are two verifiers, one for each side of a connection. Both end in [`Wanted::check`], the only place
//! that decides which identities may connect to each other.

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
use super::signature;
use geolock_api::names::DcId;

/// The identity that one side of a connection expects on the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub cluster: String,
    pub role: WantedRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedRole {
    /// This datacenter: the one that was dialled.
    Dc(DcId),
    /// Any datacenter except this one: for incoming connections.
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

/// The reason why a certificate with a valid chain is refused. Its debug form is prose, because rustls prints
/// that and QUIC sends it to the other side.
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

/// All authorities of a cluster have one name. A signature that fits none of the keys under that name was
/// made by another authority, although webpki reports another reason; the other side gets this one.
fn of_chain(error: rustls::Error) -> rustls::Error {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            CertificateError::UnknownIssuer.into()
        }
        error => error,
    }
}

/// Checks that the first certificate of `chain` is signed by `roots` and valid now, for any purpose.
pub(super) fn check_chain(roots: &RootCertStore, chain: &[CertificateDer<'static>]) -> Result<(), PkiError> {
    chain_verifier(&Arc::new(roots.clone()))?.verify_client_cert(&chain[0], &chain[1..], UnixTime::now())?;
    Ok(())
}

/// Returns a verifier that checks if a certificate is signed by `roots` and valid now, for any purpose: the
/// certificates of datacenters are valid for both sides of a connection.
fn chain_verifier(roots: &Arc<RootCertStore>) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider());
    Ok(builder.build().map_err(|error| rustls::Error::General(error.to_string()))?)
}

/// Revoked certificates. A list belongs to the authority that signed it, and does not concern certificates of
/// other authorities, although all those of a cluster have one name. An authority without a list has revoked
/// nothing. A list does not expire: one that cannot be renewed must not stop the whole cluster.
#[derive(Clone, Debug)]
pub(super) struct Revoked {
    /// One verifier per list, with its authority alone: webpki considers only one list of a name.
    lists: Vec<Arc<dyn ClientCertVerifier>>,
    count: usize,
}

impl Revoked {
    /// Uses those of `crls` that one of `roots` signed. An error describes a list that cannot be read.
    pub(super) fn new(
        roots: &RootCertStore,
        crls: &[CertificateRevocationListDer<'static>],
    ) -> Result<Revoked, String> {
        let (mut lists, mut count) = (Vec::new(), 0);
        for crl in crls {
            for root in &roots.roots {
                let Some(length) = signature::signed_list(crl, &root.subject_public_key_info)? else {
                    continue;
                };
                count += length;
                let alone = Arc::new(RootCertStore { roots: vec![root.clone()] });
                let verifier = WebPkiClientVerifier::builder_with_provider(alone, provider())
                    .with_crls([crl.clone()])
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status()
                    .build();
                lists.push(verifier.map_err(|error| error.to_string())?);
            }
        }
        Ok(Revoked { lists, count })
    }

    /// Returns how many entries the used lists have.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Checks a certificate with a valid chain. Lists of authorities that did not sign it are ignored.
    pub(super) fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let revoked = rustls::Error::InvalidCertificate(CertificateError::Revoked);
        let stands_in = |list: &&Arc<dyn ClientCertVerifier>| {
            list.verify_client_cert(end_entity, intermediates, now).err().as_ref() == Some(&revoked)
        };
        if self.lists.iter().any(|list| stands_in(&list)) { Err(revoked) } else { Ok(()) }
    }
}

/// Decides if the dialling side also compares the certificate with the host name it dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostName {
    Checked,
    /// The identity alone decides.
    Ignored,
}

/// The dialling side's check of the other side.
#[derive(Debug)]
pub(super) struct DialVerifier {
    wanted: Wanted,
    host_name: HostName,
    roots: Arc<RootCertStore>,
    revoked: Revoked,
    provider: Arc<CryptoProvider>,
}

impl DialVerifier {
    pub(super) fn new(
        credentials: &Credentials,
        role: WantedRole,
        host_name: HostName,
    ) -> Result<Arc<DialVerifier>, PkiError> {
        let wanted = Wanted { cluster: credentials.identity().cluster.clone(), role };
        let (roots, revoked) = (credentials.roots.clone(), credentials.revoked.clone());
        Ok(Arc::new(DialVerifier { wanted, host_name, roots, revoked, provider: provider() }))
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
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
            .map_err(of_chain)?;
        if self.host_name == HostName::Checked {
            verify_server_name(&parsed, server_name)?;
        }
        self.revoked.check(end_entity, intermediates, now)?;
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

/// Decides if an incoming connection may have no certificate. One that it presents must be valid in either
/// case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    Demanded,
    /// A client without a certificate is identified by a token, or is anonymous.
    Optional,
}

/// The accepting side's check of the other side.
#[derive(Debug)]
pub(super) struct AcceptVerifier {
    wanted: Wanted,
    certificates: ClientCertificates,
    chain: Arc<dyn ClientCertVerifier>,
    revoked: Revoked,
}

impl AcceptVerifier {
    pub(super) fn new(
        credentials: &Credentials,
        role: WantedRole,
        certificates: ClientCertificates,
    ) -> Result<Arc<AcceptVerifier>, PkiError> {
        let wanted = Wanted { cluster: credentials.identity().cluster.clone(), role };
        let (chain, revoked) = (chain_verifier(&credentials.roots)?, credentials.revoked.clone());
        Ok(Arc::new(AcceptVerifier { wanted, certificates, chain, revoked }))
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
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now).map_err(of_chain)?;
        self.revoked.check(end_entity, intermediates, now)?;
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
