//! Stories about a server whose disk is of before a change of the members.

use super::evicting::Story;
use super::store_cluster::{add, step};
use crate::base::bugs::Bug;
use crate::replica::call::Phase;
use crate::replica::call::store::Then;

/// dc0 commits, so that its own log goes on.
fn commit(s: &mut Story, key: u64) {
    s.c.begin(0, key, None, step(vec![add("n", 1)], &[], Then::Commit));
    s.c.run();
}

/// dc0 is started on the first `keep` of its records, and dc1 can be reached. Returns the phase in the end.
fn started_on(s: &mut Story, keep: usize) -> Phase {
    s.c.crash(0, keep);
    s.c.link(0, 1);
    // Leases that it does not know may live for a minute.
    s.c.pass(70_000);
    s.c.inspect(0).phase()
}

/// Its disk is of before the end of dc2, which it has entered.
fn is_older_than_an_end(bug: Option<Bug>) -> (Story, Phase) {
    let mut s = Story::new(3, bug);
    commit(&mut s, 1);
    let keep = s.c.nodes[0].records.len();
    s.evict_dc2();
    commit(&mut s, 2);
    let phase = started_on(&mut s, keep);
    (s, phase)
}

/// It is of before the loss of dc2, which is evicted when that disk is in use again.
fn evicts_with_an_older_disk(bug: Option<Bug>) -> (Story, Phase) {
    let mut s = Story::new(3, bug);
    let keep = s.c.nodes[0].records.len();
    commit(&mut s, 1);
    s.c.isolate(2);
    let before = started_on(&mut s, keep);
    assert_eq!(before, Phase::ReadOnly, "dc2 may know more of its log");
    s.evict_dc2();
    s.c.pass(2_000);
    let phase = s.c.inspect(0).phase();
    (s, phase)
}

#[test]
fn an_older_disk_gets_the_entry_back_by_which_it_has_entered_an_end() {
    let (mut s, phase) = is_older_than_an_end(None);
    assert_eq!(phase, Phase::Serving);
    assert_eq!(s.c.inspect(0).applied(), s.c.inspect(1).applied());
    assert_eq!(s.c.inspect(0).entered_by(super::cluster::dc(0)), s.config.epoch());
    s.c.restart(0);
    s.c.link_again(0);
    s.c.pass(1_000);
    assert_eq!(s.c.inspect(0).phase(), Phase::Serving, "so after a restart");
    s.c.assert_no_violations();
}

#[test]
fn an_older_disk_that_waits_with_an_epoch_for_its_own_entry_waits_for_ever() {
    assert_eq!(is_older_than_an_end(Some(Bug::EpochAwaitsItsEntry)).1, Phase::ReadOnly);
}

#[test]
fn an_older_disk_does_not_wait_for_a_member_whose_end_is_decided() {
    let (mut s, phase) = evicts_with_an_older_disk(None);
    assert_eq!(phase, Phase::Serving);
    s.c.open_lease(0, std::time::Duration::from_secs(10));
    let asked = s.c.lock(0, "a");
    s.c.run();
    s.c.granted(0, asked);
    assert_eq!(s.c.inspect(1).applied(), s.c.inspect(0).applied());
    s.c.assert_no_violations();
}

#[test]
fn an_older_disk_that_waits_for_the_ended_waits_for_ever() {
    assert_eq!(evicts_with_an_older_disk(Some(Bug::AwaitsTheEnded)).1, Phase::ReadOnly);
}
