//! Stories about an overloaded datacenter.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc};
use super::store_cluster::{add, counted, step};
use crate::base::capacity::Load;
use crate::leases::{OnDisconnect, Proof};
use crate::replica::Event;
use crate::replica::call::store::Then;
use crate::replica::call::watch::{Pattern, Subject, Watch};
use crate::replica::call::{Call, Limit, Refusal, Reply, Target, Wait};
use geolock_api::names::{LeaseId, Mode};

impl Cluster {
    fn load(&mut self, id: u8, load: Load) {
        self.handle(id, Event::Load { load });
    }

    fn new_lease(&mut self) -> u64 {
        let ttl = Duration::from_secs(10);
        self.call(0, Call::OpenLease { secret: SECRET, ttl: Some(ttl), on_disconnect: OnDisconnect::Keep })
    }

    fn new_watch(&mut self) -> u64 {
        let pattern = Pattern::locks(b"a").expect("it is one");
        self.call(0, Call::Watch(Watch { subject: Subject::Locks, patterns: vec![pattern], from: None }))
    }

    /// Asserts that a call was refused because of overload; returns the delay before a retry.
    fn shed(&self, tag: u64) -> Duration {
        match self.refused(0, tag) {
            Refusal::ResourceExhausted { limit: Limit::Load, retry_after } => retry_after,
            other => panic!("call {tag} is refused because of {other:?}"),
        }
    }
}

#[test]
fn who_is_overloaded_takes_on_nothing_new_and_goes_on_with_the_rest() {
    let mut c = Cluster::new(1, 0, 0);
    let (held, given_up) = (c.lock(0, "held"), c.lock(0, "given up"));
    let (held, given_up) = (c.granted(0, held), c.granted(0, given_up));
    let (waits, cancelled) =
        (c.lock(0, "held"), c.acquire_as(0, Some(50), &[("held", Mode::Shared)], Wait::Forever));
    let open = c.begin(0, 51, Some("with data"), step(vec![add("n", 1)], &[], Then::Continue));
    c.run();
    c.stepped(0, open);
    c.load(0, Load::TooMuch);

    let refused = [
        c.lock(0, "free"),
        c.acquire(0, &[("free too", Mode::Shared)], Wait::Try),
        c.begin(0, 60, None, step(vec![], &["n"], Then::Commit)),
        c.begin(0, 61, Some("free"), step(vec![], &[], Then::Continue)),
        c.new_lease(),
        c.new_watch(),
    ];
    let times = refused.map(|tag| c.shed(tag));
    assert!(times.iter().all(|time| (500..=1_000).contains(&time.as_millis())), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[0] != pair[1]), "they do not come back together: {times:?}");
    let counts = c.inspect(0).counts();
    assert_eq!((counts.calls_shed, counts.refusals), (6, 6));
    assert_eq!(c.inspect(0).status().load, Load::TooMuch);

    let lease = c.lease(0);
    let proof = Proof::Attached;
    let tag = c.call(0, Call::KeepAlive { lease, proof });
    assert!(matches!(c.reply(0, tag), Some(Reply::Renewed { .. })));
    let tag = c.call(0, Call::AttachLease { lease, secret: SECRET });
    assert!(matches!(c.reply(0, tag), Some(Reply::LeaseAttached { .. })));
    let tag = c.call(0, Call::Cancel { lease, proof, target: Target::Key(50) });
    assert_eq!((c.reply(0, tag), c.refused(0, cancelled)), (Some(Reply::Released), Refusal::Cancelled));
    for request in [given_up.request, held.request] {
        let tag = c.release(0, request);
        assert_eq!(c.reply(0, tag), Some(Reply::Released));
    }
    c.granted(0, waits);
    let tag = c.next_step(0, 51, step(vec![], &[], Then::Commit));
    c.run();
    c.committed(0, tag);
    assert_eq!(c.reads(0, "n"), counted(1), "reading is not new work");

    c.load(0, Load::Fits);
    let tags = [c.lock(0, "free"), c.new_lease(), c.new_watch()];
    c.run();
    c.granted(0, tags[0]);
    assert!(matches!(c.reply(0, tags[1]), Some(Reply::LeaseOpened { .. })));
    assert!(matches!(c.reply(0, tags[2]), Some(Reply::Watching { .. })));
    assert_eq!(c.inspect(0).counts().calls_shed, 6);
}

/// The clients lost the replies. A refusal would tell them that nothing was done, which is wrong.
#[test]
fn what_was_begun_before_is_answered_again() {
    let mut c = Cluster::new(1, 0, 0);
    let locks = [("a", Mode::Exclusive)];
    let first = c.acquire_as(0, Some(1), &locks, Wait::Forever);
    let first = c.granted(0, first);
    let waits = c.acquire_as(0, Some(2), &locks, Wait::Forever);
    let commit = || step(vec![add("n", 1)], &[], Then::Commit);
    let committed = c.begin(0, 3, None, commit());
    c.run();
    let committed = c.committed(0, committed);
    c.load(0, Load::TooMuch);

    let again = c.acquire_as(0, Some(1), &locks, Wait::Forever);
    let again = c.granted(0, again);
    assert_eq!((again.request, again.token), (first.request, first.token));
    let again = c.acquire_as(0, Some(2), &locks, Wait::Forever);
    assert!(!c.is_answered(0, again), "it waits in its place");
    let told = c.begin(0, 3, None, commit());
    c.run();
    assert_eq!(c.committed(0, told), committed);
    c.release(0, first.request);
    c.granted(0, again);
    assert!(!c.is_answered(0, waits), "the last call of a key is answered");
    assert_eq!(c.reads(0, "n"), counted(1), "it was committed once");
    assert_eq!(c.inspect(0).counts().calls_shed, 0);
}

#[test]
fn a_call_that_is_wrong_is_told_so() {
    let mut c = Cluster::new(1, 0, 0);
    c.load(0, Load::TooMuch);
    let unknown = LeaseId::new(dc(0), 4_711);
    let tag = c.call(0, Call::KeepAlive { lease: unknown, proof: Proof::Secret(SECRET) });
    assert_eq!(c.refused(0, tag), Refusal::UnknownLease(unknown));
    let ttl = Duration::ZERO;
    let tag =
        c.call(0, Call::OpenLease { secret: SECRET, ttl: Some(ttl), on_disconnect: OnDisconnect::Keep });
    assert!(matches!(c.refused(0, tag), Refusal::TtlOutOfRange { .. }), "coming back would not help");
}
