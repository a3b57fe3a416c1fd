//! Comparison of hold policies: the same load, each on a playground of its own.

use std::str::FromStr;

use clap::builder::TypedValueParser;

use super::playground::Playground;
use super::{BenchArgs, connect, test};
use crate::cli::dev::StartArgs;
use crate::cli::failure::{Code, Failure};
use crate::cli::print::tell;
use crate::cli::suggest::Suggested;
use crate::server::config::HoldEntry;
use crate::testkit::load_test::report::Report;
use crate::testkit::load_test::{Options, Workload};

/// A hold policy for all locks.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    name: String,
    rule: HoldEntry,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let rule = format!(":{text}").parse::<HoldEntry>();
        let rule = rule.map_err(|why| format!("it is a rule without its prefix, and {why}"))?;
        Ok(Policy { name: text.into(), rule })
    }
}

/// Lists the names, so that a shell can complete them.
pub(super) fn parser() -> impl TypedValueParser<Value = Policy> {
    Suggested(&["fair", "throughput", "latency", "fixed"]).try_map(|text| text.parse::<Policy>())
}

/// Measures each policy into one report. If there is one lock for all, a run with one datacenter alone comes
/// first and is repeated at the end: the difference between the two shows how much the machine itself varied.
pub(super) async fn compare(args: &BenchArgs, options: &Options) -> Result<Report, Failure> {
    let mut all: Option<Report> = None;
    let alone = |name| (options.workload == Workload::Hot).then(|| (name, &args.policies[0], true));
    let each = args.policies.iter().map(|policy| (policy.name.as_str(), policy, false));
    let first = alone("one datacenter alone").into_iter();
    for (name, policy, is_alone) in first.chain(each).chain(alone("alone once more")) {
        tell(format_args!("now {name}"));
        let mut report = measure(args, options, policy, is_alone).await?;
        report.systems.iter_mut().for_each(|system| system.name = name.into());
        match &mut all {
            None => all = Some(report),
            Some(all) => all.systems.append(&mut report.systems),
        }
    }
    all.ok_or_else(|| Failure::new(Code::Usage, anyhow::anyhow!("no policy to compare: name one")))
}

async fn measure(
    args: &BenchArgs,
    options: &Options,
    policy: &Policy,
    is_alone: bool,
) -> Result<Report, Failure> {
    let mut shape = args.shape.clone();
    shape.hold = vec![policy.rule.clone()];
    let playground = Playground::start(StartArgs::fresh(shape, args.data.clone())).await?;
    let mut connections = connect(args, async || playground.connect(args.transport.into()).await).await?;
    if is_alone {
        for client in connections.drain(1..).flatten() {
            // No call was made over it.
            let _ = client.close().await;
        }
    }
    let report = test(args, options, connections, &playground.distances()).await;
    playground.stop().await?;
    report
}
