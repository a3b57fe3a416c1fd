//! The bank of [`crate::fixture::bank`] while servers are killed and links are cut, each at least once.
//!
//! Guarantee: docs/guarantees.md#isolation.

use crate::fixture::bank::{Bank, CHECKPOINTS};
use crate::fixture::servers;
use crate::fixture::trouble::{Dice, make_trouble};

/// A run with less than this proves nothing.
const MIN_COMMITS: u32 = 80;
const MIN_HAND_OFFS: u32 = 15;
const MIN_AUDITS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_is_the_same_in_every_snapshot_while_servers_are_killed_and_links_cut() {
    let _alone = crate::alone().await;
    let mut dice = Dice::from_environment();
    let (mut wan, clients) = servers(3).quick().with(CHECKPOINTS).relayed().serving().await;
    let bank = Bank::begin(&clients, &mut dice).await;
    let tally = make_trouble(&mut wan, &mut dice, bank.load()).await;
    let figures = bank.end(&clients).await;
    println!("{figures:?}, {tally:?}");
    assert!(figures.commits >= MIN_COMMITS, "{figures:?}");
    assert!(figures.sorted > 0 && figures.unsorted > 0, "locks are asked for in both orders");
    assert!(figures.unknown < 10, "outcomes are known: {figures:?}");
    assert!(figures.hand_offs >= MIN_HAND_OFFS, "{figures:?}");
    assert!(tally.kills >= 3 && tally.broken >= 2, "{tally:?}");
    assert!((0..3).all(|dc| wan.cluster.has_checkpoint(dc)), "every server has made a checkpoint");
    assert!(
        figures.audits.iter().all(|audits| *audits >= MIN_AUDITS),
        "every auditor has looked: {figures:?}"
    );
}
