//! The inputs of clients, and the order in which they are handled.
//!
//! While the disk keeps up, inputs are handled in the order of arrival. While the disk is behind, calls that
//! would be written are *held back*; renewals, releases, cancels and reads overtake them, so that heavy
//! writes of some clients cost no other client its lease. When the disk has been behind for so long that the
//! server is overloaded, calls that begin something new are passed to the machine all the same: it refuses
//! them with a time to retry, and writes nothing.
//!
//! Calls of one session stay in order: a release does not overtake the commit before it. Two kinds of calls
//! are exceptions: renewals and similar calls, which have no effect on other calls, and calls that are
//! refused.
//!
//! The number of inputs has no bound here: `budget.rs` bounds the bytes of calls before they arrive, and a
//! closed session counts as open until its inputs here are handled.

use std::collections::VecDeque;
use std::mem;
use std::pin::pin;
use std::task::{Context, Waker};

use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::task::unconstrained;

use super::budget::Budget;
use super::combiner::Backlog;
use super::handle::Input;
use crate::causal_log::Wants;
use crate::replica::call::store::reads_weight;
use crate::replica::call::{Call, SessionId};

/// Most calls in a batch: about 100 us of work.
const BATCH: usize = 256;

/// Tells if the disk writes records as fast as they arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DiskPace {
    KeepsUp,
    Behind,
    /// The disk is behind and the server overloaded: the machine refuses new work.
    BehindForLong,
}

/// The queue of inputs, and those that are held back.
pub(super) struct Mailbox {
    inputs: mpsc::Receiver<Input>,
    bytes: Budget,
    held_back: HeldBack,
    /// The buffer of a batch, reused.
    buffer: Vec<Input>,
}

/// Inputs that are handled together.
pub(super) struct Batch {
    pub inputs: Vec<Input>,
    backlog: Backlog,
}

impl Mailbox {
    /// `bytes` is the budget from which the bytes of the inputs are taken.
    pub(super) fn new(inputs: mpsc::Receiver<Input>, bytes: Budget) -> Mailbox {
        Mailbox { inputs, bytes, held_back: HeldBack::default(), buffer: Vec::new() }
    }

    /// Returns the inputs to be handled now, about a batch at most. Never blocks: a thread that puts an input
    /// in notifies afterwards.
    pub(super) fn take(&mut self, disk: DiskPace) -> Batch {
        let mut inputs = mem::take(&mut self.buffer);
        {
            // Ignores the cooperative budget of the task that happens to run this.
            let taking = unconstrained(self.inputs.recv_many(&mut inputs, BATCH));
            let _ready_or_empty = pin!(taking).poll(&mut Context::from_waker(Waker::noop()));
        }
        let mut backlog = if inputs.len() < BATCH { Backlog::Empty } else { Backlog::Possible };
        if disk != DiskPace::KeepsUp || !self.held_back.is_empty() {
            self.held_back.sift(&mut inputs, disk);
            if self.held_back.let_go(&mut inputs, disk) {
                backlog = Backlog::Possible;
            }
        }
        Batch { inputs, backlog }
    }

    /// Returns the buffer of a batch for reuse, and tells if there may be more inputs.
    pub(super) fn put_back(&mut self, batch: Batch) -> Backlog {
        self.buffer = batch.inputs;
        batch.backlog
    }

    /// Returns about how many bytes the calls in the mailbox take, without the first ones of each session.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.used()
    }

    /// Closes the mailbox. Callers of dropped inputs get the error that the server has stopped.
    pub(super) fn close(&mut self) {
        self.inputs.close();
        while self.inputs.try_recv().is_ok() {}
        self.held_back = HeldBack::default();
    }
}

/// Inputs that wait for the disk, numbered in order of arrival.
#[derive(Default)]
struct HeldBack {
    /// Inputs that an overloaded machine refuses.
    new: VecDeque<(u64, Input)>,
    rest: VecDeque<(u64, Input)>,
    last: u64,
    /// The number of held-back inputs of each session.
    sessions: FxHashMap<SessionId, usize>,
}

