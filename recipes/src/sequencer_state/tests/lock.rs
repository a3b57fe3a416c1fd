//! The contract's lock, as the servers see it: a queue, a holder, the datacenter that has its parts, and the
//! handover that is written under it.

use super::super::words::{Epoch, Handover};

/// A request for the lock: the node, and a number that no other request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub node: usize,
    pub number: u64,
}

#[derive(Default)]
pub struct Lock {
    pub queue: Vec<Ticket>,
    pub holder: Option<(Ticket, Epoch)>,
    /// The datacenter of the last holder.
    pub place: usize,
    pub handover: Option<Handover>,
    token: u64,
}

impl Lock {
    /// Grants the lock, if it is free, to the first that waits and can have it.
    pub fn grant(
        &mut self,
        is_reachable: impl Fn(usize, usize) -> bool,
        dc: impl Fn(usize) -> usize,
    ) -> Option<(Ticket, Epoch)> {
        if self.holder.is_some() {
            return None;
        }
        let first = self.queue.iter().position(|ticket| is_reachable(self.place, dc(ticket.node)))?;
        let ticket = self.queue.remove(first);
        self.token += 1;
        self.place = dc(ticket.node);
        self.holder = Some((ticket, Epoch(self.token)));
        self.holder
    }

    /// Ends a request, whether it waits or holds.
    pub fn end(&mut self, number: u64) {
        self.queue.retain(|ticket| ticket.number != number);
        if self.holder.is_some_and(|(ticket, _)| ticket.number == number) {
            self.holder = None;
        }
    }
}
