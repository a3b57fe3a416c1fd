//! The certificates of a whole playground: an authority, datacenters on loopback, one client.

use std::path::{Path, PathBuf};

use super::authority::{Authority, Leaf};
use super::credentials::Credentials;
use super::error::PkiError;
use super::files::Existing;
use super::identity::Role;
use super::validity::{CA_LIFETIME, LEAF_LIFETIME, Validity};
use geolock_api::names::DcId;

/// The folders with a playground's certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Playground {
    /// By datacenter.
    pub dcs: Vec<PathBuf>,
    pub client: PathBuf,
}

/// Creates the certificates that a playground of the datacenters `dcs` needs: the authority in `DIR/ca`,
/// datacenter `i` in `DIR/tls/dcI`, the client `playground` in `DIR/client`. Existing valid ones are kept;
/// those that are expired, damaged, or of another authority are replaced.
///
/// An authority of another cluster is an error: that folder is not the playground's.
pub fn playground(
    dir: &Path,
    cluster: &str,
    dcs: impl IntoIterator<Item = DcId>,
) -> Result<Playground, PkiError> {
    let authority = authority(&dir.join("ca"), cluster)?;
    let client = dir.join("client");
    ensure(&authority, &client, Role::Client("playground".into()))?;
    let dcs = dcs.into_iter().map(|dc| {
        let folder = dir.join("tls").join(dc.to_string());
        ensure(&authority, &folder, Role::Dc(dc)).map(|()| folder)
    });
    Ok(Playground { dcs: dcs.collect::<Result<_, _>>()?, client })
}

fn authority(dir: &Path, cluster: &str) -> Result<Authority, PkiError> {
    let existing = match Authority::load(dir) {
        Ok(authority) if authority.cluster() == cluster => return Ok(authority),
        Ok(authority) => {
            return Err(PkiError::WrongIdentity {
                file: dir.join(super::files::CA_FILE),
                found: format!("cluster {}", authority.cluster()),
                needed: format!("cluster {cluster}"),
            });
        }
        Err(PkiError::NoAuthority { .. } | PkiError::Expired { .. }) => Existing::Replace,
        Err(error) => return Err(error),
    };
    Authority::create(dir, cluster, Validity::lasting(CA_LIFETIME), existing)
}

fn ensure(authority: &Authority, dir: &Path, role: Role) -> Result<(), PkiError> {
    if is_good(authority, dir, &role) {
        return Ok(());
    }
    let hosts = match &role {
        Role::Dc(_) => ["127.0.0.1", "::1", "localhost"].map(String::from).to_vec(),
        Role::Client(_) => Vec::new(),
    };
    let leaf = Leaf { role, hosts, validity: Validity::lasting(LEAF_LIFETIME) };
    authority.issue(dir, &leaf, Existing::Replace).map(|_| ())
}

fn is_good(authority: &Authority, dir: &Path, role: &Role) -> bool {
    let of_this_authority = std::fs::read_to_string(dir.join(super::files::CA_FILE))
        .is_ok_and(|pem| pem == authority.certificate_pem());
    let loads = |dir| Credentials::load(dir).and_then(|found| found.require(dir, authority.cluster(), role));
    of_this_authority && loads(dir).is_ok()
}
