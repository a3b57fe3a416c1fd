//! The subcommands that are a single step.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::{Committed, CommonArgs, ExpiryArgs, show};
use crate::cli::connect;
use crate::cli::failure::{Code, Failure};
use crate::cli::print::{print, tell};
use geolock_client::{AtLeast, Batch, Client, ClientError, Key, Snapshot, Update, Value};

pub(super) async fn get(names: &[OsString], common: &CommonArgs) -> Result<ExitCode, Failure> {
    let keys = names.iter().map(|name| common.key(name)).collect::<Result<Vec<_>, _>>()?;
    let reader = common.store.connect.read_client().await?;
    let view = reader.read(&keys, &common.at_least()).await.map_err(connect::failure)?;
    if common.store.json {
        let values: Vec<_> =
            keys.iter().zip(&view.values).map(|(key, value)| show::json(key, value)).collect();
        print(json!({ "snapshot": show::snapshot(&view.snapshot), "values": values }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    match (&keys[..], &view.values[..]) {
        ([_], [value]) => match show::lines(value) {
            Some(lines) => print(lines)?,
            None => {
                let name = names.first().map_or_else(String::new, |name| show::text(name.as_bytes()));
                tell(format_args!("geolock: {name} has no value"));
                code = ExitCode::from(Code::Failed as u8);
            }
        },
        _ => {
            for (name, value) in names.iter().zip(&view.values) {
                print(format_args!("{}\t{}", show::text(name.as_bytes()), show::line(value)))?;
            }
        }
    }
    if common.snapshot {
        print(show::snapshot(&view.snapshot))?;
    }
    Ok(code)
}

pub(super) async fn put(
    key: &OsString,
    value: &OsString,
    expiry: ExpiryArgs,
    common: &CommonArgs,
) -> Result<(), Failure> {
    let key = common.key(key)?;
    change(expiry.on(Batch::new().update(&key, Update::register(bytes(value))), &key), common).await
}

pub(super) async fn incr(
    key: &OsString,
    by: i64,
    expiry: ExpiryArgs,
    common: &CommonArgs,
) -> Result<(), Failure> {
    let key = common.key(key)?;
    let client = common.store.connect.connect(|_| {}).await?;
    let batch = expiry.on(Batch::new().update(&key, Update::counter(by)).read(&key), &key);
    let done = transact(&client, batch, common).await;
    let values = match &done {
        Ok(Committed { values: Some(values), .. }) => Ok(values.clone()),
        // The answer was lost.
        Ok(Committed { commit, values: None, .. }) => read_again(&client, &key, commit).await,
        Err(_) => Ok(Vec::new()),
    };
    close(client).await;
    let done = done?;
    show_counted(&key, &done.commit, values, common)?;
    done.end()
}

fn show_counted(
    key: &Key,
    commit: &Snapshot,
    values: Result<Vec<Value>, ClientError>,
    common: &CommonArgs,
) -> Result<(), Failure> {
    let values = match values {
        Ok(values) => values,
        Err(why) => {
            // Not a failure, because after a failure a user may add once more.
            tell(format_args!("geolock: it is committed, but the new value cannot be read: {why}"));
            return show_commit(commit, common);
        }
    };
    let value = show::counted(values.into_iter().next());
    if common.store.json {
        return print(json!({ "commit": show::snapshot(commit), "values": [show::json(key, &value)] }));
    }
    print(show::line(&value))?;
    show_snapshot(commit, common)
}

pub(super) async fn add(
    key: &OsString,
    elements: &[OsString],
    expiry: ExpiryArgs,
    common: &CommonArgs,
) -> Result<(), Failure> {
    let key = common.key(key)?;
    let added = Batch::new().update(&key, Update::set_add(elements.iter().map(bytes)));
    change(expiry.on(added, &key), common).await
}

pub(super) async fn expire(key: &OsString, lives: Duration, common: &CommonArgs) -> Result<(), Failure> {
    let key = common.key(key)?;
    change(Batch::new().expire(&key, lives), common).await
}

pub(super) async fn remove(
    key: &OsString,
    elements: &[OsString],
    common: &CommonArgs,
) -> Result<(), Failure> {
    let key = common.key(key)?;
    let batch = match elements {
        [] => Batch::new().remove(&key),
        elements => Batch::new().update(&key, Update::set_remove(elements.iter().map(bytes))),
    };
    change(batch, common).await
}

fn bytes(argument: &OsString) -> Bytes {
    Bytes::copy_from_slice(argument.as_bytes())
}

/// Makes changes, and shows only their commit.
async fn change(batch: Batch, common: &CommonArgs) -> Result<(), Failure> {
    let client = common.store.connect.connect(|_| {}).await?;
    let done = transact(&client, batch, common).await;
    close(client).await;
    let done = done?;
    show_commit(&done.commit, common)?;
    done.end()
}

fn show_commit(commit: &Snapshot, common: &CommonArgs) -> Result<(), Failure> {
    if common.store.json {
        return print(json!({ "commit": show::snapshot(commit) }));
    }
    show_snapshot(commit, common)
}

async fn transact(client: &Client, batch: Batch, common: &CommonArgs) -> Result<Committed, Failure> {
    Committed::of(client.transact(common.request(), batch).await)
}

async fn read_again(client: &Client, key: &Key, commit: &Snapshot) -> Result<Vec<Value>, ClientError> {
    Ok(client.read_many(std::slice::from_ref(key), &AtLeast::snapshot(commit)).await?.values)
}

fn show_snapshot(commit: &Snapshot, common: &CommonArgs) -> Result<(), Failure> {
    if common.snapshot { print(show::snapshot(commit)) } else { Ok(()) }
}

/// Closes the client. If that fails, the lease expires; the step is done in any case.
pub(super) async fn close(client: Client) {
    let _ = client.close().await;
}
