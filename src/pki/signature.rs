//! Checks signatures of authorities. All authorities of a cluster have one name, so only the signature tells
//! which of them issued a list or a certificate.

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::der_parser::asn1_rs::BitString;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};
use x509_parser::x509::AlgorithmIdentifier;

use super::credentials::provider;

/// Returns the number of entries of the list, if the key of `spki` (without its outermost header) signed it.
pub(super) fn signed_list(
    list: &CertificateRevocationListDer<'_>,
    spki: &[u8],
) -> Result<Option<usize>, String> {
    let (_, list) = CertificateRevocationList::from_der(list).map_err(|error| error.to_string())?;
    let (key, _) = AlgorithmIdentifier::from_der(spki).map_err(|error| error.to_string())?;
    let (_, key) = BitString::from_der(key).map_err(|error| error.to_string())?;
    let is_signed = signed(&key.data, list.tbs_cert_list.as_ref(), &list.signature_value.data);
    Ok(is_signed.then(|| list.iter_revoked_certificates().count()))
}

/// Returns true if the key of `authority` signed that certificate.
pub(super) fn signed_certificate(
    certificate: &X509Certificate<'_>,
    authority: &CertificateDer<'_>,
) -> Result<bool, String> {
    let (_, authority) = X509Certificate::from_der(authority).map_err(|error| error.to_string())?;
    let key = &authority.public_key().subject_public_key.data;
    Ok(signed(key, certificate.tbs_certificate.as_ref(), &certificate.signature_value.data))
}

/// Tries all algorithms: none of them accepts a signature that the key did not make.
fn signed(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let algorithms = provider().signature_verification_algorithms.all;
    algorithms.iter().any(|algorithm| algorithm.verify_signature(key, message, signature).is_ok())
}
