//! `geolock every` and periodic jobs on real servers.
//!
//! Guarantee: docs/guarantees.md#once-a-period.

use std::fs;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::fixture::said::{run, said};
use crate::fixture::{Cluster, servers, within};
use geolock_recipes::{Periodic, PeriodicOptions, PeriodicOutcome, Run};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3_600);

async fn periodic(cluster: &Cluster, dc: u8, again_after_failure: bool) -> Periodic {
    let mut options = PeriodicOptions::default();
    options.again_after_failure = again_after_failure;
    options.who = format!("dc{dc}");
    Periodic::new(&cluster.client(dc).await, "report", HOUR, options).expect("the options are fine")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_that_try_in_a_period_one_runs() {
    let (cluster, _clients) = servers(3).quick().serving().await;
    let mut attempts = JoinSet::new();
    for number in 0..18 {
        let job = periodic(&cluster, number % 3, false).await;
        attempts.spawn(async move {
            job.run(async |_: Run| Ok::<_, String>(())).await.expect("nothing is refused")
        });
    }
    let outcomes = within(attempts.join_all()).await;
    let ran = outcomes.iter().filter(|outcome| matches!(outcome, PeriodicOutcome::Ran { .. })).count();
    let skipped =
        outcomes.iter().filter(|outcome| matches!(outcome, PeriodicOutcome::Skipped { .. })).count();
    assert_eq!((ran, skipped), (1, 17), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_fails_counts_unless_it_is_to_run_again() {
    let (cluster, _clients) = servers(1).serving().await;
    let times = AtomicU32::new(0);
    let fails = async |_: Run| {
        times.fetch_add(1, Ordering::Relaxed);
        Err("no disk")
    };
    let again = periodic(&cluster, 0, true).await;
    for _ in 0..2 {
        let outcome = within(again.run(fails)).await.expect("nothing is refused");
        assert!(
            matches!(&outcome, PeriodicOutcome::Failed { error, .. } if error == "no disk"),
            "{outcome:?}"
        );
    }
    let once = periodic(&cluster, 0, false).await;
    let outcome = within(once.run(fails)).await.expect("nothing is refused");
    assert!(matches!(outcome, PeriodicOutcome::Failed { .. }), "{outcome:?}");
    let outcome = within(once.run(fails)).await.expect("nothing is refused");
    assert_eq!(outcome, PeriodicOutcome::Skipped { by: Some("dc0".to_owned()) });
    assert_eq!(times.load(Ordering::Relaxed), 3);
    let too_short = Periodic::new(&cluster.client(0).await, "x", Duration::ZERO, PeriodicOptions::default());
    assert!(too_short.is_err());
}

#[test]
fn while_the_datacenter_of_the_last_run_is_down_it_is_not_known_if_the_job_ran() {
    let mut cluster = servers(3).quick().listening();
    let every = |cluster: &Cluster, dc, more: &[&str]| {
        let args = [&["every", "--patience", "100ms"], more, &["1s", "x", "--", "true"]].concat();
        run(&mut cluster.command(dc, args))
    };
    assert_eq!(every(&cluster, 1, &[]).code, 0);
    cluster.kill(1);
    // Its mark may have been here already: then it was skipped for the rest of that period.
    let said = loop {
        let said = every(&cluster, 0, &["--tell"]);
        if said.code != 10 && said.stderr.contains("dc1") {
            break said;
        }
    };
    assert_eq!(said.code, 75, "{}", said.stderr);
    assert!(said.stderr.contains("it is not known if it ran in this period"), "{}", said.stderr);
    assert!(said.stderr.contains("dc1") && said.stderr.contains("out of reach"), "{}", said.stderr);
    let said = every(&cluster, 0, &["--json"]);
    let outcome = r#"{"outcome":"unknown","unreachable_dcs":[1]}"#;
    assert_eq!((said.code, said.stdout.trim()), (75, outcome), "{}", said.stderr);
}

#[test]
fn the_command_runs_once_and_decides_the_exit_code() {
    let cluster = servers(2).quick().listening();
    let file = cluster.dir().join("lines");
    let every = |dc: u8, name: &str, script: &str| {
        let mut command = cluster.command(dc, ["every", "--tell", "1h", name, "--", "sh", "-c", script]);
        command.env("FILE", &file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let all: Vec<Child> = (0..12)
        .map(|number| every(number % 2, "x", "echo $GEOLOCK_TOKEN >> $FILE").spawn().expect("it is there"))
        .collect();
    let codes: Vec<i32> = all.into_iter().map(|child| said(child).code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| [0, 10].contains(code)), "{codes:?}");
    assert_eq!(fs::read_to_string(&file).expect("it was written").lines().count(), 1);
    assert_eq!(run(&mut every(0, "y", "exit 7")).code, 7);
    assert_eq!(run(&mut every(1, "y", "exit 7")).code, 10);
    let missing = run(&mut cluster.command(0, ["every", "1h", "z", "--", "/no/such/command"]));
    assert_eq!(missing.code, 127);
    assert!(missing.stderr.contains("cannot run /no/such/command"), "{}", missing.stderr);
    assert_eq!(run(&mut cluster.command(0, ["every", "10ms", "x", "--", "true"])).code, 64);
}
