//! Instances of a section in one process, each with a lease of its own, in three datacenters.
//!
//! Guarantee: docs/guarantees.md#run-once.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::{Cluster, servers, within};
use geolock::client::{AdminClient, ForceReason};
use geolock_recipes::{CriticalSection, LastSeen, OnceError, OnceOptions, Outcome, Run, RunState};
use tokio::sync::Notify;
use tokio::task::JoinSet;

fn options(who: &str) -> OnceOptions {
    let mut options = OnceOptions::default();
    options.wait = Duration::from_secs(1);
    options.who = who.to_owned();
    options
}

async fn never(_: Run) -> Result<(), String> {
    panic!("it is not to run")
}

async fn section(cluster: &Cluster, dc: u8, name: &str, who: &str) -> CriticalSection {
    let client = cluster.client(dc).await;
    CriticalSection::new(&client, name, options(who)).expect("the options are fine")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_instances_in_three_datacenters_one_runs() {
    let (cluster, _clients) = servers(3).quick().serving().await;
    let (done, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut instances = JoinSet::new();
    for number in 0..60 {
        let section = section(&cluster, number % 3, "migrate", &format!("instance {number}")).await;
        let (done, runs) = (Arc::clone(&done), Arc::clone(&runs));
        instances.spawn(async move {
            let needed = async || Ok::<_, String>(!done.load(Ordering::Relaxed));
            let run = async |_: Run| {
                runs.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                done.store(true, Ordering::Relaxed);
                Ok(())
            };
            section.run(needed, run).await.expect("nothing is refused")
        });
    }
    let outcomes = within(instances.join_all()).await;
    let ran = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Ran { .. })).count();
    let others =
        outcomes.iter().filter(|it| matches!(it, Outcome::DoneByOther { .. } | Outcome::NotNeeded)).count();
    assert_eq!((ran, others, runs.load(Ordering::Relaxed)), (1, 59, 1), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_in_one_datacenter_is_seen_in_another_which_tries_again() {
    let (cluster, _clients) = servers(3).quick().serving().await;
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let first = section(&cluster, 0, "report", "ann").await;
    let failing = tokio::spawn({
        let tokens = Arc::clone(&tokens);
        async move {
            let run = async |run: Run| {
                tokens.lock().expect("nothing panics").push(run.token());
                Err("no disk")
            };
            first.run_unless_done(run).await
        }
    });
    let second = section(&cluster, 1, "report", "bob").await;
    let failed = async {
        loop {
            let status = second.status().await.expect("it is up");
            if let Some(record) = status.record
                && let RunState::Failed { error } = record.state
            {
                return (error, record.who, record.attempts >= 1);
            }
        }
    };
    assert_eq!(within(failed).await, ("no disk".to_owned(), "ann".to_owned(), true));
    let run = async |run: Run| {
        tokens.lock().expect("nothing panics").push(run.token());
        Ok::<_, String>(())
    };
    let outcome = within(second.run_unless_done(run)).await.expect("nothing is refused");
    let Outcome::Ran { run } = outcome else { panic!("{outcome:?}") };
    let told = within(failing).await.expect("no panic").expect("nothing is refused");
    let Outcome::DoneByOther { run: seen, who, .. } = told else { panic!("{told:?}") };
    assert_eq!((seen, &*who), (run, "bob"));
    let tokens = tokens.lock().expect("nothing panics").clone();
    assert!(tokens.len() >= 2 && tokens.is_sorted(), "{tokens:?}");
    assert_eq!(tokens.last().map(|token| token.0), Some(run));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_loses_its_lock_is_stopped_and_another_one_runs() {
    let (cluster, _clients) = servers(3).quick().serving().await;
    let first = section(&cluster, 0, "x", "ann").await;
    let lock = first.lock().clone();
    let started = Arc::new(Notify::new());
    let running = tokio::spawn({
        let started = Arc::clone(&started);
        async move {
            let run = async |_: Run| {
                started.notify_one();
                std::future::pending::<Result<(), String>>().await
            };
            first.run_unless_done(run).await
        }
    });
    within(started.notified()).await;
    let second = section(&cluster, 2, "x", "bob").await;
    let operator = AdminClient::connect(cluster.client_config(0)).await.expect("it is up");
    let reason = ForceReason::new("it hangs").expect("it says something");
    operator.force_release(&lock, &reason).await.expect("it is allowed");
    let told = within(running).await.expect("no panic").expect("nothing is refused");
    assert!(matches!(told, Outcome::GaveUp { last: LastSeen::LostWhileRunning { .. }, .. }), "{told:?}");
    let outcome = within(second.run_unless_done(async |_| Ok::<_, String>(()))).await;
    assert!(matches!(outcome, Ok(Outcome::Ran { .. })), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_needed_touches_nothing_and_an_unknown_need_ends_it() {
    let (cluster, _clients) = servers(1).serving().await;
    let section = section(&cluster, 0, "x", "ann").await;
    let outcome = section.run(async || Ok(false), never).await.expect("it is known");
    assert_eq!((outcome, section.status().await.expect("it is up").record), (Outcome::NotNeeded, None));
    let error =
        section.run(async || Err("no database".to_owned()), never).await.expect_err("it is not known");
    assert!(matches!(&error, OnceError::Needed(why) if why == "no database"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_has_done_it_and_needs_it_again_runs_it_again() {
    let (cluster, _clients) = servers(1).serving().await;
    let section = section(&cluster, 0, "x", "ann").await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let outcome = within(section.run(async || Ok::<_, String>(true), async |_| Ok(()))).await;
        let Ok(Outcome::Ran { run }) = outcome else { panic!("{outcome:?}") };
        runs.push(run);
    }
    assert!(runs[0] < runs[1], "{runs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_a_section_is_a_failure_of_it() {
    let (cluster, _clients) = servers(1).serving().await;
    let section = section(&cluster, 0, "x", "ann").await;
    let times = AtomicU32::new(0);
    let run = async |_: Run| -> Result<(), String> {
        assert!(times.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        Ok(())
    };
    let outcome = within(section.run_unless_done(run)).await.expect("nothing is refused");
    assert!(matches!(outcome, Outcome::Ran { .. }), "{outcome:?}");
    assert_eq!(times.load(Ordering::Relaxed), 2);
}
