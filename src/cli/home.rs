//! The option `--home` of commands that name locks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Context as _;

use super::connect::ConnectArgs;
use super::dc_names::{self, DcRef};
use super::failure::{Code, Failure, OrFail as _};
use geolock_api::names::{DcId, LockName};

#[derive(clap::Args, Clone, Debug)]
pub struct HomeArgs {
    /// The home of the named locks, as an id such as 1 or a name [default: they have none]
    ///
    /// The home is part of a lock's name: the same bytes with another home are another lock. While nobody
    /// uses it, the whole lock is at its home, so its first use there needs no other datacenter.
    #[arg(long, value_name = "DC", value_parser = DcRef::parse)]
    home: Option<DcRef>,
}

impl HomeArgs {
    /// Returns the home. Asks the server if it was given by its name.
    pub async fn find(&self, connect: &ConnectArgs) -> Result<Home, Failure> {
        find(self.home.as_ref(), connect).await.map(Home)
    }
}

/// Returns the datacenter, if one was given. Asks the server if it was given by its name.
pub async fn find(dc: Option<&DcRef>, connect: &ConnectArgs) -> Result<Option<DcId>, Failure> {
    let dcs: Vec<DcRef> = dc.into_iter().cloned().collect();
    Ok(dc_names::of_status(&dcs, connect).await?.pop())
}

/// The home of the locks that a command names, if they have one.
#[derive(Clone, Copy, Debug)]
pub struct Home(pub Option<DcId>);

impl Home {
    /// Returns the lock that is called so on the command line.
    pub fn lock(self, name: &OsStr) -> Result<LockName, Failure> {
        LockName::with_home(self.0, name.as_bytes())
            .with_context(|| format!("{:?} cannot name a lock", name.display().to_string()))
            .or_fail(Code::Usage)
    }
}
