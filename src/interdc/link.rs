//! One link: a connection that both sides agreed on, its lanes out and its lanes in.
//!
//! All of them run in one task and end together, with one reason: whichever comes first. Every lane is a
//! unidirectional stream: format, lane number, then frames.
//!
//! The peer is told the reason by a packet that waits, like all others, for room in the congestion window while there
//! is more to be sent (quinn 0.11). So on a path that is full it may not come, and the peer learns of the end from the
//! next connection, or from silence.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, RecvStream};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::config::QueueBound;
use super::error::{DownReason, FrameError};
use super::event::{Lane, LinkEvent, LinkId};
use super::frame::{Deframer, FORMAT};
use super::queue::LaneQueue;
use super::shared::Peer;

/// How long a side that shuts down, or sees the other do so, waits for what is still on its way.
pub(super) const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Pieces of a stream taken at once.
const CHUNKS: usize = 32;

pub(super) struct Link {
    pub id: LinkId,
    pub connection: Connection,
    lanes: [LaneQueue; Lane::COUNT],
    /// Set once, by whoever wants the link to end.
    ending: Mutex<Option<DownReason>>,
    ended: Notify,
}

impl Link {
    pub(super) fn new(id: LinkId, connection: Connection, bound: QueueBound) -> Link {
        let lanes = Lane::ALL.map(|_| LaneQueue::new(bound));
        Link { id, connection, lanes, ending: Mutex::default(), ended: Notify::new() }
    }

    pub(super) fn queue(&self, lane: Lane) -> &LaneQueue {
        &self.lanes[lane.index()]
    }

    /// Ends the link, unless it is ending already.
    pub(super) fn end(&self, reason: DownReason) {
        self.ending.lock().expect("nothing panics while it holds a reason").get_or_insert(reason);
        self.ended.notify_one();
    }

    /// Lets what is queued go out, and then the link end.
    pub(super) fn finish(&self) {
        Lane::ALL.into_iter().for_each(|lane| self.queue(lane).finish());
    }

    async fn wanted_end(&self) -> DownReason {
        loop {
            if let Some(reason) = self.ending.lock().expect("nothing panics while it holds a reason").clone()
            {
                return reason;
            }
            self.ended.notified().await;
        }
    }
}

/// A link at work, from the side of the task that runs it.
pub(super) struct Running<'a> {
    pub link: &'a Link,
    pub peer: &'a Peer,
    pub events: &'a mpsc::Sender<LinkEvent>,
    /// How long the other side may take to open its lanes.
    pub timeout: Duration,
    /// See [`Interdc::take_bulk`](super::Interdc::take_bulk).
    pub takes_bulk: watch::Receiver<bool>,
}

