//! The tasks of a member. Each moves something from one channel to the next, and ends with its source.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::admission::{Asked, Response, respond};
use super::decisions::DecisionList;
use super::lanes::Lanes;
use crate::control::{ControlGroup, Decided, Relay};
use crate::interdc::{ControlFrame, JoinCall, Links};
use crate::lock_server::{MembersInput, MembersOutput, MembersView};
use crate::membership::{Command, Index, Proposal};
use crate::runtime::tasks::joined;
use geolock_api::names::DcSet;

/// Most requests of other members that are being answered.
const HANDLED: usize = 128;
/// Most different proposals of the machine that are under way; it repeats those that are lost.
const PROPOSED: usize = 8;

/// The least time between two proposals for servers that ask to join: they ask again more often.
const PROPOSE_AGAIN: Duration = Duration::from_secs(1);

/// The reason why the last command could not be proposed.
pub(super) type LastRefusal = Arc<Mutex<Option<String>>>;

/// Frames of other members.
pub(super) struct Frames {
    pub control: ControlGroup<DecisionList>,
    pub relay: Arc<Relay<Lanes>>,
    pub links: Links,
}

impl Frames {
    pub(super) async fn run(self, frames: &mut mpsc::Receiver<ControlFrame>) {
        let mut answers = JoinSet::new();
        loop {
            tokio::select! {
                frame = frames.recv() => match frame {
                    Some(frame) => self.take(&frame, &mut answers),
                    None => return,
                },
                Some(answered) = answers.join_next() => joined(answered),
            }
        }
    }

    fn take(&self, frame: &ControlFrame, answers: &mut JoinSet<()>) {
        match self.relay.received(frame.peer, &frame.bytes) {
            Ok(None) => {}
            Ok(Some(incoming)) if answers.len() >= HANDLED => self.relay.refuse(&incoming),
            Ok(Some(incoming)) => {
                let (control, relay) = (self.control.clone(), Arc::clone(&self.relay));
                answers.spawn(async move {
                    let answer = control.handle_request(incoming.from, incoming.request.clone()).await;
                    relay.answer(&incoming, answer);
                });
            }
            Err(error) => {
                tracing::error!(peer = %frame.peer, %error, "the control lane broke the protocol: closing the link");
                self.links.close_to(frame.peer, &error.to_string());
            }
        }
    }
}

/// Ends the calls that were sent on links that are down.
pub(super) async fn follow_links(mut peers: watch::Receiver<DcSet>, relay: Arc<Relay<Lanes>>) {
    let mut before = *peers.borrow_and_update();
    while peers.changed().await.is_ok() {
        let now = *peers.borrow_and_update();
        before.difference(now).iter().for_each(|gone| relay.link_down(gone));
        before = now;
    }
}

/// Passes the decisions on to the machine, which knows some of them already. Those that are known here only
/// as part of the state, the machine gets from other members, or has in its journal: it is never that far
/// behind the log of the group, unless this member was away.
pub(super) async fn follow_decisions(
    control: ControlGroup<DecisionList>,
    inputs: mpsc::Sender<MembersInput>,
) {
    let mut applied = control.applied(0);
    // A handle would keep the list open after the group has shut down.
    drop(control);
    while let Some(decided) = applied.next().await {
        let input = match decided {
            Decided::Command { index, command } => {
                // The list of a group is of one lineage, which a server that joins learns with its state.
                let lineage = applied.state().0.lineage();
                MembersInput::Decided { lineage, index: Index(index), proposal: Box::new(command) }
            }
            Decided::State { .. } => {
                applied.rewind();
                continue;
            }
        };
        if inputs.send(input).await.is_err() {
            return;
        }
    }
}

/// Proposals of the machine.
pub(super) struct Outputs {
    pub control: ControlGroup<DecisionList>,
    pub last_refusal: LastRefusal,
}

impl Outputs {
    pub(super) async fn run(self, outputs: &mut mpsc::Receiver<MembersOutput>) {
        // The machine repeats a proposal until it is decided: the same one is not proposed twice at a time.
        let (mut tasks, mut under_way) = (JoinSet::new(), Vec::new());
        loop {
            tokio::select! {
                output = outputs.recv() => match output {
                    Some(MembersOutput::Propose(proposal)) => {
                        if !under_way.contains(&*proposal) && under_way.len() < PROPOSED {
                            under_way.push((*proposal).clone());
                            tasks.spawn(propose(self.control.clone(), *proposal));
                        }
                    }
                    Some(MembersOutput::Refused { why }) => note(&self.last_refusal, Some(why)),
                    None => return,
                },
                Some(proposed) = tasks.join_next() => {
                    let proposed = joined(proposed);
                    under_way.retain(|proposal| *proposal != proposed);
                    if matches!(proposed.command, Command::Admit(_)) {
                        note(&self.last_refusal, None);
                    }
                }
            }
        }
    }
}

async fn propose(control: ControlGroup<DecisionList>, proposal: Proposal) -> Proposal {
    match control.propose(&proposal).await {
        Ok(index) => tracing::info!(index, "decided: {}", proposal.command),
        Err(error) => tracing::warn!(%error, "not decided: {}", proposal.command),
    }
    proposal
}

fn note(last: &LastRefusal, why: Option<String>) {
    *last.lock().expect("nothing panics while it holds a text") = why;
}

/// Requests of servers that want to join.
pub(super) struct Calls {
    pub control: ControlGroup<DecisionList>,
    pub asked: Asked,
    pub view: watch::Receiver<MembersView>,
    pub inputs: mpsc::Sender<MembersInput>,
    pub last_refusal: LastRefusal,
}

impl Calls {
    pub(super) async fn run(self, calls: &mut mpsc::Receiver<JoinCall>) {
        let mut proposed_at: Option<Instant> = None;
        while let Some(JoinCall { from, request, answer: caller }) = calls.recv().await {
            let last = self.last_refusal.lock().expect("nothing panics while it holds a text").clone();
            let newest = self.control.state().0;
            let Response { answer, propose } =
                respond(&self.view.borrow(), &newest, self.asked, from, &request, last);
            if let Some(command) = propose
                && proposed_at.is_none_or(|at| at.elapsed() >= PROPOSE_AGAIN)
            {
                proposed_at = Some(Instant::now());
                // If the mailbox is full, it is lost: the server asks again.
                let _ = self.inputs.try_send(MembersInput::Propose(Box::new(command)));
            }
            // The caller may be gone.
            let _ = caller.send(answer);
        }
    }
}
