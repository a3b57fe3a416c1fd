//! Environment variables that look like options and are none, such as `GEOLOCK_DATADIR`: they have no effect.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use strsim::osa_distance;

use super::Cli;
use super::print::tell;

/// The beginning of the names of all options.
const PREFIX: &str = "GEOLOCK_";
/// A variable that `geolock every` gives its command.
const GIVEN: &str = "GEOLOCK_RUN_UNTIL";

/// Logs those that are no option: a server reads all its options there.
pub(super) fn warn_of_unknown() {
    for (name, meant) in unknown() {
        match meant {
            Some(meant) => tracing::warn!(
                name,
                "this environment variable is no option and has no effect: is {meant} meant?"
            ),
            None => {
                tracing::warn!(
                    name,
                    "this environment variable is no option of this release: it has no effect"
                )
            }
        }
    }
}

/// Says on standard error which ones are probably misspelt: others may belong to the user.
pub(super) fn tell_misspelt() {
    for (name, meant) in unknown() {
        if let Some(meant) = meant {
            tell(format_args!(
                "geolock: the environment variable {name} is no option and has no effect: is {meant} meant?"
            ));
        }
    }
}

/// Returns those that are set and are no option, each with the option that is probably meant.
fn unknown() -> Vec<(String, Option<String>)> {
    let known = options();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_option = |name: &String| name.starts_with(PREFIX) && !name.starts_with("GEOLOCK_TEST_");
    let unknown = names.filter(is_option).filter(|name| !known.contains(name) && name != GIVEN);
    let with_meant = |name: String| {
        let meant = meant(&name, &known);
        (name, meant)
    };
    unknown.map(with_meant).collect()
}

/// Returns the environment variables of all options.
fn options() -> BTreeSet<String> {
    let mut commands = vec![Cli::command()];
    let mut names = BTreeSet::new();
    while let Some(command) = commands.pop() {
        let of_command = command.get_arguments().filter_map(|option| option.get_env()?.to_str());
        names.extend(of_command.map(str::to_owned));
        commands.extend(command.get_subcommands().cloned());
    }
    names
}

/// Returns the option whose name differs by underscores only, or by one letter: added, left out, replaced, or
/// exchanged with its neighbour.
fn meant(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let letters = |name: &str| name.replace('_', "");
    let is_near = |option: &&String| letters(option) == letters(name) || osa_distance(option, name) == 1;
    known.iter().find(is_near).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_that_is_meant_is_found_and_others_are_left_alone() {
        let known = options();
        for (name, wanted) in [
            ("GEOLOCK_DATADIR", Some("GEOLOCK_DATA_DIR")),
            ("GEOLOCK_CONECT", Some("GEOLOCK_CONNECT")),
            ("GEOLOCK_CONNECTS", Some("GEOLOCK_CONNECT")),
            ("GEOLOCK_TLZ", Some("GEOLOCK_TLS")),
            ("GEOLOCK_JION", Some("GEOLOCK_JOIN")),
            ("GEOLOCK_REGION", None),
            ("GEOLOCK_BACKUP_DIR", None),
        ] {
            assert_eq!(meant(name, &known).as_deref(), wanted, "{name}");
        }
    }
}
