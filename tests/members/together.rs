//! Commands of several operators at the same moment, at different servers.
//!
//! Operation: docs/membership.md.

use std::process::Stdio;

use serde_json::Value;

use crate::fixture::said::{run, said};
use crate::growth::AUTO;
use crate::leaving::three;

/// A command that takes the policy as it was before another one was decided takes that one back.
#[tokio::test(flavor = "multi_thread")]
async fn operators_who_change_different_values_at_the_same_moment_all_get_them() {
    let (cluster, _clients) = three(AUTO).await;
    let values = [
        ("--fence-after", "fence_after_ms"),
        ("--evict-after", "evict_after_ms"),
        ("--max-lease-ttl", "max_lease_ttl_ms"),
    ];
    for round in 1..=8_u64 {
        let commands: Vec<_> = (0..3)
            .map(|at| {
                let seconds = format!("{}s", 20 + round);
                let mut command =
                    cluster.command(at, ["member", "policy", values[usize::from(at)].0, &seconds]);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().expect("the binary is there")
            })
            .collect();
        for command in commands {
            let said = said(command);
            assert_eq!(said.code, 0, "{said:?}");
        }
        // This command waits for all decisions before it.
        let set = run(&mut cluster.command(0, ["member", "policy", "--join", "auto", "--json"]));
        assert_eq!(set.code, 0, "{set:?}");
        let shown = run(&mut cluster.command(0, ["member", "policy", "--json"]));
        let policy: Value = serde_json::from_str(&shown.stdout).expect("it prints JSON");
        for (_, value) in values {
            assert_eq!(policy[value], (20 + round) * 1_000, "{value} in round {round}: {policy}");
        }
    }
}
