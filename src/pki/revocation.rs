//! Certificates that an authority revokes before they expire: the list in its folder.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevocationReason, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::authority::Authority;
use super::credentials::first_certificate;
use super::error::PkiError;
use super::files::{self, CA_FILE, CRL_FILE, Existing, NewFile, Secrecy};
use super::signature;

const EXPECTED: &str = "list of revoked certificates";

impl Authority {
    /// Revokes these certificates, in addition to those revoked before: writes [`CRL_FILE`] into `dir`, its
    /// folder. Returns how many are revoked now.
    pub fn revoke(&self, dir: &Path, certificates: &[PathBuf]) -> Result<usize, PkiError> {
        let list = dir.join(CRL_FILE);
        let now = SystemTime::now();
        let mut revoked = match files::read_if_there(&list)? {
            Some(pem) => entries(&list, &pem)?,
            None => Vec::new(),
        };
        for file in certificates {
            let serial_number = self.serial(dir, file)?;
            if revoked.iter().all(|known| known.serial_number != serial_number) {
                revoked.push(RevokedCertParams {
                    serial_number,
                    revocation_time: now.into(),
                    reason_code: Some(RevocationReason::Unspecified),
                    invalidity_date: None,
                });
            }
        }
        let count = revoked.len();
        // Increases with every list, without a file that stores the last number.
        let number = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: self.expires().into(),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let pem = params.signed_by(&self.issuer)?.pem()?;
        let file = NewFile { name: CRL_FILE, content: &pem, secret: Secrecy::Public };
        files::write_set(dir, &[file], Existing::Replace)?;
        Ok(count)
    }

    /// Returns the serial number of a certificate, which this authority must have signed: other authorities
    /// of its cluster have the same name.
    fn serial(&self, dir: &Path, file: &Path) -> Result<SerialNumber, PkiError> {
        let pem = files::read(file, |file| PkiError::Missing { file })?;
        let der = first_certificate(file, &pem)?;
        let unusable =
            |reason: String| PkiError::Unusable { file: file.into(), expected: "certificate", reason };
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| unusable(error.to_string()))?;
        let identity = super::Identity::of_certificate(&der);
        let identity = identity.map_err(|source| PkiError::Identity { file: file.into(), source })?;
        if identity.cluster != self.cluster() {
            return Err(PkiError::WrongIdentity {
                file: file.into(),
                found: identity.to_string(),
                needed: format!("a certificate of cluster {}", self.cluster()),
            });
        }
        let ca = dir.join(CA_FILE);
        let authority = first_certificate(&ca, self.certificate_pem())?;
        if !signature::signed_certificate(&parsed, &authority).map_err(unusable)? {
            let reason = "another authority of the cluster did, and only that one can revoke it".into();
            return Err(PkiError::NotSigned { certificate: file.into(), ca, reason });
        }
        Ok(SerialNumber::from_slice(parsed.raw_serial()))
    }
}

/// Returns the entries of a list.
fn entries(file: &Path, pem: &str) -> Result<Vec<RevokedCertParams>, PkiError> {
    let unusable = |reason: String| PkiError::Unusable { file: file.into(), expected: EXPECTED, reason };
    let der = CertificateRevocationListDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| PkiError::NotPem { file: file.into(), expected: EXPECTED })?;
    let (_, list) = CertificateRevocationList::from_der(&der).map_err(|error| unusable(error.to_string()))?;
    let revoked = list.iter_revoked_certificates().map(|known| RevokedCertParams {
        serial_number: SerialNumber::from_slice(known.raw_serial()),
        revocation_time: known.revocation_date.to_datetime(),
        reason_code: Some(RevocationReason::Unspecified),
        invalidity_date: None,
    });
    Ok(revoked.collect())
}
