//! A holder's folder: the authority it trusts, its own certificate, its key. All mistakes are found when the
//! folder is loaded, with the file named, and not in a later handshake.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use super::error::PkiError;
use super::files::{self, CA_FILE, CERT_FILE, CRL_FILE, KEY_FILE};
use super::identity::{Identity, Role};
use super::validity::Validity;
use super::verify::{self, Revoked};

/// A long-lived certificate with less time left than this expires soon.
const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The identity of a process and the authorities it trusts: a folder with [`CA_FILE`], [`CERT_FILE`] and
/// [`KEY_FILE`].
#[derive(Clone)]
pub struct Credentials {
    identity: Identity,
    validity: Validity,
    pub(super) roots: Arc<RootCertStore>,
    /// The revocation lists as they are in the file.
    crls: Vec<CertificateRevocationListDer<'static>>,
    pub(super) revoked: Revoked,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: Arc<PrivateKeyDer<'static>>,
}

impl Credentials {
    /// Loads and checks the folder. Every file must exist and be readable as PEM; certificate and key must be
    /// a pair; the certificate must be signed by the authority beside it, be valid now, and name a geolock
    /// identity.
    pub fn load(dir: &Path) -> Result<Credentials, PkiError> {
        let (ca_file, cert_file, key_file) = (dir.join(CA_FILE), dir.join(CERT_FILE), dir.join(KEY_FILE));
        let missing = |file| PkiError::Missing { file };
        let trusted = certificates(&ca_file, &files::read(&ca_file, missing)?)?;
        let chain = certificates(&cert_file, &files::read(&cert_file, missing)?)?;
        let key = private_key(&key_file, &files::read(&key_file, missing)?)?;
        let leaf = &chain[0];

        check_dates(&cert_file, leaf)?;
        check_key(&cert_file, leaf, &key_file, key.clone_key())?;
        let roots = roots(&ca_file, trusted)?;
        let crl_file = dir.join(CRL_FILE);
        let crls = match files::read_if_there(&crl_file)? {
            Some(pem) => lists(&crl_file, &pem)?,
            None => Vec::new(),
        };
        verify::check_chain(&roots, &chain).map_err(|error| PkiError::NotSigned {
            certificate: cert_file.clone(),
            ca: ca_file.clone(),
            reason: error.to_string(),
        })?;
        let revoked = Revoked::new(&roots, &crls).map_err(|reason| PkiError::Unusable {
            file: crl_file.clone(),
            expected: "list of revoked certificates",
            reason,
        })?;
        if revoked.check(leaf, &chain[1..], UnixTime::now()).is_err() {
            return Err(PkiError::Revoked { certificate: cert_file, crl: crl_file });
        }
        let identity = Identity::of_certificate(leaf)
            .map_err(|source| PkiError::Identity { file: cert_file.clone(), source })?;
        let validity = validity(&cert_file, leaf)?;
        Ok(Credentials {
            identity,
            validity,
            roots: Arc::new(roots),
            crls,
            revoked,
            chain,
            key: Arc::new(key),
        })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the end of the certificate's validity.
    pub fn expires(&self) -> SystemTime {
        self.validity.until
    }

    /// Returns true if it is time for a new certificate: less than a week is left, or less than a third of
    /// the life of a short-lived one.
    pub fn expires_soon(&self, now: SystemTime) -> bool {
        let Validity { from, until } = self.validity;
        let life = until.duration_since(from).unwrap_or_default();
        until.duration_since(now).unwrap_or_default() < SOON.min(life / 3)
    }

    /// Returns true if certificate, key, authorities and revoked certificates are the same.
    pub fn is_same_as(&self, other: &Credentials) -> bool {
        self.shows_same(other) && self.roots.roots == other.roots.roots && self.crls == other.crls
    }

    /// Returns true if certificate and key are the same.
    pub fn shows_same(&self, other: &Credentials) -> bool {
        self.chain == other.chain && self.key.secret_der() == other.key.secret_der()
    }

    /// Returns the names of the files that differ, separated by commas.
    pub fn differences(&self, other: &Credentials) -> String {
        let is_same = [
            (CERT_FILE, self.chain == other.chain),
            (KEY_FILE, self.key.secret_der() == other.key.secret_der()),
            (CA_FILE, self.roots.roots == other.roots.roots),
            (CRL_FILE, self.crls == other.crls),
        ];
        let files: Vec<_> =
            is_same.into_iter().filter_map(|(file, is_same)| (!is_same).then_some(file)).collect();
        files.join(", ")
    }

    /// Returns how many certificates the trusted authorities have revoked.
    pub fn revoked(&self) -> usize {
        self.revoked.count()
    }

    /// Refuses the credentials unless they belong to `role` in `cluster`. `dir` is the folder they were
    /// loaded from.
    pub fn require(&self, dir: &Path, cluster: &str, role: &Role) -> Result<(), PkiError> {
        if self.identity.cluster == cluster && self.identity.role == *role {
            return Ok(());
        }
        Err(PkiError::WrongIdentity {
            file: dir.join(CERT_FILE),
            found: self.identity.to_string(),
            needed: Identity { cluster: cluster.into(), role: role.clone() }.to_string(),
        })
    }
}

#[cfg(test)]
impl Credentials {
    /// Takes certificate and key from `dir` without checks, so that a test can present an invalid
    /// certificate.
    pub(crate) fn replace_pair_unchecked(&mut self, dir: &Path) {
        let read = |name| std::fs::read_to_string(dir.join(name)).expect("the test wrote this file");
        self.chain = certificates(Path::new(CERT_FILE), &read(CERT_FILE)).expect("the test wrote PEM");
        self.key = Arc::new(private_key(Path::new(KEY_FILE), &read(KEY_FILE)).expect("the test wrote PEM"));
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials of {}", self.identity)
    }
}

/// The cryptography in use, named in one place; never the process-wide default, which other code may set.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(super) fn first_certificate(file: &Path, pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    Ok(certificates(file, pem)?.swap_remove(0))
}

