//! The database of a node.

use std::path::Path;

use bytes::Bytes;
use rusqlite::{OptionalExtension as _, Row, Transaction as Db, params};

use super::super::application::NodeStore;
use super::{Shared, SqliteError, signed, unsigned};
use crate::sequencer_state::{
    AssemblyHash, Contract, End, Epoch, Failure, Grant, Intent, IntentId, Node, Notice, Owner, Record,
    Restored, Transaction,
};

const TABLES: &str = "
create table if not exists owner (one integer primary key check (one = 1), node text not null,
    contract text not null);
create table if not exists last_nonce (one integer primary key check (one = 1), nonce integer not null);
create table if not exists intents (number integer primary key autoincrement, sender text not null,
    name text not null, content blob not null, ended integer, why text, unique (sender, name));
create index if not exists undecided on intents (number) where ended is null;
create table if not exists grants (sender text not null, name text not null, grantee text not null,
    epoch integer not null, hash blob not null, primary key (sender, name, grantee, epoch, hash));
create table if not exists dispatches (nonce integer primary key, body blob not null);
create table if not exists notices (sender text not null, name text not null, signer text not null,
    epoch integer not null, hash blob not null, nonce integer not null,
    primary key (sender, name, signer, nonce));
";

/// The database of a node for a contract, in a file. Each write is on the disk when it returns. Intents that
/// have ended stay: [`SqliteStore::forget_ended`] removes old ones.
#[derive(Debug)]
pub struct SqliteStore(Shared);

impl SqliteStore {
    /// Opens the file, or makes it.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, SqliteError> {
        // In WAL mode only this one is durable with each commit.
        Shared::open(path.as_ref(), "FULL", TABLES).map(SqliteStore)
    }

    /// Removes the intents that have ended, except the last ones. One of them that is submitted again is
    /// taken for a new one, and the ledger alone keeps it from being confirmed twice.
    pub async fn forget_ended(&self, keep: u64) -> Result<(), SqliteError> {
        let oldest =
            "select number from intents where ended is not null order by number desc limit 1 offset ?1";
        let forget = format!("delete from intents where ended is not null and number <= ({oldest})");
        self.0.call(move |db| Ok(db.execute(&forget, [signed(keep)]).map(drop)?)).await
    }
}

impl NodeStore for SqliteStore {
    type Error = SqliteError;

    async fn load(&mut self) -> Result<Restored, SqliteError> {
        self.0.read(load).await
    }

    async fn write(&mut self, records: Vec<Record>) -> Result<(), SqliteError> {
        self.0.call(move |db| records.into_iter().try_for_each(|record| write(db, record))).await
    }

    async fn find(&mut self, intent: &IntentId) -> Result<Option<(Intent, Option<End>)>, SqliteError> {
        let id = intent.clone();
        let found = self.0.read(move |db| {
            let select =
                "select sender, name, content, ended, why from intents where sender = ?1 and name = ?2";
            let row = |row: &Row<'_>| Ok((intent_of(row)?, row.get(3)?, row.get::<_, Option<String>>(4)?));
            Ok(db.query_row(select, [id.sender.as_str(), &*id.name], row).optional()?)
        });
        Ok(match found.await? {
            None => None,
            Some((intent, None, _)) => Some((intent, None)),
            Some((intent, Some(ended), why)) => Some((intent, Some(end_of(ended, why.unwrap_or_default())?))),
        })
    }
}

fn write(db: &Db<'_>, record: Record) -> Result<(), SqliteError> {
    match record {
        Record::Owner(Owner { node, contract }) => {
            let insert = "insert into owner (one, node, contract) values (1, ?1, ?2)";
            db.execute(insert, [node.as_str(), contract.as_str()])?;
        }
        Record::Intent(Intent { id, content }) => {
            let insert = "insert into intents (sender, name, content) values (?1, ?2, ?3)";
            db.prepare_cached(insert)?.execute(params![id.sender.as_str(), &*id.name, &content[..]])?;
        }
        Record::Grant(Grant { intent: of, to, epoch: Epoch(epoch), hash }) => {
            let insert = "insert or ignore into grants values (?1, ?2, ?3, ?4, ?5)";
            let hash = hash.0.to_be_bytes();
            let values = params![of.sender.as_str(), &*of.name, to.as_str(), signed(epoch), &hash[..]];
            db.prepare_cached(insert)?.execute(values)?;
        }
        Record::Dispatch(transaction) => {
            let nonce = signed(transaction.nonce);
            let insert = "insert into dispatches values (?1, ?2)";
            db.prepare_cached(insert)?.execute(params![nonce, &transaction.encode()[..]])?;
            let last =
                "insert into last_nonce values (1, ?1) on conflict do update set nonce = max(nonce, ?1)";
            db.prepare_cached(last)?.execute([nonce])?;
        }
        Record::DispatchOver { nonce } => {
            db.prepare_cached("delete from dispatches where nonce = ?1")?.execute([signed(nonce)])?;
        }
        Record::Notice { signer, notice: Notice { intent: of, epoch: Epoch(epoch), hash, nonce } } => {
            let insert = "insert or replace into notices values (?1, ?2, ?3, ?4, ?5, ?6)";
            let hash = hash.0.to_be_bytes();
            let (epoch, nonce) = (signed(epoch), signed(nonce));
            let values = params![of.sender.as_str(), &*of.name, signer.as_str(), epoch, &hash[..], nonce];
            db.prepare_cached(insert)?.execute(values)?;
        }
        Record::Ended { intent: of, end } => {
            let (ended, why) = ended_of(&end);
            let update = "update intents set ended = ?3, why = ?4 where sender = ?1 and name = ?2";
            db.prepare_cached(update)?.execute(params![of.sender.as_str(), &*of.name, ended, why])?;
            for table in ["grants", "notices"] {
                let delete = format!("delete from {table} where sender = ?1 and name = ?2");
                db.prepare_cached(&delete)?.execute([of.sender.as_str(), &*of.name])?;
            }
        }
    }
    Ok(())
}

