//! Bodies of fuzz targets, see `crate::testkit::fuzz`.

use std::path::Path;

use super::{Options, assemble, sources};

/// Parses the text of a configuration file.
pub(crate) fn text(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else { return false };
    let Ok(file) = toml::from_str::<Options>(text) else { return false };
    let flags = Options::default();
    match assemble::assemble(&sources::Sources::new(&flags, &file, Some(Path::new("geolock.toml")))) {
        Ok(config) => {
            // A checked configuration contains this member.
            config.this_member();
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty(), "every mistake is named");
            false
        }
    }
}
