//! The bank: clients in three datacenters transfer money between accounts under locks, while servers are
//! killed and links are cut. The total is the same in every snapshot.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use geolock::client::{
    AtLeast, Batch, Client, CommitError, Key, Mode, Snapshot, TxnRequest, Update, Value, Wait,
};
use geolock::names::LockName;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::HANGS;
use super::history::{Commit, History, merged, patient, shown_by_all};
use super::trouble::{Dice, Load, Outcome, outcome};

const ACCOUNTS: usize = 1_000;
const OPENING: i64 = 100;
const TOTAL: i64 = ACCOUNTS as i64 * OPENING;
const TELLERS: u8 = 2;
/// Accounts that all datacenters use, and accounts that mostly one datacenter uses.
const HOT: usize = 30;
const LOCAL: usize = 20;
/// Each transfer writes a receipt of this many bytes, so that servers make checkpoints meanwhile.
const RECEIPT: usize = 16 << 10;
pub const CHECKPOINTS: &str = "[journal]\nsegment_bytes = \"1 MiB\"\ncheckpoint_bytes = \"1 MiB\"\n";
fn account(n: usize) -> Key {
    Key::new(b"accounts", format!("{n:04}").as_bytes()).expect("it is a key")
}

fn accounts() -> Vec<Key> {
    (0..ACCOUNTS).map(account).collect()
}

fn lock(n: usize) -> LockName {
    LockName::try_from(&*format!("account/{n:04}")).expect("it is a name")
}

fn balances(values: &[Value]) -> Vec<i64> {
    values.iter().map(|value| value.counter().expect("it is a counter")).collect()
}

/// The acknowledged commits.
#[derive(Default)]
struct Books {
    history: History,
    /// The balances, if nothing else was committed.
    balances: Vec<i64>,
    commits: u32,
    sorted: u32,
    unsorted: u32,
    /// Transactions with unknown outcome, with their accounts.
    unknown: Vec<(usize, usize)>,
}

/// State shared by tellers and auditors.
struct Shared {
    books: Mutex<Books>,
    load: Load,
}

/// Tellers and auditors at work in every datacenter.
pub struct Bank {
    shared: Arc<Shared>,
    opened: Snapshot,
    tellers: JoinSet<()>,
    auditors: JoinSet<u64>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Figures {
    pub commits: u32,
    /// Commits that requested their locks in the order of the accounts, and in the reverse order.
    pub sorted: u32,
    pub unsorted: u32,
    pub hand_offs: u32,
    /// Transactions whose outcome no client knows.
    pub unknown: usize,
    /// Snapshots of all accounts, by auditor.
    pub audits: Vec<u64>,
}

impl Bank {
    /// Opens the accounts and starts tellers and auditors at each of the clients, one per datacenter.
    pub async fn begin(clients: &[Client], dice: &mut Dice) -> Bank {
        let opened = open(clients).await;
        let books = Books { balances: vec![OPENING; ACCOUNTS], ..Books::default() };
        let shared = Arc::new(Shared { books: Mutex::new(books), load: Load::default() });
        let (mut tellers, mut auditors) = (JoinSet::new(), JoinSet::new());
        for (dc, client) in (0..).zip(clients) {
            for _ in 0..TELLERS {
                let dice = Dice::new(dice.roll(usize::MAX) as u64);
                let teller = Teller { dc, client: client.clone(), dice, bank: Arc::clone(&shared) };
                tellers.spawn(teller.work());
            }
            auditors.spawn(audit(client.clone(), Arc::clone(&shared)));
        }
        Bank { shared, opened, tellers, auditors }
    }

    pub fn load(&self) -> &Load {
        &self.shared.load
    }

