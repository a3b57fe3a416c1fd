//! Lists that all clients append to, each under its lock, in all datacenters concurrently: checks the
//! guarantees of lists, whatever happens to servers and links.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use geolock::client::{AtLeast, Client, CommitError, Key, Reading, TxnRequest, Update, Value, Wait};
use geolock::names::LockName;
use tokio::task::JoinSet;

use super::history::{Commit, History, shown_by_all};
use super::trouble::{Dice, Load, Outcome, outcome};
use super::within;

const LISTS: usize = 10;
/// In each datacenter.
const WRITERS: u8 = 2;
/// A list moves on quickly, so that it moves often.
pub const HOLD: &str = "[[hold]]\nprefix = \"list/\"\nmin_keep = \"20 ms\"\nmax_keep = \"100 ms\"\n";
fn key(list: usize) -> Key {
    Key::new(b"lists", format!("{list}").as_bytes()).expect("it is a key")
}

fn keys() -> Vec<Key> {
    (0..LISTS).map(key).collect()
}

fn lock(list: usize) -> LockName {
    LockName::try_from(&*format!("list/{list}")).expect("it is a name")
}

/// How an application may represent a list.
#[derive(Clone, Copy)]
enum Kind {
    /// A register with a line for each element.
    Register,
    /// The same, with the length as its version.
    Versioned,
    /// A map from positions to elements.
    Map,
}

fn kind(list: usize) -> Kind {
    [Kind::Register, Kind::Versioned, Kind::Map][list % 3]
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("a test writes text")
}

fn elements(list: usize, value: &Value) -> Vec<String> {
    let lines = |bytes: &[u8]| text(bytes).lines().map(String::from).collect::<Vec<_>>();
    match kind(list) {
        Kind::Register => lines(value.register().expect("it is a register").map_or(b"", |bytes| bytes)),
        Kind::Versioned => value.versioned().expect("it is a versioned value").map_or(vec![], |read| {
            let lines = lines(&read.value);
            assert_eq!(read.version, lines.len() as u64, "its version is its length: {lines:?}");
            lines
        }),
        Kind::Map => {
            let Some(reading) = value.reading() else { return Vec::new() };
            let Reading::Map(_, fields) = reading else { panic!("{reading:?} is a map") };
            let element = |(position, (field, reading)): (usize, &(_, Reading))| {
                assert_eq!(*field, format!("{position:06}"), "no position is left out");
                let Reading::LwwRegister(Some(element)) = reading else {
                    panic!("{reading:?} is a register")
                };
                text(element)
            };
            fields.iter().enumerate().map(element).collect()
        }
    }
}

/// Returns the update that appends an element to a list with these elements.
fn append(list: usize, elements: &[String], element: &str) -> Update {
    let lines = || elements.iter().map(String::as_str).chain([element]).collect::<Vec<_>>().join("\n");
    match kind(list) {
        Kind::Register => Update::register(lines()),
        Kind::Versioned => Update::versioned(elements.len() as u64 + 1, lines()),
        Kind::Map => Update::register(element.to_owned()).in_field(format!("{:06}", elements.len())),
    }
}

/// Everything known of the lists, apart from their content.
#[derive(Default)]
struct Notes {
    history: History,
    acknowledged: [BTreeSet<String>; LISTS],
    unknown: [BTreeSet<String>; LISTS],
    /// Every state that was read.
    seen: [BTreeSet<Vec<String>>; LISTS],
}

#[derive(Default)]
struct Desk {
    notes: Mutex<Notes>,
    load: Arc<Load>,
}

impl Desk {
    fn note(&self, note: impl FnOnce(&mut Notes)) {
        note(&mut self.notes.lock().expect("nobody panics with it"));
    }
}

/// A client that appends.
struct Writer {
    dc: u8,
    name: String,
    client: Client,
    dice: Dice,
    desk: Arc<Desk>,
}

impl Writer {
    async fn work(mut self) {
        for turn in 0_u64.. {
            if self.desk.load.is_closed() {
                break;
            }
            let list = self.dice.roll(LISTS);
            // Names its writer; its position is added when that is known.
            let mut element = format!("{} {turn}", self.name);
            let appended = self.append(list, &mut element).await;
            self.desk.note(|notes| match outcome(appended) {
                Outcome::Done(commit) => {
                    notes.history.note([lock(list)], &commit);
                    notes.acknowledged[list].insert(element);
                }
                Outcome::Nothing => {}
                Outcome::Unknown => notes.unknown[list].extend([element]),
            });
            self.desk.load.tried();
        }
    }

