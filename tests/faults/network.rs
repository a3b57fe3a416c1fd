//! Networks as bad as they come, one after the other, while everybody works on.

use crate::common::history::serving;
use crate::common::lists::{HOLD, Lists};
use crate::common::trouble::{Dice, some_progress};
use crate::common::wan::{QUICK, Wan};

/// The ways between any two.
const EVERYWHERE: [(&str, &str); 6] = [
    ("5 % loss", "loss = 0.05"),
    ("300 ms jitter, so that datagrams overtake each other", "jitter_ms = 300"),
    ("every fifth datagram twice", "duplicate = 0.2"),
    ("narrow", "bytes_per_second = 20000"),
    ("far", "delay_ms = 100"),
    (
        "all at once",
        "loss = 0.05\njitter_ms = 100\nduplicate = 0.05\nbytes_per_second = 200000\ndelay_ms = 30",
    ),
];
/// One way only, from one datacenter to another; the way back is good.
const ONE_WAY_CUTS: [(u8, u8); 3] = [(0, 1), (2, 0), (1, 2)];

fn everywhere_but(dc: u8, path: &str) -> String {
    let others = (0..3).filter(|other| *other != dc);
    others.map(|other| format!("[net.dc{other}]\n{path}\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_survive_every_bad_network() {
    let mut dice = Dice::from_environment();
    let mut wan = Wan::start_faulty(3, &format!("{QUICK}{HOLD}"));
    let clients = serving(&wan.cluster).await;
    let lists = Lists::begin(&clients, &mut dice);
    let mut progress = lists.load().progress();
    for (name, path) in EVERYWHERE {
        println!("{name}, at {}", *progress.borrow());
        (0..3).for_each(|dc| wan.cluster.befall(dc, &everywhere_but(dc, path)));
        some_progress(&mut dice, &mut progress).await;
    }
    (0..3).for_each(|dc| wan.cluster.befall(dc, ""));
    for (from, to) in ONE_WAY_CUTS {
        println!("nothing arrives from dc{from} in dc{to}, at {}", *progress.borrow());
        wan.await_whole();
        wan.cluster.befall(from, &format!("[net.dc{to}]\ncut = true\n"));
        // Neither end takes it for a link any more, also the one whose datagrams arrive.
        wan.await_link(to, from, false);
        wan.await_link(from, to, false);
        some_progress(&mut dice, &mut progress).await;
        wan.cluster.befall(from, "");
    }
    println!("flapping, at {}", *progress.borrow());
    for _ in 0..10 {
        for script in ["[net.dc1]\ncut = true\n[net.dc2]\ncut = true\n", ""] {
            wan.cluster.befall(0, script);
            some_progress(&mut dice, &mut progress).await;
        }
    }
    wan.await_whole();
    let figures = lists.end(&clients).await;
    println!("{figures:?}");
    assert!(figures.least > 0 && figures.appends > 100 && figures.hand_offs > 25, "{figures:?}");
}
