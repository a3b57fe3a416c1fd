//! The addresses at which peers were reached last, by the names under which they are configured.
//!
//! A name that cannot be resolved is no reason to be without a link: the certificate says if the server at
//! the last address is still the peer. Whoever keeps these over a restart passes them on to the next run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

/// Most names that are remembered; members have far fewer.
const MAX_NAMES: usize = 128;

/// The last address of each name. Cheap to clone; clones share the addresses.
#[derive(Clone, Debug, Default)]
pub struct LastAddresses(Arc<watch::Sender<BTreeMap<String, SocketAddr>>>);

impl LastAddresses {
    /// Begins with the addresses of an earlier run.
    pub fn new(known: BTreeMap<String, SocketAddr>) -> LastAddresses {
        LastAddresses(Arc::new(watch::Sender::new(known)))
    }

    /// Returns a receiver that sees every change.
    pub fn changes(&self) -> watch::Receiver<BTreeMap<String, SocketAddr>> {
        self.0.subscribe()
    }

    /// Notes where a peer was reached. An address that is no name needs no memory.
    pub(super) fn note(&self, name: &str, address: SocketAddr) {
        if name.parse::<SocketAddr>().is_ok() {
            return;
        }
        self.0.send_if_modified(|known| {
            if known.get(name) == Some(&address) {
                return false;
            }
            if known.len() >= MAX_NAMES && !known.contains_key(name) {
                known.pop_first();
            }
            known.insert(name.to_owned(), address);
            true
        });
    }

    pub(super) fn of(&self, name: &str) -> Option<SocketAddr> {
        self.0.borrow().get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn the_last_address_of_each_name_is_known_and_changes_are_told_once() {
        let known = LastAddresses::new([("fra:7402".to_owned(), at(1))].into());
        let mut changes = known.changes();
        known.note("fra:7402", at(1));
        known.note("127.0.0.1:7402", at(7402));
        assert!(!changes.has_changed().expect("it is there"));
        known.note("fra:7402", at(2));
        assert!(changes.has_changed().expect("it is there"));
        assert_eq!(*changes.borrow_and_update(), [("fra:7402".to_owned(), at(2))].into());
        assert_eq!((known.of("fra:7402"), known.of("iad:7402")), (Some(at(2)), None));
    }

    #[test]
    fn names_are_bounded() {
        let known = LastAddresses::default();
        (0..300).for_each(|n| known.note(&format!("dc{n}:1"), at(n)));
        assert_eq!(known.changes().borrow().len(), MAX_NAMES);
        assert_eq!(known.of("dc299:1"), Some(at(299)));
    }
}
