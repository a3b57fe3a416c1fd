//! Servers and clients that stop for longer than every timeout and then continue. It simulates garbage
//! collection, a suspended machine, or the migration of a host.
//!
//! Clients are processes. Each repeatedly adds to two sets: to one in the store, in a transaction under a
//! lock; and to one in an external resource that knows nothing of locks but refuses tokens smaller than it
//! has seen. No addition is lost, and none is counted twice.
//!
//! A client that is about to be stopped is told beforehand. It then waits, with its lock, until it is told to
//! continue. So it has the lock when it is stopped, however busy the machine is, and its use of the lock
//! afterwards is too late.
//!
//! Guarantee: docs/guarantees.md#not-promised.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::fixture::history::patient;
use crate::fixture::trouble::Dice;
use crate::fixture::wan::Wan;
use crate::fixture::{Output, Running, key, lock, servers};
use geolock::client::{
    AcquireRequest, AtLeast, Client, ClientConfig, ClientTls, CommitError, Reading, TxnRequest, Update, Wait,
};
use rustix::process::Signal;
use tokio::sync::mpsc;

const DCS: u8 = 3;
const CLIENTS_PER_DC: u8 = 2;
/// The set moves on quickly, so that every client gets access.
const HOLD: &str = "[[hold]]\nprefix = \"set/\"\nmin_keep = \"20 ms\"\nmax_keep = \"100 ms\"\n";
/// The time of work on the set under the lock.
const WORK: Duration = Duration::from_millis(20);
const PAUSES: usize = 12;
const MIN_ADDED: usize = 20;

/// An external resource: one text, and the highest token of all requests.
#[derive(Default)]
struct Resource {
    token: u64,
    text: String,
    refused: u64,
}

impl Resource {
    /// Handles `read TOKEN` and `write TOKEN TEXT`; the answer is `ok TEXT`, or `stale`.
    fn answer(&mut self, line: &str) -> String {
        let mut words = line.splitn(3, ' ');
        let (verb, token) = (words.next(), words.next().and_then(|token| token.parse().ok()));
        let token: u64 = token.expect("a client sends its token");
        if token < self.token {
            self.refused += 1;
            return "stale".into();
        }
        self.token = token;
        if verb == Some("write") {
            self.text = words.next().unwrap_or_default().into();
        }
        format!("ok {}", self.text)
    }

    fn serve(listener: TcpListener, shared: Arc<Mutex<Resource>>) {
        for stream in listener.incoming() {
            let (mut stream, shared) = (stream.expect("loopback works"), Arc::clone(&shared));
            thread::spawn(move || {
                let requests = BufReader::new(stream.try_clone().expect("a socket can be shared")).lines();
                for request in requests.map_while(Result::ok) {
                    let answer = shared.lock().expect("nobody panics with it").answer(&request);
                    if writeln!(stream, "{answer}").is_err() {
                        return;
                    }
                }
            });
        }
    }
}

/// A client's connection to the resource.
struct Outside {
    stream: TcpStream,
    answers: std::io::Lines<BufReader<TcpStream>>,
}

impl Outside {
    fn connect(address: SocketAddr) -> Outside {
        let stream = TcpStream::connect(address).expect("the resource listens");
        let answers = BufReader::new(stream.try_clone().expect("a socket can be shared")).lines();
        Outside { stream, answers }
    }

    /// `None` if the token is stale.
    fn ask(&mut self, request: &str) -> Option<String> {
        writeln!(self.stream, "{request}").expect("the resource lives");
        let answer = self.answers.next().expect("it answers").expect("it answers");
        answer.strip_prefix("ok ").map(String::from)
    }
}

/// Orders to a client on its standard input, line by line: `inside` or `outside`, to wait as soon as it works
/// there; then anything, to continue.
struct Orders {
    lines: mpsc::Receiver<String>,
    /// The place where it is to wait and has not waited yet.
    wait: Option<String>,
}

impl Orders {
    fn listen() -> Orders {
        let (tell, lines) = mpsc::channel(8);
        thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                tell.blocking_send(line).expect("the client runs until this process ends");
            }
            // The test has ended.
            std::process::exit(0);
        });
        Orders { lines, wait: None }
    }

    /// Returns true if it is to wait there. Call before the lock is acquired: then the sender of the order
    /// knows that the lock was acquired later.
    fn says_wait(&mut self, kind: &str) -> bool {
        if self.wait.is_none() {
            self.wait = self.lines.try_recv().ok();
        }
        self.wait.as_deref() == Some(kind)
    }

    async fn wait(&mut self, kind: &str, token: u64, element: &str) {
        println!("waits {kind} {token} {element}");
        self.wait = None;
        self.lines.recv().await.expect("the listener ends the process, not the channel");
    }
}

