//! The queue of outputs from the server to the one reader of a session.
//!
//! A channel would wake its reader at each answer, and the reader would take answers one by one. Instead, the
//! server fills the outboxes for a whole batch of inputs and then wakes each reader once; a reader takes
//! everything by swapping two queues, so the steady state allocates nothing.
//!
//! An outbox is bounded in bytes (approximately). A reader that does not keep up is disconnected; other
//! sessions are not affected.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::causal_log::Change;
use crate::replica::call::store::{SharedValue, TxnRefusal};
use crate::replica::call::{LockDescription, Refusal, Reply};
use crate::replica::force_release::ForceReleased;
use crate::replica::{Decision, Notice};
use geolock_api::names::MAX_DCS;

/// An output for a session.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// The answer to the call with this tag.
    Reply { tag: u64, reply: Reply },
    /// A notice without a call.
    Notice(Notice),
    /// Sent without a call: acquires are refused from now on, and the server stops after at most `timeout`.
    Draining { timeout: Duration },
}

/// The reason why no more outputs follow for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    #[error("the client does not read its answers")]
    SlowReader,
    #[error("the server has stopped")]
    Stopped,
}

/// Bytes that one client has in transit, over all its sessions and calls.
#[derive(Debug)]
pub struct ByteCount {
    used: AtomicUsize,
    most: usize,
}

impl ByteCount {
    pub fn new(most: usize) -> ByteCount {
        ByteCount { used: AtomicUsize::new(0), most }
    }

    /// Adds bytes. Returns true if they are within the limit; they are counted in either case.
    pub fn add(&self, bytes: usize) -> bool {
        self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= self.most
    }

    pub fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.most
    }

    pub fn most(&self) -> usize {
        self.most
    }
}

/// The outbox of one session: the reader's side, and the state that both sides share.
pub(super) struct Outbox {
    capacity: usize,
    /// The counter of the client, for bytes beyond [`FREE`].
    bytes: Arc<ByteCount>,
    shared: Mutex<Shared>,
}

struct Shared {
    /// Acknowledged renewals. They overtake other outputs: a client that waits for one behind many other
    /// answers loses its lease.
    renewed: VecDeque<Output>,
    queue: VecDeque<Output>,
    weight: usize,
    /// Bytes counted for the client: of outputs that are queued, and of outputs that the reader has taken and
    /// not delivered.
    queued: usize,
    taken: usize,
    end: Option<End>,
    reader: Option<Waker>,
}

/// The server's side of an outbox. Dropping it ends the outbox, so the reader always learns of the end.
pub(super) struct Feed(Arc<Outbox>);

impl Feed {
    pub(super) fn new(outbox: &Arc<Outbox>) -> Feed {
        Feed(Arc::clone(outbox))
    }

    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.0
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.end(End::Stopped);
    }
}

/// Bytes that each session may have queued independent of its client's other sessions: enough for answers of
/// every usual size.
const FREE: usize = 64 << 10;

/// The outbox was full: it has ended, and its content is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Outbox {
    /// Creates an outbox of about `capacity` bytes; bytes beyond [`FREE`] also count in `bytes`.
    pub(super) fn new(capacity: usize, bytes: Arc<ByteCount>) -> Outbox {
        let (renewed, queue) = (VecDeque::new(), VecDeque::new());
        let shared = Shared { renewed, queue, weight: 0, queued: 0, taken: 0, end: None, reader: None };
        Outbox { capacity, bytes, shared: Mutex::new(shared) }
    }

    /// Queues an output; [`Outbox::wake`] wakes the reader. Returns true if the reader may be waiting for it:
    /// it is the first output, or the first renewal, for which a reader waits even while other outputs are
    /// queued.
    pub(super) fn push(&self, output: Output) -> Result<bool, Full> {
        let mut shared = self.lock();
        if shared.end.is_some() {
            return Ok(false);
        }
        shared.weight += output.weight();
        let more = shared.weight.saturating_sub(FREE + shared.queued);
        shared.queued += more;
        let fits = more == 0 || self.bytes.add(more);
        if shared.weight > self.capacity || !fits {
            // The reader gets the reason instead of the outputs that it did not read.
            (shared.renewed, shared.queue) = (VecDeque::new(), VecDeque::new());
            shared.end = Some(End::SlowReader);
            return Err(Full);
        }
        Ok(match output {
            Output::Reply { reply: Reply::Renewed { .. }, .. } => {
                shared.renewed.push_back(output);
                shared.renewed.len() == 1
            }
            output => {
                shared.queue.push_back(output);
                shared.renewed.len() + shared.queue.len() == 1
            }
        })
    }

    /// Wakes the reader if it waits.
    pub(super) fn wake(&self) {
        let reader = self.lock().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Removes the waker of the reader, which is about to poll and needs no wake-up for outputs queued before
    /// that.
    pub(super) fn forget_reader(&self) {
        self.lock().reader = None;
    }

    /// Ends the outbox after the outputs in it. The first reason counts.
    fn end(&self, end: End) {
        self.lock().end.get_or_insert(end);
        self.wake();
    }

    /// Waits for an acknowledged renewal only, while the client does not read other outputs.
    pub(super) fn poll_renewed(&self, cx: &mut Context<'_>) -> Poll<Output> {
        let mut shared = self.lock();
        if let Some(output) = shared.renewed.pop_front() {
            shared.weight = shared.weight.saturating_sub(output.weight());
            return Poll::Ready(output);
        }
        shared.wait(cx);
        Poll::Pending
    }

    /// Moves all outputs into `taken`, which is empty.
    pub(super) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        taken: &mut VecDeque<Output>,
    ) -> Poll<Result<(), End>> {
        debug_assert!(taken.is_empty(), "a reader looks for more when it has none");
        let mut shared = self.lock();
        // The outputs taken before have been delivered now.
        self.bytes.sub(mem::take(&mut shared.taken));
        if !shared.queue.is_empty() || !shared.renewed.is_empty() {
            mem::swap(&mut shared.queue, taken);
            while let Some(renewed) = shared.renewed.pop_back() {
                taken.push_front(renewed);
            }
            shared.weight = 0;
            shared.taken = mem::take(&mut shared.queued);
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = shared.end {
            return Poll::Ready(Err(end));
        }
        shared.wait(cx);
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nothing panics while it holds an outbox")
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let shared = self.lock();
        self.bytes.sub(shared.queued + shared.taken);
    }
}

