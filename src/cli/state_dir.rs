//! The folder of the default playground, for the commands that start it and those that connect to it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns `$XDG_STATE_HOME/geolock/dev`, or `~/.local/state/geolock/dev`. `None` for users without a home.
pub fn default_playground() -> Option<PathBuf> {
    below(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
}

/// The first port of a playground.
pub const BASE_PORT: u16 = 7400;

/// A file in the folder of a playground, with its first port.
const PORT: &str = "base-port";

/// Notes the first port of the playground in that folder, for commands that connect to it.
pub fn write_port(playground: &Path, port: u16) -> io::Result<()> {
    fs::write(playground.join(PORT), format!("{port}\n"))
}

/// Returns the first port of the playground that was last started in that folder; [`BASE_PORT`] if it did not
/// note one.
pub fn port(playground: &Path) -> u16 {
    let text = fs::read_to_string(playground.join(PORT)).ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(BASE_PORT)
}

fn below(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // By the XDG rules a relative path is ignored.
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state")));
    state.map(|state| state.join("geolock/dev"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playground_notes_its_first_port() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(port(dir.path()), BASE_PORT);
        write_port(dir.path(), 17_400).expect("it is writable");
        assert_eq!(port(dir.path()), 17_400);
    }

    #[test]
    fn the_xdg_folder_counts_then_the_home() {
        let path = |text: &str| Some(OsString::from(text));
        assert_eq!(below(path("/state"), path("/home/a")), Some("/state/geolock/dev".into()));
        assert_eq!(below(path("state"), path("/home/a")), Some("/home/a/.local/state/geolock/dev".into()));
        assert_eq!(below(None, None), None);
    }
}