    /// Ends the work and checks the books. All servers run and all links are whole by now, so every request
    /// is answered.
    pub async fn end(self, clients: &[Client]) -> Figures {
        let Bank { shared, opened, tellers, auditors } = self;
        shared.load.close();
        let ended = async { (tellers.join_all().await, auditors.join_all().await) };
        let (_, audits) =
            timeout(HANGS, ended).await.expect("every request is answered once everything works");
        let mut books = std::mem::take(&mut *shared.books.lock().expect("nobody panics with it"));
        let hand_offs = books.history.check();
        let acknowledged = merged([&opened, &books.history.all()]);
        let shown = balances(&shown_by_all(clients, &accounts(), &acknowledged).await);
        assert_eq!(shown.iter().sum::<i64>(), TOTAL);
        for (n, (shown, booked)) in shown.iter().zip(&books.balances).enumerate() {
            let in_doubt = books.unknown.iter().any(|(from, to)| n == *from || n == *to);
            assert!(in_doubt || shown == booked, "account {n} shows {shown}, {booked} were acknowledged");
        }
        let Books { commits, sorted, unsorted, unknown, .. } = books;
        Figures { commits, sorted, unsorted, hand_offs, unknown: unknown.len(), audits }
    }
}

/// A client that transfers money.
struct Teller {
    dc: u8,
    client: Client,
    dice: Dice,
    bank: Arc<Shared>,
}

impl Teller {
    async fn work(mut self) {
        while !self.bank.load.is_closed() {
            let (from, to) = self.choose();
            let amount = 1 + self.dice.roll(10) as i64;
            // In the order chosen: one request for several locks cannot deadlock.
            let request = TxnRequest::exclusive(lock(from)).lock(lock(to), Mode::Exclusive);
            let request = request.wait(Wait::AtMost(Duration::from_secs(1)));
            let transfer = self.transfer(request, from, to, amount).await;
            let mut books = self.bank.books.lock().expect("nobody panics with it");
            match outcome(transfer) {
                Outcome::Done(commit) => {
                    books.history.note([lock(from), lock(to)], &commit);
                    books.balances[from] -= amount;
                    books.balances[to] += amount;
                    books.commits += 1;
                    *(if from < to { &mut books.sorted } else { &mut books.unsorted }) += 1;
                }
                Outcome::Nothing => {}
                Outcome::Unknown => books.unknown.push((from, to)),
            }
            drop(books);
            self.bank.load.tried();
        }
    }

    fn receipt(&self) -> Key {
        Key::new(b"receipts", &[self.dc]).expect("it is a key")
    }

    /// Chooses two accounts in any order: some that all datacenters use, some that mostly this one uses,
    /// rarely any.
    fn choose(&mut self) -> (usize, usize) {
        let local = HOT + LOCAL * usize::from(self.dc);
        let mut any = || match self.dice.roll(8) {
            0..3 => self.dice.roll(HOT),
            3..7 => local + self.dice.roll(LOCAL),
            _ => self.dice.roll(ACCOUNTS),
        };
        let from = any();
        loop {
            let to = any();
            if to != from {
                return (from, to);
            }
        }
    }

    async fn transfer(
        &mut self,
        request: TxnRequest,
        from: usize,
        to: usize,
        amount: i64,
    ) -> Result<Option<Commit>, CommitError> {
        let mut txn = self.client.begin(request).await?;
        let (token, saw) = (txn.token().expect("it has locks"), txn.snapshot().clone());
        let balance = if self.dice.roll(10) == 0 {
            let all = balances(&txn.read_many(&accounts()).await?);
            assert_eq!(all.iter().sum::<i64>(), TOTAL, "a teller of dc{} at {saw:?}", self.dc);
            all[from]
        } else {
            balances(&txn.read_many(&[account(from), account(to)]).await?)[0]
        };
        assert!(balance >= 0, "account {from} never goes below 0: it is read and written under its lock");
        if balance < amount {
            return Ok(None);
        }
        let batch = Batch::new()
            .update(&account(from), Update::counter(-amount))
            .update(&account(to), Update::counter(amount))
            .update(&self.receipt(), Update::register(vec![b'.'; RECEIPT]));
        let commit = txn.commit_with(batch).await?.commit;
        Ok(Some(Commit { dc: self.dc, token, saw, commit }))
    }
}

/// Reads all accounts at one snapshot, repeatedly.
async fn audit(client: Client, bank: Arc<Shared>) -> u64 {
    let (keys, mut tried, mut audits) = (accounts(), bank.load.progress(), 0);
    while !bank.load.is_closed() {
        // Fails while its server is down.
        if let Ok(view) = client.read_many(&keys, &AtLeast::default()).await {
            assert_eq!(balances(&view.values).iter().sum::<i64>(), TOTAL, "at {:?}", view.snapshot);
            audits += 1;
        }
        // Reads again after some progress.
        tried.changed().await.expect("the bank is there");
    }
    audits
}

/// Opens the accounts, and waits until every datacenter has them.
async fn open(clients: &[Client]) -> Snapshot {
    let opening =
        accounts().iter().fold(Batch::new(), |batch, key| batch.update(key, Update::counter(OPENING)));
    let opened = clients[0].transact(TxnRequest::new(), opening).await.expect("it needs no lock").commit;
    for client in clients {
        client.read_many(&[account(0)], &patient(&opened)).await.expect("it comes");
    }
    opened
}
