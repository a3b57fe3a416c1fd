//! One intent, until it is confirmed or has finally failed.

use std::time::Duration;

use super::super::chain::Chain;
use super::super::events::{Failure, Grant};
use super::super::words::{Assembly, AssemblyHash, Epoch, Intent, Node, Refusal};

/// How far an intent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nobody has it.
    Pending,
    /// It was sent to the delegate.
    Delegated { accepted: bool },
    /// It is on its way to the ledger: the delegate of then, or another node's answer, says so.
    Dispatched { since: Duration, by: Option<(Node, Epoch)> },
}

#[derive(Debug)]
pub(super) struct Task {
    pub intent: Intent,
    pub stage: Stage,
    /// The assembly for the delegate's latest round.
    pub assembly: Option<Made>,
    /// Permissions whose transactions may still be confirmed.
    pub grants: Vec<Grant>,
    /// For each of these assemblies, the height of this node when the domain began with it.
    pub known: Vec<(AssemblyHash, u64)>,
    pub failures: Failures,
    /// Grants that their coordinators have given back, each at a height: what they did with them before is
    /// decided there.
    pub given_back: Vec<(Grant, u64)>,
    /// The time at which the coordinators are asked to give the grants back, once it is hopeless.
    pub revoke_at: Duration,
}

/// An assembly that the domain has made.
#[derive(Debug)]
pub(super) struct Made {
    pub round: u64,
    /// The height of this node when the domain began with it.
    pub height: u64,
    pub assembly: Assembly,
}

/// Failures of an intent since the start of this process.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub assembly: u32,
    pub endorsement: u32,
    pub revert: u32,
    last: Option<Failure>,
}

impl Failures {
    pub fn count(&mut self, failure: Failure) {
        let count = match &failure {
            Failure::Assembly(_) => &mut self.assembly,
            Failure::Endorsement(_) => &mut self.endorsement,
            Failure::Reverted(_) => &mut self.revert,
        };
        *count += 1;
        self.last = Some(failure);
    }

    /// Returns the last failure, if there were too many of a kind.
    pub fn too_many(&self, most: u32) -> Option<&Failure> {
        let is_too_many = [self.assembly, self.endorsement, self.revert].iter().any(|count| *count >= most);
        self.last.as_ref().filter(|_| is_too_many)
    }
}

impl Task {
    pub fn new(intent: Intent) -> Task {
        Task {
            intent,
            stage: Stage::Pending,
            assembly: None,
            grants: Vec::new(),
            known: Vec::new(),
            failures: Failures::default(),
            given_back: Vec::new(),
            revoke_at: Duration::ZERO,
        }
    }

    pub fn is_dispatched(&self) -> bool {
        matches!(self.stage, Stage::Dispatched { .. })
    }

    /// Returns true if it has failed too often: it is not delegated any more, and given up as soon as no
    /// permission can be used.
    pub fn is_hopeless(&self, most: u32) -> bool {
        self.failures.too_many(most).is_some()
    }

    /// Returns true if its permissions have to be revoked.
    pub fn has_to_revoke(&self, most: u32) -> bool {
        self.is_hopeless(most) && !self.is_dispatched() && self.grants.len() > self.given_back.len()
    }

    /// Forgets grants that were given back at a height that this node has seen.
    pub fn forget_given_back(&mut self, height: u64) {
        let Task { grants, given_back, .. } = self;
        given_back.retain(|(grant, at)| {
            let is_seen = *at <= height;
            if is_seen {
                grants.retain(|it| it != grant);
            }
            !is_seen
        });
    }

    /// Takes it back from the delegate.
    pub fn take_back(&mut self) {
        if !self.is_dispatched() {
            (self.stage, self.assembly) = (Stage::Pending, None);
        }
    }

    /// Forgets grants that the ledger refuses from now on.
    pub fn forget_fenced(&mut self, chain: &Chain) {
        self.grants.retain(|grant| !chain.fences(grant.epoch));
        self.given_back.retain(|(grant, _)| !chain.fences(grant.epoch));
        if let Stage::Dispatched { by: Some((_, epoch)), .. } = &self.stage
            && chain.fences(*epoch)
        {
            self.stage = Stage::Pending;
        }
    }

    /// Decides if the delegate may dispatch an assembly. The grants of other coordinators have to be fenced
    /// by this one: they may still be used. Epoch 0 fences none, and the ledger fences none of epoch 0, so
    /// there the rule of the intent decides.
    pub fn permits(&self, to: &Node, epoch: Epoch, hash: AssemblyHash) -> Result<(), Refusal> {
        if self.grants.iter().any(|it| it.to == *to && it.epoch == epoch && it.hash == hash) {
            return Ok(());
        }
        if self.assembly.as_ref().is_none_or(|made| made.assembly.hash() != hash) {
            return Err(Refusal::OtherAssembly);
        }
        match self.grants.iter().any(|it| it.to != *to && it.epoch >= epoch) {
            true => Err(Refusal::OlderEpoch),
            false => Ok(()),
        }
    }
}
