//! The tables of the ledger, and the rules by which a block is made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row, Transaction as Db, params};

use super::super::application::Block;
use super::ledger::{SimOutcome, SimRule};
use super::{SqliteError, signed, unsigned};
use crate::sequencer_state::{Epoch, IntentId, LedgerView, Node, Outcome, Revert, StateId, Transaction};

/// Most transactions of a block.
const MOST: usize = 1_000;

pub(super) const TABLES: &str = "
create table if not exists blocks (height integer primary key, at_ms integer not null);
create table if not exists mempool (number integer primary key autoincrement, signer text not null,
    nonce integer not null, submitted_ms integer not null, body blob not null, unique (signer, nonce));
create table if not exists outcomes (height integer not null, place integer not null, signer text not null,
    nonce integer not null, sender text not null, name text not null, epoch integer not null,
    result integer not null, why text, submitted_ms integer not null, body blob not null,
    primary key (height, place));
create unique index if not exists confirmed on outcomes (sender, name) where result = 0;
create index if not exists nonces on outcomes (signer, nonce);
create index if not exists epochs on outcomes (epoch) where result = 0;
create table if not exists states (id text primary key, made_at integer not null, spent_at integer);
create index if not exists unspent on states (made_at) where spent_at is null;
";

/// Returns the height of a view that is late by so many blocks.
pub(super) fn height(db: &Db<'_>, lag: u64) -> Result<u64, SqliteError> {
    let height = db.query_row("select ifnull(max(height), 0) from blocks", [], |row| row.get(0))?;
    Ok(unsigned(height).saturating_sub(lag))
}

pub(super) fn unspent(db: &Db<'_>, height: u64) -> Result<Vec<StateId>, SqliteError> {
    let select = "select id from states where made_at <= ?1 and (spent_at is null or spent_at > ?1)";
    let state = |row: &Row<'_>| row.get::<_, String>(0).map(|id| StateId::new(&id));
    let states = db.prepare_cached(select)?.query_map([signed(height)], state)?.collect::<Result<_, _>>()?;
    Ok(states)
}

pub(super) fn submit(db: &Db<'_>, transaction: &Transaction, now_ms: u64) -> Result<(), SqliteError> {
    if decided(db, &transaction.signer)? < transaction.nonce {
        let insert =
            "insert or ignore into mempool (signer, nonce, submitted_ms, body) values (?1, ?2, ?3, ?4)";
        let (signer, nonce) = (transaction.signer.as_str(), signed(transaction.nonce));
        let body = transaction.encode();
        db.prepare_cached(insert)?.execute(params![signer, nonce, signed(now_ms), &body[..]])?;
    }
    Ok(())
}

fn decided(db: &Db<'_>, signer: &Node) -> Result<u64, SqliteError> {
    let select = "select ifnull(max(nonce), 0) from outcomes where signer = ?1";
    Ok(unsigned(db.prepare_cached(select)?.query_row([signer.as_str()], |row| row.get(0))?))
}

/// Makes a block of all that is ready, in the order of submission: for each signer in the order of nonces,
/// without gaps.
pub(super) fn mine(
    db: &Db<'_>,
    now_ms: u64,
    every: Duration,
    rule: Option<SimRule>,
) -> Result<(), SqliteError> {
    let last = db.query_row("select ifnull(max(at_ms), 0) from blocks", [], |row| row.get(0))?;
    let every = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
    if now_ms < unsigned(last).saturating_add(every) {
        return Ok(());
    }
    let height = height(db, 0)? + 1;
    db.execute("insert into blocks values (?1, ?2)", [signed(height), signed(now_ms)])?;
    let mut place = 0_usize;
    let mut nonces = BTreeMap::new();
    loop {
        let before = place;
        for (number, submitted_ms, transaction) in waiting(db)? {
            let decided = match nonces.get(&transaction.signer) {
                Some(decided) => *decided,
                None => decided(db, &transaction.signer)?,
            };
            nonces.insert(transaction.signer.clone(), decided);
            if place >= MOST || transaction.nonce != decided + 1 {
                continue;
            }
            nonces.insert(transaction.signer.clone(), transaction.nonce);
            let result = apply(db, height, &transaction, rule)?;
            note(db, (height, place), &transaction, &result, submitted_ms)?;
            db.prepare_cached("delete from mempool where number = ?1")?.execute([number])?;
            place += 1;
        }
        // A nonce that was submitted before the one below it is ready in the next turn.
        if place == before {
            return Ok(());
        }
    }
}

