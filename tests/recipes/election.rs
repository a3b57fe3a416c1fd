//! Elections on real servers: candidates and observers in three datacenters.
//!
//! Guarantee: docs/guarantees.md#leader-election.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::{Cluster, key, servers, within};
use geolock::client::{
    AcquireError, AdminClient, Batch, Client, ForceReason, Key, LostReason, Reason, TxnRequest, Update, Wait,
};
use geolock_recipes::{Elected, Election, HeldError, HeldOptions, HeldWatch};
use tokio::task::JoinSet;

fn election(client: &Client, who: &str) -> Election {
    let mut options = HeldOptions::default();
    options.who = who.to_owned();
    Election::new(client, "scheduler", options).expect("the options are fine")
}

/// Waits until the observer sees such a leader.
async fn sees(observer: &mut HeldWatch, is_it: impl Fn(&Elected) -> bool) -> Elected {
    loop {
        let elected = within(observer.next()).await.expect("it is readable");
        if let Some(elected) = elected.filter(&is_it) {
            return elected;
        }
    }
}

/// Waits until the observer sees that nobody leads.
async fn sees_nobody(observer: &mut HeldWatch) {
    while within(observer.next()).await.expect("it is readable").is_some() {}
}

async fn candidate(cluster: &Cluster, dc: u8) -> Election {
    election(&cluster.client(dc).await, &format!("dc{dc}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lead_goes_round_a_hundred_times_and_observers_agree() {
    const ROUNDS: usize = 100;
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    let led = Arc::new(Mutex::new(Vec::new()));
    let mut observers = JoinSet::new();
    for client in clients {
        let mut observer = election(&client, "").observe();
        assert_eq!(within(observer.next()).await.expect("it is readable"), None);
        observers.spawn(async move {
            let mut seen: Vec<Elected> = Vec::new();
            while seen.len() < ROUNDS {
                seen.extend(observer.next().await.expect("it is readable"));
            }
            seen.into_iter().map(|elected| (elected.token, elected.value)).collect::<Vec<_>>()
        });
    }
    let mut candidates = JoinSet::new();
    for number in 0..9 {
        let candidate = candidate(&cluster, number % 3).await;
        let led = Arc::clone(&led);
        candidates.spawn(async move {
            loop {
                let leader = candidate.campaign(format!("candidate {number}")).await.expect("it is elected");
                let is_last = {
                    let mut led = led.lock().expect("nothing panics");
                    if led.len() < ROUNDS {
                        led.push((leader.token(), format!("candidate {number}")));
                    }
                    led.len() == ROUNDS
                };
                if is_last {
                    // Nobody else leads any more.
                    return leader;
                }
                leader.resign().await.expect("it leads");
            }
        });
    }
    let leader = within(candidates.join_next()).await.expect("there are nine").expect("no panic");
    let led = led.lock().expect("nothing panics").clone();
    assert!(led.is_sorted_by(|a, b| a.0 < b.0), "{led:?}");
    let led: Vec<_> = led.into_iter().map(|(token, value)| (token, value.into())).collect();
    for seen in within(observers.join_all()).await {
        assert_eq!(seen, led);
    }
    assert_eq!(leader.is_lost(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observers_see_what_the_leader_proclaims_and_that_it_resigns() {
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    let mut observer = election(&clients[1], "").observe();
    assert_eq!(within(observer.next()).await.expect("it is readable"), None);
    let leader = within(candidate(&cluster, 0).await.campaign("starts")).await.expect("it is elected");
    let seen = sees(&mut observer, |_| true).await;
    assert_eq!((&*seen.who, &seen.value[..], seen.token), ("dc0", &b"starts"[..], leader.token()));
    within(leader.proclaim("serves")).await.expect("it leads");
    assert_eq!(sees(&mut observer, |_| true).await.value[..], b"serves"[..]);
    let late = election(&clients[2], "");
    let seen = sees(&mut late.observe(), |seen| seen.value[..] == b"serves"[..]).await;
    assert_eq!(seen.token, leader.token());
    within(leader.resign()).await.expect("it leads");
    sees_nobody(&mut observer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_outlives_its_record_and_a_dropped_one_resigns() {
    let (cluster, clients) = servers(2).patient().quick().serving().await;
    let mut config = cluster.client_config(0);
    config.ttl = Some(Duration::from_secs(2));
    let client = Client::connect(config).await.expect("the server listens");
    let leader = within(election(&client, "ann").campaign("v")).await.expect("it is elected");
    let mut observer = election(&clients[1], "").observe();
    let seen = sees(&mut observer, |_| true).await;
    assert_eq!(seen.token, leader.token());
    // This key lasts longer than the record would, and was made later.
    let mark = key("mark");
    let batch = Batch::new().update(&mark, Update::register("1"));
    let batch = batch.expire(&mark, Duration::from_secs(7));
    client.transact(TxnRequest::new(), batch).await.expect("it commits");
    let is_over = async { while client.read(&mark).await.expect("it is up").is_some() {} };
    tokio::select! {
        () = within(is_over) => {}
        changed = observer.next() => panic!("{changed:?}"),
    }
    drop(leader);
    sees_nobody(&mut observer).await;
    let next = within(candidate(&cluster, 1).await.campaign("w")).await.expect("it is elected");
    assert!(next.token() > seen.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_loses_its_lock_is_told_and_writes_nothing_more() {
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    let first = candidate(&cluster, 0).await;
    let leader = within(first.campaign("first")).await.expect("it is elected");
    let operator = AdminClient::connect(cluster.client_config(0)).await.expect("it is up");
    let reason = ForceReason::new("it hangs").expect("it says something");
    operator.force_release(first.lock(), &reason).await.expect("it is allowed");
    assert!(matches!(within(leader.lost()).await, LostReason::ForceReleased { .. }));
    let second = within(candidate(&cluster, 2).await.campaign("second")).await.expect("it is elected");
    assert!(second.token() > leader.token());
    let refused = within(leader.proclaim("first again")).await;
    assert!(matches!(refused, Err(HeldError::Lost(_))), "{refused:?}");
    assert!(within(leader.resign()).await.is_err(), "it had been lost");
    let mut observer = election(&clients[1], "").observe();
    assert_eq!(sees(&mut observer, |seen| seen.token == second.token()).await.value[..], b"second"[..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_named_and_changes_nothing() {
    let (cluster, clients) = servers(1).patient().serving().await;
    let client = &clients[0];
    for (name, len) in [(String::new(), 0), ("n".repeat(1_011), 1_011)] {
        let error = Election::new(client, name, HeldOptions::default()).expect_err("it is no name");
        assert!(matches!(error, HeldError::Name { len: found, most: 1_010 } if found == len), "{error}");
    }
    Election::new(client, "n".repeat(1_010), HeldOptions::default()).expect("it is the longest name");
    let ours = election(client, "ann");
    let error = within(ours.campaign(vec![0; 65_537])).await.expect_err("it is too long");
    assert!(matches!(error, HeldError::Value { len: 65_537, most: 65_536 }), "{error}");
    let error = within(election(client, &"w".repeat(257)).campaign("v")).await.expect_err("it is too long");
    let too_long = Reason::LabelTooLong;
    let is_it = matches!(&error, HeldError::Acquire(AcquireError::Refused(reason, _)) if *reason == too_long);
    assert!(is_it, "{error}");
    assert_eq!(ours.leader().await.expect("it is up"), None);

    // A longest value is written; another candidate that does not wait for ever says so.
    let leader = within(ours.campaign(vec![0; 65_536])).await.expect("it is elected");
    let error = within(leader.proclaim(vec![0; 65_537])).await.expect_err("it is too long");
    assert!(matches!(error, HeldError::Value { .. }), "{error}");
    let mut options = HeldOptions::default();
    options.wait = Wait::AtMost(Duration::from_millis(10));
    let other = Election::new(&cluster.client(0).await, "scheduler", options).expect("the options are fine");
    let error = within(other.campaign("w")).await.expect_err("it is led");
    assert!(matches!(&error, HeldError::Acquire(AcquireError::TimedOut { .. })), "{error}");
    leader.resign().await.expect("it leads");

    // Something else in the place of the record is said, and replaced by the next leader.
    let foreign = Key::new(b"geolock.elect", b"scheduler").expect("it is short");
    client.update(&foreign, Update::register("hello")).await.expect("it commits");
    let error = ours.leader().await.expect_err("it is no record");
    assert!(error.to_string().contains("the key scheduler of the bucket geolock.elect"), "{error}");
    let mut observer = ours.observe();
    assert!(matches!(within(observer.next()).await, Err(HeldError::Unreadable { .. })));
    let leader = within(ours.campaign("v")).await.expect("it is elected");
    let seen = async {
        loop {
            if let Ok(Some(elected)) = observer.next().await {
                return elected;
            }
        }
    };
    assert_eq!(within(seen).await.token, leader.token());
}
