//! The driver without servers: its channels, a database and a ledger in memory, and an outbox that sends
//! nothing.

use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::oneshot::error::TryRecvError;

use super::super::KEPT;
use super::*;
use crate::sequencer_state::{
    Assembly, Committee, Config, Contract, Epoch, HandedOver, Handover, Message, Node, NotAssembled, Outcome,
    Phase, Restored, SequencerOptions, Speculation,
};

const MEMBERS: [&str; 3] = ["a", "b", "c"];
const INPUTS: usize = 256;

/// The content of the database, and the calls that were made.
#[derive(Default)]
struct Disk {
    restored: Restored,
    ended: BTreeMap<IntentId, End>,
    writes: Vec<Vec<Record>>,
    /// Envelopes that waited when something was written.
    waiting: Vec<usize>,
    /// Views of the ledger that were asked for.
    viewed: Vec<Vec<IntentId>>,
    view: LedgerView,
}

type SharedDisk = Arc<Mutex<Disk>>;

struct Store(SharedDisk, Arc<Outbox>);

impl NodeStore for Store {
    type Error = String;

    async fn load(&mut self) -> Result<Restored, String> {
        Ok(self.0.lock().expect("nothing panics").restored.clone())
    }

    async fn write(&mut self, records: Vec<Record>) -> Result<(), String> {
        let mut disk = self.0.lock().expect("nothing panics");
        for record in &records {
            match record {
                Record::Intent(intent) => disk.restored.intents.push(intent.clone()),
                Record::Ended { intent, end } => drop(disk.ended.insert(intent.clone(), end.clone())),
                _ => {}
            }
        }
        disk.waiting.push(self.1.waiting());
        disk.writes.push(records);
        Ok(())
    }

    async fn find(&mut self, id: &IntentId) -> Result<Option<(Intent, Option<End>)>, String> {
        let disk = self.0.lock().expect("nothing panics");
        let found = disk.restored.intents.iter().find(|intent| intent.id == *id).cloned();
        Ok(found.map(|intent| (intent, disk.ended.get(id).cloned())))
    }
}

struct View(SharedDisk);

impl Ledger for View {
    type Error = String;

    async fn view(&self, intents: Vec<IntentId>) -> Result<LedgerView, String> {
        let mut disk = self.0.lock().expect("nothing panics");
        disk.viewed.push(intents);
        Ok(disk.view.clone())
    }

    async fn submit(&self, _: &Transaction) -> Result<(), String> {
        Ok(())
    }

    async fn blocks(&self, _: u64) -> Result<Vec<Block>, String> {
        pending().await
    }
}

struct Rules;

impl Domain for Rules {
    fn committee(&self) -> Vec<Node> {
        MEMBERS.map(Node::new).to_vec()
    }

    async fn assemble(&self, _: &Intent, _: &Speculation) -> Result<Assembly, NotAssembled> {
        Err(NotAssembled::Parked)
    }

    async fn endorse(&self, _: &Assembly) -> Result<(), String> {
        Ok(())
    }
}

/// A driver, and the other ends of its channels.
struct Bench {
    driver: Driver<Rules, View, Store>,
    disk: SharedDisk,
    calls: mpsc::Sender<Call>,
    inputs: mpsc::Sender<Input>,
    lock: mpsc::UnboundedReceiver<LockCommand>,
    _lock_news: mpsc::UnboundedSender<LockInput>,
    transactions: mpsc::Receiver<Transaction>,
    warnings: broadcast::Receiver<Warning>,
}

/// Returns the committee in the order of the first range.
fn rank() -> Vec<Node> {
    let committee = Committee::new(MEMBERS.map(Node::new).to_vec(), &Node::new("a")).expect("names differ");
    SequencerOptions::default().placement.rank(&Contract::new("c"), &committee, 0)
}

