#!/usr/bin/env bash
# openraft 0.10.0-alpha.37: `heartbeat_interval` is also the limit for the answer to a heartbeat, so a leader
# whose followers are farther away than that leads and refuses everything.
#
# Expected: the interval is the time between two heartbeats. How long an answer may take is for the network
# (`RaftNetworkV2` gets an option for it, and may ignore it), and an election timeout has to be several round
# trips: with one of 2 to 4 s, three members with a round trip of 150 ms work as well at an interval of 100 ms
# as at one of 400 ms.
# Seen: at 100 ms a leader is elected and stays, because the followers take all heartbeats, but it gives up
# each one before the answer. 5 s after the election its lease has expired: it refuses every write
# (`LeaseExpired`) and every linearizable read, for good, while all members are up and nothing is lost. Votes
# have `election_timeout_min` as their limit in the same way.
# What follows: where members may be far apart, the interval has to be above the longest round trip, and
# heartbeats that are due sooner are triggered by the application (`Raft::trigger().heartbeat()`). We learnt it
# from a control group that decided nothing at a round trip of 220 ms (src/control/elections.rs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat > Cargo.toml << 'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2024"

[dependencies]
openraft = "=0.10.0-alpha.37"
openraft-memstore = "=0.10.0-alpha.37"
tokio = { version = "1.54", features = ["full"] }
TOML
cat > src/main.rs << 'RUST'
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, ReadPolicy, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::alias::{SnapshotOf, VoteOf};
use openraft::{Config, Raft};
use openraft_memstore::{
    ClientRequest, IntoMemClientRequest, MemStateMachine, TypeConfig, new_mem_store,
};
use openraft::async_runtime::WatchReceiver;
use tokio::time::sleep;

type Group = Raft<TypeConfig, Arc<MemStateMachine>>;
type Members = Arc<Mutex<BTreeMap<u64, Group>>>;

const ONE_WAY: Duration = Duration::from_millis(75);

/// The way to one member. It takes its time, and gives nothing up.
struct Way(Members, u64);

impl Way {
    fn member(&self) -> Group {
        self.0.lock().unwrap()[&self.1].clone()
    }
}

#[derive(Clone)]
struct Ways(Members);

impl RaftNetworkFactory<TypeConfig> for Ways {
    type Network = Way;
    async fn new_client(&mut self, target: u64, _: &()) -> Way {
        Way(self.0.clone(), target)
    }
}

impl RaftNetworkV2<TypeConfig> for Way {
    type SnapshotData = <Arc<MemStateMachine> as openraft::storage::RaftStateMachine<TypeConfig>>::SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        sleep(ONE_WAY).await;
        let answer = self.member().append_entries(request).await.unwrap();
        sleep(ONE_WAY).await;
        Ok(answer)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        sleep(ONE_WAY).await;
        let answer = self.member().vote(request).await.unwrap();
        sleep(ONE_WAY).await;
        Ok(answer)
    }

    async fn full_snapshot(
        &mut self,
        _: VoteOf<TypeConfig>,
        _: SnapshotOf<TypeConfig, Self::SnapshotData>,
        _: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        unreachable!("nobody is that far behind")
    }
}

async fn run(heartbeat_interval: u64) {
    let config = Config {
        heartbeat_interval,
        election_timeout_min: 2_000,
        election_timeout_max: 4_000,
        ..Config::default()
    };
    let config = Arc::new(config.validate().unwrap());
    let members = Members::default();
    for id in 0..3 {
        let (log, machine) = new_mem_store();
        let raft = Raft::new(id, config.clone(), Ways(members.clone()), log, machine).await.unwrap();
        members.lock().unwrap().insert(id, raft);
    }
    let first = members.lock().unwrap()[&0].clone();
    first.initialize(BTreeSet::from([0, 1, 2])).await.unwrap();
    let wait = first.wait(Some(Duration::from_secs(20)));
    let elected = wait.metrics(|it| it.current_leader.is_some(), "a leader").await.unwrap();
    let leader = elected.current_leader.unwrap();
    let leader = members.lock().unwrap()[&leader].clone();
    sleep(Duration::from_secs(5)).await;
    let leads = leader.metrics().borrow_watched().current_leader == Some(elected.current_leader.unwrap());
    let write = leader.client_write(ClientRequest::make_request("a", 1)).await.map(drop);
    let read = leader.ensure_linearizable(ReadPolicy::ReadIndex).await.map(drop);
    let expired = write.as_ref().is_err_and(|error| format!("{error:?}").contains("LeaseExpired"));
    println!(
        "round trip 150 ms, heartbeats each {heartbeat_interval} ms: it leads: {leads}, writes: {}, reads: {}, \
         its lease has expired: {expired}",
        write.is_ok(),
        read.is_ok(),
    );
}

#[tokio::main]
async fn main() {
    run(400).await;
    run(100).await;
}
RUST
seen=$(cargo run --quiet)
printf '%s\n' "$seen"
diff <(printf '%s\n' "$seen") - << 'SEEN'
round trip 150 ms, heartbeats each 400 ms: it leads: true, writes: true, reads: true, its lease has expired: false
round trip 150 ms, heartbeats each 100 ms: it leads: true, writes: false, reads: false, its lease has expired: true
SEEN
