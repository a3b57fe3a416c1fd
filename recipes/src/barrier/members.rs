//! The driver of a member: its keys in the store, and the task that shows that it lives.

use bytes::Bytes;
use geolock_client::{
    Action, AtLeast, Batch, Change, Client, ClientError, CommitError, Key, Snapshot, TxnRequest, Update,
    Value, Watch, WatchRequest,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::{BarrierError, BarrierOptions, MAX_NAME};
use crate::barrier_state::{Effect, Member, News, View};
use crate::retry::{PAUSE, passes, read_passes, txn_passes};

/// The bucket of all barriers.
const BUCKET: &[u8] = b"geolock.barrier";
/// A member shows that often within its expiry that it lives.
const RENEWALS: u32 = 3;

/// The keys of a barrier and of a member.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    id: Bytes,
    /// A set: the members that came and have not left.
    index: Key,
    /// Exists when the barrier has opened.
    open: Key,
    /// The keys of members begin with this, then comes the name of the member.
    prefix: Vec<u8>,
    own: Key,
}

impl Keys {
    pub fn new(barrier: &[u8], member: &[u8]) -> Result<Keys, BarrierError> {
        let wrong = || BarrierError::Name { barrier: barrier.len(), member: member.len() };
        if member.is_empty() || barrier.len() + member.len() > MAX_NAME {
            return Err(wrong());
        }
        let key = |name: &[u8]| Key::new(BUCKET, name).map_err(|_| wrong());
        // With the length, no name of a barrier is the beginning of another one's.
        let prefix = [b"member/", barrier.len().to_string().as_bytes(), b"/", barrier, b"/"].concat();
        Ok(Keys {
            id: Bytes::copy_from_slice(member),
            index: key(&[b"in/", barrier].concat())?,
            open: key(&[b"open/", barrier].concat())?,
            own: key(&[&prefix, member].concat())?,
            prefix,
        })
    }

    fn of_member(&self, id: &[u8]) -> Option<Key> {
        Key::new(BUCKET, &[&self.prefix, id].concat()).ok()
    }

    fn id_of(&self, key: &Key) -> Option<Bytes> {
        key.name().strip_prefix(&*self.prefix).map(Bytes::copy_from_slice)
    }
}

/// A member that has come.
pub(super) struct Task {
    client: Client,
    keys: Keys,
    options: BarrierOptions,
    member: Member,
    watch: Option<Watch>,
    position: Snapshot,
    renew_at: Instant,
}

impl Task {
    pub async fn begin(
        client: &Client,
        keys: Keys,
        needed: usize,
        options: BarrierOptions,
    ) -> Result<Task, BarrierError> {
        let (view, snapshot) = look(client, &keys, &Snapshot::default()).await?;
        if view.is_open {
            return Err(BarrierError::Used);
        }
        let member = Member::new(keys.id.clone(), needed, view);
        let watch = Some(follow(client, &keys, &snapshot).await?);
        let client = client.clone();
        Ok(Task { client, keys, options, member, watch, position: snapshot, renew_at: Instant::now() })
    }

    /// Returns the members that died, when all are out.
    pub async fn run(
        mut self,
        entered: oneshot::Sender<()>,
        mut left: oneshot::Receiver<()>,
    ) -> Result<Vec<Bytes>, BarrierError> {
        let mut entered = Some(entered);
        self.commit(self.join()).await?;
        self.renew_at = Instant::now() + self.options.expiry / RENEWALS;
        let mut is_leaving = false;
        loop {
            while let Some(effect) = self.member.poll_effect() {
                match effect {
                    Effect::Open => {
                        let batch = Batch::new().update(&self.keys.open, Update::register("1"));
                        self.commit(batch.expire(&self.keys.open, self.options.keep)).await?;
                    }
                    Effect::Entered => {
                        // A caller that has gone has left, too.
                        let _ = entered.take().map(|entered| entered.send(()));
                    }
                    Effect::Out(dead) => return Ok(dead),
                    Effect::Lost => return Err(BarrierError::Expired),
                }
            }
            tokio::select! {
                biased;
                wish = &mut left, if !is_leaving => {
                    is_leaving = true;
                    let batch = Batch::new().remove(&self.keys.own);
                    let left = Update::set_remove([self.keys.id.clone()]);
                    self.commit(batch.update(&self.keys.index, left)).await?;
                    // No member waits for the others.
                    if wish.is_err() {
                        return Ok(Vec::new());
                    }
                    self.member.leave();
                }
                () = sleep_until(self.renew_at), if !is_leaving => {
                    self.renew_at = Instant::now() + self.options.expiry / RENEWALS;
                    self.commit(self.alive(Batch::new())).await?;
                }
                heard = hear(&self.client, &self.keys, &mut self.watch, &mut self.position) => {
                    match heard? {
                        Heard::News(news) => news.into_iter().for_each(|news| self.member.handle(news)),
                        Heard::View(view) => self.member.look(view),
                    }
                }
            }
        }
    }