impl Bench {
    /// A node at that place of the rank, with an empty database and ledger.
    fn new(place: usize) -> Bench {
        let (me, contract) = (rank()[place].clone(), Contract::new("c"));
        let keys = Arc::new(Keys::new(&contract, &me).expect("they are names"));
        let committee = Committee::new(MEMBERS.map(Node::new).to_vec(), &me).expect("names differ");
        let options = SequencerOptions::default();
        let config = Config { me, contract, committee, options: options.clone(), bug: None };
        let machine = Machine::new(config, &Restored::default(), &LedgerView::default());
        let (outbox, disk) = (Arc::new(Outbox::without_task()), SharedDisk::default());
        let (calls, called) = mpsc::channel(OF_EACH);
        let (inputs, input) = mpsc::channel(INPUTS);
        let (to_lock, lock) = mpsc::unbounded_channel();
        let (lock_news, lock_events) = mpsc::unbounded_channel();
        let (to_ledger, transactions) = mpsc::channel(OF_EACH);
        let (to_warnings, warnings) = broadcast::channel(KEPT);
        let driver = Driver {
            outbox: Arc::clone(&outbox),
            keys,
            machine: machine.expect("it can take part"),
            domain: Arc::new(Rules),
            ledger: Arc::new(View(Arc::clone(&disk))),
            store: Store(Arc::clone(&disk), outbox),
            max_undecided: 1_000,
            beat: options.beat,
            unheard: options.flush_timeout,
            channels: Channels {
                calls: called,
                lock_events,
                inputs: input,
                lock: to_lock,
                to_ledger,
                warnings: to_warnings,
                ends: broadcast::Sender::new(KEPT),
            },
            tasks: JoinSet::new(),
            stopped: Arc::default(),
            state: DriverState::new(),
        };
        Bench { driver, disk, calls, inputs, lock, _lock_news: lock_news, transactions, warnings }
    }

    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.disk.lock().expect("nothing panics")
    }

    fn intent(&self, name: &str) -> Intent {
        Intent { id: IntentId::new(self.driver.keys.me(), name), content: Bytes::new() }
    }

    fn transaction(&self, name: &str, nonce: u64) -> Transaction {
        let intent = self.intent(name).id;
        let assembly = Assembly { intent, inputs: Vec::new(), outputs: Vec::new(), payload: Bytes::new() };
        let (hash, signer) = (assembly.hash(), self.driver.keys.me().clone());
        Transaction { assembly, hash, epoch: Epoch(1), signer, nonce }
    }

    fn submit(&self, name: &str) -> (Call, Submitted) {
        let (answer, answered) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        (Call::Submit(self.intent(name), answer, end), Submitted { answered, ended })
    }

    async fn turn(&mut self, turn: Turn) {
        self.driver.on_turn(turn).await.expect("nothing fails");
    }

    async fn block(&mut self, height: u64, outcomes: Vec<Outcome>) {
        self.turn(Turn::Input(Input::Block(Block { height, outcomes }))).await;
    }

    /// The view of the ledger that was asked for is there.
    async fn view_arrives(&mut self) {
        let view = self.driver.state.views.join_next().await.expect("it was asked for");
        self.turn(Turn::View(view)).await;
    }

    /// Another node delegates an intent, and leaves these out.
    async fn delegate(&mut self, from: &Node, skipped: &[Node]) {
        let intents = vec![IntentId::new(from, "1")];
        let message = Message::Delegate { height: 0, skipped: skipped.iter().cloned().collect(), intents };
        self.turn(Turn::Input(Input::Event(Event::Message { from: from.clone(), message }))).await;
    }

    async fn lock_news(&mut self, number: u64, event: LockEvent) {
        self.turn(Turn::Lock(LockInput::Event(number, event))).await;
    }
}

#[derive(Debug)]
struct Submitted {
    answered: oneshot::Receiver<Result<(), SubmitError>>,
    ended: oneshot::Receiver<End>,
}

