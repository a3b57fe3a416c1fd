//! `geolock sim`: runs the simulator over a range of seeds.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};

use crate::sim::{Outcome, Profile, SimOptions, TraceMode};

/// Break everything, heal everything, and see whether every promise was kept.
#[derive(clap::Args, Debug)]
pub struct SimArgs {
    /// Seeds to run, as FROM..TO; TO is not run any more.
    #[arg(long, default_value = "0..100", value_parser = parse_seeds)]
    seeds: std::ops::Range<u64>,
    /// Virtual seconds with faults for each seed; healing comes on top.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..=86_400))]
    seconds: u64,
    /// Where to look for trouble; each directs the picks of the seeds at one kind.
    #[arg(long, default_value_t)]
    profile: Profile,
    /// Print every event and effect.
    #[arg(long)]
    trace: bool,
    /// Print the figures of the fixed scenarios instead.
    #[arg(long)]
    figures: bool,
}

fn parse_seeds(text: &str) -> anyhow::Result<std::ops::Range<u64>> {
    let (from, to) = text.split_once("..").context("seeds are FROM..TO, such as 0..100")?;
    let (from, to) = (from.trim().parse()?, to.trim().parse()?);
    if from >= to {
        bail!("there is no seed in {from}..{to}");
    }
    Ok(from..to)
}

/// The seed that runs now, for the message when the core panics and the process aborts.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// Runs the seeds. An error if one fails.
pub fn run(args: &SimArgs) -> anyhow::Result<()> {
    if args.figures {
        println!("{}", crate::sim::figures());
        return Ok(());
    }
    let earlier = std::panic::take_hook();
    let (seconds, profile) = (args.seconds, args.profile);
    std::panic::set_hook(Box::new(move |panic| {
        earlier(panic);
        let seed = RUNNING.load(Ordering::Relaxed);
        let options = SimOptions { profile, ..SimOptions::new(seed, seconds) };
        eprintln!("seed {seed}; replay: {}", options.replay());
    }));
    let started = std::time::Instant::now();
    let mut total = Outcome::default();
    let mut failed = Vec::new();
    for seed in args.seeds.clone() {
        RUNNING.store(seed, Ordering::Relaxed);
        let trace = if args.trace { TraceMode::Each(print_line) } else { TraceMode::Off };
        match crate::sim::run(&SimOptions {
            trace,
            profile: args.profile,
            ..SimOptions::new(seed, args.seconds)
        }) {
            Ok(outcome) => total.add(&outcome),
            Err(failure) => {
                eprintln!("{failure}");
                failed.push(seed);
            }
        }
        let done = seed - args.seeds.start + 1;
        if done.is_multiple_of(1_000) {
            eprintln!("{done} seeds, {} failed, {:.0?}", failed.len(), started.elapsed());
        }
    }
    let (took, done) = (started.elapsed(), args.seeds.end - args.seeds.start);
    let simulated = total.cluster_ms as f64 / 1_000.0;
    let per_minute = simulated * 60.0 / took.as_secs_f64();
    let (grants, hand_offs) = (total.grants as f64 / simulated, total.hand_offs as f64 / simulated);
    println!("{done} seeds in {took:.1?}: {per_minute:.0} cluster-seconds a minute");
    println!("{grants:.1} acquisitions and {hand_offs:.1} hand-offs a simulated second");
    println!("{total}");
    if !failed.is_empty() {
        bail!("{} of {} seeds failed, such as {:?}", failed.len(), done, &failed[..failed.len().min(10)]);
    }
    Ok(())
}

fn print_line(line: &str) {
    println!("{line}");
}