impl Shared {
    /// Registers the task to be woken when there is an output.
    fn wait(&mut self, cx: &Context<'_>) {
        match &mut self.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

impl Output {
    /// Returns about how many bytes this output takes, in memory and on the wire.
    fn weight(&self) -> usize {
        const BASE: usize = 160;
        match self {
            Output::Reply {
                reply: Reply::Refused(Refusal::TimedOut(locks) | Refusal::NotEnoughInTime { locks, .. }),
                ..
            } => BASE + locks.iter().map(LockDescription::weight).sum::<usize>(),
            Output::Reply { reply: Reply::Reclaimed { kept, lost }, .. } => {
                BASE + 16 * (kept.len() + lost.len())
            }
            Output::Reply { reply: Reply::Stepped(stepped), .. } => {
                BASE + stepped.values.iter().flatten().map(SharedValue::weight).sum::<usize>()
            }
            Output::Notice(Notice::Changed(changed)) => {
                BASE + changed.changes.iter().map(Change::weight).sum::<usize>()
            }
            Output::Notice(Notice::Lock(news)) => BASE + news.event.weight(),
            Output::Notice(Notice::ForceReleased(forced))
            | Output::Reply { reply: Reply::Refused(Refusal::ForceReleased(forced)), .. }
            | Output::Reply {
                reply: Reply::Refused(Refusal::Transaction(TxnRefusal::ForceReleased { forced, .. })),
                ..
            } => BASE + forced.weight(),
            Output::Reply { reply: Reply::Audited(rows), .. } => {
                BASE + rows.iter().map(|forced| forced.weight()).sum::<usize>()
            }
            Output::Reply { reply: Reply::Decisions(rows), .. } => {
                BASE + rows.iter().map(Decision::weight).sum::<usize>()
            }
            Output::Notice(Notice::Progress { .. } | Notice::WatchEnded { .. })
            | Output::Reply { reply: Reply::Watching { .. }, .. } => BASE + 8 * MAX_DCS,
            _ => BASE,
        }
    }
}

impl LockDescription {
    /// Returns about how many bytes this description takes, in memory and on the wire.
    pub(crate) fn weight(&self) -> usize {
        let holders: usize = self.holders.iter().map(|holder| 80 + holder.label.len()).sum();
        let label = |label: &Option<_>| label.as_ref().map_or(0, |label: &Arc<str>| label.len());
        let waiters: usize = self.waiters.iter().map(|waiter| 80 + label(&waiter.label)).sum();
        64 + self.lock.as_bytes().len() + 8 * self.owners.len() + holders + waiters
    }
}

impl ForceReleased {
    /// Returns about how many bytes this takes, in memory and on the wire.
    fn weight(&self) -> usize {
        let texts = self.operator.len() + self.reason.as_str().len() + self.label.len();
        128 + self.lock.as_bytes().len() + texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plenty() -> Arc<ByteCount> {
        Arc::new(ByteCount::new(usize::MAX))
    }
    use crate::replica::call::store::{Durable, Stepped, TxnState};
    use geolock_api::names::{DcId, FencingToken, ForceReason, LeaseId, LockName, Mode, RequestId};
    use geolock_api::value::Op;

    fn released(tag: u64) -> Output {
        Output::Reply { tag, reply: Reply::Released }
    }

    fn take(outbox: &Outbox) -> Poll<Result<VecDeque<Output>, End>> {
        let mut taken = VecDeque::new();
        outbox.poll_take(&mut Context::from_waker(Waker::noop()), &mut taken).map_ok(|()| taken)
    }

    #[test]
    fn a_reader_takes_all_there_is_in_order() {
        let outbox = Outbox::new(1 << 20, plenty());
        assert_eq!(take(&outbox), Poll::Pending);
        assert_eq!((outbox.push(released(1)), outbox.push(released(2))), (Ok(true), Ok(false)));
        assert_eq!(take(&outbox), Poll::Ready(Ok(VecDeque::from([released(1), released(2)]))));
        assert_eq!(take(&outbox), Poll::Pending);
    }

    #[test]
    fn a_renewal_goes_before_what_was_answered_earlier() {
        let outbox = Outbox::new(1 << 20, plenty());
        let renewed = |tag| Output::Reply { tag, reply: Reply::Renewed { ttl: Duration::from_secs(9) } };
        for output in [released(1), renewed(2), released(3), renewed(4), renewed(5)] {
            outbox.push(output).expect("there is room");
        }
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(outbox.poll_renewed(&mut cx), Poll::Ready(renewed(2)));
        let all = [renewed(4), renewed(5), released(1), released(3)];
        assert_eq!(take(&outbox), Poll::Ready(Ok(VecDeque::from(all))));
        assert_eq!(outbox.poll_renewed(&mut cx), Poll::Pending);
    }

    #[test]
    fn a_renewal_wakes_its_reader_although_others_wait() {
        let outbox = Outbox::new(1 << 20, plenty());
        let renewed = |tag| Output::Reply { tag, reply: Reply::Renewed { ttl: Duration::from_secs(9) } };
        let pushed = [released(1), released(2), renewed(3), renewed(4)].map(|output| outbox.push(output));
        assert_eq!(pushed, [Ok(true), Ok(false), Ok(true), Ok(false)]);
    }

    #[test]
    fn an_end_comes_after_what_was_queued() {
        let outbox = Arc::new(Outbox::new(1 << 20, plenty()));
        let feed = Feed::new(&outbox);
        assert_eq!(outbox.push(released(1)), Ok(true));
        drop(feed);
        assert_eq!(outbox.push(released(2)), Ok(false), "too late, and no harm");
        assert_eq!(take(&outbox), Poll::Ready(Ok(VecDeque::from([released(1)]))));
        assert_eq!(take(&outbox), Poll::Ready(Err(End::Stopped)));
    }

    #[test]
    fn a_reader_that_does_not_read_is_cut_off() {
        let outbox = Outbox::new(1000, plenty());
        let pushed = (0..).take_while(|tag| outbox.push(released(*tag)).is_ok()).count();
        assert!((1..=10).contains(&pushed), "{pushed} answers fit 1000 bytes");
        assert_eq!(take(&outbox), Poll::Ready(Err(End::SlowReader)));
    }

    #[test]
    fn what_was_read_counts() {
        let stepped = Stepped {
            snapshot: Arc::default(),
            token: None,
            values: vec![None, Some(SharedValue::written(Op::LwwRegister(vec![0; 1_000].into())))],
            state: TxnState::Open,
            durable: Durable::Here,
        };
        let outbox = Outbox::new(1000, plenty());
        let reply = Reply::Stepped(Box::new(stepped));
        assert!(outbox.push(Output::Reply { tag: 1, reply }).is_err());
    }

    #[test]
    fn what_names_a_long_lock_counts() {
        let forced = Arc::new(ForceReleased {
            number: 1,
            at_ms: 0,
            operator: Arc::from("ann"),
            reason: ForceReason::new("it hangs").expect("it says something"),
            lock: LockName::try_from(&*"x".repeat(1_000)).expect("it is not too long"),
            mode: Mode::Exclusive,
            lease: LeaseId::new(DcId::new(0).expect("a small id"), 1),
            request: RequestId { dc: DcId::new(0).expect("a small id"), n: 2 },
            token: FencingToken(1),
            label: Arc::default(),
            locks: 1,
        });
        for output in [
            Output::Notice(Notice::ForceReleased(forced.clone())),
            Output::Reply { tag: 1, reply: Reply::Refused(Refusal::ForceReleased(forced.clone())) },
            Output::Reply { tag: 1, reply: Reply::Audited(vec![forced]) },
        ] {
            assert!(Outbox::new(1000, plenty()).push(output).is_err());
        }
    }

    #[test]
    fn room_comes_back_when_the_reader_reads() {
        let outbox = Outbox::new(1000, plenty());
        for tag in 0..1000 {
            assert_eq!(outbox.push(released(tag)), Ok(true));
            assert!(take(&outbox).is_ready());
        }
    }
}
