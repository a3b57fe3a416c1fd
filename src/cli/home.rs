//! The option `--home` of commands that name locks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Context as _;

use super::failure::{Code, Failure, OrFail as _};
use geolock_api::names::{DcId, LockName, MAX_DCS};

#[derive(clap::Args, Clone, Debug)]
pub struct HomeArgs {
    /// The home of the named locks, as a number such as 1 [default: they have none]
    ///
    /// The home is part of a lock's name: the same bytes with another home are another lock. While nobody
    /// uses it, the whole lock is at its home, so its first use there needs no other datacenter.
    #[arg(long, value_name = "DC", value_parser = dc)]
    home: Option<DcId>,
}

impl HomeArgs {
    /// Returns the lock that is called so on the command line.
    pub fn lock(&self, name: &OsStr) -> Result<LockName, Failure> {
        LockName::with_home(self.home, name.as_bytes())
            .with_context(|| format!("{:?} cannot name a lock", name.display().to_string()))
            .or_fail(Code::Usage)
    }
}

/// Parses `1`, or `dc1` as the commands print it.
fn dc(text: &str) -> Result<DcId, String> {
    let id = text.strip_prefix("dc").unwrap_or(text).parse().ok().and_then(DcId::new);
    id.ok_or_else(|| format!("datacenters have whole numbers below {MAX_DCS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_a_number_with_or_without_dc() {
        assert_eq!(
            [dc("1"), dc("dc1")],
            [Ok(DcId::new(1).expect("small")), Ok(DcId::new(1).expect("small"))]
        );
        for wrong in ["", "dc", "64", "-1", "oslo"] {
            assert!(dc(wrong).is_err(), "{wrong}");
        }
    }
}