/// The process of a client: this test, started again.
#[tokio::test]
#[ignore = "it is the process of a client, which the other test starts"]
async fn client_process() {
    let var = |name| std::env::var(name).expect("the other test sets it");
    let tls = ClientTls::from_dir(var("CLIENT_TLS")).expect("the certificates are there");
    let config =
        ClientConfig { ttl: Some(Duration::from_secs(1)), ..ClientConfig::new([var("CLIENT_SERVER")], tls) };
    let client = Client::connect(config).await.expect("the server listens");
    let mut outside = Outside::connect(var("CLIENT_RESOURCE").parse().expect("an address"));
    let (name, mut orders) = (var("CLIENT_NAME"), Orders::listen());
    for turn in 0_u64.. {
        add_inside(&client, &mut orders, &format!("{name}.{turn}")).await;
        add_outside(&client, &mut outside, &mut orders, &format!("{name}.{turn}")).await;
    }
}

async fn add_inside(client: &Client, orders: &mut Orders, element: &str) {
    let wait = orders.says_wait("inside");
    let add = async {
        let request = TxnRequest::exclusive(lock("set/inside")).wait(Wait::AtMost(Duration::from_secs(5)));
        let mut txn = client.begin(request).await?;
        let token = txn.token().expect("it has a lock").0;
        let size = txn.read(&key("size")).await?.counter().expect("it is a counter");
        let members = txn.read(&key("set")).await?;
        let members = members.set().expect("it is a set").len();
        assert_eq!(usize::try_from(size), Ok(members), "both were always changed together");
        println!("at it inside {token}");
        if wait {
            orders.wait("inside", token, element).await;
        }
        tokio::time::sleep(WORK).await;
        txn.update(&key("set"), Update::set_add([element.to_owned()])).await?;
        txn.update(&key("size"), Update::counter(1)).await?;
        txn.commit().await
    };
    match add.await {
        Ok(_) => println!("inside {element}"),
        Err(CommitError::NotCommitted(_)) => println!("nothing {element}"),
        Err(_) => println!("inside? {element}"),
    }
}

async fn add_outside(client: &Client, outside: &mut Outside, orders: &mut Orders, element: &str) {
    let wait = orders.says_wait("outside");
    let request = AcquireRequest::exclusive(lock("set/outside")).wait(Wait::AtMost(Duration::from_secs(5)));
    let Ok(guard) = client.acquire(request).await else { return };
    let token = guard.token().0;
    let Some(before) = outside.ask(&format!("read {token}")) else { return };
    println!("at it outside {token}");
    if wait {
        orders.wait("outside", token, element).await;
    }
    tokio::time::sleep(WORK).await;
    // Does not check if the lock was lost meanwhile: the resource is to detect that.
    match outside.ask(&format!("write {token} {before} {element}")) {
        Some(_) => println!("outside {element}"),
        None => println!("stale {element}"),
    }
    // It may have been lost.
    let _ = guard.release().await;
}

/// The process of a client, and the pipe for its orders.
struct Adder {
    process: Running,
    orders: ChildStdin,
}

impl Adder {
    fn start(wan: &Wan, dc: u8, n: u8, resource: SocketAddr) -> Adder {
        let mut command = Command::new(std::env::current_exe().expect("this is a program"));
        command
            // With one thread, as on one core, the first line would begin with the name of the test.
            .args(["pauses::client_process", "--exact", "--ignored", "--nocapture", "--test-threads=2"])
            .env("CLIENT_SERVER", wan.cluster.endpoint(dc))
            .env("CLIENT_TLS", wan.cluster.tls())
            .env("CLIENT_RESOURCE", resource.to_string())
            .env("CLIENT_NAME", format!("dc{dc}.{n}"))
            .stdin(Stdio::piped());
        let mut process = Running::start(&mut command, Output::Stdout);
        let orders = process.stdin();
        Adder { process, orders }
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the client lives");
    }

    /// Waits until it works there with a token above that one.
    fn gets_on(&mut self, kind: &str, token: u64) {
        let at_it = format!("at it {kind} ");
        loop {
            let line = self.process.line(&at_it);
            let got: u64 = line[at_it.len()..].parse().expect("its token is a number");
            self.process.seen.push(line);
            if got > token {
                return;
            }
        }
    }
}

/// Adds the output of all clients so far.
fn said(clients: &mut [Adder], all: &mut BTreeSet<String>) {
    all.extend(clients.iter_mut().flat_map(|client| client.process.drain()));
}

fn elements<'a>(said: &'a BTreeSet<String>, kind: &str) -> BTreeSet<&'a str> {
    said.iter().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')).collect()
}