impl Running<'_> {
    /// Moves messages until the link ends, and says why it did. The connection is still open then.
    pub(super) async fn until_end(&self) -> DownReason {
        tokio::select! {
            reason = self.link.wanted_end() => reason,
            reason = self.send() => reason,
            reason = self.receive() => reason,
        }
    }

    async fn send(&self) -> DownReason {
        let sent = tokio::try_join!(
            self.send_lane(Lane::Urgent),
            self.send_lane(Lane::Bulk),
            self.send_lane(Lane::State)
        );
        match sent {
            // All are drained: the other side closes the connection once it has everything.
            Ok(_) => self.link.connection.closed().await.into(),
            Err(reason) => reason,
        }
    }

    async fn send_lane(&self, lane: Lane) -> Result<(), DownReason> {
        let queue = self.link.queue(lane);
        let mut stream = self.link.connection.open_uni().await?;
        // Fails for a closed stream only, and then the write below says so.
        let _ = stream.set_priority((Lane::COUNT - lane.index()) as i32);
        stream.write_all(&[FORMAT, lane.index() as u8]).await?;
        while let Some(mut batch) = queue.take().await {
            stream.write_all_chunks(&mut batch.chunks).await?;
            queue.release(&batch);
            self.peer.sent(lane, batch.messages, batch.bytes);
            self.report(LinkEvent::Flushed { peer: self.peer.id, lane, messages: batch.messages }).await?;
        }
        // A lane that the other side ended before is ended all the same.
        let _ = stream.finish();
        Ok(())
    }

    async fn receive(&self) -> DownReason {
        let one_ended = Notify::new();
        let (opened, lanes): (Vec<_>, Vec<_>) = Lane::ALL.into_iter().map(|_| oneshot::channel()).unzip();
        let Ok([urgent, bulk, state]) = <[_; Lane::COUNT]>::try_from(lanes) else {
            unreachable!("one for each lane")
        };
        let all = async {
            tokio::try_join!(
                self.accept_lanes(opened),
                self.receive_lane(Lane::Urgent, urgent, &one_ended),
                self.receive_lane(Lane::Bulk, bulk, &one_ended),
                self.receive_lane(Lane::State, state, &one_ended)
            )
        };
        // A side that shuts down ends all lanes; some without the others are no link, and not waited with for long.
        let too_long = async {
            one_ended.notified().await;
            sleep(DRAIN_TIME).await;
        };
        tokio::select! {
            ended = all => ended.err().unwrap_or(DownReason::Finished),
            () = too_long => DownReason::Finished,
        }
    }

    /// Each lane is read as soon as it comes: its beginning, too, waits for room on the way, after those before it.
    async fn accept_lanes(&self, opened: Vec<oneshot::Sender<RecvStream>>) -> Result<(), DownReason> {
        let mut opened: Vec<_> = opened.into_iter().map(Some).collect();
        let first = timeout(self.timeout, self.accept_lane(&mut opened)).await;
        first.map_err(|_| FrameError::NoLanes)??;
        while opened.iter().any(Option::is_some) {
            self.accept_lane(&mut opened).await?;
        }
        Ok(())
    }

    async fn accept_lane(
        &self,
        opened: &mut [Option<oneshot::Sender<RecvStream>>],
    ) -> Result<(), DownReason> {
        let mut stream = self.link.connection.accept_uni().await?;
        let [format, lane] = preamble(&mut stream).await?;
        if format != FORMAT {
            return Err(FrameError::Format { found: format, known: FORMAT }.into());
        }
        match opened.get_mut(usize::from(lane)).and_then(Option::take) {
            // Who reads it is there as long as this is.
            Some(reader) => drop(reader.send(stream)),
            None => return Err(FrameError::Lane(lane).into()),
        }
        Ok(())
    }

    /// Passes the frames of a lane on until it ends in good order. Waits for whoever reads the events; QUIC's flow
    /// control passes that on to the sender.
    async fn receive_lane(
        &self,
        lane: Lane,
        opened: oneshot::Receiver<RecvStream>,
        ended: &Notify,
    ) -> Result<(), DownReason> {
        // Without it there is another reason for the end.
        let Ok(mut stream) = opened.await else { return Ok(()) };
        let mut takes_bulk = self.takes_bulk.clone();
        let mut deframer = Deframer::default();
        let mut chunks = [const { Bytes::new() }; CHUNKS];
        while let Some(filled) = stream.read_chunks(&mut chunks).await? {
            for chunk in &mut chunks[..filled] {
                while let Some(bytes) = deframer.next(chunk)? {
                    self.peer.received(lane, bytes.len());
                    if lane != Lane::Urgent {
                        // Its sender lives as long as the links.
                        takes_bulk.wait_for(|takes| *takes).await.map_err(|_| DownReason::ShuttingDown)?;
                    }
                    self.report(LinkEvent::Received { peer: self.peer.id, lane, bytes }).await?;
                }
            }
        }
        deframer.finish()?;
        ended.notify_one();
        Ok(())
    }

    /// Without anybody to report to, there is nothing left to do.
    async fn report(&self, event: LinkEvent) -> Result<(), DownReason> {
        self.events.send(event).await.map_err(|_| DownReason::ShuttingDown)
    }
}

async fn preamble(stream: &mut RecvStream) -> Result<[u8; 2], DownReason> {
    let mut bytes = [0; 2];
    match stream.read_exact(&mut bytes).await {
        Ok(()) => Ok(bytes),
        Err(quinn::ReadExactError::ReadError(error)) => Err(error.into()),
        Err(quinn::ReadExactError::FinishedEarly(_)) => Err(FrameError::Truncated.into()),
    }
}
