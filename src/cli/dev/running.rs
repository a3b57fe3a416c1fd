//! The datacenters of a playground while it runs: they join, leave, are stopped and started. If a datacenter
//! leaves, or learns that it was evicted, only its server ends; the others continue. A server that fails ends
//! the playground.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;

use anyhow::{Context as _, bail};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use super::calls::{Call, Caller, Calls, Request};
use super::data::{self, End, Place};
use super::plan::{Plan, Server};
use super::{LOOK, SLOW, obstacle, say};
use crate::lock_server::{LockServerHandle, MembersView, Stage};
use crate::membership::{Config, EndCause, JoinPolicy, MemberName};
use crate::runtime::tasks::joined;
use crate::server::members::MembersApi;
use crate::server::node::{Departure, Node, NodeError};
use geolock_api::names::{DcId, MAX_DCS};

type Ended = (DcId, Result<Option<Departure>, NodeError>);

/// All datacenters of the playground.
pub(super) struct Running<'a> {
    plan: &'a Plan,
    dcs: BTreeMap<DcId, State>,
    starts: JoinSet<Started>,
    ends: JoinSet<Ended>,
    /// Wait until a datacenter serves, and print that.
    watches: JoinSet<()>,
    /// Requests that wait for the list of members.
    deferred: JoinSet<Deferred>,
}

/// A request that needs the list of members, which begins by itself soon after all founders run.
enum Deferred {
    Add(Option<DcId>, Option<Caller>),
    /// Without one of them, the list would never begin.
    Stop(DcId, Caller),
}

/// A datacenter that has a data directory.
enum State {
    Starting,
    Running(Datacenter),
    Stopped,
}

struct Datacenter {
    handle: LockServerHandle,
    members: MembersApi,
    /// The caller that asked to stop it.
    stopped_by: Option<Caller>,
}

/// A server that runs when another one starts: if it has stopped, and its view of the members.
type Beside = (watch::Receiver<Stage>, MembersApi);

/// A server that was started, or not.
struct Started {
    dc: DcId,
    joins: bool,
    caller: Option<Caller>,
    node: anyhow::Result<Node>,
}

