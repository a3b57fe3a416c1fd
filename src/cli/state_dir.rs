//! The folder of the default playground, for the commands that start it and those that connect to it.

use std::ffi::OsString;
use std::path::PathBuf;

/// Returns `$XDG_STATE_HOME/geolock/dev`, or `~/.local/state/geolock/dev`. `None` for users without a home.
pub fn default_playground() -> Option<PathBuf> {
    below(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
}

/// The first port of a playground.
pub const BASE_PORT: u16 = 7400;

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
    fn the_xdg_folder_counts_then_the_home() {
        let path = |text: &str| Some(OsString::from(text));
        assert_eq!(below(path("/state"), path("/home/a")), Some("/state/geolock/dev".into()));
        assert_eq!(below(path("state"), path("/home/a")), Some("/home/a/.local/state/geolock/dev".into()));
        assert_eq!(below(None, None), None);
    }
}
