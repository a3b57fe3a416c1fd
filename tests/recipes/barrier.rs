//! Double barriers on real servers, in three datacenters.
//!
//! Guarantee: docs/guarantees.md#double-barrier.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixture::{Cluster, servers, within};
use geolock::client::{Client, Key, Update};
use geolock_recipes::{Barrier, BarrierError, BarrierOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

fn barrier(client: &Client, needed: usize) -> Barrier {
    let mut options = BarrierOptions::default();
    options.expiry = Duration::from_secs(3);
    Barrier::new(client, "round", needed, options).expect("the options are fine")
}

/// A member that enters on a runtime of its own and stays inside. When the runtime is shut down, the member
/// is dead: nothing of it runs, as in a process that was killed.
fn mortal(cluster: &Cluster, dc: u8, name: &'static str, needed: usize) -> (Runtime, oneshot::Receiver<()>) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let config = cluster.client_config(dc);
    let (entered, is_in) = oneshot::channel();
    runtime.spawn(async move {
        let client = Client::connect(config).await.expect("the server listens");
        let _inside = barrier(&client, needed).enter(name).await.expect("nothing is refused");
        let _ = entered.send(());
        std::future::pending::<()>().await;
    });
    (runtime, is_in)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nine_members_enter_and_leave_together_but_for_one_that_died() {
    let (cluster, _clients) = servers(3).patient().quick().serving().await;
    let (come, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (victim, is_in) = mortal(&cluster, 1, "victim", 9);
    let mut members = JoinSet::new();
    for number in 0..8_u8 {
        let barrier = barrier(&cluster.client(number % 3).await, 9);
        let (come, gone) = (Arc::clone(&come), Arc::clone(&gone));
        members.spawn(async move {
            come.fetch_add(1, Ordering::SeqCst);
            let inside = barrier.enter(format!("member {number}")).await.expect("nothing is refused");
            assert_eq!(come.load(Ordering::SeqCst), 8, "too early");
            gone.fetch_add(1, Ordering::SeqCst);
            let dead = inside.leave().await.expect("nothing is refused");
            assert_eq!(gone.load(Ordering::SeqCst), 8, "too early");
            dead
        });
    }
    within(is_in).await.expect("it is in");
    victim.shutdown_background();
    for dead in within(members.join_all()).await {
        assert_eq!(dead, ["victim"]);
    }
    let late = within(barrier(&cluster.client(2).await, 9).enter("late")).await;
    assert!(matches!(late, Err(BarrierError::Used)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_before_all_are_in_does_not_count() {
    let (cluster, clients) = servers(2).patient().quick().serving().await;
    let (victim, _) = mortal(&cluster, 0, "victim", 2);
    let key = Key::new(b"geolock.barrier", b"member/5/round/victim").expect("it is short");
    let is_in = async |there: bool| {
        while clients[1].read(&key).await.expect("it is up").is_some() != there {
            tokio::task::yield_now().await;
        }
    };
    within(is_in(true)).await;
    victim.shutdown_background();
    within(is_in(false)).await;
    let come = Arc::new(AtomicUsize::new(0));
    let member = |dc: usize| {
        let (barrier, come) = (barrier(&clients[dc], 2), Arc::clone(&come));
        tokio::spawn(async move {
            come.fetch_add(1, Ordering::SeqCst);
            let inside = barrier.enter(format!("member {dc}")).await.expect("nothing is refused");
            (come.load(Ordering::SeqCst), inside.leave().await.expect("nothing is refused"))
        })
    };
    let first = member(1);
    let own = Key::new(b"geolock.barrier", b"member/5/round/member 1").expect("it is short");
    within(async { while !clients[1].read(&own).await.expect("it is up").is_some() {} }).await;
    let second = member(0);
    for member in [first, second] {
        let (come, dead) = within(member).await.expect("no panic");
        assert_eq!((come, dead), (2, vec!["victim".into()]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_gives_up_is_out_and_the_others_do_not_wait_for_it() {
    let (_cluster, clients) = servers(2).patient().quick().serving().await;
    let given_up = barrier(&clients[0], 2);
    let entering = tokio::spawn(async move { given_up.enter("gives up").await });
    let key = Key::new(b"geolock.barrier", b"member/5/round/gives up").expect("it is short");
    within(async { while !clients[0].read(&key).await.expect("it is up").is_some() {} }).await;
    entering.abort();
    within(async { while clients[1].read(&key).await.expect("it is up").is_some() {} }).await;
    let (a, b) = (barrier(&clients[0], 2), barrier(&clients[1], 2));
    let (a, b) = tokio::join!(within(a.enter("a")), within(b.enter("b")));
    drop(a.expect("nothing is refused"));
    assert_eq!(within(b.expect("nothing is refused").leave()).await.expect("it is in"), Vec::<&[u8]>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_barriers_are_named() {
    let (_cluster, clients) = servers(1).patient().serving().await;
    let client = &clients[0];
    let new = |name: &str, needed| Barrier::new(client, name, needed, BarrierOptions::default());
    assert!(matches!(new("", 2), Err(BarrierError::Name { barrier: 0, .. })));
    assert!(matches!(new(&"n".repeat(1_000), 2), Err(BarrierError::Name { barrier: 1_000, .. })));
    assert!(matches!(new("x", 0), Err(BarrierError::Members(0))));
    assert!(matches!(new("x", 1_001), Err(BarrierError::Members(1_001))));
    for (expiry, keep) in [(0, 60), (61, 60)] {
        let mut options = BarrierOptions::default();
        (options.expiry, options.keep) = (Duration::from_secs(expiry), Duration::from_secs(keep));
        assert!(matches!(Barrier::new(client, "x", 2, options), Err(BarrierError::Expiry { .. })));
    }
    let longest = new(&"n".repeat(990), 1).expect("there is room for the name of a member");
    let refused = within(longest.enter("m".repeat(11))).await;
    assert!(matches!(refused, Err(BarrierError::Name { barrier: 990, member: 11 })), "{refused:?}");
    assert!(matches!(within(longest.enter("")).await, Err(BarrierError::Name { member: 0, .. })));
    let inside = within(longest.enter("m".repeat(10))).await.expect("it is alone");
    within(inside.leave()).await.expect("it is alone");

    let foreign = Key::new(b"geolock.barrier", b"in/round").expect("it is short");
    client.update(&foreign, Update::register("hello")).await.expect("it commits");
    assert!(matches!(within(barrier(client, 1).enter("a")).await, Err(BarrierError::WrongType(_))));
}
