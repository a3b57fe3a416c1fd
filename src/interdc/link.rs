//! One link: a connection that both sides agreed on, its lanes out and its lanes in. The agreed version says
//! which lanes there are: a peer of an earlier version is never sent another.
//!
//! All lanes run in one task and end together, with the reason that occurs first. Every lane is a
//! unidirectional stream: format, lane number, then frames.
//!
//! The peer learns the reason from a packet that waits, like all others, for room in the congestion window
//! while there is more to be sent (quinn 0.11). On a full path it may not arrive, and the peer learns of the
//! end from the next connection, or from silence.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, RecvStream};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::config::{ControlFrame, QueueBound};
use super::error::{DownReason, FrameError};
use super::event::{Lane, LinkEvent, LinkId};
use super::frame::{Deframer, FORMAT};
use super::queue::LaneQueue;
use super::shared::Peer;

/// How long a side waits for messages in transit when it shuts down or sees the other side do so.
pub(super) const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Pieces of a stream that are taken at once.
const CHUNKS: usize = 32;

pub(super) struct Link {
    pub id: LinkId,
    pub connection: Connection,
    pub version: u16,
    lanes: [LaneQueue; Lane::COUNT],
    /// The reason to end the link; set once, by the first that wants it to end.
    ending: Mutex<Option<DownReason>>,
    ended: Notify,
}

impl Link {
    pub(super) fn new(id: LinkId, connection: Connection, bound: QueueBound, version: u16) -> Link {
        let lanes = Lane::ALL.map(|_| LaneQueue::new(bound));
        Link { id, connection, version, lanes, ending: Mutex::default(), ended: Notify::new() }
    }

    pub(super) fn queue(&self, lane: Lane) -> &LaneQueue {
        &self.lanes[lane.index()]
    }

    pub(super) fn has(&self, lane: Lane) -> bool {
        Lane::of_version(self.version).contains(&lane)
    }

    /// Ends the link, unless it is ending already.
    pub(super) fn end(&self, reason: DownReason) {
        self.ending.lock().expect("nothing panics while it holds a reason").get_or_insert(reason);
        self.ended.notify_one();
    }

    /// Sends the queued messages, and then ends the link.
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

/// A running link, as its task sees it.
pub(super) struct Running<'a> {
    pub link: &'a Link,
    pub peer: &'a Peer,
    pub events: &'a mpsc::Sender<LinkEvent>,
    /// How long the other side may take to open its lanes.
    pub timeout: Duration,
    /// See [`Interdc::take_bulk`](super::Interdc::take_bulk).
    pub takes_bulk: watch::Receiver<bool>,
    /// See [`InterdcConfig::control`](super::InterdcConfig::control).
    pub control: Option<&'a mpsc::Sender<ControlFrame>>,
}

impl Running<'_> {
    /// Moves messages until the link ends, and returns the reason. The connection is still open then.
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
            self.send_lane(Lane::State),
            self.send_lane(Lane::Control)
        );
        match sent {
            // All lanes are drained: the other side closes the connection once it has received everything.
            Ok(_) => self.link.connection.closed().await.into(),
            Err(reason) => reason,
        }
    }

    async fn send_lane(&self, lane: Lane) -> Result<(), DownReason> {
        if !self.link.has(lane) {
            return Ok(());
        }
        let queue = self.link.queue(lane);
        let mut stream = self.link.connection.open_uni().await?;
        // Fails only for a closed stream, and then the write below returns the error.
        let _ = stream.set_priority(lane.priority());
        stream.write_all(&[FORMAT, lane.index() as u8]).await?;
        while let Some(mut batch) = queue.take().await {
            stream.write_all_chunks(&mut batch.chunks).await?;
            queue.release(&batch);
            self.peer.sent(lane, batch.messages, batch.bytes);
            if lane != Lane::Control || self.control.is_none() {
                self.report(LinkEvent::Flushed { peer: self.peer.id, lane, messages: batch.messages })
                    .await?;
            }
        }
        // Fails if the other side has ended the lane before, which makes no difference.
        let _ = stream.finish();
        Ok(())
    }

    async fn receive(&self) -> DownReason {
        let one_ended = Notify::new();
        let (opened, lanes): (Vec<_>, Vec<_>) = Lane::ALL.into_iter().map(|_| oneshot::channel()).unzip();
        let Ok([urgent, bulk, state, control]) = <[_; Lane::COUNT]>::try_from(lanes) else {
            unreachable!("one for each lane")
        };
        let lanes = Lane::of_version(self.link.version).len();
        let opened: Vec<_> = opened.into_iter().take(lanes).collect();
        let all = async {
            tokio::try_join!(
                self.accept_lanes(opened),
                self.receive_lane(Lane::Urgent, urgent, &one_ended),
                self.receive_lane(Lane::Bulk, bulk, &one_ended),
                self.receive_lane(Lane::State, state, &one_ended),
                self.receive_lane(Lane::Control, control, &one_ended)
            )
        };
        // A side that shuts down ends all lanes. Some lanes without the others are no link, so this does not
        // wait long for the rest.
        let too_long = async {
            one_ended.notified().await;
            sleep(DRAIN_TIME).await;
        };
        tokio::select! {
            ended = all => ended.err().unwrap_or(DownReason::Finished),
            () = too_long => DownReason::Finished,
        }
    }

    /// Accepts lanes one by one and reads each as soon as it is open: the first bytes of a lane, too, wait
    /// for room on the path, behind the lanes before it.
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
            // The reader lives as long as this future.
            Some(reader) => drop(reader.send(stream)),
            None => return Err(FrameError::Lane(lane).into()),
        }
        Ok(())
    }

    /// Passes on the frames of a lane until it ends properly. Blocks while the reader of the events is slow;
    /// QUIC's flow control then stops the sender.
    async fn receive_lane(
        &self,
        lane: Lane,
        opened: oneshot::Receiver<RecvStream>,
        ended: &Notify,
    ) -> Result<(), DownReason> {
        // The link has no such lane, or it was never opened: then the link ends for another reason.
        let Ok(mut stream) = opened.await else { return Ok(()) };
        let mut takes_bulk = self.takes_bulk.clone();
        let mut deframer = Deframer::default();
        let mut chunks = [const { Bytes::new() }; CHUNKS];
        while let Some(filled) = stream.read_chunks(&mut chunks).await? {
            for chunk in &mut chunks[..filled] {
                while let Some(bytes) = deframer.next(chunk)? {
                    self.peer.received(lane, bytes.len());
                    if matches!(lane, Lane::Bulk | Lane::State) {
                        // The sender of this value lives as long as the links.
                        takes_bulk.wait_for(|takes| *takes).await.map_err(|_| DownReason::ShuttingDown)?;
                    }
                    self.pass_on(lane, bytes).await?;
                }
            }
        }
        deframer.finish()?;
        ended.notify_one();
        Ok(())
    }

    async fn pass_on(&self, lane: Lane, bytes: Bytes) -> Result<(), DownReason> {
        let peer = self.peer.id;
        match self.control.filter(|_| lane == Lane::Control) {
            Some(control) => {
                // If the control group has stopped, its frames are of no use.
                let _ = control.send(ControlFrame { peer, bytes }).await;
                Ok(())
            }
            None => self.report(LinkEvent::Received { peer, lane, bytes }).await,
        }
    }

    /// Reports an event. Fails if no reader of the events is left; then there is nothing left to do.
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
