//! Lists that all clients append to, each under its lock, in three datacenters concurrently, while servers
//! are killed and links are cut: no append is lost or doubled, and the order is the same everywhere.
//!
//! Guarantee: docs/guarantees.md#isolation.

use crate::fixture::lists::{HOLD, Lists};
use crate::fixture::servers;
use crate::fixture::trouble::{Dice, make_trouble};

/// The least that a run must achieve.
const MIN_APPENDS: usize = 60;
const MIN_HAND_OFFS: u32 = 25;
const MIN_READS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_append_is_lost_and_the_order_is_the_same_everywhere() {
    let _alone = crate::alone().await;
    let mut dice = Dice::from_environment();
    let (mut wan, clients) = servers(3).quick().with(HOLD).relayed().serving().await;
    let lists = Lists::begin(&clients, &mut dice);
    let tally = make_trouble(&mut wan, &mut dice, &lists.load()).await;
    let figures = lists.end(&clients).await;
    println!("{figures:?}, {tally:?}");
    assert!(figures.least > 0, "every list was appended to");
    assert!(figures.appends >= MIN_APPENDS && figures.unknown < 10, "{figures:?}");
    assert!(figures.hand_offs >= MIN_HAND_OFFS, "{figures:?}");
    assert!(tally.kills >= 3 && tally.broken >= 2, "{tally:?}");
    assert!(figures.reads.iter().all(|reads| *reads >= MIN_READS), "every reader has looked: {figures:?}");
}
