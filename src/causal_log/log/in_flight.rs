//! The messages on their way to a peer: a link whose window is full is given no more entries.

use std::collections::VecDeque;

/// Maximum number of bytes of entries in flight on a link. The link breaks when far more than that wait (a
/// few of the largest commits), and all would be sent again. It is more than the bandwidth-delay product of
/// any WAN link.
const WINDOW_WEIGHT: usize = 16 << 20;

/// The messages that the link has not taken off its queue yet.
#[derive(Default)]
pub(super) struct InFlight {
    messages: usize,
    /// The weights of the batches of entries among the messages, in their order, and their sum.
    batches: VecDeque<usize>,
    batches_weight: usize,
}

impl InFlight {
    /// Returns true if no further batch has room. `window`: the maximum number of messages.
    pub fn is_full(&self, window: usize) -> bool {
        self.messages >= window || self.batches_weight >= WINDOW_WEIGHT
    }

    /// Adds a message without entries.
    pub fn add_message(&mut self) {
        self.messages += 1;
    }

    /// Adds a message of entries of this weight.
    pub fn add_batch(&mut self, weight: usize) {
        debug_assert!(weight > 0, "a batch has entries, and they have a weight");
        self.messages += 1;
        self.batches.push_back(weight);
        self.batches_weight += weight;
    }

    /// Removes the first messages, `batches` of them with entries.
    pub fn remove(&mut self, messages: usize, batches: usize) {
        self.messages = self.messages.saturating_sub(messages);
        let batches = batches.min(self.batches.len());
        self.batches_weight -= self.batches.drain(..batches).sum::<usize>();
        debug_assert_eq!(self.batches_weight, self.batches.iter().sum::<usize>(), "the weight in flight");
    }

    pub fn check(&self) {
        let weight: usize = self.batches.iter().sum();
        assert_eq!(weight, self.batches_weight, "the weight in flight");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_bytes_in_flight_are_bounded_apart() {
        let mut in_flight = InFlight::default();
        in_flight.add_message();
        in_flight.add_batch(7);
        assert_eq!([in_flight.is_full(3), in_flight.is_full(2)], [false, true]);
        in_flight.remove(1, 0);
        in_flight.add_batch(WINDOW_WEIGHT);
        assert!(in_flight.is_full(usize::MAX));
        in_flight.remove(5, 5);
        assert!(!in_flight.is_full(1));
    }
}
