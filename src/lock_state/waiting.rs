//! The number of requests that wait for parts of each datacenter: what stays waiting if that one dies.

use super::inspect::Inspect;
use super::request::{Origin, Request, State};
use crate::base::work;
use geolock_api::names::{DcId, DcSet, MAX_DCS, Mode};

/// Most requests and locks that are examined for it. The numbers are published ten times a second.
pub(crate) const LOOKS: usize = 1_024;

/// Requests that wait for parts, by the owners of the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitingFor {
    of: [u64; MAX_DCS],
    /// All requests were examined.
    pub is_complete: bool,
}

impl WaitingFor {
    /// Returns the number of requests that wait for a part that this datacenter owns.
    pub fn of(&self, owner: DcId) -> u64 {
        self.of[owner.index()]
    }
}

impl Inspect<'_> {
    /// Returns the requests of the clients of this datacenter, and the published ones of others, that wait
    /// and need a part that another datacenter than their own has. Examines [`LOOKS`] of them.
    pub fn waiting_for(self) -> WaitingFor {
        let requests = &self.0.requests;
        let (mut of, mut looks) = ([0; MAX_DCS], 0);
        let counts = requests.counts();
        if counts.waiting + counts.remote == 0 {
            return WaitingFor { of, is_complete: true };
        }
        for row in 0..requests.end() {
            if looks >= LOOKS {
                work::count(looks);
                return WaitingFor { of, is_complete: false };
            }
            looks += 1;
            let Some((_, request)) = requests.at(row).filter(|(_, request)| waits(request)) else { continue };
            looks += request.wants.len().min(LOOKS);
            self.owners_needed(request).iter().for_each(|owner| of[owner.index()] += 1);
        }
        work::count(looks);
        WaitingFor { of, is_complete: true }
    }

    /// Returns the other datacenters that have parts which a request needs, of its first [`LOOKS`] locks.
    fn owners_needed(self, request: &Request) -> DcSet {
        let (me, owners) = (request.id.dc, &self.0.owners);
        let mut needed = DcSet::EMPTY;
        for want in request.wants.iter().take(LOOKS) {
            let name = &self.0.locks[want.lock].name;
            let parts = match want.mode {
                Mode::Exclusive => self.0.view.members,
                Mode::Shared => DcSet::only(me),
            };
            parts.iter().for_each(|part| needed.insert(owners.owner(name, part)));
        }
        needed.difference(DcSet::only(me))
    }
}

fn waits(request: &Request) -> bool {
    match &request.origin {
        Origin::Local(local) => local.state == State::Waiting,
        Origin::Remote { .. } => true,
    }
}
