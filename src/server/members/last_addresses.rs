//! The addresses of the other members over a restart: a server that is restarted while the name service is
//! gone finds them where they were. The file is a help and no state: without it, or if it cannot be read or
//! written, the server begins with the names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::durable_file::{self, FileFault};
use crate::interdc::LastAddresses;
use crate::runtime::tasks::joined;

const FILE: &str = "addresses.json";

/// Returns the addresses of the last run. Each change is written until the last clone of them is dropped.
pub async fn kept_addresses(dir: &Path) -> LastAddresses {
    let dir = dir.to_owned();
    let of_dir = dir.clone();
    let addresses = joined(spawn_blocking(move || remembered(&of_dir)).await);
    tokio::spawn(keep(dir, addresses.changes()));
    addresses
}

fn remembered(dir: &Path) -> LastAddresses {
    let known = durable_file::read(dir, FILE).unwrap_or_else(|fault| {
        warn("read", fault);
        None
    });
    LastAddresses::new(known.unwrap_or_default())
}

async fn keep(dir: PathBuf, mut changes: watch::Receiver<BTreeMap<String, SocketAddr>>) {
    while changes.changed().await.is_ok() {
        let known = changes.borrow_and_update().clone();
        let dir = dir.clone();
        let written = joined(spawn_blocking(move || durable_file::write(&dir, FILE, &known)).await);
        if let Err(fault) = written {
            warn("write", fault);
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
        let known = || remembered(dir.path()).changes().borrow().clone();
        assert_eq!(known(), BTreeMap::new());
        let address = SocketAddr::from(([192, 0, 2, 1], 7402));
        let written = BTreeMap::from([("fra:7402".to_owned(), address)]);
        durable_file::write(dir.path(), FILE, &written).expect("there is a disk");
        assert_eq!(known(), written);
        std::fs::write(dir.path().join(FILE), "{\"fra\": ").expect("there is a disk");
        assert_eq!(known(), BTreeMap::new());
    }
}