#[tokio::test]
async fn what_is_there_at_once_is_written_together_and_before_it_is_told() {
    let mut bench = Bench::new(1);
    let mut submitted = Vec::new();
    for number in 0..20 {
        let (call, answers) = bench.submit(&number.to_string());
        bench.calls.try_send(call).map_err(drop).expect("there is room");
        submitted.push(answers);
    }
    bench.calls.try_send(Call::Close).map_err(drop).expect("there is room");
    bench.driver.work().await.expect("nothing fails");
    let disk = bench.disk();
    let writes: Vec<usize> = disk.writes.iter().map(Vec::len).collect();
    assert_eq!(writes, [20], "one transaction");
    assert_eq!(disk.waiting, [0], "nothing is told before");
    assert!(bench.driver.outbox.waiting() > 0, "they are delegated");
    for mut answers in submitted {
        assert_eq!(answers.answered.try_recv(), Ok(Ok(())));
        assert_eq!(answers.ended.try_recv(), Err(TryRecvError::Empty));
    }
}

#[tokio::test]
async fn many_messages_do_not_keep_a_call_waiting() {
    let mut bench = Bench::new(0);
    for _ in 0..INPUTS {
        let (from, beat) = (rank()[1].clone(), beat(Phase::Idle));
        let input = Input::Event(Event::Beat { from, beat });
        bench.inputs.try_send(input).map_err(drop).expect("there is room");
    }
    bench.calls.try_send(Call::Close).map_err(drop).expect("there is room");
    bench.driver.work().await.expect("nothing fails");
    let left = bench.driver.channels.inputs.len();
    assert!(left >= INPUTS - OF_EACH - 1, "{left} of {INPUTS} are left");
}

/// The intent is confirmed in a block that the view knows and the machine does not.
#[tokio::test]
async fn a_view_that_is_ahead_waits_for_the_blocks() {
    let mut bench = Bench::new(1);
    let (old, of) = (bench.intent("old"), bench.transaction("new", 1));
    bench.disk().restored = Restored {
        intents: vec![old.clone()],
        dispatches: vec![bench.transaction("dispatched", 1), bench.transaction("another", 2)],
        last_nonce: 2,
        ..Restored::default()
    };
    bench.disk().view = LedgerView { height: 2, ..LedgerView::default() };
    bench.turn(Turn::Resume).await;
    bench.view_arrives().await;
    assert_eq!(bench.disk().viewed, [vec![old.id.clone()]], "also what only the database has");
    let (call, mut answers) = bench.submit("new");
    bench.turn(Turn::Call(Some(call))).await;
    bench.block(1, Vec::new()).await;
    assert_eq!((bench.driver.machine.height(), bench.driver.machine.is_undecided(&old.id)), (1, false));
    bench
        .block(2, vec![Outcome { transaction: Transaction { signer: Node::new("z"), ..of }, result: Ok(()) }])
        .await;
    bench.driver.commit().await.expect("nothing fails");
    assert_eq!(answers.ended.try_recv(), Ok(End::Confirmed), "the block was not passed over");
    assert!(bench.driver.machine.is_undecided(&old.id), "what only the database has is taken up");
    let submitted: Vec<u64> = from_fn(|| bench.transactions.try_recv().ok()).map(|it| it.nonce).collect();
    assert_eq!(submitted, [1, 2], "also its transactions");
}

#[tokio::test]
async fn a_view_that_is_behind_or_fails_is_read_again_with_the_next_block() {
    let mut bench = Bench::new(1);
    let old = bench.intent("old");
    bench.disk().restored.intents.push(old.clone());
    bench.turn(Turn::Resume).await;
    bench.block(1, Vec::new()).await;
    bench.view_arrives().await;
    assert!(!bench.driver.machine.is_undecided(&old.id), "block 1 may have confirmed it");
    bench.disk().view.height = 2;
    bench.block(2, Vec::new()).await;
    bench.view_arrives().await;
    assert!(bench.driver.machine.is_undecided(&old.id));
    bench.turn(Turn::View(Ok(Err("no line".to_owned())))).await;
    assert_eq!(bench.warnings.try_recv(), Ok(Warning::Ledger("no line".to_owned())));
    bench.block(3, Vec::new()).await;
    assert_eq!(bench.disk().viewed.len(), 2, "the third one is being read");
    bench.view_arrives().await;
    assert_eq!(bench.disk().viewed.len(), 3);
}

