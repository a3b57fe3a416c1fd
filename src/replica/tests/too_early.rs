//! Stories about servers that act before they know enough after a start.

use super::cluster::{Cluster, dc};
use super::evicting::Story;
use super::returned::replace_dc2;
use super::store_cluster::key;
use crate::base::bugs::Bug;
use crate::causal_log::Op;
use crate::membership::{Command, Generation};
use crate::replica::Record;
use crate::replica::call::store::{AtLeast, TxnRefusal};
use crate::replica::call::{Call, ListCursor, Phase};
use geolock_api::names::Position;

/// dc0 has restarted, and a client may still reclaim a lock. A server joins as dc2, with dc0 as its sponsor,
/// and is settled.
pub(super) fn joins_in_grace(bug: Option<Bug>) -> Story {
    let mut s = Story::new(3, bug);
    s.evict_dc2();
    s.c.pass(2_000);
    replace_dc2(&mut s.c);
    s.c.restart(0);
    s.c.link(0, 1);
    s.c.pass(3_000);
    s.admit(dc(2), Generation(1));
    s.c.link_again(2);
    s.c.pass(3_000);
    s.decide(Command::Settled { dc: dc(2), generation: Generation(1) });
    s.c.pass(1_000);
    s
}

/// Returns true if dc0 splits its part before that client has reclaimed.
fn splits_in_grace(bug: Option<Bug>) -> bool {
    let s = joins_in_grace(bug);
    assert!(matches!(s.c.inspect(0).phase(), Phase::Grace { .. }), "{:?}", s.c.inspect(0).phase());
    let is_split = |(_, record): &(Position, Record)| match record {
        Record::Entry(entry) => entry.ops.iter().any(|op| matches!(op, Op::Split { .. })),
        _ => false,
    };
    s.c.nodes[0].records.iter().any(is_split)
}

#[test]
fn a_new_part_is_named_after_all_clients_have_reclaimed() {
    assert!(!splits_in_grace(None));
    assert!(splits_in_grace(Some(Bug::NamesInGrace)), "the client may hold a lock that needs the new part");
}

/// dc1 has lost its disk, and hears nobody. Returns true if it shows a reader that nothing exists.
fn shows_an_empty_store(bug: Option<Bug>) -> bool {
    let mut c = Cluster::with_old(2, Default::default(), bug);
    c.isolate(1);
    c.crash(1, 0);
    let read = c.read(1, &["n"], AtLeast::default());
    c.sync(1);
    c.is_answered(1, read)
}

#[test]
fn a_server_without_a_state_lists_no_keys() {
    let mut c = Cluster::with_old(2, Default::default(), None);
    c.isolate(1);
    c.crash(1, 0);
    let prefix = key("n").as_bytes().into();
    let listing = c.call(1, Call::ListKeys { prefix, cursor: ListCursor::default(), limit: 10 });
    c.sync(1);
    assert!(matches!(c.txn_refused(1, listing), TxnRefusal::NoState));
}

#[test]
fn a_server_without_a_state_shows_no_empty_store() {
    assert!(!shows_an_empty_store(None));
    assert!(shows_an_empty_store(Some(Bug::ReadsBeforeState)));
}
