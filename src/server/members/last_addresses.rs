//! The addresses of the other members over a restart: a server that is restarted while the name service is
//! gone finds them where they were. The file is a help and no state: without it, or if it cannot be read or
//! written, the server begins with the names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::durable_file::{self, FileFault};
use crate::interdc::LastAddresses;
use crate::runtime::tasks::joined;

const FILE: &str = "addresses.json";

/// Returns the addresses of the last run.
pub fn remembered_addresses(dir: &Path) -> LastAddresses {
    let read = durable_file::read::<BTreeMap<String, SocketAddr>>(dir, FILE);
    LastAddresses::new(
        read.unwrap_or_else(|fault| {
            warn("read", fault);
            None
        })
        .unwrap_or_default(),
    )
}

/// Returns what writes each change, until the last of these addresses is dropped.
pub fn keep_addresses(dir: PathBuf, addresses: &LastAddresses) -> impl Future<Output = ()> + use<> {
    let mut changes = addresses.changes();
    async move {
        while changes.changed().await.is_ok() {
            let known = changes.borrow_and_update().clone();
            let dir = dir.clone();
            let written = joined(spawn_blocking(move || durable_file::write(&dir, FILE, &known)).await);
            if let Err(fault) = written {
                warn("write", fault);
            }
        }
    }
}

fn warn(doing: &str, fault: FileFault) {
    let reason = match fault {
        FileFault::Io { doing, path, source } => format!("cannot {doing} {}: {source}", path.display()),
        FileFault::Damaged { path, reason } => format!("{}: {reason}", path.display()),
    };
    tracing::warn!(
        reason,
        "cannot {doing} the last addresses of the other members: names are needed after a restart"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().expect("there is a disk");
        let known = || remembered_addresses(dir.path()).changes().borrow().clone();
        assert_eq!(known(), BTreeMap::new());
        let address = SocketAddr::from(([192, 0, 2, 1], 7402));
        let written = BTreeMap::from([("fra:7402".to_owned(), address)]);
        durable_file::write(dir.path(), FILE, &written).expect("there is a disk");
        assert_eq!(known(), written);
        std::fs::write(dir.path().join(FILE), "{\"fra\": ").expect("there is a disk");
        assert_eq!(known(), BTreeMap::new());
    }
}