/// Its view of the ledger was late when it began with an empty database.
#[tokio::test]
async fn a_database_that_is_behind_the_ledger_is_told() {
    let mut bench = Bench::new(1);
    let outcome = |transaction| Outcome { transaction, result: Ok(()) };
    let of_other = Transaction { signer: rank()[0].clone(), ..bench.transaction("other", 9) };
    bench.block(1, vec![outcome(of_other)]).await;
    assert_eq!(bench.warnings.try_recv().ok(), None, "of another node");
    let own = [7, 8].map(|nonce| outcome(bench.transaction("lost", nonce)));
    bench.block(2, own.to_vec()).await;
    assert_eq!(bench.warnings.try_recv(), Ok(Warning::DatabaseBehind { known: 0, decided: 8 }));
    bench.block(3, vec![outcome(bench.transaction("lost", 9))]).await;
    assert_eq!(bench.warnings.try_recv(), Ok(Warning::DatabaseBehind { known: 8, decided: 9 }));
}

/// It ends and is submitted once more before its end is written.
#[tokio::test]
async fn an_intent_that_has_just_ended_does_not_begin_again() {
    let mut bench = Bench::new(1);
    let (call, _first) = bench.submit("1");
    bench.turn(Turn::Call(Some(call))).await;
    bench.driver.commit().await.expect("nothing fails");
    let transaction = bench.transaction("1", 1);
    bench.block(1, vec![Outcome { transaction, result: Ok(()) }]).await;
    let (call, mut again) = bench.submit("1");
    bench.turn(Turn::Call(Some(call))).await;
    bench.driver.commit().await.expect("nothing fails");
    assert_eq!((again.answered.try_recv(), again.ended.try_recv()), (Ok(Ok(())), Ok(End::Confirmed)));
    let records: Vec<Record> = bench.disk().writes.concat();
    assert_eq!(records.iter().filter(|it| matches!(it, Record::Intent(_))).count(), 1);
}

/// The lease ends, and the machine asks for the lock again: the grant of the first request is void at once.
#[tokio::test]
async fn news_of_a_former_request_for_the_lock_are_void_in_the_same_round() {
    let mut bench = Bench::new(0);
    bench.delegate(&rank()[1], &[]).await;
    let granted = || LockEvent::Granted { epoch: Epoch(5), handover: None };
    bench.lock_news(1, LockEvent::Lost).await;
    bench.lock_news(1, granted()).await;
    assert_eq!(bench.driver.machine.epoch(), None);
    bench.lock_news(2, granted()).await;
    assert_eq!(bench.driver.machine.epoch(), Some(Epoch(5)));
    bench.driver.commit().await.expect("nothing fails");
    let numbers: Vec<u64> = from_fn(|| bench.lock.try_recv().ok()).map(|command| command.number).collect();
    assert_eq!(numbers, [1, 2]);
}

/// A handover is written while the next one is on its way: the lock is kept until that is written.
#[tokio::test]
async fn a_handover_counts_when_the_last_one_is_written() {
    let mut bench = Bench::new(1);
    let [first, _, third] = <[Node; 3]>::try_from(rank()).expect("there are three");
    bench.delegate(&third, std::slice::from_ref(&first)).await;
    let transaction = Transaction { signer: third.clone(), ..bench.transaction("lost", 1) };
    // Others have waited for it long enough: it is taken out.
    let waited = SequencerOptions::default().flush_timeout;
    let handover =
        Handover { epoch: Epoch(4), dispatched: vec![HandedOver { transaction, waited }], last: None };
    bench.lock_news(1, LockEvent::Granted { epoch: Epoch(5), handover: Some(handover) }).await;
    assert_eq!((bench.driver.machine.phase(), bench.driver.state.handover_number), (Phase::Active, 1));
    let event = Event::Beat { from: first, beat: beat(Phase::Electing) };
    bench.turn(Turn::Input(Input::Event(event))).await;
    assert_eq!((bench.driver.machine.phase(), bench.driver.state.handover_number), (Phase::Flushing, 2));
    bench.turn(Turn::Lock(LockInput::Written(1))).await;
    assert_eq!(bench.driver.machine.phase(), Phase::Flushing);
    bench.turn(Turn::Lock(LockInput::Written(2))).await;
    assert_eq!(bench.driver.machine.phase(), Phase::Closing);
}