/// Stops a client while it works on one of the sets, until its lease is over and another client has continued
/// there. Its addition has no effect. Returns its element.
fn pause_client(wan: &mut Wan, clients: &mut [Adder], n: usize, kind: &str) -> String {
    // Earlier ends of leases are logged by now.
    wan.await_whole();
    clients[n].tell(kind);
    let waits = clients[n].process.line(&format!("waits {kind} "));
    clients[n].process.stop();
    let [_, _, token, element] = waits.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{waits:?} has four words")
    };
    let dc = (n / usize::from(CLIENTS_PER_DC)) as u8;
    wan.cluster.server(dc).line("lease expired");
    // That line may be about the other client of this datacenter. This is certain: no other client has the
    // lock before the lease is over.
    clients[(n + 1) % clients.len()].gets_on(kind, token.parse().expect("its token is a number"));
    clients[n].process.signal(Signal::CONT);
    clients[n].tell("go on");
    let outcome = clients[n].process.line(&format!(" {element}"));
    let outcomes = if kind == "inside" { &["nothing", "inside?"][..] } else { &["stale"] };
    assert!(outcomes.iter().any(|word| outcome == format!("{word} {element}")), "it is too late: {outcome}");
    clients[n].process.seen.push(outcome);
    element.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_addition_is_lost_or_doubled_whoever_is_paused() {
    let _alone = crate::alone().await;
    let mut dice = Dice::from_environment();
    let (mut wan, viewers) = servers(DCS).quick().with(HOLD).relayed().serving().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let (address, resource) =
        (listener.local_addr().expect("it is bound"), Arc::<Mutex<Resource>>::default());
    let shared = Arc::clone(&resource);
    thread::spawn(move || Resource::serve(listener, shared));
    let places = (0..DCS).flat_map(|dc| (0..CLIENTS_PER_DC).map(move |n| (dc, n)));
    let mut clients: Vec<Adder> = places.map(|(dc, n)| Adder::start(&wan, dc, n, address)).collect();
    let (mut lines, mut late) = (BTreeSet::new(), [Vec::new(), Vec::new()]);
    for turn in 0..PAUSES {
        let (dc, n) = (dice.roll(DCS.into()) as u8, dice.roll(clients.len()));
        match turn % 3 {
            kind @ (0 | 1) => {
                late[kind].push(pause_client(&mut wan, &mut clients, n, ["inside", "outside"][kind]));
            }
            _ => wan.pause(dc),
        }
        said(&mut clients, &mut lines);
    }
    for (kind, n) in [("inside", 0), ("outside", 1)] {
        while elements(&lines, kind).len() < MIN_ADDED {
            lines.insert(clients[n].process.line(&format!("{kind} ")));
        }
    }
    for Adder { process, .. } in &mut clients {
        process.line("at it");
        process.signal(Signal::KILL);
        process.wait();
        lines.extend(process.drain());
        lines.extend(process.rest());
    }

    let (inside, unknown) = (elements(&lines, "inside"), elements(&lines, "inside?"));
    let stale = elements(&lines, "stale");
    let shown = shown_inside(&viewers).await;
    let lost: Vec<_> = inside.iter().filter(|element| !shown.contains(**element)).collect();
    assert!(lost.is_empty(), "{lost:?} were committed and are not there: {shown:?}");
    // A killed client could not report the outcome of its last addition.
    let more = shown.len() - inside.len();
    assert!(more <= unknown.len() + clients.len(), "{more} more than were committed, {unknown:?} unknown");
    let resource = resource.lock().expect("nobody panics with it");
    let kept: Vec<&str> = resource.text.split_whitespace().collect();
    let distinct: BTreeSet<&str> = kept.iter().copied().collect();
    assert_eq!(distinct.len(), kept.len(), "something is there twice: {kept:?}");
    let outside = elements(&lines, "outside");
    let lost: Vec<_> = outside.difference(&distinct).collect();
    assert!(lost.is_empty(), "{lost:?} were written and are not there: {kept:?}");
    assert!(stale.is_disjoint(&distinct), "what was refused is not there");
    let [late_inside, late_outside] = late;
    assert!(!late_inside.iter().any(|element| shown.contains(element)), "{late_inside:?} came too late");
    assert!(late_outside.iter().all(|element| stale.contains(&**element)), "{late_outside:?} came too late");
    assert!(
        resource.refused >= late_outside.len() as u64 && !late_outside.is_empty(),
        "who was late is refused"
    );
    println!("{} inside, {} outside, {} refused", inside.len(), outside.len(), resource.refused);
    assert!(inside.len() >= MIN_ADDED && outside.len() >= MIN_ADDED, "{inside:?} {outside:?}");
}

/// Returns the set in the store, when all datacenters show the same.
async fn shown_inside(viewers: &[Client]) -> BTreeSet<String> {
    let keys = [key("set"), key("size")];
    let latest = viewers[0].read_many(&keys, &AtLeast::default()).await.expect("it serves");
    let values =
        crate::fixture::history::shown_by_all(viewers, &keys, &patient(&latest.snapshot).snapshot).await;
    let Some(Reading::Set(_, members)) = values[0].reading() else { panic!("{:?} is a set", values[0]) };
    assert_eq!(values[1].counter().map(|size| size as usize), Ok(members.len()), "each is counted once");
    members.iter().map(|member| String::from_utf8(member.to_vec()).expect("it is text")).collect()
}
