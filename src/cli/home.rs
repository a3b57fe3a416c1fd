//! The option `--home` of commands that name locks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Context as _;

use super::dc_names;
use super::failure::{Code, Failure, OrFail as _};
use geolock_api::names::{DcId, LockName};

#[derive(clap::Args, Clone, Debug)]
pub struct HomeArgs {
    /// The home of the named locks, as a number such as 1 [default: they have none]
    ///
    /// The home is part of a lock's name: the same bytes with another home are another lock. While nobody
    /// uses it, the whole lock is at its home, so its first use there needs no other datacenter.
    #[arg(long, value_name = "DC", value_parser = dc_names::parse)]
    home: Option<DcId>,
}

impl HomeArgs {
    pub fn home(&self) -> Option<DcId> {
        self.home
    }

    /// Returns the lock that is called so on the command line.
    pub fn lock(&self, name: &OsStr) -> Result<LockName, Failure> {
        LockName::with_home(self.home, name.as_bytes())
            .with_context(|| format!("{:?} cannot name a lock", name.display().to_string()))
            .or_fail(Code::Usage)
    }
}