#[tokio::test]
async fn a_node_that_stops_says_why_and_does_not_beat_later() {
    let mut bench = Bench::new(0);
    let (call, answers) = bench.submit("1");
    bench.turn(Turn::Call(Some(call))).await;
    bench.driver.commit().await.expect("nothing fails");
    let beat_key = bench.driver.keys.beat().clone();
    assert!(bench.driver.outbox.has_beat(&beat_key), "it coordinates");
    let (outbox, stopped) = (Arc::clone(&bench.driver.outbox), Arc::clone(&bench.driver.stopped));
    let told = tokio::spawn(async move { (answers.ended.await.is_err(), stopped.get().cloned()) });
    let error = SequencerError::Refused("no right".to_owned());
    bench.inputs.try_send(Input::Failed(error.clone())).map_err(drop).expect("there is room");
    assert_eq!(bench.driver.run().await, Err(error.clone()));
    assert_eq!(told.await.expect("it ends"), (true, Some(error)), "the caller learns the reason");
    assert!(!outbox.has_beat(&beat_key));
}

#[tokio::test]
async fn a_ledger_that_panics_stops_the_node() {
    let mut bench = Bench::new(0);
    bench.driver.tasks.spawn(async { panic!("no such block") });
    let error = bench.driver.work().await.expect_err("it cannot go on");
    assert!(error.to_string().contains("no such block"), "{error}");
}

/// Its server takes no commits: the next in rank hears nothing of it, and waits for the lock.
#[tokio::test]
async fn a_coordinator_that_cannot_send_lets_the_lock_go() {
    let mut bench = Bench::new(0);
    bench.delegate(&rank()[1], &[]).await;
    bench.lock_news(1, LockEvent::Granted { epoch: Epoch(5), handover: None }).await;
    bench.driver.outbox.wait_since(Some(Instant::now()));
    bench.driver.round(Turn::Time).await.expect("nothing fails");
    assert_eq!(bench.driver.machine.phase(), Phase::Active, "it may pass");
    bench.driver.outbox.wait_since(Some(Instant::now() - bench.driver.unheard));
    bench.driver.round(Turn::Time).await.expect("nothing fails");
    assert_eq!((bench.driver.machine.phase(), bench.driver.machine.epoch()), (Phase::Closing, None));
    bench.driver.commit().await.expect("nothing fails");
    let commands: Vec<LockEffect> = from_fn(|| bench.lock.try_recv().ok()).map(|it| it.effect).collect();
    assert_eq!(commands, [LockEffect::Acquire, LockEffect::Release]);
    // It does not let go what it does not hold.
    bench.driver.round(Turn::Time).await.expect("nothing fails");
    bench.driver.commit().await.expect("nothing fails");
    assert!(bench.lock.try_recv().is_err());
}

/// Contracts of a node share it.
#[tokio::test]
async fn an_outbox_that_has_failed_stops_a_driver_that_begins_later() {
    let mut bench = Bench::new(0);
    let error = SequencerError::Refused("no right".to_owned());
    bench.driver.outbox.fail(error.clone());
    assert_eq!(bench.driver.work().await, Err(error));
}

fn beat(phase: Phase) -> Beat {
    Beat { phase, epoch: None, height: 0, coordinates: BTreeSet::new() }
}