fn waiting(db: &Db<'_>) -> Result<Vec<(i64, i64, Transaction)>, SqliteError> {
    let mut rows = db.prepare_cached("select number, submitted_ms, body from mempool order by number")?;
    let mut rows = rows.query([])?;
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        waiting.push((row.get(0)?, row.get(1)?, body(row, 2, "mempool")?));
    }
    Ok(waiting)
}

fn apply(
    db: &Db<'_>,
    height: u64,
    transaction: &Transaction,
    rule: Option<SimRule>,
) -> Result<Result<(), Revert>, SqliteError> {
    let Transaction { assembly, epoch, .. } = transaction;
    let of = &assembly.intent;
    let twice = "select 1 from outcomes where sender = ?1 and name = ?2 and result = 0";
    if db.prepare_cached(twice)?.exists([of.sender.as_str(), &*of.name])? {
        return Ok(Err(Revert::DuplicateIntent));
    }
    if *epoch != Epoch::SOLO && highest_epoch(db, height)?.is_some_and(|highest| *epoch < highest) {
        return Ok(Err(Revert::StaleEpoch));
    }
    let unspent = "select 1 from states where id = ?1 and spent_at is null";
    let mut unspent = db.prepare_cached(unspent)?;
    let inputs: BTreeSet<&str> = assembly.inputs.iter().map(StateId::as_str).collect();
    let known = "select 1 from states where id = ?1";
    let mut known = db.prepare_cached(known)?;
    for state in &inputs {
        if !unspent.exists([state])? {
            return Ok(Err(Revert::Spent));
        }
    }
    for state in &assembly.outputs {
        if known.exists([state.as_str()])? {
            return Ok(Err(Revert::Contract(format!("the state {state} is there already"))));
        }
    }
    if let Some(Err(why)) = rule.map(|rule| rule(assembly)) {
        return Ok(Err(Revert::Contract(why)));
    }
    for state in &inputs {
        let spend = "update states set spent_at = ?2 where id = ?1";
        db.prepare_cached(spend)?.execute(params![state, signed(height)])?;
    }
    for state in &assembly.outputs {
        let make = "insert or ignore into states values (?1, ?2, null)";
        db.prepare_cached(make)?.execute(params![state.as_str(), signed(height)])?;
    }
    Ok(Ok(()))
}

fn highest_epoch(db: &Db<'_>, height: u64) -> Result<Option<Epoch>, SqliteError> {
    let select = "select max(epoch) from outcomes where result = 0 and height <= ?1";
    let highest: Option<i64> = db.prepare_cached(select)?.query_row([signed(height)], |row| row.get(0))?;
    Ok(highest.map(|epoch| Epoch(unsigned(epoch))))
}

fn note(
    db: &Db<'_>,
    (height, place): (u64, usize),
    transaction: &Transaction,
    result: &Result<(), Revert>,
    submitted_ms: i64,
) -> Result<(), SqliteError> {
    let (code, why) = match result {
        Ok(()) => (0, None),
        Err(Revert::Spent) => (1, None),
        Err(Revert::DuplicateIntent) => (2, None),
        Err(Revert::StaleEpoch) => (3, None),
        Err(Revert::Contract(why)) => (4, Some(why)),
    };
    let Transaction { assembly, epoch: Epoch(epoch), signer, nonce, .. } = transaction;
    let insert = "insert into outcomes values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    db.prepare_cached(insert)?.execute(params![
        signed(height),
        signed(place as u64),
        signer.as_str(),
        signed(*nonce),
        assembly.intent.sender.as_str(),
        &*assembly.intent.name,
        signed(*epoch),
        code,
        why,
        submitted_ms,
        &transaction.encode()[..],
    ])?;
    Ok(())
}

