//! Certificates: the identities of datacenters and clients, and the TLS settings that check them.
//!
//! One authority per cluster signs all certificates. A certificate names the identity of its holder in one
//! URI among its subject alternative names ([`Identity`]); between datacenters that URI decides, not a host
//! name. So a client's certificate never passes as a datacenter's, a datacenter's never as a client's, and
//! neither passes in another cluster.
//!
//! On disk everything is a folder: an authority's ([`Authority`]) or a holder's ([`Credentials`]).

mod authority;
mod credentials;
mod error;
mod files;
mod identity;
mod playground;
mod revocation;
mod signature;
mod tls;
mod validity;
mod verify;

#[cfg(test)]
mod tests;

pub use authority::{Authority, Issued, Leaf};
pub use credentials::Credentials;
pub use error::PkiError;
pub use files::{CA_FILE, CA_KEY_FILE, CERT_FILE, CRL_FILE, Existing, KEY_FILE, key_that_all_may_read};
pub use identity::{Identity, IdentityError, Role, check_label};
pub use playground::{Playground, playground};
pub use tls::peer_identity;
pub use validity::{CA_LIFETIME, LEAF_LIFETIME, Validity, day};
pub use verify::ClientCertificates;