/// Returns the certificates of a PEM file, at least one.
fn certificates(file: &Path, pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(PkiError::NotPem { file: file.into(), expected: "certificate" }),
    }
}

fn lists(file: &Path, pem: &str) -> Result<Vec<CertificateRevocationListDer<'static>>, PkiError> {
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(lists) if !lists.is_empty() => Ok(lists),
        _ => Err(PkiError::NotPem { file: file.into(), expected: "list of revoked certificates" }),
    }
}

/// Trusts all of them, so that an authority can be replaced while the old one is still valid. At least one
/// must be valid.
fn roots(file: &Path, trusted: Vec<CertificateDer<'static>>) -> Result<RootCertStore, PkiError> {
    let dates: Vec<_> = trusted.iter().map(|ca| check_dates(file, ca)).collect();
    if dates.iter().all(Result::is_err) {
        dates.into_iter().collect::<Result<(), _>>()?;
    }
    let mut roots = RootCertStore::empty();
    for ca in trusted {
        roots.add(ca).map_err(|error| unusable(file, "certificate", &error))?;
    }
    Ok(roots)
}

fn private_key(file: &Path, pem: &str) -> Result<PrivateKeyDer<'static>, PkiError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| PkiError::NotPem { file: file.into(), expected: "private key" })
}

/// As [`check_key`], for a key in PKCS#8.
pub(super) fn check_key_bytes(
    cert_file: &Path,
    certificate: &CertificateDer<'static>,
    key_file: &Path,
    key: &[u8],
) -> Result<(), PkiError> {
    let key =
        PrivateKeyDer::try_from(key.to_vec()).map_err(|reason| unusable(key_file, "private key", &reason))?;
    check_key(cert_file, certificate, key_file, key)
}

fn check_key(
    cert_file: &Path,
    certificate: &CertificateDer<'static>,
    key_file: &Path,
    key: PrivateKeyDer<'static>,
) -> Result<(), PkiError> {
    match CertifiedKey::from_der(vec![certificate.clone()], key, &provider()) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(PkiError::KeyMismatch { key: key_file.into(), certificate: cert_file.into() })
        }
        Err(error) => Err(unusable(key_file, "private key", &error)),
    }
}

/// Refuses a certificate that is not valid now.
pub(super) fn check_dates(file: &Path, der: &CertificateDer<'_>) -> Result<(), PkiError> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| unusable(file, "certificate", &error))?;
    let (validity, now) = (certificate.validity(), ASN1Time::now());
    if now < validity.not_before {
        return Err(PkiError::NotYetValid { file: file.into(), from: validity.not_before.to_string() });
    }
    if now > validity.not_after {
        return Err(PkiError::Expired { file: file.into(), since: validity.not_after.to_string() });
    }
    Ok(())
}

pub(super) fn validity(file: &Path, der: &CertificateDer<'_>) -> Result<Validity, PkiError> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| unusable(file, "certificate", &error))?;
    let at = |time: ASN1Time| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
    };
    let validity = certificate.validity();
    Ok(Validity { from: at(validity.not_before), until: at(validity.not_after) })
}

fn unusable(file: &Path, expected: &'static str, reason: &dyn fmt::Display) -> PkiError {
    PkiError::Unusable { file: file.into(), expected, reason: reason.to_string() }
}
