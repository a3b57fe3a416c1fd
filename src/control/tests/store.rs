//! The store and the state machine pass the tests that openraft has for them.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tokio::sync::watch;

use super::super::fold::SharedList;
use super::super::log_store::LogStore;
use super::super::machine::Machine;
use super::super::store::Store;
use super::super::types::Types;
use super::disk::CrashDisk;
use super::{Names, member};

struct Builder;

impl StoreBuilder<Types, LogStore, Machine<Names>> for Builder {
    async fn build(&self) -> Result<((), LogStore, Machine<Names>), StorageError<Types>> {
        let store = Arc::new(Store::on(CrashDisk::default(), member(0)).expect("an empty disk"));
        let machine =
            Machine { store: store.clone(), list: SharedList::new(), decided: watch::Sender::new(0) };
        Ok(((), LogStore(store), machine))
    }
}

#[tokio::test]
async fn the_store_does_what_openraft_asks_of_it() {
    Suite::test_all(Builder).await.expect("all hold");
}
