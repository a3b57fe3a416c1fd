//! The statements of the sources.
//!
//! Each returns rows of three columns: see [`Row`](super::dialect::Row). Columns that nobody needs are
//! constants.

/// The statements of a kind of database.
pub struct Statements {
    /// Several statements that make the tables that are missing.
    pub tables: &'static str,
    /// Begins a transaction that writes. Each of its statements sees what others have committed before.
    pub begin: &'static str,
    /// wallet, currency, most: the first page of unspent tokens.
    pub first_page: &'static str,
    /// wallet, currency, amount, id, most: the page after that token.
    pub next_page: &'static str,
    /// ids: those that are unspent.
    pub unspent: &'static str,
    /// currency: a row with the sum of all unspent tokens.
    pub balance: &'static str,
    /// tx, content: records it as applied; returns a row if it was not before.
    pub record: &'static str,
    /// tx: the content that it was applied with, in the place of an id.
    pub applied: &'static str,
    /// wallet, currency, ids: those that are unspent tokens of the pool. They stay so until the transaction
    /// ends.
    pub lock: &'static str,
    /// ids: those that have a fence.
    pub fences: &'static str,
    /// fence, ids: stores the fence of each.
    pub raise: &'static str,
    /// ids: deletes those tokens.
    pub delete: &'static str,
    /// wallet, currency, created_by, tokens: inserts those whose ids are new, and returns them.
    pub insert: &'static str,
}

/// The page after a token, as two ranges of the index: with one condition, `amount <= $3 and (amount < $3 or
/// id > $4)`, a database reads all tokens of the same amount again for each page.
macro_rules! next_page {
    () => {
        "select id, amount, home from ( \
             select * from (select id, amount, home from tokens \
                 where wallet = $1 and currency = $2 and amount = $3 and id > $4 order by id limit $5) as equal \
             union all \
             select * from (select id, amount, home from tokens \
                 where wallet = $1 and currency = $2 and amount < $3 order by amount desc, id limit $5) as less \
         ) as page order by amount desc, id limit $5"
    };
}

const FIRST_PAGE: &str = "select id, amount, home from tokens where wallet = $1 and currency = $2 \
     order by amount desc, id limit $3";

#[cfg(feature = "tokens-sqlite")]
pub const SQLITE: Statements = Statements {
    // With `home`, the index has all columns of a page.
    tables: "create table if not exists tokens( \
             id blob not null primary key check (length(id) between 1 and 900), \
             wallet text not null, currency text not null, \
             amount integer not null check (amount > 0), \
             home integer check (home >= 0), created_by blob not null) strict; \
         create index if not exists tokens_by_amount on tokens(wallet, currency, amount desc, id, home); \
         create table if not exists fences(id blob not null primary key, fence integer not null) \
             strict, without rowid; \
         create table if not exists applied(tx blob not null primary key, content blob not null) strict, without rowid;",
    // There is one writer at a time, so a row that a transaction has read stays.
    begin: "begin immediate",
    first_page: FIRST_PAGE,
    next_page: next_page!(),
    unspent: "select id, 0, null from tokens where id in (select unhex(value) from json_each($1))",
    balance: "select x'', coalesce(sum(amount), 0), null from tokens where currency = $1",
    record: "insert into applied(tx, content) values ($1, $2) on conflict do nothing returning tx, 0, null",
    applied: "select content, 0, null from applied where tx = $1",
    // With the signs, it looks the ids up. Without, it reads the whole pool.
    lock: "select id, 0, null from tokens where +wallet = $1 and +currency = $2 \
         and id in (select unhex(value) from json_each($3))",
    fences: "select id, fence, null from fences where id in (select unhex(value) from json_each($1))",
    raise: "insert into fences(id, fence) select unhex(value), $1 from json_each($2) where true \
         on conflict (id) do update set fence = excluded.fence",
    delete: "delete from tokens where id in (select unhex(value) from json_each($1))",
    insert: "insert into tokens(wallet, currency, created_by, id, amount, home) \
         select $1, $2, $3, unhex(value ->> 0), value ->> 1, value ->> 2 from json_each($4) where true \
         on conflict do nothing returning id, amount, home",
};

#[cfg(feature = "tokens-postgres")]
pub const POSTGRES: Statements = Statements {
    // `create .. if not exists` of two replicas at the same time fails in one of them, so they take turns.
    // The number means nothing.
    // With `home`, the index has all columns of a page.
    tables: "set local client_min_messages = warning; \
         select pg_advisory_xact_lock(6838271941); \
         create table if not exists tokens( \
             id bytea primary key check (length(id) between 1 and 900), \
             wallet text not null, currency text not null, \
             amount bigint not null check (amount > 0), \
             home integer check (home >= 0), created_by bytea not null); \
         create index if not exists tokens_by_amount on tokens(wallet, currency, amount desc, id) include (home); \
         create table if not exists fences(id bytea primary key, fence bigint not null); \
         create table if not exists applied(tx bytea primary key, content bytea not null);",
    begin: "begin isolation level read committed",
    first_page: FIRST_PAGE,
    next_page: next_page!(),
    unspent: "select id, 0::bigint, null::integer from tokens where id = any($1)",
    balance: "select ''::bytea, coalesce(sum(amount), 0)::bigint, null::integer from tokens where currency = $1",
    record: "insert into applied(tx, content) values ($1, $2) on conflict do nothing \
         returning tx, 0::bigint, null::integer",
    applied: "select content, 0::bigint, null::integer from applied where tx = $1",
    // In one order, so that two transactions with the same inputs cannot deadlock.
    lock: "select id, 0::bigint, null::integer from tokens where wallet = $1 and currency = $2 and id = any($3) \
         order by id for update",
    fences: "select id, fence, null::integer from fences where id = any($1)",
    raise: "insert into fences(id, fence) select id, $1 from unnest($2::bytea[]) as id \
         on conflict (id) do update set fence = excluded.fence",
    delete: "delete from tokens where id = any($1)",
    insert: "insert into tokens(wallet, currency, created_by, id, amount, home) \
         select $1, $2, $3, id, amount, home from unnest($4::bytea[], $5::bigint[], $6::integer[]) \
             as new(id, amount, home) \
         on conflict do nothing returning id, amount, home",
};
