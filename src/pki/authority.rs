//! The authority of a cluster: creates itself, and signs certificates for datacenters and clients.

use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

use super::credentials::{check_dates, check_key_bytes, first_certificate, validity};
use super::error::PkiError;
use super::files::{self, CA_FILE, CA_KEY_FILE, CERT_FILE, Existing, KEY_FILE, NewFile, Secrecy};
use super::identity::{Identity, Role, authority_cluster, authority_uri, check_label};
use super::validity::Validity;

/// A request for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub role: Role,
    /// The IP addresses and DNS names that the holder serves on; clients check them. At least one for a
    /// datacenter; a client needs none.
    pub hosts: Vec<String>,
    pub validity: Validity,
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    pub identity: Identity,
    /// The requested end, but not after that of the authority itself.
    pub until: SystemTime,
}

/// A cluster's certificate authority: its certificate and its private key.
pub struct Authority {
    cluster: String,
    until: SystemTime,
    certificate_pem: String,
    pub(super) issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates the authority of the cluster `cluster` in `dir`: [`CA_FILE`] and [`CA_KEY_FILE`].
    ///
    /// Replacing an authority invalidates every certificate that it signed.
    pub fn create(
        dir: &Path,
        cluster: &str,
        validity: Validity,
        existing: Existing,
    ) -> Result<Authority, PkiError> {
        check_label(cluster)?;
        let key = KeyPair::generate()?;
        let params = authority_params(cluster, validity)?;
        let certificate_pem = params.self_signed(&key)?.pem();
        files::write_set(
            dir,
            &[
                NewFile { name: CA_KEY_FILE, content: &key.serialize_pem(), secret: Secrecy::Owner },
                NewFile { name: CA_FILE, content: &certificate_pem, secret: Secrecy::Public },
            ],
            existing,
        )?;
        let issuer = Issuer::new(params, key);
        Ok(Authority { cluster: cluster.into(), until: validity.until, certificate_pem, issuer })
    }

    /// Loads the authority in `dir`.
    pub fn load(dir: &Path) -> Result<Authority, PkiError> {
        let (ca_file, key_file) = (dir.join(CA_FILE), dir.join(CA_KEY_FILE));
        let certificate_pem = files::read(&ca_file, |file| PkiError::NoAuthority { file })?;
        let key_pem = files::read(&key_file, |file| PkiError::NoAuthority { file })?;
        let der = first_certificate(&ca_file, &certificate_pem)?;
        let cluster =
            authority_cluster(&der).map_err(|source| PkiError::Identity { file: ca_file.clone(), source })?;
        check_dates(&ca_file, &der)?;
        let key = KeyPair::from_pem(&key_pem)
            .map_err(|_| PkiError::NotPem { file: key_file.clone(), expected: "private key" })?;
        check_key_bytes(&ca_file, &der, &key_file, key.serialized_der())?;
        let issuer = Issuer::from_ca_cert_der(&der, key)?;
        Ok(Authority { cluster, until: validity(&ca_file, &der)?.until, certificate_pem, issuer })
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the end of its certificate, and with it of every certificate that it signed.
    pub fn expires(&self) -> SystemTime {
        self.until
    }

    /// Returns the certificates that all members and clients trust: the content of [`CA_FILE`] of its folder,
    /// including the certificates after its own while it replaces another authority.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Issues a certificate into `dir`: [`CA_FILE`], [`CERT_FILE`] and [`KEY_FILE`].
    pub fn issue(&self, dir: &Path, leaf: &Leaf, existing: Existing) -> Result<Issued, PkiError> {
        if matches!(leaf.role, Role::Dc(_)) && leaf.hosts.is_empty() {
            return Err(PkiError::NoHosts);
        }
        if let Role::Client(name) = &leaf.role {
            check_label(name)?;
        }
        let identity = Identity { cluster: self.cluster.clone(), role: leaf.role.clone() };
        let key = KeyPair::generate()?;
        let mut params = leaf_params(&identity, leaf)?;
        let until = leaf.validity.until.min(self.until);
        params.not_after = until.into();
        let certificate = params.signed_by(&key, &self.issuer)?;
        files::write_set(
            dir,
            &[
                NewFile { name: CA_FILE, content: &self.certificate_pem, secret: Secrecy::Public },
                NewFile { name: KEY_FILE, content: &key.serialize_pem(), secret: Secrecy::Owner },
                NewFile { name: CERT_FILE, content: &certificate.pem(), secret: Secrecy::Public },
            ],
            existing,
        )?;
        Ok(Issued { identity, until })
    }
}

fn authority_params(cluster: &str, validity: Validity) -> Result<CertificateParams, PkiError> {
    let mut params = params(&format!("geolock authority of {cluster}"), validity);
    params.subject_alt_names = vec![SanType::URI(authority_uri(cluster).try_into()?)];
    // It signs leaves only: no certificate that it issues can sign another.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn leaf_params(identity: &Identity, leaf: &Leaf) -> Result<CertificateParams, PkiError> {
    let mut params = params(&identity.role.to_string(), leaf.validity);
    params.subject_alt_names = vec![SanType::URI(identity.to_string().try_into()?)];
    for host in &leaf.hosts {
        params.subject_alt_names.push(host_name(host)?);
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match leaf.role {
        Role::Dc(_) => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        Role::Client(_) => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    Ok(params)
}

fn params(common_name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = validity.from.into();
    params.not_after = validity.until.into();
    params
}

fn host_name(host: &str) -> Result<SanType, PkiError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let bad = || PkiError::BadHost { host: host.into() };
    rustls::pki_types::DnsName::try_from(host).map_err(|_| bad())?;
    Ok(SanType::DnsName(host.try_into().map_err(|_| bad())?))
}