impl HeldBack {
    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.rest.is_empty()
    }

    /// Moves the inputs that have to wait out of `inputs`.
    fn sift(&mut self, inputs: &mut Vec<Input>, disk: DiskPace) {
        let HeldBack { new, rest, last, sessions } = self;
        let held = inputs.extract_if(.., |input| {
            let holds = must_wait(input, disk, sessions);
            if let (true, Some(session)) = (holds, session(input)) {
                *sessions.entry(session).or_default() += 1;
            }
            holds
        });
        for input in held {
            *last += 1;
            let queue = if call(&input).is_some_and(is_new) { &mut *new } else { &mut *rest };
            queue.push_back((*last, input));
        }
    }

    /// Moves inputs that need not wait any longer into `inputs`, at most a batch. Returns true if there may
    /// be more of them.
    fn let_go(&mut self, inputs: &mut Vec<Input>, disk: DiskPace) -> bool {
        for _ in 0..BATCH {
            let Some(input) = self.next(disk) else { return false };
            if let Some(session) = session(&input)
                && let Some(count) = self.sessions.get_mut(&session)
            {
                *count -= 1;
                if *count == 0 {
                    self.sessions.remove(&session);
                }
            }
            inputs.push(input);
        }
        true
    }

    fn next(&mut self, disk: DiskPace) -> Option<Input> {
        let number = |queue: &VecDeque<(u64, Input)>| queue.front().map_or(u64::MAX, |(number, _)| *number);
        let queue = match disk {
            DiskPace::Behind => return None,
            DiskPace::BehindForLong => &mut self.new,
            DiskPace::KeepsUp if number(&self.new) < number(&self.rest) => &mut self.new,
            DiskPace::KeepsUp => &mut self.rest,
        };
        queue.pop_front().map(|(_, input)| input)
    }
}

fn must_wait(input: &Input, disk: DiskPace, held_back: &FxHashMap<SessionId, usize>) -> bool {
    let is_behind_own = || session(input).is_some_and(|session| held_back.contains_key(&session));
    match input {
        Input::Open { .. } | Input::AccessRules(_) => false,
        Input::Close { .. } => is_behind_own(),
        // A probe measures how long calls wait, so it waits like one.
        Input::Probe => true,
        Input::Call { call, .. } | Input::Unary { call, .. } => match disk {
            _ if overtakes(call) => false,
            DiskPace::BehindForLong if is_new(call) => false,
            DiskPace::KeepsUp => is_behind_own(),
            DiskPace::Behind | DiskPace::BehindForLong => is_written(call) || is_behind_own(),
        },
    }
}

fn session(input: &Input) -> Option<SessionId> {
    match input {
        Input::Open { session, .. } | Input::Call { session, .. } | Input::Close { session, .. } => {
            Some(*session)
        }
        Input::Unary { .. } | Input::AccessRules(_) | Input::Probe => None,
    }
}

fn call(input: &Input) -> Option<&Call> {
    match input {
        Input::Call { call, .. } | Input::Unary { call, .. } => Some(call),
        Input::Open { .. } | Input::Close { .. } | Input::AccessRules(_) | Input::Probe => None,
    }
}

/// Returns true if the call may overtake other calls of its own session, because it has no effect on them. A
/// lease is attached before it is renewed, so attaching overtakes, too.
fn overtakes(call: &Call) -> bool {
    matches!(call, Call::KeepAlive { .. } | Call::AttachLease { .. } | Call::WatchTaken { .. } | Call::Status)
}

/// Returns true if an overloaded machine refuses the call, unless it was begun before.
fn is_new(call: &Call) -> bool {
    matches!(
        call,
        Call::OpenLease { .. } | Call::Acquire(_) | Call::AcquireEnough(_) | Call::Begin(_) | Call::Watch(_)
    )
}

/// Returns true if the disk has to write something for the call that can wait.
fn is_written(call: &Call) -> bool {
    is_new(call) || matches!(call, Call::Step(_) | Call::Reclaim { .. })
}

/// Bytes that a call that is never held back may take without being counted: more than a name and a reason.
const SMALL: usize = 4 << 10;

/// As [`weight`], for a call outside sessions, which is not held back behind earlier calls.
pub(super) fn weight_alone(call: &Call) -> Option<usize> {
    weight(call).filter(|bytes| is_written(call) || *bytes > SMALL)
}

