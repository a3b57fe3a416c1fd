//! The outside of the replicas: the server of the locks, the store, and the application's table. The
//! server keeps its promises; it grants in the order of the requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use geolock_client::DcId;

use super::super::open::Write;
use super::super::record::{Mark, MarkState, Need, Record, TxId};
use super::super::select::MarkRead;
use super::super::space::Change;
use super::plan::MS;
use crate::selector_state::token::{Pool, Token, TokenId};

/// A request for locks.
#[derive(Clone, Debug)]
pub struct Request {
    pub replica: usize,
    /// The lease of the replica.
    pub lease: u64,
    pub tx: TxId,
    /// All that it ever named, and the places that count.
    pub asked: Vec<Token>,
    pub named: BTreeSet<usize>,
    /// `None`: all of them.
    pub amount: Option<u64>,
    pub most: usize,
    /// Places, once it is granted.
    pub chosen: Option<Vec<usize>>,
    pub fence: u64,
}

impl Request {
    pub fn ids(&self) -> Vec<TokenId> {
        let chosen = self.chosen.iter().flatten();
        chosen.map(|place| self.asked[*place].id.clone()).collect()
    }
}

#[derive(Default)]
pub struct Outside {
    pub requests: BTreeMap<u64, Request>,
    holders: BTreeMap<TokenId, u64>,
    asked: u64,
    fence: u64,
    pub marks: BTreeMap<TokenId, (Mark, Duration)>,
    pub records: BTreeMap<TxId, (Record, Duration)>,
    /// The table, with its history.
    pub table: Vec<(Duration, BTreeMap<TokenId, Token>)>,
    pub paid: BTreeMap<TokenId, TxId>,
    pub paid_amount: u64,
    pub initial: u64,
}

pub fn pool() -> Pool {
    Pool::new("w", "c")
}

pub fn token(id: &str, amount: u64, home: u8) -> Token {
    Token { id: TokenId::new(id.to_owned()).expect("it is an id"), amount, home: DcId::new(home) }
}

impl Outside {
    pub fn ask(&mut self, request: Request) -> u64 {
        self.asked += 1;
        self.requests.insert(self.asked, request);
        self.asked
    }

    /// Grants what can be granted. `only`: tokens of this home, for one request that does not wait.
    pub fn grant(&mut self, only: Option<(u64, DcId)>) -> Vec<u64> {
        let mut granted = Vec::new();
        let waiting: Vec<u64> = match only {
            Some((number, _)) => vec![number],
            None => self
                .requests
                .iter()
                .filter(|(_, it)| it.chosen.is_none())
                .map(|(number, _)| *number)
                .collect(),
        };
        for number in waiting {
            let Some(request) = self.requests.get(&number) else { continue };
            let is_free = |place: &&usize| {
                let token = &request.asked[**place];
                let is_here =
                    only.is_none_or(|(_, home)| token.home == Some(home) || request.amount.is_none());
                !self.holders.contains_key(&token.id) && is_here
            };
            let free: Vec<usize> = request.named.iter().filter(is_free).copied().collect();
            let Some(chosen) = choose(request, &free) else { continue };
            for place in &chosen {
                self.holders.insert(request.asked[*place].id.clone(), number);
            }
            self.fence += 1;
            let fence = self.fence;
            let request = self.requests.get_mut(&number).expect("it is there");
            (request.chosen, request.fence) = (Some(chosen), fence);
            granted.push(number);
        }
        granted
    }

    /// Lets a request go, whatever it is.
    pub fn free(&mut self, number: u64) -> Option<Request> {
        self.holders.retain(|_, holder| *holder != number);
        self.requests.remove(&number)
    }

    /// Returns the requests of a lease.
    pub fn of_lease(&self, replica: usize, lease: u64) -> Vec<u64> {
        let of = self.requests.iter().filter(|(_, it)| it.replica == replica && it.lease == lease);
        of.map(|(number, _)| *number).collect()
    }

    pub fn read(&self, now: Duration, tx: &TxId, ids: &[TokenId]) -> (Vec<MarkRead>, Option<Record>) {
        let mark = |id: &TokenId| match self.marks.get(id).filter(|(_, until)| *until > now) {
            None => MarkRead::None,
            Some((mark, _)) if mark.tx == *tx => MarkRead::Own,
            Some((mark, _)) => MarkRead::Other(Change::Marked(id.clone(), mark.clone())),
        };
        (ids.iter().map(mark).collect(), self.record(now, tx))
    }

    pub fn record(&self, now: Duration, tx: &TxId) -> Option<Record> {
        self.records.get(tx).filter(|(_, until)| *until > now).map(|(record, _)| record.clone())
    }