    async fn append(&self, list: usize, element: &mut String) -> Result<Option<Commit>, CommitError> {
        let request = TxnRequest::exclusive(lock(list)).wait(Wait::AtMost(Duration::from_secs(1)));
        let mut txn = self.client.begin(request).await?;
        let (token, saw) = (txn.token().expect("it has a lock"), txn.snapshot().clone());
        let before = elements(list, &txn.read(&key(list)).await?);
        *element = format!("{element} at {}", before.len());
        txn.update(&key(list), append(list, &before, element)).await?;
        let after = elements(list, &txn.read(&key(list)).await?);
        assert_eq!(after.split_last(), Some((&*element, &before[..])), "it reads its own append");
        self.desk.note(|notes| notes.seen[list].extend([before]));
        let commit = txn.commit().await?;
        Ok(Some(Commit { dc: self.dc, token, saw, commit }))
    }
}

/// Reads all lists at one snapshot, repeatedly.
async fn read(client: Client, desk: Arc<Desk>) -> u64 {
    let (mut tried, mut reads) = (desk.load.progress(), 0);
    while !desk.load.is_closed() {
        // Fails while its server is down.
        if let Ok(view) = client.read_many(&keys(), &AtLeast::default()).await {
            desk.note(|notes| {
                for (list, value) in view.values.iter().enumerate() {
                    notes.seen[list].insert(elements(list, value));
                }
            });
            reads += 1;
        }
        tried.changed().await.expect("the load is there");
    }
    reads
}

/// Checks the final content of a list against the notes.
fn check(list: usize, shown: &[String], notes: &Notes) {
    let (acknowledged, unknown) = (&notes.acknowledged[list], &notes.unknown[list]);
    for (position, element) in shown.iter().enumerate() {
        let known = acknowledged.contains(element) || unknown.contains(element);
        assert!(known, "list {list} has {element:?}, of which its writer was told that it was not committed");
        assert!(element.ends_with(&format!(" at {position}")), "{element:?} is at {position} in list {list}");
    }
    let distinct: BTreeSet<&String> = shown.iter().collect();
    assert_eq!(distinct.len(), shown.len(), "list {list} has something twice: {shown:?}");
    let lost: Vec<&String> = acknowledged.iter().filter(|element| !distinct.contains(element)).collect();
    assert!(lost.is_empty(), "list {list} has lost {lost:?}: {shown:?}");
    for seen in &notes.seen[list] {
        assert!(shown.starts_with(seen), "list {list} was {seen:?} and became {shown:?}");
    }
}

/// All writers and readers.
pub struct Lists {
    desk: Arc<Desk>,
    writers: JoinSet<()>,
    readers: JoinSet<u64>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Figures {
    /// Acknowledged appends: on the list that has the fewest, and in all.
    pub least: usize,
    pub appends: usize,
    pub unknown: usize,
    /// How often a list was appended to in another datacenter than before.
    pub hand_offs: u32,
    /// By reader.
    pub reads: Vec<u64>,
}

impl Lists {
    /// Starts; `clients` has one client of each datacenter.
    pub fn begin(clients: &[Client], dice: &mut Dice) -> Lists {
        let desk = Arc::new(Desk::default());
        let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
        for (dc, client) in (0..).zip(clients) {
            for n in 0..WRITERS {
                let (client, desk) = (client.clone(), Arc::clone(&desk));
                let dice = Dice::new(dice.roll(usize::MAX) as u64);
                writers.spawn(Writer { dc, name: format!("dc{dc}.{n}"), client, dice, desk }.work());
            }
            readers.spawn(read(client.clone(), Arc::clone(&desk)));
        }
        Lists { desk, writers, readers }
    }

    pub fn load(&self) -> Arc<Load> {
        Arc::clone(&self.desk.load)
    }

    /// Ends the work when everything works again, and checks: every request is answered, no append is lost or
    /// doubled, and the order is the same everywhere.
    pub async fn end(self, clients: &[Client]) -> Figures {
        self.desk.load.close();
        let ended = async { (self.writers.join_all().await, self.readers.join_all().await) };
        let (_, reads) = within(ended).await;

        let mut notes = std::mem::take(&mut *self.desk.notes.lock().expect("nobody panics with it"));
        let hand_offs = notes.history.check();
        let shown = shown_by_all(clients, &keys(), &notes.history.all()).await;
        for (list, value) in shown.iter().enumerate() {
            check(list, &elements(list, value), &notes);
        }
        let count = |of: &[BTreeSet<String>]| of.iter().map(BTreeSet::len).sum::<usize>();
        let least = notes.acknowledged.iter().map(BTreeSet::len).min().unwrap_or(0);
        let (appends, unknown) = (count(&notes.acknowledged), count(&notes.unknown));
        Figures { least, appends, unknown, hand_offs, reads }
    }
}
