//! The identity that a certificate names.

use std::fmt;
use std::str::FromStr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use geolock_api::names::{DcId, MAX_DCS};

/// Longest name of a cluster or client in a certificate, in bytes.
const MAX_LABEL: usize = 64;
const SCHEME: &str = "geolock://";

/// The role of a certificate's holder in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Dc(DcId),
    Client(String),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Dc(dc) => write!(f, "datacenter {dc}"),
            Role::Client(name) => write!(f, "client {name}"),
        }
    }
}

/// The identity of a certificate's holder: `geolock://CLUSTER/dc/ID` or `geolock://CLUSTER/client/NAME`, the
/// only URI of that scheme among its subject alternative names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster: String,
    pub role: Role,
}

/// The reason why a certificate or a text names no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("it is no X.509 certificate: {0}")]
    NotX509(String),
    #[error("it has no {SCHEME} name: it was not issued for geolock")]
    Nameless,
    #[error("it has several {SCHEME} names; exactly one is allowed")]
    Ambiguous,
    #[error("{0:?} is neither {SCHEME}CLUSTER/dc/ID nor {SCHEME}CLUSTER/client/NAME")]
    NotAnIdentity(String),
    #[error("{0:?} is no name for a cluster or client: 1 to {MAX_LABEL} of a-z A-Z 0-9 . _ -")]
    BadLabel(String),
    #[error("datacenter {0:?}: ids are whole numbers below {MAX_DCS}")]
    BadDc(String),
}

/// Checks that `text` can name a cluster or a client: it must fit a URI without escapes.
pub fn check_label(text: &str) -> Result<(), IdentityError> {
    let fits = (1..=MAX_LABEL).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    if fits { Ok(()) } else { Err(IdentityError::BadLabel(text.into())) }
}

impl Identity {
    /// Returns the identity that this certificate (DER) claims. Only the chain proves it.
    pub fn of_certificate(der: &[u8]) -> Result<Identity, IdentityError> {
        geolock_uri(der)?.parse()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            Role::Dc(dc) => write!(f, "{SCHEME}{}/dc/{}", self.cluster, dc.get()),
            Role::Client(name) => write!(f, "{SCHEME}{}/client/{name}", self.cluster),
        }
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(uri: &str) -> Result<Identity, IdentityError> {
        let unknown = || IdentityError::NotAnIdentity(uri.into());
        let (cluster, rest) =
            uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(unknown)?;
        check_label(cluster)?;
        let role = match rest.split_once('/').ok_or_else(unknown)? {
            ("dc", id) => Role::Dc(parse_dc(id)?),
            ("client", name) => {
                check_label(name)?;
                Role::Client(name.into())
            }
            _ => return Err(unknown()),
        };
        Ok(Identity { cluster: cluster.into(), role })
    }
}

/// Accepts one spelling per id, so that comparing identities is comparing certificates: no sign, no leading
/// zero.
fn parse_dc(id: &str) -> Result<DcId, IdentityError> {
    id.parse()
        .ok()
        .and_then(DcId::new)
        .filter(|dc| dc.get().to_string() == id)
        .ok_or_else(|| IdentityError::BadDc(id.into()))
}

/// The URI in an authority's certificate, which names its cluster.
pub(super) fn authority_uri(cluster: &str) -> String {
    format!("{SCHEME}{cluster}/ca")
}

/// Returns the cluster of an authority's certificate (DER).
pub(super) fn authority_cluster(der: &[u8]) -> Result<String, IdentityError> {
    let uri = geolock_uri(der)?;
    let cluster = uri.strip_prefix(SCHEME).and_then(|rest| rest.strip_suffix("/ca"));
    let cluster = cluster.ok_or_else(|| IdentityError::NotAnIdentity(uri.clone()))?;
    check_label(cluster)?;
    Ok(cluster.into())
}

fn geolock_uri(der: &[u8]) -> Result<String, IdentityError> {
    let not_x509 = |error: &dyn fmt::Display| IdentityError::NotX509(error.to_string());
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| not_x509(&error))?;
    let names = certificate.subject_alternative_name().map_err(|error| not_x509(&error))?;
    let names = names.ok_or(IdentityError::Nameless)?;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
        _ => None,
    });
    let uri = uris.next().ok_or(IdentityError::Nameless)?;
    if uris.next().is_some() {
        return Err(IdentityError::Ambiguous);
    }
    Ok(uri.into())
}