    fn join(&self) -> Batch {
        let came = Update::set_add([self.keys.id.clone()]);
        self.alive(Batch::new().update(&self.keys.index, came).expire(&self.keys.index, self.options.keep))
    }

    fn alive(&self, batch: Batch) -> Batch {
        batch.update(&self.keys.own, Update::register("1")).expire(&self.keys.own, self.options.expiry)
    }

    /// Commits after all that the member has heard of.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<(), BarrierError>> + Send + use<> {
        commit(self.client.clone(), AtLeast::snapshot(&self.position), batch)
    }
}

/// Commits, again until it is known.
async fn commit(client: Client, at_least: AtLeast, batch: Batch) -> Result<(), BarrierError> {
    loop {
        let request = TxnRequest::new().at_least(at_least.clone());
        match client.transact(request, batch.clone()).await {
            Ok(_) | Err(CommitError::NotAtMajority(_)) => return Ok(()),
            // Each of them can be made again.
            Err(CommitError::OutcomeUnknown(_)) => {}
            Err(CommitError::NotCommitted(error)) if txn_passes(&error) => {}
            Err(error) => return Err(error.into()),
        }
        sleep(PAUSE).await;
    }
}

/// Reads all members at one snapshot.
async fn look(client: &Client, keys: &Keys, position: &Snapshot) -> Result<(View, Snapshot), BarrierError> {
    let mut txn = client.begin(TxnRequest::new().at_least(AtLeast::snapshot(position))).await?;
    let snapshot = txn.snapshot().clone();
    let read = txn.read_many(&[keys.index.clone(), keys.open.clone()]).await?;
    let ids = read.first().map_or(Ok(&[][..]), Value::set)?.to_vec();
    let of_members: Vec<Key> = ids.iter().filter_map(|id| keys.of_member(id)).collect();
    let mut alive = Vec::new();
    // The most that a step reads.
    for some in of_members.chunks(1_000) {
        alive.extend(txn.read_many(some).await?.iter().map(Value::is_some));
    }
    // It has changed nothing.
    let _ = txn.abort().await;
    let is_open = read.get(1).is_some_and(Value::is_some);
    Ok((View { members: ids.into_iter().zip(alive).collect(), is_open }, snapshot))
}

async fn follow(client: &Client, keys: &Keys, snapshot: &Snapshot) -> Result<Watch, ClientError> {
    let request = WatchRequest::new(BUCKET, &keys.prefix).and_key(&keys.open).from_snapshot(snapshot);
    client.read_client()?.watch(request).await
}

enum Heard {
    News(Vec<News>),
    View(View),
}

/// Waits for an event, or reads again if the watch could not resume. Cancel-safe: a watch that is under way
/// loses nothing, and a look that is interrupted is made again.
async fn hear(
    client: &Client,
    keys: &Keys,
    watch: &mut Option<Watch>,
    position: &mut Snapshot,
) -> Result<Heard, BarrierError> {
    if let Some(following) = watch {
        match following.next().await {
            Ok(changed) => {
                *position = following.position().clone();
                return Ok(Heard::News(
                    changed.changes.into_iter().filter_map(|change| news(keys, change)).collect(),
                ));
            }
            Err(ClientError::Closed) => return Err(ClientError::Closed.into()),
            Err(ClientError::Refused(reason, message)) if !passes(reason) => {
                return Err(ClientError::Refused(reason, message).into());
            }
            Err(_) => *watch = None,
        }
    }
    loop {
        let looked = async {
            let (view, snapshot) = look(client, keys, position).await?;
            let watch = follow(client, keys, &snapshot).await?;
            Ok::<_, BarrierError>((view, snapshot, watch))
        };
        match looked.await {
            Ok((view, snapshot, following)) => {
                (*watch, *position) = (Some(following), snapshot);
                return Ok(Heard::View(view));
            }
            Err(BarrierError::Client(error)) if read_passes(&error) => {}
            Err(BarrierError::Read(error)) if txn_passes(&error) => {}
            Err(error) => return Err(error),
        }
        sleep(PAUSE).await;
    }
}

fn news(keys: &Keys, change: Change) -> Option<News> {
    if change.key == keys.open {
        return matches!(change.action, Action::Update(_)).then_some(News::Opened);
    }
    let id = keys.id_of(&change.key)?;
    match change.action {
        Action::Update(_) => Some(News::Came(id)),
        Action::Removed => Some(News::Left(id)),
        Action::Expired => Some(News::Died(id)),
        _ => None,
    }
}