    /// Commits under the locks of `tx`. Returns what replicas hear of it, and when it expires.
    pub fn commit(
        &mut self,
        now: Duration,
        of: &(TxId, u64, Vec<Token>),
        fence: u64,
        write: &Write,
        lasts: Duration,
    ) -> Result<(Vec<Change>, Duration), String> {
        let (tx, amount, tokens) = of;
        let mut changes = Vec::new();
        let (state, change) = match write {
            Write::Reserved => (MarkState::Reserved, &Vec::new()),
            Write::Spent(change) => (MarkState::Spent, change),
            Write::Removed => {
                self.records.remove(tx);
                for token in tokens {
                    self.marks.remove(&token.id);
                    changes.push(Change::Unmarked(token.id.clone()));
                }
                return Ok((changes, now));
            }
        };
        let mut until = now + lasts;
        for token in tokens {
            let mark = Mark { tx: tx.clone(), fence, state };
            if let Some((before, ends)) = self.marks.get(&token.id).filter(|(_, ends)| *ends > now) {
                if before.tx != *tx {
                    return Err(format!("{tx} marks {:?}, which {} has marked", token.id, before.tx));
                }
                until = until.max(*ends);
            }
            self.marks.insert(token.id.clone(), (mark.clone(), until));
            changes.push(Change::Marked(token.id.clone(), mark));
        }
        let (pool_bytes, tokens) = (Bytes::from_static(b"w/c"), tokens.clone());
        let record = Record { amount: *amount, fence, state, pool: pool_bytes, tokens };
        self.records.insert(tx.clone(), (record, until));
        if !change.is_empty() {
            changes.push(Change::New(pool(), change.clone()));
        }
        Ok((changes, until))
    }

    /// Removes the marks that have expired.
    pub fn expire(&mut self, now: Duration) -> Vec<Change> {
        let over: Vec<TokenId> =
            self.marks.iter().filter(|(_, (_, until))| *until <= now).map(|(id, _)| id.clone()).collect();
        over.iter().for_each(|id| drop(self.marks.remove(id)));
        over.into_iter().map(Change::Unmarked).collect()
    }

    pub fn unspent(&self) -> &BTreeMap<TokenId, Token> {
        &self.table.last().expect("it begins with one").1
    }

    pub fn unspent_at(&self, at: Duration) -> &BTreeMap<TokenId, Token> {
        let before = self.table.iter().rev().find(|(since, _)| *since <= at);
        before.map_or(&self.table[0].1, |(_, rows)| rows)
    }

    /// One transaction of the database.
    pub fn apply(
        &mut self,
        now: Duration,
        tx: &TxId,
        inputs: &[Token],
        change: &[Token],
    ) -> Result<(), String> {
        let mut rows = self.unspent().clone();
        for input in inputs {
            if rows.remove(&input.id).is_none() {
                return Err(format!(
                    "{:?} is paid twice, by {:?} and {tx}",
                    input.id,
                    self.paid.get(&input.id)
                ));
            }
            self.paid.insert(input.id.clone(), tx.clone());
        }
        let sum = |tokens: &[Token]| tokens.iter().map(|token| token.amount).sum::<u64>();
        self.paid_amount += sum(inputs) - sum(change);
        rows.extend(change.iter().map(|token| (token.id.clone(), token.clone())));
        self.table.push((now, rows));
        Ok(())
    }

    pub fn insert(&mut self, now: Duration, token: Token) {
        let mut rows = self.unspent().clone();
        self.initial += token.amount;
        rows.insert(token.id.clone(), token);
        self.table.push((now, rows));
    }
}

pub fn total(rows: &BTreeMap<TokenId, Token>) -> u64 {
    rows.values().map(|token| token.amount).sum()
}

/// Enough of the free ones, in order, without those that are not needed; or all.
fn choose(request: &Request, free: &[usize]) -> Option<Vec<usize>> {
    let Some(amount) = request.amount else {
        return (free.len() == request.named.len()).then(|| free.to_vec());
    };
    let weight = |place: &usize| request.asked[*place].amount;
    let mut chosen = Vec::new();
    let mut sum = 0;
    for place in free {
        if sum >= amount {
            break;
        }
        sum += weight(place);
        chosen.push(*place);
    }
    if sum < amount {
        return None;
    }
    for place in chosen.clone() {
        if sum - weight(&place) >= amount {
            sum -= weight(&place);
            chosen.retain(|it| *it != place);
        }
    }
    (chosen.len() <= request.most).then_some(chosen)
}

pub fn need(amount: u64) -> Need {
    Need { amount, dc: None }
}

/// A lease that is not renewed ends after this.
pub const TTL: Duration = MS.saturating_mul(10_000);