fn body(row: &Row<'_>, column: usize, table: &'static str) -> Result<Transaction, SqliteError> {
    let bytes: Vec<u8> = row.get(column)?;
    Transaction::decode(&bytes).ok_or(SqliteError::Row(table))
}

fn result(row: &Row<'_>, code: usize, why: usize) -> Result<Result<(), Revert>, SqliteError> {
    Ok(match row.get::<_, i64>(code)? {
        0 => Ok(()),
        1 => Err(Revert::Spent),
        2 => Err(Revert::DuplicateIntent),
        3 => Err(Revert::StaleEpoch),
        4 => Err(Revert::Contract(row.get::<_, Option<String>>(why)?.unwrap_or_default())),
        _ => return Err(SqliteError::Row("outcomes")),
    })
}

/// Returns the blocks above a height, up to another one.
pub(super) fn blocks(db: &Db<'_>, above: u64, until: u64) -> Result<Vec<Block>, SqliteError> {
    let mut blocks: Vec<Block> =
        (above..until).map(|below| Block { height: below + 1, outcomes: Vec::new() }).collect();
    let select = "select height, result, why, body from outcomes where height > ?1 and height <= ?2 \
                  order by height, place";
    let mut rows = db.prepare_cached(select)?;
    let mut rows = rows.query([signed(above), signed(until)])?;
    while let Some(row) = rows.next()? {
        let height = unsigned(row.get(0)?);
        let (transaction, result) = (body(row, 3, "outcomes")?, result(row, 1, 2)?);
        if let Some(block) = blocks.iter_mut().find(|block| block.height == height) {
            block.outcomes.push(Outcome { transaction, result });
        }
    }
    Ok(blocks)
}

pub(super) fn view(db: &Db<'_>, height: u64, intents: Vec<IntentId>) -> Result<LedgerView, SqliteError> {
    let select = "select signer, max(nonce) from outcomes where height <= ?1 group by signer";
    let mut rows = db.prepare_cached(select)?;
    let decided = rows.query_map([signed(height)], |row| {
        let (signer, nonce): (String, i64) = (row.get(0)?, row.get(1)?);
        Ok((Node::new(&signer), unsigned(nonce)))
    })?;
    let decided_nonces = decided.collect::<Result<_, _>>()?;
    let select = "select height from outcomes where sender = ?1 and name = ?2 and result = 0";
    let mut confirmed = BTreeSet::new();
    for intent in intents {
        let at: Option<i64> = db
            .prepare_cached(select)?
            .query_row([intent.sender.as_str(), &*intent.name], |row| row.get(0))
            .optional()?;
        if at.is_some_and(|at| unsigned(at) <= height) {
            confirmed.insert(intent);
        }
    }
    Ok(LedgerView { height, epoch: highest_epoch(db, height)?, decided_nonces, confirmed })
}

pub(super) fn outcomes(db: &Db<'_>, above: u64) -> Result<Vec<SimOutcome>, SqliteError> {
    let select = "select o.height, o.result, o.why, o.sender, o.name, o.signer, o.epoch, o.submitted_ms, \
                  b.at_ms from outcomes o join blocks b on b.height = o.height where o.height > ?1 \
                  order by o.height, o.place";
    let mut rows = db.prepare_cached(select)?;
    let mut rows = rows.query([signed(above)])?;
    let mut outcomes = Vec::new();
    while let Some(row) = rows.next()? {
        let (sender, name, signer): (String, String, String) = (row.get(3)?, row.get(4)?, row.get(5)?);
        outcomes.push(SimOutcome {
            height: unsigned(row.get(0)?),
            intent: IntentId::new(&Node::new(&sender), &name),
            signer: Node::new(&signer),
            epoch: Epoch(unsigned(row.get(6)?)),
            result: result(row, 1, 2)?,
            submitted_ms: unsigned(row.get(7)?),
            decided_ms: unsigned(row.get(8)?),
        });
    }
    Ok(outcomes)
}