fn load(db: &Db<'_>) -> Result<Restored, SqliteError> {
    let owner = |row: &Row<'_>| {
        let (node, contract): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(Owner { node: Node::new(&node), contract: Contract::new(&contract) })
    };
    let owner = db.query_row("select node, contract from owner", [], owner).optional()?;
    let last_nonce = db.query_row("select nonce from last_nonce", [], |row| row.get(0)).optional()?;
    let intents = "select sender, name, content from intents where ended is null order by number";
    let intents = db.prepare(intents)?.query_map([], intent_of)?.collect::<Result<_, _>>()?;
    let mut grants = Vec::new();
    let mut rows = db.prepare("select sender, name, grantee, epoch, hash from grants")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let (intent, to, epoch) = (id_of(row)?, Node::new(&row.get::<_, String>(2)?), epoch_of(row, 3)?);
        grants.push(Grant { intent, to, epoch, hash: hash_of(row, 4, "grants")? });
    }
    let mut notices = Vec::new();
    let mut rows =
        db.prepare("select sender, name, signer, epoch, hash, nonce from notices order by nonce")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let (intent, signer, epoch) = (id_of(row)?, Node::new(&row.get::<_, String>(2)?), epoch_of(row, 3)?);
        let (hash, nonce) = (hash_of(row, 4, "notices")?, unsigned(row.get(5)?));
        notices.push((signer, Notice { intent, epoch, hash, nonce }));
    }
    let mut dispatches = Vec::new();
    let mut rows = db.prepare("select body from dispatches order by nonce")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let body: Vec<u8> = row.get(0)?;
        dispatches.push(Transaction::decode(&body).ok_or(SqliteError::Row("dispatches"))?);
    }
    let last_nonce = last_nonce.map_or(0, unsigned);
    Ok(Restored { owner, intents, grants, notices, dispatches, last_nonce })
}

fn id_of(row: &Row<'_>) -> rusqlite::Result<IntentId> {
    let (sender, name): (String, String) = (row.get(0)?, row.get(1)?);
    Ok(IntentId::new(&Node::new(&sender), &name))
}

fn intent_of(row: &Row<'_>) -> rusqlite::Result<Intent> {
    Ok(Intent { id: id_of(row)?, content: Bytes::from(row.get::<_, Vec<u8>>(2)?) })
}

fn epoch_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Epoch> {
    row.get(column).map(|epoch| Epoch(unsigned(epoch)))
}

fn hash_of(row: &Row<'_>, column: usize, table: &'static str) -> Result<AssemblyHash, SqliteError> {
    let bytes: Vec<u8> = row.get(column)?;
    let hash = <[u8; 16]>::try_from(&bytes[..]).map_err(|_| SqliteError::Row(table))?;
    Ok(AssemblyHash(u128::from_be_bytes(hash)))
}

fn ended_of(end: &End) -> (i64, Option<&str>) {
    match end {
        End::Confirmed => (0, None),
        End::Failed(Failure::Assembly(why)) => (1, Some(why)),
        End::Failed(Failure::Endorsement(why)) => (2, Some(why)),
        End::Failed(Failure::Reverted(why)) => (3, Some(why)),
    }
}

fn end_of(ended: i64, why: String) -> Result<End, SqliteError> {
    Ok(match ended {
        0 => End::Confirmed,
        1 => End::Failed(Failure::Assembly(why)),
        2 => End::Failed(Failure::Endorsement(why)),
        3 => End::Failed(Failure::Reverted(why)),
        _ => return Err(SqliteError::Row("intents")),
    })
}