/// Returns about how many bytes a call takes while it waits; `None` if it is never held back.
pub(super) fn weight(call: &Call) -> Option<usize> {
    let names =
        |wants: &Wants| wants.locks().iter().map(|(name, _)| 32 + name.as_bytes().len()).sum::<usize>();
    let heap = match call {
        _ if overtakes(call) => return None,
        Call::Acquire(acquire) => names(&acquire.request.wants) + acquire.request.label.len(),
        Call::AcquireEnough(acquire) => acquire.weight() + acquire.label.len(),
        Call::Amend(amend) => amend.weight(),
        Call::Begin(begin) => {
            let locks = begin.locks.as_ref();
            begin.step.weight() + locks.map_or(0, |locks| names(&locks.wants) + locks.label.len())
        }
        Call::Step(next_step) => next_step.step.weight(),
        Call::Read(look) => reads_weight(&look.reads),
        Call::Reclaim { held, .. } => {
            held.iter().map(|held| 64 + names(&held.wants) + held.label.len()).sum()
        }
        // All other calls carry a name or two at most.
        _ => 0,
    };
    Some(mem::size_of::<Input>() + heap)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::leases::OnDisconnect;
    use crate::lock_server::fakes::dc;
    use crate::lock_server::handle::Kept;
    use crate::replica::call::{ClientId, Proof, Target};
    use geolock_api::names::{LeaseId, Secret};

    fn input(session: u64, tag: u64, call: Call) -> Input {
        let client = ClientId::UNKNOWN;
        Input::Call { session: SessionId(session), tag, client, call, _charge: None }
    }

    fn renew() -> Call {
        Call::KeepAlive { lease: LeaseId::new(dc(0), 1), proof: Proof::Attached }
    }

    fn release() -> Call {
        Call::Release { lease: LeaseId::new(dc(0), 1), proof: Proof::Attached, target: Target::Key(1) }
    }

    fn open() -> Call {
        let ttl = Duration::from_secs(10);
        Call::OpenLease { secret: Secret::new([7; 16]), ttl: Some(ttl), on_disconnect: OnDisconnect::Keep }
    }

    fn reclaim() -> Call {
        Call::Reclaim { lease: LeaseId::new(dc(0), 1), proof: Proof::Attached, held: vec![] }
    }

    fn tags(mailbox: &mut Mailbox, disk: DiskPace) -> Vec<u64> {
        let batch = mailbox.take(disk);
        let tag = |input: &Input| match input {
            Input::Call { tag, .. } => *tag,
            _ => 0,
        };
        let tags = batch.inputs.iter().map(tag).collect();
        mailbox.put_back(Batch { inputs: Vec::new(), ..batch });
        tags
    }

    #[test]
    fn a_lease_is_attached_before_it_is_renewed() {
        let (put, inputs) = mpsc::channel(64);
        let mut mailbox = Mailbox::new(inputs, Budget::new(1 << 20));
        let attach = Call::AttachLease { lease: LeaseId::new(dc(0), 1), secret: Secret::new([7; 16]) };
        for (tag, call) in [(1, reclaim()), (2, attach), (3, renew()), (4, release())] {
            put.try_send(input(1, tag, call)).expect("there is room");
        }
        assert_eq!(tags(&mut mailbox, DiskPace::Behind), [2, 3]);
        assert_eq!(tags(&mut mailbox, DiskPace::KeepsUp), [1, 4]);
    }

    #[test]
    fn behind_a_slow_disk_everybody_renews_and_nobody_overtakes_himself() {
        let (put, inputs) = mpsc::channel(64);
        let mut mailbox = Mailbox::new(inputs, Budget::new(1 << 20));
        for (session, tag, call) in
            [(1, 1, reclaim()), (1, 2, release()), (1, 3, renew()), (2, 4, release()), (2, 5, open())]
        {
            put.try_send(input(session, tag, call)).expect("there is room");
        }
        put.try_send(Input::Close { session: SessionId(1), _kept: Kept::nothing() }).expect("there is room");
        assert_eq!(tags(&mut mailbox, DiskPace::Behind), [3, 4]);
        // New work is refused once the disk is behind for long.
        assert_eq!(tags(&mut mailbox, DiskPace::BehindForLong), [5]);
        put.try_send(input(2, 6, open())).expect("there is room");
        put.try_send(input(1, 7, release())).expect("there is room");
        assert_eq!(tags(&mut mailbox, DiskPace::BehindForLong), [6]);
        assert_eq!(tags(&mut mailbox, DiskPace::KeepsUp), [1, 2, 0, 7]);
        assert!(mailbox.held_back.is_empty() && mailbox.held_back.sessions.is_empty());
    }
}
