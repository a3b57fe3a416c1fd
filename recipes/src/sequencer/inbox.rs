//! The messages that a node receives for a contract: commits of the other nodes, as a watch tells them.
//!
//! A watch that was away for too long begins anew. What it missed is lost, and the protocol repairs it: so
//! nothing is ever read but the watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use geolock_client::{Action, Change, Changed, Client, ClientError, Op, Update, Watch, WatchRequest};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::driver::Input;
use super::keys::{Keys, Place};
use super::{BUCKET, SequencerError, Warning};
use crate::retry::{PAUSE, read_passes};
use crate::sequencer_state::{Content, Envelope, Event, Node};

pub(super) struct Inbox {
    client: Client,
    keys: Arc<Keys>,
    members: Vec<Node>,
    watch: Watch,
    seen: Seen,
    inputs: mpsc::Sender<Input>,
}

impl Inbox {
    /// Returns when the watch has begun: nothing that is committed from then on is missed.
    pub async fn begin(
        client: &Client,
        keys: &Arc<Keys>,
        members: &[Node],
        inputs: mpsc::Sender<Input>,
    ) -> Result<Inbox, SequencerError> {
        let watch = begin(client, keys).await?;
        let (client, keys, members) = (client.clone(), Arc::clone(keys), members.to_vec());
        Ok(Inbox { client, keys, members, watch, seen: Seen::default(), inputs })
    }

    /// Passes everything on, until the driver has gone, or the server refuses for good.
    pub async fn run(mut self) {
        let driver = self.inputs.clone();
        tokio::select! {
            () = driver.closed() => {}
            () = self.pass_all() => {}
        }
    }

    async fn pass_all(&mut self) {
        loop {
            let went = match self.watch.next().await {
                Ok(changed) => {
                    if self.pass_on(changed).await.is_err() {
                        return;
                    }
                    continue;
                }
                Err(ClientError::WatchTooOld(_)) => begin(&self.client, &self.keys).await,
                Err(error) if read_passes(&error) => {
                    sleep(PAUSE).await;
                    begin(&self.client, &self.keys).await
                }
                Err(error) => Err(SequencerError::Refused(error.to_string())),
            };
            match went {
                Ok(watch) => self.watch = watch,
                Err(error) => {
                    // The driver has gone, or hears of it.
                    let _ = self.inputs.send(Input::Failed(error)).await;
                    return;
                }
            }
        }
    }

    async fn pass_on(&mut self, changed: Changed) -> Result<(), mpsc::error::SendError<Input>> {
        for change in changed.changes {
            for input in self.read(change) {
                self.inputs.send(input).await?;
            }
        }
        Ok(())
    }

    fn read(&mut self, Change { key, action }: Change) -> Vec<Input> {
        let Some(place) = self.keys.place_of(&key) else { return Vec::new() };
        let unreadable = |why: String| {
            let key = key.name().escape_ascii().to_string();
            vec![Input::Warning(Warning::Unreadable { key, why })]
        };
        let from = place.sender().clone();
        if from == *self.keys.me() {
            return Vec::new();
        }
        if !self.members.contains(&from) {
            return unreadable("its sender is no member".to_owned());
        }
        let bytes = match action {
            Action::Update(Update { op: Op::LwwRegister(bytes), .. }) => bytes,
            Action::Update(_) => return unreadable("it is no register".to_owned()),
            _ => return Vec::new(),
        };
        let Envelope { boot, number, content } = match Envelope::decode(&bytes) {
            Ok(envelope) => envelope,
            Err(why) => return unreadable(why.to_string()),
        };
        let Some(envelopes) = self.seen.lost_before(place, boot, number) else { return Vec::new() };
        let mut inputs = Vec::new();
        if envelopes > 0 {
            inputs.push(Input::Warning(Warning::Lost { from: from.clone(), envelopes }));
        }
        match content {
            Content::Beat(beat) => inputs.push(Input::Event(Event::Beat { from, beat })),
            Content::Messages(messages) => inputs.extend(
                messages
                    .into_iter()
                    .map(|message| Input::Event(Event::Message { from: from.clone(), message })),
            ),
        }
        inputs
    }
}

/// The last envelope of each other member: of its messages, and of its heartbeats.
#[derive(Debug, Default)]
struct Seen(BTreeMap<Place, (u64, u64)>);

impl Seen {
    /// Takes the number of an envelope, and returns how many before it were missed; `None` for one that came
    /// before. It was committed twice, because an answer was lost; the second time maybe after a later one.
    fn lost_before(&mut self, place: Place, boot: u64, number: u64) -> Option<u64> {
        let last = self.0.get(&place).filter(|(of, _)| *of == boot).map(|(_, last)| *last);
        if last.is_some_and(|last| number <= last) {
            return None;
        }
        self.0.insert(place, (boot, number));
        Some(last.map_or(0, |last| number - last - 1))
    }
}

/// Begins a watch from now on, again until a server answers.
async fn begin(client: &Client, keys: &Keys) -> Result<Watch, SequencerError> {
    loop {
        let request = WatchRequest::new(BUCKET, keys.to_me()).and(BUCKET, keys.beats());
        let begun = match client.read_client() {
            Ok(reader) => reader.watch(request).await,
            Err(error) => Err(error),
        };
        match begun {
            Ok(watch) => return Ok(watch),
            Err(error) if read_passes(&error) => sleep(PAUSE).await,
            Err(error) => return Err(SequencerError::Refused(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_a_loss_and_an_envelope_counts_once() {
        let (mut seen, place) = (Seen::default(), Place::Beat(Node::new("a")));
        let mut take = |boot, number| seen.lost_before(place.clone(), boot, number);
        assert_eq!(take(1, 7), Some(0), "it was not watched before");
        assert_eq!((take(1, 8), take(1, 11)), (Some(0), Some(2)));
        // The second commit of an old one, and again the last one.
        assert_eq!((take(1, 8), take(1, 11), take(1, 12)), (None, None, Some(0)));
        assert_eq!((take(2, 1), take(2, 2)), (Some(0), Some(0)), "another life");
    }
}