impl<'a> Running<'a> {
    pub(super) fn new(plan: &'a Plan, nodes: Vec<Node>) -> Running<'a> {
        let mut running = Running {
            plan,
            dcs: BTreeMap::new(),
            starts: JoinSet::new(),
            ends: JoinSet::new(),
            watches: JoinSet::new(),
            deferred: JoinSet::new(),
        };
        nodes.into_iter().for_each(|node| running.register(node));
        running
    }

    /// Returns the datacenters whose servers run.
    pub(super) fn handles(&self) -> Vec<LockServerHandle> {
        self.running().map(|(_, it)| it.handle.clone()).collect()
    }

    /// Handles commands and events until a server fails. Cancel-safe.
    pub(super) async fn run(&mut self, calls: &mut Option<Calls>) -> Result<(), NodeError> {
        let next_call = async |calls: &mut Option<Calls>| match calls {
            Some(calls) => calls.next().await,
            None => None,
        };
        for dc in self.plan.joining.clone() {
            self.add(Some(dc), None);
        }
        loop {
            tokio::select! {
                Some(Call { request, caller }) = next_call(calls) => match request {
                    Request::Add(dc) => self.add(dc, Some(caller)),
                    Request::Start(dc) => self.start(dc, caller),
                    Request::Stop(dc) => match self.founding() {
                        Some(founded) => self.defer(founded, Deferred::Stop(dc, caller)),
                        None => self.stop(dc, caller),
                    },
                },
                Some(started) = self.starts.join_next() => self.started(joined(started)),
                Some(ended) = self.ends.join_next() => self.ended(joined(ended))?,
                Some(said) = self.watches.join_next() => joined(said),
                Some(ready) = self.deferred.join_next() => match joined(ready) {
                    Deferred::Add(dc, caller) => self.add(dc, caller),
                    Deferred::Stop(dc, caller) => self.stop(dc, caller),
                },
                else => std::future::pending().await,
            }
        }
    }

    /// Stops all. [`Running::stopped`] waits for that.
    pub(super) fn drain(&mut self) {
        self.starts.abort_all();
        self.handles().iter().for_each(LockServerHandle::drain);
    }

    /// Waits until all have stopped, or one has failed.
    pub(super) async fn stopped(&mut self) -> Result<(), NodeError> {
        while let Some(started) = self.starts.join_next().await {
            // One that was cancelled did not start.
            if let Ok(Started { node: Ok(node), .. }) = started {
                node.handle().drain();
                self.register(node);
            }
        }
        while let Some(ended) = self.ends.join_next().await {
            self.ended(joined(ended))?;
        }
        Ok(())
    }

    fn register(&mut self, node: Node) {
        let (dc, handle, members) = (node.dc(), node.handle(), node.members());
        self.dcs.insert(dc, State::Running(Datacenter { handle, members, stopped_by: None }));
        self.ends.spawn(async move { (dc, node.ended().await) });
    }

    fn running(&self) -> impl Iterator<Item = (DcId, &Datacenter)> {
        self.dcs.iter().filter_map(|(dc, state)| match state {
            State::Running(datacenter) => Some((*dc, datacenter)),
            State::Starting | State::Stopped => None,
        })
    }

    /// Returns the running datacenter that knows most decisions, with the members as it knows them.
    fn newest(&self) -> Option<(DcId, MembersApi, Config)> {
        let all = self.running().map(|(dc, it)| (dc, it.members.clone(), it.members.list().0.config));
        all.max_by_key(|(_, _, config)| config.index())
    }

    /// Returns a view of the members, if the list of members has not begun.
    fn founding(&self) -> Option<MembersApi> {
        let (_, members, config) = self.newest()?;
        config.cluster().is_none().then_some(members)
    }

    /// Handles a request when the list of members has begun.
    fn defer(&mut self, members: MembersApi, request: Deferred) {
        self.deferred.spawn(async move {
            let mut look = interval(LOOK);
            while members.list().0.config.cluster().is_none() {
                look.tick().await;
            }
            request
        });
    }

    fn add(&mut self, wanted: Option<DcId>, caller: Option<Caller>) {
        if let Some(members) = self.founding() {
            answer(&caller, "the datacenters first have to agree on the list of members");
            return self.defer(members, Deferred::Add(wanted, caller));
        }
        match self.prepare_join(wanted) {
            Ok((dc, server, members)) => {
                self.dcs.insert(dc, State::Starting);
                answer(&caller, format_args!("{dc} joins"));
                self.starts.spawn(async move {
                    let node = tokio::select! {
                        node = join(dc, server, &members) => node,
                        never = explain(dc, &members, &caller) => match never {},
                    };
                    Started { dc, joins: true, caller, node }
                });
            }
            Err(error) => fail(caller, format_args!("{error:#}")),
        }
    }

    /// Returns the datacenter that is to join, its server, and the members that it asks.
    fn prepare_join(&self, wanted: Option<DcId>) -> anyhow::Result<(DcId, Server, MembersApi)> {
        let (asked, members, config) = self
            .newest()
            .context("no datacenter of the playground runs: start one with `geolock dev start ID`")?;
        let has_server = |dc: &DcId| matches!(self.dcs.get(dc), Some(State::Starting | State::Running(_)));
        let is_free = |dc: &DcId| config.slots().member(*dc).is_none() && !has_server(dc);
        let dc = match wanted {
            Some(dc) if is_free(&dc) => dc,
            Some(dc) if has_server(&dc) => bail!("{dc} runs already"),
            Some(dc) => bail!("{dc} is a member already, and stopped: `geolock dev start {}`", dc.get()),
            None => ids().find(is_free).with_context(|| format!("all {MAX_DCS} ids are in use"))?,
        };
        for (other, _) in config.slots().members() {
            self.plan.check_distance(dc, other)?;
        }
        // It returns, with an empty directory.
        if let Some(past) = config.slots().last_past(dc)
            && self.plan.place(dc) != Some(Place::Joins)
        {
            let end = if past.cause == EndCause::Left { End::Left } else { End::Evicted };
            data::set_aside(&self.plan.data, dc, end)?;
        }
        Ok((dc, self.plan.take_one(dc, Some(asked))?, members))
    }

    fn start(&mut self, dc: DcId, caller: Caller) {
        match self.prepare_start(dc) {
            Ok(server) => {
                self.dcs.insert(dc, State::Starting);
                self.starts.spawn(async move {
                    let node = start_node(server).await;
                    Started { dc, joins: false, caller: Some(caller), node }
                });
            }
            Err(error) => caller.failed(&format!("{error:#}")),
        }
    }

    fn prepare_start(&self, dc: DcId) -> anyhow::Result<Server> {
        let id = dc.get();
        match self.dcs.get(&dc) {
            Some(State::Stopped) => {}
            Some(State::Starting | State::Running(_)) => bail!("{dc} runs already"),
            None => bail!("the playground has no {dc}: `geolock dev add {id}` adds it"),
        }
        let newest = self.newest();
        if newest.as_ref().is_some_and(|(_, _, config)| config.slots().has_ended(dc)) {
            bail!(
                "{dc} is no member any more: `geolock dev add {id}` lets it return, with an empty directory"
            );
        }
        let asked = newest.map_or(dc, |(asked, ..)| asked);
        self.plan.take_one(dc, (!self.plan.is_founder(dc)).then_some(asked))
    }

    fn stop(&mut self, dc: DcId, caller: Caller) {
        match self.dcs.get_mut(&dc) {
            Some(State::Running(datacenter)) => {
                datacenter.handle.drain();
                datacenter.stopped_by = Some(caller);
            }
            Some(State::Stopped) => caller.done(&format!("{dc} is stopped already")),
            Some(State::Starting) => caller.failed(&format!("{dc} starts: try again when it runs")),
            None => caller.failed(&format!("the playground has no {dc}")),
        }
    }

    fn started(&mut self, started: Started) {
        let Started { dc, joins, caller, node } = started;
        match node {
            Ok(node) => {
                let handle = node.handle();
                self.register(node);
                // One that was a member before does not have to wait for others.
                let all: Vec<Beside> =
                    self.running().map(|(_, it)| (it.handle.stage(), it.members.clone())).collect();
                let place = self.plan.listen(dc).client;
                self.watches.spawn(async move {
                    let served = serves(dc, &handle, &all, joins, &caller).await;
                    match served {
                        true if joins => succeed(caller, format_args!("{dc} has joined: clients {place}")),
                        true => succeed(caller, format_args!("{dc} serves again")),
                        // Its end is said elsewhere.
                        false => drop(caller),
                    }
                });
            }
            Err(error) => {
                // One that was a member still is.
                match self.plan.place(dc) {
                    Some(Place::Founder | Place::Joined) => drop(self.dcs.insert(dc, State::Stopped)),
                    Some(Place::Joins) | None => drop(self.dcs.remove(&dc)),
                }
                fail(caller, format_args!("{dc} did not start: {error:#}"));
            }
        }
    }

    fn ended(&mut self, (dc, ended): Ended) -> Result<(), NodeError> {
        let before = self.dcs.insert(dc, State::Stopped);
        let departure = ended?;
        let Some(departure) = departure else {
            if let Some(State::Running(Datacenter { stopped_by: Some(caller), .. })) = before {
                let id = dc.get();
                let text = format_args!("{dc} is stopped: `geolock dev start {id}` starts it again");
                succeed(Some(caller), text);
            }
            return Ok(());
        };
        let (end, what) = match departure {
            // Nobody copies it in a playground, and its data is not given up.
            Departure::RunsTwice => {
                eprintln!("{dc} is stopped: another server ran with its identity");
                return Ok(());
            }
            Departure::Left => (End::Left, "has left the cluster"),
            // It begins with an empty directory in any case.
            Departure::Evicted | Departure::Returns => (End::Evicted, "was evicted"),
            Departure::Lost => (End::Evicted, "was left out of a forced recovery"),
        };
        self.dcs.remove(&dc);
        let kept = match data::set_aside(&self.plan.data, dc, end) {
            Ok(Some(kept)) => format!("its data is in {}", kept.display()),
            Ok(None) => "it has no data".into(),
            Err(error) => format!("its data stays where it is ({error})"),
        };
        let others: Vec<String> = self.dcs.keys().map(ToString::to_string).collect();
        let id = dc.get();
        say(format_args!(
            "{dc} {what}, and {kept}; there are {}. `geolock dev add {id}` lets it return",
            others.join(", ")
        ));
        Ok(())
    }
}

fn ids() -> impl Iterator<Item = DcId> {
    (0..MAX_DCS).filter_map(|id| DcId::new(u8::try_from(id).ok()?))
}

async fn start_node(server: Server) -> anyhow::Result<Node> {
    Ok(Node::start(server.sockets, server.config, Some(server.wan)).await?)
}

/// Starts a server that joins. The user of a playground is its operator, so this makes an invitation if the
/// policy requires one.
async fn join(dc: DcId, server: Server, members: &MembersApi) -> anyhow::Result<Node> {
    if members.list().0.config.join_policy(dc) == JoinPolicy::Operator {
        members.invite(MemberName::new(&dc.to_string())?, None).await?;
    }
    start_node(server).await
}

/// Prints the reason why a datacenter is not admitted yet, if that takes long.
async fn explain(dc: DcId, members: &MembersApi, caller: &Option<Caller>) -> Infallible {
    let slow = Instant::now() + SLOW;
    let (mut look, mut said) = (interval(LOOK), None);
    loop {
        look.tick().await;
        let (view, leader) = members.list();
        let others = view.config.slots().member_set().difference(view.heard);
        let missing = others.iter().filter(|other| *other != members.me()).map(|other| other.to_string());
        let missing = missing.collect::<Vec<_>>().join(", ");
        let why = match leader {
            None => "no majority of the members can be reached".into(),
            Some(_) if missing.is_empty() => "the members have not decided yet".into(),
            Some(_) => format!("all members have to be up, and {missing} is not heard"),
        };
        if Instant::now() > slow && said.as_ref() != Some(&why) {
            answer(caller, format_args!("{dc} is no member yet: {why}"));
            said = Some(why);
        }
    }
}

/// Waits until a server serves beside all of these that still run, itself among them; and if it `joins`,
/// until it is a complete member in their views. Returns false if it stops before.
async fn serves(
    dc: DcId,
    handle: &LockServerHandle,
    all: &[Beside],
    joins: bool,
    caller: &Option<Caller>,
) -> bool {
    let slow = Instant::now() + SLOW;
    let (mut look, mut explained) = (interval(LOOK), false);
    loop {
        look.tick().await;
        if *handle.stage().borrow() == Stage::Stopped {
            return false;
        }
        // One of them may leave meanwhile, or be stopped.
        let running = || still_running(all);
        match obstacle(handle, running().count()) {
            None if !joins || running().all(|members| is_complete(&members.list().0, dc)) => return true,
            Some(why) if !explained && Instant::now() > slow => {
                explained = true;
                answer(caller, format_args!("not ready yet: {why}"));
            }
            _ => {}
        }
    }
}

/// Returns those that have not stopped.
fn still_running<T>(all: &[(watch::Receiver<Stage>, T)]) -> impl Iterator<Item = &T> {
    all.iter().filter(|(stage, _)| *stage.borrow() != Stage::Stopped).map(|(_, it)| it)
}

/// Returns true once a member has its parts and its vote, and nothing is under way that another change of
/// the members would have to wait for.
fn is_complete(view: &MembersView, dc: DcId) -> bool {
    view.config.slots().is_settled(dc) && view.config.next_voter().is_none() && view.behind().is_empty()
}

fn answer(caller: &Option<Caller>, text: impl Display) {
    say(&text);
    if let Some(caller) = caller {
        caller.tell(&text.to_string());
    }
}

fn succeed(caller: Option<Caller>, text: impl Display) {
    say(&text);
    if let Some(caller) = caller {
        caller.done(&text.to_string());
    }
}

fn fail(caller: Option<Caller>, text: impl Display) {
    say(&text);
    if let Some(caller) = caller {
        caller.failed(&text.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stops_meanwhile_is_waited_for_no_more() {
        let (leaving, stage) = watch::channel(Stage::Running);
        let all = [(watch::channel(Stage::Running).1, 0), (stage, 1)];
        let running = || still_running(&all).copied().collect::<Vec<_>>();
        assert_eq!(running(), [0, 1]);
        leaving.send_replace(Stage::Draining);
        assert_eq!(running(), [0, 1], "it is linked until it ends");
        leaving.send_replace(Stage::Stopped);
        assert_eq!(running(), [0]);
    }
}
