//! Forced recovery, for operators: asks the machine, and waits until the survivors continue.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::operators::{MembersApi, ProposalError};
use crate::lock_server::{MembersInput, MembersView};
use crate::membership::{Config, Fallen, LossReport, Refused, Voter};
use geolock_api::names::{DcId, DcSet};

/// How long a call waits until the survivors continue; the operator repeats it.
const WITHIN: Duration = Duration::from_secs(3);
/// The pause until a leader is looked for again.
const LEADER_PAUSE: Duration = Duration::from_millis(20);

impl MembersApi {
    /// Checks that the survivors can continue without the lost members now. Returns how long the leases of
    /// their clients may still last; zero if it is done already.
    pub fn check_recovery(&self, survivors: &[DcId], lost: &[DcId]) -> Result<Duration, ProposalError> {
        let view = self.view.borrow();
        let (survivors, named) = (set(survivors), set(lost));
        let lost = lost_members(&view, named);
        if is_done(&view, survivors, lost) {
            return Ok(Duration::ZERO);
        }
        if let Some((dc, by)) = heard_witness(&view, self.me, named) {
            return Err(Refused::StillHeard { dc, by, ago: Duration::ZERO }.into());
        }
        let plan = view.config.recovery_plan(survivors, lost);
        view.config.check_recovery(&view.facts(self.me, &view.config), self.me, &plan)?;
        // A witness has no clients.
        Ok(view.longest_lease(lost.iter()))
    }

    /// Lets the survivors continue without the lost members, by force. Returns the losses, once all survivors
    /// have continued and have a leader. Repeating it is harmless.
    pub async fn recover(&self, survivors: &[DcId], lost: &[DcId]) -> Result<LossReport, ProposalError> {
        let mut view = self.view.clone();
        let (survivors, lost) = (set(survivors), lost_members(&view.borrow(), set(lost)));
        let deadline = Instant::now() + WITHIN;
        let (plan, asked) = {
            let view = view.borrow_and_update();
            (view.config.recovery_plan(survivors, lost), view.recovery.asked)
        };
        if !is_done(&view.borrow(), survivors, lost) {
            let input = MembersInput::Recover(plan);
            self.inputs.send(input).await.map_err(|_| ProposalError::NoGroup)?;
            // Its decision counts once it is on disk.
            let is_decided = |view: &MembersView| {
                view.recovered.as_ref().is_some_and(|config| config.lineage() >= plan.lineage)
            };
            let is_answered = |view: &MembersView| {
                view.recovery.asked > asked && (view.recovery.refused.is_some() || is_decided(view))
            };
            let answered = timeout_at(deadline, view.wait_for(is_answered)).await;
            let answered = answered.map_err(|_| unfinished("not all survivors have promised"))?;
            let answered = answered.map_err(|_| ProposalError::NoGroup)?;
            if !is_done(&answered, survivors, lost) {
                let refused = answered.recovery.refused.clone();
                // It was decided for other members.
                let found = answered.config.lineage();
                let other = Refused::LineageNotNext { asked: plan.lineage, expected: found };
                return Err(refused.unwrap_or(other).into());
            }
        }
        let entered =
            timeout_at(deadline, view.wait_for(|view| report(view).is_some() && view.behind().is_empty()));
        let entered = entered.await.map_err(|_| unfinished("it is decided, and not all survivors go on"))?;
        let report = entered.map(|view| report(&view).cloned()).map_err(|_| ProposalError::NoGroup)?;
        self.leader(deadline).await?;
        Ok(report.expect("it was waited for"))
    }

    /// Waits until the new control group has a leader.
    async fn leader(&self, deadline: Instant) -> Result<(), ProposalError> {
        let lineage = self.view.borrow().config.lineage();
        loop {
            let control = self.control.borrow().clone();
            let leads = |control: &crate::control::ControlGroup<_>| {
                let super::decisions::DecisionList(config) = control.state();
                config.lineage() >= lineage && control.status().leader.is_some()
            };
            if control.as_ref().is_some_and(leads) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(unfinished("it is decided, and the new control group has no leader"));
            }
            // A leader is one that was heard of lately: no event says that.
            sleep(LEADER_PAUSE).await;
        }
    }

    /// Returns the locks and counters of the last evictions and forced recoveries that are known here.
    pub fn fallen(&self) -> Vec<Fallen> {
        self.view.borrow().fallen.clone()
    }

    /// Returns the forced recoveries of this cluster, and the losses of each, as far as they are known here.
    pub fn losses(&self) -> Vec<LossReport> {
        self.view.borrow().losses.clone()
    }
}

fn unfinished(what: &str) -> ProposalError {
    ProposalError::Unfinished(what.into())
}

fn set(dcs: &[DcId]) -> DcSet {
    dcs.iter().copied().collect()
}

/// Returns the members among those that an operator names as lost. A witness may be named, too: forced
/// recovery ends all of them.
fn lost_members(view: &MembersView, named: DcSet) -> DcSet {
    let witnesses = view.config.witnesses();
    named.difference(witnesses.dcs()).difference(witnesses.past_dcs())
}

/// Returns a witness among these that is heard, and this datacenter, which hears it.
fn heard_witness(view: &MembersView, me: DcId, named: DcSet) -> Option<(DcId, Voter)> {
    let heard = view.witnesses.0.intersection(view.config.witnesses().dcs()).intersection(named);
    let generation = view.config.slots().generation(me)?;
    Some((heard.iter().next()?, Voter::Member { dc: me, generation }))
}

/// Returns the report of the last recovery, once it is entered here.
fn report(view: &MembersView) -> Option<&LossReport> {
    let recovered = view.recovered.as_ref()?;
    view.losses.iter().find(|report| report.decision == recovered.index())
}

/// Returns true if the last recovery was this one, and no server or witness has joined since: another server
/// may have the id of one that was lost.
fn is_done(view: &MembersView, survivors: DcSet, lost: DcSet) -> bool {
    let is_same = |config: &Config| {
        let cuts: DcSet = config.slots().lost_at(config.epoch()).map(|cut| cut.dc).collect();
        config.slots().member_set() == survivors
            && cuts == lost
            && view.config.slots().member_set() == survivors
            && view.config.witnesses().dcs().is_empty()
    };
    view.recovered.as_ref().is_some_and(is_same)
}
