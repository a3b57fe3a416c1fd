//! Very bad networks, one after the other, under load.

use geolock::client::Client;

use crate::fixture::lists::{HOLD, Lists};
use crate::fixture::servers;
use crate::fixture::trouble::{Dice, some_progress};
use crate::fixture::wan::Wan;
use crate::fixture::within;

/// The fates of datagrams, in the order in which servers log them.
const FATES: [&str; 3] = ["lost", "delayed", "twice"];
/// Faults of all paths, and the fates of datagrams that must occur with each. Far comes first: on the other
/// paths a round trip takes long, too.
const EVERYWHERE: [(&str, &str, &[&str]); 6] = [
    ("far", "delay_ms = 100", &["delayed"]),
    ("5 % loss", "loss = 0.05", &["lost"]),
    ("300 ms jitter, so that datagrams overtake each other", "jitter_ms = 300", &["delayed"]),
    ("every fifth datagram twice", "duplicate = 0.2", &["twice"]),
    ("narrow", "bytes_per_second = 20000", &["delayed"]),
    (
        "all at once",
        "loss = 0.05\njitter_ms = 100\nduplicate = 0.05\nbytes_per_second = 200000\ndelay_ms = 30",
        &FATES,
    ),
];
/// A round trip takes 200 ms when the path is far, and next to nothing before; measured values approach that
/// step by step.
const FAR_US: u64 = 150_000;
/// Cuts in one direction only, from one datacenter to another; the way back works.
const ONE_WAY_CUTS: [(u8, u8); 3] = [(0, 1), (2, 0), (1, 2)];

fn everywhere_but(dc: u8, path: &str) -> String {
    let others = (0..3).filter(|other| *other != dc);
    others.map(|other| format!("[net.dc{other}]\n{path}\n")).collect()
}

/// Sets all paths from now on. Returns the counts of fates so far, by server.
fn befall_all(wan: &mut Wan, path: &str) -> [[u64; 3]; 3] {
    [0, 1, 2].map(|dc| {
        wan.cluster.befall(dc, &everywhere_but(dc, path));
        let mut said = wan.cluster.server(dc).seen.iter().rev();
        let line = said.find(|line| line.contains("faults of datagrams")).expect("it was just said");
        FATES.map(|fate| {
            let number = line.split(' ').find_map(|word| word.strip_prefix(fate)?.strip_prefix('='));
            number
                .and_then(|number| number.parse().ok())
                .unwrap_or_else(|| panic!("{fate} is missing: {line}"))
        })
    })
}

/// Waits until every server has measured that every other one is far.
async fn until_far(clients: &[Client]) {
    for client in clients {
        let far = async {
            loop {
                let peers = client.status().await.expect("it is up").peers;
                if peers.len() == 2 && peers.iter().all(|peer| peer.rtt_us >= FAR_US) {
                    return;
                }
            }
        };
        within(far).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_survive_every_bad_network() {
    let mut dice = Dice::from_environment();
    let (mut wan, clients) = servers(3).quick().with(HOLD).with_fault_scripts().await;
    let lists = Lists::begin(&clients, &mut dice);
    let mut progress = lists.load().progress();
    for (name, path, fates) in EVERYWHERE {
        println!("{name}, at {}", *progress.borrow());
        let before = befall_all(&mut wan, path);
        if name == "far" {
            until_far(&clients).await;
        }
        // Continues until that fate has occurred at each server.
        for round in 0.. {
            some_progress(&mut dice, &mut progress).await;
            let now = befall_all(&mut wan, path);
            let grew = |fate: usize| before.iter().zip(&now).all(|(before, now)| now[fate] > before[fate]);
            if (0..).zip(FATES).all(|(index, fate)| !fates.contains(&fate) || grew(index)) {
                break;
            }
            assert!(round < 100, "{name}: {before:?}, and after all that {now:?}");
        }
    }
    (0..3).for_each(|dc| wan.cluster.befall(dc, ""));
    for (from, to) in ONE_WAY_CUTS {
        println!("nothing arrives from dc{from} in dc{to}, at {}", *progress.borrow());
        wan.await_whole();
        wan.cluster.befall(from, &format!("[net.dc{to}]\ncut = true\n"));
        // Neither end treats it as a link any more, including the end whose datagrams arrive.
        wan.await_link(to, from, false);
        wan.await_link(from, to, false);
        some_progress(&mut dice, &mut progress).await;
        wan.cluster.befall(from, "");
    }
    println!("flapping, at {}", *progress.borrow());
    for flap in 0..10 {
        // Every other time the links are up before and down after; otherwise at arbitrary moments.
        let counts = flap % 2 == 0;
        if counts {
            wan.await_whole();
        }
        wan.cluster.befall(0, "[net.dc1]\ncut = true\n[net.dc2]\ncut = true\n");
        some_progress(&mut dice, &mut progress).await;
        if counts {
            (1..3).for_each(|peer| wan.await_link(0, peer, false));
        }
        wan.cluster.befall(0, "");
        some_progress(&mut dice, &mut progress).await;
    }
    wan.await_whole();
    let figures = lists.end(&clients).await;
    println!("{figures:?}");
    assert!(figures.least > 0 && figures.appends > 100 && figures.hand_offs > 25, "{figures:?}");
}
