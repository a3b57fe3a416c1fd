//! `geolock sim`: runs the simulator over a range of seeds.

mod sweep;

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::failure::Failure as Failed;
use super::print::{print, print_on_the_way, tell};
use crate::base::time::brief;
use crate::sim::{Failure, Outcome, Profile};
use sweep::{Sweep, Swept};

/// Most threads that run seeds.
const MAX_JOBS: i64 = 256;

/// Inject faults, heal them, and check that every guarantee was kept.
#[derive(clap::Args, Debug)]
pub struct SimArgs {
    /// Seeds to run, as FROM..TO; TO is not included.
    #[arg(long, default_value = "0..100", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Virtual seconds with faults for each seed; the healing phase is added.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..=86_400))]
    seconds: u64,
    /// The kind of faults: each profile directs the choices of the seeds at one kind. `all` runs every
    /// profile in turn, each over the whole range.
    #[arg(long, default_value = "general", value_parser = profiles())]
    profile: Profiles,
    /// Threads that run seeds. The run of a seed does not depend on their number.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MAX_JOBS))]
    jobs: u16,
    /// Show the cause of a failure: the last events and the state of its subject.
    #[arg(long)]
    verbose: bool,
    /// Print every event and effect. Not with several jobs.
    #[arg(long)]
    trace: bool,
    /// Print the figures of the fixed scenarios instead.
    #[arg(long)]
    figures: bool,
}

/// One profile, or all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Profiles {
    One(Profile),
    All,
}

/// Lists the names, so that a shell can complete them and an error message contains them.
fn profiles() -> impl TypedValueParser<Value = Profiles> {
    let names = Profile::NAMED.map(|(name, _)| name).into_iter().chain([ALL]);
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        ALL => Ok(Profiles::All),
        name => name.parse().map(Profiles::One),
    })
}

const ALL: &str = "all";

impl Profiles {
    fn list(self) -> Vec<Profile> {
        match self {
            Profiles::One(profile) => vec![profile],
            Profiles::All => Profile::NAMED.iter().map(|(_, profile)| *profile).collect(),
        }
    }
}

fn parse_seeds(text: &str) -> anyhow::Result<Range<u64>> {
    let number =
        |part: &str| part.trim().parse::<u64>().with_context(|| format!("{:?} is no seed", part.trim()));
    let (from, to) = text.split_once("..").context("seeds are FROM..TO, such as 0..100")?;
    let (from, to) = (number(from)?, number(to)?);
    if from >= to {
        bail!("there is no seed in {from}..{to}: the second number must be above the first");
    }
    Ok(from..to)
}

/// Runs the seeds. Returns an error if one fails.
pub fn run(args: &SimArgs) -> Result<(), Failed> {
    if args.figures {
        return print(format_args!("{}\n{}", crate::sim::figures(), crate::sim::idle_figures()));
    }
    if args.trace && args.jobs > 1 {
        return Err(anyhow!("--trace shows one seed after another: leave --jobs away").into());
    }
    sweep::name_the_seed_of_a_panic();
    let profiles = args.profile.list();
    let (mut failed, mut run) = (Vec::new(), 0);
    for profile in &profiles {
        let sweep = Sweep {
            profile: *profile,
            seeds: args.seeds.clone(),
            seconds: args.seconds,
            jobs: args.jobs,
            trace: args.trace,
        };
        let swept = sweep.run(|failure| show_failure(failure, args.verbose));
        run += args.seeds.end - args.seeds.start;
        // The exit code covers all seeds, even if the output is not read.
        print_on_the_way(summary(*profile, &args.seeds, &swept, profiles.len() > 1).trim_end())?;
        failed.extend(swept.failed.into_iter().map(|seed| format!("{seed} of {profile}")));
    }
    if !failed.is_empty() {
        let shown = failed.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if failed.len() > 10 { ", ..." } else { "" };
        return Err(anyhow!("{} of {run} seeds failed: {shown}{more}", failed.len()).into());
    }
    Ok(())
}

fn show_failure(failure: &Failure, verbose: bool) {
    tell(failure.headline());
    if verbose {
        tell(format_args!("{}\n{}\n{}", failure.what, failure.detail, failure.trace.trim_end()));
    }
    tell(format_args!("  again: {}", failure.replay));
}

/// Returns the summary of a sweep: complete, or in short form beside those of other profiles.
fn summary(profile: Profile, seeds: &Range<u64>, swept: &Swept, short: bool) -> String {
    let Swept { total, failed, took } = swept;
    let done = seeds.end - seeds.start;
    let outcome = match failed.len() {
        0 => "no failure".to_owned(),
        failed => format!("{failed} FAILED"),
    };
    let head =
        format!("{profile}: {done} seeds {}..{} in {}, {outcome}", seeds.start, seeds.end, brief(*took));
    if short {
        let Outcome { grants, hand_offs, commits, .. } = total;
        return format!("{head}; {grants} grants, {hand_offs} hand-offs, {commits} commits\n");
    }
    format!("{head}\n{}{total}\n", rates(total, *took))
}

/// Returns the speed; empty if no simulation was completed.
fn rates(total: &Outcome, took: Duration) -> String {
    if total.cluster_ms == 0 || took.is_zero() {
        return String::new();
    }
    let simulated = total.cluster_ms as f64 / 1_000.0;
    let per_minute = simulated * 60.0 / took.as_secs_f64();
    let (grants, hand_offs) = (total.grants as f64 / simulated, total.hand_offs as f64 / simulated);
    format!(
        "{per_minute:.0} cluster-seconds a minute\n{grants:.1} acquisitions and {hand_offs:.1} hand-offs a simulated second\n"
    )
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn seeds_and_profiles_say_what_is_wrong_with_them() {
        assert_eq!(parse_seeds("3 .. 5").expect("two numbers"), 3..5);
        let wrong = |text| format!("{:#}", parse_seeds(text).expect_err("no range"));
        assert_eq!(wrong("7"), "seeds are FROM..TO, such as 0..100");
        assert!(wrong("a..7").starts_with("\"a\" is no seed"), "{}", wrong("a..7"));
        assert!(wrong("7..7").starts_with("there is no seed in 7..7"));
        let command = || SimArgs::augment_args(clap::Command::new("sim"));
        let profile = |name: &str| {
            let matches = command().try_get_matches_from(["sim", "--profile", name])?;
            Ok::<_, clap::Error>(*matches.get_one::<Profiles>("profile").expect("it has a default"))
        };
        assert_eq!(profile("all").expect("known").list().len(), Profile::NAMED.len());
        assert_eq!(profile("busy").expect("known").list(), [Profile::Busy]);
        let unknown = profile("idle").expect_err("there is none").to_string();
        assert!(
            unknown.contains("idle") && unknown.contains("busy-readers") && unknown.contains("all"),
            "{unknown}"
        );
    }

    #[test]
    fn a_sweep_in_which_nothing_came_to_its_end_shows_no_rates() {
        let swept = Swept { total: Outcome::default(), failed: vec![3], took: Duration::ZERO };
        let text = summary(Profile::General, &(3..4), &swept, false);
        assert!(text.starts_with("general: 1 seeds 3..4 in 0 ms, 1 FAILED\n"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
