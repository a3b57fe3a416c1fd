//! Signals to `geolock lock` while its command runs.
//!
//! Guarantee: docs/guarantees.md#not-promised.

use std::path::Path;
use std::process::Command;

use crate::commands::holding;
use crate::fixture::said::run;
use crate::fixture::{Output, Running, servers};
use rustix::process::Signal;

#[test]
fn signals_are_passed_on() {
    let cluster = servers(1).listening();
    let traps =
        "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut holder = holding(&cluster, &[], traps);
    holder.line("ready");
    holder.signal(Signal::USR1);
    holder.line("usr1");
    holder.signal(Signal::TERM);
    holder.line("term");
    assert_eq!(holder.wait(), 3);
}

/// Such as those of an alarm, or of a limit of CPU time, which a parent may have set.
#[test]
#[cfg(target_os = "linux")]
fn no_signal_ends_the_runner_while_its_command_runs() {
    let cluster = servers(1).listening();
    for number in [6, 14, 16, 24, 25, 26, 27, 29, 30, 31, 34, 40, 63] {
        let mut holder = holding(&cluster, &["--ttl", "2s"], "echo $$; exec sleep 1000");
        let command = holder.line("");
        let id = holder.id().to_string();
        assert_eq!(run(Command::new("kill").args(["-s", &number.to_string(), &id])).code, 0);
        // Real-time signals count as SIGTERM.
        assert_eq!(holder.wait(), 128 + if number < 32 { number } else { 15 });
        assert!(!Path::new("/proc").join(&command).exists(), "the command of {number} is gone");
        assert_eq!(run(&mut cluster.command(0, ["lock", "--try", "x", "--", "true"])).code, 0, "{number}");
    }
}

/// Also what the command has started.
#[test]
#[cfg(target_os = "linux")]
fn a_runner_that_is_killed_leaves_nothing_of_its_command_behind() {
    let cluster = servers(1).listening();
    let command = "echo $$; sleep 1000 & echo $!; wait";
    let mut holder = holding(&cluster, &["--ttl", "2s"], command);
    let processes = [holder.line(""), holder.line("")];
    assert!(processes.iter().all(|process| is_running(process)), "{processes:?}");
    holder.signal(Signal::KILL);
    assert_eq!(holder.wait(), -Signal::KILL.as_raw());
    assert_eq!(run(&mut cluster.command(0, ["lock", "--wait", "20s", "x", "--", "true"])).code, 0);
    assert!(!processes.iter().any(|process| is_running(process)), "{processes:?}");
}

/// Returns true unless the process is gone, or has ended and is still to be reaped.
#[cfg(target_os = "linux")]
fn is_running(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_is_ignored_stays_ignored() {
    let cluster = servers(1).listening();
    // As `nohup` does it.
    let lock = cluster.command(
        0,
        [
            "lock",
            "x",
            "--",
            "sh",
            "-c",
            "trap 'echo usr1' USR1; trap 'exit 3' TERM; echo in; while :; do sleep 0.01; done",
        ],
    );
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(lock.get_program()).args(lock.get_args());
    command.envs(lock.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut holder = Running::start(&mut command, Output::Stdout);
    holder.line("in");
    holder.signal(Signal::HUP);
    // If the hangup were passed on, it would arrive before this signal.
    holder.signal(Signal::USR1);
    holder.line("usr1");
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait(), 3);
}
