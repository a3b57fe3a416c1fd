//! `geolock man`: manual pages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::failure::Failure;
use super::help::command;

/// Write the manual pages of all commands into a folder.
///
/// One page per command: geolock.1, geolock-lock.1, geolock-kv-get.1 and so on. The folder is created if need
/// be, and pages of these names are overwritten. After `geolock man /usr/local/share/man/man1`, `man
/// geolock-lock` shows one.
#[derive(clap::Args, Debug)]
pub struct ManArgs {
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub fn run(args: &ManArgs) -> Result<(), Failure> {
    Ok(write(&args.folder)?)
}

fn write(folder: &Path) -> anyhow::Result<()> {
    let place = || format!("cannot write manual pages into {}", folder.display());
    fs::create_dir_all(folder).with_context(place)?;
    clap_mangen::generate_to(command(), folder).with_context(place)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Adds the page of each visible command below this one, and of itself.
    fn add_pages(command: &clap::Command, name: &str, pages: &mut BTreeSet<String>) {
        pages.insert(format!("{name}.1"));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            add_pages(below, &format!("{name}-{}", below.get_name()), pages);
        }
    }

    #[test]
    fn each_visible_command_has_its_page() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let folder = dir.path().join("new/man1");
        write(&folder).expect("the folder is writable");
        let entries = fs::read_dir(&folder).expect("it was created");
        let written: BTreeSet<String> = entries
            .map(|entry| entry.expect("it is readable").file_name().into_string().expect("names are text"))
            .collect();
        let mut pages = BTreeSet::new();
        add_pages(&command(), "geolock", &mut pages);
        assert!(pages.contains("geolock-kv-get.1") && pages.contains("geolock-man.1"), "{pages:?}");
        assert_eq!(written, pages);
    }

    #[test]
    fn a_page_has_options_and_variables_and_a_witness_only_its_own() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        write(dir.path()).expect("the folder is writable");
        let page = |name: &str| fs::read_to_string(dir.path().join(name)).expect("it was written");
        // A page escapes each hyphen of an option.
        let (server, witness) = (page("geolock-server.1"), page("geolock-witness.1"));
        assert!(
            server.contains(r"\-\-listen\-client") && server.contains("GEOLOCK_LISTEN_CLIENT"),
            "{server}"
        );
        assert!(witness.contains(r"\-\-join") && !witness.contains(r"\-\-listen\-client"), "{witness}");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let error = write(&file.path().join("man1")).expect_err("a file is no folder");
        assert!(format!("{error:#}").contains(&file.path().display().to_string()), "{error:#}");
    }
}
