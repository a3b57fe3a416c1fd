//! `geolock kv list`: the keys of a bucket.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value};

use super::{StoreArgs, show};
use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::{insert_name, print};
use geolock_client::Page;

/// List keys that have a value, one a line
///
/// In no particular order, as the answering datacenter has them at present: pipe the lines to `sort`. A key
/// that has a value during the whole listing is listed once. Bytes that are no text are escaped.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: 0, 69: no server reachable, 77: the server does not allow it, 64: wrong usage."
)]
pub(super) struct ListArgs {
    /// Only keys whose names begin with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: OsString,
    #[command(flatten)]
    pub(super) store: StoreArgs,
}

/// Keys per call.
const PAGE: u32 = 1_000;

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    let reader = args.store.connect.read_client().await?;
    let (bucket, prefix) = (args.store.bucket.as_bytes(), args.prefix.as_bytes());
    let mut page = Page { size: PAGE, ..Page::default() };
    loop {
        let answer = reader.list_keys(bucket, prefix, page).await.map_err(connect::failure)?;
        for name in &answer.names {
            if args.store.json {
                let mut object = Map::new();
                insert_name(&mut object, "key", name);
                print(Value::Object(object))?;
            } else {
                print(show::text(name))?;
            }
        }
        match answer.next {
            Some(token) => page = Page { size: PAGE, token },
            None => return Ok(()),
        }
    }
}
